//! Adapts a model of the machine to a served function. The model's clock follows wall-clock time.

use crate::function::Function;
use crate::guest::Guest;
use machine::lent::{Host, Lent};
use machine::model::{Model, ModelId};
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::pci::MSIX_CAPABILITY_OFFSET;
use machine::time::Ps;
use spec::msi::msix_entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum model time that passes before the bridge handles client requests again. Matters if the host is slower than
/// the model.
const SLICE: Ps = Ps::from_ns(1_000_000);
/// Address in the model's MSI-X table; the message data names the vector. The guest's own table addresses stay with
/// the VMM, as for every VFIO device.
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;

struct GuestHost(Arc<Guest>);

impl Host for GuestHost {
    fn read(&self, address: u64, bytes: u32) -> Option<u64> {
        self.0.memory().read(address, bytes)
    }

    fn write(&self, address: u64, bytes: u32, value: u64) -> bool {
        self.0.memory().write(address, bytes, value)
    }

    fn message(&self, _address: u64, data: u32) {
        self.0.raise(data as u16);
    }
}

/// A model whose regions are laid out as in the NVMe model: BAR 0, MSI-X in BAR 4, configuration.
pub(crate) struct LentModel {
    lent: Lent,
    /// Wall-clock instant at which the model's time was 0.
    start: Instant,
    /// Kinds of faults already reported.
    faults_told: usize,
}

impl LentModel {
    /// Wraps the model that `build` makes. Each message of its `vectors` vectors carries the vector number as data.
    pub(crate) fn new(guest: &Arc<Guest>, vectors: u16, build: impl FnOnce(ModelId) -> Box<dyn Model>) -> Self {
        let mut lent = Lent::new(Box::new(GuestHost(guest.clone())), 1, 0, build);
        debug_assert!(lent.read(REGION_CONFIG, MSIX_CAPABILITY_OFFSET, 4) != 0);
        for vector in 0..vectors {
            let entry = u32::from(vector) * msix_entry::SIZE;
            lent.write(REGION_MSIX, entry + msix_entry::ADDRESS_LOW, 4, MESSAGE_ADDRESS.into());
            lent.write(REGION_MSIX, entry + msix_entry::DATA, 4, vector.into());
        }
        Self { lent, start: Instant::now(), faults_told: 0 }
    }

    /// The model time that corresponds to the wall clock now.
    fn wall(&self) -> Ps {
        Ps::from_ns(self.start.elapsed().as_nanos() as u64)
    }
}

impl Function for LentModel {
    fn config_read(&mut self, offset: u32) -> u32 {
        self.lent.read(REGION_CONFIG, offset, 4) as u32
    }

    fn config_write(&mut self, offset: u32, value: u32) {
        self.lent.write(REGION_CONFIG, offset, 4, value.into());
    }

    fn read(&mut self, bar: u8, offset: u32, width_bytes: u8) -> u64 {
        let region = if bar == 0 { REGION_CONTROLLER } else { REGION_MSIX };
        self.lent.read(region, offset, width_bytes)
    }

    fn write(&mut self, _bar: u8, offset: u32, width_bytes: u8, value: u64) {
        self.lent.write(REGION_CONTROLLER, offset, width_bytes, value);
    }

    fn set_mask(&mut self, vector: u16, masked: bool) {
        let entry = u32::from(vector) * msix_entry::SIZE;
        self.lent.write(REGION_MSIX, entry + msix_entry::CONTROL, 4, masked.into());
    }

    fn catch_up(&mut self) -> Option<Duration> {
        let wall = self.wall();
        self.lent.run_until(wall.min(self.lent.now() + SLICE));
        match self.lent.next_event() {
            Some(at) if at <= wall => Some(Duration::ZERO),
            next => {
                self.lent.run_until(wall);
                let at = next?;
                Some(Duration::from_nanos(at.saturating_sub(self.wall()).0.div_ceil(1000)))
            }
        }
    }

    fn tell_faults(&mut self, tell: &dyn Fn(&str)) {
        let kinds = self.lent.fault_kinds();
        if kinds > self.faults_told {
            for fault in &self.lent.faults().0[self.faults_told..] {
                tell(&format!("the device: {}: {}", fault.kind, fault.text));
            }
            self.faults_told = kinds;
        }
    }

    fn counts(&self) -> Option<String> {
        let wanted = [
            "reads",
            "writes",
            "completions",
            "completed",
            "errors",
            "kicks",
            "status_reads",
            "acknowledgements",
            "msis",
            "coalesced",
            "doorbell_errors",
            "queues_deleted",
        ];
        let counters = self.lent.counters();
        let is_used = counters.iter().any(|&(_, count)| count > 0);
        let shown = counters.iter().filter(|(name, _)| wanted.contains(name));
        let shown: Vec<_> = shown.map(|(name, count)| format!("{name} {count}")).collect();
        is_used.then(|| shown.join(", "))
    }
}
