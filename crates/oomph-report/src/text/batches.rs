//! Describes batches of different sizes in one sentence.

use oomph_gpu::size::format as size;

use super::page::{Ink, Page};
use crate::batches::BatchPeak;
use crate::clean;
use crate::dry_run::DryRunReport;

/// The sizes of batches, where they differ, and what the longest one needs.
pub(super) fn write(page: &mut Page, report: &DryRunReport) {
    let Some(batches) = &report.batches else { return };
    let seen = &batches.seen;
    let unit = clean(&seen.unit);
    let mut text = if seen.min == seen.max {
        format!(" of {} {unit}", grouped(seen.min))
    } else {
        format!(" of {} to {} {unit}", grouped(seen.min), grouped(seen.max))
    };
    match (&batches.longest, &batches.usual) {
        (Some(longest), Some(usual)) => {
            text += &format!(" reserve {} (allocated {})", size(usual.peak_reserved), size(usual.peak_allocated));
            if longest.peak_reserved > 0 {
                text += &format!(
                    "; one of the longest samples, {}, in step {}: {} (allocated {})",
                    extent(longest, &unit),
                    longest.step,
                    size(longest.peak_reserved),
                    size(longest.peak_allocated)
                );
            }
        }
        _ => text += "; a longer one needs more",
    }
    page.gap();
    page.paragraph(0, 2, &[(Ink::Strong, "batches:"), (Ink::Plain, &text)]);
}

/// The size of a batch: `8 x 1,024 tokens`, or its elements alone.
pub(super) fn extent(batch: &BatchPeak, unit: &str) -> String {
    let shape = batch.shape.as_deref().filter(|shape| shape.len() == 2);
    let size = shape.map(|shape| shape.iter().map(|length| grouped(*length)).collect::<Vec<_>>().join(" x "));
    format!("{} {}", size.unwrap_or_else(|| grouped(batch.elements)), clean(unit))
}

/// A number with commas between its thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
