//! NVMe controllers: what they declare (Base 3.1.3.1, 5.17; NVM 4.1.5.1), and the features that are set and read.

use super::answers::{Answers, Asked};
use super::described::wide;
use crate::draw::Draw;
use crate::trials::{differs, same};
use drivers::nvme::{
    BatchDone, Coalescing, CoalescingThreshold, CoalescingTime, Completed, Config, Controller, NvmeError, QueueConfig,
    VectorCoalescing,
};
use hal::host::HostHal;
use irq::moderation::{Algorithm, LevelTable, Moderated as _, Outcome, Setting, Tuner};
use spec::nvme::registers::Version;
use std::sync::Arc;

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(1);
}

const BYTES: usize = 4096;

/// What a controller is to say.
#[derive(Debug)]
struct Declared {
    cap: u64,
    texts: [String; 3],
    mdts: u8,
    entry_sizes: [u8; 2],
    namespaces: u32,
    version: u32,
    shutdown_us: u32,
    caches: bool,
    deallocates: bool,
    blocks: u64,
    /// Log2 of the bytes of a block, and bytes of metadata.
    format: (u8, u16),
    /// Queues that it grants, less one: submission, completion.
    granted: [u16; 2],
    config: Config,
}

fn text(draw: &mut Draw, most: u64) -> String {
    let letters = b"ABCabc019-_.";
    let inner: String = (0..draw.below(most - 1)).map(|_| char::from(*draw.pick(letters))).collect();
    // A space within is none of the padding.
    if inner.len() > 3 && draw.percent(30) { inner.replacen(&inner[1..2], " ", 1).trim().into() } else { inner }
}

impl Declared {
    fn draw(draw: &mut Draw) -> Self {
        let mpsmin = if draw.percent(5) { draw.within(1..=4) } else { 0 };
        let css = u64::from(!draw.percent(5));
        let entries = draw.within(1..=0xffff);
        let stride = draw.below(4);
        let cap = entries | draw.below(256) << 24 | stride << 32 | css << 37 | mpsmin << 48;
        let cap = if draw.percent(3) { u64::MAX } else { cap };
        let sizes = |draw: &mut Draw, log2: u8| match draw.below(10) {
            0 => (log2 - 2) << 4 | (log2 - 3),
            1 => (log2 + 2) << 4 | (log2 + 1),
            2 => (log2 + 2) << 4 | (log2 - 2),
            _ => log2 << 4 | log2,
        };
        let entry_sizes = [sizes(draw, 6), sizes(draw, 4)];
        let namespaces = if draw.percent(50) { 1 } else { draw.within(1..=100) as u32 };
        let nsid = match draw.below(10) {
            0 => 0,
            1 => namespaces + 1,
            _ => draw.within(1..=namespaces.into()) as u32,
        };
        let shifts: &[u8] = if draw.percent(15) { &[0, 8, 17, 255] } else { &[9, 12, 16] };
        let metadata = if draw.percent(5) { draw.within(1..=64) as u16 } else { 0 };
        let format = (*draw.pick(shifts), metadata);
        let queue_pairs = draw.within(1..=64) as u16;
        let admin_entries = draw.within(2..=40) as u16;
        Self {
            cap,
            texts: [text(draw, 20), text(draw, 40), text(draw, 8)],
            mdts: if draw.percent(20) { draw.below(256) as u8 } else { draw.below(12) as u8 },
            entry_sizes,
            namespaces,
            version: 0x0001_0000 * draw.within(1..=2) as u32 + 0x100 * draw.below(5) as u32,
            shutdown_us: draw.below(1 << 24) as u32,
            caches: draw.percent(50),
            deallocates: draw.percent(50),
            blocks: if draw.percent(5) { 0 } else { wide(draw, 50) },
            format,
            granted: [0, 0].map(|_: u16| draw.below(80) as u16),
            config: Config { nsid, queue_pairs, admin_entries, ..Config::default() },
        }
    }

    /// The data of Identify: of the controller, and of the namespace.
    fn identify(&self, draw: &mut Draw) -> [Vec<u8>; 2] {
        let mut data = vec![0; BYTES];
        for (text, (at, bytes)) in self.texts.iter().zip([(4, 20), (24, 40), (64, 8)]) {
            data[at..at + bytes].fill(if draw.percent(80) { b' ' } else { 0 });
            data[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        data[77] = self.mdts;
        data[80..84].copy_from_slice(&self.version.to_le_bytes());
        data[88..92].copy_from_slice(&self.shutdown_us.to_le_bytes());
        data[512..514].copy_from_slice(&self.entry_sizes);
        data[516..520].copy_from_slice(&self.namespaces.to_le_bytes());
        let others = draw.below(256) as u8;
        data[520] = others & !4 | u8::from(self.deallocates) << 2;
        data[525] = others & !1 | u8::from(self.caches);
        let mut namespace = vec![0; BYTES];
        namespace[..8].copy_from_slice(&self.blocks.to_le_bytes());
        // The format in use: bits 3:0, and 6:5 of the same byte.
        let index = draw.below(64) as usize;
        namespace[26] = (index & 0xf) as u8 | ((index >> 4) as u8) << 5 | (draw.below(2) as u8) << 4;
        for at in 0..64 {
            namespace[128 + 4 * at..][..4].copy_from_slice(&[16, 0, 20, 3]);
        }
        let metadata = self.format.1.to_le_bytes();
        namespace[128 + 4 * index..][..4].copy_from_slice(&[metadata[0], metadata[1], self.format.0, 0]);
        [data, namespace]
    }

    /// Why such a controller cannot be driven.
    fn error(&self) -> Option<NvmeError> {
        let [sqes, cqes] = self.entry_sizes;
        let takes = |sizes: u8, log2: u8| sizes & 0xf <= log2 && log2 <= sizes >> 4;
        let (nsid, page) = (self.config.nsid, self.cap >> 48 & 0xf);
        if self.cap == u64::MAX {
            Some(NvmeError::Gone)
        } else if self.cap >> 37 & 1 == 0 {
            Some(NvmeError::NoNvmCommandSet)
        } else if page != 0 {
            Some(NvmeError::PageSize(4096 << page))
        } else if !takes(sqes, 6) || !takes(cqes, 4) {
            Some(NvmeError::EntrySize(sqes, cqes))
        } else if nsid == 0 || nsid > self.namespaces || self.blocks == 0 {
            Some(NvmeError::NoNamespace(nsid, self.namespaces))
        } else if !(9..=16).contains(&self.format.0) || self.format.1 != 0 {
            Some(NvmeError::Format(self.format.0, self.format.1))
        } else {
            None
        }
    }

    /// The controller's own limit, and that of a list of one page for every request.
    fn transfer_bytes(&self) -> [u32; 2] {
        let own = match self.mdts {
            0 | 20.. => u32::MAX,
            log2 => 4096 << log2,
        };
        [own, own.min(2 << 20)]
    }
}

pub(super) fn controller(draw: &mut Draw) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    let declared = Declared::draw(draw);
    let identify = declared.identify(draw);
    let granted = u32::from(declared.granted[0]) | u32::from(declared.granted[1]) << 16;
    let device = Answers::new(hal, declared.cap, identify, granted);
    let text = format!("{declared:?}");
    match (Controller::new(hal, device.window(), declared.config), declared.error()) {
        (Ok(controller), None) => {
            let told = told(&declared, &controller).and_then(|()| features(draw, &device, &controller));
            let told = told.and_then(|()| shut_down(&device, &controller));
            told.map_err(|wrong| format!("{wrong}; {text}"))
        }
        (Err(error), Some(expected)) if error == expected => match error.to_string().is_empty() {
            true => Err(format!("{error:?} says nothing")),
            false => same("disabled", &0, &(device.cc() & 1)),
        },
        (found, expected) => Err(differs(&text, &expected, &found.err())),
    }
}

/// The driver says what the controller said.
fn told(declared: &Declared, controller: &Controller<HostHal>) -> Result<(), String> {
    let info = controller.info();
    same("texts", &declared.texts, &[info.serial.clone(), info.model.clone(), info.firmware.clone()])?;
    let [own, most] = declared.transfer_bytes();
    let numbers = (own, most, declared.namespaces, declared.shutdown_us);
    let found = (info.transfer_bytes_max, controller.transfer_bytes_max(), info.namespaces_max, info.rtd3e_us);
    same("limits", &numbers, &found)?;
    let flags = (declared.caches, declared.deallocates, Version::from_bits(declared.version));
    same("flags and version", &flags, &(info.volatile_write_cache, info.deallocates, info.version))?;
    let namespace = controller.namespace();
    let (shift, _) = declared.format;
    let expected = (declared.config.nsid, declared.blocks, shift, 1 << shift);
    same("namespace", &expected, &(namespace.nsid, namespace.blocks, namespace.block_shift, namespace.block_bytes()))?;
    let [sq, cq] = declared.granted;
    let pairs = declared.config.queue_pairs.min(sq.min(cq) + 1);
    let entries = (declared.cap & 0xffff) as u32 + 1;
    same("queues", &(pairs, entries), &(controller.queue_pairs_max(), controller.queue_entries_max()))?;
    same("health", &Ok(()), &controller.check_health())?;
    let snapshot = controller.snapshot();
    let found = (snapshot.cap.into_bits(), snapshot.csts.map(|csts| csts.into_bits()), snapshot.queues.len());
    same("snapshot", &(declared.cap, Some(1), 1), &found)?;
    let text = snapshot.to_string();
    let named = text.contains("CSTS 0x1") && text.lines().count() > 1;
    if named { Ok(()) } else { Err(format!("a snapshot says only {text:?}")) }
}

/// A completion queue that nothing comes to.
struct Nothing;

impl BatchDone for Nothing {
    fn batch_done(&self, _: &[Completed]) {}
}

fn asked(opcode: u8, dwords: [u32; 2]) -> Asked {
    Asked { opcode, nsid: 0, dwords }
}

/// Coalescing is set and read by features 08h and 09h, and a vector without it feeds no tuner.
fn features(draw: &mut Draw, device: &Arc<Answers>, controller: &Controller<HostHal>) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    device.asked();
    let (steps, entries) = (draw.below(256) as u8, draw.within(1..=256) as u16);
    let threshold = CoalescingThreshold::entries(entries).map_err(|error| error.to_string())?;
    let wanted = Coalescing { time: CoalescingTime::steps(steps), threshold };
    let dw11 = u32::from(steps) << 8 | u32::from(entries - 1);
    same("set", &Ok(()), &controller.set_coalescing(wanted))?;
    same("coalescing", &Ok(wanted), &controller.coalescing())?;
    same("commands of feature 08h", &vec![asked(9, [8, dw11]), asked(10, [8, 0])], &device.asked())?;
    let is_on = steps > 0 && entries > 1;
    same("believes", &is_on, &controller.believes_coalescing())?;
    let setting = Setting::new(draw.below(30_000) as u32, draw.within(2..=300) as u32);
    let reached = match (setting.delay_us.div_ceil(100) * 100, setting.completions) {
        (0, _) => Outcome::Done(Setting::OFF),
        (us, entries) if us <= 25_500 && entries <= 256 => Outcome::Done(Setting::new(us, entries)),
        _ => Outcome::Failed,
    };
    same(&format!("level {setting}"), &reached, &controller.program(setting))?;
    let entries = draw.within(2..=controller.queue_entries_max().min(64).into()) as u16;
    let vector = draw.below(4) as u16;
    let config = QueueConfig { entries, vector: Some(vector), transfer_bytes_max: 4096 };
    device.asked();
    let pair = controller.create_queue_pair(config, Arc::new(Nothing)).map_err(|error| error.to_string())?;
    let dw10 = 1 | u32::from(entries - 1) << 16;
    let create = vec![asked(5, [dw10, 3 | u32::from(vector) << 16]), asked(1, [dw10, 1 | 1 << 16])];
    same("creation", &create, &device.asked())?;
    same("tuned", &false, &pair.is_tuned())?;
    let table = LevelTable::new(LevelTable::RDMA_DIM).map_err(|error| error.to_string())?;
    let build = draw.pick(&Algorithm::ALL).build(table, 64).map_err(|error| error.to_string())?;
    controller.tune(Arc::new(Tuner::new(hal, build)));
    let mut coalesced = true;
    for _ in 0..draw.within(1..=4) {
        let of = if draw.percent(60) { vector } else { draw.below(8) as u16 };
        let how = *draw.pick(&[VectorCoalescing::Coalesced, VectorCoalescing::Immediate]);
        let is_off = how == VectorCoalescing::Immediate;
        same("set", &Ok(()), &controller.set_vector_coalescing(of, how))?;
        same("vector", &Ok(how), &controller.vector_coalescing(of))?;
        let dw11 = u32::from(of) | u32::from(is_off) << 16;
        let commands = vec![asked(9, [9, dw11]), asked(10, [9, of.into()])];
        same("commands of feature 09h", &commands, &device.asked())?;
        coalesced = if of == vector { !is_off } else { coalesced };
        same(&format!("tuned, vector {vector}"), &coalesced, &pair.is_tuned())?;
    }
    Ok(())
}

/// Queues go first, then the controller is told; it ends disabled.
fn shut_down(device: &Arc<Answers>, controller: &Controller<HostHal>) -> Result<(), String> {
    device.asked();
    same("shutdown", &Ok(()), &controller.shutdown())?;
    same("deletion", &vec![asked(0, [1, 0]), asked(4, [1, 0])], &device.asked())?;
    same("disabled", &0, &(device.cc() & 1))
}
