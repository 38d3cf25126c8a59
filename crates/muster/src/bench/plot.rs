//! The measurements as SVG: start times as bars, rates of messages as lines over their size.

use super::{Message, Start};
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const BAR: f64 = 14.0;
const COLOURS: [&str; 7] = [
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d",
];

/// Draws both.
pub(super) fn svg(title: &str, starts: &[Start], messages: &[Message]) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    text(
        &mut body,
        10.0,
        22.0,
        &format!("{title}: milliseconds of the command, and of MPI_Init (dark)"),
    );
    let most = starts.iter().map(|s| s.wall).fold(1.0, f64::max);
    for s in starts {
        let scale = (WIDTH - LEFT - 80.0) / most;
        let label = format!("{} ranks, {} nodes, {}", s.ranks, s.nodes, s.by);
        text(&mut body, 10.0, y + 11.0, &label);
        bar(&mut body, y, s.wall * scale, "#a0c4e8");
        bar(&mut body, y, s.init * scale, "#4c78a8");
        text(
            &mut body,
            LEFT + s.wall * scale + 4.0,
            y + 11.0,
            &format!("{:.0}", s.wall),
        );
        y += BAR + 3.0;
    }
    let mut nodes: Vec<u32> = messages.iter().map(|m| m.nodes).collect();
    nodes.dedup();
    for nodes in nodes {
        y += 40.0;
        let of_nodes: Vec<&Message> = messages
            .iter()
            .filter(|m| m.nodes == nodes && m.bytes > 0)
            .collect();
        lines(&mut body, y, nodes, &of_nodes);
        y += 260.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        y + 20.0
    )
}

/// Rates over sizes, both logarithmic.
fn lines(out: &mut String, top: f64, nodes: u32, messages: &[&Message]) {
    let (height, width) = (220.0, WIDTH - LEFT - 40.0);
    text(
        out,
        10.0,
        top - 8.0,
        &format!("MB/s over bytes of a message, {}", super::on(nodes)),
    );
    let log = |n: f64| n.max(1.0).log10();
    let bytes = |m: &Message| log(u32::try_from(m.bytes).map_or(f64::MAX, f64::from));
    let right = messages.iter().map(|m| bytes(m)).fold(1.0, f64::max);
    let highest = messages.iter().map(|m| log(m.rate)).fold(1.0, f64::max);
    let place = |m: &Message| {
        (
            LEFT + bytes(m) / right * width,
            top + height - log(m.rate) / highest * height,
        )
    };
    let mut power = 0.0;
    while power <= highest {
        let y = top + height - power / highest * height;
        let _ = writeln!(out, "<path d=\"M{LEFT} {y:.1}h{width}\" stroke=\"#ddd\"/>");
        text(out, LEFT - 45.0, y + 4.0, &format!("1e{power:.0}"));
        power += 1.0;
    }
    let mut names: Vec<&str> = messages.iter().map(|m| m.by).collect();
    names.dedup();
    for (at, name) in names.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<String> = messages
            .iter()
            .filter(|m| m.by == *name)
            .map(|m| {
                let (x, y) = place(m);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
        let y = top + 12.0 + 14.0 * f64::from(u16::try_from(at).unwrap_or(0));
        let _ = writeln!(
            out,
            "<rect x=\"10\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y - 9.0
        );
        text(out, 25.0, y, name);
    }
}

fn bar(out: &mut String, y: f64, width: f64, colour: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}
