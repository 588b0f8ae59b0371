//! The state of one interrupt, and banks of interrupts with the registers that show one field of many interrupts.

use spec::gic::gicd;

/// An SGI, PPI or SPI (IHI 0048B, "Interrupt handling state machine": inactive, pending, active, active and pending).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Interrupt {
    pub(super) enabled: bool,
    /// Disabled, but the write has not taken effect yet (RWP).
    pub(super) lingers: bool,
    pub(super) group1: bool,
    /// Edge-triggered.
    pub(super) edge: bool,
    /// The wire is asserted.
    pub(super) line: bool,
    /// A fault holds the wire asserted, regardless of its driver.
    pub(super) stuck: bool,
    /// Pending regardless of the wire: an edge, or a write to a pending register.
    pub(super) latch: bool,
    /// GICv2's SGIs: the CPUs that sent an SGI which is pending.
    pub(super) sources: u8,
    pub(super) active: bool,
    /// GICv2's SGIs: the CPU that sent the active SGI.
    pub(super) active_source: u8,
    pub(super) priority: u8,
    /// The targets of an SPI. GICv2: ITARGETSR's byte; GICv3: IROUTER.
    pub(super) route: u64,
}

impl Interrupt {
    pub(super) fn pending(&self) -> bool {
        self.latch || self.sources != 0 || self.is_high() && !self.edge
    }

    /// Pending, not active, and forwarded.
    fn ready(&self) -> bool {
        self.pending() && !self.active && (self.enabled || self.lingers)
    }

    fn is_high(&self) -> bool {
        self.line || self.stuck
    }

    /// The driver of the wire changes it. An edge-triggered interrupt is pending from the rising edge to its
    /// acknowledgement, a level-sensitive interrupt for as long as the wire is asserted.
    pub(super) fn set_line(&mut self, asserted: bool) {
        self.latch |= asserted && !self.is_high() && self.edge;
        self.line = asserted;
    }

    /// A fault holds the wire asserted, or releases it.
    pub(super) fn set_stuck(&mut self, stuck: bool) {
        self.latch |= stuck && !self.is_high() && self.edge;
        self.stuck = stuck;
    }

    /// Acknowledged: active. It stays pending only if its wire is still asserted or another CPU sent it too.
    pub(super) fn acknowledge(&mut self, source: u8) {
        self.sources &= !(1 << source);
        self.latch = false;
        self.active = true;
        self.active_source = source;
    }
}

/// A field that registers show for many interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
    Priority,
    Targets,
    Trigger,
}

impl Field {
    /// Number of fields.
    pub(super) const COUNT: usize = Self::Trigger as usize + 1;

    /// Names of writes to each field in reports.
    pub(super) const WRITES: [&str; Self::COUNT] = [
        "group_writes",
        "unmask_writes",
        "mask_writes",
        "pend_writes",
        "unpend_writes",
        "activate_writes",
        "deactivate_writes",
        "priority_writes",
        "target_writes",
        "trigger_writes",
    ];

    /// The field, and which of its registers, at `offset` of a distributor; the second frame of a redistributor has the
    /// first ones of each at the same offsets.
    pub(super) fn at(offset: u32) -> Option<(Self, u32)> {
        let found = |index: Option<u32>, field| index.map(|index| (field, index));
        found(gicd::IGROUPR.index_of(offset), Self::Group)
            .or_else(|| found(gicd::ISENABLER.index_of(offset), Self::SetEnable))
            .or_else(|| found(gicd::ICENABLER.index_of(offset), Self::ClearEnable))
            .or_else(|| found(gicd::ISPENDR.index_of(offset), Self::SetPending))
            .or_else(|| found(gicd::ICPENDR.index_of(offset), Self::ClearPending))
            .or_else(|| found(gicd::ISACTIVER.index_of(offset), Self::SetActive))
            .or_else(|| found(gicd::ICACTIVER.index_of(offset), Self::ClearActive))
            .or_else(|| found(gicd::IPRIORITYR.index_of(offset), Self::Priority))
            .or_else(|| found(gicd::ITARGETSR.index_of(offset), Self::Targets))
            .or_else(|| found(gicd::ICFGR.index_of(offset), Self::Trigger))
    }

    /// Number of interrupts that one register shows.
    pub(super) fn per_register(self) -> u32 {
        match self {
            Self::Priority | Self::Targets => 4,
            Self::Trigger => 16,
            _ => 32,
        }
    }
}

/// Features of the interrupts of a bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The implemented bits of a priority.
    pub(super) priority_mask: u8,
    /// The existing CPU interfaces, in the format of ITARGETSR.
    pub(super) targets_mask: u8,
    /// Disabling an interrupt takes effect only after a while.
    pub(super) disables_late: bool,
    /// SGIs have one pending bit per sender instead of one pending bit (GICv2).
    pub(super) sgis_by_source: bool,
}

/// Interrupts with successive numbers: one CPU's private interrupts, or the shared ones.
pub(super) struct Bank {
    first: u32,
    interrupts: Vec<Interrupt>,
    /// One bit per interrupt that is ready.
    ready: Vec<u64>,
    rules: Rules,
    /// Interrupts that became pending since the observer was last informed.
    pub(super) newly_pending: Vec<u32>,
}

impl Bank {
    /// SGIs 0 to 15, edge-triggered, and PPIs 16 to 31, level-sensitive until configured.
    pub(super) fn private(rules: Rules) -> Self {
        let interrupts = (0..32).map(|intid| Interrupt { edge: intid < 16, ..Interrupt::default() }).collect();
        Self { first: 0, interrupts, ready: vec![0], rules, newly_pending: Vec::new() }
    }

    /// SPIs from 32 up to `end`.
    pub(super) fn shared(end: u32, rules: Rules) -> Self {
        let count = end.saturating_sub(32) as usize;
        let interrupts = vec![Interrupt::default(); count];
        Self { first: 32, interrupts, ready: vec![0; count.div_ceil(64)], rules, newly_pending: Vec::new() }
    }

    pub(super) fn get(&self, intid: u32) -> Option<&Interrupt> {
        self.interrupts.get(intid.checked_sub(self.first)? as usize)
    }

    /// Changes an interrupt; `None` when it is not in this bank.
    pub(super) fn change<R>(&mut self, intid: u32, change: impl FnOnce(&mut Interrupt) -> R) -> Option<R> {
        let index = intid.checked_sub(self.first)? as usize;
        let interrupt = self.interrupts.get_mut(index)?;
        let was_pending = interrupt.pending();
        let result = change(interrupt);
        if !was_pending && interrupt.pending() {
            self.newly_pending.push(intid);
        }
        let (word, bit) = (&mut self.ready[index / 64], 1 << (index % 64));
        if interrupt.ready() {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        Some(result)
    }

    /// The interrupts that are ready, in ascending order.
    pub(super) fn ready(&self) -> impl Iterator<Item = (u32, &Interrupt)> {
        let bits = |(word, &bits): (usize, &u64)| {
            let some = |bits: u64| (bits != 0).then_some(bits);
            let rest = std::iter::successors(some(bits), move |bits| some(bits & (bits - 1)));
            rest.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        };
        let indices = self.ready.iter().enumerate().flat_map(bits);
        indices.map(|index| (self.first + index as u32, &self.interrupts[index]))
    }

    /// Earlier disabling has now taken effect everywhere.
    pub(super) fn disabled_everywhere(&mut self) {
        for intid in self.first..self.first + self.interrupts.len() as u32 {
            self.change(intid, |interrupt| interrupt.lingers = false);
        }
    }

    /// Reads register `index` of `field`. Interrupts that are not in this bank read as zero.
    pub(super) fn read(&self, field: Field, index: u32) -> u32 {
        let count = field.per_register();
        let width = 32 / count;
        let value = |slot: u32| {
            let interrupt = self.get(index * count + slot)?;
            let value = match field {
                Field::Group => interrupt.group1.into(),
                Field::SetEnable | Field::ClearEnable => interrupt.enabled.into(),
                Field::SetPending | Field::ClearPending => interrupt.pending().into(),
                Field::SetActive | Field::ClearActive => interrupt.active.into(),
                Field::Priority => interrupt.priority.into(),
                Field::Targets => interrupt.route as u32 & 0xff,
                Field::Trigger => u32::from(interrupt.edge) << 1,
            };
            Some(value << (slot * width))
        };
        (0..count).filter_map(value).fold(0, |word, value| word | value)
    }

    /// Writes register `index` of `field`. Returns an interrupt whose trigger was changed while it was enabled, which
    /// is unpredictable (IHI 0048B, "GICD_ICFGR").
    pub(super) fn write(&mut self, field: Field, index: u32, value: u32) -> Option<u32> {
        let count = field.per_register();
        let width = 32 / count;
        let mut unpredictable = None;
        for slot in 0..count {
            let intid = index * count + slot;
            let part = value >> (slot * width) & (u32::MAX >> (32 - width));
            let rules = self.rules;
            // Zeros have no effect in registers that set or clear.
            let is_strobe = !matches!(field, Field::Group | Field::Priority | Field::Targets | Field::Trigger);
            if is_strobe && part == 0 {
                continue;
            }
            let changed = self.change(intid, |interrupt| interrupt.write(field, intid, part, rules));
            if changed == Some(true) {
                unpredictable = Some(intid);
            }
        }
        unpredictable
    }
}

impl Interrupt {
    /// True when the change is unpredictable.
    fn write(&mut self, field: Field, intid: u32, part: u32, rules: Rules) -> bool {
        let is_sgi = intid < 16;
        let mut unpredictable = false;
        match field {
            Field::Group => self.group1 = part == 1,
            Field::SetEnable => (self.enabled, self.lingers) = (true, false),
            Field::ClearEnable => {
                self.lingers = rules.disables_late && (self.enabled || self.lingers);
                self.enabled = false;
            }
            // GICv2: read-only for SGIs, which have separate registers.
            Field::SetPending | Field::ClearPending if is_sgi && rules.sgis_by_source => {}
            Field::SetPending => self.latch = true,
            Field::ClearPending => self.latch = false,
            Field::SetActive => self.active = true,
            Field::ClearActive => self.active = false,
            Field::Priority => self.priority = part as u8 & rules.priority_mask,
            Field::Targets => self.route = u64::from(part as u8 & rules.targets_mask),
            // SGIs are always edge-triggered.
            Field::Trigger if is_sgi => {}
            Field::Trigger => {
                let edge = part & 2 != 0;
                unpredictable = self.enabled && edge != self.edge;
                self.edge = edge;
            }
        }
        unpredictable
    }
}
