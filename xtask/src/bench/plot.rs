//! A small line plot as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 34.0;

/// One line over two axes that begin at zero.
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    /// A horizontal line: the bar.
    pub(super) bar: Option<f64>,
    pub(super) points: &'a [(f64, f64)],
}

impl Plot<'_> {
    /// The picture.
    pub(super) fn svg(&self) -> String {
        let right = self.points.iter().map(|p| p.0).fold(1.0, f64::max);
        let highest = self
            .points
            .iter()
            .map(|p| p.1)
            .fold(self.bar.unwrap_or(1.0), f64::max)
            * 1.05;
        let x = |v: f64| LEFT + v / right * (WIDTH - LEFT - 20.0);
        let y = |v: f64| HEIGHT - BOTTOM - v / highest * (HEIGHT - BOTTOM - TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut out, LEFT, 18.0, "start", self.title);
        text(&mut out, WIDTH - 20.0, HEIGHT - 6.0, "end", self.x);
        text(&mut out, LEFT, TOP - 4.0, "end", self.y);
        for i in 0..=4 {
            let share = f64::from(i) / 4.0;
            let (v, h) = (highest * share, right * share);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {:.1}H{:.1}\" stroke=\"#ddd\"/>",
                y(v),
                WIDTH - 20.0
            );
            text(&mut out, LEFT - 6.0, y(v) + 4.0, "end", &short(v));
            text(&mut out, x(h), HEIGHT - BOTTOM + 16.0, "middle", &short(h));
        }
        if let Some(bar) = self.bar {
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {:.1}H{:.1}\" stroke=\"#e45756\" stroke-dasharray=\"5 4\"/>",
                y(bar),
                WIDTH - 20.0
            );
        }
        let line: Vec<String> = self
            .points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#4c78a8\" stroke-width=\"1.5\"/>",
            line.join(" ")
        );
        for p in self.points {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"#4c78a8\"/>",
                x(p.0),
                y(p.1)
            );
        }
        out + "</svg>\n"
    }
}

/// 1,200,000 as 1.2M.
fn short(v: f64) -> String {
    match v {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 1e3 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}
