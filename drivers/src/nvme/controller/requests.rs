//! Requests to a running controller: features and aborts.

use super::{Controller, Features};
use crate::nvme::reap::AbortEnd;
use crate::nvme::{Coalescing, NvmeError, QueuePair, VectorCoalescing};
use hal::{Hal, Word as _};
use spec::nvme::{FeatureId, InterruptVector};

/// The result of [`Controller::abort_expired`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AbortReport {
    /// Commands that the device says it aborted; each completes in its queue as any other.
    pub aborted: u32,
    /// Commands that it could not abort.
    pub not_aborted: u32,
    /// Commands still in flight after an Abort by an earlier call: time for [`Controller::reset`].
    pub stuck: u32,
}

impl<H: Hal> Controller<H> {
    /// Feature 08h in force.
    ///
    /// # Errors
    /// The device's refusal, or the reason why it does not answer.
    pub fn coalescing(&self) -> Result<Coalescing, NvmeError> {
        self.admin.get_feature(&self.port, FeatureId::INTERRUPT_COALESCING, 0).map(Coalescing::from_dw0)
    }

    /// Sets feature 08h, for all I/O queues and until the next reset.
    ///
    /// # Errors
    /// As [`Controller::coalescing`].
    pub fn set_coalescing(&self, coalescing: Coalescing) -> Result<(), NvmeError> {
        self.set_and_note(FeatureId::INTERRUPT_COALESCING, coalescing.to_dw11(), 0, |_, value| {
            let is_on = Coalescing::from_dw0(value).is_on();
            self.coalescing.set(is_on.into());
            self.all_pairs().iter().for_each(|pair| pair.declare_coalescing(is_on));
        })
    }

    /// What the driver believes of feature 08h: whether the controller may hold interrupts back. Takes no lock, so a
    /// [`BatchDone`](crate::nvme::BatchDone) may ask.
    pub fn believes_coalescing(&self) -> bool {
        self.coalescing.get() != 0
    }

    /// Feature 09h of `vector` in force.
    ///
    /// # Errors
    /// As [`Controller::coalescing`].
    pub fn vector_coalescing(&self, vector: u16) -> Result<VectorCoalescing, NvmeError> {
        let dw11 = InterruptVector::new().with_iv(vector).into_bits();
        let dw0 = self.admin.get_feature(&self.port, FeatureId::INTERRUPT_VECTOR_CONFIGURATION, dw11)?;
        let disabled = InterruptVector::from_bits(dw0).cd();
        Ok(if disabled { VectorCoalescing::Immediate } else { VectorCoalescing::Coalesced })
    }

    /// Sets feature 09h of `vector`, until the next reset. The queues of a vector without coalescing feed no tuner.
    ///
    /// # Errors
    /// As [`Controller::coalescing`].
    pub fn set_vector_coalescing(&self, vector: u16, coalescing: VectorCoalescing) -> Result<(), NvmeError> {
        let part = InterruptVector::new().with_iv(vector);
        let wanted = part.with_cd(coalescing == VectorCoalescing::Immediate).into_bits();
        let feature = FeatureId::INTERRUPT_VECTOR_CONFIGURATION;
        self.set_and_note(feature, wanted, part.into_bits(), |features, value| {
            features.excluded.retain(|other| *other != vector);
            features.excluded.extend(InterruptVector::from_bits(value).cd().then_some(vector));
        })?;
        let pairs = self.all_pairs();
        pairs.iter().filter(|pair| pair.vector() == Some(vector)).for_each(|pair| self.attach_tuner(pair));
        Ok(())
    }

    /// Sets a feature to `wanted`, and calls `note` with the value in force, under the lock of what is believed. `part` is dword
    /// 11 of the command that reads it. The device may take commands in any order (Base 3.4.1), and a start sets the default: so
    /// what comes meanwhile leaves the value open, and it is read.
    fn set_and_note(
        &self,
        feature: FeatureId,
        wanted: u32,
        part: u32,
        note: impl Fn(&mut Features, u32),
    ) -> Result<(), NvmeError> {
        let (mut seen, mut is_alone) = {
            let mut features = self.features.lock();
            features.given += 1;
            (features.given, features.over + 1 == features.given)
        };
        let set = self.admin.set_feature(&self.port, feature, wanted);
        self.features.lock().over += 1;
        set?;
        let mut value = wanted;
        loop {
            {
                let mut features = self.features.lock();
                if is_alone && features.given == seen && features.over == seen {
                    note(&mut features, value);
                    return Ok(());
                }
                (seen, is_alone) = (features.given, features.over == features.given);
            }
            value = self.admin.get_feature(&self.port, feature, part)?;
        }
    }

    /// Asks the device to abort the commands of `pair` that have been in flight for `timeout_ns` or longer at
    /// `now_ns`. A command that survives its Abort is not aborted again, but counted as stuck.
    ///
    /// # Errors
    /// Why an Abort did not get through.
    pub fn abort_expired(&self, pair: &QueuePair<H>, now_ns: u64, timeout_ns: u64) -> Result<AbortReport, NvmeError> {
        let mut report = AbortReport { stuck: pair.count_aborted(), ..AbortReport::default() };
        // The loop tries at most as many commands as can be in flight, so a refused Abort is not retried for ever.
        for _ in 0..pair.depth() {
            let Some(abort) = pair.begin_abort(now_ns, timeout_ns) else { break };
            let answer = self.admin.abort(&self.port, pair.qid(), abort.cid);
            pair.end_abort(abort, AbortEnd::of(&answer));
            match answer? {
                true => report.aborted += 1,
                false => report.not_aborted += 1,
            }
        }
        Ok(report)
    }
}
