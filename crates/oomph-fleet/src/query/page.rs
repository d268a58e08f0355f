//! Writes the fleet as one page for a browser, without a network and without a program: the usual questions and their
//! answers.

use anyhow::Result;
use datafusion::arrow::datatypes::SchemaRef;

use super::engine::Engine;
use super::output::{cells, is_number};
use super::usual::USUAL;
use crate::name::spelt;

/// Rows of a question that the page shows.
const MOST_ROWS: usize = 50;

/// What the page says first, in numbers.
const TOTALS: &str = "
SELECT
    (SELECT count(*) FROM files) AS files,
    (SELECT count(*) FROM failures) AS failures,
    (SELECT count(*) FROM failures WHERE is_gpu_oom) AS gpu_ooms,
    (SELECT count(*) FROM reports) AS reports,
    (SELECT count(*) FROM attempts) AS attempts,
    (SELECT count(*) FROM bad_files) AS bad_files,
    (SELECT min(day) FROM failures) AS first_day,
    (SELECT max(day) FROM failures) AS last_day";

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--faint:#888;--bar:#e0663344}
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2.2rem 0 .4rem}
.faint{color:var(--faint)}.totals{display:flex;flex-wrap:wrap;gap:1.6rem;margin:1.2rem 0}
.totals b{display:block;font-size:1.35rem}.wrap{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top;overflow-wrap:anywhere}th{font-weight:600}.n{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}td.b{background-repeat:no-repeat}code{font-size:.85em}";

/// The page.
///
/// # Errors
/// When a question cannot be answered.
pub fn page(engine: &Engine, dataset: &str) -> Result<String> {
    let mut body = String::new();
    let rows = engine.ask(TOTALS)?;
    let schema = rows.schema();
    let (totals, _) = cells(rows, 1)?;
    body.push_str(&format!("<h1>GPU memory of a fleet</h1><p class=faint>{}</p><div class=totals>", escaped(dataset)));
    for (field, value) in schema.fields().iter().zip(totals.iter().flatten()) {
        body.push_str(&format!("<div><b>{}</b>{}</div>", escaped(value), escaped(&field.name().replace('_', " "))));
    }
    body.push_str("</div>");
    for usual in USUAL {
        let rows = engine.ask(usual.file)?;
        let schema = rows.schema();
        let (rows, more) = cells(rows, MOST_ROWS)?;
        body.push_str(&format!("<h2>{}</h2>", escaped(usual.asks())));
        if rows.is_empty() {
            body.push_str("<p class=faint>Nothing in this dataset.</p>");
            continue;
        }
        body.push_str(&table(&schema, &rows));
        let more = if more { " The page shows the first rows." } else { "" };
        body.push_str(&spelt(&format!("<p class=faint><code>oomph-fleet query {} DIR</code>{more}</p>", usual.name)));
    }
    Ok(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>GPU memory of a fleet</title><style>{STYLE}</style><body>{body}</body></html>\n"
    ))
}

fn table(schema: &SchemaRef, rows: &[Vec<String>]) -> String {
    let class = |index: usize| if is_number(schema.field(index).data_type()) { " class=n" } else { "" };
    let mut html = "<div class=wrap><table><tr>".to_owned();
    for (index, field) in schema.fields().iter().enumerate() {
        html.push_str(&format!("<th{}>{}</th>", class(index), escaped(&field.name().replace('_', " "))));
    }
    html.push_str("</tr>");
    for row in rows {
        html.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            html.push_str(&format!("<td{}>{}</td>", class(index), escaped(cell)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

/// A text that is not markup, whatever a log holds.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_log_becomes_markup() {
        assert_eq!(escaped("<script>'&\"</script>"), "&lt;script&gt;&#39;&amp;&quot;&lt;/script&gt;");
    }
}
