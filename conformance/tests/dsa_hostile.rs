//! After any writes of a host the device neither panics nor runs for ever, and a reset brings it back.

mod dsa_rig;

use dsa_rig::{config, fill, host, memory};
use hal::{Dma as _, Regs as _};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    /// (region, offset, value, whether 64 bits wide)
    Write(u8, u32, u64, bool),
    Read(u8, u32),
    /// Command, operand.
    Command(u32, u32),
    /// Eight words at a queue's portal.
    Descriptor(u32, [u64; 8]),
    Wait(u64),
}

fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..0x100, 0x400u32..0x480, 0x800u32..0x900, 0x2000u32..0x2090, 0x2ff0u32..0x3010, 0u32..0x10_0000]
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..16, Just(u64::MAX), any::<u64>()]
}

/// Words that are often nearly right.
fn descriptor() -> impl Strategy<Value = [u64; 8]> {
    let address = || prop_oneof![4 => 0x1_0000_0000u64..0x1_0400_0000, 1 => any::<u64>()];
    let aligned = address().prop_map(|address| address & !31);
    (prop_oneof![3 => Just(4u64), 1 => 0u64..40], 0u64..64, aligned, address(), 0u64..5000, 0u64..12).prop_map(
        |(opcode, flags, record, destination, bytes, handle)| {
            [opcode << 56 | flags << 32, record, !0, destination, bytes | handle << 32, 0, 0, 0]
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0u8..4, offset(), word(), any::<bool>()).prop_map(|(r, o, v, wide)| Act::Write(r, o, v, wide)),
        1 => (0u8..4, offset()).prop_map(|(region, offset)| Act::Read(region, offset)),
        2 => (0u32..12, 0u32..20).prop_map(|(command, operand)| Act::Command(command, operand)),
        6 => (0u32..3, descriptor()).prop_map(|(queue, words)| Act::Descriptor(queue, words)),
        2 => (0u64..5_000).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_device_survives_its_host(acts in proptest::collection::vec(act(), 1..60)) {
        let after = host(config(), move |host| {
            host.msix_on(9);
            host.enable();
            for act in acts {
                match act {
                    Act::Write(region, offset, value, wide) => {
                        let regs = [host.bar0, host.bar2, host.config][usize::from(region % 3)];
                        if wide { regs.write64(offset, value) } else { regs.write32(offset, value as u32) }
                    }
                    Act::Read(region, offset) => {
                        let _ = [host.bar0, host.bar2, host.config][usize::from(region % 3)].read32(offset);
                    }
                    Act::Command(command, operand) => host.bar0.write32(0xa0, command << 20 | operand),
                    Act::Descriptor(queue, words) => host.submit(queue, words),
                    Act::Wait(ns) => host.wait_ns(ns),
                }
            }
            // Once no command is under way, a reset makes the device as new.
            host.wait_ns(50_000);
            assert_eq!(host.command(5, 0), 0, "Reset Device");
            host.enable();
            let (record, data) = (memory(64), memory(64));
            let words = fill(record.device_address().0, 5, data.device_address().0, 64, None);
            // The portal may have gathered words of an earlier descriptor; new words overwrite them one by one.
            assert_eq!(host.run(0, &record, words), 1);
        });
        prop_assert_eq!(after.in_flight, 0);
    }
}
