//! Tests of what is read and refused, through the command lines that take it.

use std::time::Duration;

use clap::Parser as _;
use oomph_explain::snapshot::At;

use super::*;
use crate::cli::{Cli, Command, JobOptions, Scheduler};

fn error(words: &str) -> clap::Error {
    let words = std::iter::once("oomph").chain(words.split(' '));
    Cli::try_parse_from(words).expect_err("the command line is refused")
}

fn parsed(words: &str) -> Command {
    let words = std::iter::once("oomph").chain(words.split(' '));
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).command
}

/// A wrong value of each kind, and what the error begins with.
const WRONG: &[(&str, &str)] = &[
    ("dry-run --gpu rtx-3061 -- x", "there is no GPU `rtx-3061` in the catalogue"),
    ("dry-run --gpu h100:many -- x", "`many` in --gpu h100:many is not a number of cards"),
    ("dry-run --gpu h100:0 -- x", "`0` in --gpu h100:0 is not a number of cards"),
    ("dry-run --gpu l4,,l4 -- x", "--gpu has an empty name"),
    ("dry-run --vram 0 -- x", "--vram 0 leaves nothing to run on"),
    ("dry-run --vram much -- x", "--vram: \"much\" is not a size"),
    ("dry-run --vram 9999TiB -- x", "--vram 9999TiB is more than any card has"),
    ("dry-run --steps 0 -- x", "--steps 0 would stop before anything happened"),
    ("dry-run --budget 0s -- x", "--budget `0s` is not a duration"),
    ("dry-run --timeout soon -- x", "--timeout `soon` is not a duration"),
    ("dry-run --ranks first -- x", "--ranks `first` does not name ranks"),
    ("fix --target 0 -- x", "--target 0 leaves no memory to fit into"),
    ("fix --target much -- x", "--target: \"much\" is not a size"),
    ("fix --margin 100% -- x", "--margin `100%` is not a size"),
    ("fix --max-time never -- x", "--max-time `never` is not a duration"),
    ("fix --write first fixed.sh -- x", "--write: `first` is not the number of a fix"),
    ("fix --write 0 fixed.sh -- x", "--write: `0` is not the number of a fix"),
    ("tune --vary b -- x", "--vary `b` has no values"),
    ("tune --vary b=4..1 -- x", "--vary `b=4..1` ends before it begins"),
    ("tune --vary b=1..2 --keep b=4 -- x", "--keep `b=4` is not understood"),
    ("tune --vary b=1..2 --env =1 -- x", "--env `=1` sets nothing"),
    ("tune --vary b=1..2 --margin some -- x", "--margin `some` is not a size"),
    ("sweep a.yaml --write slrum jobs", "--write: there is no kind of job `slrum`"),
    ("sweep a.yaml --write kubernetes jobs", "a job of Kubernetes needs --image"),
    ("sweep a.yaml --write kubernetes jobs --image me", "a job of Kubernetes needs --claim"),
    ("sweep a.yaml --write slurm jobs --image me", "--image is for jobs of Kubernetes"),
    ("sweep a.yaml --write ray jobs --claim me", "--claim is for jobs of Kubernetes"),
    ("sweep a.yaml --cell 3-1", "--cell `3-1` is not the number of a cell"),
    ("run --rehearse h100:x -- x", "`x` in --rehearse h100:x is not a number of cards"),
    ("run --vram 0 -- x", "--vram 0 leaves nothing to run on"),
    ("run --margin 120% -- x", "--margin `120%` is not a size"),
    ("run --max-time 1x -- x", "--max-time `1x` is not a duration"),
    ("watch --until free=8GiB", "--until `free=8GiB`: there is neither `>` nor `<`"),
    ("watch --alert free<120%", "--alert `free<120%`: that is not a percentage"),
    ("watch --interval 10ms", "--interval 10ms is too short"),
    ("watch --interval often", "--interval `often` is not a duration"),
    ("watch --timeout 0", "--timeout `0` is not a duration"),
    ("watch --metrics 0.0.0.0:9400", "--metrics 0.0.0.0:9400: others could read it"),
    ("watch --metrics here", "--metrics here is not an address with a port"),
    ("calibrate --rehearse rtx-9999", "there is no GPU `rtx-9999`"),
    ("calibrate --rehearse l4 --rehearse-context much", "--rehearse-context: \"much\" is not a size"),
    ("explain --at yesterday a.log", ""),
    ("explain --gpu rtx-9999 a.log", "there is no GPU `rtx-9999`"),
    ("view --vram some a.pickle", "--vram: \"some\" is not a size"),
    ("check a.json --max-peak lots", "--max-peak: \"lots\" is not a size"),
    ("check a.json --max-allocated 1QiB", "--max-allocated: \"QiB\" is not a unit of size"),
    ("check a.json --baseline b.json --max-growth x%", "--max-growth: `x%` is not a percentage"),
    ("check a.json --baseline b.json --max-growth 9999999999%", "--max-growth: `9999999999%` is not a sensible"),
    ("plan gpt2 --gpu rtx-9999", "there is no GPU `rtx-9999`"),
    ("plan gpt2 --gpu h100:100001", "--gpu h100:100001 names more cards than a plan is for"),
    ("plan gpt2 --gpus 0xh100", "`0` in --gpus 0xh100 is not a number of cards"),
    ("plan gpt2 --vram 0", "--vram 0 leaves nothing to run on"),
    ("plan gpt2 --resolution 1x2x3", "`1x2x3` is not a resolution"),
    ("plan gpt2 --resolution 4", "`4` is not a resolution"),
    ("plan gpt2 --optimizer magic", "there is no optimizer `magic` here"),
    ("plan gpt2 --gguf Q99", "there is no GGUF quantization `Q99` here"),
    ("gpus rtx-9999", "there is no GPU `rtx-9999`"),
    ("cache clean --older-than soon", "--older-than `soon` is not a duration"),
];

#[test]
fn a_wrong_value_is_refused_in_one_line_with_a_hint() {
    for (words, start) in WRONG {
        let error = error(words);
        let refused = refused(&error).unwrap_or_else(|| panic!("{words}: {error}"));
        let message = refused.to_string();
        assert!(message.starts_with(start) && !message.contains('\n'), "{words}: {message}");
        assert!(!refused.hint().is_empty() && !refused.hint().contains('\n'), "{words}: {}", refused.hint());
    }
}

#[test]
fn what_clap_refuses_is_its_own() {
    for words in ["dry-run --steps x -- x", "dry-run --values some -- x", "dry-run --gpuu l4 -- x", "watch --gpu one"] {
        assert!(refused(&error(words)).is_none(), "{words}");
    }
    #[cfg(target_os = "linux")]
    assert!(refused(&error("attach --timeout soon 1")).is_some());
    // An option that another one does not go with is reported although its value can be read.
    assert!(refused(&error("dry-run --steps 3 --until-exit -- x")).is_none());
}

#[test]
fn durations_have_units_and_are_never_zero() {
    for (text, seconds) in [
        ("90", 90.0),
        ("1.5", 1.5),
        ("90s", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1h 5s", 3605.0),
    ] {
        assert_eq!(duration("--timeout", text).ok(), Some(Duration::from_secs_f64(seconds)), "{text}");
    }
    for wrong in ["", "0", "0s", "-1", "1x", "s", "1h30", "1..5s", "nan", "inf", "1e99", "99999999999999999999d", "é"]
    {
        assert!(duration("--timeout", wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(interval("--interval", "250ms").ok(), Some(Duration::from_millis(250)));
}

#[test]
fn amounts_are_sizes_or_shares() {
    assert_eq!(margin("--margin", "1GiB").unwrap().of(8 << 30), 1 << 30);
    assert_eq!(margin("--margin", " 25 % ").unwrap().of(8 << 30), 2 << 30);
    assert_eq!(growth("--max-growth", "250%").unwrap().of(100), 250);
    assert_eq!(growth("--max-growth", "500MiB").unwrap().of(1), 500 << 20);
    for wrong in ["", "much", "100%", "-1%", "x%", "nan%"] {
        assert!(margin("--margin", wrong).is_err(), "{wrong:?}");
    }
    for wrong in ["", "much", "-1%", "x%", "nan%", "inf%"] {
        assert!(growth("--max-growth", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn cards_are_counted_before_or_after_their_name() {
    let read = |cards: Result<NamedCards, Hinted>| cards.ok().map(|cards| (cards.gpu.id.as_str(), cards.count));
    assert_eq!(read(cards("--gpu", "RTX 4090:2")), Some(("rtx-4090", 2)));
    assert_eq!(read(cards("--gpu", " l4 ")), Some(("l4", 1)));
    assert_eq!(read(counted_cards("--gpus", "8xh100")), read(cards("--gpu", "h100:8")));
    // This name has an x of its own.
    assert_eq!(read(counted_cards("--gpus", "rtx-4090")), Some(("rtx-4090", 1)));
    for wrong in ["4090:0", "4090:x", "4090:", "4090:99999999999999999999", "", ":2", "l4:-1"] {
        assert!(cards("--gpu", wrong).is_err(), "{wrong:?}");
    }
    for wrong in ["0xh100", "x", "", "8x", "99999999999999999999xh100", "100001xh100", "-1xh100"] {
        assert!(counted_cards("--gpus", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn ranks_and_cells_are_numbers_and_ranges() {
    assert_eq!(ranks("--ranks", "0, 2-3 ,last").map(|ranks| ranks.to_string()).ok().as_deref(), Some("0,2-3,last"));
    for wrong in ["", "first", "3-1", "0,,1", "-1", "0-last"] {
        assert!(ranks("--ranks", wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(cells("--cell", "7").ok(), Some(7..=7));
    assert_eq!(cells("--cell", "4-11").ok(), Some(4..=11));
    for wrong in ["-1", "3-1", "a", "", "1,2", "1-"] {
        assert!(cells("--cell", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn what_is_varied_is_a_range_or_a_list() {
    let shown = |text: &str| vary("--vary", text).map(|vary| vary.to_string()).ok();
    assert_eq!(shown("b=8..=64").as_deref(), Some("b=8..64"));
    assert_eq!(shown(" seq = 9, 3,9").as_deref(), Some("seq=9,3,9"));
    for wrong in ["b", "=1..2", "b=4..1", "b=x", "b=", "b=1..", "{b}=1..2", "b=-1..4"] {
        assert!(vary("--vary", wrong).is_err(), "{wrong}");
    }
    assert_eq!(
        keep("--keep", "batch * accum = 64").map(|keep| keep.to_string()).ok().as_deref(),
        Some("batch*accum=64")
    );
    for wrong in ["", "b=4", "b*a", "b*a=0", "b*a=x"] {
        assert!(keep("--keep", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn conditions_say_what_to_write() {
    for text in ["", "free", "free>", "free>lots", "free>120%", "free>-1%", "busy>1GiB", "free=1GiB", "free>1 apple"] {
        let error = condition("--until", text).unwrap_err();
        assert!(error.to_string().starts_with("--until `") && error.hint().contains("--until '"), "{error}");
    }
    assert_eq!(condition("--alert", "free<10%").ok(), Some(Condition::nearly_full()));
}

#[test]
fn moments_and_sides_of_images() {
    assert_eq!(moment("--at", "end").ok(), Some(At::End));
    assert_eq!(moment("--at", "-5").ok(), Some(At::Time(-5)));
    assert_eq!(resolution("--resolution", "1024").ok(), Some((1024, 1024)));
    assert_eq!(resolution("--resolution", "1216 X 832").ok(), Some((1216, 832)));
    for wrong in ["", "7", "65537", "8x", "a"] {
        assert!(resolution("--resolution", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn several_words_make_one_value() {
    let job = |words: &str| match parsed(words) {
        Command::Sweep(args) => args.job.0,
        other => panic!("not a sweep: {other:?}"),
    };
    assert_eq!(job("sweep a.yaml"), None);
    let scheduler = Scheduler::Kubernetes { image: "me".into(), claim: "work".into() };
    let expected = JobOptions { scheduler, folder: "jobs".into(), parallel: Some(20), per_task: None };
    assert_eq!(job("sweep a.yaml --write kubernetes jobs --image me --claim work --parallel 20"), Some(expected));
    let Command::Fix(args) = parsed("fix --write 2 fixed.sh -- x") else { panic!("not a fix") };
    assert_eq!(args.write.0.map(|file| (file.number, file.path)), Some((2, "fixed.sh".into())));
}

#[test]
fn the_text_of_a_value_is_kept_where_it_is_repeated() {
    let Command::Fix(args) = parsed("fix --gpu 4090:2,l4 --vram 8G --target 7.5GB --margin 10% -- x") else {
        panic!("not a fix")
    };
    let names: Vec<&str> = args.program.gpu.iter().map(|cards| cards.text.as_str()).collect();
    assert_eq!(names, ["4090:2", "l4"]);
    assert_eq!(args.program.vram.map(|vram| (vram.value.0, vram.text)), Some((8 << 30, "8G".into())));
    assert_eq!(args.target.map(|target| (target.value.0, target.text)), Some((7_500_000_000, "7.5GB".into())));
    assert_eq!(args.margin.map(|margin| (margin.value, margin.text)), Some((Amount::Percent(10.0), "10%".into())));
}
