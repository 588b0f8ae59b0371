//! The part of AML that static tables are made of (ACPI 6.5, 20.2): packages are entered or skipped by their length,
//! named constants are read, and nothing is executed.

use super::DiscoveryError;

/// A position in a table's body.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The offset of `bytes` in the table, for messages.
    at: usize,
}

/// A named constant.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Integer(u64),
    Text(&'a [u8]),
    /// The bytes of a buffer.
    Buffer(&'a [u8]),
    /// Content that the parser skips.
    Other,
}

/// One term of a list.
pub(super) enum Term<'a> {
    /// A scope or another container of named objects.
    Scope(Cursor<'a>),
    Device(Cursor<'a>),
    /// The last segment of a name, and what it stands for.
    Name([u8; 4], Value<'a>),
    /// Content that the parser skips.
    Other,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DiscoveryError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(DiscoveryError::AmlEnd(self.at))?;
        self.bytes = rest;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, DiscoveryError> {
        Ok(self.take(1)?[0])
    }

    fn little(&mut self, count: usize) -> Result<u64, DiscoveryError> {
        Ok(self.take(count)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    /// PkgLength (20.2.4), and the rest of the package that it measures.
    fn package(&mut self) -> Result<Self, DiscoveryError> {
        let start = *self;
        let lead = self.byte()?;
        let more = usize::from(lead >> 6);
        let low = if more == 0 { lead & 0x3f } else { lead & 0x0f };
        let high = self.little(more)? as usize;
        let length = high << 4 | usize::from(low);
        let used = self.at - start.at;
        let at = self.at;
        // The length counts its own bytes.
        let inside = length.checked_sub(used).ok_or(DiscoveryError::AmlEnd(start.at))?;
        Ok(Self::new(self.take(inside)?, at))
    }

    /// NameString (20.2.2); its last segment.
    fn name(&mut self) -> Result<[u8; 4], DiscoveryError> {
        while matches!(self.bytes.first(), Some(b'\\' | b'^')) {
            self.take(1)?;
        }
        let segments = match self.bytes.first() {
            Some(0x00) => {
                self.take(1)?;
                0
            }
            Some(0x2e) => {
                self.take(1)?;
                2
            }
            Some(0x2f) => {
                self.take(1)?;
                usize::from(self.byte()?)
            }
            Some(b'A'..=b'Z' | b'_') => 1,
            Some(&other) => return Err(DiscoveryError::Aml(other, self.at)),
            None => return Err(DiscoveryError::AmlEnd(self.at)),
        };
        let mut last = [b'_'; 4];
        for _ in 0..segments {
            last.copy_from_slice(self.take(4)?);
        }
        Ok(last)
    }

    /// A constant (20.2.3), or a package.
    fn value(&mut self) -> Result<Value<'a>, DiscoveryError> {
        let at = self.at;
        Ok(match self.byte()? {
            0x00 => Value::Integer(0),
            0x01 => Value::Integer(1),
            0xff => Value::Integer(u64::MAX),
            0x0a => Value::Integer(self.little(1)?),
            0x0b => Value::Integer(self.little(2)?),
            0x0c => Value::Integer(self.little(4)?),
            0x0e => Value::Integer(self.little(8)?),
            0x0d => {
                let end = self.bytes.iter().position(|&byte| byte == 0).ok_or(DiscoveryError::AmlEnd(at))?;
                let text = self.take(end)?;
                self.take(1)?;
                Value::Text(text)
            }
            0x11 => {
                let mut package = self.package()?;
                let Value::Integer(size) = package.value()? else { return Ok(Value::Other) };
                // A buffer longer than what is written is filled with zeros, which end no resource list.
                Value::Buffer(&package.bytes[..package.bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX))])
            }
            0x12 | 0x13 => {
                self.package()?;
                Value::Other
            }
            other => return Err(DiscoveryError::Aml(other, at)),
        })
    }

    /// The next term; none at the end.
    pub(super) fn term(&mut self) -> Result<Option<Term<'a>>, DiscoveryError> {
        let at = self.at;
        let Some(&opcode) = self.bytes.first() else { return Ok(None) };
        self.take(1)?;
        Ok(Some(match opcode {
            // Alias.
            0x06 => {
                self.name()?;
                self.name()?;
                Term::Other
            }
            0x08 => Term::Name(self.name()?, self.value()?),
            0x10 => Term::Scope(self.named_package()?),
            // Method, If, Else, While: code that runs later is skipped.
            0x14 | 0xa0 | 0xa1 | 0xa2 => {
                self.package()?;
                Term::Other
            }
            // External: type and count of arguments.
            0x15 => {
                self.name()?;
                self.take(2)?;
                Term::Other
            }
            // Noop.
            0xa3 => Term::Other,
            0x5b => self.extended(at)?,
            other => return Err(DiscoveryError::Aml(other, at)),
        }))
    }

    fn extended(&mut self, at: usize) -> Result<Term<'a>, DiscoveryError> {
        match self.byte()? {
            // Mutex and its flags; event.
            0x01 => {
                self.name()?;
                self.byte()?;
            }
            0x02 => _ = self.name()?,
            // Operation region: space, offset, length.
            0x80 => {
                self.name()?;
                self.byte()?;
                self.value()?;
                self.value()?;
            }
            0x82 => return Ok(Term::Device(self.named_package()?)),
            // Thermal zone.
            0x85 => return Ok(Term::Scope(self.named_package()?)),
            // Field, processor, power resource, index field, bank field: skipped by their length.
            0x81 | 0x83 | 0x84 | 0x86 | 0x87 => _ = self.package()?,
            other => return Err(DiscoveryError::Aml(other, at)),
        }
        Ok(Term::Other)
    }

    /// A package that begins with its name.
    fn named_package(&mut self) -> Result<Self, DiscoveryError> {
        let mut package = self.package()?;
        package.name()?;
        Ok(package)
    }
}
