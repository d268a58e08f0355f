//! VQGAN+CLIP against a reading of a program that does what its scripts do (`acceptance/programs/vqgan_clip.py`).

use std::path::Path;

use oomph_gpu::Catalogue;
use oomph_model::Library;
use oomph_plan::pipeline::Pipeline;
use oomph_plan::{CardCost, Image, Nearby, Precision, Subject, TapeOwner, Task, Workload, estimate};

/// The side that is read, which the VQGAN rounds down to its grid of 16.
const SIDE: u64 = 380;

fn allocated(reading: &str) -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../acceptance/readings");
    let text = std::fs::read_to_string(folder.join("virtual-rtx-4090.csv")).unwrap();
    let column = text.lines().next().unwrap().split(',').position(|name| name == "allocated_bytes").unwrap();
    let row = text.lines().find(|line| line.contains(",2.15.") && line.contains(reading)).unwrap();
    row.split(',').nth(column).unwrap().parse().unwrap()
}

fn workload(side: u64) -> Workload {
    let image = Image { width: side, height: side, ..Image::default() };
    Workload { task: Task::Image, precision: Precision::Fp32, image, ..Workload::default() }
}

#[test]
fn an_image_that_clip_guides_needs_what_its_program_needed() {
    let model = Library::builtin().model("vqgan-clip").unwrap();
    let pipeline = Pipeline::of(&model.components);
    assert!(pipeline.is_guided());
    let subject = Subject::Pipeline(Box::new(pipeline));
    let gpu = Catalogue::builtin().get("rtx-4090").unwrap();
    let card = CardCost::of(gpu);
    let answer = estimate(&subject, &workload(SIDE), card);
    let overhead = answer.owners[TapeOwner::Slack as usize] + answer.owners[TapeOwner::Context as usize];
    let planned = answer.owners.iter().sum::<u64>() - overhead;
    // The program has no text tower, which the scripts load with CLIP and leave on the card.
    let text = 2 * (model.components[1].elements() - seen(&model.components[1]));
    let read = allocated(&format!("vqgan_clip.py --size {SIDE}"));
    let ratio = (planned - text) as f64 / read as f64;
    println!("planned {planned} with {text} of text, read {read}: {ratio:.4}");
    assert!((0.95..1.05).contains(&ratio), "{ratio}");

    let most = Nearby::new(&subject, &workload(SIDE), card, &answer).limits(gpu.capacity_bytes);
    assert_eq!(most.max_batch, None);
    let side = most.max_resolution.unwrap();
    assert!(estimate(&subject, &workload(side), card).total.expected <= gpu.capacity_bytes / 100 * 105, "{side}");
    assert!(estimate(&subject, &workload(side * 2), card).total.expected > gpu.capacity_bytes, "{side}");
}

/// Numbers of CLIP's vision tower.
fn seen(clip: &oomph_model::Component) -> u64 {
    let Some(architecture) = &clip.architecture else { return 0 };
    let own = |name: &str| name.starts_with("vision_model.") || name.starts_with("visual_projection.");
    architecture.parameters().iter().filter(|one| own(&one.name)).map(|one| one.elements()).sum()
}
