//! Handles programs that wait for something that never comes: a queue that nobody fills, a thread that does not end, input.

use std::path::Path;

use oomph_launch::{Place, Waits};
use oomph_report::{Site, Waiting};

use crate::observation::Observation;
use crate::output;
use crate::source_lines::source_line;

/// Whether a run was ended while it waited, so that nobody knows what it would have done with what it waits for.
pub fn is_unsure(run: &Observation) -> bool {
    run.waits.is_some() && run.cut.is_some()
}

/// Where a program waits that was ended for it.
pub fn of(run: &Observation) -> Option<Waiting> {
    let waits = run.waits.as_ref()?;
    Some(Waiting {
        seconds: waits.since.as_secs_f64().round(),
        site: waits.place.as_ref().map(site),
        called: waits.place.as_ref().and_then(|place| place.called.clone()),
    })
}

fn site(place: &Place) -> Site {
    Site { file: place.file.clone(), line: place.line.into(), function: place.function.clone(), text: None, cell: None }
}

/// Says that a program waits, while it does.
pub fn tell(waits: &Waits) {
    let seconds = waits.since.as_secs();
    let place = waits.place.as_ref().map(|place| {
        let mut site = site(place);
        let directory = std::env::current_dir().unwrap_or_default();
        site.text = source_line(&directory, &site);
        let name =
            Path::new(&site.file).strip_prefix(&directory).map_or(site.file.clone(), |path| path.display().to_string());
        let called = place.called.as_ref().map(|called| format!(" ({called})")).unwrap_or_default();
        let text = site.text.map(|text| format!(": {text}")).unwrap_or_default();
        format!(" at {name}:{}{called}{text}", site.line)
    });
    let place = place.unwrap_or_default();
    output::say(&oomph_report::clean(&format!(
        "oomph: the program waits{place}; nothing was computed for {seconds} s"
    )));
    output::say(&format!("oomph: {}", oomph_report::GIVE_IT_WORK));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oomph_report::{Stopped, Verdict};

    use super::*;
    use crate::assemble::assemble;
    use crate::hand_made::{card, hook, ledger, run};
    use crate::observation::Cut;

    #[test]
    fn a_program_that_waits_never_fits() {
        let cards = [card("rtx-3060")];
        let books = ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]);
        let mut waits = run(books, vec![hook(7, &[(0, 700, 600)])], 0);
        let place =
            Place { file: "a.py".into(), line: 6, function: "<module>".into(), called: Some("queue.get".into()) };
        waits.waits = Some(Waits { since: Duration::from_secs(60), place: Some(place) });
        assert_eq!(assemble(&cards, &waits, None).verdict, Verdict::Fits, "it ended on its own");
        for (cut, stopped) in [(Cut::Waiting, Stopped::Waiting), (Cut::TimeUp, Stopped::Timeout)] {
            waits.cut = Some(cut);
            let report = assemble(&cards, &waits, None);
            assert_eq!((report.verdict, report.stopped), (Verdict::Unsure, stopped));
            let seen = report.waits.unwrap();
            assert_eq!((seen.seconds, seen.site.unwrap().line, seen.called.as_deref()), (60.0, 6, Some("queue.get")));
            assert!(report.fits_on.is_empty() && report.smallest.is_empty());
        }
        waits.waits = None;
        assert_eq!(assemble(&cards, &waits, None).verdict, Verdict::Fits, "it computed until its time was up");
    }
}
