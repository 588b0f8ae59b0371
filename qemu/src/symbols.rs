//! Addresses of a kernel's functions: Linux's from its guest's output, the image's from its symbol table.

use crate::BootError;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
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
pub(crate) struct Symbols(Vec<Symbol>);

impl Symbols {
    /// Reads the `symbol NAME FIRST END` lines.
    pub(crate) fn told(lines: &[String]) -> Self {
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
    /// [`BootError::Io`] if the file cannot be read or is not an object file.
    pub(crate) fn of_image(file: &Path) -> Result<Self, BootError> {
        let io = |error| BootError::Io(file.display().to_string(), error);
        let bytes = std::fs::read(file).map_err(io)?;
        functions(&bytes).map(Self).map_err(|error| io(std::io::Error::other(error)))
    }

    /// Whether `address` is in a function whose name contains one of `parts`.
    pub(crate) fn is_in(&self, parts: &[&str], address: u64) -> bool {
        let mut around = self.0.iter().filter(|symbol| (symbol.first..symbol.end).contains(&address));
        around.any(|symbol| parts.iter().any(|part| symbol.name.contains(part)))
    }

    /// Whether `address` is in any of the functions.
    pub(crate) fn contain(&self, address: u64) -> bool {
        self.is_in(&[""], address)
    }

    /// Whether each of these names has a function.
    pub(crate) fn have(&self, parts: &[&str]) -> bool {
        parts.iter().all(|part| self.0.iter().any(|symbol| symbol.name.contains(part)))
    }
}

/// The address of the only symbol of a file, function or not, whose name contains all `parts`.
///
/// # Errors
/// [`BootError::Io`] if the file cannot be read, is not an object file, or has no such symbol or several.
pub(crate) fn address(file: &Path, parts: &[&str]) -> Result<u64, BootError> {
    let io = |error| BootError::Io(file.display().to_string(), error);
    let bytes = std::fs::read(file).map_err(io)?;
    let object = object::File::parse(&*bytes).map_err(|error| io(std::io::Error::other(error)))?;
    let is_wanted = |name: &str| parts.iter().all(|part| name.contains(part));
    let mut found = object.symbols().filter(|symbol| symbol.name().is_ok_and(is_wanted));
    match (found.next(), found.next()) {
        (Some(symbol), None) => Ok(symbol.address()),
        _ => Err(io(std::io::Error::other(format!("not one symbol whose name contains {parts:?}")))),
    }
}

/// The functions in the symbol table of an object file.
fn functions(file: &[u8]) -> object::Result<Vec<Symbol>> {
    let functions = object::File::parse(file)?;
    let functions = functions.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let symbol = |symbol: object::Symbol<'_, '_>| {
        let first = symbol.address();
        Ok(Symbol { name: symbol.name()?.to_owned(), first, end: first + symbol.size() })
    };
    functions.map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_own_functions_are_found() {
        let file = std::env::current_exe().expect("a test runs from a file");
        let symbols = Symbols::of_image(&file).expect("test programs keep their symbols");
        assert!(symbols.have(&["this_programs_own_functions_are_found"]) && !symbols.have(&["no_such_function"]));
        assert!(functions(b"\x7fELF").is_err());
    }

    #[test]
    fn functions_are_found_by_part_of_their_names() {
        let lines = ["symbol nvme_irq 10 20".into(), "count x 1".into(), "symbol other 40 50".into()];
        let symbols = Symbols::told(&lines);
        assert!(symbols.is_in(&["nvme"], 0x1f) && !symbols.is_in(&["nvme"], 0x20) && !symbols.is_in(&["nvme"], 0x40));
        assert!(symbols.contain(0x40) && !symbols.contain(0x30));
    }
}
