//! Shows where a program died: its own line, the module of the model, the line of the library.

use super::page::{Ink, Page, shortened};
use crate::clean;
use crate::oom::Oom;
use crate::site::Site;

/// The user's line, the module of the model, and the library's line: for a trainer the first is always `trainer.train()`.
pub(super) fn write(page: &mut Page, oom: &Oom) {
    if oom.site.is_none() && oom.library_site.is_none() && oom.model.is_none() {
        return;
    }
    page.gap();
    if let Some(site) = &oom.site {
        line_of(page, "at", site, Ink::Strong);
    }
    match (&oom.module, &oom.model) {
        (Some(module), Some(model)) => {
            let of = format!(" of {}", clean(model));
            page.paragraph(
                2,
                4,
                &[(Ink::Plain, "in"), (Ink::Strong, &format!(" {}", clean(module))), (Ink::Plain, &of)],
            );
        }
        (None, Some(model)) => {
            page.paragraph(2, 4, &[(Ink::Plain, "in"), (Ink::Strong, &format!(" {}", clean(model)))]);
        }
        (_, None) => {}
    }
    if let Some(site) = &oom.library_site {
        line_of(page, if oom.model.is_some() { "by" } else { "in" }, site, Ink::Plain);
    }
}

fn line_of(page: &mut Page, word: &str, site: &Site, ink: Ink) {
    let place = match site.cell {
        Some(cell) if site.file.ends_with(".ipynb") => {
            format!(" {}, cell [{cell}], line {}", clean(&site.file), site.line)
        }
        Some(cell) => format!(" cell [{cell}], line {}", site.line),
        None => format!(" {}:{}", packaged(&clean(&site.file)), site.line),
    };
    let function = match clean(&site.function) {
        // The top level of a file is not a function.
        name if name.is_empty() || name.starts_with('<') => String::new(),
        name => format!(" in {name}"),
    };
    page.paragraph(2, 4, &[(Ink::Plain, word), (ink, &place), (Ink::Plain, &function)]);
    if let Some(text) = &site.text {
        let text = clean(text.trim());
        let room = page.width().saturating_sub(6);
        page.line(6, &[(Ink::Plain, &shortened(&text, room, page.unicode()))]);
    }
}

/// A file of a package is known by its place in it; where packages are installed does not matter.
fn packaged(file: &str) -> &str {
    ["/site-packages/", "/dist-packages/"].iter().find_map(|folder| Some(file.rsplit_once(folder)?.1)).unwrap_or(file)
}
