//! The controllers of Linux's lib/dim, as its functions state them (lib/dim/dim.c, net_dim.c, rdma_dim.c): profiles to the
//! right and to the left, parking on top, parking tired.

use super::replay::{Model, Rates, replay};
use crate::draw::Draw;
use irq::moderation::Algorithm;

/// `DIM_NEVENTS`.
const EVENTS: u64 = 64;

/// `dim_tune_state`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tune {
    OnTop,
    Tired,
    Right,
    Left,
}

/// `dim_stats_state`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stats {
    Same,
    Better,
    Worse,
}

/// Rates per millisecond: bytes, packets or completions, events; and the ratio.
#[derive(Clone, Copy, Default)]
struct Sample {
    bytes: u64,
    packets: u64,
    events: u64,
    ratio: u64,
}

/// Counters at one time.
#[derive(Clone, Copy, Default)]
struct Counters {
    us: u64,
    events: u64,
    packets: u64,
    bytes: u64,
}

/// One of the two.
struct Dim {
    is_net: bool,
    profiles: usize,
    profile: usize,
    tune: Tune,
    right: u32,
    left: u32,
    tired: usize,
    now: Counters,
    start: Option<Counters>,
    applies: bool,
    previous: Sample,
}

/// Differs by more than a tenth of what was before, in whole per cents.
fn is_significant(now: u64, before: u64) -> bool {
    before != 0 && 100 * now.abs_diff(before) / before > 10
}

impl Dim {
    fn begin(is_net: bool, profiles: usize) -> Box<dyn Model> {
        // net_dim begins parked at its second profile; rdma_dim goes right from its first.
        let (profile, tune) = if is_net { (1.min(profiles - 1), Tune::OnTop) } else { (0, Tune::Right) };
        let counters = Counters::default();
        Box::new(Self {
            is_net,
            profiles,
            profile,
            tune,
            right: 0,
            left: 0,
            tired: 0,
            now: counters,
            start: None,
            applies: false,
            previous: Sample::default(),
        })
    }

    /// `dim_calc_stats`; its counters have 32 bits.
    fn sample(&self, start: Counters) -> Option<Sample> {
        let us = (self.now.us - start.us) & 0xffff_ffff;
        let rate = |count: u64| ((count & 0xffff_ffff) * 1000).div_ceil(us) & 0xffff_ffff;
        if us == 0 {
            return None;
        }
        let (packets, events) = (rate(self.now.packets - start.packets), rate(EVENTS));
        let ratio = packets * 100 / events.max(1);
        Some(Sample { bytes: rate(self.now.bytes - start.bytes), packets, events, ratio: ratio & 0xffff_ffff })
    }

    /// `net_dim_stats_compare`.
    fn compare_net(&self, now: &Sample) -> Stats {
        let before = &self.previous;
        let more = |now, before| if now > before { Stats::Better } else { Stats::Worse };
        if before.bytes == 0 {
            return if now.bytes > 0 { Stats::Better } else { Stats::Same };
        }
        if is_significant(now.bytes, before.bytes) {
            return more(now.bytes, before.bytes);
        }
        if before.packets == 0 {
            return if now.packets > 0 { Stats::Better } else { Stats::Same };
        }
        if is_significant(now.packets, before.packets) {
            return more(now.packets, before.packets);
        }
        if is_significant(now.events, before.events) {
            return more(before.events, now.events);
        }
        Stats::Same
    }

    /// `rdma_dim_stats_compare`.
    fn compare_rdma(&self, now: &Sample) -> Stats {
        let before = &self.previous;
        let more = |now, before| if now > before { Stats::Better } else { Stats::Worse };
        match before.packets {
            0 => Stats::Same,
            _ if is_significant(now.packets, before.packets) => more(now.packets, before.packets),
            _ if is_significant(now.ratio, before.ratio) => more(now.ratio, before.ratio),
            _ => Stats::Same,
        }
    }

    /// `dim_turn`.
    fn turn(&mut self) {
        if self.tune == Tune::Right {
            self.tune = Tune::Left;
            self.left = 0;
        } else if self.tune == Tune::Left {
            self.tune = Tune::Right;
            self.right = 0;
        }
    }

    /// A profile further; false at the edge.
    fn step(&mut self) -> bool {
        if self.tune == Tune::Right {
            if self.profile + 1 == self.profiles {
                return false;
            }
            self.profile += 1;
            self.right += 1;
        } else if self.tune == Tune::Left {
            if self.profile == 0 {
                return false;
            }
            self.profile -= 1;
            self.left += 1;
        }
        true
    }

    fn park(&mut self, tune: Tune) {
        self.tune = tune;
        self.right = 0;
        self.left = 0;
        if tune == Tune::OnTop {
            self.tired = 0;
        }
    }

    /// `net_dim_exit_parking`.
    fn exit_parking(&mut self) {
        self.tune = if self.profile == 0 { Tune::Right } else { Tune::Left };
        if self.step() {
            self.tired += 1;
        }
    }

    /// `net_dim_decision`.
    fn decide_net(&mut self, now: Sample) {
        let before = self.tune;
        let stats = self.compare_net(&now);
        match self.tune {
            Tune::OnTop if stats == Stats::Same => {}
            Tune::OnTop => self.exit_parking(),
            Tune::Tired => {
                self.tired -= 1;
                if self.tired == 0 {
                    self.exit_parking();
                }
            }
            Tune::Right | Tune::Left => {
                if stats != Stats::Better {
                    self.turn();
                }
                // `dim_on_top`: a turn has brought it back.
                let on_top = match self.tune {
                    Tune::Right => self.left > 1 && self.right == 1,
                    _ => self.right > 1 && self.left == 1,
                };
                if on_top {
                    self.park(Tune::OnTop);
                } else if self.tired == 2 * self.profiles {
                    self.park(Tune::Tired);
                } else if self.step() {
                    self.tired += 1;
                } else {
                    self.park(Tune::OnTop);
                }
            }
        }
        if !(before == Tune::OnTop && self.tune == Tune::OnTop) {
            self.previous = now;
        }
    }

    /// `rdma_dim_decision`.
    fn decide_rdma(&mut self, now: Sample) {
        match self.compare_rdma(&now) {
            Stats::Same => {
                if now.ratio <= 50 * self.profile as u64 {
                    self.profile = 0;
                }
            }
            stats => {
                if stats == Stats::Worse {
                    self.turn();
                }
                if !self.step() {
                    self.turn();
                }
            }
        }
        self.previous = now;
    }
}

impl Model for Dim {
    fn interrupt(&mut self, now_us: u64, completions: u32, bytes: u64) -> bool {
        self.now.us = now_us;
        self.now.events += 1;
        self.now.packets += u64::from(completions);
        self.now.bytes = self.now.bytes.wrapping_add(bytes);
        if self.applies {
            return false;
        }
        let Some(start) = self.start else {
            self.start = Some(self.now);
            return false;
        };
        if self.now.events - start.events < EVENTS {
            return false;
        }
        let Some(sample) = self.sample(start) else { return false };
        let before = self.profile;
        if self.is_net {
            self.decide_net(sample)
        } else {
            self.decide_rdma(sample)
        }
        self.applies = self.profile != before;
        self.start = Some(self.now);
        self.applies
    }

    /// Packets are the ring's totals. A completion queue counts those of its interrupts.
    fn polled(&mut self, completions: u32, bytes: u64) {
        if self.is_net {
            self.now.packets += u64::from(completions);
            self.now.bytes = self.now.bytes.wrapping_add(bytes);
        }
    }

    fn answered(&mut self) {
        self.applies = false;
        self.start = None;
    }

    fn level(&self) -> usize {
        self.profile
    }

    fn phase(&self, programs: bool) -> &'static str {
        match self.tune {
            _ if programs => "programming",
            Tune::OnTop => "parking on top",
            Tune::Tired => "parking tired",
            Tune::Right => "going right",
            Tune::Left => "going left",
        }
    }

    fn sample(&self) -> Option<Rates> {
        let Sample { packets, events, ratio, .. } = self.previous;
        (packets != 0).then_some((packets * 1000, events * 1000, ratio))
    }
}

pub(super) fn net_dim(draw: &mut Draw) -> Result<(), String> {
    replay(draw, Algorithm::NetDim, EVENTS as u16, |profiles| Dim::begin(true, profiles))
}

pub(super) fn rdma_dim(draw: &mut Draw) -> Result<(), String> {
    replay(draw, Algorithm::RdmaDim, EVENTS as u16, |profiles| Dim::begin(false, profiles))
}
