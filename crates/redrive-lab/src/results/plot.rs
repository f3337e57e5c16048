//! Curves as SVG.

use plotters::prelude::*;

/// Points of a curve that are drawn and stored at most.
const POINTS_MAX: usize = 400;
const SIZE: (u32, u32) = (860, 420);
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(23, 190, 207),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
];

#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Long curves are thinned: of each stretch the point with the highest value stays, so that peaks do.
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

    /// The share of `of` that took so long at most, over seconds.
    pub fn share_over_seconds(name: &str, took_ms: impl IntoIterator<Item = u32>, of: usize) -> Self {
        let points = Self::share_over_ms(took_ms.into_iter().collect(), of);
        Self::new(name, points.into_iter().map(|(ms, share)| (ms / 1000.0, share)).collect())
    }

    /// Points of (milliseconds, share of `of`); `of` 0: of all there are.
    pub fn share_over_ms(mut took_ms: Vec<u32>, of: usize) -> Vec<(f64, f64)> {
        took_ms.sort_unstable();
        let of = if of == 0 { took_ms.len() } else { of } as f64;
        took_ms.iter().enumerate().map(|(i, ms)| (f64::from(*ms), (i + 1) as f64 / of)).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The name of its file, without the ending.
    pub name: String,
    pub title: String,
    pub x: String,
    pub y: String,
    pub curves: Vec<Curve>,
}

impl Plot {
    pub fn new(name: &str, title: &str, x: &str, y: &str, curves: Vec<Curve>) -> Self {
        let [name, title, x, y] = [name, title, x, y].map(str::to_owned);
        Self { name, title, x, y, curves }
    }

    /// The picture. What cannot be drawn is a fault of the drawing, not of the run.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| format!("{}: {error}", self.name))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0_f64, f64::max).max(1e-9);
        let x_max = most(&mut points().map(|point| point.0));
        let y_max = most(&mut points().map(|point| point.1)) * 1.05;
        let y_min = points().map(|point| point.1).fold(0.0_f64, f64::min);
        // The legend stands where the curves are lower.
        let peak = |from: f64, to: f64| {
            points()
                .filter(|point| (from..=to).contains(&point.0))
                .fold(0.0_f64, |high, point| high.max(point.1))
        };
        let is_rising = peak(0.0, x_max / 3.0) < peak(x_max * 2.0 / 3.0, x_max);
        let legend = if is_rising { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::UpperRight };
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..x_max, y_min..y_max)?;
        chart.configure_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(WHITE).draw()?;
        for (i, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
            chart
                .draw_series(line)?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .position(legend)
            .draw()?;
        root.present()?;
        Ok(())
    }
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
}
