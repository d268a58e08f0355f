//! What cuDNN remembers between calls.
#![deny(unsafe_code)]

use std::collections::BTreeMap;

use oomph_ledger::MAX_DEVICES;

use super::attribute::Descriptor;
use super::computations::Computations;
use super::plans::Plans;
use super::real::{Libraries, Real};
use super::status::Result;
use crate::lock::{Mutex, Once, Rank};

/// Where the graph API's answers come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// A libcudnn that needs no GPU.
    Real(&'static Real),
    /// The model: workspaces are estimates.
    Model,
}

/// The state. None of its locks is held while another one is taken.
pub struct Cudnn {
    /// The program's libcudnn.
    pub libraries: Libraries,
    /// Where the graph API's answers come from, once that is decided.
    pub source: Once<Source>,
    /// What the real library calls a card: its descriptor of device properties, by the card's number.
    pub cards: [Once<Descriptor<'static>>; MAX_DEVICES],
    /// Plans of the real library and what they are made of.
    pub plans: Mutex<Plans>,
    /// What they compute.
    pub computations: Mutex<Computations>,
    /// Workspaces in bytes, by the question that the older API asked the graph API.
    pub workspaces: Mutex<BTreeMap<Vec<i32>, Result<u64>>>,
    /// Its address is every variant pack's: they name data, and data does not matter here.
    pub variant_packs: u64,
}

impl Cudnn {
    /// Nothing yet.
    pub const fn new() -> Cudnn {
        Cudnn {
            libraries: Libraries::new(),
            source: Once::new(),
            cards: [const { Once::new() }; MAX_DEVICES],
            plans: Mutex::new(Rank::Plans, Plans::new()),
            computations: Mutex::new(Rank::Computations, Computations::new()),
            workspaces: Mutex::new(Rank::Workspaces, BTreeMap::new()),
            variant_packs: 0,
        }
    }
}
