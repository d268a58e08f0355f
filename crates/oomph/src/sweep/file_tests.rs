use super::*;

const GOOD: &str = "\
program: python train.py --lr {lr} --name '{name}'
matrix:
  gpu: [t4, l4]
  lr: [1e-4, 0.10, 2]
  name: [\"two words\", 'it''s']
env: {PYTORCH_ALLOC_CONF: 'expandable_segments:{name}'}
exclude: [{gpu: t4, lr: [2, 1e-4]}]
steps: 3
";

fn parsed(text: &str) -> Result<SweepFile> {
    SweepFile::parse(Path::new("sweep.yaml"), text)
}

/// The error and its hint, as they are shown.
fn refused(text: &str) -> String {
    let error = parsed(text).unwrap_err();
    let hint = format!("{:?}", error.downcast_ref::<crate::failure::Hinted>());
    format!("{error} | {hint}")
}

#[test]
fn values_stay_as_they_are_written() {
    let file = parsed(GOOD).unwrap();
    assert_eq!(file.axes[1].values, ["1e-4", "0.10", "2"]);
    assert_eq!(file.axes[2].values, ["two words", "it's"]);
    // The words are parted before values are put in, so that a value with spaces stays one word.
    assert_eq!(file.program.len(), 6);
    assert_eq!(file.exclude, [vec![(0, vec!["t4".to_owned()]), (1, vec!["2".to_owned(), "1e-4".to_owned()])]]);
    let options: Vec<&str> = file.options.iter().map(|(word, _)| word.as_str()).collect();
    assert_eq!(options, ["--steps", "--gpu"]);
}

#[test]
fn a_mistake_has_a_line_and_advice() {
    for (text, line, parts) in [
        ("program: a {b}\nmatrx:\n  b: [1]\n", "line 2", ["no key `matrx`", "did you mean `matrix`?"]),
        ("program: a {b}\nmatrix:\n  b: [1]\n  c: [2]\n", "line 4", ["nothing uses the axis `c`", "{c}"]),
        ("program: a {bacth}\nmatrix:\n  batch: [1]\n", "line 1", ["{bacth} is not an axis", "did you mean `batch`?"]),
        ("program: a {b}\nmatrix:\n  b: [1, 1]\n", "line 3", ["the value `1` twice", "leave one out"]),
        ("program: a {b}\nmatrix:\n  b: []\n", "line 3", ["no values", "lists"]),
        ("program: a {b}\nmatrix:\n  b: [{c: 1}]\n", "line 3", ["not a plain value", "lists"]),
        ("program: A=1 a {b}\nmatrix: {b: [1]}\n", "line 1", ["begins with a variable", "env:"]),
        ("program: a '{b}\nmatrix: {b: [1]}\n", "line 1", ["a quote is not closed", "program"]),
        ("program: a {b}\nmatrix: {b: [1]}\nexclude: [{b: 2}]\n", "line 3", ["`2` is not a value of `b`", "value"]),
        ("program: a {b}\nmatrix: {b: [1]}\nexclude: [{}]\n", "line 3", ["exclude everything", "exclude"]),
        ("program: a {b}\nmatrix: {b: [1]}\nallow-writes: true\n", "line 3", ["may not write", "dry-run"]),
        ("program: a {b}\nmatrix: {b: [1]}\nuntil-exit: maybe\n", "line 3", ["neither true nor false", "dry-run"]),
        ("program: a\nprogram: b\n", "line 2", ["duplicated key", "YAML"]),
    ] {
        let message = refused(text);
        assert!(message.contains(line) && parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
    assert!(refused("matrix: {b: [1]}\n").contains("does not say what to run"));
    assert!(refused("program: a\n").contains("no matrix"));
    assert!(refused("").contains("documents"));
}

#[test]
fn a_sweep_without_end_is_refused() {
    let values = |name: &str| {
        format!("  {name}: [{}]\n", (0..200).map(|value| value.to_string()).collect::<Vec<_>>().join(", "))
    };
    let text = format!("program: x {{a}} {{b}} {{c}}\nmatrix:\n{}{}{}", values("a"), values("b"), values("c"));
    assert!(refused(&text).contains("8000000 runs"));
}
