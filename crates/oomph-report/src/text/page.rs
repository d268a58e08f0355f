//! Lays out a page of text: words with an emphasis, wrapped at the terminal's width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal. Anything under 20 is taken as 20.
    pub width: usize,
    /// Whether colour may be used. It only repeats what the words and glyphs say.
    pub colour: bool,
    /// Whether block elements and other characters beyond ASCII can be shown. (Names that the program chose are
    /// printed as they are in either case.)
    pub unicode: bool,
}

impl Default for Style {
    /// What suits a file or a pipe: 80 columns, no colour, ASCII.
    fn default() -> Self {
        Self { width: 80, colour: false, unicode: false }
    }
}

/// Narrower than this, lines are as long as they need to be.
const LEAST_WIDTH: usize = 20;

/// How a word is set off from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Not at all.
    #[default]
    Plain,
    /// The most important words of a page.
    Strong,
    /// A good answer.
    Good,
    /// A bad answer.
    Bad,
    /// Something to be careful about.
    Care,
    /// Less important words.
    Faint,
    /// The bar's allocated part.
    Allocated,
    /// The bar's cached part.
    Cached,
    /// The bar's context.
    Context,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Good => "1;32",
            Self::Bad => "1;31",
            Self::Care => "1;33",
            Self::Faint => "2",
            Self::Allocated => "34",
            Self::Cached => "36",
            Self::Context => "33",
        }
    }
}

/// A page that is being written.
#[derive(Debug)]
pub(crate) struct Page {
    style: Style,
    out: String,
}

impl Page {
    pub(crate) fn new(style: Style) -> Self {
        Self { style: Style { width: style.width.max(LEAST_WIDTH), ..style }, out: String::new() }
    }

    /// Columns that a line may have.
    pub(crate) fn width(&self) -> usize {
        self.style.width
    }

    /// Whether characters beyond ASCII may be used.
    pub(crate) fn unicode(&self) -> bool {
        self.style.unicode
    }

    /// Leaves one line empty, but never the first and never two in a row.
    pub(crate) fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Writes a paragraph: words are separated by spaces and wrapped; every line but the first is indented by
    /// `hanging` columns, the first by `indent`. A word that is wider than the page is not broken, so that a path or a
    /// command can still be copied.
    pub(crate) fn paragraph(&mut self, indent: usize, hanging: usize, parts: &[(Ink, &str)]) {
        let mut column = self.indent(indent);
        let mut line_is_empty = true;
        for (ink, text) in parts {
            for (position, word) in text.split(' ').filter(|word| !word.is_empty()).enumerate() {
                // A part that does not begin with a space continues the word before it: "(" and its content.
                let glued = position == 0 && !text.starts_with(' ') && !line_is_empty;
                let width = word.width();
                if !line_is_empty && !glued {
                    if column + 1 + width > self.style.width {
                        self.out.push('\n');
                        column = self.indent(hanging);
                    } else {
                        self.out.push(' ');
                        column += 1;
                    }
                }
                self.ink(*ink, word);
                column += width;
                line_is_empty = false;
            }
        }
        self.out.push('\n');
    }

    /// Writes items separated by a gap of two columns, wrapped between items only.
    pub(crate) fn items(&mut self, indent: usize, items: &[Vec<(Ink, String)>]) {
        let mut column = self.indent(indent);
        for (position, item) in items.iter().enumerate() {
            let width: usize = item.iter().map(|(_, text)| text.width()).sum();
            if position > 0 {
                if column + 2 + width > self.style.width {
                    self.out.push('\n');
                    column = self.indent(indent);
                } else {
                    self.out.push_str("  ");
                    column += 2;
                }
            }
            for (ink, text) in item {
                self.ink(*ink, text);
            }
            column += width;
        }
        self.out.push('\n');
    }

    /// Writes one line unwrapped, however long.
    pub(crate) fn line(&mut self, indent: usize, parts: &[(Ink, &str)]) {
        self.indent(indent);
        for (ink, text) in parts {
            self.ink(*ink, text);
        }
        self.out.push('\n');
    }

    /// Hands over the text.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    fn indent(&mut self, columns: usize) -> usize {
        self.out.extend(std::iter::repeat_n(' ', columns));
        columns
    }

    fn ink(&mut self, ink: Ink, text: &str) {
        if self.style.colour && ink != Ink::Plain && !text.is_empty() {
            self.out.push_str("\x1b[");
            self.out.push_str(ink.code());
            self.out.push('m');
            self.out.push_str(text);
            self.out.push_str("\x1b[0m");
        } else {
            self.out.push_str(text);
        }
    }
}

/// Cuts a text at `room` columns, showing that it was cut.
#[must_use]
pub fn shortened(text: &str, room: usize, unicode: bool) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let dots = if unicode { "…" } else { "..." };
    let room = room.saturating_sub(dots.width());
    let mut columns = 0;
    let mut cut: String = text
        .chars()
        .take_while(|character| {
            columns += character.width().unwrap_or(0);
            columns <= room
        })
        .collect();
    cut += dots;
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_wrap_and_hang() {
        let mut page = Page::new(Style { width: 24, ..Style::default() });
        page.paragraph(0, 2, &[(Ink::Care, "warning:"), (Ink::Plain, " one two three four"), (Ink::Plain, ", five")]);
        assert_eq!(page.finish(), "warning: one two three\n  four, five\n");
    }

    #[test]
    fn a_word_wider_than_the_page_stays_whole() {
        let mut page = Page::new(Style { width: 1, ..Style::default() });
        page.paragraph(2, 4, &[(Ink::Plain, "at /a/very/long/path/that/does/not/fit.py:1 in f")]);
        assert_eq!(page.finish(), "  at\n    /a/very/long/path/that/does/not/fit.py:1\n    in f\n");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        let mut page = Page::new(Style { colour: true, ..Style::default() });
        page.line(0, &[(Ink::Good, "fits")]);
        assert_eq!(page.finish(), "\u{1b}[1;32mfits\u{1b}[0m\n");
    }
}
