//! The program's own libcudnn: where it is (`real`), how it is loaded (`namespace`), what is passed to it (`attribute`,
//! `data_type`, `props`) and answered by it (`status`), and what is remembered of its descriptors (`plans`,
//! `computations`, `on_card`). It is a part of the state (`Cudnn`), and knows nothing of the cards; `crate::cudnn` asks it.

pub mod attribute;
mod computations;
pub mod data_type;
pub mod namespace;
mod on_card;
mod plans;
pub mod props;
pub mod real;
mod state;
pub mod status;

pub use state::{Cudnn, Source};
