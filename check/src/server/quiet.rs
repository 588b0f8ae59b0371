//! Conditions that hold once no command and no message is under way.

use super::crowded::Crowd;
use super::{Host, Path};
use drivers::message::MessageSource;
use hal::{CpuId, Hal as _};
use irq::MsiMessage;
use irq::Vector;
use irq::posted::PostedConfig;
use machine::SimHal;
use std::sync::Arc;

/// Device vectors a CPU: 0x20 to 0xea.
pub(super) const DEVICE_VECTORS: u32 = 0xea - 0x20 + 1;

/// A device that has messages and never sends one.
pub(super) struct Silent;

impl MessageSource for Silent {
    fn chip_name(&self) -> &'static str {
        "SILENT"
    }
    fn entries(&self) -> u32 {
        2048
    }
    fn mask(&self, _: u32) {}
    fn unmask(&self, _: u32) {}
    fn write(&self, _: u32, _: MsiMessage) {}
}

impl Host {
    /// The load has ended, all CPUs are online, no device sends: every command completed exactly once; nothing is in
    /// service, requested, posted or promised at any CPU; no line waits for anything. Stops the ticks.
    ///
    /// # Panics
    /// When one of these does not hold.
    pub fn check_quiet(self: &Arc<Self>) {
        // Ticks give abandoned vectors back; moves and throttles end there too.
        SimHal.delay_ns(1_000_000);
        self.stop_ticks();
        self.queues().for_each(|queue| queue.load.check());
        self.on_every_cpu(|host| host.check_cpu(SimHal.cpu()));
        for line in self.core().views() {
            assert!(!line.in_progress && !line.move_wanted && line.retired.is_empty(), "{line}");
            assert!(line.handlers.is_empty() || line.disabled_depth > 0 || !line.masked, "{line}");
            assert!(!line.pending && !line.shutdown && line.throttled_until_ns.is_none(), "{line}");
        }
        let violations = self.watch.violations.lock().expect("one host thread").clone();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// No request is left at this CPU.
    fn check_cpu(&self, cpu: CpuId) {
        assert!(!self.calls.any_waits(cpu), "CPU {cpu} was called, and its interrupt has not come");
        for vector in (0x20..=0xff).map(Vector) {
            assert!(!self.pc.lapic().is_in_service(vector), "CPU {cpu}: vector {:#x} is in service", vector.0);
            assert!(!self.pc.lapic().is_requested(vector), "CPU {cpu}: vector {:#x} is requested", vector.0);
        }
        if let Some(descriptor) = self.pc.posted().and_then(|posted| posted.descriptor(cpu)) {
            assert!(!descriptor.is_outstanding(), "CPU {cpu}: ON is set, but no notification is pending");
            let left: Vec<u8> = (0..=255).filter(|&vector| descriptor.is_pending(Vector(vector))).collect();
            assert!(left.is_empty(), "CPU {cpu}: still posted: {left:x?}");
        }
    }

    /// The interrupts that `/proc/interrupts` shows are those that the CPUs took. The notifications are those of the
    /// handler, and the vectors that it dispatched have lines. Counts of freed lines are lost with the lines.
    ///
    /// # Panics
    /// If the accounts do not add up.
    pub fn check_accounts(&self) {
        let cpus = (0..self.cpus()).map(CpuId);
        let taken: u64 = cpus
            .clone()
            .flat_map(|cpu| (0..=255).map(move |v| (cpu, v)))
            .map(|(cpu, v)| self.taken(cpu, Vector(v)))
            .sum();
        let table = self.core().interrupts().to_string();
        let mut rows = 0;
        let mut notifications = 0;
        for row in table.lines().skip(1) {
            let (label, counts) = row.split_once(':').expect("a label");
            let sum: u64 =
                counts.split_whitespace().map_while(|word| word.parse::<u64>().ok()).take(self.cpus() as usize).sum();
            rows += sum;
            if label.trim() == "PMN" {
                notifications = sum;
            }
        }
        let posted = self.pc.posted().into_iter().flat_map(|posted| cpus.clone().map(|cpu| posted.statistics(cpu)));
        let (vectors, handled, alien) = posted.fold((0, 0, 0), |(vectors, handled, alien), statistics| {
            (vectors + statistics.vectors, handled + statistics.notifications, alien + statistics.stray)
        });
        assert_eq!(alien, 0, "posted requests that no device vector stands for");
        assert_eq!(notifications, handled, "the PMN row is the handler's count");
        let vector = PostedConfig::default().notification_vector;
        let came: u64 = cpus.map(|cpu| self.taken(cpu, vector)).sum();
        assert_eq!(notifications, came, "and the LAPICs'");
        assert_eq!(rows, taken + vectors, "all rows together are what the CPUs took, and what was harvested\n{table}");
    }

    /// What the system says of all its CPUs is the sum of what core and notifications say of each. The notifications are those
    /// that the CPUs took.
    pub(crate) fn check_sums(&self, delivery: Path) {
        let cpus = || (0..self.cpus()).map(CpuId);
        let strays: u64 = cpus().map(|cpu| self.core().stray_vectors(cpu)).sum();
        assert_eq!(self.pc.strays(), strays, "strays of all CPUs");
        let last = self.core().last_stray();
        let is_device = |target: irq::Target| {
            let vector = target.identity.map_or(0, |identity| identity.0);
            target.cpu.0 < self.cpus() && (0x20..=0xea).contains(&vector)
        };
        let agrees = if strays == 0 { last.is_none() } else { last.is_some_and(is_device) };
        assert!(agrees, "{strays} strays, the last {last:?}");
        let says = self.pc.statistics();
        let says =
            [says.notifications, says.empty_notifications, says.passes, says.vectors, says.stray, says.cut_short];
        let mut sums = [0; 6];
        for own in self.pc.posted().into_iter().flat_map(|posted| cpus().map(|cpu| posted.statistics(cpu))) {
            let own = [own.notifications, own.empty_notifications, own.passes, own.vectors, own.stray, own.cut_short];
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        assert_eq!(says, sums, "notifications of all CPUs: all, empty, passes, vectors, alien vectors, cut short");
        let path = match delivery {
            Path::Plain => "plain",
            Path::Remapped => "remapped",
            Path::Posted => "posted",
        };
        let plural = if self.cpus() == 1 { "" } else { "s" };
        assert_eq!(self.pc.to_string(), format!("{} CPU{plural}, messages {path}", self.cpus()));
        assert!(self.pc.policy().is_met(), "messages take the wished path");
        let table = self.pc.interrupts().to_string();
        assert_eq!(table, self.core().interrupts().to_string(), "the table of all interrupts");
        if let Some(posted) = self.pc.posted() {
            let came: u64 = cpus().map(|cpu| self.taken(cpu, self.pc.notification())).sum();
            assert_eq!(says[0], came, "notifications that were counted and that came");
            assert_eq!(self.pc.notification(), posted.vector(), "the vector of notifications");
        }
    }

    /// Frees the lines of all queues, and checks that every vector of every CPU can be allocated again, and that no CPU goes
    /// offline then.
    ///
    /// # Panics
    /// If one cannot.
    pub fn check_no_vector_leaked(self: &Arc<Self>) {
        for queue in self.queues() {
            let action: Arc<dyn irq::Action> = queue.pair.clone();
            self.core().free(queue.line, &action).expect("its handler");
            self.core().free_line(queue.line).expect("without a handler");
        }
        SimHal.delay_ns(100_000);
        self.on_every_cpu(|host| host.core().housekeep());
        Crowd::gather(self).refuse_offline();
    }
}
