//! Remedies placed in small programs as people write them: the lines that change, and the places where none is certain.

mod evaluation;
mod keeping;
mod loops;
mod trainers;

use std::path::Path;

use oomph_edit::{Amount, CannotPlace, Facts, KeptAt, ModelFacts, Placed, Program, Way};

const SCRIPT: &str = "/p/train.py";

fn program(text: &str, arguments: &[&str]) -> Program {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    let read = |path: &Path| (path == Path::new(SCRIPT)).then(|| text.to_owned());
    Program::reading(Path::new(SCRIPT), Path::new("/p"), arguments, read).expect("the program is valid Python")
}

fn plain() -> Facts {
    let model = ModelFacts { class: "Net".into(), library: "plain".into(), blocks: vec!["blocks".into()] };
    Facts { models: vec![model], batch_size: Some(32), capability: (8, 6), ..Facts::default() }
}

fn trainer() -> Facts {
    Facts { trainer: Some("Trainer".into()), batch_size: Some(8), accumulation: Some(2), ..plain() }
}

fn placed(program: &Program, remedy: &str, facts: &Facts) -> Result<Placed, CannotPlace> {
    program.apply(remedy, Amount { by: Some(2) }, facts)
}

/// The lines that a patch takes out and puts in, without its headers.
fn changed(program: &Program, remedy: &str, facts: &Facts) -> Vec<String> {
    let placed = placed(program, remedy, facts).unwrap_or_else(|error| panic!("{remedy}: {error}"));
    let patch = placed.program.patch_since(program, Path::new("/p"));
    let lines = patch.lines().filter(|line| line.starts_with(['+', '-']));
    lines.filter(|line| !line.starts_with("+++") && !line.starts_with("---")).map(str::to_owned).collect()
}

const LOOP: &str = "\
import torch
from torch.utils.data import DataLoader
from net import Net

BATCH = 32
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
model = Net().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for x, y in loader:
    opt.zero_grad()
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    opt.step()  # update
";
