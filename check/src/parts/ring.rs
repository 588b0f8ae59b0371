//! Virtqueues (VIRTIO 1.3, 2.7 and 2.8) with a device that reads and writes their memory as the standard says, and sometimes
//! lies.

mod packed;
mod split;

use crate::draw::Draw;
use crate::trials::{differs, same};
use drivers::virtio::{PARTS_MAX, Part, Queue, QueueConfig, QueueCounters, QueueFault, Refusal, Used, VirtioError};
use hal::DeviceAddress;
use hal::host::HostHal;
use packed::PackedDevice;
use split::SplitDevice;

thread_local! {
    /// A host for all trials of this thread.
    static HOST: HostHal = HostHal::manual(1);
}

/// A buffer as the device sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    id: u16,
    parts: Vec<Part>,
    /// Descriptors of the ring that it takes.
    descriptors: u16,
}

/// What the device wants to be told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    All,
    Nothing,
    /// Of the entry so far ahead of what it has seen.
    Ahead(u16),
}

/// A lie of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    /// A used index too far.
    Index(u16),
    /// An id, with so many bytes.
    Entry(u32, u32),
}

/// The device's side of a ring.
trait Device {
    /// The next buffer that is available, if there is one.
    fn next(&mut self) -> Option<Seen>;
    /// It has used this one.
    fn complete(&mut self, seen: &Seen, written_bytes: u32);
    /// From now on it wants this.
    fn wish(&mut self, wish: Wish);
    /// Whether so many descriptors or entries that are made available now are to be told of.
    fn wants(&self, entries: u16, descriptors: u16) -> bool;
    /// Whether the next used buffer would interrupt.
    fn would_interrupt(&self) -> bool;
    /// Lies, and the fault that this is.
    fn lie(&mut self, lie: Lie, in_flight: u16) -> Option<QueueFault>;
}

/// A buffer that was added.
struct Added {
    tag: u64,
    parts: Vec<Part>,
    descriptors: u16,
}

struct Trial {
    queue: Queue<HostHal>,
    device: Box<dyn Device>,
    config: QueueConfig,
    /// Added and not published; published and not seen; seen and not used; used and not taken.
    fresh: Vec<Added>,
    published: Vec<Added>,
    seen: Vec<(Seen, Added)>,
    used: Vec<(Used, u16)>,
    free: u16,
    counters: QueueCounters,
    next_tag: u64,
}

impl Trial {
    fn in_flight(&self) -> u16 {
        (self.fresh.len() + self.published.len() + self.seen.len() + self.used.len()) as u16
    }

    fn compare(&self) -> Result<(), String> {
        let expected = (self.in_flight(), self.free, !self.used.is_empty());
        let found = (self.queue.in_flight(), self.queue.free_descriptors(), self.queue.has_used());
        same("in flight, free, used", &expected, &found)?;
        same("counters", &self.counters, &self.queue.counters())?;
        same("fault", &None, &self.queue.fault())
    }

    fn add(&mut self, draw: &mut Draw) -> Result<(), String> {
        let parts = draw_parts(draw);
        self.next_tag += 1;
        let (count, entries) = (parts.len(), self.config.entries);
        let descriptors = if self.config.indirect && count > 1 { 1 } else { count as u16 };
        let first_written = parts.iter().position(|part| part.device_writes).unwrap_or(count);
        let expected = if count == 0 || count > PARTS_MAX {
            Err(Refusal::Parts(count, PARTS_MAX))
        } else if parts.iter().any(|part| part.len_bytes == 0) {
            Err(Refusal::Empty)
        } else if parts[first_written..].iter().any(|part| !part.device_writes) {
            Err(Refusal::Order)
        } else if count > entries.into() {
            Err(Refusal::Parts(count, entries.into()))
        } else if descriptors > self.free {
            self.counters.full += 1;
            Err(Refusal::Full)
        } else {
            Ok(())
        };
        let found = self.queue.add(self.next_tag, &parts);
        if found != expected {
            return Err(differs(&format!("add {parts:x?}"), &expected, &found));
        }
        if expected.is_ok() {
            self.free -= descriptors;
            self.counters.added += 1;
            self.fresh.push(Added { tag: self.next_tag, parts, descriptors });
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        if self.config.packed {
            // Its wish is a place: it must be where it was.
            self.see()?;
        }
        let descriptors = self.fresh.iter().map(|added| added.descriptors).sum();
        let some = !self.fresh.is_empty();
        let wants = some && self.device.wants(self.fresh.len() as u16, descriptors);
        same("the device is told", &wants, &self.queue.publish())?;
        self.counters.notifications += u64::from(wants);
        self.counters.suppressed += u64::from(some && !wants);
        self.published.append(&mut self.fresh);
        Ok(())
    }

    /// The device takes what is available; it must be what was published.
    fn see(&mut self) -> Result<(), String> {
        while let Some(seen) = self.device.next() {
            if self.published.is_empty() {
                return Err(format!("the device sees {seen:x?}, which was not published"));
            }
            let added = self.published.remove(0);
            same("descriptors", &(&added.parts, added.descriptors), &(&seen.parts, seen.descriptors))?;
            self.seen.push((seen, added));
        }
        if self.published.is_empty() { Ok(()) } else { Err(format!("{} buffers are not seen", self.published.len())) }
    }

    fn complete(&mut self, draw: &mut Draw) {
        if self.seen.is_empty() {
            return;
        }
        let (seen, added) = self.seen.remove(draw.below(self.seen.len() as u64) as usize);
        let room = room(&added.parts);
        let written_bytes = if draw.percent(50) { room } else { draw.below(u64::from(room) + 1) as u32 };
        self.device.complete(&seen, written_bytes);
        self.used.push((Used { tag: added.tag, written_bytes }, added.descriptors));
    }

    fn take(&mut self) -> Result<(), String> {
        let expected = if self.used.is_empty() { None } else { Some(self.used.remove(0)) };
        same("taken", &Ok(expected.map(|(used, _)| used)), &self.queue.take())?;
        if let Some((_, descriptors)) = expected {
            self.free += descriptors;
            self.counters.used += 1;
        }
        Ok(())
    }

    fn step(&mut self, draw: &mut Draw) -> Result<(), String> {
        match draw.below(16) {
            0..5 => self.add(draw)?,
            5 | 6 => self.publish()?,
            7 | 8 => self.see()?,
            9 | 10 => self.complete(draw),
            11 | 12 => self.take()?,
            13 => {
                let ahead = Wish::Ahead(draw.below(u64::from(self.config.entries)) as u16);
                let wishes = [Wish::All, Wish::Nothing, if self.config.event_index { ahead } else { Wish::All }];
                self.device.wish(*draw.pick(&wishes));
            }
            14 => {
                self.queue.disable_notifications();
                // What was used and not taken came before the wish.
                if self.used.is_empty() {
                    same("an interrupt after the wish for none", &false, &self.device.would_interrupt())?;
                }
            }
            _ => {
                let some = !self.used.is_empty();
                same("used before the wish", &some, &self.queue.enable_notifications())?;
                if !some {
                    same("an interrupt after the wish for one", &true, &self.device.would_interrupt())?;
                }
            }
        }
        self.compare()
    }

    /// The device lies: the queue breaks and says why, for ever.
    fn lie(&mut self, draw: &mut Draw) -> Result<(), String> {
        while !self.used.is_empty() {
            self.take()?;
        }
        let (in_flight, entries) = (self.in_flight(), u32::from(self.config.entries));
        let lie = match draw.below(4) {
            0 => Lie::Index(in_flight + 1 + draw.below(300) as u16),
            1 => Lie::Entry(entries + draw.below(3) as u32, 0),
            2 => Lie::Entry(draw.below(entries.into()) as u32, 0),
            _ => match self.seen.first() {
                Some((seen, added)) => Lie::Entry(seen.id.into(), room(&added.parts).saturating_add(1)),
                None => return Ok(()),
            },
        };
        let own = self.seen.iter().find(|(seen, _)| matches!(lie, Lie::Entry(id, _) if id == u32::from(seen.id)));
        let fault = match (lie, own) {
            // That is none: it has used this one.
            (Lie::Entry(_, 0), Some(_)) => return Ok(()),
            (Lie::Entry(_, bytes), Some((_, added))) => Some(QueueFault::Length(bytes, room(&added.parts))),
            _ => None,
        };
        // Ids of what was not seen yet are not known here.
        if fault.is_none() && in_flight != self.seen.len() as u16 && matches!(lie, Lie::Entry(id, _) if id < entries) {
            return Ok(());
        }
        let Some(told) = self.device.lie(lie, in_flight) else { return Ok(()) };
        let fault = fault.unwrap_or(told);
        for _ in 0..2 {
            same(&format!("{lie:?}"), &Err(fault), &self.queue.take())?;
        }
        let text = fault.to_string();
        if text.len() < 10 {
            return Err(format!("{fault:?} says only {text:?}"));
        }
        let part = [Part::read(DeviceAddress(0x1000), 8)];
        let found = (self.queue.fault(), self.queue.add(1, &part), self.queue.publish(), self.queue.has_used());
        same("a broken queue", &(Some(fault), Err(Refusal::Stopped), false, false), &found)
    }

    /// The device was reset: everything comes back once.
    fn reclaim(&mut self) -> Result<(), String> {
        self.queue.stop();
        let found = self.queue.add(1, &[Part::read(DeviceAddress(0x1000), 8)]);
        same("a stopped queue", &(Err(Refusal::Stopped), false), &(found, self.queue.publish()))?;
        let mut back: Vec<_> = std::iter::from_fn(|| self.queue.reclaim()).collect();
        let of = |list: &[Added]| list.iter().map(|added| added.tag).collect::<Vec<_>>();
        let seen: Vec<_> = self.seen.iter().map(|(_, added)| added.tag).collect();
        let used: Vec<_> = self.used.iter().map(|(used, _)| used.tag).collect();
        let mut expected = [of(&self.fresh), of(&self.published), seen, used].concat();
        expected.sort_unstable();
        back.sort_unstable();
        same("buffers that came back", &expected, &back)?;
        let rest = (self.queue.in_flight(), self.queue.free_descriptors(), self.queue.has_used());
        same("an empty queue", &(0, self.config.entries, false), &rest)?;
        same("no interrupt comes of it", &false, &self.queue.enable_notifications())
    }
}

/// Bytes that the device may write.
fn room(parts: &[Part]) -> u32 {
    parts.iter().filter(|part| part.device_writes).fold(0, |sum: u32, part| sum.saturating_add(part.len_bytes))
}

fn draw_parts(draw: &mut Draw) -> Vec<Part> {
    let count = if draw.percent(10) { draw.below(PARTS_MAX as u64 + 2) } else { draw.within(1..=3) };
    let written = if draw.percent(50) { count } else { draw.below(count + 1) };
    let mut parts: Vec<_> = (0..count)
        .map(|index| {
            let address = DeviceAddress(draw.below(1 << 50) << 4);
            let len_bytes = if draw.percent(2) { 0 } else { draw.within(1..=1 << 20) as u32 };
            Part { address, len_bytes, device_writes: index >= written }
        })
        .collect();
    if draw.percent(3) {
        parts.reverse();
    }
    parts
}

pub(super) fn ring(draw: &mut Draw) -> Result<(), String> {
    let hal = HOST.with(|&host| host);
    let (event_index, indirect, packed) = (draw.percent(50), draw.percent(50), draw.percent(50));
    let number = draw.below(100) as u16;
    let wrong = *draw.pick(&[0, 1, 3, 12, 0x8001, u16::MAX]);
    let config = |entries| QueueConfig { number, entries, event_index, indirect, packed };
    let refused = Queue::new(hal, config(wrong)).err();
    same("entries", &Some(VirtioError::Entries(wrong, 1 << 15)), &refused)?;
    let config = config(1 << draw.within(1..=4));
    let queue = Queue::new(hal, config).map_err(|error| error.to_string())?;
    let memory = queue.memory();
    same("number, entries", &(number, config.entries), &(queue.number(), memory.entries))?;
    let device: Box<dyn Device> = match packed {
        true => Box::new(PackedDevice::new(hal, config, &memory)),
        false => Box::new(SplitDevice::new(hal, config, &memory)),
    };
    let mut trial = Trial {
        queue,
        device,
        config,
        fresh: Vec::new(),
        published: Vec::new(),
        seen: Vec::new(),
        used: Vec::new(),
        free: config.entries,
        counters: QueueCounters::default(),
        next_tag: 0,
    };
    let text = |wrong| format!("{wrong}; {config:?}");
    trial.compare().map_err(text)?;
    for _ in 0..draw.within(5..=120) {
        trial.step(draw).map_err(text)?;
    }
    let end = if draw.percent(50) { trial.reclaim() } else { trial.lie(draw) };
    end.map_err(text)
}
