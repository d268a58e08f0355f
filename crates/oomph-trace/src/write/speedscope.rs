//! Writes Speedscope's format: what is live at one moment, by stack. https://www.speedscope.app opens it.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use crate::{FrameId, StackId, Trace};

/// Live bytes of one card: its name, and each stack with what it holds. A stack may come more than once.
pub type Holding = (String, Vec<(StackId, u64)>);

/// Writes a profile for each card, in which the weight of a stack is the bytes that it holds.
///
/// # Errors
/// When writing fails.
pub fn speedscope(trace: &Trace, cards: &[Holding], out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let text = |text: &str| serde_json::to_string(text).map_err(io::Error::from);
    let mut places = HashMap::<FrameId, usize>::new();
    let mut frames: Vec<FrameId> = Vec::new();
    let mut profiles: Vec<String> = Vec::new();
    for (name, holding) in cards {
        let mut sums = HashMap::<StackId, u64>::new();
        for &(stack, bytes) in holding {
            let sum = sums.entry(stack).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let mut rows: Vec<(StackId, u64)> = sums.into_iter().collect();
        rows.sort_unstable_by_key(|row| (std::cmp::Reverse(row.1), row.0));
        let (mut samples, mut weights, mut total) = (Vec::new(), Vec::new(), 0_u64);
        for (stack, bytes) in rows {
            let mut sample: Vec<usize> = trace
                .stacks
                .innermost_first(stack)
                .map(|frame| {
                    *places.entry(frame).or_insert_with(|| {
                        frames.push(frame);
                        // The first frame stands for what has no stack.
                        frames.len()
                    })
                })
                .collect();
            if sample.is_empty() {
                sample.push(0);
            }
            sample.reverse();
            samples.push(serde_json::to_string(&sample)?);
            weights.push(bytes.to_string());
            total = total.saturating_add(bytes);
        }
        profiles.push(format!(
            r#"{{"type":"sampled","name":{},"unit":"bytes","startValue":0,"endValue":{total},"samples":[{}],"weights":[{}]}}"#,
            text(name)?,
            samples.join(","),
            weights.join(",")
        ));
    }
    out.write_all(
        br#"{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"oomph","shared":{"frames":["#,
    )?;
    out.write_all(br#"{"name":"(no stack was recorded)"}"#)?;
    for frame in frames.iter().filter_map(|&frame| trace.frames.get(frame)) {
        let (name, file) = (text(trace.strings.get(frame.name))?, text(trace.strings.get(frame.file))?);
        write!(out, r#",{{"name":{name},"file":{file},"line":{}}}"#, frame.line)?;
    }
    write!(out, r#"]}},"profiles":[{}]}}"#, profiles.join(","))?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    #[test]
    fn a_profile_has_the_outermost_frame_first() {
        let mut trace = Trace::default();
        let frame = |trace: &mut Trace, name: &str| {
            let (name, file) = (trace.strings.intern(name), trace.strings.intern("a \"quoted\".py"));
            trace.frames.intern(Frame { name, file, line: 7 })
        };
        let (main, forward) = (frame(&mut trace, "main"), frame(&mut trace, "forward"));
        let stack = trace.stacks.intern([main, forward]);
        let holding = vec![(stack, 30), (StackId::NONE, 5), (stack, 12)];
        let mut out = Vec::new();
        speedscope(&trace, &[("cuda:0".into(), holding)], &mut out).expect("it is written");
        let document: serde_json::Value = serde_json::from_slice(&out).expect("it is JSON");
        let profile = &document["profiles"][0];
        assert_eq!(profile["weights"], serde_json::json!([42, 5]));
        assert_eq!(profile["endValue"], 47);
        let sample = profile["samples"][0].as_array().expect("a stack");
        let name = |place: &serde_json::Value| {
            document["shared"]["frames"][place.as_u64().unwrap_or(9) as usize]["name"].clone()
        };
        assert_eq!(sample.iter().map(name).collect::<Vec<_>>(), ["main", "forward"]);
        assert_eq!(profile["samples"][1], serde_json::json!([0]));
    }
}
