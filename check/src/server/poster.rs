//! A function that posts its interrupts by itself: docs/software-posting.md, written against the manual and not against the driver.
//!
//! | region | what |
//! |---|---|
//! | [`REGION_OWN`] | what to raise; the MSI-X table at 2000h, its pending bits at 3000h |
//! | [`REGION_BLOCK`] | the posting block |
//! | [`REGION_CONFIG`] | configuration space with both capabilities |

use hal::Regs as _;
use machine::Regs;
use machine::model::ModelId;
use machine::observe::{Fact, Post};
use machine::pci::{Bar, Capability, Function, Identity, MsixPlace, Place, Shell, Widths};
use machine::time::Ps;
use machine::world::World;

/// BAR 0.
pub const REGION_OWN: u8 = 0;
/// BAR 2.
pub const REGION_BLOCK: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;
/// Bytes of the block.
pub const BLOCK_BYTES: u32 = 0x2000;
/// Sources, and the MSI-X vectors of notifications behind them.
pub const SOURCES: u16 = 4;
const SLOTS: u16 = 8;

/// Source in 3:0, how often in 11:4, from then on every so many ns in 31:12. In one write, since several CPUs raise.
const RAISE: u32 = 0x0;

// "The block".
const SIGNATURE: u32 = 0x4950_7753;
const VERSION: u32 = 0x0001_0000;
const SLOT_TABLE: u32 = 0x100;
const SOURCE_TABLE: u32 = 0x1000;

/// Events: a source is raised, as RAISE says; those that its mask held back are looked at again.
const AGAIN: u32 = 0;
const LOOK: u32 = 1;
/// Between two looks.
const LOOK_TIME: Ps = Ps::from_ns(1_000);

#[derive(Clone, Copy, Default)]
struct Slot {
    descriptor: u64,
    notification: u32,
}

/// The function.
pub struct Poster {
    shell: Shell,
    control: u32,
    fault: u32,
    /// Posts, notifications, messages of their own, faults.
    counts: [u64; 4],
    slots: [Slot; SLOTS as usize],
    sources: [u32; SOURCES as usize],
    /// The mask holds an interrupt of this source back.
    held: [bool; SOURCES as usize],
    looks: bool,
}

impl Poster {
    /// After power-up, below `port`.
    pub fn new(port: ModelId, requester: u16) -> Self {
        let block = Bar { reads: Widths::Any, writes: Widths::Any, ..Bar::new(2, BLOCK_BYTES) };
        // "Finding it": vendor-specific, 10h bytes, in BAR 2.
        let words = vec![2 << 24 | 0x10 << 16 | 0x09, SIGNATURE, 0, BLOCK_BYTES];
        let identity = Identity {
            vendor: 0xfffe,
            device: 0x5057,
            class: 0xff_0000,
            bars: vec![Bar::new(0, 0x4000), block],
            msix: MsixPlace { region: REGION_OWN, table: 0x2000, pending: 0x3000 },
            capabilities: vec![Capability { offset: 0x60, words }],
        };
        let place = Place { name: "poster".into(), requester, port };
        Self {
            shell: Shell::new(place, &identity, SOURCES + SLOTS),
            control: 0,
            fault: 0,
            counts: [0; 4],
            slots: [Slot::default(); SLOTS as usize],
            sources: [0; SOURCES as usize],
            held: [false; SOURCES as usize],
            looks: false,
        }
    }

    /// CONTROL, as it is.
    pub fn control(&self) -> u32 {
        self.control
    }

    /// A source's word, as it is.
    pub fn source(&self, number: usize) -> u32 {
        self.sources[number]
    }

    /// A slot's descriptor and notification, as they are.
    pub fn slot(&self, number: usize) -> (u64, u32) {
        (self.slots[number].descriptor, self.slots[number].notification)
    }

    /// Posts, notifications, messages of their own, faults.
    pub fn totals(&self) -> [u64; 4] {
        self.counts
    }

    /// Address, data and mask of an entry of the MSI-X table.
    pub fn msix_entry(&self, vector: u16) -> Option<(u64, u32, bool)> {
        self.shell.entry(vector)
    }

    /// "Masks": a source obeys its own mask before it is posted or sent.
    fn raise(&mut self, world: &mut World<'_>, source: usize) {
        let masked = self.shell.entry(source as u16).is_none_or(|(_, _, masked)| masked);
        if masked || !self.shell.is_enabled() {
            self.held[source] = true;
            if !self.looks {
                self.looks = true;
                world.schedule(world.now() + LOOK_TIME, LOOK, 0);
            }
            return;
        }
        self.held[source] = false;
        self.deliver(world, source);
    }

    fn deliver(&mut self, world: &mut World<'_>, source: usize) {
        let entry = self.sources[source];
        if self.control & 1 == 0 || entry & 1 == 0 {
            self.counts[2] += 1;
            return self.shell.signal(world, source as u16);
        }
        let Slot { descriptor, notification } = self.slots[(entry >> 16) as usize];
        if descriptor & 1 == 0 {
            return self.fail(2, source as u32);
        }
        match self.post(world, descriptor & !63, (entry >> 8) as u8, entry & 2 != 0) {
            None => self.fail(3, source as u32),
            Some(notifies) => {
                self.counts[0] += 1;
                if notifies {
                    self.counts[1] += 1;
                    self.shell.signal(world, notification as u16);
                }
            }
        }
    }

    /// "Posting": steps 1 and 2; true if ON went from 0 to 1.
    fn post(&self, world: &mut World<'_>, descriptor: u64, vector: u8, urgent: bool) -> Option<bool> {
        let bit = 1 << (vector % 64);
        let earlier = world.update64(descriptor + 8 * u64::from(vector / 64), |requests| requests | bit).ok()?;
        let control = world.read64(descriptor + 32).ok()?;
        let post = match (control & 1 != 0, control & 2 != 0) {
            (true, _) => Post::Outstanding,
            (false, true) if !urgent => Post::Suppressed,
            (false, _) => Post::Notified,
        };
        let requester = self.shell.requester();
        world.tell(|| Fact::Posted { requester, descriptor, vector, again: earlier & bit != 0, post });
        if post == Post::Notified {
            world.update64(descriptor + 32, |control| control | 1).ok()?;
        }
        Some(post == Post::Notified)
    }

    fn fail(&mut self, reason: u32, index: u32) {
        self.counts[3] += 1;
        if self.fault >> 31 == 0 {
            self.fault = 1 << 31 | (index & 0xffff) << 8 | reason;
        }
    }

    fn read_block(&self, offset: u32) -> u32 {
        match offset {
            0x00 => SIGNATURE,
            0x04 => VERSION,
            0x08 => u32::from(SLOTS) << 16 | u32::from(SOURCES),
            0x0c => SOURCE_TABLE << 16 | SLOT_TABLE,
            0x10 => self.control,
            0x14 => self.fault,
            0x20..0x40 => (self.counts[(offset as usize - 0x20) / 8] >> (offset % 8 * 8)) as u32,
            SLOT_TABLE..SOURCE_TABLE => {
                let slot = self.slots.get(((offset - SLOT_TABLE) / 16) as usize).copied().unwrap_or_default();
                match offset % 16 {
                    0 => slot.descriptor as u32,
                    4 => (slot.descriptor >> 32) as u32,
                    8 => slot.notification,
                    _ => 0,
                }
            }
            SOURCE_TABLE.. => self.sources.get(((offset - SOURCE_TABLE) / 4) as usize).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// False for a write that the manual forbids.
    fn write_block(&mut self, offset: u32, value: u32) -> bool {
        match offset {
            0x10 if value <= 1 => self.control = value,
            0x14 if value >> 31 == 1 => self.fault = 0,
            0x14 => {}
            SLOT_TABLE..SOURCE_TABLE => {
                let Some(slot) = self.slots.get_mut(((offset - SLOT_TABLE) / 16) as usize) else { return false };
                match offset % 16 {
                    0 if value & 0x3e == 0 => slot.descriptor = slot.descriptor & !0xffff_ffff | u64::from(value),
                    4 => slot.descriptor = slot.descriptor & 0xffff_ffff | u64::from(value) << 32,
                    8 if value < u32::from(SOURCES + SLOTS) => slot.notification = value,
                    12 if value == 0 => {}
                    _ => return false,
                }
            }
            SOURCE_TABLE.. => {
                let Some(source) = self.sources.get_mut(((offset - SOURCE_TABLE) / 4) as usize) else { return false };
                if value & 0xfc != 0 || value >> 16 >= SLOTS.into() {
                    return false;
                }
                *source = value;
            }
            _ => return false,
        }
        true
    }
}

impl Function for Poster {
    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.shell
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if code == LOOK {
            self.looks = false;
            (0..SOURCES.into()).filter(|&source| self.held[source]).collect::<Vec<_>>().into_iter().for_each(
                |source| {
                    self.raise(world, source);
                },
            );
            return;
        }
        self.raise(world, (arg & 0xf) as usize % usize::from(SOURCES));
        if arg >> 4 & 0xff > 1 {
            world.schedule(world.now() + Ps::from_ns((arg >> 12).max(100)), AGAIN, arg - 0x10);
        }
    }

    fn read_bar(&mut self, _: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if region != REGION_BLOCK {
            return 0;
        }
        let low = u64::from(self.read_block(offset));
        if width_bytes == 8 { low | u64::from(self.read_block(offset + 4)) << 32 } else { low }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        match (region, offset) {
            (REGION_OWN, RAISE) => world.schedule(world.now(), AGAIN, value),
            (REGION_OWN, _) => {}
            _ => {
                let is_wide = width_bytes == 8;
                let whole = self.write_block(offset, value as u32)
                    && (!is_wide || self.write_block(offset + 4, (value >> 32) as u32));
                if !whole {
                    self.fail(1, offset);
                }
            }
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("posts", self.counts[0]), ("notifications", self.counts[1]), ("direct", self.counts[2])]
    }
}

/// Has a source raised `count` times, one every `period_ns`.
pub fn raise(model: ModelId, source: u32, count: u32, period_ns: u32) {
    let regs = Regs::Model { model, region: REGION_OWN };
    regs.write32(RAISE, period_ns.min(0xf_ffff) << 12 | count.clamp(1, 0xff) << 4 | source);
}
