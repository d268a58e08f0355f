//! From files to answers, with the program itself.

#[path = "../../oomph-explain/tests/recording/mod.rs"]
mod recording;

mod made;

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use made::{BAD, collect, everything, fleet, log, number, oomph_fleet, rows, run};
use oomph_fleet::query::USUAL;
use serde_json::json;

#[test]
#[expect(clippy::too_many_lines, reason = "one story, whose steps share a fleet")]
fn a_fleet_is_collected_and_answers_for_each_kind_of_file() {
    let folder = tempfile::tempdir().unwrap();
    let (files, dataset) = (folder.path().join("files"), folder.path().join("dataset"));
    fleet(&files, 50);
    let (files, dataset) = (files.to_str().unwrap(), dataset.to_str().unwrap());
    let summary = collect(&[files], dataset, &["--what-if"]);
    assert_eq!(summary["logs"], 51, "{summary}");
    assert_eq!(summary["snapshots"], 2);
    assert_eq!(summary["reports"], 1);
    assert_eq!(summary["journals"], 1);
    assert_eq!(summary["bad"], BAD);

    // Logs: the day is that of the time stamp before the failure, and the figures are those of the message.
    assert_eq!(number("SELECT count(*) FROM failures WHERE source = 'log'", dataset), 50);
    assert_eq!(
        number("SELECT count(DISTINCT day) FROM failures WHERE source = 'log' AND time_is_recorded", dataset),
        20
    );
    let first = rows(
        "SELECT site_file, site_line, requested_bytes, capacity_bytes, model, day FROM failures
         WHERE source = 'log' ORDER BY requested_bytes LIMIT 1",
        dataset,
    );
    let capacity = 25_383_256_719_i64;
    let row = [
        json!("/home/ada/train.py"),
        json!(10),
        json!(100 << 20),
        json!(capacity),
        json!("org/model-10"),
        json!("2026-11-01"),
    ];
    let close = |found: &[serde_json::Value]| (found[3].as_i64().unwrap() - capacity).abs() < 1 << 24;
    assert!(close(&first[0]), "{first:?}");
    assert_eq!((&first[0][..3], &first[0][4..]), (&row[..3], &row[4..]));
    assert_eq!(
        number("SELECT number FROM facts WHERE name = 'requested_bytes' ORDER BY number DESC LIMIT 1", dataset),
        149 << 20
    );
    assert!(number("SELECT count(*) FROM causes WHERE source = 'log'", dataset) >= 50);
    assert!(number("SELECT count(*) FROM what_if WHERE known_by = 'advised'", dataset) >= 50);

    // Snapshots: owners add up to what was reserved and is on the card, and the causes to the same.
    for (table, only) in [("owners", "TRUE"), ("causes", "source = 'snapshot'")] {
        let sql = format!(
            "SELECT count(*) FROM (SELECT id, sum(bytes) AS bytes FROM {table} WHERE {only} GROUP BY id) AS sums
             JOIN reports ON sums.id = reports.id
             WHERE reports.source = 'snapshot' AND sums.bytes = coalesce(capacity_bytes, reserved_bytes)"
        );
        assert_eq!(number(&sql, dataset), 2, "{table}");
    }
    assert_eq!(number("SELECT count(*) FROM failures WHERE source = 'snapshot'", dataset), 2);
    assert!(number("SELECT count(*) FROM what_if WHERE known_by = 'replayed' AND survives", dataset) > 0);
    assert!(number("SELECT count(*) FROM stacks WHERE grouped_by = 'stack' AND name LIKE '%train.py%'", dataset) > 0);

    // Reports and journals. A leak has the line that holds the memory, whether or not the program died of it.
    let leaks = [
        [json!("model.py"), json!(3), json!(1), json!(24 << 20), json!(192 << 20)],
        [json!("train.py"), json!(14), json!(1), json!(11_000_000), json!(220_000_000)],
    ];
    assert_eq!(rows("leaks", dataset), leaks);
    let smaller = rows("smaller_cards", dataset);
    assert_eq!(smaller[0][..3], [json!("train.py"), json!("h100"), json!(85_000_000_000_i64)]);
    assert_eq!(smaller[0][6], json!(85_000_000_000_i64 - 12_600_000_000));
    let attempts = rows("restarts", dataset);
    assert_eq!(
        attempts,
        [[json!("org/model-7"), json!(1), json!(2), json!(1), json!(1.0), json!(10), json!("gradient-checkpointing")]]
    );
    assert_eq!(number("SELECT count(*) FROM failures WHERE source = 'journal'", dataset), 1);
    assert_eq!(
        rows("SELECT number, gpu, exit_status, seconds, out_of_memory FROM attempts ORDER BY number", dataset),
        [
            [json!(1), json!("rtx-4090"), json!(1), json!(3600.0), json!(true)],
            [json!(2), json!("rtx-4090"), json!(0), json!(3500.0), json!(false)],
        ]
    );
    assert_eq!(
        rows("SELECT notes FROM files WHERE kind = 'journal'", dataset),
        [[json!("lines that cannot be read: 1")]]
    );

    // What cannot be read has its reason.
    let bad = rows("SELECT path, reason FROM bad_files ORDER BY path", dataset);
    let bad: Vec<String> = bad.iter().map(|row| format!("{}: {}", row[0], row[1])).collect();
    assert_eq!(bad.len() as u64, BAD);
    assert!(bad[0].contains("cut.pickle") && bad[0].contains("ends in the middle"), "{bad:?}");
    assert!(bad[1].contains("empty.log") && bad[1].contains("empty"), "{bad:?}");
    assert!(bad[2].contains("evil.pickle") && bad[2].contains("wants to run code"), "{bad:?}");
    assert!(bad[3].contains("program") && bad[3].contains("neither a text nor"), "{bad:?}");
}

#[test]
fn collecting_again_adds_only_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let (files, dataset) = (folder.path().join("files"), folder.path().join("dataset"));
    fleet(&files, 20);
    fs::write(files.join("journal.jsonl"), made::journal(false)).unwrap();
    let (source, dataset) = (files.to_str().unwrap(), dataset.to_str().unwrap());
    collect(&[source], dataset, &[]);
    assert_eq!(number("SELECT count(*) FROM attempts", dataset), 1, "the second attempt has not ended");
    let before = everything(dataset);
    let again = collect(&[source], dataset, &[]);
    assert_eq!((&again["rows"], &again["bad"]), (&json!(0), &json!(0)), "{again}");

    // The same content under another name is known; a new log and the journal's new lines are not.
    fs::write(files.join("copy.log"), fs::read(files.join("logs/1.log")).unwrap()).unwrap();
    fs::write(files.join("new.log"), log(21, 99, 999)).unwrap();
    fs::write(files.join("journal.jsonl"), made::journal(true)).unwrap();
    let third = collect(&[source], dataset, &[]);
    assert_eq!(third["logs"], 1, "{third}");
    assert_eq!(number("SELECT count(*) FROM attempts", dataset), 2);
    assert_eq!(number("SELECT count(DISTINCT id) FROM attempts", dataset), 2);
    let failures = |rows: &[String]| rows.iter().filter(|row| row.starts_with("failures")).count();
    assert_eq!(failures(&everything(dataset)), failures(&before) + 1);
}

#[test]
fn killed_at_any_moment_nothing_is_lost_or_doubled() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fleet(&folder.path().join("files"), 1500);
    let began = std::time::Instant::now();
    collect(&[&path("files")], &path("whole"), &[]);
    let whole = began.elapsed();
    let expected = everything(&path("whole"));
    let mut random = fastrand::Rng::with_seed(7);
    let mut killed = 0;
    for round in 0..4 {
        let dataset = path(&format!("killed-{round}"));
        for _ in 0..3 {
            let words = ["-q", "collect", &path("files"), "--into", &dataset, "--batch-files", "50"];
            let mut child = oomph_fleet(&words).stdout(Stdio::null()).spawn().unwrap();
            thread::sleep(Duration::from_millis(random.u64(5..=whole.as_millis().max(50) as u64)));
            killed += usize::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        collect(&[&path("files")], &dataset, &["--batch-files", "50"]);
        assert_eq!(everything(&dataset), expected, "round {round}");
        let staged = fs::read_dir(folder.path().join(format!("killed-{round}/_staging")));
        assert_eq!(staged.map_or(0, Iterator::count), 0, "round {round}");
    }
    assert!(killed >= 3, "only {killed} collects were still at work when they were killed");
}

#[test]
fn two_collects_into_one_folder_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("dataset");
    fs::create_dir(&dataset).unwrap();
    fs::write(folder.path().join("a.log"), log(1, 1, 1)).unwrap();
    let lock = fs::File::create(dataset.join("_lock")).unwrap();
    lock.lock().unwrap();
    let words = ["collect", folder.path().join("a.log").to_str().unwrap(), "--into", dataset.to_str().unwrap()]
        .map(str::to_owned);
    let out = oomph_fleet(&words.each_ref().map(String::as_str)).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("another collect is writing to"), "{out:?}");
}

#[test]
fn every_usual_question_is_answered_of_a_full_and_of_an_empty_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fleet(&folder.path().join("files"), 60);
    collect(&[&path("files")], &path("dataset"), &["--what-if"]);
    fs::create_dir(folder.path().join("nothing")).unwrap();
    collect(&[&path("nothing")], &path("empty"), &[]);
    for usual in USUAL {
        let found = rows(usual.name, &path("dataset"));
        assert!(!found.is_empty(), "{}", usual.name);
        assert!(rows(usual.name, &path("empty")).is_empty(), "{}", usual.name);
        // Its SQL as `--list` prints it, with the comment that it begins with.
        assert_eq!(rows(usual.file, &path("dataset")), found, "{}", usual.name);
    }
    // As a view, and as a page.
    assert_eq!(number("SELECT failures FROM top_lines LIMIT 1", &path("dataset")), 9);
    run(&["query", "--html", &path("page.html"), &path("dataset")]);
    let page = fs::read_to_string(path("page.html")).unwrap();
    for usual in USUAL {
        assert!(page.contains(usual.asks()), "{}", usual.name);
    }
    assert!(page.contains("/home/ada/train.py") && !page.contains("://"), "{page}");
}

#[test]
fn functions_and_forms_of_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fleet(&folder.path().join("files"), 5);
    collect(&[&path("files")], &path("dataset"), &[]);
    let dataset = &path("dataset");
    let sql =
        "SELECT gib(process_bytes), fits('rtx-3060', process_bytes), fits('rtx-4060', 9000000000), fits('none', 1)
               FROM reports WHERE source = 'dry-run'";
    assert_eq!(rows(sql, dataset), [[json!(9e9 / f64::from(1 << 30)), json!(true), json!(false), json!(null)]]);
    let has = |text: &str| number(&format!("SELECT count(*) FROM reports WHERE stack_has(id, '{text}')"), dataset);
    assert_eq!((has("train.py"), has("no-such-file")), (2, 0));
    let out = |words: &[&str]| String::from_utf8(run(words).stdout).unwrap();
    let sql = "SELECT reserved_bytes, verdict FROM reports WHERE source = 'dry-run'";
    assert_eq!(out(&["query", sql, dataset, "--format", "csv"]), "reserved_bytes,verdict\n8000000000,fits\n");
    assert_eq!(
        out(&["query", sql, dataset]),
        "reserved_bytes  verdict\n--------------  -------\n7.45 GiB        fits\n"
            .replace("7.45 GiB        fits", "      7.45 GiB  fits")
    );
    assert_eq!(
        out(&["query", "SELECT 1 AS a FROM files WHERE FALSE", dataset, "--format", "json"]),
        "{\"schema\":\"oomph.query/1\",\"columns\":[\"a\"],\"rows\":[]}\n"
    );
    assert_eq!(out(&["query", "SELECT 1 AS a FROM files WHERE FALSE", dataset, "--format", "csv"]), "a\n");
    let arrow = run(&["query", sql, dataset, "--format", "arrow"]).stdout;
    let reader = datafusion::arrow::ipc::reader::StreamReader::try_new(&arrow[..], None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 1);
}

#[test]
fn a_query_reads_and_changes_nothing_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("a.log"), log(1, 1, 1)).unwrap();
    collect(&[&path("a.log")], &path("dataset"), &[]);
    let refused = |words: &[&str]| {
        let out = oomph_fleet(words).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        assert!(out.stdout.is_empty(), "{words:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let dataset = &path("dataset");
    let copy = format!("COPY (SELECT 1) TO '{}'", path("stolen.csv"));
    for sql in [copy.as_str(), "DROP TABLE failures", "INSERT INTO failures SELECT * FROM failures", "SET a.b = 1"] {
        assert!(refused(&["query", sql, dataset]).contains("error: the query cannot be answered"), "{sql}");
    }
    assert!(!folder.path().join("stolen.csv").exists());
    let error = refused(&["query", "SELECT nothing FROM failures", dataset]);
    assert!(error.contains("nothing") && error.contains("hint: `oomph-fleet query --schema`"), "{error}");
    assert!(refused(&["query", "top_line", dataset]).contains("--list"));
    assert!(refused(&["query", "top_lines", &path("a.log")]).contains("is not a dataset"));
    assert!(refused(&["query", "top_lines", &path("missing")]).contains("cannot read"));
    assert!(refused(&["collect", &path("missing"), "--into", dataset]).contains("does not exist"));
    assert!(refused(&["collect", &path("a.log"), "--into", dataset, "--gpu", "rtx-9999"]).contains("oomph gpus"));
}
