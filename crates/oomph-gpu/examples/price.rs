//! How much longer a step takes after a change than before, on a card, from what the hook recorded of both.
//!
//!     price CARD BEFORE.json AFTER.json
//!
//! The files hold `work` of the hook's record (docs/internals/run-folder.md). Used by `acceptance/readings/prices.py`.

use std::error::Error;

use oomph_gpu::Catalogue;
use oomph_gpu::roofline::{Counted, of_steps};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [card, before, after] = words.as_slice() else { return Err("give CARD BEFORE.json AFTER.json".into()) };
    let read = |path: &String| -> Result<Counted, Box<dyn Error>> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    };
    let price = of_steps(Catalogue::builtin().find(card)?, &read(before)?, &read(after)?, None);
    let price = price.ok_or("a step computes nothing on the card")?;
    println!("{:.3} {:.3}", price.low, price.high);
    Ok(())
}
