//! Curves as SVG.

use std::collections::BTreeSet;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::{Axes, Axis, Scale};

/// Maximum number of points per curve that are drawn and stored.
const POINTS_MAX: usize = 400;
/// Curves with at most this many points show markers.
const MARKED_MAX: usize = 25;
/// Pixels: the plot with its axes, the title above it, and the legend beside it.
const WIDTH: i32 = 820;
const HEIGHT: i32 = 440;
const TITLE_HEIGHT: i32 = 34;
const LEGEND_LINE: i32 = 20;
const LEGEND_SAMPLE: i32 = 34;
const LETTER_WIDTH: i32 = 7;
const LINE: u32 = 2;
/// Distinguishable with red-green colour blindness.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 90, 181),
    RGBColor(213, 62, 0),
    RGBColor(0, 135, 90),
    RGBColor(170, 51, 140),
    RGBColor(225, 150, 0),
    RGBColor(60, 175, 225),
    RGBColor(90, 60, 40),
    RGBColor(130, 130, 130),
    RGBColor(20, 20, 20),
];
/// Lengths of dash and gap in pixels.
const DASHES: [Option<(u32, u32)>; 4] = [None, Some((10, 5)), Some((3, 4)), Some((20, 5))];
/// Up to this many curves are distinguished by colour alone.
const SOLID_MAX: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Creates a curve. Long curves are thinned to the highest point of each stretch, so that peaks remain.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        let name = name.to_owned();
        if points.len() <= POINTS_MAX {
            return Self { name, points };
        }
        let each = points.len().div_ceil(POINTS_MAX);
        let highest = |stretch: &[(f64, f64)]| stretch.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let points = points.chunks(each).filter_map(highest).collect();
        Self { name, points }
    }

    /// The cumulative share of `of` by duration in seconds.
    pub fn share_over_seconds(name: &str, took_ms: impl IntoIterator<Item = u32>, of: usize) -> Self {
        let points = Self::share_over_ms(took_ms.into_iter().collect(), of);
        Self::new(name, points.into_iter().map(|(ms, share)| (ms / 1000.0, share)).collect())
    }

    /// Points of (milliseconds, cumulative share of `of`); if `of` is 0, of all values.
    pub fn share_over_ms(mut took_ms: Vec<u32>, of: usize) -> Vec<(f64, f64)> {
        took_ms.sort_unstable();
        let of = if of == 0 { took_ms.len() } else { of } as f64;
        took_ms.iter().enumerate().map(|(i, ms)| (f64::from(*ms), (i + 1) as f64 / of)).collect()
    }
}

/// How a curve is drawn; unique within a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LineStyle {
    colour: usize,
    dash: usize,
}

/// Curves named `group, member`, with the same members in every group, get the group's colour and the member's dash.
/// Otherwise each gets the next colour and dash in turn.
fn styles(curves: &[Curve]) -> Vec<LineStyle> {
    let names: Option<Vec<(&str, &str)>> = curves.iter().map(|curve| curve.name.rsplit_once(", ")).collect();
    let places = |all: &[&str], of: &str| all.iter().position(|name| *name == of).unwrap_or(0);
    if let Some(names) = names {
        let groups = distinct(names.iter().map(|name| name.0));
        let members = distinct(names.iter().map(|name| name.1));
        let pairs = names.iter().collect::<BTreeSet<_>>().len();
        let is_grid = pairs == curves.len() && pairs == groups.len() * members.len() && groups.len() > 1;
        if is_grid && groups.len() <= COLOURS.len() && members.len() <= DASHES.len() {
            let style = |name: &(&str, &str)| LineStyle {
                colour: places(&groups, name.0),
                dash: places(&members, name.1),
            };
            return names.iter().map(style).collect();
        }
    }
    // The numbers of colours and dashes are coprime, so all pairs occur before one repeats.
    let dash = |i: usize| if curves.len() <= SOLID_MAX { 0 } else { i % DASHES.len() };
    (0..curves.len()).map(|i| LineStyle { colour: i % COLOURS.len(), dash: dash(i) }).collect()
}

/// Line widths. In plots with many curves, earlier solid lines are wider, because later ones are drawn over them.
fn widths(styles: &[LineStyle]) -> Vec<u32> {
    let mut over_it = 0;
    let mut widths: Vec<u32> = Vec::new();
    for style in styles.iter().rev() {
        let is_wide = style.dash == 0 && styles.len() > SOLID_MAX;
        widths.push(if is_wide { LINE + 2 * over_it } else { LINE });
        over_it += u32::from(is_wide);
    }
    widths.reverse();
    widths
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The file name without extension.
    pub name: String,
    pub title: String,
    pub axes: Axes,
    pub curves: Vec<Curve>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Fault = Box<dyn std::error::Error>;

impl Plot {
    pub fn new(name: &str, title: &str, x: &str, y: &str, curves: Vec<Curve>) -> Self {
        let axes = Axes { x: Axis::linear(x), y: Axis::linear(y) };
        Self { name: name.to_owned(), title: title.to_owned(), axes, curves }
    }

    #[must_use]
    pub fn x_scale(mut self, scale: Scale) -> Self {
        self.axes.x.scale = scale;
        self
    }

    #[must_use]
    pub fn y_scale(mut self, scale: Scale) -> Self {
        self.axes.y.scale = scale;
        self
    }

    /// The SVG. A plot that cannot be drawn is a drawing error, not an error of the run.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| format!("{}: {error}", self.name))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Fault> {
        let longest = self.curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
        let legend_width = LEGEND_SAMPLE + 24 + times(longest, LETTER_WIDTH);
        let height = HEIGHT.max(TITLE_HEIGHT + 20 + times(self.curves.len(), LEGEND_LINE));
        let size = ((WIDTH + legend_width).cast_unsigned(), height.cast_unsigned());
        let root = SVGBackend::with_string(text, size).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.clone(), (14, 12), ("sans-serif", 17)))?;
        let (_, below) = root.split_vertically(TITLE_HEIGHT);
        let (curves, legend) = below.split_horizontally(WIDTH);
        let styles = styles(&self.curves);
        self.draw_curves(&curves, &styles)?;
        self.draw_legend(&legend, &styles)?;
        root.present()?;
        Ok(())
    }

    fn draw_curves(&self, area: &Area<'_>, styles: &[LineStyle]) -> Result<(), Fault> {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let x = self.axes.x.ranged(points().map(|point| point.0));
        let y = self.axes.y.ranged(points().map(|point| point.1));
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(x.clone(), y.clone())?;
        chart
            .configure_mesh()
            .x_desc(&self.axes.x.text)
            .y_desc(&self.axes.y.text)
            .x_label_formatter(&|tick| x.label(*tick))
            .y_label_formatter(&|tick| y.label(*tick))
            .light_line_style(WHITE)
            .draw()?;
        let widths = widths(styles);
        let mut lines: Vec<usize> = (0..self.curves.len()).collect();
        // Dashed over solid and narrow over wide lines, so that overlapping curves all stay visible.
        lines.sort_by_key(|i| styles[*i].dash != 0);
        for (curve, style, width) in lines.into_iter().map(|i| (&self.curves[i], styles[i], widths[i])) {
            let colour = COLOURS[style.colour];
            let (points, line) = (curve.points.iter().copied(), colour.stroke_width(width));
            match DASHES[style.dash] {
                None => chart.draw_series(LineSeries::new(points, line))?,
                Some((dash, gap)) => {
                    chart.draw_series(DashedLineSeries::new(curve.points.clone(), dash, gap, line))?
                }
            };
            if curve.points.len() <= MARKED_MAX {
                let mark = |point: &(f64, f64)| Circle::new(*point, 3, colour.filled());
                chart.draw_series(curve.points.iter().map(mark))?;
            }
        }
        Ok(())
    }

    /// Draws the legend beside the plot, so that it hides no curve.
    fn draw_legend(&self, area: &Area<'_>, styles: &[LineStyle]) -> Result<(), Fault> {
        let widths = widths(styles);
        for (i, (curve, style)) in self.curves.iter().zip(styles).enumerate() {
            let y = 18 + times(i, LEGEND_LINE);
            let line = vec![(0, y), (LEGEND_SAMPLE, y)];
            let colour = COLOURS[style.colour].stroke_width(widths[i]);
            match DASHES[style.dash] {
                None => area.draw(&PathElement::new(line, colour))?,
                Some((dash, gap)) => area.draw(&DashedPathElement::new(line, dash, gap, colour))?,
            }
            area.draw(&Text::new(curve.name.clone(), (LEGEND_SAMPLE + 8, y - 6), ("sans-serif", 13)))?;
        }
        Ok(())
    }
}

fn times(count: usize, pixels: i32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX).saturating_mul(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_title_axes_and_every_curve() {
        let points = (0..1_000).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        let curves = vec![Curve::new("blocking", points), Curve::new("non-blocking", vec![(0.0, 0.0)])];
        let svg = Plot::new("lag", "Lag", "seconds", "messages", curves).svg().unwrap();
        for text in ["<svg", "Lag", "seconds", "messages", "blocking", "non-blocking"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn long_curves_are_thinned_and_keep_their_peak() {
        let points = (0..10_000).map(|i| (f64::from(i), if i == 5_001 { 9.0 } else { 1.0 })).collect();
        let curve = Curve::new("c", points);
        assert!(curve.points.len() <= POINTS_MAX);
        assert!(curve.points.iter().any(|point| point.1 > 8.0));
        assert!(Plot::new("empty", "e", "x", "y", Vec::new()).svg().is_ok());
    }

    fn named(names: &[&str]) -> Vec<Curve> {
        names.iter().map(|name| Curve::new(name, vec![(0.0, 1.0), (9.0, 1.0)])).collect()
    }

    #[test]
    fn no_two_curves_look_the_same() {
        let many: Vec<String> = (0..24).map(|i| format!("curve {i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for count in 1..=many.len() {
            let styles = styles(&named(&many[..count]));
            assert_eq!(styles.iter().collect::<BTreeSet<_>>().len(), count, "{styles:?}");
        }
    }

    #[test]
    fn a_solid_curve_is_wider_than_those_that_may_hide_it() {
        let style = |dash| LineStyle { colour: 0, dash };
        assert_eq!(widths(&[0, 1, 2, 0, 3, 0].map(style)), [LINE + 4, LINE, LINE, LINE + 2, LINE, LINE]);
        assert_eq!(widths(&[0, 0, 0].map(style)), [LINE; 3]);
    }

    #[test]
    fn curves_of_a_group_share_the_colour_and_members_the_dash() {
        let names = ["5s, 30s, none", "5s, 30s, full", "1s, 5s, none", "1s, 5s, full"];
        let found = styles(&named(&names));
        assert_eq!((found[0].colour, found[0].dash), (found[1].colour, found[2].dash));
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 4);
        let uneven = styles(&named(&["burst, none", "burst, full", "steady, none"]));
        assert_eq!(uneven.iter().collect::<BTreeSet<_>>().len(), 3, "no grid");
    }

    #[test]
    fn dashed_curves_are_dashed_in_the_plot_and_in_the_legend() {
        let plot = |names: &[&str]| Plot::new("p", "P", "x", "y", named(names)).svg().unwrap();
        let lines = |svg: &str| svg.matches("<polyline").count();
        let (three, five) = (plot(&["a", "b", "c"]), plot(&["a", "b", "c", "d", "e"]));
        assert!(lines(&five) > lines(&three) + 20, "dashes are lines of their own");
    }
}
