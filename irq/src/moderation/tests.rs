//! The controllers against small plants, wrong input, and all that can go wrong with a step.

mod adaptive;
mod faults;
mod plant;
mod published;
mod tuner;

use super::*;

fn rdma_table() -> LevelTable {
    LevelTable::new(LevelTable::RDMA_DIM).expect("the published table is sorted")
}

fn adaptive() -> Adaptive {
    Adaptive::new(rdma_table(), AdaptiveConfig::default())
}
