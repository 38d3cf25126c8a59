//! A report as text: columns, CSV (RFC 4180), JSON, or bars as SVG.

use super::sums::{JobSums, Measure, Value};
use crate::listing::table::{Cell, Column, Style, Table};
use crate::listing::text::put;
use crate::sreport::measure::Period;
use crate::zone;
use serde_json::{Map, json};

/// Width of the widest word of a key.
const KEY_MAX: usize = 24;

/// Sizes of a picture: all of it, the words before its bars, a bar with the gap below it, the space above the first.
const WIDTH: usize = 900;
const LEFT: usize = 300;
const BAR: usize = 22;
const TOP: usize = 32;

/// A report, worked out.
#[derive(Debug)]
pub(crate) struct Report {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// From when to when.
    pub(crate) period: Period,
    /// Names of the columns that say what a row is about.
    pub(crate) keys: Vec<&'static str>,
    /// The rows, in their order.
    pub(crate) rows: Vec<(Vec<String>, JobSums)>,
    /// Sums over all jobs, those of rows that are not shown included.
    pub(crate) total: JobSums,
    /// Columns.
    pub(crate) columns: Vec<&'static Measure>,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// RFC 4180.
    Csv,
    /// One document.
    Json,
    /// Bars of the first column.
    Svg,
}

impl Format {
    /// Reads a name.
    pub(crate) fn parse(word: &str) -> Option<Format> {
        match word {
            "table" => Some(Format::Table),
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "svg" => Some(Format::Svg),
            _ => None,
        }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::Table => "text/plain; charset=utf-8",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Json => "application/json",
            Format::Svg => "image/svg+xml",
        }
    }
}

impl Report {
    /// The report as text.
    pub(crate) fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Csv => self.csv(),
            Format::Json => self.json(),
            Format::Svg => self.svg(),
        }
    }

    /// Its title, in a line.
    pub(crate) fn title(&self) -> String {
        format!(
            "Report of cluster {}, {} to {}",
            self.cluster,
            zone::show(self.period.start),
            zone::show(self.period.end)
        )
    }

    fn table(&self) -> String {
        let key_column = |(at, name): (usize, &&'static str)| {
            let longest = self.rows.iter().map(|(key, _)| key[at].chars().count());
            let width = longest.max().unwrap_or(0).clamp(name.len().max(5), KEY_MAX);
            let mut header = (*name).to_owned();
            header[..1].make_ascii_uppercase();
            Column {
                header,
                width,
                left: true,
            }
        };
        let lines: Vec<(Vec<String>, &JobSums)> = self
            .rows
            .iter()
            .map(|(key, sums)| (key.clone(), sums))
            .chain([(self.total_key(), &self.total)])
            .collect();
        let cells: Vec<Vec<String>> = lines
            .iter()
            .map(|(_, sums)| self.columns.iter().map(|m| shown((m.read)(sums))).collect())
            .collect();
        let value_column = |(at, measure): (usize, &&'static Measure)| {
            let longest = cells.iter().map(|row| row[at].len()).max().unwrap_or(0);
            Column::new(measure.header, longest.max(measure.header.len()))
        };
        let keys = self.keys.iter().enumerate().map(key_column);
        let values = self.columns.iter().enumerate().map(value_column);
        let rows = lines.into_iter().zip(&cells).map(|((key, _), values)| {
            let key = key.into_iter().map(Cell::Text);
            key.chain(values.iter().cloned().map(Cell::Amount))
                .collect()
        });
        let table = Table {
            title: vec![format!(
                "{}: {} to {}",
                self.cluster,
                zone::show(self.period.start),
                zone::show(self.period.end)
            )],
            columns: keys.chain(values).collect(),
            rows: rows.collect(),
        };
        table.render(Style::default())
    }

    /// Key of the sums over all: the words go into the first column, if there is one.
    fn total_key(&self) -> Vec<String> {
        let mut key = vec![String::new(); self.keys.len()];
        if let Some(first) = key.first_mut() {
            "total".clone_into(first);
        }
        key
    }

    fn csv(&self) -> String {
        let names = self.columns.iter().map(|measure| measure.name);
        let head: Vec<&str> = self.keys.iter().copied().chain(names).collect();
        let mut out = head.join(",") + "\r\n";
        for (key, sums) in &self.rows {
            let key = key.iter().map(|word| csv_word(word));
            let values = self
                .columns
                .iter()
                .map(|measure| plain((measure.read)(sums)));
            let line: Vec<String> = key.chain(values).collect();
            out += &line.join(",");
            out += "\r\n";
        }
        out
    }

    fn json(&self) -> String {
        let row = |key: &[String], sums: &JobSums| {
            let words = self.keys.iter().zip(key);
            let words = words.map(|(name, word)| ((*name).to_owned(), json!(word)));
            let values = self.columns.iter();
            let values = values.map(|m| (m.name.to_owned(), number((m.read)(sums))));
            words.chain(values).collect::<Map<_, _>>()
        };
        let rows: Vec<_> = self.rows.iter().map(|(key, sums)| row(key, sums)).collect();
        let document = json!({
            "cluster": self.cluster,
            "start": self.period.start.unix_s(),
            "end": self.period.end.unix_s(),
            "by": self.keys,
            "rows": rows,
            "total": row(&[], &self.total),
        });
        document.to_string() + "\n"
    }

    fn svg(&self) -> String {
        let Some(measure) = self.columns.first() else {
            return String::new();
        };
        let values: Vec<Value> = self
            .rows
            .iter()
            .map(|(_, sums)| (measure.read)(sums))
            .collect();
        let most = values.iter().map(|v| v.rank()).fold(1e-9, f64::max);
        let height = TOP + BAR * self.rows.len() + BAR;
        let mut out = String::new();
        put!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\" \
             font-size=\"14\">{}: {}, {} to {}</text>\n",
            escaped(&self.cluster),
            measure.about,
            zone::show(self.period.start),
            zone::show(self.period.end)
        );
        for (at, ((key, _), value)) in self.rows.iter().zip(values).enumerate() {
            let (y, text) = (TOP + BAR * at, shown(value));
            let length = value.rank().max(0.0) / most * (WIDTH - LEFT - 100) as f64;
            let words = key
                .iter()
                .map(|word| escaped(&word.chars().take(KEY_MAX).collect::<String>()));
            let words: Vec<String> = words.collect();
            put!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" \
                 height=\"{}\" fill=\"#2f6fab\"/><text x=\"{:.1}\" y=\"{}\">{text}</text>\n",
                LEFT - 8,
                y + 14,
                words.join(" "),
                y + 2,
                BAR - 5,
                LEFT as f64 + length + 6.0,
                y + 14
            );
        }
        out + "</svg>\n"
    }
}

/// A value for people: `1-02:03:04`, `12.5`, `87 %`.
fn shown(value: Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Hours(seconds) => format!("{:.2}", seconds / 3600.0),
        Value::Share(Some(share)) => format!("{:.0}%", share * 100.0),
        Value::Seconds(Some(seconds)) => {
            let whole = seconds.round() as u64;
            let (days, rest) = (whole / 86_400, whole % 86_400);
            let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
            match days {
                0 => clock,
                days => format!("{days}-{clock}"),
            }
        }
        Value::Moment(Some(at)) => zone::show(at),
        Value::Seconds(None) | Value::Share(None) | Value::Moment(None) => "-".to_owned(),
    }
}

/// A value for programs; empty if there is none.
fn plain(value: Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Hours(seconds) | Value::Seconds(Some(seconds)) => format!("{seconds:.0}"),
        Value::Share(Some(share)) => format!("{share:.4}"),
        Value::Moment(Some(at)) => zone::show(at),
        Value::Seconds(None) | Value::Share(None) | Value::Moment(None) => String::new(),
    }
}

fn number(value: Value) -> serde_json::Value {
    match value {
        Value::Count(count) => json!(count),
        Value::Hours(seconds) => json!(seconds),
        Value::Seconds(value) | Value::Share(value) => json!(value),
        Value::Moment(at) => json!(at.map(|at| at.unix_s())),
    }
}

/// A word of a user's, quoted where it must be. A formula of a spreadsheet is made a text: at the beginning, and behind characters that
/// end a cell where the comma does not.
fn csv_word(word: &str) -> String {
    let mut text = String::new();
    let (mut is_begin, mut is_quoted) = (true, false);
    for c in word.chars() {
        if is_begin && matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠') {
            text.push('\'');
            is_quoted = true;
        }
        if c == '"' {
            text.push('"');
        }
        text.push(c);
        let ends_cell = matches!(c, ';' | '\t' | '\r' | '\n');
        is_begin = ends_cell || is_begin && c == ' ';
        is_quoted |= ends_cell || matches!(c, '"' | ',');
    }
    match is_quoted {
        true => format!("\"{text}\""),
        false => text,
    }
}

/// A user's text in XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::sums::MEASURES;
    use super::*;
    use muster_model::time::Timestamp;

    fn report() -> Report {
        let words = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let named = |name| MEASURES.iter().find(|m| m.name == name).unwrap();
        Report {
            cluster: "c<1>".to_owned(),
            period: Period {
                start: Timestamp(0),
                end: Timestamp(3_600_000),
            },
            keys: vec!["user", "application"],
            rows: vec![
                (words("ada", "=cmd()"), JobSums::default()),
                (words("bob", "a,\"b\" <i>"), JobSums::default()),
            ],
            total: JobSums::default(),
            columns: vec![named("runs"), named("mean_s"), named("cpu_s")],
        }
    }

    #[test]
    fn words_of_users_are_words_in_every_format() {
        let csv = report().render(Format::Csv);
        assert_eq!(
            csv,
            "user,application,runs,mean_s,cpu_s\r\nada,\"'=cmd()\",0,,0\r\nbob,\"a,\"\"b\"\" <i>\",0,,0\r\n"
        );
        let svg = report().render(Format::Svg);
        assert!(
            svg.contains("a,&quot;b&quot; &lt;i&gt;") && svg.contains("c&lt;1&gt;"),
            "{svg}"
        );
        let json: serde_json::Value = serde_json::from_str(&report().render(Format::Json)).unwrap();
        assert_eq!(json["rows"][1]["application"], "a,\"b\" <i>");
        assert_eq!(
            (&json["rows"][0]["mean_s"], &json["end"]),
            (&json!(null), &json!(3600))
        );
    }

    /// Where the comma is the decimal sign, spreadsheets part cells by semicolons, inside quotes as well.
    #[test]
    fn no_word_is_a_formula_in_any_cell_of_a_spreadsheet() {
        for (word, written) in [
            ("=1", "\"'=1\""),
            ("  @x", "\"  '@x\""),
            ("＝1", "\"'＝1\""),
            ("a;=HYPERLINK(\"x\")", "\"a;'=HYPERLINK(\"\"x\"\")\""),
            ("a\t-1\n +2", "\"a\t'-1\n '+2\""),
            ("a;b", "\"a;b\""),
            ("a=1-2", "a=1-2"),
            ("a b", "a b"),
        ] {
            assert_eq!(csv_word(word), written);
        }
    }

    #[test]
    fn values_are_written_for_people_and_for_programs() {
        for (value, people, programs) in [
            (Value::Count(7), "7", "7"),
            (Value::Hours(5400.0), "1.50", "5400"),
            (Value::Seconds(Some(93_784.4)), "1-02:03:04", "93784"),
            (Value::Seconds(None), "-", ""),
            (Value::Share(Some(0.875)), "88%", "0.8750"),
        ] {
            assert_eq!(
                (shown(value).as_str(), plain(value).as_str()),
                (people, programs)
            );
        }
    }
}
