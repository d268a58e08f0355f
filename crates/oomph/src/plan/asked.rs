//! Converts command-line arguments into a `Workload`.

use anyhow::{Context, Result};
use oomph_gpu::{Catalogue, Gpu};
use oomph_plan::{
    Attention, Image, Lora, Objective, Offloading, Optimizer, Parallel, Precision, Subject, Targets, Task, Workload,
};
use oomph_report::clean;

use super::subject::Found;
use crate::cli::{CacheArg, MethodArg, OffloadArg, PlanArgs, PrecisionArg, TaskArg};
use crate::failure::hinted;

/// Tokens of a sample where nothing is said.
const LENGTH: u64 = 2048;
/// Frames of a video where nothing is said: five seconds of Wan.
const VIDEO_FRAMES: u64 = 81;

/// A workload and the cards that it is for.
pub struct Asked {
    /// What is done.
    pub workload: Workload,
    /// The card.
    pub gpu: Option<Gpu>,
    /// How many of it.
    pub count: u64,
    /// What the weights are kept as, where no precision says it.
    weights: Option<String>,
    /// Whether the model is a pipeline of diffusers.
    pipeline: bool,
}

/// Makes a workload of what was asked for.
///
/// # Errors
/// When settings contradict each other, or do not suit the model.
pub fn read(args: &PlanArgs, found: &Found) -> Result<Asked> {
    let (gpu, count) = card(args)?;
    let task = task(args, found);
    let objective = args.task.map_or(Objective::Labels, objective);
    if args.method.is_some() && objective == Objective::Labels {
        return Err(hinted("--method is for dpo, grpo, ppo, reward and contrastive", "--task lora trains adapters"));
    }
    let pipeline = matches!(found.subject, Subject::Pipeline(_));
    suits(args, found, task)?;
    serving(args, found, task)?;
    // What Trainer takes; the training scripts of diffusers take `torch.optim.AdamW` as it comes.
    let usual_optimizer = if pipeline { Optimizer::AdamwForeach } else { Optimizer::AdamwFused };
    let parallel = parallel(args, count)?;
    fits_the_shape(args, found, task)?;
    let most = match &found.subject {
        Subject::Transformer { shape, .. } if shape.max_positions > 0 => shape.max_positions,
        _ => u64::MAX,
    };
    let writes = matches!(task, Task::Generate | Task::Serve) || objective.generates();
    let usual_new = if objective.generates() { 256 } else { 128 };
    let trl = matches!(objective, Objective::Dpo | Objective::Grpo | Objective::Reward);
    let usual_batch = if objective == Objective::Grpo { 8 } else { 1 };
    let workload = Workload {
        task,
        objective,
        precision: precision(args, found, task, objective),
        batch: args.images.or(args.batch).unwrap_or(usual_batch),
        samples: if task == Task::Evaluate { args.samples } else { 0 },
        length: args.seq.unwrap_or(LENGTH.min(most)),
        new_tokens: if writes { args.new_tokens.unwrap_or(usual_new) } else { 0 },
        optimizer: args.optimizer.unwrap_or(usual_optimizer),
        checkpointing: args.checkpointing || (!pipeline && (task == Task::Qlora || trl) && !args.no_checkpointing),
        prepared: task == Task::Qlora && objective == Objective::Labels && !pipeline,
        trainer: objective != Objective::Labels || args.fsdp || args.zero > 0,
        attention: if args.eager { Attention::Eager } else { Attention::Sdpa },
        padding: args.padding,
        lora: Lora {
            rank: args.lora_rank,
            targets: if args.lora_default_targets || pipeline { Targets::Default } else { Targets::AllLinear },
            dropout: false,
        },
        accumulation: args.accumulation,
        cache_bytes: args.kv_cache.map_or(2.0, CacheArg::bytes),
        parallel,
        image: image(args, found)?,
        ..Workload::default()
    };
    let weights = match &found.subject {
        Subject::Transformer { stored: Some(stored), .. } => Some(stored.format.clone()),
        _ => None,
    };
    Ok(Asked { workload, gpu, count, weights, pipeline })
}

/// The card that was named, with the capacity that was given, and how many of it.
fn card(args: &PlanArgs) -> Result<(Option<Gpu>, u64)> {
    let named = args.gpu.or(args.gpus);
    let gpu = match (named.map(|cards| cards.gpu), &args.vram) {
        (Some(gpu), Some(vram)) => Some(gpu.with_capacity(vram.value.0)),
        (gpu, None) => gpu.cloned(),
        (None, Some(vram)) => {
            let card = Catalogue::builtin().get(super::NAMELESS).context("the catalogue lacks its own default card")?;
            Some(Gpu { id: oomph_report::CUSTOM.into(), ..card.with_capacity(vram.value.0) })
        }
    };
    Ok((gpu, named.map_or(1, |cards| cards.count as u64)))
}

/// The task that was named, or the usual one of the model.
fn task(args: &PlanArgs, found: &Found) -> Task {
    match (args.task, &found.subject) {
        (Some(task), _) => of_task(task, args.method),
        (None, Subject::Pipeline(_)) => Task::Image,
        (None, Subject::Transformer { shape, .. }) if shape.kind == oomph_model::architecture::Kind::Decoder => {
            Task::Generate
        }
        (None, _) => Task::Inference,
    }
}

/// Whether the model is VQGAN+CLIP.
fn is_guided(found: &Found) -> bool {
    matches!(&found.subject, Subject::Pipeline(pipeline) if pipeline.is_guided())
}

/// Checks that the model can do the task: a pipeline makes images, and its denoiser can be trained.
fn suits(args: &PlanArgs, found: &Found, task: Task) -> Result<()> {
    let suits = if is_guided(found) {
        fits_guidance(args, found)?;
        task == Task::Image
    } else if matches!(found.subject, Subject::Pipeline(_)) {
        matches!(task, Task::Image | Task::Full | Task::Lora | Task::Qlora)
    } else {
        task != Task::Image
    };
    if suits {
        return Ok(());
    }
    let hint = if task == Task::Image { "leave out --task image" } else { "leave out --task" };
    Err(hinted(format!("`{}` is not a model for {}", found.name, task.name()), hint))
}

/// The precision that was named, or the usual one of the task.
fn precision(args: &PlanArgs, found: &Found, task: Task, objective: Objective) -> Precision {
    match (args.precision, task) {
        (Some(precision), _) => of_precision(precision),
        // sentence-transformers trains in fp32 where nothing is said.
        _ if objective == Objective::Contrastive => Precision::Fp32,
        // TRL loads models in fp32 and computes under autocast, adapters or not.
        (_, Task::Lora) if objective != Objective::Labels => Precision::AmpBf16,
        (_, Task::Full | Task::Freeze | Task::Qlora | Task::Evaluate) => Precision::AmpBf16,
        _ if is_guided(found) => Precision::Fp32,
        _ => Precision::Bf16,
    }
}

/// How the work is split over `count` cards.
fn parallel(args: &PlanArgs, count: u64) -> Result<Parallel> {
    let degrees = [args.tensor_parallel, args.pipeline_parallel, args.sequence_parallel];
    let product = degrees.iter().fold(1_u64, |product, degree| product.saturating_mul(*degree));
    if !count.is_multiple_of(product) {
        return Err(hinted(
            format!("{count} cards cannot be split {product} ways"),
            "the degrees of parallelism multiply to a divisor of the number of cards; --gpus 8xh100 names eight",
        ));
    }
    Ok(Parallel {
        gpus: count,
        zero: if args.fsdp { 3 } else { args.zero },
        fsdp: args.fsdp,
        tensor: args.tensor_parallel,
        pipeline: args.pipeline_parallel,
        sequence: args.sequence_parallel,
        offload_optimizer: args.offload.contains(&OffloadArg::Optimizer),
        offload_weights: args.offload.contains(&OffloadArg::Weights),
    })
}

/// The images that a pipeline makes.
fn image(args: &PlanArgs, found: &Found) -> Result<Image> {
    let pipeline = matches!(found.subject, Subject::Pipeline(_));
    if !pipeline && (args.resolution.is_some() || args.images.is_some() || args.frames.is_some()) {
        return Err(hinted(
            format!("`{}` makes no images", clean(&found.name)),
            "leave out --resolution, --images and --frames",
        ));
    }
    // What the scripts of VQGAN+CLIP take where nothing is said, and what others do.
    let usual = if is_guided(found) { 512 } else { 1024 };
    let (width, height) = args.resolution.unwrap_or((usual, usual));
    Ok(Image {
        width,
        height,
        frames: args.frames.unwrap_or(if is_video(&found.subject) { VIDEO_FRAMES } else { 1 }),
        offload: if args.offload.contains(&OffloadArg::Sequential) {
            Offloading::Sequential
        } else if args.offload.contains(&OffloadArg::Weights) {
            Offloading::Model
        } else {
            Offloading::None
        },
        slicing: args.vae_slicing,
        tiling: args.vae_tiling,
        ..Image::default()
    })
}

impl Asked {
    /// What the user should know of these settings, one sentence each.
    pub fn notes(&self, found: &Found) -> Vec<String> {
        let workload = &self.workload;
        let mut notes = Vec::new();
        let Subject::Transformer { shape, .. } = &found.subject else { return notes };
        let tokens = workload.length.saturating_add(workload.new_tokens);
        let text = shape.image.is_none() && shape.audio.is_none() && shape.encoder.is_none();
        if text && shape.max_positions > 0 && tokens > shape.max_positions {
            let most = shape.max_positions;
            notes.push(format!("{tokens} tokens are more than the {most} positions that the model is made for"));
        }
        if workload.parallel.zero > 0 && workload.parallel.gpus == 1 {
            notes.push("ZeRO shards over cards, and there is one: --gpus 8xh100 names eight".into());
        }
        if !shape.exact {
            notes.push(format!(
                "the tensors of the family `{}` are not known one by one; it is planned by its widths",
                clean(&shape.family)
            ));
        }
        if workload.objective == Objective::Ppo {
            notes.push("TRL 1.16 has no PPO trainer; four models are planned as its earlier versions held them".into());
        }
        notes
    }

    /// How images are made, or the denoiser trained on them.
    fn image(&self, words: &mut Vec<String>) {
        let workload = &self.workload;
        let image = &workload.image;
        words.push(format!("{} x {} pixels", image.width, image.height));
        if image.frames > 1 {
            words.push(format!("{} frames", image.frames));
        }
        words.push(if workload.batch == 1 { "1 image".to_owned() } else { format!("{} images", workload.batch) });
        if workload.task.trains() {
            words.push(workload.optimizer.name().to_owned());
            words.push(if workload.checkpointing { "checkpointing" } else { "no checkpointing" }.to_owned());
            if workload.task != Task::Full {
                words.push(format!("rank {} at attention", workload.lora.rank));
            }
            return;
        }
        let modes = [
            (image.offload == Offloading::Model, "one network at a time"),
            (image.offload == Offloading::Sequential, "one module at a time"),
            (image.slicing, "sliced decoding"),
            (image.tiling, "tiled decoding"),
        ];
        words.extend(modes.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()));
    }

    /// The settings that the figures are for, in words.
    pub fn settings(&self) -> Vec<String> {
        let workload = &self.workload;
        let weights = self.weights.clone();
        let mut words = vec![weights.unwrap_or_else(|| workload.precision.name().to_owned())];
        if self.pipeline {
            self.image(&mut words);
            return words;
        }
        words.push(format!("batch {}", workload.batch));
        words.push(format!("{} tokens", workload.length));
        if workload.new_tokens > 0 {
            words.push(format!("{} new", workload.new_tokens));
        }
        if workload.task.trains() {
            words.push(workload.optimizer.name().to_owned());
            let checkpointing = if workload.checkpointing { "checkpointing" } else { "no checkpointing" };
            words.push(checkpointing.to_owned());
        }
        if workload.objective != Objective::Labels {
            words.push(format!("{} weights", if workload.task == Task::Full { "all" } else { workload.task.name() }));
        }
        if matches!(workload.task, Task::Lora | Task::Qlora) {
            words.push(format!("rank {}", workload.lora.rank));
        }
        if workload.attention == Attention::Eager {
            words.push("eager attention".into());
        }
        if workload.task == Task::Evaluate {
            words.push(format!("{} samples", workload.samples));
        }
        match workload.parallel {
            Parallel { fsdp: true, .. } => words.push("FSDP".into()),
            Parallel { zero: stage @ 1.., .. } => words.push(format!("ZeRO-{stage}")),
            _ => {}
        }
        words
    }
}

/// Checks what VQGAN+CLIP has no setting for.
fn fits_guidance(args: &PlanArgs, found: &Found) -> Result<()> {
    let several = args.images.is_some_and(|images| images > 1)
        || args.batch.is_some_and(|batch| batch > 1)
        || args.frames.is_some();
    let other = [
        (several, "makes one image at a time", "leave out --images, --batch and --frames"),
        (!args.offload.is_empty(), "is not offloaded", "leave out --offload; --resolution decides what it needs"),
        (
            args.vae_slicing || args.vae_tiling,
            "decodes its image in one piece",
            "leave out --vae-slicing and --vae-tiling",
        ),
        (
            args.precision.is_some_and(|precision| precision != PrecisionArg::Fp32),
            "runs in fp32",
            "leave out --precision",
        ),
    ];
    match other.into_iter().find(|(asked, ..)| *asked) {
        Some((_, what, hint)) => Err(hinted(format!("`{}` {what}", clean(&found.name)), hint)),
        None => Ok(()),
    }
}

/// Checks that a model can be split as was asked.
fn fits_the_shape(args: &PlanArgs, found: &Found, task: Task) -> Result<()> {
    if !task.trains() && (args.zero > 0 || args.fsdp) {
        return Err(hinted(
            "--zero and --fsdp are for training",
            "leave it out; --tensor-parallel splits a model for inference",
        ));
    }
    let Subject::Transformer { shape, .. } = &found.subject else {
        return match args.tensor_parallel.max(args.pipeline_parallel).max(args.sequence_parallel) {
            1 => Ok(()),
            _ => Err(hinted("a pipeline for images is not split over cards here", "leave out the degrees")),
        };
    };
    let (tensor, stages) = (args.tensor_parallel, args.pipeline_parallel);
    if !shape.heads.is_multiple_of(tensor) {
        let degrees: Vec<String> = (1..=shape.heads.min(16))
            .filter(|degree| shape.heads.is_multiple_of(*degree))
            .map(|d| d.to_string())
            .collect();
        return Err(hinted(
            format!("{} heads cannot be split {tensor} ways", shape.heads),
            format!("--tensor-parallel takes a divisor of them: {}", degrees.join(", ")),
        ));
    }
    if stages > shape.layers {
        return Err(hinted(
            format!("{} layers cannot be split into {stages} stages", shape.layers),
            "--pipeline-parallel takes at most as many stages as there are layers",
        ));
    }
    Ok(())
}

/// Checks what depends on who runs the model: llama.cpp, vLLM, or Python.
fn serving(args: &PlanArgs, found: &Found, task: Task) -> Result<()> {
    let (shape, stored) = match &found.subject {
        Subject::Transformer { shape, stored } => (Some(shape), stored.as_ref()),
        Subject::Pipeline(_) => (None, None),
    };
    let name = oomph_report::clean(&found.name);
    let llama_cpp = stored.is_some_and(|stored| stored.llama_cpp.is_some());
    if llama_cpp && task.trains() {
        return Err(hinted(
            format!("`{name}` as a GGUF file cannot be trained"),
            "plan the model that it was made from, by its folder or name",
        ));
    }
    if stored.is_some() && !llama_cpp && matches!(task, Task::Full | Task::Freeze | Task::Qlora) {
        return Err(hinted(
            format!("`{name}` is quantized, and its own weights cannot be trained"),
            "--task lora trains adapters over them; or plan the model that it was made from",
        ));
    }
    if stored.is_some() && args.precision.is_some() {
        return Err(hinted(format!("the precision of `{name}` is fixed by its files"), "leave out --precision"));
    }
    if task == Task::Serve && !shape.is_some_and(|shape| oomph_plan::serves(shape)) {
        return Err(hinted(format!("vLLM cannot serve `{name}`"), "leave out --task serve"));
    }
    match args.kv_cache {
        Some(_) if task != Task::Serve && !llama_cpp => {
            Err(hinted("--kv-cache is for servers", "add --task serve (vLLM), or --gguf Q4_K_M (llama.cpp)"))
        }
        Some(CacheArg::Fp8) if llama_cpp => Err(hinted("llama.cpp has no cache in fp8", "write --kv-cache q8_0")),
        Some(CacheArg::Q8 | CacheArg::Q4) if !llama_cpp => {
            Err(hinted("vLLM has no cache in q8_0 or q4_0", "write --kv-cache fp8"))
        }
        _ => Ok(()),
    }
}

/// Whether a pipeline makes videos: its denoiser's patches or its autoencoder have a side in time.
fn is_video(subject: &Subject) -> bool {
    let Subject::Pipeline(pipeline) = subject else { return false };
    pipeline.networks.iter().any(|network| {
        matches!(&network.architecture, Some(oomph_model::Architecture::DiffusionTransformer(shape)) if shape.class.contains("3DModel"))
    })
}

/// What a task learns from.
fn objective(task: TaskArg) -> Objective {
    match task {
        TaskArg::Dpo => Objective::Dpo,
        TaskArg::Grpo => Objective::Grpo,
        TaskArg::Ppo => Objective::Ppo,
        TaskArg::Reward => Objective::Reward,
        TaskArg::Contrastive => Objective::Contrastive,
        _ => Objective::Labels,
    }
}

fn of_task(task: TaskArg, method: Option<MethodArg>) -> Task {
    match task {
        TaskArg::Dpo | TaskArg::Grpo | TaskArg::Ppo | TaskArg::Reward | TaskArg::Contrastive => match method {
            None | Some(MethodArg::Full) => Task::Full,
            Some(MethodArg::Lora) => Task::Lora,
            Some(MethodArg::Qlora) => Task::Qlora,
        },
        TaskArg::Evaluate => Task::Evaluate,
        TaskArg::Inference => Task::Inference,
        TaskArg::Generate => Task::Generate,
        TaskArg::Serve => Task::Serve,
        TaskArg::Full => Task::Full,
        TaskArg::Lora => Task::Lora,
        TaskArg::Qlora => Task::Qlora,
        TaskArg::Freeze => Task::Freeze,
        TaskArg::Image => Task::Image,
    }
}

fn of_precision(precision: PrecisionArg) -> Precision {
    match precision {
        PrecisionArg::Fp32 => Precision::Fp32,
        PrecisionArg::AmpBf16 => Precision::AmpBf16,
        PrecisionArg::AmpFp16 => Precision::AmpFp16,
        PrecisionArg::Bf16 => Precision::Bf16,
        PrecisionArg::Fp16 => Precision::Fp16,
        PrecisionArg::Int8 => Precision::Int8,
        PrecisionArg::Nf4 => Precision::Nf4,
    }
}
