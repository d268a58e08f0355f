//! The table of messages is data: each entry is held to its own example.

use super::explain_text;
use super::kind::Kind;
use super::patterns::{Table, Verdict};
use super::quoted;

#[test]
fn every_expression_compiles_and_ids_are_unique() {
    let patterns = Table::builtin().patterns();
    assert!(patterns.len() > 80, "{}", patterns.len());
    for (place, pattern) in patterns.iter().enumerate() {
        assert!(patterns[..place].iter().all(|other| other.id != pattern.id), "{} twice", pattern.id);
        let all = [Some(&pattern.head), pattern.unless.as_ref(), pattern.needs.as_ref(), pattern.signs.as_ref()];
        for expression in all.into_iter().flatten().chain(&pattern.details).chain(&pattern.survived) {
            assert!(expression.regex().is_some(), "{}: an expression does not compile", pattern.id);
        }
    }
}

#[test]
fn every_pattern_reads_its_example() {
    let mut wrong = Vec::new();
    for pattern in Table::builtin().patterns() {
        let report = explain_text(&pattern.example);
        let Some(failure) = report.failures.first() else {
            wrong.push(format!("{}: nothing found", pattern.id));
            continue;
        };
        if failure.pattern != pattern.id {
            wrong.push(format!("{}: read as {}", pattern.id, failure.pattern));
        }
        if failure.is_gpu_oom != (pattern.verdict == Verdict::GpuOom) {
            wrong.push(format!("{}: is_gpu_oom {} ({:?})", pattern.id, failure.is_gpu_oom, failure.not_oom));
        }
        let facts = &failure.facts;
        for (name, expected) in &pattern.facts {
            let read = match name.as_str() {
                "device" => facts.device.map(u64::from),
                "requested" => facts.requested_bytes,
                "capacity" => facts.capacity_bytes,
                "free" => facts.free_bytes,
                "allocated" => facts.allocated_bytes,
                "reserved" => facts.reserved_bytes,
                "process" => facts.process_bytes,
                "unallocated" => facts.unallocated_bytes,
                "private_pools" => facts.private_pools_bytes,
                "limit" => facts.limit_bytes,
                other => panic!("{}: no fact is called {other}", pattern.id),
            };
            if read.is_none_or(|read| read.abs_diff(*expected) > 1) {
                wrong.push(format!("{}: {name} is {read:?}, not {expected}", pattern.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_message_without_figures_in_a_script_is_a_quotation() {
    for text in [
        r#"if grep -q -E "CUDA out of memory|torch\.cuda\.OutOfMemoryError" "$log"; then echo oom; fi"#,
        "    except torch.cuda.OutOfMemoryError:\n        torch.cuda.empty_cache()\n",
    ] {
        let report = explain_text(text);
        let failure = &report.failures[0];
        assert!(!failure.is_gpu_oom, "{text}");
        assert_eq!(failure.not_oom.as_ref().map(|not| not.kind), Some(Kind::ConfigurationText));
        assert!(failure.remedies.is_empty());
    }
    assert!(quoted::likeness("grep -c OOM", "", true) > 0.9);
}

#[test]
fn a_clean_log_has_no_failures() {
    let report = explain_text("step 1 loss 0.4\nbatch_size: 8\nTraining done, peak memory 3 GiB\n");
    assert!(report.failures.is_empty());
    assert_eq!(report.settings.number("batch_size"), Some(8));
    assert_eq!(report.lines, 3);
}
