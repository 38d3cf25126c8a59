//! Formats of columns: Slurm's `%[[.]size]type[suffix]` and `name[:[.]size|suffix],...`, and how cells are padded and
//! cut. It knows fields only by the table it is given.

use super::complain;
use super::context::Ctx;

/// The widest a column gets, whatever a format asks for.
const WIDTH_MAX: usize = 65_535;

/// A kind of record that has a table of fields.
pub(crate) trait Record: 'static {
    /// A record in a listing.
    type Row<'a>;
}

/// A column that a listing can have.
pub(crate) struct Field<R: Record> {
    /// Its letter in `--format`; 0 if it has none.
    pub(crate) letter: u8,
    /// Its names in `--Format`, lower case; the first is the usual one.
    pub(crate) names: &'static [&'static str],
    /// Its heading.
    pub(crate) header: &'static str,
    /// Whether a size cuts it; Slurm lets times and node lists run over.
    pub(crate) cut: bool,
    /// Whether every row has the same value: nothing here has what the column tells.
    pub(crate) constant: bool,
    /// Appends the value.
    pub(crate) render: for<'a> fn(&R::Row<'a>, &Ctx, &mut String),
}

/// Whether a table's row looks at neither record nor context: their names begin with `_` then.
pub(crate) const fn unused(row: &str, ctx: &str) -> bool {
    row.as_bytes()[0] == b'_' && ctx.as_bytes()[0] == b'_'
}

/// Writes a table of fields: letter (`-` for none), names, header, `cut` or `run` (whether a size cuts it), value.
macro_rules! fields {
    ($row:ty; $($letter:literal [$($name:literal),+] $header:literal $cut:ident $r:ident $c:ident $o:ident => $body:expr;)*) => {
        &[$($crate::listing::format::Field {
            letter: if $letter == b'-' { 0 } else { $letter },
            names: &[$($name),+],
            header: $header,
            cut: $crate::listing::format::cuts!($cut),
            constant: $crate::listing::format::unused(stringify!($r), stringify!($c)),
            render: |$r: &$row, $c: &Ctx, $o: &mut String| {
                let _ = ($r, $c);
                $body
            },
        }),*]
    };
}
pub(crate) use fields;

/// Whether a size cuts, as the tables say it.
macro_rules! cuts {
    (cut) => {
        true
    };
    (run) => {
        false
    };
}
pub(crate) use cuts;

/// A field as a format asks for it.
pub(crate) struct FormatColumn<R: Record> {
    /// The field.
    pub(crate) field: &'static Field<R>,
    /// Least width; 0 is as wide as the value.
    pub(crate) width: usize,
    /// Padded on the left.
    pub(crate) right: bool,
    /// Text after it.
    pub(crate) suffix: String,
}

/// A row of columns with text before them.
pub(crate) struct Layout<R: Record> {
    /// Text before the first column.
    pub(crate) prefix: String,
    /// The columns.
    pub(crate) columns: Vec<FormatColumn<R>>,
}

/// Message about unknown fields: the text before the offending letter or name.
pub(crate) struct Complaint {
    /// Up to the letter.
    pub(crate) letter: &'static str,
    /// Up to the name.
    pub(crate) name: &'static str,
}

impl<R: Record> Layout<R> {
    /// Reads a `--format`. What is not understood is named on standard error and stays as text, as in Slurm.
    /// Several `%` in a row count as one: clients that expand formats twice rely on it.
    pub(crate) fn letters(
        format: &str,
        table: &'static [Field<R>],
        complaint: &Complaint,
    ) -> Layout<R> {
        let mut layout = Layout {
            prefix: String::new(),
            columns: Vec::new(),
        };
        let mut parts = format.split('%');
        layout.prefix.push_str(parts.next().unwrap_or(""));
        for part in parts.filter(|p| !p.is_empty()) {
            if let Some(rest) = part.strip_prefix("all") {
                layout.all(rest, table);
                continue;
            }
            let (right, rest) = match part.strip_prefix('.') {
                Some(rest) => (true, rest),
                None => (false, part),
            };
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let width = rest[..digits]
                .parse()
                .map_or(0, |w: usize| w.min(WIDTH_MAX));
            let mut suffix = rest[digits..].chars();
            let letter = suffix.next();
            let field = letter
                .and_then(|l| u8::try_from(l).ok())
                .and_then(|l| table.iter().find(|f| f.letter == l && l != 0));
            match field {
                Some(field) => layout.columns.push(FormatColumn {
                    field,
                    width,
                    right,
                    suffix: suffix.as_str().to_owned(),
                }),
                None => {
                    let shown = letter.map(String::from).unwrap_or_default();
                    complain(&format!("{}{shown}", complaint.letter));
                    layout.text(&format!("%{part}"));
                }
            }
        }
        layout
    }

    /// Reads a `--Format`; columns are 20 wide unless a size or a suffix is given.
    pub(crate) fn names(
        format: &str,
        table: &'static [Field<R>],
        complaint: &Complaint,
    ) -> Layout<R> {
        let mut layout = Layout {
            prefix: String::new(),
            columns: Vec::new(),
        };
        for part in format.split(',').filter(|p| !p.trim().is_empty()) {
            let (name, spec) = match part.split_once(':') {
                Some((name, spec)) => (name, Some(spec)),
                None => (part, None),
            };
            let wanted = name.trim().to_ascii_lowercase();
            if wanted == "all" && !table.iter().any(|f| f.names.contains(&"all")) {
                layout.all("", table);
                continue;
            }
            let Some(field) = table.iter().find(|f| f.names.contains(&wanted.as_str())) else {
                complain(&format!("{}{name}", complaint.name));
                continue;
            };
            let (right, width, suffix) = spec.map_or((false, 20, ""), size_of);
            layout.columns.push(FormatColumn {
                field,
                width,
                right,
                suffix: suffix.to_owned(),
            });
        }
        layout
    }

    fn all(&mut self, rest: &str, table: &'static [Field<R>]) {
        let fields = table.iter().filter(|f| f.letter != 0);
        for field in fields {
            if !self.columns.is_empty() {
                self.text("|");
            }
            self.columns.push(FormatColumn {
                field,
                width: 0,
                right: false,
                suffix: String::new(),
            });
        }
        self.text(rest);
    }

    fn text(&mut self, text: &str) {
        match self.columns.last_mut() {
            Some(column) => column.suffix.push_str(text),
            None => self.prefix.push_str(text),
        }
    }

    /// Whether a field of one of these names is shown.
    pub(crate) fn shows(&self, names: &[&str]) -> bool {
        self.columns
            .iter()
            .any(|c| names.contains(&c.field.names[0]))
    }

    /// The line above the rows.
    pub(crate) fn header(&self, out: &mut String) {
        out.push_str(&self.prefix);
        for column in &self.columns {
            let start = out.len();
            out.push_str(column.field.header);
            // Headings over lists of nodes are not cut where they stand right.
            let of_nodes = matches!(
                column.field.header,
                "NODELIST" | "HOSTNAMES" | "NODELIST(REASON)" | "SCHEDNODES"
            );
            let cut = !(of_nodes && column.right);
            fit(out, start, column.width, column.right, cut);
            out.push_str(&column.suffix);
        }
        out.push('\n');
    }

    /// One row.
    pub(crate) fn row(&self, out: &mut String, row: &R::Row<'_>, ctx: &Ctx) {
        self.row_but(|_| false, out, row, ctx, |_| ());
    }

    /// One row without some of its cells; tells where each of them belongs.
    pub(crate) fn row_but(
        &self,
        without: impl Fn(&Field<R>) -> bool,
        out: &mut String,
        row: &R::Row<'_>,
        ctx: &Ctx,
        mut gap: impl FnMut(usize),
    ) {
        out.push_str(&self.prefix);
        for column in &self.columns {
            match without(column.field) {
                true => gap(out.len()),
                false => column.cell(out, row, ctx),
            }
            out.push_str(&column.suffix);
        }
        out.push('\n');
    }
}

impl<R: Record> FormatColumn<R> {
    /// One cell.
    pub(crate) fn cell(&self, out: &mut String, row: &R::Row<'_>, ctx: &Ctx) {
        let start = out.len();
        (self.field.render)(row, ctx, out);
        let marked = self.field.names[0] == "partition" && out[start..].ends_with('*');
        let is_cut = self.width > 0 && out[start..].chars().nth(self.width).is_some();
        fit(out, start, self.width, self.right, self.field.cut);
        // The mark of the default partition stays.
        if marked && is_cut && out.pop().is_some() {
            out.push('*');
        }
    }
}

/// Takes `[.][size][suffix]` apart.
fn size_of(spec: &str) -> (bool, usize, &str) {
    let (right, rest) = match spec.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, spec),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let width = rest[..digits]
        .parse()
        .map_or(0, |w: usize| w.min(WIDTH_MAX));
    (right, width, &rest[digits..])
}

/// Brings the text appended since `start` to `width` columns. Characters count, not bytes.
pub(crate) fn fit(out: &mut String, start: usize, width: usize, right: bool, cut: bool) {
    if width == 0 {
        return;
    }
    let cell = &out[start..];
    let have = if cell.is_ascii() {
        cell.len()
    } else {
        cell.chars().count()
    };
    if have > width {
        if cut {
            let keep = out[start..]
                .char_indices()
                .nth(width)
                .map_or(out.len(), |(at, _)| start + at);
            out.truncate(keep);
        }
    } else if right {
        pad(width - have, |blanks| out.insert_str(start, blanks));
    } else {
        pad(width - have, |blanks| out.push_str(blanks));
    }
}

const BLANKS: &str = "                                ";

/// Adds `count` blanks in one or more calls.
fn pad(mut count: usize, mut add: impl FnMut(&str)) {
    while count > 0 {
        let some = count.min(BLANKS.len());
        add(&BLANKS[..some]);
        count -= some;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    struct Numbers;

    impl Record for Numbers {
        type Row<'a> = u32;
    }

    static TABLE: &[Field<Numbers>] = &[
        Field {
            letter: b'i',
            names: &["jobid"],
            header: "JOBID",
            cut: true,
            constant: false,
            render: |n, _, out| crate::listing::text::put!(out, "{n}"),
        },
        Field {
            letter: b'y',
            names: &["nice"],
            header: "NICE",
            cut: true,
            constant: false,
            render: |_, _, out| out.push('0'),
        },
        Field {
            letter: b'l',
            names: &["timelimit"],
            header: "TIME_LIMIT",
            cut: false,
            constant: false,
            render: |_, _, out| out.push_str("2-00:00:00"),
        },
    ];
    const COMPLAINT: Complaint = Complaint {
        letter: "",
        name: "",
    };

    fn letters(format: &str) -> String {
        show(&Layout::letters(format, TABLE, &COMPLAINT))
    }

    fn names(format: &str) -> String {
        show(&Layout::names(format, TABLE, &COMPLAINT))
    }

    fn show(layout: &Layout<Numbers>) -> String {
        let mut out = String::new();
        layout.header(&mut out);
        layout.row(&mut out, &1234, &Ctx::bare("c", TimeZone::UTC));
        out
    }

    // Each of these was printed by squeue 22.05.8 in the same way.
    #[test]
    fn letters_as_squeue() {
        assert_eq!(letters("%i"), "JOBID\n1234\n");
        assert_eq!(
            letters("%.3i|%3i|%7i|%.7i|"),
            "JOB|JOB|JOBID  |  JOBID|\n123|123|1234   |   1234|\n"
        );
        assert_eq!(letters("x%%y|%i"), "xNICE|JOBID\nx0|1234\n");
        assert_eq!(letters(" %i %y "), " JOBID NICE \n 1234 0 \n");
        assert_eq!(letters("%-5i|%i"), "%-5i|JOBID\n%-5i|1234\n");
        assert_eq!(letters("no percent"), "no percent\nno percent\n");
        assert_eq!(letters("%5"), "%5\n%5\n");
        assert_eq!(
            letters("\"%i\",\"%y\""),
            "\"JOBID\",\"NICE\"\n\"1234\",\"0\"\n"
        );
        assert_eq!(
            letters("%.9l|"),
            "TIME_LIMI|\n2-00:00:00|\n",
            "times run over"
        );
        assert_eq!(
            letters("%all"),
            "JOBID|NICE|TIME_LIMIT\n1234|0|2-00:00:00\n"
        );
    }

    #[test]
    fn names_as_squeue() {
        assert_eq!(names("jobid"), format!("{:<20}\n{:<20}\n", "JOBID", "1234"));
        assert_eq!(
            names("JobID:##,nice:.6,nice:5"),
            "JOBID##  NICENICE \n1234##     00    \n"
        );
        assert_eq!(names("jobid:6###"), "JOBID ###\n1234  ###\n");
        assert_eq!(names("jobid:6,,nosuch,"), "JOBID \n1234  \n");
        assert_eq!(
            names("jobid:###turm###,nice:###turm###"),
            "JOBID###turm###NICE###turm###\n1234###turm###0###turm###\n"
        );
    }
}
