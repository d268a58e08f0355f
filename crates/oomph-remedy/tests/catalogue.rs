//! What must be true of the data files, whatever is added to them.

use std::collections::{BTreeMap, BTreeSet};

use oomph_remedy::{Catalogue, Cause, Framework, Installed, Kind, OwnerGroup, Remedy, Seen};

fn remedies() -> &'static [Remedy] {
    Catalogue::builtin().remedies()
}

#[test]
fn every_remedy_of_the_issue_is_there() {
    let wanted = "micro-batch autocast pure-bf16 gradient-checkpointing checkpointing-every-n-layers \
        selective-checkpointing activation-offload lora qlora weights-int8 weights-nf4 double-quant gguf-smaller \
        fp8-weights adam-8bit adam-4bit paged-adam-8bit fused-optimizer foreach-off adafactor lion-8bit sgd \
        optimizer-in-backward optimizer-cpu-offload parameter-cpu-offload model-cpu-offload sequential-cpu-offload \
        group-offload device-map zero-1 zero-2 zero-3 fsdp tensor-parallel pipeline-parallel sdpa flash-attention \
        xformers chunked-cross-entropy fused-cross-entropy shorter-sequence packing-off chunked-processing \
        smaller-resolution upscale-later attention-slicing vae-slicing vae-tiling text-encoders-away partial-offload \
        kv-cache-dtype shorter-context no-grad eval-accumulation eval-batch release-earlier-phase zero-grad-none \
        detach-losses expandable-segments max-split-size cuda-malloc-async memory-fraction memory-growth \
        free-other-processes restart-notebook-kernel sysmem-fallback-policy more-host-memory larger-shm nccl-buffers \
        lower-utilization raise-utilization enforce-eager fewer-gpu-layers raise-limit fewer-workers no-pinned-memory \
        unload-idle-models";
    let missing: Vec<_> = wanted.split_whitespace().filter(|id| Catalogue::builtin().get(id).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_entry_says_what_it_does_and_who_says_so() {
    for remedy in remedies() {
        let id = &remedy.id;
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{id}");
        assert!(remedy.changes.ends_with('.') && remedy.changes.len() > 20, "{id}: changes is a sentence");
        assert!(!remedy.because.ends_with('.') && remedy.because.len() > 20, "{id}: because is a clause");
        assert!(!remedy.title.ends_with('.') && remedy.title.len() < 80, "{id}: title");
        assert!(!remedy.time.source.is_empty() && !remedy.time.text.is_empty(), "{id}: time");
        assert!(remedy.quality.as_ref().is_none_or(|quality| !quality.source.is_empty()), "{id}: quality");
        assert!(!remedy.when.causes.is_empty(), "{id}: a remedy answers a cause");
        assert!(!remedy.effects.is_empty(), "{id}: a remedy shrinks something");
        for effect in &remedy.effects {
            assert!(effect.source.len() > 5, "{id}: the effect on {} has no source", effect.owner);
            assert!(effect.keeps.is_none_or(|keeps| (0.0..=3.0).contains(&keeps)), "{id}: {}", effect.owner);
        }
        let owners: BTreeSet<_> = remedy.effects.iter().map(|effect| effect.owner).collect();
        assert_eq!(owners.len(), remedy.effects.len(), "{id}: an owner appears twice");
        assert!(remedy.request_keeps.is_none() || !remedy.aims.is_empty(), "{id}: of which request?");
        assert!(remedy.request_keeps.is_none_or(|keeps| (0.0..1.0).contains(&keeps)), "{id}");
        assert!(!remedy.conflicts.contains(id), "{id} excludes itself");
        assert!(!remedy.dry_run.what.is_empty(), "{id}");
    }
    for advice in Catalogue::builtin().advice() {
        assert!(!advice.because.ends_with('.') && !advice.source.is_empty(), "{}", advice.id);
    }
}

#[test]
fn every_remedy_is_written_for_at_least_two_frameworks() {
    for remedy in remedies() {
        let frameworks: BTreeSet<_> = remedy.written.iter().map(|written| written.framework).collect();
        // What only one framework has is said so.
        let only = remedy.when.frameworks.len() == 1;
        assert!(frameworks.len() >= 2 || only, "{} is written for {frameworks:?} only", remedy.id);
    }
}

#[test]
fn no_spelling_hides_another() {
    for remedy in remedies() {
        // Flags are out of reach where only a library is used, so code may follow them.
        let mut last: BTreeMap<(Framework, bool), bool> = BTreeMap::new();
        for written in &remedy.written {
            let unbounded = written.since.is_none() && written.until.is_none();
            let hidden = last.insert((written.framework, written.kind == Kind::Flag), unbounded) == Some(true);
            assert!(!hidden, "{}: words for {} follow words for every release", remedy.id, written.framework);
            if let (Some(since), Some(until)) = (&written.since, &written.until) {
                assert!(since < until, "{}: {}", remedy.id, written.framework);
            }
        }
    }
}

#[test]
fn every_cause_and_every_owner_has_a_remedy() {
    for cause in Cause::ALL {
        assert!(remedies().iter().any(|remedy| remedy.when.causes.contains(cause)), "{}", cause.id());
    }
    for owner in OwnerGroup::ALL {
        let shrinks = |remedy: &Remedy| remedy.effects.iter().any(|effect| effect.owner == *owner);
        assert!(remedies().iter().any(shrinks), "{}", owner.id());
    }
}

#[test]
fn every_framework_is_spoken() {
    let mut spoken: BTreeMap<Framework, usize> = BTreeMap::new();
    for written in remedies().iter().flat_map(|remedy| &remedy.written) {
        *spoken.entry(written.framework).or_default() += 1;
    }
    let silent: Vec<_> = Framework::ALL.iter().filter(|framework| !spoken.contains_key(framework)).collect();
    assert!(silent.is_empty(), "no remedy is written for {silent:?}");
    // What people use most must have more than a few words.
    for framework in [
        Framework::Pytorch,
        Framework::Transformers,
        Framework::Diffusers,
        Framework::Vllm,
        Framework::LlamaCpp,
        Framework::Ollama,
        Framework::Comfyui,
        Framework::Automatic1111,
        Framework::Kohya,
        Framework::Axolotl,
        Framework::LlamaFactory,
        Framework::Torchtune,
        Framework::Deepspeed,
        Framework::Lightning,
    ] {
        assert!(spoken[&framework] >= 6, "{framework}: {}", spoken[&framework]);
    }
}

#[test]
fn a_broken_file_is_refused_with_its_reason() {
    let refused = |text: &str| Catalogue::parse([("broken.toml", text)]).unwrap_err().to_string();
    assert!(refused("[[remedy]]\nid = 3").contains("broken.toml"));
    assert!(refused("[[remedies]]").contains("unknown field"));
    let entry = |id: &str, effect: &str, conflicts: &str| {
        format!(
            "[[remedy]]\nid = \"{id}\"\ntitle = \"t\"\nchanges = \"c\"\nbecause = \"b\"\nsameness = \"exact\"\n\
             time = {{ class = \"none\", text = \"t\", source = \"s\" }}\nwhen = {{ causes = [\"full\"] }}\n\
             effects = [{{ owner = \"parameters\", {effect} source = \"s\" }}]\nconflicts = [{conflicts}]\n\
             dry_run = {{ kind = \"none\", what = \"w\" }}\nwritten = [{{ in = \"pytorch\", code = \"x\" }}]\n"
        )
    };
    let good = entry("one", "keeps = 0.5,", "");
    assert!(Catalogue::parse([("good.toml", good.as_str())]).is_ok());
    assert!(refused(&format!("{good}{good}")).contains("two entries"));
    assert!(refused(&entry("one", "", "")).contains("exactly one of keeps, formula and adds"));
    assert!(refused(&entry("one", "keeps = 0.5,", "\"two\"")).contains("not in the catalogue"));
    assert!(refused(&good.replace("code = \"x\"", "code = \"x\", flag = \"y\"")).contains("exactly one of flag"));
    assert!(refused(&good.replace("\"full\"", "\"sunspots\"")).contains("sunspots"));
    assert!(refused(&good.replace("pytorch", "fortran")).contains("fortran"));
    assert!(refused(&good.replace("\"x\"", "\"x = {half_moon}\"")).contains("{half_moon}"));
}

#[test]
fn a_loop_around_a_library_is_not_offered_flags() {
    let written = |id: &str, frameworks: &[Installed]| {
        let remedy = Catalogue::builtin().get(id).unwrap();
        remedy.written_for(frameworks).map(|written| (written.framework, written.kind))
    };
    let transformers = Installed::new(Framework::Transformers, "5.23.0");
    let torch = Installed::new(Framework::Pytorch, "2.15.0");
    let trainer = [transformers.clone(), torch.clone()];
    let library = [transformers.as_library(), torch];
    assert_eq!(written("fused-cross-entropy", &trainer), Some((Framework::Transformers, Kind::Flag)));
    assert_eq!(written("fused-cross-entropy", &library), Some((Framework::Pytorch, Kind::Code)));
    assert_eq!(written("gradient-checkpointing", &library), Some((Framework::Transformers, Kind::Code)));
    assert_eq!(written("adam-8bit", &library), Some((Framework::Pytorch, Kind::Code)));
}

#[test]
fn what_concerns_another_framework_is_not_said() {
    let note = |id: &str, framework: Framework| {
        Catalogue::builtin().get(id).unwrap().note_before_use(&[framework.into(), Framework::Pytorch.into()])
    };
    for remedy in remedies().iter().filter(|remedy| note(&remedy.id, Framework::Pytorch).is_some()) {
        let said = note(&remedy.id, Framework::Pytorch).unwrap();
        for framework in Framework::ALL.iter().filter(|other| **other != Framework::Pytorch) {
            // A source may be named: bitsandbytes#1569.
            let title = framework.title();
            let named = said.match_indices(title).any(|(at, _)| !said[at + title.len()..].starts_with('#'));
            assert!(!named, "{}: {said}", remedy.id);
        }
    }
    assert!(note("micro-batch", Framework::Detectron2).unwrap().contains("BASE_LR"));
    assert!(!note("micro-batch", Framework::Timm).unwrap().contains("BASE_LR"));
}

/// What the catalogue says that the hook applies, the hook knows, and nothing else.
#[test]
fn the_hook_and_the_catalogue_agree() {
    let table = include_str!("../../../python/oomph/remedies/__init__.py");
    let applied: BTreeSet<&str> =
        table.lines().filter_map(|line| line.strip_prefix("    \"")?.split_once("\": (").map(|(id, _)| id)).collect();
    let said = remedies().iter().filter(|remedy| remedy.dry_run.by_hook()).map(|remedy| remedy.id.as_str());
    assert_eq!(said.collect::<BTreeSet<_>>(), applied);
}

#[test]
fn what_a_program_uses_is_shown_by_what_it_was_seen_to_be() {
    let of = |facts: &[(&str, Option<&str>)]| {
        let mut seen = Seen::default();
        for (name, value) in facts {
            match value {
                Some(value) => seen.value(name, Some(value)),
                None => seen.add(true, name),
            }
        }
        Catalogue::builtin().shown_by(&seen).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(of(&[("adapters", None)]), ["lora"]);
    assert_eq!(of(&[("adapters", None), ("quantized", Some("4bit"))]), ["qlora"]);
    assert_eq!(of(&[("quantized", Some("4bit"))]), ["weights-nf4"]);
    assert_eq!(of(&[("pipeline", None)]), [""; 0]);
    assert_eq!(of(&[("pipeline", None), ("torch>=2", None)]), ["sdpa"]);
    assert_eq!(of(&[("argument", Some("fp16")), ("optimizer", Some("Adafactor"))]), ["adafactor", "autocast"]);
}

/// Lightning runs the loop, so its users cannot do what a loop of one's own does.
#[test]
fn no_remedy_breaks_the_loop_of_lightning() {
    let frameworks = [Framework::Lightning.into(), Framework::Pytorch.into()];
    let of_others =
        |remedy: &&Remedy| !remedy.when.frameworks.is_empty() && !remedy.when.frameworks.contains(&Framework::Pytorch);
    for remedy in remedies().iter().filter(|remedy| !of_others(remedy)) {
        let Some(written) = remedy.written_for(&frameworks).filter(|written| written.kind == Kind::Code) else {
            continue;
        };
        for of_a_loop in ["backward()", "optimizer.step", "model.parameters()", "loss = model(", "if step %"] {
            assert!(!written.words.contains(of_a_loop), "{}: {}", remedy.id, written.words);
        }
    }
    let written = |id: &str| Catalogue::builtin().get(id).and_then(|remedy| remedy.written_for(&frameworks)).unwrap();
    assert_eq!(written("autocast").words, "Trainer(precision=\"{half_precision}-mixed\")");
    assert!(written("micro-batch").words.contains("accumulate_grad_batches"));
    assert!(written("adam-8bit").words.contains("configure_optimizers"));
}
