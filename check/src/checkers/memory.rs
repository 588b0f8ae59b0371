//! What a device still uses is not given back.
//!
//! The next owner of that memory would find a queue's entries in it, and the device would take what that owner writes for
//! addresses. That is the driver's part whatever the hardware refuses: a start that fails half-way stops what it has started, or keeps
//! its memory.

use super::{Checker, Findings, Topic};
use machine::observe::Fact;
use machine::time::Ps;

/// Every buffer that goes back.
pub struct Memory;

impl Checker for Memory {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Memory]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        if let Fact::GivenBack { device, address } = *fact {
            let text = format!("memory at {address:#x} was given back, and device {} still uses it", device.0);
            findings.wrong("memory", at, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;
    use machine::model::ModelId;

    #[test]
    fn memory_of_a_device_stays() {
        let found = says(Memory, &[Fact::GivenBack { device: ModelId(3), address: 0x1_0000_4000 }]);
        assert_eq!(found, ["memory at 0x100004000 was given back, and device 3 still uses it"]);
    }
}
