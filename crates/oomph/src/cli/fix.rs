//! `oomph fix`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use oomph_gpu::size::Size;
use oomph_remedy::search::Prefer;
use oomph_report::clean;

use super::{FormatArgs, PageArgs, ProgramArgs, at_least_one};
use crate::failure::Hinted;
use crate::syntax::{Amount, Syntax, Together, Typed, Validated, duration, margin, target, typed};

pub(super) const HELP: &str = "\
Examples:
  What makes a program fit a card, cheapest first?
      oomph fix --gpu rtx-3060 -- python train.py

  Nothing that changes the result, and 1 GiB to spare:
      oomph fix --gpu rtx-3060 --forbid lora,qlora,adafactor --margin 1GiB -- python train.py

  Run the program with the first fix, or keep the fix as a patch or a script:
      oomph fix --gpu rtx-3060 --apply 1 -- python train.py
      oomph fix --gpu rtx-3060 --write 1 fix.patch -- python train.py
      oomph fix --gpu rtx-3060 --write 1 train-fixed.sh -- python train.py

  Change the program's files:
      oomph fix --gpu rtx-3060 --in-place 1 -- python train.py

  Write a changed copy of the program's configuration file:
      oomph fix --gpu rtx-3060 --write 1 fixed.yml -- axolotl train run.yml

Every fix was run on the virtual GPU exactly as printed; for a patch, the patched
files were run. The program's own files change only with --in-place.

Exit status:
  0    it fits already, or a fix was found
  1    nothing fits
  2    wrong usage, or a required file or package is missing or unreadable
  3    the program failed for another reason
  4    no fix was found before the search ended (--max-time)
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph fix` takes.
#[derive(Debug, Args)]
pub struct FixArgs {
    /// The program and its cards.
    #[command(flatten)]
    pub program: ProgramArgs,

    /// List the remedies: ids, effects, what stays the same, and frameworks
    #[arg(long)]
    pub list: bool,

    /// What to optimize for
    #[arg(long, value_parser = preference(), default_value = "quality")]
    pub prefer: Prefer,

    /// Try only these remedies: ids from --list, or words like amp, checkpointing, lora
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub allow: Vec<String>,

    /// Do not try these remedies
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub forbid: Vec<String>,

    /// Make it fit into this much memory instead of the whole card
    #[arg(long, value_name = "SIZE", value_parser = Syntax(typed(target)))]
    pub target: Option<Typed<Size>>,

    /// Leave this much free (512MiB, 10%)
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = Syntax(typed(margin)))]
    pub margin: Option<Typed<Amount>>,

    /// Number of different fixes to look for
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub fixes: usize,

    /// Number of trials to run at a time, if the program allows it
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub jobs: Option<usize>,

    /// Start no new trial after this time [default: after 32 trials, fewer of a program that takes longer]
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration))]
    pub max_time: Option<Duration>,

    /// Then run the program with the Nth fix, on the virtual cards
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub apply: Option<usize>,

    /// With --apply: on this machine's own GPU, with its results
    #[arg(long, requires = "apply")]
    pub real: bool,

    /// The file that a fix is written to.
    #[command(flatten)]
    pub write: Validated<TypedFixFile>,

    /// Apply the Nth fix to the program's files, after asking; outside a git work tree a copy of each is kept
    #[arg(long, value_name = "N", value_parser = at_least_one(), conflicts_with = "apply")]
    pub in_place: Option<usize>,

    /// With --in-place: do not ask
    #[arg(long, requires = "in_place")]
    pub yes: bool,

    /// Count a program that runs out of memory, catches the error and goes on with less as fitting
    #[arg(long)]
    pub accept_recovered: bool,

    /// Do not run the fixes with real numbers to see what they do to the result
    #[arg(long)]
    pub no_compare: bool,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArgs,

    /// Also write the answer to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// `--write`, as it was typed.
#[derive(Debug, Args)]
pub struct TypedFixFile {
    /// Write the Nth fix to FILE, which must not exist: as a patch if FILE ends in .patch or .diff, as the program's
    /// configuration file if it ends in .yaml, .json or .toml, else as a script that runs the program with it
    #[arg(long, value_names = ["N", "FILE"], num_args = 2)]
    write: Vec<String>,
}

/// A file that a fix is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixFile {
    /// The number of the fix, from 1.
    pub number: usize,
    /// The file.
    pub path: PathBuf,
}

impl Together for TypedFixFile {
    type Value = Option<FixFile>;

    fn read(self) -> Result<Option<FixFile>, Hinted> {
        let [number, path] = self.write.as_slice() else { return Ok(None) };
        match number.parse::<usize>() {
            Ok(number @ 1..) => Ok(Some(FixFile { number, path: path.into() })),
            _ => Err(Hinted::new(
                format!("--write: `{}` is not the number of a fix", clean(number)),
                "write --write 1 FILE",
            )),
        }
    }
}

/// What `--prefer` takes: a word, its help, and what it means.
const PREFERENCES: [(&str, &str, Prefer); 3] = [
    ("speed", "Speed", Prefer::Speed),
    ("quality", "An unchanged result", Prefer::Quality),
    ("memory", "The most memory freed", Prefer::Memory),
];

fn preference() -> impl TypedValueParser<Value = Prefer> {
    let words = PREFERENCES.map(|(word, help, _)| PossibleValue::new(word).help(help));
    let meant = |typed: String| PREFERENCES.iter().find(|(word, ..)| *word == typed).map(|(.., prefer)| *prefer);
    // The parser lets no other word through.
    PossibleValuesParser::new(words).map(move |typed| meant(typed).unwrap_or_default())
}
