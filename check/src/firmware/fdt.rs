//! Writes flattened device trees (Devicetree Specification 0.4, chapter 5).

/// Tokens of the structure block.
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;
/// Bytes of the header, and of a memory reservation block with nothing in it.
const HEADER_BYTES: u32 = 40;
const RESERVED_BYTES: u32 = 16;

/// A tree that is being written.
#[derive(Default)]
pub(super) struct Fdt {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Fdt {
    fn word(&mut self, word: u32) {
        self.structure.extend(word.to_be_bytes());
    }

    fn pad(&mut self) {
        while !self.structure.len().is_multiple_of(4) {
            self.structure.push(0);
        }
    }

    pub(super) fn begin(&mut self, name: &str) {
        self.word(BEGIN_NODE);
        self.structure.extend(name.bytes().chain([0]));
        self.pad();
    }

    pub(super) fn end(&mut self) {
        self.word(END_NODE);
    }

    /// A token without meaning.
    pub(super) fn nop(&mut self) {
        self.word(NOP);
    }

    pub(super) fn bytes(&mut self, name: &str, value: &[u8]) {
        let name: Vec<u8> = name.bytes().chain([0]).collect();
        let at = self.strings.windows(name.len()).position(|known| known == name);
        let at = at.unwrap_or_else(|| {
            self.strings.extend(&name);
            self.strings.len() - name.len()
        });
        self.word(PROPERTY);
        self.word(value.len() as u32);
        self.word(at as u32);
        self.structure.extend(value);
        self.pad();
    }

    pub(super) fn cells(&mut self, name: &str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    pub(super) fn texts(&mut self, name: &str, texts: &[&str]) {
        let bytes: Vec<u8> = texts.iter().flat_map(|text| text.bytes().chain([0])).collect();
        self.bytes(name, &bytes);
    }

    /// The blob.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.word(END);
        let structure_at = HEADER_BYTES + RESERVED_BYTES;
        let strings_at = structure_at + self.structure.len() as u32;
        let total = strings_at + self.strings.len() as u32;
        let sizes = [self.strings.len() as u32, self.structure.len() as u32];
        // Magic, total size, offsets, version 17 that is like version 16, the boot CPU, sizes.
        let header = [0xd00d_feed, total, structure_at, strings_at, HEADER_BYTES, 17, 16, 0, sizes[0], sizes[1]];
        let mut blob: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        blob.extend([0; RESERVED_BYTES as usize]);
        blob.extend(self.structure);
        blob.extend(self.strings);
        blob
    }
}

/// A number of so many cells.
pub(super) fn in_cells(value: u64, cells: usize) -> Vec<u32> {
    match cells {
        1 => vec![value as u32],
        _ => vec![(value >> 32) as u32, value as u32],
    }
}
