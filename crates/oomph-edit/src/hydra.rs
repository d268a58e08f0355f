//! Finds options in configuration files of Hydra, and of OmegaConf where it reads the command line.
//!
//! They are typed as `training.batch_size=4`.

use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, Scalar, Yaml};

use crate::calls::Call;
use crate::literals::string;
use crate::opt::{Opt, OptKind};
use crate::source::{At, Source};

/// A file with more bytes is not a configuration.
const LONGEST: usize = 1 << 20;

/// How deep groups are followed.
const DEEPEST: usize = 6;

/// The options that one file of the program takes from configuration files.
pub(crate) fn options(file: &Path, source: &Source, read: &impl Fn(&Path) -> Option<String>) -> Vec<Opt> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let from_line = source.text().contains("from_cli(");
    let mut found = Vec::new();
    for call in source.all("call").into_iter().filter_map(|node| Call::of(At { file, source, node })) {
        let path = match call.path() {
            "hydra.main" => hydra_file(&call, folder),
            path if path.ends_with("OmegaConf.load") && from_line => {
                call.argument("file_", 0).and_then(string).map(|name| folder.join(name))
            }
            _ => None,
        };
        if let Some(path) = path {
            gather(&path, "", 0, read, &mut found);
        }
    }
    found
}

/// `@hydra.main(config_path="conf", config_name="config")`.
fn hydra_file(call: &Call<'_>, folder: &Path) -> Option<PathBuf> {
    let name = call.argument("config_name", 1).and_then(string)?;
    let place = call.argument("config_path", 0).and_then(string).unwrap_or_default();
    let name = if name.ends_with(".yaml") { name } else { format!("{name}.yaml") };
    Some(folder.join(place).join(name))
}

/// The values of a file with those of the groups that it names.
fn gather(path: &Path, prefix: &str, depth: usize, read: &impl Fn(&Path) -> Option<String>, found: &mut Vec<Opt>) {
    let Some(text) = read(path).filter(|text| text.len() <= LONGEST && depth < DEEPEST) else { return };
    let Ok(documents) = Yaml::load_from_str(&text) else { return };
    let Some(Yaml::Mapping(entries)) = documents.first() else { return };
    for (key, value) in entries {
        let (Some(key), folder) = (key.as_str(), path.parent().unwrap_or(Path::new("."))) else { continue };
        if key == "defaults"
            && let Yaml::Sequence(groups) = value
        {
            // `- model: small` is `model/small.yaml`, whose values go under `model`.
            for group in groups.iter().filter_map(|group| group.as_mapping()) {
                for (group, choice) in group {
                    if let (Some(group), Some(choice)) = (group.as_str(), choice.as_str()) {
                        let group = group.trim_start_matches("override ").trim_start_matches('/');
                        let file = folder.join(group).join(format!("{choice}.yaml"));
                        gather(&file, &format!("{prefix}{}.", group.replace('/', ".")), depth + 1, read, found);
                    }
                }
            }
            continue;
        }
        values(&format!("{prefix}{key}"), key, value, depth, found);
    }
}

fn values(path: &str, name: &str, value: &Yaml<'_>, depth: usize, found: &mut Vec<Opt>) {
    if let Yaml::Mapping(entries) = value {
        for (key, value) in entries.iter().filter(|_| depth < DEEPEST) {
            if let Some(key) = key.as_str() {
                values(&format!("{path}.{key}"), key, value, depth + 1, found);
            }
        }
        return;
    }
    let (kind, default) = match value {
        Yaml::Value(Scalar::Boolean(value)) => (OptKind::Truth, if *value { "True" } else { "False" }.to_owned()),
        Yaml::Value(Scalar::Integer(value)) => (OptKind::Value, value.to_string()),
        Yaml::Value(Scalar::FloatingPoint(value)) => (OptKind::Value, value.to_string()),
        Yaml::Value(Scalar::String(value)) => (OptKind::Value, value.to_string()),
        _ => return,
    };
    // What only an evaluation reads is not a setting of the training.
    let name = if ["eval", "val.", "test"].iter().any(|word| path.contains(word)) { path } else { name };
    found.push(Opt {
        flags: vec![path.to_owned()],
        name: name.to_owned(),
        kind,
        default: Some(default),
        choices: Vec::new(),
        parameter: false,
        written: None,
    });
}

#[cfg(test)]
mod tests {
    use crate::program::Program;

    use super::*;

    #[test]
    fn overrides_are_typed_with_their_groups() {
        let read = |path: &Path| {
            let text = match path.to_str()? {
                "/p/train.py" => {
                    "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg):\n    pass\n"
                }
                "/p/conf/config.yaml" => {
                    "defaults:\n  - model: small\n  - _self_\ntraining:\n  batch_size: 64\n  amp: false\neval:\n  batch_size: 8\n"
                }
                "/p/conf/model/small.yaml" => "layers: 4\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let words: Vec<String> = vec!["training.amp=true".into()];
        let program = Program::reading(Path::new("/p/train.py"), Path::new("/p"), words.clone(), read).unwrap();
        let options = program.options();
        let flags: Vec<&str> = options.iter().map(|option| option.flag()).collect();
        assert_eq!(flags, ["model.layers", "training.batch_size", "training.amp", "eval.batch_size"]);
        let mut typed = words;
        assert_eq!(options[1].value_in(&typed).as_deref(), Some("64"));
        options[1].set(&mut typed, "32");
        options[2].set(&mut typed, "False");
        assert_eq!(typed, ["training.amp=False", "training.batch_size=32"]);
        assert_eq!(options[3].name, "eval.batch_size");
    }
}
