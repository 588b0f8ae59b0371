//! The systems whose published experiments are reproduced. The letter of a row's id names the system.

use super::{Class, Row};

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Study {
    /// Rows A to J: posted MSI, on drives and on an accelerator.
    Posted,
    /// Rows K: the completion look.
    Look,
    /// Rows L: threaded interrupts with EOImode 1.
    Threaded,
    /// Rows M: several interrupts for one virtio-mmio device.
    Network,
    /// Rows N: adaptive moderation.
    Moderation,
    /// Rows of the reader's own.
    Yours,
}

impl Study {
    pub(super) const ALL: [Self; 6] =
        [Self::Posted, Self::Look, Self::Threaded, Self::Network, Self::Moderation, Self::Yours];

    /// The rows of this study, in their order.
    pub(super) fn rows(self, rows: &[Row]) -> Vec<&Row> {
        rows.iter().filter(|row| Self::of(row) == self).collect()
    }

    fn of(row: &Row) -> Self {
        match row.id.chars().next() {
            _ if matches!(row.class, Class::Yours | Class::YoursFitted) => Self::Yours,
            Some('K') => Self::Look,
            Some('L') => Self::Threaded,
            Some('M') => Self::Network,
            Some('N') => Self::Moderation,
            _ => Self::Posted,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Posted => "Posted MSI",
            Self::Look => "Completion look after batch submission",
            Self::Threaded => "Threaded interrupts without masking",
            Self::Network => "Several interrupts for one virtio-mmio device",
            Self::Moderation => "Adaptive moderation",
            Self::Yours => "Yours",
        }
    }

    /// The subject of the figures, as the first half of a sentence.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Posted => "What one notification for several MSIs gains where their path, or one CPU, is what limits",
            Self::Look => {
                "What one look at the completion queue after a batch gains on a drive that coalesces without declaring it"
            }
            Self::Threaded => "What a threaded handler gains when its line is deactivated late instead of masked",
            Self::Network => "What a device with fewer interrupts than queues receives, and what it loses",
            Self::Moderation => "What holding completions back gains at depth, and what it costs without",
            Self::Yours => "What was measured on a server of yours, and what its platform gives",
        }
    }

    /// The effects that the model leaves out, in a sentence.
    pub(super) fn left_out(self) -> &'static str {
        match self {
            Self::Posted => {
                "Caches, memory bandwidth and NUMA distance are part of the constants, the block layer, the file system \
                 and fio are a cost an I/O, and the accelerator's user answers each completion in its handler: on two \
                 set-ups that contradict each other (E2 and E5) no shared constant gives both."
            }
            Self::Look => {
                "The drive's hidden coalescing has a time alone: a count of about 8 (K3, K4) and K1 cannot both be had \
                 from one setting, and the hypervisor under the guest is not there."
            }
            Self::Threaded => {
                "The scheduler's wake-up is one cost, memory and interconnect have no state, and each board has one \
                 constant of its own: its gain is fitted by construction, and the counted accesses are the evidence."
            }
            Self::Network => {
                "The host's network stack is a cost a packet, the hypervisor's exits a cost each, and no packet shares \
                 a cache or a link with another flow's."
            }
            Self::Moderation => {
                "The network between initiator and target is a latency, the target's block device answers at once, and \
                 a core has one frequency and no other work but the thefts that a scenario names."
            }
            Self::Yours => {
                "A constant that the measurements do not decide is borrowed, and says so as its reason; a large error \
                 means that the model lacks what limits this server."
            }
        }
    }
}
