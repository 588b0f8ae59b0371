use super::super::port::Port;
use super::*;

/// A register window that reads the same words whatever is written.
struct Fixed {
    cap: u64,
    cc: u32,
    csts: u32,
}

impl Regs for Fixed {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            0x14 => self.cc,
            0x1c => self.csts,
            _ => panic!("register {offset:#x} is read"),
        }
    }
    fn write32(&self, _offset: u32, _value: u32) {}
    fn read64(&self, offset: u32) -> u64 {
        assert_eq!(offset, 0);
        self.cap
    }
    fn write64(&self, _offset: u32, _value: u64) {}
}

/// TO 1 (500 ms), NVM command set.
const CAP: u64 = 0x0000_0020_0100_03ff;

fn port(cap: u64, cc: u32, csts: u32) -> (HostHal, Result<Port<HostHal>, NvmeError>) {
    let hal = HostHal::manual(1);
    let window = Fixed { cap, cc, csts };
    (hal, Port::new(hal, HostRegs::new(Arc::new(window))))
}

#[test]
fn what_cannot_be_driven_is_refused() {
    assert_eq!(port(u64::MAX, 0, 0).1.err(), Some(NvmeError::Gone));
    assert_eq!(port(CAP & !(1 << 37), 0, 0).1.err(), Some(NvmeError::NoNvmCommandSet));
    assert_eq!(port(CAP | 2 << 48, 0, 0).1.err(), Some(NvmeError::PageSize(16_384)));
}

#[test]
fn no_status_is_waited_for_without_end() {
    // RDY stays 1.
    let (hal, port) = port(CAP, 0, 1);
    assert_eq!(port.unwrap().disable(), Err(NvmeError::Timeout("CSTS.RDY = 0", 500)));
    assert!((500_000_000..501_000_000).contains(&hal::Hal::now_ns(hal)));
    // EN is 1 and RDY stays 0: given CAP.TO, then reset all the same.
    let (hal, port) = self::port(CAP, 1, 0);
    assert_eq!(port.unwrap().disable(), Ok(()));
    assert!(hal::Hal::now_ns(hal) >= 500_000_000);
    // RDY never comes.
    let address = DeviceAddress(0x1000);
    let (_, port) = self::port(CAP, 0, 0);
    assert_eq!(port.unwrap().enable(address, address, 2), Err(NvmeError::Timeout("CSTS.RDY = 1", 500)));
    // RTD3E of 2 s; SHST stays 00b.
    let (_, port) = self::port(CAP, 1, 1);
    assert_eq!(port.unwrap().shut_down(2_000_000), Err(NvmeError::Timeout("CSTS.SHST = complete", 2_000)));
}

#[test]
fn a_failed_controller_is_told_from_a_slow_one() {
    let address = DeviceAddress(0x1000);
    assert_eq!(port(CAP, 0, 2).1.unwrap().enable(address, address, 2), Err(NvmeError::Fatal));
    assert_eq!(port(CAP, 0, u32::MAX).1.unwrap().disable(), Err(NvmeError::Gone));
}
