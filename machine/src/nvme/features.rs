//! Get and Set Features (Base 5.15, 5.27): 06h to 09h.

use super::{Config, Nvme};
use spec::nvme::{
    Command, FeatureDw10, FeatureId, FeatureSelect, InterruptCoalescing, InterruptVector, NumberOfQueues, Status,
};

/// SEL 011b asks what the feature can do (Base 5.15); bit 2 of the answer: it can be changed.
const SELECT_CAPABILITIES: FeatureSelect = FeatureSelect(3);
const CHANGEABLE: u32 = 0b100;

/// The features' values. None survives a controller reset.
pub(super) struct Features {
    io_queues_max: u16,
    /// There is a volatile write cache, so feature 06h exists.
    has_write_cache: bool,
    /// Feature 06h, WCE: writes may end in the cache.
    pub(super) write_cache: bool,
    /// Granted I/O submission and completion queues.
    pub(super) submission_queues: u16,
    pub(super) completion_queues: u16,
    pub(super) coalescing: InterruptCoalescing,
    /// By vector.
    pub(super) coalescing_disabled: Box<[bool]>,
}

impl Features {
    pub(super) fn new(config: &Config) -> Self {
        let Config { io_queues_max, vectors, .. } = *config;
        Self {
            io_queues_max,
            has_write_cache: config.has_volatile_cache(),
            write_cache: true,
            submission_queues: io_queues_max,
            completion_queues: io_queues_max,
            coalescing: InterruptCoalescing::new(),
            coalescing_disabled: vec![false; vectors.into()].into(),
        }
    }

    pub(super) fn reset(&mut self) {
        (self.submission_queues, self.completion_queues) = (self.io_queues_max, self.io_queues_max);
        self.write_cache = true;
        self.coalescing = InterruptCoalescing::new();
        self.coalescing_disabled.fill(false);
    }

    fn number_of_queues(&self) -> u32 {
        NumberOfQueues::new().with_nsq(self.submission_queues - 1).with_ncq(self.completion_queues - 1).into_bits()
    }

    /// Whether coalescing is disabled for the vector that dword 11 names.
    fn vector(&self, dword11: u32) -> Result<(usize, u32), Status> {
        let vector = InterruptVector::from_bits(dword11).iv();
        let disabled = self.coalescing_disabled.get(usize::from(vector)).ok_or(Status::INVALID_FIELD)?;
        Ok((vector.into(), InterruptVector::new().with_iv(vector).with_cd(*disabled).into_bits()))
    }

    /// Dword 0 of Get Features' completion.
    pub(super) fn get(&self, command: &Command) -> Result<u32, Status> {
        let dword10 = FeatureDw10::from_bits(command.cdw10);
        let select = FeatureSelect(dword10.sel());
        let (value, default) = match FeatureId(dword10.fid()) {
            FeatureId::NUMBER_OF_QUEUES => {
                let most = u32::from(self.io_queues_max - 1);
                (self.number_of_queues(), most << 16 | most)
            }
            FeatureId::VOLATILE_WRITE_CACHE if self.has_write_cache => (self.write_cache.into(), 1),
            FeatureId::INTERRUPT_COALESCING => (self.coalescing.into_bits(), 0),
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let (vector, value) = self.vector(command.cdw11)?;
                (value, vector as u32)
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        match select {
            FeatureSelect::CURRENT => Ok(value),
            SELECT_CAPABILITIES => Ok(CHANGEABLE),
            // Nothing is saveable: the saved value is the default one (Base 5.15).
            FeatureSelect(1 | 2) => Ok(default),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

impl Nvme {
    /// Sets a feature; returns dword 0 of the completion.
    pub(super) fn set_feature(&mut self, command: &Command) -> Result<u32, Status> {
        let dword10 = FeatureDw10::from_bits(command.cdw10);
        let known = [
            FeatureId::VOLATILE_WRITE_CACHE,
            FeatureId::NUMBER_OF_QUEUES,
            FeatureId::INTERRUPT_COALESCING,
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION,
        ];
        if known.contains(&FeatureId(dword10.fid())) && dword10.sv() {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let features = &mut self.features;
        match FeatureId(dword10.fid()) {
            FeatureId::NUMBER_OF_QUEUES => {
                let asked = NumberOfQueues::from_bits(command.cdw11);
                if asked.nsq() == 0xffff || asked.ncq() == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                if self.queues.any_io() {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                let most = features.io_queues_max;
                features.submission_queues = most.min(asked.nsq() + 1);
                features.completion_queues = most.min(asked.ncq() + 1);
                Ok(features.number_of_queues())
            }
            FeatureId::VOLATILE_WRITE_CACHE if features.has_write_cache => {
                features.write_cache = command.cdw11 & 1 != 0;
                Ok(0)
            }
            FeatureId::INTERRUPT_COALESCING => {
                features.coalescing = InterruptCoalescing::from_bits(command.cdw11 & 0xffff);
                Ok(0)
            }
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let (vector, _) = features.vector(command.cdw11)?;
                features.coalescing_disabled[vector] = InterruptVector::from_bits(command.cdw11).cd();
                Ok(0)
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }
}
