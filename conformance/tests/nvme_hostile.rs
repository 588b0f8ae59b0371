//! After any writes of a host the drive neither panics nor runs for ever, and a reset brings it back.

mod nvme_rig;

use hal::{Dma as _, Regs as _, Word as _};
use machine::nvme::{Config, StorageKind};
use nvme_rig::{command, config, host, memory, status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    /// (region, offset, value, whether 64 bits wide)
    Write(u8, u32, u64, bool),
    Read(u8, u32),
    /// A command of eight random words, on the admin queue or I/O queue 1.
    Command(bool, [u64; 8]),
    Doorbell(u32, u32),
    Wait(u64),
}

fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..0x60, 0x1000u32..0x1040, 0x7ff0u32..0x8010, 0u32..0x1_0000]
}

/// Words that are often nearly right.
fn command_words() -> impl Strategy<Value = [u64; 8]> {
    let address = prop_oneof![0x1_0000_0000u64..0x1_0400_0000, any::<u64>()];
    (
        0u64..16,
        any::<u16>(),
        prop_oneof![Just(1u64), any::<u32>().prop_map(u64::from)],
        [address.clone(), address],
        any::<[u32; 4]>(),
    )
        .prop_map(|(opcode, cid, nsid, prp, dwords)| {
            let [first, second, third, fourth] = dwords.map(|dword| u64::from(dword & 0x0003_ffff));
            command(opcode, cid.into(), nsid, prp, [first, second, third & 0xff, fourth])
        })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (0u8..4, offset(), any::<u64>(), any::<bool>()).prop_map(|(r, o, v, wide)| Act::Write(r, o, v, wide)),
        1 => (0u8..4, offset()).prop_map(|(region, offset)| Act::Read(region, offset)),
        6 => (any::<bool>(), command_words()).prop_map(|(admin, words)| Act::Command(admin, words)),
        2 => (0u32..12, 0u32..80).prop_map(|(index, value)| Act::Doorbell(index, value)),
        2 => (0u64..50_000).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_drive_survives_its_host(acts in proptest::collection::vec(act(), 1..60)) {
        let config = Config { storage: StorageKind::Memory, ..config() };
        let after = host(config, move |host| {
            host.msix_on(5);
            host.enable();
            let mut pair = host.create(1, 16, Some(1));
            for act in acts {
                match act {
                    Act::Write(region, offset, value, wide) => {
                        let regs = [host.bar0, host.msix, host.config][usize::from(region % 3)];
                        if wide { regs.write64(offset, value) } else { regs.write32(offset, value as u32) }
                    }
                    Act::Read(region, offset) => {
                        let _ = [host.bar0, host.msix, host.config][usize::from(region % 3)].read32(offset);
                    }
                    Act::Command(true, words) => {
                        host.admin.push(words);
                        host.ring_sq(0, host.admin.tail);
                    }
                    Act::Command(false, words) => {
                        pair.push(words);
                        host.ring_sq(1, pair.tail);
                    }
                    Act::Doorbell(index, value) => host.bar0.write32(0x1000 + index * 4, value),
                    Act::Wait(ns) => host.wait_ns(ns),
                }
            }
            // A reset makes the drive as new. CC first enables, so that there is a falling edge.
            host.wait_ns(50_000);
            host.bar0.write32(0x14, 1);
            host.wait_ns(50_000);
            host.disable();
            host.enable();
            let mut pair = host.create(1, 16, None);
            let data = memory(4096);
            data.words()[0].set(1);
            let words = command(0x02, 1, 1, [data.device_address().0, 0], [0; 4]);
            assert_eq!(status(host.io(&mut pair, words)), 0);
        });
        prop_assert_eq!(after.slots_in_use, 0);
    }
}
