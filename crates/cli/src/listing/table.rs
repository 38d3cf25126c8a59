//! Layout of reports and listings of accounting: columns of fixed width below their names, or fields with bars between
//! them.

/// A cell of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A word, cut to its column.
    Text(String),
    /// An amount, never cut.
    Amount(String),
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its name above.
    pub(crate) header: String,
    /// Characters.
    pub(crate) width: usize,
    /// Words begin at its left edge.
    pub(crate) left: bool,
}

impl Column {
    /// One whose contents end at its right edge.
    pub(crate) fn new(header: impl Into<String>, width: usize) -> Column {
        Column {
            header: header.into(),
            width,
            left: false,
        }
    }
}

/// Text around and between columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// No title and no names of columns.
    pub(crate) bare: bool,
    /// Bars between fields, and whether one at the end.
    pub(crate) bars: Option<bool>,
}

/// A report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Lines between the two rules above; without any there are no rules.
    pub(crate) title: Vec<String>,
    /// Its columns.
    pub(crate) columns: Vec<Column>,
    /// Its lines.
    pub(crate) rows: Vec<Vec<Cell>>,
}

const RULE: usize = 80;

impl Table {
    /// The text.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut out = String::new();
        if !style.bare {
            let rule = (!self.title.is_empty()).then(|| "-".repeat(RULE));
            for line in rule.iter().chain(&self.title).chain(&rule) {
                out.push_str(line);
                out.push('\n');
            }
            self.names(&mut out, style);
        }
        for row in &self.rows {
            self.line(&mut out, style, row);
        }
        out
    }

    fn names(&self, out: &mut String, style: Style) {
        if style.bars.is_some() {
            let names = self.columns.iter().map(|c| Cell::Text(c.header.clone()));
            return self.line(out, style, &names.collect::<Vec<_>>());
        }
        for column in &self.columns {
            let name: String = column.header.chars().take(column.width).collect();
            pad(out, column, &name);
        }
        out.push('\n');
        for column in &self.columns {
            out.push_str(&"-".repeat(column.width));
            out.push(' ');
        }
        out.push('\n');
    }

    fn line(&self, out: &mut String, style: Style, cells: &[Cell]) {
        for (at, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let (Cell::Text(text) | Cell::Amount(text)) = cell;
            match (style.bars, cell) {
                (Some(last), _) => {
                    out.push_str(if at > 0 && !last { "|" } else { "" });
                    out.push_str(text);
                    out.push_str(if last { "|" } else { "" });
                }
                (None, Cell::Text(_)) if text.chars().count() > column.width => {
                    let kept: String = text.chars().take(column.width.max(1) - 1).collect();
                    pad(out, column, &(kept + "+"));
                }
                (None, _) => pad(out, column, text),
            }
        }
        out.push('\n');
    }
}

fn pad(out: &mut String, column: &Column, text: &str) {
    let width = column.width;
    match column.left {
        true => out.push_str(&format!("{text:<width$} ")),
        false => out.push_str(&format!("{text:>width$} ")),
    }
}
