//! Lists what works on a machine.

use super::page::{Ink, Page, Style};
use crate::clean;
use crate::doctor::{CheckState, DoctorReport};

/// Writes the checks and what to do.
#[must_use]
pub fn render_doctor(report: &DoctorReport, style: Style) -> String {
    let mut page = Page::new(style);
    let broken = report.checks.iter().filter(|check| check.state == CheckState::Broken).count();
    let head = format!("oomph {}:", clean(&report.version));
    let (ink, words) = match broken {
        0 => (Ink::Good, " everything works that a dry run needs".to_owned()),
        1 => (Ink::Bad, " one thing does not work".to_owned()),
        many => (Ink::Bad, format!(" {many} things do not work")),
    };
    page.paragraph(0, 2, &[(Ink::Strong, &head), (ink, &words)]);
    for check in &report.checks {
        let id = check.id.replace('-', " ");
        let (ink, name) = match check.state {
            CheckState::Works => (Ink::Good, format!("{id}:")),
            CheckState::Limited => (Ink::Care, format!("{id}, limited:")),
            CheckState::Broken => (Ink::Bad, format!("{id}, broken:")),
            CheckState::Absent => (Ink::Faint, format!("{id}:")),
        };
        page.paragraph(2, 4, &[(ink, &name), (Ink::Plain, &format!(" {}", clean(&check.found)))]);
        for (name, text) in [("why:", &check.why), ("try:", &check.todo)] {
            if let Some(text) = text {
                page.paragraph(4, 6, &[(Ink::Faint, name), (Ink::Plain, &format!(" {}", clean(text)))]);
            }
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Check, DoctorSchema};

    #[test]
    fn what_does_not_work_says_what_to_do() {
        let check = |id: &str, state, found: &str, why: Option<&str>, todo: Option<&str>| Check {
            id: id.into(),
            state,
            found: found.into(),
            why: why.map(str::to_owned),
            todo: todo.map(str::to_owned),
        };
        let report = DoctorReport {
            schema: DoctorSchema,
            version: "0.1.0".into(),
            works: false,
            checks: vec![
                check("platform", CheckState::Works, "Linux x86_64", None, None),
                check(
                    "torch",
                    CheckState::Broken,
                    "torch 2.15.0+cpu",
                    Some("torch 2.15.0+cpu of the Python at /usr/bin/python3 is a CPU build"),
                    Some("add --with torch, or install a CUDA build (no GPU is needed for that)"),
                ),
                check("gpus", CheckState::Absent, "no NVIDIA card or no driver; none is needed", None, None),
            ],
        };
        insta::assert_snapshot!(render_doctor(&report, Style::default()), @r##"
        oomph 0.1.0: one thing does not work
          platform: Linux x86_64
          torch, broken: torch 2.15.0+cpu
            why: torch 2.15.0+cpu of the Python at /usr/bin/python3 is a CPU build
            try: add --with torch, or install a CUDA build (no GPU is needed for that)
          gpus: no NVIDIA card or no driver; none is needed
        "##);
    }
}
