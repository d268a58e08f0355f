//! Turns what a run showed of a program into the question that the catalogue answers.

use std::collections::{BTreeMap, BTreeSet};

use oomph_explain::snapshot::{Owner, OwnerRow};
use oomph_launch::{HookKept, HookOom, HookProgram, HookReports, Phase};
use oomph_remedy::rewrite::{self, Line};
use oomph_remedy::{
    Catalogue, Cause, Framework, Installed, Memory, Operation, OwnerGroup, Platform, Seen, Settings, Situation, Task,
};

/// A loss over the vocabulary weighs from this share of the peak.
const LOGITS_WEIGH: f64 = 0.1;
/// Bytes per logit: in 16 bits, again in 32 bits for the loss, and their gradient.
const BYTES_PER_LOGIT: f64 = 10.0;

/// What training collects on the card weighs from this part of the limit: a tenth.
const COLLECTED_SHARE: u64 = 10;

/// What is known of a program that does not fit.
pub struct Known<'a> {
    /// Its words and configuration files, where the words are text.
    pub line: Option<&'a Line>,
    /// What the hook saw of it.
    pub program: &'a HookProgram,
    /// Versions of what it imported.
    pub versions: &'a BTreeMap<String, String>,
    /// The error.
    pub oom: Option<&'a HookOom>,
    /// Whose memory it is at the peak.
    pub owners: &'a [OwnerRow],
    /// The peak, in bytes.
    pub peak_bytes: u64,
    /// What the card may hold, in bytes.
    pub limit_bytes: u64,
    /// The card's compute capability.
    pub capability: (u32, u32),
    /// How many cards there are.
    pub cards: usize,
    /// What the program itself lets a framework's pool take, in bytes, where that is less than the card.
    pub own_limit: Option<u64>,
}

/// The description of the process that used the card, if any wrote one.
pub fn described(hooks: &HookReports) -> HookProgram {
    let most = |hook: &&oomph_launch::HookReport| {
        hook.devices
            .iter()
            .map(|device| device.reserved_peak_bytes.unwrap_or(device.allocated_peak_bytes))
            .max()
            .unwrap_or(0)
    };
    let all = hooks.reports.iter().filter(|hook| hook.program.is_some());
    all.max_by_key(most).and_then(|hook| hook.program.clone()).unwrap_or_default()
}

impl Known<'_> {
    /// The situation, without an operation.
    pub fn situation(&self) -> Situation {
        let task = self.task();
        let mut causes = vec![Cause::Full.into()];
        // Results are wanted; they are only kept in the wrong place.
        if self.program.kept.iter().any(|kept| !kept.is_results()) || self.collects_on_card() {
            causes.insert(0, Cause::Leak.into());
        }
        if self.own_limit.is_some() {
            causes.insert(0, Cause::Limit.into());
        }
        let memory = self.memory();
        if let (Some(slack), Some(requested)) = (memory.slack(), memory.requested)
            && slack >= requested
        {
            causes.push(Cause::Fragmentation.into());
        }
        Situation {
            frameworks: self.frameworks(),
            task,
            causes,
            owners: (!self.owners.is_empty()).then(|| self.owners_of_moment()),
            memory,
            settings: self.settings(),
            on: self.on(),
            operation: None,
            within: None,
            compute_capability: Some(self.capability),
            gpus: u32::try_from(self.cards).ok(),
            platform: Some(Platform::Linux),
            notebook: false,
        }
    }

    /// The owners as remedies know them. What an evaluation keeps of every batch goes by several names, and to those who
    /// free it they are one.
    fn owners_of_moment(&self) -> BTreeMap<OwnerGroup, u64> {
        let mut owners = owners(self.owners);
        if self.moments().contains(&Operation::Evaluation) {
            let kept =
                [OwnerGroup::Temporaries, OwnerGroup::Inputs].into_iter().filter_map(|owner| owners.remove(&owner));
            let kept: u64 = kept.sum();
            let activations = owners.entry(OwnerGroup::Activations).or_default();
            *activations = activations.saturating_add(kept);
        }
        owners
    }

    /// Whether the program computes with other frameworks than PyTorch.
    pub fn is_without_torch(&self) -> bool {
        let has = |name: &str| self.versions.contains_key(name);
        !has("torch") && ["tensorflow", "jax", "onnxruntime", "numba", "llama.cpp"].into_iter().any(has)
    }

    /// What the program does.
    pub fn task(&self) -> Option<Task> {
        match self.program.task.as_deref() {
            Some("training") => Some(Task::Training),
            Some("inference" | "evaluation") => Some(Task::Inference),
            _ if !self.program.pipelines.is_empty() => Some(Task::Inference),
            _ if self.trains() => Some(Task::Training),
            // Who died in a forward pass without gradients, and made no optimizer, does not train.
            _ if self.oom.is_some_and(|oom| matches!(oom.phase, Phase::Eval | Phase::Generate)) => {
                Some(Task::Inference)
            }
            _ => None,
        }
    }

    /// Whether training collects tensors without a graph on the card until they weigh.
    fn collects_on_card(&self) -> bool {
        let results: u64 =
            self.program.kept.iter().filter(|kept| kept.is_results()).filter_map(|kept| kept.bytes).sum();
        let evaluates = self.oom.is_some_and(|oom| oom.phase == Phase::Eval);
        self.trains() && !evaluates && results >= self.limit_bytes / COLLECTED_SHARE
    }

    /// Whether it trains a model, whatever else it does.
    pub fn trains(&self) -> bool {
        // JAX's programs may update their weights without an optimizer, and Keras has optimizers of its own.
        let of_its_own = ["jax", "keras"].iter().any(|name| self.versions.contains_key(*name));
        self.program.trainer.is_some()
            || !self.program.optimizers.is_empty()
            || of_its_own && self.program.task.as_deref() == Some("training")
    }

    fn memory(&self) -> Memory {
        let oom = self.oom;
        Memory {
            requested: oom.map(|oom| oom.requested_bytes),
            capacity: Some(self.limit_bytes),
            allowed: self.own_limit,
            free: oom.map(|oom| oom.free_bytes),
            allocated: oom.and_then(|oom| oom.allocated_bytes),
            reserved: oom.and_then(|oom| oom.reserved_bytes),
            other_processes: Some(0),
            ..Memory::default()
        }
    }

    /// Who is in play, the most specific first.
    fn frameworks(&self) -> Vec<Installed> {
        let program = self.program;
        let mut names: Vec<Framework> = Vec::new();
        let script = self.line.and_then(rewrite::program).map(|program| program.framework);
        names.extend(script);
        if let Some(trainer) = &program.trainer {
            let plain = matches!(trainer.class.as_str(), "Trainer" | "Seq2SeqTrainer");
            if !plain && program.libraries.contains_key("trl") {
                names.push(Framework::Trl);
            }
            names.push(Framework::Transformers);
        }
        if program.models.iter().any(|model| model.adapters.is_some()) {
            names.push(Framework::Peft);
        }
        if !program.pipelines.is_empty() {
            names.push(Framework::Diffusers);
        }
        for model in &program.models {
            match model.library.as_str() {
                "transformers" => names.push(Framework::Transformers),
                "diffusers" => names.push(Framework::Diffusers),
                "timm" => names.push(Framework::Timm),
                _ => {}
            }
        }
        let known = |name: &str| self.versions.contains_key(name) || program.libraries.contains_key(name);
        // Who died before a model was seen says by its imports whose it would have been.
        if program.models.is_empty() && names.is_empty() {
            let libraries = [Framework::Diffusers, Framework::Transformers, Framework::Timm];
            names.extend(libraries.into_iter().filter(|library| known(library.name())));
        }
        for (name, framework) in [
            ("keras", Framework::Keras),
            ("tensorflow", Framework::Tensorflow),
            ("jax", Framework::Jax),
            ("numba", Framework::Numba),
            ("llama.cpp", Framework::LlamaCpp),
            ("onnxruntime", Framework::OnnxRuntime),
            ("lightning", Framework::Lightning),
            ("torch", Framework::Pytorch),
        ] {
            if known(name) {
                names.push(framework);
            }
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        let version = |name: &str| program.libraries.get(name).or_else(|| self.versions.get(name));
        names
            .into_iter()
            .map(|framework| {
                let name = match framework {
                    Framework::Pytorch => "torch",
                    Framework::OnnxRuntime => "onnxruntime",
                    _ => framework.name(),
                };
                let known = match version(name) {
                    Some(version) => Installed::new(framework, version),
                    None => Installed::from(framework),
                };
                // The flags of Transformers are those of its scripts, and arguments of its Trainer.
                let library =
                    framework == Framework::Transformers && program.trainer.is_none() && script != Some(framework);
                if library { known.as_library() } else { known }
            })
            .collect()
    }

    fn settings(&self) -> Settings {
        let program = self.program;
        let arguments = program.trainer.as_ref().map(|trainer| &trainer.arguments);
        let shape =
            program.loaders.iter().flat_map(|loader| loader.first_batch.values()).max_by_key(|shape| shape.len());
        let tokens = program.loaders.iter().find_map(|loader| loader.first_batch.get("input_ids"));
        let model = program.models.iter().max_by_key(|model| model.parameters);
        let pipeline = program.pipelines.first();
        Settings {
            batch_size: arguments
                .and_then(|arguments| arguments.per_device_train_batch_size)
                .or_else(|| program.loaders.iter().find_map(|loader| loader.batch_size))
                .or_else(|| shape.and_then(|shape| shape.first().copied())),
            gradient_accumulation: arguments.and_then(|arguments| arguments.gradient_accumulation_steps),
            sequence_length: tokens
                .and_then(|shape| shape.get(1).copied())
                .or_else(|| arguments.and_then(|arguments| arguments.max_length)),
            images: pipeline.and_then(|pipeline| pipeline.images),
            resolution: pipeline.and_then(|pipeline| pipeline.width.zip(pipeline.height)),
            model_parameters: model.map(|model| model.parameters),
            trainable_parameters: model.map(|model| model.trainable),
            bytes_per_parameter: model
                .filter(|model| model.parameters > 0 && model.bytes > 0)
                .map(|model| model.bytes as f64 / model.parameters as f64),
            vocabulary: model.and_then(|model| model.vocabulary),
            collects_on_card: Some(self.collects_on_card()),
            batch_norm: program
                .models
                .iter()
                .filter(|model| model.trainable > 0)
                .filter_map(|model| model.batch_norm)
                .reduce(|one, other| one || other),
            convolves: program.models.iter().filter_map(|model| model.convolutional).reduce(|one, other| one && other),
            calls_untrained: Some(!program.untrained.is_empty()),
            compares_samples: program.compares_samples,
            packing: arguments.and_then(|arguments| arguments.packing),
            ..Settings::default()
        }
    }

    /// The remedies that are in effect already, as far as the program shows it. Which fact shows which remedy is the
    /// catalogue's knowledge (`shown_by`).
    fn on(&self) -> BTreeSet<String> {
        let program = self.program;
        let mut seen = Seen::default();
        for model in &program.models {
            seen.add(model.checkpointing, "checkpointing");
            seen.add(model.adapters.is_some(), "adapters");
            seen.value("attention", model.attention.as_deref());
            seen.value("quantized", model.quantized.as_deref());
        }
        seen.add(program.autocast.is_some(), "torch-autocast");
        for optimizer in &program.optimizers {
            seen.add(optimizer.fused == Some(true), "optimizer-fused");
            seen.add(optimizer.class.contains("8bit"), "optimizer-8bit");
            seen.value("optimizer", Some(&optimizer.class));
        }
        // Diffusers computes attention in fewer passes wherever torch can, from 2.0 on.
        let torch = self.versions.get("torch").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        seen.add(torch.is_some_and(|major| major >= 2), "torch>=2");
        for pipeline in &program.pipelines {
            seen.add(true, "pipeline");
            seen.add(pipeline.vae_slicing, "vae_slicing");
            seen.add(pipeline.vae_tiling, "vae_tiling");
            seen.value("offload", pipeline.offload.as_deref());
        }
        if let Some(trainer) = &program.trainer {
            let arguments = &trainer.arguments;
            let mut argument = |holds: bool, name: &str| seen.value("argument", holds.then_some(name));
            argument(arguments.gradient_checkpointing == Some(true), "gradient_checkpointing");
            argument(arguments.bf16 == Some(true), "bf16");
            argument(arguments.fp16 == Some(true), "fp16");
            argument(arguments.use_liger_kernel == Some(true), "use_liger_kernel");
            argument(arguments.eval_accumulation_steps.is_some(), "eval_accumulation_steps");
        }
        Catalogue::builtin().shown_by(&seen)
    }

    /// The moments in which the peak may be: a remedy that helps in none of them is not tried.
    pub fn moments(&self) -> Vec<Operation> {
        let program = self.program;
        let mut moments = Vec::new();
        match self.oom.map(|oom| oom.phase) {
            Some(Phase::Load) => moments.push(Operation::Load),
            // A forward pass without gradients is an evaluation only where something is trained as well; so are the
            // samples that a training script of a diffusion model draws.
            Some(Phase::Eval | Phase::TextEncoding | Phase::Denoising | Phase::Decoding) if self.trains() => {
                moments.push(Operation::Evaluation);
            }
            Some(Phase::Generate) => moments.push(Operation::Generation),
            _ => {}
        }
        if !program.pipelines.is_empty() {
            moments.extend([Operation::VaeDecode, Operation::Denoise]);
        } else if self.task() == Some(Task::Inference) {
            moments.push(Operation::Forward);
            // What is kept from batch to batch is the result of an evaluation.
            if program.kept.iter().any(HookKept::is_results) {
                moments.push(Operation::Evaluation);
            }
        } else {
            moments.extend([
                Operation::Forward,
                Operation::Backward,
                Operation::OptimizerInit,
                Operation::OptimizerStep,
            ]);
        }
        if self.logits_weigh() {
            moments.push(Operation::Logits);
        }
        if program.models.iter().any(|model| model.attention.as_deref() == Some("eager")) {
            moments.push(Operation::AttentionScores);
        }
        moments
    }

    /// Whether the logits and their loss are a good part of the peak.
    fn logits_weigh(&self) -> bool {
        let settings = self.settings();
        let (Some(vocabulary), Some(batch), Some(length)) =
            (settings.vocabulary, settings.batch_size, settings.sequence_length)
        else {
            return false;
        };
        vocabulary as f64 * batch as f64 * length as f64 * BYTES_PER_LOGIT >= LOGITS_WEIGH * self.peak_bytes as f64
    }
}

/// The owners as remedies know them.
fn owners(rows: &[OwnerRow]) -> BTreeMap<OwnerGroup, u64> {
    let mut owners = BTreeMap::new();
    for row in rows {
        let owner = match row.owner {
            Owner::Parameters | Owner::Buffers => OwnerGroup::Parameters,
            Owner::Gradients => OwnerGroup::Gradients,
            Owner::OptimizerState => OwnerGroup::OptimizerState,
            Owner::Activations | Owner::Unattributed => OwnerGroup::Activations,
            Owner::Temporaries => OwnerGroup::Temporaries,
            Owner::Inputs => OwnerGroup::Inputs,
            Owner::KvCache => OwnerGroup::KvCache,
            Owner::Workspace => OwnerGroup::Workspace,
            Owner::GraphPools => OwnerGroup::GraphPools,
            Owner::SlackInBlocks | Owner::CachedSplit | Owner::CachedUnsplit => OwnerGroup::Cached,
            Owner::Context => OwnerGroup::Context,
            Owner::OtherProcesses => OwnerGroup::OtherProcesses,
            Owner::Free => continue,
        };
        let sum: &mut u64 = owners.entry(owner).or_default();
        *sum = sum.saturating_add(row.bytes);
    }
    owners
}
