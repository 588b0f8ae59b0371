//! No device interrupt reaches an offline CPU.

use super::{Checker, Findings, Topic};
use machine::observe::{Arrival, Fact};
use machine::time::Ps;
use std::collections::BTreeSet;

const NAME: &str = "offline";

/// The subject declares which CPUs are offline.
pub struct Offline {
    /// The highest vector of a device. System vectors are above it and may come.
    device_last: u8,
    /// The posted descriptors of the CPUs, in order; empty without posted delivery.
    descriptors: Vec<u64>,
    offline: BTreeSet<u32>,
}

impl Offline {
    /// Devices have vectors from 0x20 to `device_last`.
    pub fn new(device_last: u8, descriptors: &[u64]) -> Self {
        Self { device_last, descriptors: descriptors.to_vec(), offline: BTreeSet::new() }
    }

    fn is_device(&self, vector: u8) -> bool {
        (0x20..=self.device_last).contains(&vector)
    }
}

impl Checker for Offline {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Declared, Topic::Raised, Topic::Taken, Topic::Remapping]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::Declared { cpu, online: false } => {
                findings.coverage.add("CPU: went offline", 1);
                self.offline.insert(cpu);
            }
            Fact::Declared { cpu, online: true } => _ = self.offline.remove(&cpu),
            Fact::Raised { cpu, vector, arrival, .. }
                if arrival != Arrival::Refused && self.is_device(vector) && self.offline.contains(&cpu) =>
            {
                findings.wrong(NAME, at, format!("vector {vector:#04x} arrived at CPU {cpu}, which is offline"));
            }
            Fact::Accepted { cpu, vector } if self.is_device(vector) && self.offline.contains(&cpu) => {
                findings.wrong(NAME, at, format!("CPU {cpu} is offline and took vector {vector:#04x}"));
            }
            Fact::Posted { descriptor, vector, .. } => {
                let cpu = self.descriptors.iter().position(|&own| own == descriptor);
                if let Some(cpu) = cpu.filter(|&cpu| self.offline.contains(&(cpu as u32))) {
                    findings.wrong(NAME, at, format!("vector {vector:#04x} was posted to CPU {cpu}, which is offline"));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;
    use machine::observe::Post;

    #[test]
    fn what_reaches_an_offline_cpu_is_found_until_it_is_back() {
        let checker = || Offline::new(0xea, &[0x1000, 0x1040]);
        let declared = |online| Fact::Declared { cpu: 1, online };
        let raised = |vector| Fact::Raised { cpu: 1, vector, level: false, arrival: Arrival::Pending };
        let posted =
            Fact::Posted { requester: 1, descriptor: 0x1040, vector: 0x30, again: false, post: Post::Notified };
        assert!(says(checker(), &[raised(0x30), declared(false), raised(0xec), declared(true), posted]).is_empty());
        let found = says(checker(), &[declared(false), raised(0x30), posted]);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
