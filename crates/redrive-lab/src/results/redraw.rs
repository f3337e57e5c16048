//! Redraws the plots of a result from its `samples.csv`, so that improved drawing needs no new measurement.

use std::path::Path;

use super::files::ResultFault;
use super::plot::{Curve, Plot};
use super::summary::Summary;

/// File name and SVG of every plot whose axes are known, from the text of `samples.csv`.
pub(super) fn drawn(summary: &Summary, samples: &str) -> Result<Vec<(String, String)>, ResultFault> {
    let mut plots: Vec<Plot> = Vec::new();
    for line in samples.lines().skip(1) {
        let wrong = || ResultFault::Plot(format!("samples.csv: `{line}` is not plot,curve,x,y"));
        let fields = fields(line);
        let [name, curve, x, y] = fields.as_slice() else { return Err(wrong()) };
        // Heat maps have no axes.
        let Some(axes) = summary.axes.get(name) else { continue };
        let point = (x.parse().map_err(|_| wrong())?, y.parse().map_err(|_| wrong())?);
        if plots.last().is_none_or(|plot| plot.name != *name) {
            let title = summary.plots.iter().find(|(file, _)| file.strip_suffix(".svg") == Some(name));
            let title = title.map_or(String::new(), |(_, title)| title.clone());
            plots.push(Plot { name: name.clone(), title, axes: axes.clone(), curves: Vec::new() });
        }
        let Some(plot) = plots.last_mut() else { continue };
        let name = curve_name(summary, curve);
        match plot.curves.last_mut() {
            Some(last) if last.name == name => last.points.push(point),
            _ => plot.curves.push(Curve { name: name.to_owned(), points: vec![point] }),
        }
    }
    let svg = |plot: Plot| Ok((format!("{}.svg", plot.name), plot.svg().map_err(ResultFault::Plot)?));
    plots.into_iter().map(svg).collect()
}

/// In results of older versions, semicolons replace the commas in variant names.
fn curve_name<'a>(summary: &'a Summary, curve: &'a str) -> &'a str {
    let is_it = |name: &str| name.replace(',', ";") == curve;
    let variant = summary.variants.iter().find(|variant| is_it(&variant.name));
    variant.map_or(curve, |variant| &variant.name)
}

/// The same for the result in a directory.
pub(super) fn of_result(dir: &Path, summary: &Summary) -> Result<Vec<(String, String)>, ResultFault> {
    let path = dir.join("samples.csv");
    let samples = std::fs::read_to_string(&path).map_err(|error| ResultFault::Io { path, error })?;
    drawn(summary, &samples)
}

/// Splits a CSV line as written by `files`: quotes in quoted fields are doubled.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                push(&mut fields, '"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => push(&mut fields, letter),
        }
    }
    fields
}

fn push(fields: &mut [String], letter: char) {
    if let Some(last) = fields.last_mut() {
        last.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        assert_eq!(fields("lag,\"5s, \"\"none\"\"\",1.000,2"), ["lag", "5s, \"none\"", "1.000", "2"]);
        assert_eq!(fields("a,,b,"), ["a", "", "b", ""]);
    }
}
