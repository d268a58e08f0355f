//! Reads the arguments of `nvidia-smi`.

use std::time::Duration;

use crate::section::Section;
use crate::{INVALID, Refusal, UNAVAILABLE, columns};

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) what: What,
    /// Which cards, as typed: an index, a UUID or an address. Empty means all.
    pub(crate) cards: Vec<String>,
    pub(crate) every: Every,
    /// The file of `-f`.
    pub(crate) file: Option<String>,
}

/// How often a call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Every {
    Once,
    /// Again and again after a pause, until somebody ends it.
    After(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// The table.
    Summary,
    /// `-L`
    List,
    /// `-q`: some sections or, where none is named, all.
    Log { sections: Vec<Section>, xml: bool },
    /// `--query-gpu`
    Cards { fields: Vec<String>, format: Format },
    /// `--query-compute-apps`
    Processes { fields: Vec<String>, format: Format },
    /// `topo -m`
    Topology,
    /// `--version`
    Versions,
    /// A text that needs no card.
    Text(String),
}

/// The words of `--format` besides `csv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) header: bool,
    pub(crate) units: bool,
}

/// The pause of `-l` without a number of seconds.
const USUAL_PAUSE: Duration = Duration::from_secs(5);

/// Options whose value is a setting of the card: a virtual one has none that could be changed.
const SETTINGS: [&str; 32] = [
    "-pm",
    "--persistence-mode",
    "-e",
    "--ecc-config",
    "-p",
    "--reset-ecc-errors",
    "-c",
    "--compute-mode",
    "--gom",
    "-r",
    "--gpu-reset",
    "-ac",
    "--applications-clocks",
    "-rac",
    "--reset-applications-clocks",
    "-acp",
    "-pl",
    "--power-limit",
    "-am",
    "--accounting-mode",
    "-caa",
    "--clear-accounted-apps",
    "-lgc",
    "--lock-gpu-clocks",
    "-rgc",
    "-lmc",
    "--lock-memory-clocks",
    "-rmc",
    "-mig",
    "--multi-instance-gpu",
    "-fdm",
    "-gtt",
];

/// Reads the arguments.
pub(crate) fn parse(words: &[String]) -> Result<Request, Refusal> {
    if let Some(command) = words.first().filter(|word| !word.starts_with('-')) {
        return subcommand(command, &words[1..]);
    }
    let mut reading = Reading::default();
    let mut waiting = words.iter().map(String::as_str).peekable();
    while let Some(word) = waiting.next() {
        let (name, given) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let mut value = || given.or_else(|| waiting.next()).ok_or_else(|| missing(name)).map(str::to_owned);
        match name {
            "-L" | "--list-gpus" => reading.set(Kind::List)?,
            "-q" | "--query" | "-a" => reading.set(Kind::Log)?,
            "-x" | "--xml-format" => reading.xml = true,
            "-d" | "--display" => {
                for section in value()?.split(',') {
                    reading.sections.push(Section::of(section).ok_or_else(|| not_a_section(section))?);
                }
            }
            "-i" | "--id" => reading.cards.extend(value()?.split(',').map(|card| card.trim().to_owned())),
            "-f" | "--filename" => reading.file = Some(value()?),
            "--query-gpu" => reading.query(Kind::Cards, &value()?)?,
            "--query-compute-apps" => reading.query(Kind::Processes, &value()?)?,
            "--format" => reading.format = Some(format(&value()?)?),
            "-l" | "--loop" => {
                // The number may be left out, and the next word is another option then.
                let next = given.is_none().then(|| waiting.next_if(|next| next.parse::<u64>().is_ok())).flatten();
                let pause = match given.or(next) {
                    Some(seconds) => Duration::from_secs(number(name, seconds)?),
                    None => USUAL_PAUSE,
                };
                reading.every = Every::After(pause);
            }
            "-lms" | "--loop-ms" => {
                let pause = value()?;
                reading.every = Every::After(Duration::from_millis(number(name, &pause)?));
            }
            "-u" | "--unit" | "--dtd" => {}
            "-h" | "--help" => return Ok(Request::text(help())),
            "--help-query-gpu" => return Ok(Request::text(columns::help_of_cards())),
            "--help-query-compute-apps" => return Ok(Request::text(columns::help_of_processes())),
            "--version" => reading.set(Kind::Versions)?,
            _ if SETTINGS.contains(&name) => {
                let text = format!("oomph: nvidia-smi {name} changes nothing here: a virtual card has no such setting");
                return Err(Refusal::ours(UNAVAILABLE, text));
            }
            _ => {
                let text = format!("ERROR: Option {name} is not recognized. Please run 'nvidia-smi -h'.\n");
                return Err(Refusal::tools(INVALID, text));
            }
        }
    }
    reading.finish()
}

impl Request {
    fn of(what: What) -> Self {
        Self { what, cards: Vec::new(), every: Every::Once, file: None }
    }

    fn text(text: String) -> Self {
        Self::of(What::Text(text))
    }
}

fn subcommand(command: &str, words: &[String]) -> Result<Request, Refusal> {
    if command == "topo" && words.iter().any(|word| word == "-m" || word == "--matrix") {
        return Ok(Request::of(What::Topology));
    }
    let text = format!("oomph: nvidia-smi {command} is not answered for a virtual card; ask it with -q or --query-gpu");
    Err(Refusal::ours(UNAVAILABLE, text))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Log,
    Cards,
    Processes,
    Versions,
}

/// What was read so far.
struct Reading {
    kind: Option<Kind>,
    fields: Vec<String>,
    format: Option<Format>,
    sections: Vec<Section>,
    xml: bool,
    cards: Vec<String>,
    every: Every,
    file: Option<String>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            kind: None,
            fields: Vec::new(),
            format: None,
            sections: Vec::new(),
            xml: false,
            cards: Vec::new(),
            every: Every::Once,
            file: None,
        }
    }
}

impl Reading {
    fn set(&mut self, kind: Kind) -> Result<(), Refusal> {
        match self.kind.replace(kind) {
            Some(before) if before != kind => Err(combined()),
            _ => Ok(()),
        }
    }

    fn query(&mut self, kind: Kind, fields: &str) -> Result<(), Refusal> {
        self.set(kind)?;
        self.fields = fields.split(',').map(|field| field.trim().to_owned()).collect();
        Ok(())
    }

    fn finish(self) -> Result<Request, Refusal> {
        if (self.xml || !self.sections.is_empty()) && self.kind != Some(Kind::Log) {
            return Err(combined());
        }
        let what = match (self.kind, self.format) {
            (Some(Kind::Cards), Some(format)) => What::Cards { fields: self.fields, format },
            (Some(Kind::Processes), Some(format)) => What::Processes { fields: self.fields, format },
            (Some(Kind::Cards | Kind::Processes), None) => {
                let text =
                    "\"--format=\" switch is required with the \"--query-*\" switches, for example --format=csv.";
                return Err(Refusal::tools(INVALID, text));
            }
            (_, Some(_)) => return Err(combined()),
            (None, None) => What::Summary,
            (Some(Kind::List), None) => What::List,
            (Some(Kind::Versions), None) => What::Versions,
            (Some(Kind::Log), None) => What::Log { sections: self.sections, xml: self.xml },
        };
        Ok(Request { what, cards: self.cards, every: self.every, file: self.file })
    }
}

fn format(text: &str) -> Result<Format, Refusal> {
    let mut format = Format { header: true, units: true };
    let mut is_csv = false;
    for word in text.split(',').map(str::trim) {
        match word {
            "csv" => is_csv = true,
            "noheader" => format.header = false,
            "nounits" => format.units = false,
            _ => {
                let text = format!("Format \"{word}\" is not a valid format; valid are csv, noheader and nounits.");
                return Err(Refusal::tools(INVALID, text));
            }
        }
    }
    if is_csv { Ok(format) } else { Err(Refusal::tools(INVALID, "\"--format=\" has to name csv.")) }
}

fn number(name: &str, text: &str) -> Result<u64, Refusal> {
    text.trim()
        .parse()
        .map_err(|_| Refusal::tools(INVALID, format!("ERROR: Option {name} is not followed by a number.\n")))
}

fn missing(name: &str) -> Refusal {
    Refusal::tools(INVALID, format!("ERROR: Option {name} is not followed by its value. Please run 'nvidia-smi -h'.\n"))
}

fn not_a_section(name: &str) -> Refusal {
    Refusal::tools(INVALID, format!("ERROR: Option -d {name} is not a valid type. Please run 'nvidia-smi -h'.\n"))
}

fn combined() -> Refusal {
    Refusal::tools(INVALID, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
}

/// What is answered, in our own words: the tool's own help is longer than what a virtual card has.
fn help() -> String {
    "nvidia-smi as oomph answers it, for the virtual cards of a dry run\n\n    \
     nvidia-smi                                            a table of cards and processes\n    \
     nvidia-smi -L                                         the cards, a line each\n    \
     nvidia-smi -q [-x] [-d SECTION,...]                   everything, as text or XML\n    \
     nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]\n    \
     nvidia-smi --query-compute-apps=FIELD,... --format=csv[,noheader][,nounits]\n    \
     nvidia-smi topo -m                                    how cards are connected\n    \
     nvidia-smi --help-query-gpu                           the fields\n\n    \
     -i CARD,...        only these, by index, UUID or PCI address\n    \
     -l [SECONDS], -lms MILLISECONDS    again and again\n    \
     -f FILE            to a file\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Request, Refusal> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_have_their_values_behind_an_equals_sign_or_in_the_next_word() {
        for words in [
            &["--query-gpu=name,memory.free", "--format=csv,noheader", "--id=0"][..],
            &["--query-gpu", "name, memory.free", "--format", "csv,noheader", "-i", "0"],
        ] {
            let request = parsed(words).unwrap();
            let format = Format { header: false, units: true };
            let fields = vec!["name".to_owned(), "memory.free".to_owned()];
            assert_eq!(request.what, What::Cards { fields, format }, "{words:?}");
            assert_eq!(request.cards, ["0"]);
        }
    }

    #[test]
    fn a_loop_has_its_pause_or_the_usual_one() {
        let every = |words: &[&str]| parsed(words).unwrap().every;
        assert_eq!(every(&["-l", "2"]), Every::After(Duration::from_secs(2)));
        assert_eq!(every(&["--loop=1"]), Every::After(Duration::from_secs(1)));
        assert_eq!(every(&["-l", "-q"]), Every::After(Duration::from_secs(5)));
        assert_eq!(every(&["-lms", "100"]), Every::After(Duration::from_millis(100)));
        assert_eq!(every(&["-L"]), Every::Once);
    }

    #[test]
    fn wrong_words_end_with_the_tools_status() {
        for (words, status) in [
            (&["--query-gpu=name"][..], 2),
            (&["--query-gpu=name", "--format=json"], 2),
            (&["-z"], 2),
            (&["-x"], 2),
            (&["-q", "-L"], 2),
            (&["-i"], 2),
            (&["-q", "-d", "WEATHER"], 2),
            (&["-pm", "1"], 3),
            (&["dmon"], 3),
        ] {
            assert_eq!(parsed(words).unwrap_err().status, status, "{words:?}");
        }
    }
}
