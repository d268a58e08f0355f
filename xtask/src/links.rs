//! Checks the links between the pages of the repository, and that the book has every page.
//!
//! A relative link has to lead to a file or folder, and its fragment to a heading there. `docs/SUMMARY.md` has to name every page
//! below `docs`.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::words::tracked;

/// Pages whose links are texts of others.
const IGNORED: [&str; 2] = ["crates/oomph-explain/tests/public/", "crates/oomph-view/web/node_modules/"];

/// Checks every page that git tracks.
///
/// # Errors
/// When a link leads nowhere, or a page is missing in the book.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages: Vec<String> = tracked(&root)?
        .into_iter()
        .filter(|path| {
            path.ends_with(".md") && root.join(path).exists() && !IGNORED.iter().any(|place| path.starts_with(place))
        })
        .collect();
    let mut problems = Vec::new();
    let mut count = 0;
    for page in &pages {
        let text = std::fs::read_to_string(root.join(page)).with_context(|| page.clone())?;
        for (line, target) in links(&text) {
            count += 1;
            if let Some(problem) = problem(&root, page, &target) {
                problems.push(format!("{page}:{line}: {target}: {problem}"));
            }
        }
    }
    let summary = "docs/SUMMARY.md";
    let listed: BTreeSet<PathBuf> = links(&std::fs::read_to_string(root.join(summary)).context(summary)?)
        .into_iter()
        .map(|(_, target)| resolved(Path::new(summary), &target))
        .collect();
    let of_book = |page: &&String| page.starts_with("docs/") && *page != summary;
    problems.extend(
        pages
            .iter()
            .filter(of_book)
            .filter(|page| !listed.contains(Path::new(page)))
            .map(|page| format!("{summary}: {page} is missing")),
    );
    println!("links: {count} in {} pages", pages.len());
    ensure!(problems.is_empty(), "links that lead nowhere:\n  {}", problems.join("\n  "));
    Ok(())
}

/// The targets of a page's links and pictures, with their lines; those in code do not count.
fn links(text: &str) -> Vec<(usize, String)> {
    let code = Regex::new(r"`[^`]*`").expect("the pattern is valid");
    // Also `[text]: target` and the inner link of a picture that is a link.
    let link = Regex::new(r"\]\(<?([^)\s>]+)>?[^)]*\)").expect("the pattern is valid");
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        let line = code.replace_all(line, "");
        found.extend(link.captures_iter(&line).map(|target| (index + 1, target[1].to_owned())));
    }
    found
}

/// Where a relative target leads, from the repository's root.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return page.to_path_buf();
    }
    let mut parts = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

fn problem(root: &Path, page: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let path = root.join(resolved(Path::new(page), target));
    if !path.exists() {
        return Some("no such file");
    }
    let fragment = target.split_once('#')?.1;
    let text = std::fs::read_to_string(path).ok()?;
    (!anchors(&text).contains(fragment)).then_some("no such heading")
}

/// The fragments of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_do_not_count() {
        let text = "[a](b.md) and `[c](d.md)`\n\n    [e](f.md)\n```\n[g](h.md)\n```\n![i](j.png)";
        assert_eq!(links(text), [(1, "b.md".to_owned()), (7, "j.png".to_owned())]);
    }

    #[test]
    fn targets_are_resolved_from_their_page() {
        assert_eq!(resolved(Path::new("docs/a/b.md"), "../c.md#d"), Path::new("docs/c.md"));
        assert_eq!(resolved(Path::new("docs/a.md"), "#d"), Path::new("docs/a.md"));
        assert!(anchors("## The price of a `fix`, again\n").contains("the-price-of-a-fix-again"));
    }

    #[test]
    fn every_link_of_the_repository_leads_somewhere() {
        run().expect("the links resolve");
    }
}
