//! Plans against readings of real programs, and against published measurements where they are at hand.

use std::path::Path;

use oomph_gpu::Catalogue;
use oomph_model::Library;
use oomph_plan::calibration::{self, Comparison, measured};
use oomph_plan::pipeline::{self, Pipeline};
use oomph_plan::{CardCost, Image, Task, Workload};

fn comparison() -> Comparison {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../calibration");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    calibration::compare(&read("text.csv"), &read("images.csv"), &read("training.csv"))
}

#[test]
fn plans_are_near_the_readings_of_the_grid() {
    let comparison = comparison();
    println!("{}", comparison.table());
    println!("left out: {:?}", comparison.left_out);
    assert!(comparison.rows.len() >= 300, "{} rows", comparison.rows.len());
    for task in [Task::Full, Task::Lora, Task::Qlora, Task::Inference, Task::Generate, Task::Image] {
        assert!(comparison.rows.iter().any(|row| row.task == task), "{task:?}");
    }
    let allocated = calibration::errors(comparison.rows.iter().map(|row| row.allocated)).unwrap();
    assert!(allocated.median <= 2.0 && allocated.p95 <= 6.0, "{allocated:?}");
    let reserved = calibration::errors(comparison.rows.iter().map(calibration::Row::ratio)).unwrap();
    assert!(reserved.median <= 2.0 && reserved.p95 <= 6.0, "{reserved:?}");
    // The bounds that the crate was built with, not those that these rows would give.
    let bounded = |row: &&calibration::Row| row.ratio() <= oomph_plan::quantiles(&row.family, row.task.name()).high;
    let share = comparison.rows.iter().filter(bounded).count() as f64 / comparison.rows.len() as f64;
    assert!(share >= 0.99, "{share}");
}

#[test]
fn decoding_a_video_takes_what_was_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../calibration/videos.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let card = CardCost::of(Catalogue::builtin().get("h100").unwrap());
    let mut rows = 0;
    for line in lines {
        let field = |name: &str| line[head.iter().position(|known| *known == name).unwrap()];
        let number = |name: &str| field(name).parse::<u64>().unwrap();
        let model = Library::builtin().model(field("model")).unwrap();
        let decoder = model.components.iter().filter(|part| part.name == "vae").cloned().collect::<Vec<_>>();
        let image = Image {
            width: number("width"),
            height: number("height"),
            frames: number("frames"),
            tiling: field("vae_tiling") == "1",
            ..Image::default()
        };
        let workload = Workload { task: Task::Image, image, ..Workload::default() };
        let run = pipeline::run(&Pipeline::of(&decoder), &workload, card, true);
        let off = |planned: u64, read: u64| 100.0 * (planned as f64 / read as f64 - 1.0);
        let allocated = off(run.usage.allocated, number("peak_allocated"));
        let reserved = off(run.usage.reserved.unwrap(), number("peak_reserved"));
        println!("{:60} allocated {allocated:+6.2} %, reserved {reserved:+6.2} %", line[..6].join(" "));
        assert!(allocated.abs() <= 2.0, "{line:?}: {allocated}");
        rows += 1;
    }
    assert!(rows >= 12, "{rows}");
}

#[test]
fn a_pipeline_weighs_what_its_networks_do() {
    let card = CardCost::of(Catalogue::builtin().get("h100").unwrap());
    let image = Image { width: 256, height: 256, ..Image::default() };
    let workload = Workload { task: Task::Image, image, ..Workload::default() };
    let mut pipelines = 0;
    for entry in Library::builtin().entries() {
        let model = Library::builtin().model(&entry.name).unwrap();
        let pipeline = Pipeline::of(&model.components);
        if !pipeline.denoises() || pipeline.is_control() {
            continue;
        }
        let numbers: u64 = pipeline.networks.iter().map(|network| network.numbers).sum();
        let weights = pipeline::run(&pipeline, &workload, card, false).weights;
        // Wan's autoencoder is in 32 bits.
        let share = weights as f64 / (2 * numbers) as f64;
        assert!((0.99..1.05).contains(&share), "{}: {weights} bytes for {numbers} numbers", entry.name);
        pipelines += 1;
    }
    assert!(pipelines >= 15, "{pipelines}");
}

#[test]
fn no_published_out_of_memory_error_is_called_a_sure_fit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/measured-peaks.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not here", path.display());
        return;
    };
    let rows = measured::read(&text);
    assert!(rows.len() > 400);
    for row in &rows {
        let name = format!("{:4} {:14} {:32}", row.id, row.family, row.model);
        match (&row.planned, row.error()) {
            (Ok(_), Some(error)) => println!("{name} {error:+7.1} %"),
            (Ok(answer), None) => {
                let (total, capacity) = (answer.total, row.capacity.unwrap_or(0) >> 20);
                println!("{name} ran out: {}, {} to {} MiB on {capacity}", row.oom, total.low >> 20, total.high >> 20);
            }
            (Err(why), _) => println!("{name} left out: {why}"),
        }
        assert!(!(row.oom && row.sure() == Some(true)), "row {} ran out of memory and is called a sure fit", row.id);
    }
    print!("{}", measured::table(&rows));
    assert!(rows.iter().filter(|row| row.oom && row.sure() == Some(false)).count() >= 15);
}
