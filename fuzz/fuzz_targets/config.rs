//! A configuration file of anybody's on the command line of a program that oomph knows: read, asked for its settings, and
//! changed by remedies without a panic; what is written can be read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oomph_remedy::rewrite::{Into, Line, rewrite};
use oomph_remedy::{Catalogue, Situation};

/// A program for each way in which a file is named, and for each format.
const LINES: &[&[&str]] = &[
    &["axolotl", "train", "a.yml"],
    &["python", "run_clm.py", "a.json"],
    &["tune", "run", "recipe", "--config", "a.yaml"],
    &["python", "train_network.py", "--config_file", "a.toml"],
    &["deepspeed", "run_clm.py", "--deepspeed", "a.json"],
    &["accelerate", "launch", "--config_file", "a.yaml", "run_clm.py"],
];

const REMEDIES: &[&str] = &["micro-batch", "fused-cross-entropy", "autocast", "zero-3", "shorter-sequence"];

fuzz_target!(|data: &str| {
    for words in LINES {
        let line = Line::reading(words.iter().map(|word| (*word).to_owned()).collect(), |_| Some(data.to_owned()));
        for remedy in REMEDIES {
            let remedy = Catalogue::builtin().get(remedy).expect("the catalogue has it");
            if let Ok(once) = rewrite(&line, remedy, &Situation::default(), Into::File) {
                let _ = rewrite(&once.line, remedy, &Situation::default(), Into::Line);
            }
        }
    }
});
