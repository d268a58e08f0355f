//! Reads limits on memory from a command line.

use anyhow::Result;
use oomph_gpu::size;

use crate::failure::hinted;

/// A limit of the command line, in bytes.
pub fn limit(name: &str, text: &Option<String>) -> Result<Option<u64>> {
    let parsed = text.as_deref().map(size::parse).transpose();
    parsed.map_err(|error| hinted(format!("{name}: {error}"), format!("write {name} 20GiB, for example")))
}

/// The growth that is allowed beyond `before`, in bytes: a size, or a percentage of it.
pub fn growth(max_growth: Option<&str>, before: u64) -> Result<Option<u64>> {
    let Some(text) = max_growth else { return Ok(None) };
    let wrong = |what: String| hinted(format!("--max-growth: {what}"), "write --max-growth 500MiB or --max-growth 2%");
    let Some(percent) = text.trim().strip_suffix('%') else {
        return size::parse(text).map(Some).map_err(|error| wrong(error.to_string()));
    };
    let percent: f64 = percent.trim().parse().map_err(|_| wrong(format!("`{text}` is not a percentage")))?;
    if !(0.0..=1e6).contains(&percent) {
        return Err(wrong(format!("`{text}` is not a sensible percentage")));
    }
    Ok(Some((before as f64 * percent / 100.0) as u64))
}
