//! The embedded controller with a small model of device and load: a CPU that spends 1.5 µs on an interrupt and 0.5 µs
//! on a completion, and a faster device.

use example_moderation::{LEVELS, Moderated};
use example_seam::{Kernel, Seam};
use hal::Hal;
use irq::moderation::{Algorithm, Setting};

const INTERRUPT_NS: u64 = 1_500;
const COMPLETION_NS: u64 = 500;
/// The device alone.
const LATENCY_NS: u64 = 10_000;

struct Bench {
    seam: Seam,
    moderated: Moderated<Seam>,
    programmed: Setting,
    /// The device's answer to a setting.
    device: fn(Setting) -> Option<Setting>,
}

impl Bench {
    fn new(device: fn(Setting) -> Option<Setting>) -> Self {
        let seam = Seam::new(Box::leak(Box::<Kernel>::default()));
        let moderated = Moderated::new(seam, Algorithm::default(), &LEVELS).expect("a sorted table");
        Self { seam, moderated, programmed: LEVELS[0], device }
    }

    fn work(&mut self) {
        while self.moderated.work(|setting| {
            let answer = (self.device)(setting);
            self.programmed = answer.unwrap_or(self.programmed);
            answer
        }) {}
    }

    /// Keeps `in_flight` I/Os in flight for `duration_ns`. Returns completions per second.
    fn load(&mut self, in_flight: u32, duration_ns: u64) -> f64 {
        let (begin_ns, mut completed) = (self.seam.now_ns(), 0);
        while self.seam.now_ns() - begin_ns < duration_ns {
            // Completions gather until the count or the delay is reached, whichever is first.
            let gathered = self.programmed.completions.clamp(1, in_flight);
            let waits_ns = if self.programmed.completions > in_flight { self.programmed.delay_us * 1000 } else { 0 };
            let idle_ns = if in_flight == 1 { LATENCY_NS } else { 0 };
            self.seam.delay_ns(idle_ns + u64::from(waits_ns) + INTERRUPT_NS + COMPLETION_NS * u64::from(gathered));
            completed += gathered;
            if self.moderated.interrupt(gathered, in_flight) {
                self.work();
            }
        }
        f64::from(completed) * 1e9 / (self.seam.now_ns() - begin_ns) as f64
    }
}

#[test]
fn a_deep_load_is_carried_to_the_throughput_end_and_a_shallow_one_is_left_alone() {
    let mut bench = Bench::new(Some);
    bench.load(1, 20_000_000);
    assert_eq!(bench.programmed, LEVELS[0], "{}", bench.moderated.view());
    let unmoderated = bench.load(1, 5_000_000);
    assert!((unmoderated - 1e9 / 12_000.0).abs() < 0.01 * unmoderated, "{unmoderated} completions a second");
    bench.load(128, 100_000_000);
    let best = 64.0 * 1e9 / (INTERRUPT_NS + 64 * COMPLETION_NS) as f64;
    let reached = bench.load(128, 20_000_000);
    assert!(reached > 0.95 * best, "{reached} of {best} completions a second: {}", bench.moderated.view());
}

#[test]
fn a_device_that_refuses_keeps_what_it_has() {
    let mut bench = Bench::new(|_| None);
    bench.load(128, 50_000_000);
    let view = bench.moderated.view();
    assert_eq!((bench.programmed, view.level), (LEVELS[0], 0), "{view}");
    assert!(view.counts.failed > 0, "{view}");
}

#[test]
fn a_table_that_is_not_sorted_is_refused() {
    let seam = Seam::new(Box::leak(Box::<Kernel>::default()));
    let error =
        |levels: &[Setting]| Moderated::new(seam, Algorithm::default(), levels).err().map(|why| why.to_string());
    assert_eq!(error(&[]).as_deref(), Some("the table of levels is empty; it needs at least 1"));
    let why = error(&[LEVELS[1], LEVELS[0]]).expect("unsorted");
    assert!(why.contains("level 1"), "{why}");
}
