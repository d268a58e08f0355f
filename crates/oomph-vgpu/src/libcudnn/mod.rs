//! The program's own libcudnn, and what cuDNN remembers between calls.
//!
//! `real` is the library, loaded into a `namespace` of its own and given a description of the card (`props`). `attribute`
//! has what is passed to it, `plans` and `computations` what is remembered of its descriptors. Nothing here knows the root
//! of the state, which holds it; `crate::cudnn` answers the program's calls with it.

pub mod attribute;
pub mod computations;
pub mod data_type;
pub mod namespace;
pub mod plans;
pub mod props;
pub mod real;
pub mod status;

use std::collections::BTreeMap;

use oomph_ledger::MAX_DEVICES;

use crate::lock::{Mutex, Once, Rank};
use attribute::Descriptor;
use computations::Computations;
use plans::Plans;
use real::{Libraries, Real};
use status::Result;

/// Where the graph API's answers come from.
#[derive(Clone, Copy)]
pub enum Source {
    /// A libcudnn that needs no GPU.
    Real(&'static Real),
    /// The model: workspaces are estimates.
    Model,
}

/// What cuDNN remembers. None of its locks is held while another one is taken.
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
    /// Nothing yet. What goes wrong with a library is said to `warn`.
    pub const fn new(warn: fn(&str)) -> Cudnn {
        Cudnn {
            libraries: Libraries::new(warn),
            source: Once::new(),
            cards: [const { Once::new() }; MAX_DEVICES],
            plans: Mutex::new(Rank::Plans, Plans::new()),
            computations: Mutex::new(Rank::Computations, Computations::new()),
            workspaces: Mutex::new(Rank::Workspaces, BTreeMap::new()),
            variant_packs: 0,
        }
    }
}
