//! Notification coalescing (VIRTIO 5.1.6.5.7, 5.1.6.5.7.2): after so many packets or so many microseconds, whichever
//! comes first.

/// The limits for which a queue's notifications wait. With a zero in either, they do not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// Packets after which a notification is due.
    pub max_packets: u32,
    /// Microseconds after the first packet since the last notification after which one is due.
    pub max_usecs: u32,
}

/// How the device handles coalescing settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CoalescingSupport {
    /// It does not offer coalescing.
    #[default]
    Absent,
    /// It takes the values unchanged.
    Exact,
    /// It rounds times down to multiples of its unit in microseconds, and reports the rounded value.
    Quantised {
        /// The unit of its timer, at least 1.
        unit_usecs: u32,
    },
    /// It takes the values unchanged, and refuses longer times.
    UpTo {
        /// The longest, in microseconds.
        usecs: u32,
    },
    /// It refuses every change.
    Refused,
}

impl CoalescingSupport {
    /// The result of a request; None means an error.
    pub(super) fn apply(self, wanted: Coalescing) -> Option<Coalescing> {
        match self {
            Self::Exact => Some(wanted),
            Self::Quantised { unit_usecs } => {
                let max_usecs = wanted.max_usecs - wanted.max_usecs % unit_usecs.max(1);
                Some(Coalescing { max_usecs, ..wanted })
            }
            Self::UpTo { usecs } => (wanted.max_usecs <= usecs).then_some(wanted),
            Self::Absent | Self::Refused => None,
        }
    }
}

/// One queue's coalescing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Coalescer {
    pub(super) setting: Coalescing,
    /// Packets since the last notification.
    packets: u32,
    /// Counts timers; one that was overtaken does not count.
    generation: u16,
}

/// The next step after packets were published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Notify.
    Notify,
    /// Start the timer, of this generation.
    Start(u16),
    /// The timer runs.
    Wait,
}

impl Coalescer {
    /// So many packets, at least one, were published.
    pub(super) fn published(&mut self, packets: u16) -> Verdict {
        let first = self.packets == 0;
        self.packets = self.packets.saturating_add(packets.into());
        let Coalescing { max_packets, max_usecs } = self.setting;
        if max_packets == 0 || max_usecs == 0 || self.packets >= max_packets {
            self.notified();
            Verdict::Notify
        } else if first {
            Verdict::Start(self.generation)
        } else {
            Verdict::Wait
        }
    }

    /// A timer has run down; whether a notification is due.
    pub(super) fn timer(&mut self, generation: u16) -> bool {
        let due = generation == self.generation && self.packets > 0;
        if due {
            self.notified();
        }
        due
    }

    /// Changes the setting. Waiting packets are notified at once. True if there were any.
    pub(super) fn set(&mut self, setting: Coalescing) -> bool {
        let waits = self.packets > 0;
        self.setting = setting;
        self.notified();
        waits
    }

    fn notified(&mut self) {
        self.packets = 0;
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coalescer(max_packets: u32, max_usecs: u32) -> Coalescer {
        Coalescer { setting: Coalescing { max_packets, max_usecs }, ..Coalescer::default() }
    }

    #[test]
    fn packets_or_time_whichever_is_first() {
        let mut queue = coalescer(3, 50);
        assert_eq!([1; 3].map(|packets| queue.published(packets)), [Verdict::Start(0), Verdict::Wait, Verdict::Notify]);
        assert!(!queue.timer(0), "the timer of the first packet was overtaken");
        assert_eq!(queue.published(1), Verdict::Start(1));
        assert!(queue.timer(1));
        assert!(!queue.timer(1), "it runs down once");
        assert_eq!(queue.published(7), Verdict::Notify, "more than enough at once");
    }

    /// VIRTIO 5.1.6.5.7: after reset both are 0, and then every packet is notified of.
    #[test]
    fn zero_of_either_means_every_packet() {
        for mut queue in [coalescer(0, 0), coalescer(8, 0), coalescer(0, 100)] {
            assert_eq!([queue.published(1), queue.published(1)], [Verdict::Notify; 2]);
        }
    }

    #[test]
    fn a_change_lets_go_what_waits() {
        let mut queue = coalescer(8, 50);
        queue.published(1);
        assert!(queue.set(Coalescing { max_packets: 16, max_usecs: 100 }));
        assert!(!queue.timer(0));
        assert!(!queue.set(Coalescing::default()));
    }

    #[test]
    fn devices_take_what_they_are_told_in_their_own_way() {
        let wanted = Coalescing { max_packets: 32, max_usecs: 64 };
        assert_eq!(CoalescingSupport::Exact.apply(wanted), Some(wanted));
        let up_to = |usecs| CoalescingSupport::UpTo { usecs }.apply(wanted);
        assert_eq!([up_to(64), up_to(63)], [Some(wanted), None]);
        let quantised = CoalescingSupport::Quantised { unit_usecs: 50 }.apply(wanted);
        assert_eq!(quantised, Some(Coalescing { max_usecs: 50, ..wanted }));
        assert_eq!(CoalescingSupport::Refused.apply(wanted), None);
    }
}
