//! Reads notebooks: their cells as one Python file, and a changed file as the notebook with only those lines changed.
//!
//! Lines of a notebook are strings in JSON. A changed line becomes another string in its place, and every other byte of the
//! notebook stays.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use similar::{DiffOp, TextDiff};

use crate::edit::{Edit, edited};
use crate::source::Source;

/// A line before each cell, with the cell's number.
const MARK: &str = "#%%oomph-cell ";

/// What precedes a line that IPython understands and Python does not.
const MAGIC: &str = "pass  #%%oomph-line ";

/// A notebook with the place of each line of its code.
#[derive(Debug)]
pub(crate) struct Notebook {
    text: String,
    cells: Vec<Cell>,
}

/// A cell of code.
#[derive(Debug)]
struct Cell {
    /// Its place among the cells of the notebook.
    number: usize,
    /// Its lines, with their ends.
    lines: Vec<String>,
    /// Where each line's string is; one range for all where the cell is one string.
    places: Vec<Range<usize>>,
    /// The text between two strings.
    separator: String,
    /// Whether the cell is one string.
    whole: bool,
}

/// What is read of a notebook.
#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    cells: Vec<Inner<'a>>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(borrow)]
    cell_type: Cow<'a, str>,
    #[serde(borrow)]
    source: &'a RawValue,
}

impl Notebook {
    /// Reads a notebook; `None` where the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let outer: Outer<'_> = serde_json::from_str(text).ok()?;
        let code = outer.cells.iter().enumerate().filter(|(_, cell)| cell.cell_type == "code");
        let cells = code.filter_map(|(number, cell)| Cell::of(text, number, cell.source)).collect();
        Some(Self { text: text.to_owned(), cells })
    }

    /// The notebook as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The cells that are Python, as one file.
    pub fn python(&self) -> String {
        let mut text = String::new();
        for cell in &self.cells {
            let python = cell.python();
            if cell.is_python() && Source::parse(&python).is_some() {
                text.push_str(&format!("{MARK}{}\n{python}", cell.number));
                if !text.ends_with('\n') {
                    text.push('\n');
                }
            }
        }
        text
    }

    /// The notebook with the cells of a changed file; `None` where its cells can no longer be distinguished.
    pub fn with(&self, python: &str) -> Option<String> {
        let mut edits = Vec::new();
        let mut seen = 0;
        for part in python.split(MARK).skip(1) {
            let (number, body) = part.split_once('\n')?;
            let number: usize = number.trim().parse().ok()?;
            let cell = self.cells.iter().find(|cell| cell.number == number)?;
            seen += 1;
            edits.extend(cell.changed(&original_lines(body)));
        }
        (seen == self.python().matches(MARK).count()).then(|| edited(&self.text, &edits)).flatten()
    }
}

impl Cell {
    fn of(text: &str, number: usize, source: &RawValue) -> Option<Self> {
        let place = |raw: &str| {
            let start = (raw.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
            Some(start..start + raw.len())
        };
        if let Ok(strings) = serde_json::from_str::<Vec<&RawValue>>(source.get()) {
            let places: Vec<Range<usize>> = strings.iter().filter_map(|raw| place(raw.get())).collect();
            let lines =
                strings.iter().map(|raw| serde_json::from_str(raw.get()).ok()).collect::<Option<Vec<String>>>()?;
            let first = places.first()?;
            let opening = place(source.get())?.start + 1;
            let separator = format!(",{}", text.get(opening..first.start)?);
            return Some(Self { number, lines, places, separator, whole: false });
        }
        let all: String = serde_json::from_str(source.get()).ok()?;
        let lines = all.split_inclusive('\n').map(str::to_owned).collect();
        Some(Self { number, lines, places: vec![place(source.get())?], separator: String::new(), whole: true })
    }

    /// Whether the kernel runs the cell as Python: `%%bash` gives it to something else.
    fn is_python(&self) -> bool {
        let magic = self.lines.first().and_then(|line| line.strip_prefix("%%"));
        magic.is_none_or(|magic| {
            let name = magic.split_whitespace().next().unwrap_or_default();
            matches!(name, "time" | "timeit" | "capture" | "prun")
        })
    }

    /// The cell as Python.
    fn python(&self) -> String {
        self.lines.iter().map(|line| as_python(line)).collect()
    }

    /// The edits of the notebook that give the cell other lines.
    fn changed(&self, lines: &[String]) -> Vec<Edit> {
        // The last line of a cell has no end.
        let mut lines = lines.to_vec();
        if let (Some(last), Some(before)) = (lines.last_mut(), self.lines.last())
            && !before.ends_with('\n')
        {
            last.truncate(last.trim_end_matches('\n').len());
        }
        if lines == self.lines {
            return Vec::new();
        }
        if self.whole {
            return vec![Edit { range: self.places[0].clone(), text: literal(&lines.concat()) }];
        }
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.lines.iter().map(String::as_str).collect(), lines.iter().map(String::as_str).collect());
        let diff = TextDiff::from_slices(&old, &new);
        diff.ops().iter().filter_map(|op| self.edit(op, &lines)).collect()
    }

    fn edit(&self, op: &DiffOp, lines: &[String]) -> Option<Edit> {
        let (old, new) = (op.old_range(), op.new_range());
        if matches!(op, DiffOp::Equal { .. }) {
            return None;
        }
        let strings: Vec<String> = lines[new].iter().map(|line| literal(line)).collect();
        let text = strings.join(&self.separator);
        let last = self.places.len().checked_sub(1)?;
        Some(match (old.is_empty(), strings.is_empty()) {
            (false, false) => Edit { range: self.places[old.start].start..self.places[old.end - 1].end, text },
            (true, _) if old.start > last => Edit::insert(self.places[last].end, format!("{}{text}", self.separator)),
            (true, _) => Edit::insert(self.places[old.start].start, format!("{text}{}", self.separator)),
            (false, true) if old.end > last && old.start > 0 => {
                Edit { range: self.places[old.start - 1].end..self.places[last].end, text }
            }
            (false, true) if old.end > last => Edit { range: self.places[0].start..self.places[last].end, text },
            (false, true) => Edit { range: self.places[old.start].start..self.places[old.end].start, text },
        })
    }
}

/// A line of a cell as Python: what IPython alone understands becomes a statement that does nothing.
fn as_python(line: &str) -> String {
    let code = line.trim_start_matches([' ', '\t']);
    if code.starts_with(['%', '!']) || code.starts_with('?') {
        return format!("{}{MAGIC}{code}", &line[..line.len() - code.len()]);
    }
    line.to_owned()
}

/// The lines of a cell as they are in the notebook.
fn original_lines(python: &str) -> Vec<String> {
    python.split_inclusive('\n').map(|line| line.replacen(MAGIC, "", 1)).collect()
}

/// A string as JSON, with letters as they are.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n   \"source\": [\n    \"# caf\\u00e9\"\n   ]\n  },\n  {\n   \
        \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \
        \"%matplotlib inline\\n\",\n    \"import torch\\n\",\n    \"x = \\\"\\u00e9\\\"\"\n   ]\n  },\n  {\n   \"cell_type\": \"code\",\n   \
        \"source\": \"total += loss\\nprint(total)\"\n  },\n  {\n   \"cell_type\": \"code\",\n   \"source\": [\n    \"%%bash\\n\",\n    \
        \"ls -l | wc\"\n   ]\n  }\n ]\n}\n";

    #[test]
    fn only_changed_lines_change_in_the_notebook() {
        let notebook = Notebook::parse(TEXT).unwrap();
        let python = notebook.python();
        assert!(python.contains("import torch\n") && !python.contains("ls -l"), "{python}");
        assert_eq!(notebook.with(&python).unwrap(), TEXT);
        let changed = notebook.with(&python.replace("+= loss", "+= loss.item()")).unwrap();
        assert_eq!(changed, TEXT.replace("+= loss", "+= loss.item()"));
        let changed = notebook.with(&python.replace("import torch\n", "import torch\nimport os\n")).unwrap();
        assert_eq!(changed, TEXT.replace("\"import torch\\n\",", "\"import torch\\n\",\n    \"import os\\n\","));
        let changed = notebook.with(&python.replace("import torch\n", "")).unwrap();
        assert_eq!(changed, TEXT.replace("\"import torch\\n\",\n    ", ""));
        // A line after the last one of a cell gives that one an end.
        let changed = notebook.with(&python.replace("x = \"\u{e9}\"\n", "x = \"\u{e9}\"\ny = 1\n")).unwrap();
        let wanted = TEXT.replace("\"x = \\\"\\u00e9\\\"\"", "\"x = \\\"\u{e9}\\\"\\n\",\n    \"y = 1\"");
        assert_eq!(changed, wanted);
    }

    #[test]
    fn what_is_no_notebook_is_refused() {
        for text in ["", "[]", "{\"cells\": 3}", "{\"cells\": [{\"cell_type\": \"code\"}]}"] {
            assert!(Notebook::parse(text).is_none(), "{text}");
        }
    }
}
