//! Parts of the stack that need no machine: moderation's controllers, budgeted polling, virtqueues and features, against models
//! that are written from the publications and the manuals, and share no code with them. Each is told the same, and must decide
//! the same at every call.

mod dim;
mod features;
mod held;
mod irq_am;
mod levels;
mod poll;
mod posted;
mod replay;
mod ring;
mod soft;
mod texts;
mod tuner;

use crate::trials::{Trial, Trials};

/// Parts.
pub static PARTS: &Trials = &Trials {
    name: "parts",
    about: "moderation's controllers, poll lists, virtqueues and features against models of the publications",
    list: &[
        Trial { name: "net_dim", run: dim::net_dim },
        Trial { name: "rdma_dim", run: dim::rdma_dim },
        Trial { name: "irq-am", run: irq_am::irq_am },
        Trial { name: "held level", run: held::held },
        Trial { name: "level table", run: levels::levels },
        Trial { name: "poll list", run: poll::list },
        Trial { name: "soft poll", run: soft::soft },
        Trial { name: "posted descriptor", run: posted::posted },
        Trial { name: "tuner", run: tuner::tuner },
        Trial { name: "virtqueue", run: ring::ring },
        Trial { name: "NVMe coalescing", run: features::coalescing },
        Trial { name: "texts", run: texts::texts },
    ],
    names: &[
        "net_dim",
        "rdma_dim",
        "irq-am",
        "held level",
        "level table",
        "poll list",
        "soft poll",
        "posted descriptor",
        "tuner",
        "virtqueue",
        "NVMe coalescing",
        "texts",
    ],
};

#[cfg(test)]
mod tests {
    #[test]
    fn every_trial_passes() {
        crate::trials::often(super::PARTS, 300);
    }
}
