//! The plot of a replay: jobs that wait and processors in use over time, as SVG without any dependency. Times with
//! many changes are drawn as one column: the longest queue, the mean use.

use super::metrics::Sample;
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const BETWEEN: f64 = 50.0;
/// Columns at most.
const COLUMNS: usize = 1000;

/// Values drawn at a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Column {
    waiting: usize,
    /// Mean share of the processors in use.
    used: f64,
}

/// Draws samples in order of time.
pub fn svg(title: &str, samples: &[Sample], processors: u32) -> String {
    let columns = columns(samples, processors);
    let days = span(samples) / 86_400.0;
    let most = columns.iter().map(|c| c.waiting).max().unwrap_or(0).max(1);
    let height = TOP + PANEL * 2.0 + BETWEEN + 50.0;
    let width = LEFT + WIDTH + 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    let waiting = columns.iter().map(|c| c.waiting as f64 / most as f64);
    panel(
        &mut out,
        TOP,
        "waiting jobs",
        "#b5541c",
        &most.to_string(),
        waiting,
    );
    let used = columns.iter().map(|c| c.used);
    let second = TOP + PANEL + BETWEEN;
    panel(
        &mut out,
        second,
        "processors in use",
        "#2a6f97",
        "100 %",
        used,
    );
    let axis = second + PANEL;
    for tick in 0..=5 {
        let x = LEFT + WIDTH * f64::from(tick) / 5.0;
        let day = days * f64::from(tick) / 5.0;
        let _ = writeln!(
            out,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{day:.1} d</text>",
            axis + 18.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn panel(
    out: &mut String,
    top: f64,
    name: &str,
    colour: &str,
    most: &str,
    values: impl Iterator<Item = f64>,
) {
    let bottom = top + PANEL;
    let mut path = format!("M{LEFT} {bottom}");
    let mut x = LEFT;
    let values: Vec<f64> = values.collect();
    let step = WIDTH / values.len().max(1) as f64;
    for value in values {
        let y = bottom - PANEL * value.clamp(0.0, 1.0);
        let _ = write!(path, "L{x:.1} {y:.1}");
        x += step;
        let _ = write!(path, "L{x:.1} {y:.1}");
    }
    let _ = write!(path, "L{x:.1} {bottom}Z");
    let _ = writeln!(
        out,
        "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.8\"/>\n\
         <path d=\"M{LEFT} {top}V{bottom}H{}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{LEFT}\" y=\"{:.0}\">{name}</text>\n\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most}</text>\n\
         <text x=\"{:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">0</text>",
        LEFT + WIDTH,
        top - 6.0,
        LEFT - 6.0,
        top + 10.0,
        LEFT - 6.0,
    );
}

fn span(samples: &[Sample]) -> f64 {
    match (samples.first(), samples.last()) {
        (Some(first), Some(last)) => (last.at_s - first.at_s) as f64,
        _ => 0.0,
    }
}

fn columns(samples: &[Sample], processors: u32) -> Vec<Column> {
    let (Some(first), true) = (samples.first(), span(samples) > 0.0) else {
        return Vec::new();
    };
    let width = span(samples) / COLUMNS as f64;
    let mut columns = vec![Column::default(); COLUMNS];
    for (sample, until) in samples.iter().zip(&samples[1..]) {
        let mut from = (sample.at_s - first.at_s) as f64;
        let to = (until.at_s - first.at_s) as f64;
        while from < to {
            let at = ((from / width) as usize).min(COLUMNS - 1);
            let end = ((at + 1) as f64 * width).min(to);
            let end = if end > from { end } else { to };
            let column = &mut columns[at];
            column.waiting = column.waiting.max(sample.waiting);
            column.used +=
                f64::from(sample.busy) / f64::from(processors.max(1)) * (end - from) / width;
            from = end;
        }
    }
    columns
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: i64, waiting: usize, busy: u32) -> Sample {
        Sample {
            at_s,
            waiting,
            busy,
        }
    }

    #[test]
    fn columns_hold_the_longest_queue_and_the_mean_use() {
        // Half the time one of two processors, then both.
        let samples = [sample(0, 0, 1), sample(5000, 7, 2), sample(10_000, 0, 0)];
        let columns = columns(&samples, 2);
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!((columns[0].waiting, columns[999].waiting), (0, 7));
        assert!((columns[100].used - 0.5).abs() < 1e-6, "{:?}", columns[100]);
        assert!((columns[900].used - 1.0).abs() < 1e-6, "{:?}", columns[900]);
    }

    #[test]
    fn nothing_to_draw_is_drawn_too() {
        let text = svg("a < b", &[], 4);
        assert!(text.contains("a &lt; b") && text.ends_with("</svg>\n"));
    }
}
