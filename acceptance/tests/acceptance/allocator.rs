//! Compares the model of PyTorch's allocator with PyTorch: the same random requests have to bring about the same
//! events, addresses, counters and blocks.

use anyhow::{Context, Result, anyhow};
use libtest_mimic::{Failed, Trial};

use crate::again::tried;
use crate::run::{Run, TORCH_2_6, TORCH_2_15, Torch};

#[path = "../../../crates/oomph-allocator/tests/oracle/recording.rs"]
mod recording;

const DRIVER: &str = "crates/oomph-allocator/tests/oracle/driver.py";
const OPERATIONS: &str = "500";

/// A name, what the driver does, `PYTORCH_CUDA_ALLOC_CONF`, and the card's memory, which is soon full.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ROWS: [Row; 5] = [
    ("native", "streams+graphs+pressure+flushes", "", "1.2GiB"),
    ("expandable", "streams+graphs+pressure+flushes", "expandable_segments:True", "1.2GiB"),
    ("roundup", "streams+pressure", "roundup_power2_divisions:[1:1,2:2,4:4,8:8,16:4,32:2,64:1,>:4]", "2GiB"),
    ("max-split", "streams+pressure+flushes", "max_split_size_mb:32", "1.2GiB"),
    ("collection", "streams+pressure+fraction=0.9", "garbage_collection_threshold:0.6", "1.5GiB"),
];

/// Every row with every version; the seed differs, so that no two runs ask for the same.
pub fn trials() -> Vec<Trial> {
    let mut seed = 100;
    let mut trials = Vec::new();
    for torch in [TORCH_2_15, TORCH_2_6] {
        for row in ROWS {
            seed += 1;
            let name = format!("allocator-{}-{}", row.0, torch.name);
            let test = move || compare(torch, row, seed).map_err(|error| Failed::from(format!("{error:#}")));
            trials.push(tried(name, test));
        }
    }
    trials
}

fn compare(torch: Torch, (_, features, conf, vram): Row, seed: u32) -> Result<()> {
    let mut run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--vram", vram, "--until-exit"]).with(torch);
    if !conf.is_empty() {
        run = run.env("PYTORCH_CUDA_ALLOC_CONF", conf);
    }
    let finished = run.program(&[DRIVER, &seed.to_string(), OPERATIONS, features, "-"]).finish()?;
    let stdout = String::from_utf8_lossy(&finished.stdout);
    // The report follows the program's output.
    let lines: Vec<&str> = stdout.lines().filter(|line| line.starts_with('{')).collect();
    finished.ensure(lines.last().is_some_and(|line| line.starts_with("{\"do\":\"end\"")), "the driver did not end")?;
    let compared = recording::compare(&lines.join("\n")).map_err(|difference| anyhow!(difference));
    let compared = compared.with_context(|| finished.story())?;
    finished.ensure(compared.operations > 400 && compared.ooms > 0, format!("too little happened: {compared:?}"))
}
