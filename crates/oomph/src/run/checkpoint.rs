//! Chooses the checkpoint to resume from: the newest that its trainer finished and that is whole on the disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use oomph_launch::HookCheckpoint;

/// The header of a safetensors file is longer in no file that exists.
const LONGEST_HEADER: u64 = 256 << 20;

/// The end of a zip archive lies this close to the file's end: 22 bytes and a comment.
const ZIP_END: u64 = 22 + 65_535;

/// How deep a checkpoint's folders are looked through.
const DEEPEST: usize = 6;

/// The newest of these that is whole. The trainer's own call that wrote it had returned when it was named; what may have
/// happened since is that somebody removed it, or that the disk lost its end.
pub fn newest_whole(known: &[HookCheckpoint]) -> Option<&HookCheckpoint> {
    let mut newest: Vec<&HookCheckpoint> = known.iter().collect();
    // Of one step the one that was written last.
    newest.sort_by_key(|checkpoint| checkpoint.step);
    newest.into_iter().rev().find(|checkpoint| is_whole(checkpoint))
}

fn is_whole(checkpoint: &HookCheckpoint) -> bool {
    let path = &checkpoint.path;
    match checkpoint.kind.as_str() {
        "transformers" => state_step(path) == Some(checkpoint.step) && files_are_whole(path, DEEPEST),
        _ if path.is_dir() => has_files(path) && files_are_whole(path, DEEPEST),
        _ => is_zip(path).unwrap_or(false),
    }
}

/// The step that a checkpoint of transformers' Trainer says itself; the Trainer writes it last.
fn state_step(folder: &Path) -> Option<u64> {
    let text = fs::read(folder.join("trainer_state.json")).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok()?.get("global_step")?.as_u64()
}

fn has_files(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

fn files_are_whole(folder: &Path, deepest: usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().all(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return deepest > 0 && files_are_whole(&path, deepest - 1);
        }
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("safetensors") => is_safetensors(&path).unwrap_or(false),
            // torch.save has written zip archives since 1.6.
            Some("pt" | "pth" | "bin" | "ckpt") => is_zip(&path).unwrap_or(false),
            _ => true,
        }
    })
}

/// Whether a file has all the bytes that its header names.
fn is_safetensors(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut size = [0; 8];
    file.read_exact(&mut size)?;
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER.min(length) {
        return Ok(false);
    }
    let mut header = Vec::new();
    file.take(size).read_to_end(&mut header)?;
    let Ok(serde_json::Value::Object(tensors)) = serde_json::from_slice(&header) else { return Ok(false) };
    let end = |tensor: &serde_json::Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let data = tensors.values().filter_map(end).max().unwrap_or(0);
    Ok(length == 8 + size + data)
}

/// Whether a file ends as a zip archive does.
fn is_zip(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ZIP_END)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(end.windows(4).any(|window| window == b"PK\x05\x06"))
}

/// The command with the option by which scripts of Accelerate and diffusers resume; `None` where the script has none.
pub fn resuming(command: &[OsString], folder: &Path, checkpoint: &HookCheckpoint) -> Option<Vec<OsString>> {
    let script = command.iter().find(|word| word.to_string_lossy().ends_with(".py"))?;
    let text = fs::read_to_string(folder.join(script)).ok()?;
    let option =
        ["--resume_from_checkpoint", "--resume-from-checkpoint"].into_iter().find(|name| text.contains(name))?;
    let mut changed = Vec::new();
    let mut words = command.iter();
    while let Some(word) = words.next() {
        let spelled = word.to_string_lossy();
        if spelled == option {
            words.next();
        } else if !spelled.starts_with(&format!("{option}=")) {
            changed.push(word.clone());
        }
    }
    changed.push(option.into());
    changed.push(checkpoint.path.clone().into());
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, path: &Path, step: u64) -> HookCheckpoint {
        HookCheckpoint { kind: kind.into(), path: path.to_owned(), step }
    }

    /// A checkpoint as the Trainer leaves it, with weights of so many bytes of the eight that the header names.
    fn trainer(folder: &Path, step: u64, bytes: usize) -> HookCheckpoint {
        let path = folder.join(format!("checkpoint-{step}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("trainer_state.json"), format!("{{\"global_step\": {step}}}")).unwrap();
        let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut weights = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
        weights.extend_from_slice(header);
        weights.resize(weights.len() + bytes, 0);
        fs::write(path.join("model.safetensors"), weights).unwrap();
        named("transformers", &path, step)
    }

    #[test]
    fn one_that_lost_its_end_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let known = [trainer(folder.path(), 5, 8), trainer(folder.path(), 10, 8), trainer(folder.path(), 15, 3)];
        assert_eq!(newest_whole(&known), Some(&known[1]));
        fs::write(known[1].path.join("trainer_state.json"), "{\"global_step\": 1").unwrap();
        assert_eq!(newest_whole(&known), Some(&known[0]));
        fs::write(known[0].path.join("optimizer.pt"), b"PK\x03\x04 and no end").unwrap();
        assert_eq!(newest_whole(&known), None);
    }

    #[test]
    fn a_file_of_lightnings_is_a_whole_archive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last.ckpt");
        fs::write(&path, b"PK\x03\x04...").unwrap();
        let known = [named("lightning", &path, 3)];
        assert_eq!(newest_whole(&known), None);
        fs::write(&path, b"PK\x03\x04...PK\x05\x06\0\0").unwrap();
        assert_eq!(newest_whole(&known), Some(&known[0]));
    }

    #[test]
    fn a_script_that_can_resume_is_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), "parser.add_argument(\"--resume_from_checkpoint\")").unwrap();
        let checkpoint = named("accelerate", Path::new("/out/checkpoint-50"), 50);
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let changed =
            resuming(&words("python train.py --lr 1 --resume_from_checkpoint old"), folder.path(), &checkpoint);
        assert_eq!(changed, Some(words("python train.py --lr 1 --resume_from_checkpoint /out/checkpoint-50")));
        fs::write(folder.path().join("train.py"), "").unwrap();
        assert_eq!(resuming(&words("python train.py"), folder.path(), &checkpoint), None);
    }
}
