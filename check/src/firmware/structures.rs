//! Virtio functions: where their structures are (VIRTIO 1.3, 4.1.4), and what is found there.

use super::described::wide;
use super::function::{End, configuration, draw_end};
use super::regs::Ram;
use crate::draw::Draw;
use crate::trials::{differs, same};
use drivers::virtio::{Bar, Cause, Interrupt, Pci, QueueMemory, Transport, VirtioError};
use hal::DeviceAddress;
use hal::host::{HostHal, HostRegs};
use spec::virtio::feature::Features;
use spec::virtio::{DeviceId, Status};
use std::sync::Arc;

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(1);
}

/// The structures' types: common, notifications, ISR, device.
const COMMON: usize = 1;
const NOTIFY: usize = 2;
const ISR: usize = 3;
const DEVICE: usize = 4;
/// Least bytes of each.
const LEAST: [u32; 5] = [0, 56, 2, 1, 1];

/// A structure in one of the regions.
#[derive(Clone, Copy, Debug)]
struct Place {
    bar: usize,
    offset: u32,
    bytes: u32,
    multiplier: u32,
}

struct Function {
    bars: Vec<Option<Arc<Ram>>>,
    /// The first valid capability of each type.
    places: [Option<Place>; 5],
}

fn draw_bars(draw: &mut Draw) -> Vec<Option<Arc<Ram>>> {
    let bytes = |draw: &mut Draw| (0..0x400).map(|_| draw.below(256) as u8).collect();
    let mut bars: Vec<_> = (0..6).map(|_| draw.percent(50).then(|| Ram::new(bytes(draw)))).collect();
    if bars.iter().all(Option::is_none) {
        bars[0] = Some(Ram::new(bytes(draw)));
    }
    bars
}

/// A capability of type `kind`; valid or not.
fn capability(draw: &mut Draw, kind: usize, bars: &[Option<Arc<Ram>>]) -> (Vec<u8>, Option<Place>) {
    let there: Vec<_> = (0..6).filter(|&bar| bars[bar].is_some()).collect();
    let mut bar = *draw.pick(&there);
    let mut bytes = LEAST[kind] + if draw.percent(40) { 0 } else { draw.below(64) as u32 };
    let room = 0x400 - bytes;
    let mut offset = if draw.percent(20) { room } else { draw.below(room.into()) as u32 } / 4 * 4;
    if kind == ISR && draw.percent(50) {
        offset = (offset + draw.below(4) as u32).min(room);
    }
    let least = if kind == NOTIFY { 20 } else { 16 };
    let mut length = least + 4 * draw.below(2) as u8;
    let valid = draw.percent(70);
    if !valid {
        match draw.below(6) {
            0 => bar = (0..8).find(|&bar| bars.get(bar).is_none_or(Option::is_none)).unwrap_or(6),
            1 => offset = 0x400 - bytes + 4,
            2 => bytes = (u32::MAX - offset).saturating_add(1 + draw.below(8) as u32),
            3 if kind != ISR => offset = (offset + 1).min(0x400 - bytes) | 1,
            4 => bytes = LEAST[kind] - 1,
            _ => length = least - 1,
        }
    }
    // A structure of no bytes ends where it begins.
    let multiplier: u32 = *draw.pick(&[0, 2, 4, 6, 3]);
    let mut list = vec![9, 0, length, kind as u8, bar as u8, draw.below(256) as u8, 0, 0];
    [offset, bytes].iter().for_each(|word| list.extend(word.to_le_bytes()));
    if kind == NOTIFY {
        list.extend(multiplier.to_le_bytes());
    }
    (list, valid.then_some(Place { bar, offset, bytes, multiplier }))
}

fn field(function: &Function, kind: usize, at: u32, bytes: u32) -> u64 {
    let place = function.places[kind].expect("it is there");
    function.bars[place.bar].as_ref().expect("a region").get(place.offset + at, bytes)
}

fn set(function: &Function, kind: usize, at: u32, bytes: u32, value: u64) {
    let place = function.places[kind].expect("it is there");
    function.bars[place.bar].as_ref().expect("a region").set(place.offset + at, bytes, value);
}

pub(super) fn structures(draw: &mut Draw) -> Result<(), String> {
    let bars = draw_bars(draw);
    let mut places = [None; 5];
    let mut list = Vec::new();
    for kind in [COMMON, NOTIFY, ISR, DEVICE] {
        // Of most types there is one; the first that is valid counts.
        for _ in 0..*draw.pick(&[0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]) {
            let at = draw.below(list.len() as u64 + 1) as usize;
            list.insert(at, (kind, capability(draw, kind, &bars)));
        }
    }
    for &(kind, (_, place)) in &list {
        places[kind] = places[kind].or(place);
    }
    let list: Vec<_> = list.into_iter().map(|(_, (bytes, _))| bytes).collect();
    let end = draw_end(draw, !list.is_empty());
    let (config, _) = configuration(draw, &list, end);
    let (vendor, device) = match draw.below(12) {
        0 => (0x1af5, 0x1041),
        1 => (0x1af4, draw.within(0x1000..=0x1040) as u32),
        _ => (0x1af4, draw.within(0x1041..=0x1060) as u32),
    };
    config.set(0, 4, (vendor | device << 16).into());
    let function = Function { bars, places };
    let region =
        |bar: &Option<Arc<Ram>>| bar.as_ref().map(|ram| Bar { regs: Arc::new(ram.window()), len_bytes: 0x400 });
    let regions: Vec<Option<Bar<HostRegs>>> = function.bars.iter().map(region).collect();
    let regions: [_; 6] = regions.try_into().map_err(|_| "six regions")?;
    let vectors = draw.below(9) as u16;
    if function.places[COMMON].is_some() {
        set(&function, COMMON, 18, 2, draw.below(5));
    }
    let found = Pci::<HostHal>::new(HOST.with(|&host| host), &config.window(), &regions, vectors);
    let missing = [COMMON, NOTIFY, ISR].into_iter().find(|&kind| function.places[kind].is_none() || end == End::Absent);
    let expected = match missing {
        _ if vendor != 0x1af4 || device <= 0x1040 => {
            Some(VirtioError::Device(DeviceId(device.wrapping_sub(0x1040)), DeviceId::NONE))
        }
        Some(_) if end == End::Loop => Some(VirtioError::CapabilityLoop),
        Some(kind) => Some(VirtioError::Capability(kind as u8)),
        None => None,
    };
    let text = || format!("structures in {list:02x?}, {end:?}, {:x?}", function.places);
    match (found, expected) {
        (Ok(pci), None) => {
            let same = [DeviceId(device - 0x1040) == pci.device_id(), vectors == pci.vectors()];
            if same != [true; 2] || pci.vector_feature() != Features::NONE {
                return Err(differs("device", &(device - 0x1040, vectors), &(pci.device_id(), pci.vectors())));
            }
            uses(draw, &function, &pci).map_err(|wrong| format!("{wrong}; {}", text()))
        }
        (Err(error), Some(expected)) if error == expected => Ok(()),
        (found, expected) => Err(differs(&text(), &expected, &found.err())),
    }
}

/// The transport's accesses go where the capabilities say.
fn uses(draw: &mut Draw, function: &Function, pci: &Pci<HostHal>) -> Result<(), String> {
    let common = function.places[COMMON].expect("it was found");
    same("features", &(field(function, COMMON, 4, 4) * 0x1_0000_0001), &pci.features().0)?;
    let status = Status::from_bits(draw.below(256) as u8);
    pci.set_status(status);
    same("status", &(status, u64::from(status.into_bits())), &(pci.status(), field(function, COMMON, 20, 1)))?;
    let accepted = wide(draw, 62);
    pci.accept(Features(accepted));
    same("accepted", &(accepted >> 32), &field(function, COMMON, 12, 4))?;
    same("generation", &field(function, COMMON, 21, 1), &u64::from(pci.config_generation()))?;
    let vector = draw.below(1 << 16) as u16;
    same("vector of the configuration", &vector, &pci.map_configuration(vector))?;
    same("its register", &u64::from(vector), &field(function, COMMON, 16, 2))?;
    let len = function.places[DEVICE].map_or(0, |place| place.bytes);
    for _ in 0..3 {
        let at = if draw.percent(20) { u32::MAX } else { draw.below(u64::from(len) + 8) as u32 };
        let read = |bytes: u32| {
            let inside = u64::from(at) + u64::from(bytes) <= len.into();
            if inside { field(function, DEVICE, at, bytes) } else { 0 }
        };
        let found = [u64::from(pci.config8(at)), pci.config16(at).into(), pci.config32(at).into()];
        same(&format!("configuration at {at:#x}"), &[read(1), read(2), read(4)], &found)?;
    }
    let isr = field(function, ISR, 0, 1);
    let cause = Cause { queues: isr & 1 != 0, configuration: isr & 2 != 0 };
    same("interrupt", &cause, &pci.interrupt(Interrupt::Single))?;
    let configuration = draw.percent(50);
    let by_vector = pci.interrupt(Interrupt::Vector { vector: 1, configuration });
    same("interrupt by a vector", &Cause { queues: true, configuration }, &by_vector)?;
    let queues = field(function, COMMON, 18, 2) as u16;
    for queue in 0..queues {
        queue_of(draw, function, pci, (queue, common))?;
    }
    same("entries of no queue", &0, &pci.queue_entries_max(queues))
}

fn queue_of(
    draw: &mut Draw,
    function: &Function,
    pci: &Pci<HostHal>,
    (queue, common): (u16, Place),
) -> Result<(), String> {
    let size = draw.within(1..=1 << 15);
    set(function, COMMON, 24, 2, size);
    same("entries", &(size, queue.into()), &(pci.queue_entries_max(queue).into(), field(function, COMMON, 22, 2)))?;
    let memory = QueueMemory {
        entries: draw.within(1..=256) as u16,
        descriptors: DeviceAddress(wide(draw, 62)),
        available: DeviceAddress(wide(draw, 62)),
        used: DeviceAddress(wide(draw, 62)),
    };
    let in_use = draw.percent(10);
    set(function, COMMON, 28, 2, in_use.into());
    let notify = function.places[NOTIFY].expect("it was found");
    let number = draw.below(16) as u32;
    set(function, COMMON, 30, 2, number.into());
    let at = number * notify.multiplier;
    let fits = at + 2 <= notify.bytes && at.is_multiple_of(2);
    let expected = match (in_use, fits) {
        (true, _) => Err(VirtioError::QueueInUse(queue)),
        (_, false) => Err(VirtioError::Capability(NOTIFY as u8)),
        _ => Ok(()),
    };
    let started = pci.start_queue(queue, &memory);
    if started != expected {
        return Err(differs(&format!("start of queue {queue}"), &expected, &started));
    }
    if expected.is_ok() {
        let parts = [(24, 2), (28, 2), (32, 8), (40, 8), (48, 8)].map(|(at, bytes)| field(function, COMMON, at, bytes));
        let QueueMemory { entries, descriptors, available, used } = memory;
        same("queue", &[entries.into(), 1, descriptors.0, available.0, used.0], &parts)?;
        let ram = function.bars[notify.bar].as_ref().expect("a region");
        ram.writes();
        pci.notify(queue);
        same("notification", &vec![(notify.offset + at, 2, u64::from(queue))], &ram.writes())?;
    }
    let vector = draw.below(1 << 16) as u16;
    same("vector of a queue", &vector, &pci.map_queue(queue, vector))?;
    same("its register", &u64::from(vector), &field(function, COMMON, 26, 2))?;
    let has_reset = common.bytes >= 60;
    if has_reset {
        set(function, COMMON, 58, 2, 0);
    }
    pci.reset_queue(queue);
    if has_reset {
        same("reset", &(1, false), &(field(function, COMMON, 58, 2), pci.queue_is_reset(queue)))?;
        set(function, COMMON, 58, 2, 0);
    }
    same("reset is done", &has_reset, &pci.queue_is_reset(queue))
}
