//! Makes one HTML file that shows recordings of GPU memory and the answers of oomph, without a network.
//!
//! - [`Page`] is what is shown; [`Page::html`] writes it.
//! - Layout and levels of detail are computed here: `space` packs the address space, `groups` divides the blocks, `levels`
//!   adds them up over time, `card` writes a card's tables, `pack` codes columns and compresses them.
//! - `web/` holds the page's program (TypeScript). Its built files in `assets/` are part of this crate, so that a build
//!   needs no node; `web/build.mjs` makes them again.
//!
//! A page with an answer and no recording. What a program wrote cannot become markup:
//!
//! ```
//! use oomph_view::{Answer, Page};
//!
//! let answer = Answer { headline: "does not fit <script>alert(1)</script>".to_owned(), ..Answer::default() };
//! let html = Page { answer: Some(answer), ..Page::default() }.html()?;
//! assert!(html.starts_with("<!doctype html>"));
//! assert!(!html.contains("alert(1)"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Design constraints:
//! - Nothing that a recording contains becomes markup: it travels as compressed data, and the page puts it in place as
//!   text. The policy of the page allows its own script and style by their digests, and no request at all.
#![forbid(unsafe_code)]

mod card;
mod groups;
mod levels;
mod pack;
mod private;
mod space;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oomph_explain::snapshot::{Explanation, History};
use oomph_trace::Trace;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use private::Shortener;

/// The page's program, as `web/build.mjs` makes it.
pub const SCRIPT: &str = include_str!("../assets/view.js");
/// The page's style.
pub const STYLE: &str = include_str!("../assets/view.css");

/// A recording with what is known of it.
pub struct Recording<'a> {
    /// The file's name.
    pub name: String,
    /// What was read.
    pub trace: &'a Trace,
    /// What it means.
    pub explanation: &'a Explanation,
    /// Every card's blocks over time, in the order of the explanation.
    pub history: Vec<History>,
}

/// What a page shows.
#[derive(Default)]
pub struct Page<'a> {
    /// The title.
    pub title: String,
    /// The answer of the command that made it, where there is one.
    pub answer: Option<Answer>,
    /// The recordings.
    pub recordings: Vec<Recording<'a>>,
    /// Leaves out folders and lines of source.
    pub private: bool,
    /// Shows the first two cards side by side.
    pub compare: bool,
}

/// An answer for a page: a headline, and sections below it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    /// The answer in one sentence.
    pub headline: String,
    /// How good the news is.
    pub tone: Tone,
    /// What belongs to the headline, a sentence each.
    pub lines: Vec<String>,
    /// What follows.
    pub sections: Vec<Section>,
}

/// How good the news is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// It fits.
    Good,
    /// It does not.
    Bad,
    /// Neither.
    #[default]
    Plain,
}

/// A part of an answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Sentences before the rows.
    pub lines: Vec<String>,
    /// What bars are measured against, in bytes, where there is such a thing: a card.
    pub limit: Option<u64>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a section: a bar where it has bytes, a text that can be copied where it has one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// How large, in bytes.
    pub bytes: Option<u64>,
    /// What else there is to say.
    pub note: String,
    /// How good the news is.
    pub tone: Tone,
    /// A patch or a command.
    pub code: Option<String>,
}

#[derive(Serialize)]
struct Document {
    version: u32,
    title: String,
    oomph: &'static str,
    private: bool,
    compare: bool,
    answer: Value,
    notes: Vec<String>,
    cards: Vec<card::Card>,
    strings: Vec<String>,
}

impl Page<'_> {
    /// The page as HTML.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which takes more memory than there is.
    pub fn html(&self) -> Result<String, serde_json::Error> {
        let data = self.data()?;
        let digest = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
            digest(SCRIPT),
            digest(STYLE)
        );
        let title = escaped(&self.shortener().map_or_else(|| self.title.clone(), |short| short.text(&self.title)));
        let mut html = String::with_capacity(data.len() + SCRIPT.len() + STYLE.len() + 2048);
        for part in [
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
            "<meta http-equiv=\"Content-Security-Policy\" content=\"",
            &policy,
            "\">\n<meta name=\"referrer\" content=\"no-referrer\">\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
            &title,
            "</title>\n<style>",
            STYLE,
            "</style>\n</head>\n<body>\n<main id=\"app\"><p class=\"loading\">Unpacking the recording.</p></main>\n",
            "<noscript>This page draws with JavaScript, which is switched off.</noscript>\n",
            "<script type=\"application/octet-stream\" id=\"data\">",
            &data,
            "</script>\n<script>",
            SCRIPT,
            "</script>\n</body>\n</html>\n",
        ] {
            html.push_str(part);
        }
        Ok(html)
    }

    fn shortener(&self) -> Option<Shortener> {
        let names = self.recordings.iter().map(|recording| recording.name.clone());
        self.private.then(|| Shortener::new(self.recordings.iter().map(|recording| recording.trace), names))
    }

    fn data(&self) -> Result<String, serde_json::Error> {
        let (mut columns, mut strings) = (pack::Columns::default(), card::Strings::default());
        let mut cards = Vec::new();
        let mut notes = Vec::new();
        for recording in &self.recordings {
            notes.extend(recording.explanation.notes.iter().cloned());
            let file = recording.name.rsplit(['/', '\\']).next().unwrap_or(&recording.name);
            let several = recording.history.len() > 1;
            for (history, explained) in recording.history.iter().zip(&recording.explanation.devices) {
                let label = if several || self.recordings.len() == 1 {
                    format!("{file} · cuda:{}", history.index)
                } else {
                    file.to_owned()
                };
                let card = card::card(&mut columns, &mut strings, label, recording.trace, history, explained)?;
                cards.push(card);
            }
        }
        let mut document = Document {
            version: 1,
            title: self.title.clone(),
            oomph: env!("CARGO_PKG_VERSION"),
            private: self.private,
            compare: self.compare,
            answer: serde_json::to_value(&self.answer)?,
            notes,
            cards,
            strings: strings.rows,
        };
        let Some(short) = self.shortener() else { return columns.pack(&document) };
        document.strings = document.strings.iter().map(|text| short.text(text)).collect();
        let mut value = serde_json::to_value(&document)?;
        short.value(&mut value);
        columns.pack(&value)
    }
}

/// Text that is safe in markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ if character.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}
