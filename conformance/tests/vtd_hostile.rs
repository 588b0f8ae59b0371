//! After any writes of software and messages of devices, the unit still works and accounts for every request.

mod vtd_rig;

use hal::{Dma as _, Word as _};
use proptest::prelude::*;
use vtd_rig::{Options, Rig};

const HANDLE_5: u64 = 0xfee0_00b0;

/// Entries: anything; or a present one in the posted format with a descriptor near or in memory.
fn entry(memory: u64) -> impl Strategy<Value = (u64, u64)> {
    let near = (any::<u8>(), any::<bool>(), 0..80u64, any::<u8>()).prop_map(move |(vector, urgent, line, source)| {
        let descriptor = memory + line * 64;
        let low = (descriptor & 0xffff_ffc0) << 32 | u64::from(vector) << 16 | u64::from(urgent) << 14 | 0x8001;
        (low, descriptor & 0xffff_ffff_0000_0000 | u64::from(source & 0xf) << 16 | 0x3a00)
    });
    prop_oneof![any::<(u64, u64)>(), near]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_table_any_message(
        seed_entries in proptest::collection::vec(entry(0x1_0000_2000), 1..24),
        control in any::<u64>(),
        messages in proptest::collection::vec((any::<u16>(), 0..0x10_0000u64, any::<u32>()), 1..40),
        extended in any::<bool>(),
    ) {
        let mut rig = Rig::new(Options::default());
        rig.enable(if extended { 0x800 } else { 0 });
        for (index, &(low, high)) in seed_entries.iter().enumerate() {
            rig.entry(index, low, high);
        }
        for descriptor in 0..64 {
            rig.memory.words()[descriptor * 8 + 4].set(if descriptor % 2 == 0 { control } else { 0x2_00eb_0000 });
        }
        for &(requester, low, data) in &messages {
            rig.send(requester, 0xfee0_0000 | low, data);
        }
        rig.run(100_000);
        let [requests, plain, remapped, posted, refused] =
            ["requests", "plain", "remapped", "posted", "refused"].map(|name| rig.counter(name));
        prop_assert_eq!(requests, messages.len() as u64);
        // A post may be refused after its look-up.
        let routed = plain + remapped + posted;
        prop_assert!(routed <= requests && requests <= routed + refused, "{} of {}", routed, requests);
        // It still serves.
        rig.entry(5, if extended { 0x0000_0002_0041_0001 } else { 0x0000_0200_0041_0001 }, 0);
        rig.invalidate(&[(0x4, 0)]);
        rig.interrupts();
        rig.message(0x3a00, HANDLE_5, 0);
        prop_assert_eq!(rig.interrupts(), [(2, 0x41)]);
    }

    /// Any write to any register, in any order: the machine goes on.
    #[test]
    fn any_register_write(writes in proptest::collection::vec((0..0x120u32, any::<u64>()), 1..30)) {
        let mut rig = Rig::enabled(Options::default());
        for (register, value) in writes {
            rig.write64(register * 4, value);
        }
        rig.message(0x3a00, HANDLE_5, 0);
        prop_assert_eq!(rig.read32(0), 0x10);
    }
}
