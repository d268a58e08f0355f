//! What a replay says of another setting, against a run of the same requests with that setting.
//!
//! The runs must not call `empty_cache()`: a call that had nothing to give back left no event to replay.

use oomph_allocator::{Capacity, Model, Script, Settings, Start, Version};
use oomph_trace::Trace;

/// Compares the counters of a recording with a replay of the trace of another run, which made the same requests. Returns
/// the setting, what was reserved at the peak in the recording, and what the replay says, in bytes.
pub fn what_if(trace: &Trace, recording: &str) -> Result<(String, u64, u64), String> {
    let header: serde_json::Value = parse(recording.lines().next())?;
    let end: serde_json::Value = parse(recording.lines().last())?;
    let conf = header["conf"].as_str().unwrap_or_default().to_owned();
    let version: Version = header["torch"].as_str().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
    let settings = Settings::read(&conf, version).map_err(|error| format!("{error}"))?;
    let counter = |index: usize| end["stats"][index].as_u64().ok_or("the recording has no counters at its end");
    let device = trace.devices.iter().find(|device| !device.events.is_empty()).ok_or("no events")?;
    let script = Script::new(device, &Settings::recorded(&trace.settings));
    let capacity =
        Capacity { total: header["total"].as_u64().unwrap_or(0), available: header["available"].as_u64().unwrap_or(0) };
    let replay = script.replay(&Model::pytorch(settings, version), capacity, Start::Cold);
    if counter(1)? != replay.statistics.allocated.peak {
        return Err(format!("{conf}: {} allocated, the replay says {}", counter(1)?, replay.statistics.allocated.peak));
    }
    if (counter(10)? > 0) != (replay.retries() > 0) || (counter(11)? == 0) != replay.survived {
        return Err(format!(
            "{conf}: {} retries and {} failures, the replay says {replay:?}",
            counter(10)?,
            counter(11)?
        ));
    }
    Ok((conf, counter(7)?, replay.peak_reserved()))
}

fn parse(line: Option<&str>) -> Result<serde_json::Value, String> {
    serde_json::from_str(line.unwrap_or_default()).map_err(|error| error.to_string())
}
