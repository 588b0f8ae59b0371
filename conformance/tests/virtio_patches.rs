//! The patches of `judges/` for QEMU and Linux name the same feature bit, registers and limits as `spec/`.

use spec::virtio::NO_VECTOR;
use spec::virtio::feature::Feature;
use spec::virtio::mmio;
use std::path::Path;

const QEMU: &str = "judges/qemu/0004-virtio-mmio-several-interrupts.patch";
const LINUX: &str = "judges/linux/0002-virtio-mmio-several-interrupts.patch";

/// The value of a macro that a patch adds.
fn defined(patch: &str, name: &str) -> Option<u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(patch);
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| {
        let mut words = line.strip_prefix("+#define ")?.split_whitespace();
        (words.next() == Some(name)).then(|| words.next())?
    })?;
    value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

#[test]
fn the_patches_agree_with_the_spec() {
    let registers = [
        ("VIRTIO_MMIO_VECTOR_COUNT", mmio::VECTOR_COUNT.offset()),
        ("VIRTIO_MMIO_CONFIG_VECTOR", mmio::CONFIG_VECTOR.offset()),
        ("VIRTIO_MMIO_QUEUE_VECTOR", mmio::QUEUE_VECTOR.offset()),
        ("VIRTIO_MMIO_VECTOR_LEVEL", mmio::VECTOR_LEVEL.offset()),
        ("VIRTIO_MMIO_VECTOR_STATUS", mmio::VECTOR_STATUS.offset()),
        ("VIRTIO_MMIO_VECTOR_ACK", mmio::VECTOR_ACK.offset()),
        ("VIRTIO_MMIO_VECTORS_MAX", mmio::VECTORS_MAX),
    ];
    for patch in [QEMU, LINUX] {
        assert_eq!(defined(patch, "VIRTIO_F_MULTI_IRQ"), Some(Feature::MULTI_IRQ.0.into()), "{patch}");
        for (name, value) in registers {
            assert_eq!(defined(patch, name), Some(value.into()), "{patch}: {name}");
        }
    }
    assert_eq!(defined(LINUX, "VIRTIO_MMIO_NO_VECTOR"), Some(NO_VECTOR.into()));
    assert_eq!(defined(LINUX, "VIRTIO_MMIO_LEVEL_VECTORS"), Some(mmio::LEVEL_VECTORS.into()));
    assert_eq!(defined(LINUX, "VIRTIO_MMIO_NOTHING"), None);
}

/// Linux hands only the feature bits below this one to the transport.
#[test]
fn linux_keeps_the_feature_for_the_transport() {
    let end = defined(LINUX, "VIRTIO_TRANSPORT_F_END").expect("a number");
    assert!(end > Feature::MULTI_IRQ.0.into(), "{end}");
}
