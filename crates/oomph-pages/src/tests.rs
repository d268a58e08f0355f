//! Tests what counts as a command line.

use super::{Place, call, command_lines, quoted_calls};

const PAGE: &str = "\
# A page

    oomph explain train.log   # why
    $ oomph query 'a #b' | oomph explain - # both
    $ oomph dry-run --gpu t4 -- \\
        python train.py

prints this, and so does `oomph explain
-` in a pipe. `oomph.watch()` is Python, and `pip install oomph` is pip.
    oomph is indented here, but it is part of the paragraph.

```yaml
oomph explain not.sh
```

```text
oomph watch      watched for 2 minutes
```

```sh
python train.py 2>&1 | oomph explain -
echo oomph is here
```

| `oomph gpus` | an open ` quote |
| `oomph doctor` | |
";

#[test]
fn command_lines_are_in_shell_blocks_and_in_backquotes() {
    let found = command_lines(PAGE);
    let found: Vec<_> = found.iter().map(|line| (line.number, line.text.as_str(), line.place)).collect();
    let expected = [
        (3, "oomph explain train.log", Place::Block),
        (4, "oomph query 'a #b' | oomph explain -", Place::Block),
        (5, "oomph dry-run --gpu t4 -- python train.py", Place::Block),
        (8, "oomph explain -", Place::Backquotes),
        (21, "python train.py 2>&1 | oomph explain -", Place::Block),
        (25, "oomph gpus", Place::Backquotes),
        (26, "oomph doctor", Place::Backquotes),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_call_is_found_in_its_line() {
    let calls = [
        ("oomph watch --once", Some("oomph watch --once")),
        ("cargo run --release -- gpus t4", Some("oomph gpus t4")),
        ("python train.py 2>&1 | oomph explain -", Some("oomph explain -")),
        (
            "CUDA_VISIBLE_DEVICES=$(oomph watch --until 'free>1GiB') python t.py",
            Some("oomph watch --until 'free>1GiB'"),
        ),
        ("sudo oomph attach", Some("oomph attach")),
        ("NO_COLOR=1 oomph gpus", Some("oomph gpus")),
        ("cargo test -p oomph --test cli", None),
        ("docker build -t oomph .", None),
        ("oomph", None),
    ];
    for (line, expected) in calls {
        assert_eq!(call(line).as_deref(), expected, "{line}");
    }
}

#[test]
fn an_open_quote_ends_with_its_paragraph() {
    assert_eq!(quoted_calls("an open ` quote\n\nthen `oomph gpus` and `oomph.watch()`"), ["oomph gpus"]);
}

#[test]
fn a_fence_is_not_a_quote() {
    let transcript = "```\n$ oomph fix\nerror: `a` is not tried\nhint: another; oomph plan says which\n\n```\n";
    assert!(quoted_calls(transcript).is_empty());
}
