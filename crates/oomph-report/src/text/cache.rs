//! Shows the cache as a table.

use oomph_gpu::size::format as size;

use super::page::{Ink, Page, Style, shortened};
use crate::cache::{CacheEntry, CacheKind, CacheReport};
use crate::clean;

/// Columns before the name: size and last use, with their gaps.
const BEFORE: usize = 2 + 11 + 2 + 14 + 2;

/// Writes what is in the cache, or what was removed from it.
#[must_use]
pub fn render_cache(report: &CacheReport, style: Style) -> String {
    let mut page = Page::new(style);
    let total = |entries: &[CacheEntry]| size(entries.iter().map(|entry| entry.bytes).fold(0, u64::saturating_add));
    let folder = clean(&report.folder);
    match &report.removed {
        Some(removed) if removed.is_empty() => {
            page.paragraph(0, 2, &[(Ink::Strong, "nothing to remove"), (Ink::Plain, &format!(" from {folder}"))]);
        }
        Some(removed) => {
            page.paragraph(
                0,
                2,
                &[(Ink::Good, "removed"), (Ink::Plain, &format!(" {} from {folder}", total(removed)))],
            );
            table(&mut page, removed);
            page.gap();
        }
        None => {}
    }
    if report.entries.is_empty() {
        page.paragraph(0, 2, &[(Ink::Strong, &folder), (Ink::Plain, ": empty")]);
    } else {
        let left = if report.removed.is_some() { " left" } else { "" };
        page.paragraph(0, 2, &[(Ink::Strong, &folder), (Ink::Plain, &format!(": {}{left}", total(&report.entries)))]);
        table(&mut page, &report.entries);
    }
    page.finish()
}

fn table(page: &mut Page, entries: &[CacheEntry]) {
    page.line(2, &[(Ink::Faint, &format!("{:>11}  {:<14}  what", "size", "last used"))]);
    for entry in entries {
        let room = page.width().saturating_sub(BEFORE);
        let name = shortened(&clean(&name(entry)), room, page.unicode());
        let used = if entry.in_use { "now".to_owned() } else { entry.unused_seconds.map_or_else(String::new, ago) };
        page.line(2, &[(Ink::Plain, &format!("{:>11}  {used:<14}  ", size(entry.bytes))), (Ink::Plain, &name)]);
    }
}

fn name(entry: &CacheEntry) -> String {
    match entry.kind {
        CacheKind::Environment if !entry.whole => "Python environment, not made to its end".to_owned(),
        CacheKind::Environment => {
            let python = entry.python.as_deref().unwrap_or_default();
            let packages = entry.packages;
            format!("Python {python} with {} ({packages} packages)", entry.requirements.join(", "))
        }
        CacheKind::VirtualGpu => format!("virtual GPU {}", last_part(&entry.path)),
        CacheKind::CompiledKernels => format!("compiled code ({})", last_part(&entry.path)),
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// A time in the past in words.
fn ago(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheSchema;

    fn entry(kind: CacheKind, path: &str, bytes: u64) -> CacheEntry {
        CacheEntry {
            kind,
            path: path.into(),
            bytes,
            unused_seconds: Some(3 * 86_400),
            in_use: false,
            whole: true,
            requirements: vec!["torch==2.15.0".into(), "transformers".into()],
            packages: 41,
            python: Some("3.12.3".into()),
        }
    }

    #[test]
    fn a_cache_as_a_table() {
        let mut report = CacheReport {
            schema: CacheSchema,
            folder: "/home/me/.cache/oomph".into(),
            entries: vec![
                entry(CacheKind::Environment, "/home/me/.cache/oomph/environments/a0", 5 << 30),
                CacheEntry {
                    in_use: true,
                    ..entry(CacheKind::VirtualGpu, "/home/me/.cache/oomph/runtime/b1", 3 << 20)
                },
            ],
            removed: None,
        };
        insta::assert_snapshot!(render_cache(&report, Style::default()), @r##"
        /home/me/.cache/oomph: 5.00 GiB
                 size  last used       what
             5.00 GiB  3 days ago      Python 3.12.3 with torch==2.15.0, transformers...
             3.00 MiB  now             virtual GPU b1
        "##);
        report.removed = Some(std::mem::take(&mut report.entries));
        insta::assert_snapshot!(render_cache(&report, Style::default()), @r##"
        removed 5.00 GiB from /home/me/.cache/oomph
                 size  last used       what
             5.00 GiB  3 days ago      Python 3.12.3 with torch==2.15.0, transformers...
             3.00 MiB  now             virtual GPU b1

        /home/me/.cache/oomph: empty
        "##);
        report.removed = Some(vec![]);
        insta::assert_snapshot!(render_cache(&report, Style::default()), @r##"
        nothing to remove from /home/me/.cache/oomph
        /home/me/.cache/oomph: empty
        "##);
    }
}
