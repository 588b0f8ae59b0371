//! What rust-vmm's hypervisors would write, read by each of the three; and bytes that nobody should have written.

use super::*;
use acpi_tables::aml::{BufferData, Device, Interrupt, Memory32Fixed, Name, ResourceTemplate, Scope};
use acpi_tables::{Aml, sdt::Sdt};
use proptest::prelude::*;
use std::format;
use std::vec;
use vm_fdt::FdtWriter;

/// A GIC, and on a bus with this status one device whose `interrupts` has these cells.
fn tree_of(status: &str, interrupts: &[u32]) -> Vec<u8> {
    let write = || -> Result<Vec<u8>, vm_fdt::Error> {
        let mut fdt = FdtWriter::new()?;
        let root = fdt.begin_node("")?;
        fdt.property_u32("#address-cells", 1)?;
        fdt.property_u32("#size-cells", 1)?;
        fdt.property_u32("interrupt-parent", 1)?;
        let gic = fdt.begin_node("intc@8000000")?;
        fdt.property_u32("#interrupt-cells", 3)?;
        fdt.property_phandle(1)?;
        fdt.end_node(gic)?;
        let bus = fdt.begin_node("bus")?;
        fdt.property_string("status", status)?;
        fdt.property_u32("#address-cells", 1)?;
        fdt.property_u32("#size-cells", 1)?;
        fdt.property_null("ranges")?;
        let node = fdt.begin_node("virtio_mmio@3000")?;
        fdt.property_string("compatible", "virtio,mmio")?;
        fdt.property_array_u32("reg", &[0x3000, 0x200])?;
        fdt.property_array_u32("interrupts", interrupts)?;
        fdt.end_node(node)?;
        fdt.end_node(bus)?;
        fdt.end_node(root)?;
        fdt.finish()
    };
    write().expect("a tree")
}

/// Found by `campanile check`: the device was found, though no driver could reach it.
#[test]
fn nothing_is_behind_a_disabled_bus() {
    let found = |status| from_device_tree(&tree_of(status, &[0, 16, 4])).map(|devices| devices.len());
    assert_eq!((found("okay"), found("disabled"), found("fail")), (Ok(1), Ok(0), Ok(0)));
}

/// Found by `campanile check`: the rest of three cells was read as a specifier of one or two.
#[test]
fn a_specifier_that_is_cut_is_none() {
    let wrong = Err(DiscoveryError::DeviceTree("the interrupts of a virtio,mmio node are not valid"));
    for cells in [&[0, 16, 4, 0][..], &[0, 16, 4, 0, 17], &[0, 16]] {
        assert_eq!(from_device_tree(&tree_of("okay", cells)), wrong, "{cells:?}");
    }
}

/// A GIC and one device of `spis` behind a bus whose addresses begin at `bus`.
fn tree(bus: u32, offset: u32, size: u32, spis: &[u32], flags: u32) -> Vec<u8> {
    let write = || -> Result<Vec<u8>, vm_fdt::Error> {
        let mut fdt = FdtWriter::new()?;
        let root = fdt.begin_node("")?;
        fdt.property_u32("#address-cells", 2)?;
        fdt.property_u32("#size-cells", 2)?;
        fdt.property_u32("interrupt-parent", 1)?;
        let gic = fdt.begin_node("intc@8000000")?;
        fdt.property_string("compatible", "arm,gic-v3")?;
        fdt.property_u32("#interrupt-cells", 3)?;
        fdt.property_phandle(1)?;
        fdt.end_node(gic)?;
        let soc = fdt.begin_node("soc")?;
        fdt.property_string("compatible", "simple-bus")?;
        fdt.property_u32("#address-cells", 1)?;
        fdt.property_u32("#size-cells", 1)?;
        fdt.property_array_u32("ranges", &[0, 0, bus, 0x1000_0000])?;
        let node = fdt.begin_node(&format!("virtio_mmio@{offset:x}"))?;
        fdt.property_string("compatible", "virtio,mmio")?;
        fdt.property_array_u32("reg", &[offset, size])?;
        let interrupts: Vec<u32> = spis.iter().flat_map(|&spi| [0, spi, flags]).collect();
        fdt.property_array_u32("interrupts", &interrupts)?;
        fdt.end_node(node)?;
        let off = fdt.begin_node("virtio_mmio@ff0000")?;
        fdt.property_string("compatible", "virtio,mmio")?;
        fdt.property_string("status", "disabled")?;
        fdt.end_node(off)?;
        fdt.end_node(soc)?;
        fdt.end_node(root)?;
        fdt.finish()
    };
    write().expect("a tree")
}

/// A DSDT with `devices` in \_SB.
fn dsdt(devices: &[&dyn Aml]) -> Vec<u8> {
    let mut table = Sdt::new(*b"DSDT", 36, 2, *b"CAMPAN", *b"TESTTEST", 1);
    let mut body = Vec::new();
    Scope::new("\\_SB_".into(), devices.to_vec()).to_aml_bytes(&mut body);
    table.append_slice(&body);
    table.as_slice().to_vec()
}

fn acpi(base: u32, size: u32, numbers: &[u32], edge: bool, uid: u8) -> Vec<u8> {
    let memory = Memory32Fixed::new(true, base, size);
    let lines: Vec<_> = numbers.iter().map(|&number| Interrupt::new(true, edge, false, false, number)).collect();
    let mut resources: Vec<&dyn Aml> = vec![&memory];
    resources.extend(lines.iter().map(|line| -> &dyn Aml { line }));
    let template = ResourceTemplate::new(resources);
    let other = Name::new("_CCA".into(), &acpi_tables::aml::ONE);
    let hid = Name::new("_HID".into(), &"LNRO0005");
    let id = Name::new("_UID".into(), &uid);
    let crs = Name::new("_CRS".into(), &template);
    let bus_hid = Name::new("_HID".into(), &"ACPI0004");
    let virtio = Device::new("VIR0".into(), vec![&hid, &id, &other, &crs]);
    dsdt(&[&Device::new("BUS0".into(), vec![&bus_hid, &virtio])])
}

fn lines(numbers: &[u32], trigger: Option<Trigger>) -> Vec<Line> {
    numbers.iter().map(|&number| Line { number, trigger }).collect()
}

/// INTIDs 48 to 55 are SPIs 16 to 23 of a GIC.
#[test]
fn the_three_agree() {
    let numbers: Vec<u32> = (48..56).collect();
    let spis: Vec<u32> = (16..24).collect();
    let tree = from_device_tree(&tree(0x0a00_0000, 0x3000, 0x200, &spis, 1)).expect("a tree");
    let acpi = from_acpi(&acpi(0x0a00_3000, 0x200, &numbers, true, 7)).expect("a table");
    let line = from_command_line("virtio_mmio.device=512@0xa003000:48-55:7").expect("a parameter");
    let expected =
        MmioDevice { base: 0x0a00_3000, size_bytes: 0x200, lines: lines(&numbers, Some(Trigger::Edge)), id: Some(7) };
    assert_eq!(acpi.as_slice(), core::slice::from_ref(&expected));
    // A device tree numbers no devices, and a command line says nothing of triggers.
    assert_eq!(tree, [MmioDevice { id: None, ..expected.clone() }]);
    assert_eq!(line, [MmioDevice { lines: lines(&numbers, None), ..expected }]);
    for device in [&tree[0], &acpi[0], &line[0]] {
        assert_eq!(device.config(), MmioConfig { interrupts: 8, ..MmioConfig::default() });
    }
}

#[test]
fn one_extended_interrupt_may_hold_them_all() {
    // Memory32Fixed 0xd0000000, 0x1000; Extended Interrupt, level, 3 numbers; end tag.
    let crs = [
        &[0x86, 9, 0, 1, 0, 0, 0, 0xd0, 0, 0x10, 0, 0][..],
        &[0x89, 14, 0, 0x01, 3, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0],
        &[0x79, 0],
    ]
    .concat();
    let hid = Name::new("_HID".into(), &"LNRO0005");
    let buffer = BufferData::new(crs);
    let crs = Name::new("_CRS".into(), &buffer);
    let found = from_acpi(&dsdt(&[&Device::new("VIR0".into(), vec![&hid, &crs])])).expect("a table");
    let lines = lines(&[5, 6, 7], Some(Trigger::Level));
    assert_eq!(found, [MmioDevice { base: 0xd000_0000, size_bytes: 0x1000, lines, id: None }]);
}

#[test]
fn wrong_descriptions_have_names() {
    assert_eq!(from_device_tree(&[]), Err(DiscoveryError::DeviceTree("it is not valid")));
    assert_eq!(from_device_tree(&tree(0, 0x3000, 0x200, &[], 1)), Err(DiscoveryError::NoInterrupt(0x3000)));
    assert_eq!(from_device_tree(&tree(0, 0x3000, 0x80, &[1], 1)), Err(DiscoveryError::Window(0x3000, 0x80)));
    let wrong = DiscoveryError::DeviceTree("the interrupts of a virtio,mmio node are not valid");
    assert_eq!(from_device_tree(&tree(0, 0x3000, 0x200, &[988], 1)), Err(wrong));
    let wrong = DiscoveryError::DeviceTree("`reg` of a virtio,mmio node is not valid");
    assert_eq!(from_device_tree(&tree(0, 0x2000_0000, 0x200, &[1], 1)), Err(wrong), "outside the bus");

    assert_eq!(from_acpi(&[0; 20]), Err(DiscoveryError::Table("it is shorter than its header")));
    let mut table = acpi(0xd000_0000, 0x1000, &[5], true, 0);
    table[40] ^= 1;
    assert_eq!(from_acpi(&table), Err(DiscoveryError::Table("its checksum is wrong")));
    assert_eq!(from_acpi(&acpi(0xd000_0000, 0x1000, &[], true, 0)), Err(DiscoveryError::NoInterrupt(0xd000_0000)));
    let hid = Name::new("_HID".into(), &"LNRO0005");
    let none = from_acpi(&dsdt(&[&Device::new("VIR0".into(), vec![&hid])]));
    assert_eq!(none, Err(DiscoveryError::Table("a virtio device has no static _CRS")));
}

/// A table with this body and a right checksum.
fn table(body: &[u8]) -> Vec<u8> {
    let mut table = Sdt::new(*b"SSDT", 36, 2, *b"CAMPAN", *b"TESTTEST", 1);
    table.append_slice(body);
    table.as_slice().to_vec()
}

#[test]
fn deep_nesting_ends() {
    // Scope (10h), its length, the root's name (5Ch 00h), and so on.
    let mut body = vec![];
    for _ in 0..40 {
        let mut outer = vec![0x10, (body.len() + 3) as u8 & 0x3f, 0x5c, 0x00];
        if body.len() + 4 > 0x3f {
            outer = vec![0x10, 0x40 | (body.len() + 4) as u8 & 0xf, ((body.len() + 4) >> 4) as u8, 0x5c, 0x00];
        }
        outer.append(&mut body);
        body = outer;
    }
    assert_eq!(from_acpi(&table(&body)), Err(DiscoveryError::Table("its objects are nested too deeply")));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = from_device_tree(&bytes);
        let _ = from_acpi(&bytes);
        let _ = from_acpi(&table(&bytes));
    }

    /// Right descriptions with some bytes wrong reach further in than noise does.
    #[test]
    fn damaged_descriptions_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut blob = tree(0x0a00_0000, 0x3000, 0x200, &[16, 17], 1);
        let mut body = acpi(0x0a00_3000, 0x200, &[48, 49], true, 7).split_off(36);
        for (place, value) in changes {
            *place.get_mut(&mut blob) = value;
            *place.get_mut(&mut body) = value;
        }
        let _ = from_device_tree(&blob);
        let _ = from_acpi(&table(&body));
    }

    #[test]
    fn whatever_the_lines_the_three_agree(
        base in (0u32..0x0fff).prop_map(|page| page << 12),
        first in 32u32..900,
        count in 1u32..100,
    ) {
        let numbers: Vec<u32> = (first..first + count).collect();
        let spis: Vec<u32> = numbers.iter().map(|intid| intid - 32).collect();
        let parameter = format!("virtio_mmio.device=4K@{base:#x}:{first}-{}", first + count - 1);
        let three = [
            from_device_tree(&tree(0, base, 0x1000, &spis, 4)),
            from_acpi(&acpi(base, 0x1000, &numbers, false, 0)),
            from_command_line(&parameter),
        ];
        for found in three {
            let found = found.expect("valid");
            prop_assert_eq!((found[0].base, found[0].size_bytes), (u64::from(base), 0x1000));
            prop_assert_eq!(found[0].lines.iter().map(|line| line.number).collect::<Vec<_>>(), numbers.clone());
        }
    }
}
