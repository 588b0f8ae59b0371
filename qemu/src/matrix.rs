//! The cases, the machines that each case runs on, and the counts expected there.

use crate::Selection;
use crate::image::{AARCH64, Tools, X86_64};
use crate::lent::QUEUES;
use std::fmt;

/// A case of the images.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Case {
    /// An SPI that software raises: the published benchmark's loop.
    Raise,
    /// The UART's input.
    Serial,
    /// Timer interrupts and SGIs.
    Private,
    /// SPIs that are taken while others are held back by the priority mask. Only a GICv3 has them.
    Nmi,
    /// An NVMe drive with one vector per CPU.
    Nvme,
    /// A device whose threads post into the guest's descriptors.
    Posts,
    /// A virtio block device over MMIO, with one interrupt.
    VirtioBlk,
    /// Two virtio network devices over MMIO, on one hub.
    VirtioNet,
    /// Our own virtio block device over MMIO, with several interrupts. The image finds it by its command line.
    VirtioIrqs,
}

/// All cases, by name.
pub const CASES: [(&str, Case); 9] = [
    ("raise", Case::Raise),
    ("serial", Case::Serial),
    ("private", Case::Private),
    ("nmi", Case::Nmi),
    ("nvme", Case::Nvme),
    ("posts", Case::Posts),
    ("virtio-blk", Case::VirtioBlk),
    ("virtio-net", Case::VirtioNet),
    ("virtio-irqs", Case::VirtioIrqs),
];

impl Case {
    /// True if the case is judged by tracing its device's interrupts. Those interrupts are not forced into threads.
    pub(crate) fn traces_interrupts(self) -> bool {
        matches!(self, Self::Nvme | Self::VirtioBlk | Self::VirtioNet | Self::VirtioIrqs)
    }

    /// True if the devices are QEMU's virtio devices on `virt`, with one interrupt each.
    pub(crate) fn has_single_interrupts(self) -> bool {
        matches!(self, Self::VirtioBlk | Self::VirtioNet)
    }

    /// True if the device sends messages: through an ITS or a v2m frame, or to local APICs.
    pub(crate) fn sends_messages(self) -> bool {
        matches!(self, Self::Nvme | Self::VirtioIrqs)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = CASES.iter().find(|(_, case)| case == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// A machine of QEMU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// `virt` with this GIC version; the image is entered at this exception level and asked to use this EOImode.
    Virt { gic: u8, level: u8, eoi_mode: u8 },
    /// `q35`, with VT-d remapping or without.
    Q35 { remapping: bool },
    /// `q35` with a device that `campanile serve` lends. The device posts or sends plain messages.
    Lent { posting: bool },
}

impl Machine {
    pub(crate) fn tools(self) -> Tools {
        match self {
            Self::Virt { .. } => AARCH64,
            Self::Q35 { .. } | Self::Lent { .. } => X86_64,
        }
    }
}

/// A case on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) case: Case,
    pub(crate) machine: Machine,
    pub(crate) cpus: u32,
    /// Length of the run: interrupts, bytes, rounds or reads.
    pub(crate) rounds: u64,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.case)?;
        match self.machine {
            Machine::Virt { gic, level, eoi_mode } => {
                let way = match (self.case.sends_messages(), gic) {
                    (true, 2) => " v2m",
                    (true, _) => " ITS",
                    (false, _) => "",
                };
                write!(f, "GICv{gic}{way} EL{level} EOImode {eoi_mode}")?;
            }
            Machine::Q35 { remapping: true } => write!(f, "VT-d")?,
            Machine::Q35 { remapping: false } => write!(f, "plain MSI")?,
            Machine::Lent { posting: true } => write!(f, "lent, software posting")?,
            Machine::Lent { posting: false } => write!(f, "lent, plain MSI")?,
        }
        write!(f, ", {} CPU{}", self.cpus, if self.cpus == 1 { "" } else { "s" })?;
        match (self.case, self.rounds) {
            (Case::Nvme, MILLION) => write!(f, ", a million reads"),
            (Case::Posts, rounds) => write!(f, ", {rounds} posts"),
            _ => Ok(()),
        }
    }
}

/// Accesses to distributor and redistributor per interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Accesses {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
}

impl Setting {
    /// The exact accesses that an interrupt must make; none where they are not judged. With EOImode 0 a
    /// forced-threaded line is masked and unmasked: two writes, and on a GICv3 one read of the register-write-pending
    /// bit. With EOImode 1 there are no accesses. The `raise` case adds the write that raises the interrupt.
    pub(crate) fn accesses(&self) -> Option<Accesses> {
        let Machine::Virt { gic, eoi_mode, .. } = self.machine else { return None };
        let raising = match self.case {
            Case::Raise => 1,
            Case::Serial => 0,
            _ => return None,
        };
        let masked = u64::from(eoi_mode == 0);
        Some(Accesses { writes: raising + 2 * masked, reads: masked * u64::from(gic == 3) })
    }

    /// Figures by which the image reports where it ran, with their required values.
    pub(crate) fn asked(&self) -> Vec<(&'static str, u64)> {
        let cpus = ("cpus", self.cpus.into());
        match self.machine {
            Machine::Virt { gic, level, .. } => {
                vec![cpus, ("exception_level", level.into()), ("gic_version", gic.into())]
            }
            Machine::Q35 { remapping } => vec![cpus, ("remapping", remapping.into()), ("posting", 0)],
            Machine::Lent { posting } => vec![cpus, ("remapping", 0), ("posting", posting.into())],
        }
    }

    /// The image's command line.
    pub(crate) fn command_line(&self) -> String {
        let Self { case, rounds, .. } = self;
        match self.machine {
            Machine::Virt { eoi_mode, .. } if case.traces_interrupts() => {
                format!("{case} eoimode={eoi_mode} forced=0 rounds={rounds} depth=16{}", self.device())
            }
            Machine::Virt { eoi_mode, .. } => format!("{case} eoimode={eoi_mode} rounds={rounds}"),
            Machine::Q35 { .. } => format!("{case} rounds={rounds} depth=16{}", self.device()),
            Machine::Lent { posting } if *case == Case::Posts => {
                format!("{case} posting={} raises={rounds} seed={SEED}", u8::from(posting))
            }
            Machine::Lent { posting } => format!("{case} posting={} rounds={rounds} depth=16", u8::from(posting)),
        }
    }

    /// Whether this program lends the device.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.machine, Machine::Lent { .. }) || self.case == Case::VirtioIrqs
    }

    /// The command line's description of a virtio device: the number of its queues, and its address if the device tree
    /// does not have it.
    fn device(&self) -> String {
        // The address at which each machine has room for a BAR.
        let base = match self.machine {
            Machine::Virt { .. } => 0x3e00_0000,
            Machine::Q35 { .. } | Machine::Lent { .. } => 0xc800_0000_u32,
        };
        match self.case {
            // All queues share one interrupt line.
            Case::VirtioBlk => " queues=4".into(),
            Case::VirtioIrqs => format!(" queues={QUEUES} virtio_mmio.device=4K@{base:#x}:40-{}", 40 + QUEUES),
            _ => String::new(),
        }
    }
}

/// The reads of the long run.
const MILLION: u64 = 1_000_000;
/// Posts of the long run, and of the other runs.
const POSTS_MANY: u64 = 10_000_000;
const POSTS: u64 = 400_000;
/// Seed of the choices that the device's threads make. The host schedules the threads, so no two runs are alike.
const SEED: u64 = 1;

/// The settings to run, in order.
pub(crate) fn select(selection: &Selection) -> Vec<Setting> {
    let all = || CASES.iter().flat_map(|&(_, case)| machines(case));
    match selection {
        Selection::One(case) => machines(*case),
        Selection::Path | Selection::Judges { .. } | Selection::JudgesVirtio { .. } | Selection::JudgedImage(_) => {
            Vec::new()
        }
        Selection::All => all().chain([nvme(true, 4, MILLION), posts(POSTS_MANY)]).collect(),
        Selection::Quick => all().filter(is_quick).collect(),
    }
}

fn nvme(remapping: bool, cpus: u32, rounds: u64) -> Setting {
    Setting { case: Case::Nvme, machine: Machine::Q35 { remapping }, cpus, rounds }
}

fn lent(case: Case, posting: bool, cpus: u32, rounds: u64) -> Setting {
    Setting { case, machine: Machine::Lent { posting }, cpus, rounds }
}

fn posts(posts: u64) -> Setting {
    lent(Case::Posts, true, 2, posts)
}

/// All machines of a case.
fn machines(case: Case) -> Vec<Setting> {
    let mut settings = Vec::new();
    let rounds = match case {
        Case::Nvme => {
            settings.extend([(false, 1), (false, 4), (true, 1), (true, 4)].map(|(vtd, cpus)| nvme(vtd, cpus, 50_000)));
            settings
                .extend([(false, 2), (true, 2), (true, 4)].map(|(posting, cpus)| lent(case, posting, cpus, 20_000)));
            20_000
        }
        Case::Posts => return vec![posts(POSTS)],
        Case::VirtioBlk | Case::VirtioNet => 1000,
        Case::VirtioIrqs => return with_own_device(),
        Case::Raise | Case::Serial | Case::Nmi => 200,
        Case::Private => 20,
    };
    for gic in if case == Case::Nmi { 3..=3 } else { 2..=3 } {
        for level in [1, 2] {
            for eoi_mode in [0, 1] {
                let machine = Machine::Virt { gic, level, eoi_mode };
                settings.extend([1, 4].map(|cpus| Setting { case, machine, cpus, rounds }));
            }
        }
    }
    settings
}

/// Our own device on every machine: each delivers its messages in another way.
fn with_own_device() -> Vec<Setting> {
    let virt = |gic| Machine::Virt { gic, level: gic - 1, eoi_mode: 1 };
    let machines = [virt(2), virt(3), Machine::Q35 { remapping: false }, Machine::Q35 { remapping: true }];
    let settings = machines.into_iter().flat_map(|machine| [1, 4].map(|cpus| (machine, cpus)));
    settings.map(|(machine, cpus)| Setting { case: Case::VirtioIrqs, machine, cpus, rounds: 1000 }).collect()
}

/// Selects four CPUs, each GIC at one level (in both modes for `raise` and `serial`), with and without remapping. Of
/// the lent devices it selects those that post, on two CPUs.
fn is_quick(setting: &Setting) -> bool {
    let cpus = if matches!(setting.machine, Machine::Lent { .. }) { 2 } else { 4 };
    setting.cpus == cpus
        && match setting.machine {
            Machine::Virt { gic, level, eoi_mode } => {
                level + 1 == gic && (eoi_mode == 1 || matches!(setting.case, Case::Raise | Case::Serial))
            }
            Machine::Q35 { .. } => true,
            Machine::Lent { posting } => posting,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_whole_and_the_quick_part_small() {
        for (_, case) in CASES {
            let count = match case {
                Case::Nvme => 23,
                Case::Posts => 1,
                Case::VirtioIrqs | Case::Nmi => 8,
                _ => 16,
            };
            assert_eq!(select(&Selection::One(case)).len(), count, "{case}");
        }
        assert_eq!(select(&Selection::All).len(), 122);
        let quick = select(&Selection::Quick);
        assert_eq!(quick.len(), 25);
        assert!(CASES.iter().all(|(_, case)| quick.iter().any(|setting| setting.case == *case)));
    }

    #[test]
    fn mode_1_may_cost_nothing_but_the_raising_write() {
        let accesses = |case, gic, eoi_mode| {
            let machine = Machine::Virt { gic, level: 1, eoi_mode };
            Setting { case, machine, cpus: 1, rounds: 1 }.accesses().map(|Accesses { writes, reads }| (writes, reads))
        };
        assert_eq!(accesses(Case::Serial, 3, 1), Some((0, 0)));
        assert_eq!(accesses(Case::Serial, 3, 0), Some((2, 1)));
        assert_eq!(accesses(Case::Serial, 2, 0), Some((2, 0)));
        assert_eq!(accesses(Case::Raise, 3, 1), Some((1, 0)));
        assert_eq!(accesses(Case::Private, 3, 1), None);
    }
}
