//! A line chart as SVG, no more than the plots here need.

use std::fmt::Write;

use super::table::amount;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 56.0;
const COLORS: [&str; 6] = ["#0b6e99", "#d9480f", "#8a5a00", "#5f3dc4", "#2b8a3e", "#868e96"];

/// A line.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Its points, left to right.
    pub points: Vec<(f64, f64)>,
    /// Where something happened, as x.
    pub marks: Vec<f64>,
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten.
    Log,
    /// Nines: x is -log10(1 - share).
    Nines,
}

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below it.
    pub x_label: String,
    /// Beside it.
    pub y_label: String,
    /// Division of x.
    pub x_scale: Scale,
    /// Division of y.
    pub y_scale: Scale,
    /// Lines.
    pub series: Vec<Series>,
}

/// From values to places.
struct Axis {
    scale: Scale,
    min: f64,
    max: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && (scale != Scale::Log || *v > 0.0)).collect();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (min, max) = match scale {
            _ if values.is_empty() => (0.0, 1.0),
            Scale::Log => (min.log10().floor(), max.log10().ceil().max(min.log10().floor() + 1.0)),
            _ => (0.0, if max > 0.0 { max * 1.05 } else { 1.0 }),
        };
        Self { scale, min, max, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.max(1e-12).log10() } else { value };
        self.from + (value - self.min) / (self.max - self.min) * (self.to - self.from)
    }

    /// Places and labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Log => (self.min as i32..=self.max as i32)
                .map(|power| 10.0_f64.powi(power))
                .map(|value| (self.at(value), amount(value)))
                .collect(),
            Scale::Nines => (0..=self.max as i32)
                .map(|nines| (self.at(f64::from(nines)), if nines == 0 { "0".into() } else { share(nines) }))
                .collect(),
            Scale::Linear => {
                let rough = (self.max - self.min) / 6.0;
                let power = 10.0_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|s| *s >= rough).unwrap_or(rough);
                (0..=((self.max - self.min) / step) as i32)
                    .map(|n| self.min + f64::from(n) * step)
                    .map(|value| (self.at(value), amount(value)))
                    .collect()
            }
        }
    }
}

/// 90 %, 99 %, 99.9 % and so on.
fn share(nines: i32) -> String {
    match nines {
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more as usize - 2)),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl Chart {
    /// The file's text.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let x = Axis::over(self.x_scale, points().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let y = Axis::over(self.y_scale, points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
            escape(&self.title)
        );
        self.draw_axes(&mut svg, &x, &y);
        for (index, series) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            for mark in &series.marks {
                let at = x.at(*mark);
                // Writing to a string can't fail, here and below.
                let _ = writeln!(
                    svg,
                    "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"{color}\" stroke-dasharray=\"2 4\" opacity=\"0.5\"/>",
                    HEIGHT - BOTTOM
                );
            }
            let usable = series.points.iter().filter(|p| self.y_scale != Scale::Log || p.1 > 0.0);
            let path: Vec<String> = usable.map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"/>",
                path.join(" ")
            );
            if path.len() < 40 {
                for point in &path {
                    let (cx, cy) = point.split_once(',').unwrap_or_default();
                    let _ = writeln!(svg, "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"2.6\" fill=\"{color}\"/>");
                }
            }
            let line = TOP + 8.0 + 20.0 * index as f64;
            let from = WIDTH - RIGHT + 14.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{from}\" y1=\"{line}\" x2=\"{}\" y2=\"{line}\" stroke=\"{color}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\">{}</text>",
                from + 18.0,
                from + 24.0,
                line + 4.0,
                escape(&series.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (at, label) in y.ticks() {
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#e9ecef\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
        for (at, label) in x.ticks() {
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"#868e96\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                bottom + 5.0,
                bottom + 20.0
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\" stroke=\"#495057\"/><text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 42.0,
            escape(&self.x_label)
        );
        let center = (TOP + bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"18\" y=\"{center}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {center})\">{}</text>",
            escape(&self.y_label)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_shares() {
        assert_eq!([1, 2, 3, 4].map(share), ["90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn points_lie_inside_the_frame() {
        let axis = Axis::over(Scale::Log, [2.0, 500.0].into_iter(), 100.0, 0.0);
        assert_eq!((axis.at(1.0), axis.at(1000.0)), (100.0, 0.0));
        let series = Series { name: "a<b".into(), points: vec![(0.0, 1.0), (1.0, 3.0)], marks: vec![0.5] };
        let (x_scale, y_scale) = (Scale::Linear, Scale::Linear);
        let (title, x_label, y_label) = (String::new(), String::new(), String::new());
        let svg = Chart { title, x_label, y_label, x_scale, y_scale, series: vec![series] }.to_svg();
        assert!(svg.contains("a&lt;b") && svg.contains("stroke-dasharray") && !svg.contains("NaN"), "{svg}");
    }
}
