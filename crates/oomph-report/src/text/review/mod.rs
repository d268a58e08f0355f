//! Shows a review to people, and writes it in the formats of CI services.

mod github;
mod junit;
mod sarif;

use oomph_gpu::size::format as size;
use oomph_protocol::Verdict;

use super::page::{Ink, Page, Style};
use crate::clean;
use crate::review::{Review, ReviewedRun};

pub use github::{github_annotations, github_summary};
pub use junit::junit;
pub use sarif::sarif;

/// Owners of a growth that are named.
const MOST_GROWN: usize = 3;

/// Writes a review: a line for each run, and what is wrong below it.
#[must_use]
pub fn render_review(review: &Review, style: Style) -> String {
    let mut page = Page::new(style);
    for run in &review.runs {
        let (ink, word) = if run.violations.is_empty() { (Ink::Good, "passed:") } else { (Ink::Bad, "not passed:") };
        page.paragraph(0, 2, &[(ink, word), (Ink::Plain, &format!(" {}", clean(&line(run))))]);
        for broken in &run.violations {
            let text = format!(" {}", clean(&broken.says));
            page.paragraph(2, 4, &[(Ink::Strong, &format!("{}:", broken.limit)), (Ink::Plain, &text)]);
        }
        if let (Some(place), false) = (&run.place, run.violations.is_empty()) {
            let text = format!("at {}:{} in {}", clean(&place.file), place.line, clean(&place.function));
            page.paragraph(2, 4, &[(Ink::Faint, &text)]);
        }
    }
    page.finish()
}

/// A run in a line: the card, the verdict, what it needs and what it needs more.
fn line(run: &ReviewedRun) -> String {
    let mut text = run.gpu.clone().unwrap_or_else(|| run.file.clone());
    if let Some(verdict) = run.verdict {
        text += &format!(" {}", verdict_words(verdict));
    }
    if let Some(needs) = needs(run) {
        text += &format!(", {needs}");
    }
    if let Some(growth) = growth(run) {
        text += &format!(", {growth}");
    }
    text
}

/// What it needs of what there is.
fn needs(run: &ReviewedRun) -> Option<String> {
    let of = run.limit_bytes.map(|bytes| format!(" of {}", size(bytes))).unwrap_or_default();
    run.needs_bytes.map(|bytes| format!("needs {}{of}", size(bytes)))
}

/// What it needs more or less than before, and whose that is.
fn growth(run: &ReviewedRun) -> Option<String> {
    let growth = run.growth_bytes?;
    let whose: Vec<String> =
        run.grown.iter().take(MOST_GROWN).map(|(owner, bytes)| format!("{owner} {}", signed(*bytes))).collect();
    let whose = if whose.is_empty() { String::new() } else { format!(" ({})", whose.join(", ")) };
    Some(match growth {
        0 => "as before".to_owned(),
        1.. => format!("{} more than before{whose}", size(growth.unsigned_abs())),
        _ => format!("{} less than before{whose}", size(growth.unsigned_abs())),
    })
}

fn signed(bytes: i64) -> String {
    format!("{}{}", if bytes < 0 { "-" } else { "+" }, size(bytes.unsigned_abs()))
}

fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Recovered => "runs out of memory and goes on",
        Verdict::Oom => "does not fit",
        Verdict::Unsure => "is not sure to fit",
        Verdict::Failed => "failed",
        Verdict::NoGpuUse => "does not use the GPU",
    }
}

/// What is wrong with a run, in one sentence for an annotation.
fn message(run: &ReviewedRun) -> String {
    let says: Vec<&str> = run.violations.iter().map(|broken| broken.says.as_str()).collect();
    format!("{}: {}", line(run), says.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::{Broken, Place, ReviewSchema};

    fn review() -> Review {
        let fits = ReviewedRun {
            file: "rtx-4090.json".into(),
            gpu: Some("rtx-4090".into()),
            verdict: Some(Verdict::Fits),
            limit_bytes: Some(24 << 30),
            needs_bytes: Some(11 << 30),
            before_bytes: Some(9 << 30),
            growth_bytes: Some(2 << 30),
            grown: vec![("activations".into(), 2 << 30), ("gradients".into(), -(1 << 20))],
            place: Some(Place { file: "src/train.py".into(), line: 41, function: "forward".into() }),
            violations: Vec::new(),
        };
        let died = ReviewedRun {
            file: "rtx-3060.json".into(),
            gpu: Some("rtx-3060".into()),
            verdict: Some(Verdict::Oom),
            limit_bytes: Some(12 << 30),
            violations: vec![Broken {
                limit: "fits".into(),
                says: "it dies in step 1, 50% of <the> \"batch\"\n::warning::x".into(),
            }],
            ..fits.clone()
        };
        Review { schema: ReviewSchema, passed: false, runs: vec![fits, died] }
    }

    #[test]
    fn a_review_as_text() {
        insta::assert_snapshot!(render_review(&review(), Style::default()), @r##"
        passed: rtx-4090 fits, needs 11.00 GiB of 24.00 GiB, 2.00 GiB more than before
          (activations +2.00 GiB, gradients -1.00 MiB)
        not passed: rtx-3060 does not fit, needs 11.00 GiB of 12.00 GiB, 2.00 GiB more
          than before (activations +2.00 GiB, gradients -1.00 MiB)
          fits: it dies in step 1, 50% of <the> "batch"\n::warning::x
          at src/train.py:41 in forward
        "##);
    }

    #[test]
    fn a_review_as_a_job_summary() {
        insta::assert_snapshot!(github_summary(&review()), @r##"
        ### GPU memory

        | card | | needs | change |
        |---|---|---|---|
        | rtx-4090 | fits | needs 11.00 GiB of 24.00 GiB | 2.00 GiB more than before (activations +2.00 GiB, gradients -1.00 MiB) |
        | rtx-3060 | **not passed**: does not fit | needs 11.00 GiB of 12.00 GiB | 2.00 GiB more than before (activations +2.00 GiB, gradients -1.00 MiB) |

        - rtx-3060, fits: it dies in step 1, 50% of &lt;the&gt; "batch" ::warning::x (`src/train.py:41`)
        "##);
    }

    #[test]
    fn annotations_are_one_command_a_line_whatever_they_say() {
        let text = github_annotations(&review(), |file| file.to_owned());
        let [notice, error] = text.lines().collect::<Vec<_>>().try_into().expect("there are two");
        assert!(notice.starts_with("::notice file=src/train.py,line=41,title=oomph%3A rtx-4090::"), "{text}");
        assert!(error.starts_with("::error file=src/train.py,line=41,title=oomph%3A rtx-3060::"), "{text}");
        assert!(error.contains("50%25 of") && error.contains("%0A::warning"), "{text}");
    }

    #[test]
    fn sarif_has_a_result_for_each_violation() {
        let document = sarif(&review(), |file| file.to_owned());
        assert_eq!(document["version"], "2.1.0");
        let results = document["runs"][0]["results"].as_array().map(Vec::len);
        assert_eq!(results, Some(1));
        let place = &document["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(
            (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
            (&"src/train.py".into(), &41.into())
        );
    }

    #[test]
    fn junit_has_a_case_for_each_card() {
        insta::assert_snapshot!(junit(&review()), @r##"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="2" failures="1">
          <testsuite name="oomph" tests="2" failures="1">
            <testcase classname="oomph" name="rtx-4090" file="src/train.py" line="41">
              <system-out>rtx-4090 fits, needs 11.00 GiB of 24.00 GiB, 2.00 GiB more than before (activations +2.00 GiB, gradients -1.00 MiB)</system-out>
            </testcase>
            <testcase classname="oomph" name="rtx-3060" file="src/train.py" line="41">
              <failure type="fits" message="it dies in step 1, 50% of &lt;the&gt; &quot;batch&quot; ::warning::x"/>
              <system-out>rtx-3060 does not fit, needs 11.00 GiB of 12.00 GiB, 2.00 GiB more than before (activations +2.00 GiB, gradients -1.00 MiB)</system-out>
            </testcase>
          </testsuite>
        </testsuites>
        "##);
    }
}
