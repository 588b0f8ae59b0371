//! Portals: where software submits descriptors (DSA, "Portals", "Dedicated Work Queue").

use super::Dsa;
use super::tables::Running;
use crate::observe::Fact;
use crate::world::World;
use spec::dsa::registers::SwErrorCode;
use spec::dsa::{Descriptor, PORTAL_BYTES, PORTALS_PER_QUEUE, Portal};

impl Dsa {
    /// A quadword arrives at a portal.
    pub(super) fn portal_write(&mut self, world: &mut World<'_>, offset: u32, value: u64) {
        let page = offset / PORTAL_BYTES;
        let index = (page / PORTALS_PER_QUEUE) as usize;
        let Some(queue) = self.queues.get_mut(index) else {
            return world.fault("DSA portal of a queue that it lacks", index as u64, format!("{offset:#x}"));
        };
        let place = offset as usize / 8 % 8;
        queue.gathered[place] = value;
        if place == 7 {
            let descriptor = Descriptor::from_words(std::mem::take(&mut queue.gathered));
            let (queue, value) = (index as u16, offset % PORTAL_BYTES);
            world.tell(|| Fact::Doorbell { device: world.me(), queue, value, is_completion: false });
            let by_table = page % PORTALS_PER_QUEUE <= Portal::LimitedMsix as u32;
            self.submit(world, index, descriptor, by_table);
        }
    }

    /// Submits a whole descriptor at a portal. Only SWERROR reports a refusal to the writer, because the write was
    /// posted.
    fn submit(&mut self, world: &mut World<'_>, index: usize, descriptor: Descriptor, by_table: bool) {
        let queue = &mut self.queues[index];
        let refusal = if !by_table {
            Some(SwErrorCode::PORTAL)
        } else if queue.state != Some(Running::Enabled) {
            Some(SwErrorCode::QUEUE_NOT_ENABLED)
        } else if queue.waiting.len() >= queue.size().into() {
            Some(SwErrorCode::QUEUE_FULL)
        } else {
            None
        };
        if let Some(error) = refusal {
            self.counters.refused += 1;
            return self.software_error(world, index as u8, error.0, &descriptor);
        }
        queue.waiting.push_back((descriptor, world.now()));
        self.counters.submitted += 1;
        self.dispatch(world, index);
    }
}
