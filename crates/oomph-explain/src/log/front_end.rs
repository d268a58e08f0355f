//! The program around a library, recognised by its traces in a log.

use super::programs::{self, Kind};

/// The outermost program that the text behind a failure shows, or that before it; an application rather than a library.
pub(crate) fn around(behind: &[u8], before: &[u8], library: &str) -> Option<&'static str> {
    let is_application = |name: &&str| programs::kind(name) == Some(Kind::Application);
    let found = [programs::outermost(behind, library), programs::outermost(before, library)];
    let mut found = found.into_iter().flatten();
    let first = found.next()?;
    Some(if is_application(&first) { first } else { found.find(is_application).unwrap_or(first) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_before_a_failure_outranks_a_library_behind_it() {
        let (webui, warning) =
            (b"sd_hijack.py, line 12".as_slice(), b"site-packages/timm/layers: FutureWarning".as_slice());
        assert_eq!(around(warning, webui, "pytorch"), Some("automatic1111"));
        assert_eq!(around(webui, warning, "pytorch"), Some("automatic1111"));
        assert_eq!(around(warning, b"", "pytorch"), Some("timm"));
        assert_eq!(around(b"vllm", webui, "pytorch"), Some("vllm"), "of two applications the one behind");
        assert_eq!(around(b"", b"nothing known", "pytorch"), None);
    }
}
