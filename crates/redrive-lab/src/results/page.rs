//! The page of a result, as Markdown and as HTML.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::outcome::VariantResult;
use super::summary::Summary;

/// The texts of a page that come from the current scenario file, whenever the run was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioWords<'a> {
    /// Why the curves look as they do.
    pub explains: &'a str,
    pub downstream: &'a str,
}

/// Rows of text, the header first.
pub type Rows = Vec<Vec<String>>;

/// The table of measured figures.
pub fn table(summary: &Summary) -> Rows {
    let mut head = vec!["variant".to_owned()];
    head.extend(summary.columns.iter().map(|column| column.title.clone()));
    let row = |variant: &VariantResult| {
        let cell = |figure: &str| variant.figures.get(figure).copied();
        let cells = summary
            .columns
            .iter()
            .map(|column| cell(&column.figure).map_or("–".to_owned(), |value| column.unit.text(value)));
        std::iter::once(variant.name.clone()).chain(cells).collect()
    };
    std::iter::once(head).chain(summary.variants.iter().map(row)).collect()
}

/// The forecasts of `check` next to the measurements, or a line saying that there are none.
pub fn forecasts(summary: &Summary) -> Rows {
    if summary.forecasts.is_empty() {
        return vec![vec!["`redrive check` makes no forecast of these figures".to_owned()]];
    }
    let head = ["forecast of `redrive check`", "forecast", "measured", ""].map(str::to_owned).to_vec();
    let rows = summary.forecasts.iter().map(|line| {
        let measured = line.measured_text();
        vec![line.what.clone(), line.forecast_text(), measured, sign(line.met).to_owned()]
    });
    std::iter::once(head).chain(rows).collect()
}

/// The settings that all variants share: `rate 500 · outage 60s`.
pub fn common_settings(summary: &Summary) -> String {
    let common = summary.common_settings();
    common.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(" · ")
}

/// The settings in which the variants differ, a column per parameter. Empty if there are none.
pub fn own_settings(summary: &Summary) -> Rows {
    let own = |variant: &VariantResult| summary.own_settings(&variant.name);
    let names: BTreeSet<String> =
        summary.variants.iter().flat_map(|variant| own(variant).into_keys()).collect();
    if names.is_empty() {
        return Rows::new();
    }
    let head = std::iter::once("variant".to_owned()).chain(names.iter().cloned()).collect();
    let row = |variant: &VariantResult| {
        let own = own(variant);
        let cells = names.iter().map(|name| own.get(name).cloned().unwrap_or_else(|| "–".to_owned()));
        std::iter::once(variant.name.clone()).chain(cells).collect()
    };
    std::iter::once(head).chain(summary.variants.iter().map(row)).collect()
}

/// The scenario and the content of its file.
fn identity(summary: &Summary) -> String {
    if summary.scenario_hash.is_empty() {
        return "made before results recorded the content of their scenario".to_owned();
    }
    format!("scenario {} with content {}", summary.scenario, summary.scenario_hash)
}

fn verdicts(summary: &Summary) -> Rows {
    let head = ["", "variant", "figure", "measured", "expected", "reason"].map(str::to_owned).to_vec();
    let rows = summary.verdicts.iter().map(|verdict| {
        let (measured, range) = summary.judged(verdict);
        let speed = if verdict.depends_on_speed { " (depends on the machine)" } else { "" };
        vec![
            sign(verdict.met).to_owned(),
            verdict.variant.clone(),
            verdict.figure.clone(),
            measured,
            range,
            format!("{}{speed}", verdict.reason),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

pub const fn sign(met: bool) -> &'static str {
    if met { "✓" } else { "✗" }
}

fn machine(summary: &Summary) -> String {
    // In results without a hash, the load was measured after the run and includes it.
    let is_of_the_end = |name: &str| name == "load at start" && summary.scenario_hash.is_empty();
    let part = |(name, value): (&String, &String)| {
        let name = if is_of_the_end(name) { "load at the end" } else { name };
        format!("{name} {value}")
    };
    summary.machine.iter().map(part).collect::<Vec<_>>().join(" · ")
}

fn audit(summary: &Summary) -> String {
    summary
        .audit()
        .map_or("No messages were delivered: this is a model.".to_owned(), |audit| audit.to_string())
}

/// Formats the rows as lines of aligned columns.
pub fn aligned(rows: &Rows) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|i| width(i).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

pub fn markdown_table(rows: &Rows) -> String {
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if i == 0 {
            let _ = writeln!(text, "| {} |", vec!["---"; row.len()].join(" | "));
        }
    }
    text
}

pub fn markdown(summary: &Summary, words: ScenarioWords<'_>) -> String {
    let ScenarioWords { explains, downstream } = words;
    let mut page = format!("# {}\n\n", summary.title);
    let _ = writeln!(page, "**{}**\n", summary.question);
    let _ = writeln!(page, "Result: {}.\n", summary.standing().text());
    let _ = writeln!(page, "{}\n", summary.why);
    let _ = writeln!(page, "## Method\n\n{}\n", summary.method);
    let size = if summary.quick { " A quick run: its figures are no measurement." } else { "" };
    let _ = writeln!(
        page,
        "Ran on: {}, seed {}, {:.0} s.{size} Machine: {}.\n",
        summary.ran_on,
        summary.seed,
        summary.took_seconds,
        machine(summary)
    );
    let _ = writeln!(page, "Downstream: {downstream}. Identity: {}.\n", identity(summary));
    let _ = writeln!(page, "```sh\n{}\n```\n", summary.command);
    if !summary.settings.is_empty() {
        let _ = writeln!(page, "## Settings\n\n{}\n", common_settings(summary));
        let own = own_settings(summary);
        if !own.is_empty() {
            let _ = writeln!(page, "{}", markdown_table(&own));
        }
    }
    let _ = writeln!(page, "## Measured\n\n{}", markdown_table(&table(summary)));
    let _ = writeln!(page, "Audit by id: {}\n", audit(summary));
    for note in &summary.notes {
        let _ = writeln!(page, "- {note}");
    }
    if !summary.notes.is_empty() {
        page.push('\n');
    }
    for (file, title) in &summary.plots {
        let _ = writeln!(page, "![{title}]({file})\n");
    }
    let _ = writeln!(page, "## Why it looks like this\n\n{explains}\n");
    let _ = writeln!(page, "## Forecast\n\n{}", markdown_table(&forecasts(summary)));
    let _ = writeln!(page, "## Verdicts\n\n{}", markdown_table(&verdicts(summary)));
    let _ = writeln!(
        page,
        "The samples that the plots are drawn from: [samples.csv](samples.csv). All figures: [summary.json](summary.json)."
    );
    page
}

pub fn html(summary: &Summary, words: ScenarioWords<'_>) -> String {
    let ScenarioWords { explains, downstream } = words;
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\n",
    );
    let _ = writeln!(page, "<title>{}</title>", escaped(&summary.title));
    page.push_str(
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
         table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}\
         pre{background:#f4f4f4;padding:.6em;overflow:auto}img{max-width:100%}</style></head><body>\n",
    );
    let _ = writeln!(page, "<h1>{}</h1>", escaped(&summary.title));
    let _ = writeln!(page, "<p><strong>{}</strong></p>", escaped(&summary.question));
    let _ = writeln!(page, "<p>Result: {}.</p>", summary.standing().text());
    let _ = writeln!(page, "<p>{}</p>", escaped(&summary.why));
    let _ = writeln!(page, "<h2>Method</h2><p>{}</p>", escaped(&summary.method));
    let size = if summary.quick { " A quick run: its figures are no measurement." } else { "" };
    let _ = writeln!(
        page,
        "<p>Ran on: {}, seed {}, {:.0} s.{size} Machine: {}.</p>",
        escaped(&summary.ran_on),
        summary.seed,
        summary.took_seconds,
        escaped(&machine(summary))
    );
    let _ = writeln!(
        page,
        "<p>Downstream: {}. Identity: {}.</p>",
        escaped(downstream),
        escaped(&identity(summary))
    );
    let _ = writeln!(page, "<pre>{}</pre>", escaped(&summary.command));
    if !summary.settings.is_empty() {
        let _ = writeln!(page, "<h2>Settings</h2><p>{}</p>", escaped(&common_settings(summary)));
        page.push_str(&html_table(&own_settings(summary)));
        page.push('\n');
    }
    let _ = writeln!(page, "<h2>Measured</h2>{}", html_table(&table(summary)));
    let _ = writeln!(page, "<p>Audit by id: {}</p>", escaped(&audit(summary)));
    for note in &summary.notes {
        let _ = writeln!(page, "<p>{}</p>", escaped(note));
    }
    for (file, title) in &summary.plots {
        let (file, title) = (escaped(file), escaped(title));
        let _ = writeln!(page, "<p><img src=\"{file}\" alt=\"{title}\"></p>");
    }
    let _ = writeln!(page, "<h2>Why it looks like this</h2>");
    for paragraph in explains.split("\n\n") {
        let _ = writeln!(page, "<p>{}</p>", escaped(paragraph));
    }
    let _ = writeln!(page, "<h2>Forecast</h2>{}", html_table(&forecasts(summary)));
    let _ = writeln!(page, "<h2>Verdicts</h2>{}", html_table(&verdicts(summary)));
    page.push_str(
        "<p>The samples that the plots are drawn from: <a href=\"samples.csv\">samples.csv</a>. \
         All figures: <a href=\"summary.json\">summary.json</a>.</p>\n",
    );
    page.push_str("</body></html>\n");
    page
}

fn html_table(rows: &Rows) -> String {
    let mut text = String::from("<table>");
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<{tag}>{}</{tag}>", escaped(cell));
        }
        text.push_str("</tr>");
    }
    text.push_str("</table>");
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_markup_is_escaped() {
        let rows = vec![vec!["a|b".to_owned()], vec!["<script>".to_owned()]];
        assert!(markdown_table(&rows).contains("a\\|b"));
        assert!(html_table(&rows).contains("&lt;script&gt;"));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = vec![vec!["variant".to_owned(), "lag".to_owned()], vec!["a".to_owned(), "1".to_owned()]];
        assert_eq!(aligned(&rows), ["variant  lag", "a        1"]);
    }
}
