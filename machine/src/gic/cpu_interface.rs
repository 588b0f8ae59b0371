//! The CPU interface of one CPU: masks, binary points, and active priorities.
//!
//! Sources: IHI 0048B, "Interrupt prioritization" and "CPU interface register descriptions"; IHI 0069H, "Interrupt
//! prioritization" and "Physical CPU interface".

/// The running priority when no interrupt is active.
const IDLE_PRIORITY: u8 = 0xff;

/// An interrupt that may be signalled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) priority: u8,
    pub(super) intid: u32,
    pub(super) group1: bool,
    /// GICv2's SGIs: the sender.
    pub(super) source: u8,
}

impl Candidate {
    /// The value that IAR returns: the INTID, in GICv2 with the sender in bits 12:10.
    pub(super) fn word(self) -> u32 {
        self.intid | u32::from(self.source) << 10
    }
}

/// Registers and state of one CPU interface. Groups are indices: 0 and 1.
pub(super) struct CpuInterface {
    /// Number of priority bits that decide about preemption, at most 7.
    preemption_bits: u8,
    pub(super) enabled: [bool; 2],
    /// A group was enabled at least once, so the CPU has come up.
    pub(super) was_enabled: bool,
    pub(super) mask: u8,
    binary_points: [u8; 2],
    /// CBPR: the first binary point counts for both groups.
    pub(super) common_binary_point: bool,
    /// GICv2's AckCtl: a read of IAR acknowledges group 1 too.
    pub(super) acknowledges_group1: bool,
    /// EOImode: the end of an interrupt drops its priority only.
    pub(super) eoi_mode: bool,
    /// Active priorities, one bit each; the lowest bit is the most urgent.
    pub(super) active: [u128; 2],
    /// Acknowledged interrupts that have not ended, as IAR returned them, the latest last.
    acknowledged: Vec<u32>,
}

/// How the interface classifies an end of interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It ends the latest acknowledged interrupt.
    InOrder,
    /// It ends another interrupt: unpredictable. The most urgent active priority was dropped.
    OutOfOrder,
    /// No interrupt is active.
    Nothing,
}

impl CpuInterface {
    /// After reset: everything masked and disabled.
    pub(super) fn new(priority_bits: u8) -> Self {
        let preemption_bits = priority_bits.min(7);
        Self {
            preemption_bits,
            enabled: [false; 2],
            was_enabled: false,
            mask: 0,
            binary_points: [7 - preemption_bits, 8 - preemption_bits],
            common_binary_point: false,
            acknowledges_group1: false,
            eoi_mode: false,
            active: [0; 2],
            acknowledged: Vec::new(),
        }
    }

    pub(super) fn binary_point(&self, group1: bool) -> u8 {
        let own = self.binary_points[usize::from(group1)];
        // With one binary point for both groups, group 1 reads the value plus one (IHI 0069H, "ICC_BPR1_EL1").
        if group1 && self.common_binary_point { (self.binary_points[0] + 1).min(7) } else { own }
    }

    /// A value below the minimum that the priority bits allow sets the minimum.
    pub(super) fn set_binary_point(&mut self, group1: bool, value: u8) {
        let smallest = 7 - self.preemption_bits + u8::from(group1);
        self.binary_points[usize::from(group1)] = (value & 7).max(smallest);
    }

    /// The part of a priority that decides about preemption. With a binary point of n: bits 7 to n+1, in group 1 bits
    /// 7 to n.
    fn group_priority(&self, priority: u8, group1: bool) -> u8 {
        let shift = u32::from(self.binary_point(group1)) + u32::from(!group1);
        (u32::from(priority) >> shift << shift) as u8
    }

    /// The most urgent active priority.
    pub(super) fn running_priority(&self) -> u8 {
        let all = self.active[0] | self.active[1];
        if all == 0 { IDLE_PRIORITY } else { (all.trailing_zeros() << (8 - self.preemption_bits)) as u8 }
    }

    /// Enables these groups and no others.
    pub(super) fn enable(&mut self, groups: [bool; 2]) {
        self.enabled = groups;
        self.was_enabled |= groups != [false; 2];
    }

    /// True if the interrupt is signalled: its group is enabled, it passes the mask, and it preempts the active
    /// priority.
    pub(super) fn passes(&self, candidate: Candidate) -> bool {
        let Candidate { priority, group1, .. } = candidate;
        self.enabled[usize::from(group1)]
            && priority < self.mask
            && self.group_priority(priority, group1) < self.running_priority()
    }

    /// Makes the interrupt's priority active.
    pub(super) fn acknowledge(&mut self, candidate: Candidate) {
        let level = self.group_priority(candidate.priority, candidate.group1) >> (8 - self.preemption_bits);
        self.active[usize::from(candidate.group1)] |= 1 << level;
        self.acknowledged.push(candidate.word());
    }

    /// Priority drop: ends the most urgent active priority.
    pub(super) fn end(&mut self, word: u32) -> End {
        let all = self.active[0] | self.active[1];
        if all == 0 {
            return End::Nothing;
        }
        let lowest = all & all.wrapping_neg();
        self.active = self.active.map(|active| active & !lowest);
        if self.acknowledged.last() == Some(&word) {
            self.acknowledged.pop();
            return End::InOrder;
        }
        match self.acknowledged.iter().rposition(|&earlier| earlier == word) {
            Some(index) => _ = self.acknowledged.remove(index),
            // Software restored active priorities, or names another interrupt.
            None => _ = self.acknowledged.pop(),
        }
        End::OutOfOrder
    }

    /// 32 active priorities of a group. Software writes them to restore state lost in a power-down.
    pub(super) fn active_register(&self, group1: bool, index: u32) -> u32 {
        (self.active[usize::from(group1)] >> (index * 32)) as u32
    }

    pub(super) fn set_active_register(&mut self, group1: bool, index: u32, value: u32) {
        let levels = if self.preemption_bits == 7 { u128::MAX } else { (1 << (1 << self.preemption_bits)) - 1 };
        let active = &mut self.active[usize::from(group1)];
        *active = (*active & !(0xffff_ffff << (index * 32)) | u128::from(value) << (index * 32)) & levels;
        if self.active == [0; 2] {
            self.acknowledged.clear();
        }
    }
}
