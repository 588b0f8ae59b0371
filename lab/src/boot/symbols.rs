//! Where a kernel's functions lie: Linux's by what its guest prints, the image's by its symbol table.

use super::BootError;
use std::path::Path;

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Symbol {
    name: String,
    first: u64,
    end: u64,
}

/// Functions by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Symbols(Vec<Symbol>);

impl Symbols {
    /// The `symbol NAME FIRST END` lines.
    pub(super) fn told(lines: &[String]) -> Self {
        let symbol = |line: &String| {
            let mut words = line.strip_prefix("symbol ")?.split(' ');
            let name = words.next()?.to_owned();
            let mut address = || u64::from_str_radix(words.next()?, 16).ok();
            Some(Symbol { name, first: address()?, end: address()? })
        };
        Self(lines.iter().filter_map(symbol).collect())
    }

    /// The functions of an image.
    ///
    /// # Errors
    /// [`BootError::Io`] when it cannot be read or has no symbol table.
    pub(super) fn of_image(file: &Path) -> Result<Self, BootError> {
        let io = |error| BootError::Io(file.display().to_string(), error);
        let bytes = std::fs::read(file).map_err(io)?;
        functions(&bytes).map(Self).ok_or_else(|| io(std::io::Error::other("it has no symbol table")))
    }

    /// Whether `address` is in a function whose name contains one of `parts`.
    pub(super) fn is_in(&self, parts: &[&str], address: u64) -> bool {
        let mut around = self.0.iter().filter(|symbol| (symbol.first..symbol.end).contains(&address));
        around.any(|symbol| parts.iter().any(|part| symbol.name.contains(part)))
    }

    /// Whether `address` is in any of them.
    pub(super) fn contain(&self, address: u64) -> bool {
        self.is_in(&[""], address)
    }

    /// Whether there are functions of all these names.
    pub(super) fn have(&self, parts: &[&str]) -> bool {
        parts.iter().all(|part| self.0.iter().any(|symbol| symbol.name.contains(part)))
    }
}

/// Section type SHT_SYMTAB and symbol type STT_FUNC (System V ABI, "Sections", "Symbol Table").
const SYMBOL_TABLE: u64 = 2;
const FUNCTION: u64 = 2;
/// Bytes of a symbol.
const SYMBOL_BYTES: usize = 24;

/// The functions in the symbol table of a little-endian ELF64 file.
fn functions(file: &[u8]) -> Option<Vec<Symbol>> {
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(file.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(word))
    };
    let place = |at| Some(number(at, 8)? as usize);
    let (headers, header_bytes, count) = (place(0x28)?, number(0x3a, 2)? as usize, number(0x3c, 2)? as usize);
    let header = |index: usize| headers + index * header_bytes;
    let table = (0..count).map(header).find(|&header| number(header + 4, 4) == Some(SYMBOL_TABLE))?;
    let names = place(header(number(table + 0x28, 4)? as usize) + 0x18)?;
    let (first, bytes) = (place(table + 0x18)?, place(table + 0x20)?);
    let symbol = |at: usize| {
        let name = file.get(names + number(at, 4)? as usize..)?.split(|&byte| byte == 0).next()?;
        let (address, length) = (number(at + 8, 8)?, number(at + 16, 8)?);
        let is_function = number(at + 4, 1)? & 0xf == FUNCTION;
        let name = String::from_utf8_lossy(name).into_owned();
        is_function.then_some(Symbol { name, first: address, end: address + length })
    };
    Some((first..first + bytes).step_by(SYMBOL_BYTES).filter_map(symbol).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_own_functions_are_found() {
        let file = std::env::current_exe().expect("a test runs from a file");
        let symbols = Symbols::of_image(&file).expect("test programs keep their symbols");
        assert!(symbols.have(&["this_programs_own_functions_are_found"]) && !symbols.have(&["no_such_function"]));
        assert_eq!(functions(b"\x7fELF"), None);
    }

    #[test]
    fn functions_are_found_by_part_of_their_names() {
        let lines = ["symbol nvme_irq 10 20".into(), "count x 1".into(), "symbol other 40 50".into()];
        let symbols = Symbols::told(&lines);
        assert!(symbols.is_in(&["nvme"], 0x1f) && !symbols.is_in(&["nvme"], 0x20) && !symbols.is_in(&["nvme"], 0x40));
        assert!(symbols.contain(0x40) && !symbols.contain(0x30));
    }
}
