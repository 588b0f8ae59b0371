//! Descriptions by firmware, hypervisors and devices of themselves.

use crate::input::Input;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::virtio::discovery::{MmioDevice, from_acpi, from_command_line, from_device_tree};
use drivers::virtio::{Bar, Pci};
use hal::Regs;
use hal::host::{HostHal, HostRegs};
use std::sync::{Arc, Mutex};

/// Requirements of every description.
fn checked(devices: &[MmioDevice]) {
    for device in devices {
        assert!(!device.lines.is_empty() && device.base.checked_add(device.size_bytes).is_some());
        assert_eq!(usize::from(device.config().interrupts), device.lines.len());
    }
}

/// A kernel's command line. The parsed value is written as a parameter and parsed again.
pub(crate) fn command_line(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match from_command_line(&text) {
        Ok(devices) => {
            checked(&devices);
            for device in &devices {
                let (first, last) = (device.lines[0].number, device.lines[device.lines.len() - 1].number);
                let id = device.id.map(|id| format!(":{id}")).unwrap_or_default();
                let parameter =
                    format!("virtio_mmio.device={}@{:#x}:{first}-{last}{id}", device.size_bytes, device.base);
                assert_eq!(from_command_line(&parameter).as_deref(), Ok(std::slice::from_ref(device)));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A flattened device tree.
pub(crate) fn device_tree(data: &[u8]) {
    match from_device_tree(data) {
        Ok(devices) => checked(&devices),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A DSDT: the bytes as they are, and as the body of a table whose header is right.
pub(crate) fn acpi(data: &[u8]) {
    let mut table = [b"DSDT".as_slice(), &(36 + data.len() as u32).to_le_bytes(), &[2], &[0; 27], data].concat();
    table[9] = table.iter().fold(0_u8, |sum, &byte| sum.wrapping_sub(byte));
    for table in [data, &table] {
        match from_acpi(table) {
            Ok(devices) => checked(&devices),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A window of bytes that contains only bytes that a driver may touch: an access outside makes the driver panic.
struct Bytes(Mutex<Vec<u8>>);

impl Bytes {
    fn window(bytes: Vec<u8>) -> HostRegs {
        HostRegs::new(Arc::new(Self(Mutex::new(bytes))))
    }

    fn get<const N: usize>(&self, offset: u32) -> [u8; N] {
        assert!((offset as usize).is_multiple_of(N), "read of {N} bytes at {offset:#x}");
        let bytes = self.0.lock().expect("one thread");
        let part = bytes.get(offset as usize..offset as usize + N);
        part.unwrap_or_else(|| panic!("read of {N} bytes at {offset:#x}")).try_into().expect("so long")
    }

    fn put(&self, offset: u32, value: &[u8]) {
        assert!((offset as usize).is_multiple_of(value.len()), "write of {} bytes at {offset:#x}", value.len());
        let mut bytes = self.0.lock().expect("one thread");
        let part = bytes.get_mut(offset as usize..offset as usize + value.len());
        part.unwrap_or_else(|| panic!("write of {} bytes at {offset:#x}", value.len())).copy_from_slice(value);
    }
}

impl Regs for Bytes {
    fn read8(&self, offset: u32) -> u8 {
        u8::from_le_bytes(self.get(offset))
    }
    fn read16(&self, offset: u32) -> u16 {
        u16::from_le_bytes(self.get(offset))
    }
    fn read32(&self, offset: u32) -> u32 {
        u32::from_le_bytes(self.get(offset))
    }
    fn read64(&self, offset: u32) -> u64 {
        u64::from_le_bytes(self.get(offset))
    }
    fn write8(&self, offset: u32, value: u8) {
        self.put(offset, &value.to_le_bytes());
    }
    fn write16(&self, offset: u32, value: u16) {
        self.put(offset, &value.to_le_bytes());
    }
    fn write32(&self, offset: u32, value: u32) {
        self.put(offset, &value.to_le_bytes());
    }
    fn write64(&self, offset: u32, value: u64) {
        self.put(offset, &value.to_le_bytes());
    }
}

/// The 256 bytes of a function's configuration space, and regions of 16 KiB behind its registers.
pub(crate) fn pci(data: &[u8]) {
    const BAR_BYTES: u32 = 0x4000;
    let mut input = Input::new(data);
    let mut config = input.bytes(256).to_vec();
    config.resize(256, 0);
    if input.flag() {
        // A configuration space as a virtio function has it, so that not every input has to guess it.
        config[..8].copy_from_slice(&[0xf4, 0x1a, 0x42, 0x10, 6, 0, 0x10, 0]);
    }
    let config = Bytes::window(config);
    let mut region = input.rest().to_vec();
    region.resize(BAR_BYTES as usize, 0);
    let region = Bytes::window(region);
    if let Ok(capability) = MsixCapability::find(&config) {
        assert!((1..=2048).contains(&capability.entries));
        if capability.fits(BAR_BYTES).is_ok() {
            let table = MsixTable::enable(config.clone(), region.clone(), capability);
            table.mask_all();
            table.unmask_all();
            table.disable();
        }
    }
    let bars =
        [const { None }; 6].map(|_: Option<()>| Some(Bar { regs: Arc::new(region.clone()), len_bytes: BAR_BYTES }));
    let transport = Pci::<HostHal>::new(HostHal::manual(1), &config, &bars, 4);
    let _ = transport.map(|transport| crate::drivers::touch(&transport));
}
