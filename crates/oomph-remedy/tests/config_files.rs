//! Remedies in the configuration files that a command line names.

use oomph_remedy::rewrite::{CannotRewrite, Into, Line, Rewrite, renamed, rewrite};
use oomph_remedy::{Catalogue, Situation};

fn line(words: &str, files: &[(&str, &str)]) -> Line {
    let words = shlex::split(words).unwrap_or_else(|| panic!("{words}"));
    let read = |name: &str| files.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    Line::reading(words, read)
}

fn apply(line: &Line, remedy: &str, into: Into) -> Result<Rewrite, CannotRewrite> {
    let remedy = Catalogue::builtin().get(remedy).unwrap_or_else(|| panic!("{remedy}"));
    rewrite(line, remedy, &Situation::default(), into)
}

/// The words after a remedy, and the texts of the files that it changed.
fn after(words: &str, files: &[(&str, &str)], remedy: &str, into: Into) -> (String, Vec<String>) {
    let before = line(words, files);
    let rewritten = apply(&before, remedy, into).unwrap_or_else(|error| panic!("{remedy} of {words}: {error}"));
    let texts = rewritten.line.files_changed_since(&before).map(|(_, text)| text.to_owned()).collect();
    (rewritten.shell(), texts)
}

const AXOLOTL: &str = "base_model: NousResearch/Llama-3.2-1B\n# the largest that fits\nmicro_batch_size: 8\n\
                       gradient_accumulation_steps: 2\nplugins:\n  - my.Plugin\n";

#[test]
fn a_batch_in_a_file_is_known_on_the_line() {
    let (words, files) = after("axolotl train run.yml", &[("run.yml", AXOLOTL)], "micro-batch", Into::Line);
    assert_eq!(words, "axolotl train run.yml --micro-batch-size 4 --gradient-accumulation-steps 4");
    assert_eq!(files, [""; 0]);
    let factory = "per_device_train_batch_size: 4\n";
    let (words, _) = after("llamafactory-cli train sft.yaml", &[("sft.yaml", factory)], "micro-batch", Into::Line);
    assert_eq!(words, "llamafactory-cli train sft.yaml per_device_train_batch_size=2 gradient_accumulation_steps=2");
    let recipe = "batch_size: 2\ntokenizer:\n  max_seq_len: 8192\n";
    let tune = "tune run lora_finetune_single_device --config my.yaml";
    let (words, _) = after(tune, &[("my.yaml", recipe)], "shorter-sequence", Into::Line);
    assert_eq!(words, format!("{tune} tokenizer.max_seq_len=4096"));
    let lora = "[train]\ntrain_batch_size = 4\n";
    let kohya = "accelerate launch train_network.py --config_file lora.toml --train_batch_size 6";
    let (words, _) = after(kohya, &[("lora.toml", lora)], "micro-batch", Into::Line);
    assert!(words.contains("--train_batch_size 3 "), "what the line says counts: {words}");
}

#[test]
fn what_the_line_cannot_say_goes_into_the_file() {
    let (words, files) = after("axolotl train run.yml", &[("run.yml", AXOLOTL)], "fused-cross-entropy", Into::Line);
    assert_eq!(words, "axolotl train run.yml");
    assert_eq!(
        files,
        ["base_model: NousResearch/Llama-3.2-1B\n# the largest that fits\nmicro_batch_size: 8\n\
          gradient_accumulation_steps: 2\nplugins:\n  - my.Plugin\n  - axolotl.integrations.liger.LigerPlugin\n\
          liger_fused_linear_cross_entropy: true\n"]
    );
    let unread = apply(&line("axolotl train run.yml", &[]), "fused-cross-entropy", Into::Line);
    assert!(matches!(unread, Err(CannotRewrite::NotAnArgument { .. })), "{unread:?}");
}

#[test]
fn all_of_it_goes_into_the_file_where_that_is_wanted() {
    let (words, files) = after("axolotl train run.yml", &[("run.yml", AXOLOTL)], "micro-batch", Into::File);
    assert_eq!(words, "axolotl train run.yml");
    assert!(files[0].contains("# the largest that fits\nmicro_batch_size: 4\ngradient_accumulation_steps: 4\n"));
    let recipe = "batch_size: 2\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: false # slow\n";
    let tune = "tune run full_finetune_single_device --config=my.yaml";
    let (words, files) = after(tune, &[("my.yaml", recipe)], "fused-optimizer", Into::File);
    assert_eq!(words, tune);
    assert_eq!(files, ["batch_size: 2\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: true # slow\n"]);
    let launcher = "compute_environment: LOCAL_MACHINE\nmixed_precision: 'no'\nnum_processes: 2\n";
    let launch = "accelerate launch --config_file acc.yaml train_text_to_image.py --train_batch_size 4";
    let (words, files) = after(launch, &[("acc.yaml", launcher)], "zero-2", Into::File);
    assert_eq!(words, launch);
    assert!(files[0].contains("distributed_type: DEEPSPEED") && files[0].contains("zero_stage"), "{}", files[0]);
}

#[test]
fn a_file_that_is_the_only_argument_is_where_it_is_said() {
    let arguments = "{\n  \"output_dir\": \"out\",\n  \"per_device_train_batch_size\": 8,\n  \"fp16\": true\n}\n";
    for script in ["run_clm.py", "my_own.py"] {
        let words = format!("python {script} args.json");
        let (same, files) = after(&words, &[("args.json", arguments)], "micro-batch", Into::Line);
        assert_eq!(same, words);
        assert_eq!(
            files,
            ["{\n  \"output_dir\": \"out\",\n  \"per_device_train_batch_size\": 4,\n  \"fp16\": true,\n  \
              \"gradient_accumulation_steps\": 2\n}\n"]
        );
    }
    let (_, files) = after("python run_clm.py args.json", &[("args.json", arguments)], "autocast", Into::Line);
    assert!(files[0].contains("\"fp16\": false") && files[0].contains("\"bf16\": true"), "{}", files[0]);
    let unknown = apply(&line("python my_own.py args.json", &[("args.json", "{\"a\": 1}")]), "autocast", Into::Line);
    assert_eq!(unknown.unwrap_err(), CannotRewrite::UnknownProgram);
}

#[test]
fn a_file_of_deepspeed_changes_with_the_arguments() {
    let fixed = "{\"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": \"auto\", \
                 \"zero_optimization\": {\"stage\": 1}}";
    let words = "deepspeed run_clm.py --deepspeed ds.json --per_device_train_batch_size 8";
    let (line, files) = after(words, &[("ds.json", fixed)], "micro-batch", Into::Line);
    assert!(line.contains("--per_device_train_batch_size 4"), "{line}");
    assert!(files[0].contains("\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": \"auto\""));
    let (line, files) = after(words, &[("ds.json", fixed)], "zero-3", Into::Line);
    assert_eq!(line, words);
    assert!(files[0].contains("\"stage\": 3"), "{}", files[0]);
    let own = "deepspeed train.py --per_device_train_batch_size 8 --deepspeed_config ds.json";
    let (_, files) = after(own, &[("ds.json", fixed)], "optimizer-cpu-offload", Into::Line);
    assert!(files[0].contains("\"stage\": 2") && files[0].contains("\"device\": \"cpu\""), "{}", files[0]);
}

#[test]
fn a_file_that_deepspeed_needs_is_made_for_launchers_that_start_it() {
    let before = line("torchrun --nproc_per_node 2 run_clm.py --output_dir out", &[]);
    let rewritten = apply(&before, "zero-3", Into::Line).unwrap();
    assert_eq!(rewritten.shell(), "torchrun --nproc_per_node 2 run_clm.py --output_dir out --deepspeed ds_z3.json");
    let (name, text) = rewritten.line.files_changed_since(&before).next().unwrap();
    assert_eq!(name, "ds_z3.json");
    assert!(text.contains("\"stage\": 3") && text.contains("\"auto\""), "{text}");
    let names = [("ds_z3.json".to_owned(), "/tmp/0-ds_z3.json".to_owned())].into();
    let other: Vec<String> =
        ["--deepspeed", "ds_z3.json", "--a=ds_z3.json", "--b=c"].map(|word| renamed(word, &names)).into();
    assert_eq!(other, ["--deepspeed", "/tmp/0-ds_z3.json", "--a=/tmp/0-ds_z3.json", "--b=c"]);
    let alone = apply(&line("python run_clm.py", &[]), "zero-3", Into::Line);
    assert!(matches!(alone, Err(CannotRewrite::NeedsFile { .. })), "{alone:?}");
}

#[test]
fn what_a_file_does_not_say_is_refused_for_its_own_reason() {
    let files = [("args.json", "{\"per_device_train_batch_size\": 8}")];
    let refused = |words: &str, remedy: &str| apply(&line(words, &files), remedy, Into::File).unwrap_err();
    assert!(matches!(refused("python run_clm.py args.json", "zero-3"), CannotRewrite::NeedsFile { .. }));
    assert!(matches!(refused("python run_clm.py args.json", "qlora"), CannotRewrite::NotAnArgument { .. }));
    // A second argument would take the file's place.
    let launched = apply(&line("torchrun run_clm.py args.json", &files), "zero-3", Into::Line).unwrap_err();
    assert!(matches!(launched, CannotRewrite::NeedsFile { .. }));
}

#[test]
fn the_difference_names_the_file() {
    let files = [("args.json", "{\"per_device_train_batch_size\": 8}")];
    let rewritten = apply(&line("python run_clm.py args.json", &files), "micro-batch", Into::Line).unwrap();
    assert_eq!(
        rewritten.diff(),
        "- args.json: \"per_device_train_batch_size\": 8\n\
         + args.json: \"gradient_accumulation_steps\": 2, \"per_device_train_batch_size\": 4"
    );
    let floor = [("args.json", "{\"per_device_train_batch_size\": 1}")];
    let refused = apply(&line("python run_clm.py args.json", &floor), "micro-batch", Into::Line);
    assert!(matches!(refused, Err(CannotRewrite::AtItsFloor { .. })), "{refused:?}");
}
