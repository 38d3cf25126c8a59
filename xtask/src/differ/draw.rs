//! Lines that are drawn from a seed: options of the option table in combinations, with values of tests/differ/values.txt,
//! and columns of listings. The table is read from docs/compat.md, which is generated from it.

use super::corpus::{CorpusKind, CorpusLine, CorpusUser};
use super::read;
use anyhow::{Context, Result, ensure};
use std::fs;

const TABLE: &str = "docs/compat.md";

/// Commands that lines are drawn for, and how many of a hundred lines are theirs.
const SHARES: [(&str, usize); 7] = [
    ("sbatch", 38),
    ("salloc", 5),
    ("srun", 7),
    ("squeue", 17),
    ("sinfo", 11),
    ("sacct", 11),
    ("update", 11),
];

/// A column of a listing whose content is a program's own, such as what nodes measure.
const OWN_COLUMNS: [&str; 27] = [
    "cpusload",
    "freemem",
    "%O",
    "%e",
    "version",
    "%v",
    "port",
    "lastschedeval",
    "elapsedraw",
    "cputimeraw",
    "resvcpuraw",
    "dbindex",
    "allocsid",
    "timestamp",
    "%H",
    "accruetime",
    "pendingtime",
    "resvcpu",
    "cputime",
    "reserved",
    "associd",
    "extra",
    "excnodes",
    "timeleft",
    "timeused",
    "%L",
    "%M",
];

/// Values that are wrong. A line has one of them: which of several is refused first is nobody's promise.
const WRONG_VALUES: [&str; 19] = [
    "x",
    "nosuch",
    "99",
    "-5",
    "-1",
    "99999",
    "99999999",
    "99999999999",
    "3-1",
    "12Q",
    "2020-01-01",
    "/nonexistent",
    "expand:$runs",
    "matlab:x",
    "matlab:9",
    "nosuch:1",
    "gpu:99",
    "gpu:tesla:1",
    "debug,nosuch",
];

/// Random numbers that are the same for a seed: splitmix64.
struct DrawSource(u64);

impl DrawSource {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// An option with values it is drawn with; an empty one is the option alone.
struct DrawnOption {
    option: String,
    values: Vec<Box<str>>,
}

/// `count` lines of a seed.
pub(super) fn lines(seed: u64, count: usize) -> Result<Vec<CorpusLine>> {
    let table = fs::read_to_string(TABLE).context(TABLE)?;
    let values = read(super::ComparedProduct::Slurm, "values.txt")?;
    let mut lines: Vec<CorpusLine> = Vec::new();
    for (command, share) in SHARES {
        let options = options(command, &table, &values)?;
        let columns = columns(command, &table);
        let mut draw = DrawSource(seed ^ command.bytes().fold(0, |a, b| a * 31 + u64::from(b)));
        let wanted = lines.len() + count * share / 100;
        let mut tries = 0;
        while lines.len() < wanted && tries < 20 * wanted {
            tries += 1;
            let line = line(command, &options, &columns, &mut draw);
            if lines.iter().all(|other| other.text != line.text) {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

fn line(
    command: &str,
    options: &[DrawnOption],
    columns: &DrawnColumns,
    draw: &mut DrawSource,
) -> CorpusLine {
    let most = if command == "sbatch" { 3 } else { 2 };
    let mut words = Vec::new();
    let mut is_wrong = false;
    for _ in 0..1 + draw.below(most) {
        let drawn = draw.one(options);
        if !words
            .iter()
            .any(|word: &String| word.starts_with(&drawn.option))
        {
            let value = draw.one(&drawn.values);
            let is_another = WRONG_VALUES.contains(&&**value);
            if !(is_wrong && is_another) {
                words.push(word(&drawn.option, value));
            }
            is_wrong |= is_another;
        }
    }
    let mut user = CorpusUser::Nobody;
    let (kind, begin) = match command {
        "sbatch" => (CorpusKind::Submission, "submit"),
        "update" => (CorpusKind::Submission, "change"),
        "srun" | "salloc" => (CorpusKind::Submission, command),
        _ => (CorpusKind::Query, command),
    };
    if draw.below(5) == 0 && matches!(command, "update" | "squeue" | "sinfo" | "sacct") {
        user = CorpusUser::Root;
    }
    if matches!(command, "squeue" | "sinfo" | "sacct") && draw.below(3) != 0 {
        // They add columns to those of the format, which Slurm gives the width of others of their name.
        words.retain(|word| command != "sacct" || !matches!(&**word, "-b" | "-l"));
        words.extend(columns.format(command, draw));
    }
    let end = match command {
        "srun" => vec!["-I3", "true"],
        "salloc" => vec!["-I3", "true"],
        _ => vec![],
    };
    let mut all = vec![begin.to_owned()];
    all.extend(words);
    all.extend(end.into_iter().map(str::to_owned));
    CorpusLine {
        kind,
        user,
        text: all.join(" "),
    }
}

/// An option and its value as one word of shell.
fn word(option: &str, value: &str) -> String {
    let quoted = match value.contains(|c: char| "&|[]*;?\\ ".contains(c)) {
        true if !value.contains(['\'', '\\']) => format!("\"{value}\""),
        _ => value.to_owned(),
    };
    match option {
        _ if value.is_empty() => option.to_owned(),
        field if field.ends_with('=') => format!("{field}{quoted}"),
        long if long.starts_with("--") => format!("{long}={quoted}"),
        short => format!("{short}{quoted}"),
    }
}

/// Options of a command that the table has as working or accepted, with values.
///
/// # Errors
/// The table has an option that values.txt does not know.
fn options(command: &str, table: &str, values: &str) -> Result<Vec<DrawnOption>> {
    let (known, skipped) = values_of(command, values);
    if command == "update" {
        return Ok(known);
    }
    let names = table_options(command, table);
    ensure!(!names.is_empty(), "{TABLE} has no options of {command}");
    let mut drawn: Vec<DrawnOption> = Vec::new();
    for alternatives in &names {
        let found = known
            .iter()
            .find(|known| alternatives.contains(&known.option));
        match found {
            Some(found) => drawn.push(DrawnOption {
                option: found.option.clone(),
                values: found.values.clone(),
            }),
            // Options of steps alone, and of one's own: lines of the files have them.
            None if command == "srun" => {}
            None => ensure!(
                skipped.iter().any(|skip| alternatives.contains(skip)),
                "values.txt has neither values nor a 'skip' for {command} {}",
                alternatives.join(", ")
            ),
        }
    }
    Ok(drawn)
}

/// A command's part of values.txt: options with values, and those that are left out.
fn values_of(command: &str, text: &str) -> (Vec<DrawnOption>, Vec<String>) {
    let (mut known, mut skipped, mut is_meant) = (Vec::new(), Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(commands) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            is_meant = commands.split(' ').any(|name| name == command);
        } else if line.is_empty() || line.starts_with('#') || !is_meant {
        } else if let Some(options) = line.strip_prefix("skip ") {
            skipped.extend(options.split(' ').map(str::to_owned));
        } else if let Some((option, values)) = line.split_once(' ') {
            let values = values.split(" | ").map(|value| match value.trim() {
                "-" => "".into(),
                value => value.into(),
            });
            known.push(DrawnOption {
                option: option.to_owned(),
                values: values.collect(),
            });
        }
    }
    (known, skipped)
}

/// The part of the table below a heading.
fn section<'a>(table: &'a str, heading: &str) -> &'a str {
    let Some(at) = table.find(&format!("\n{heading}\n")) else {
        return "";
    };
    let rest = &table[at + heading.len() + 2..];
    rest.find("\n#").map_or(rest, |end| &rest[..end])
}

/// NamesOfSide of each option of a command, those that are refused excepted.
fn table_options(command: &str, table: &str) -> Vec<Vec<String>> {
    let mut options = Vec::new();
    for line in section(table, &format!("# {command}")).lines() {
        if line.starts_with("Refused (") {
            break;
        }
        if !line.starts_with("Works (") && !line.starts_with("* ") {
            continue;
        }
        // `a, b`; `c`: what differs
        for code in line.split("; ").filter_map(|part| part.split('`').nth(1)) {
            options.push(code.split(", ").map(str::to_owned).collect());
        }
    }
    options
}

/// Columns of a listing.
struct DrawnColumns {
    letters: Vec<Box<str>>,
    names: Vec<Box<str>>,
}

fn columns(command: &str, table: &str) -> DrawnColumns {
    let mut columns = DrawnColumns {
        letters: Vec::new(),
        names: Vec::new(),
    };
    let section = section(table, &format!("## {command}: Columns"));
    let lines = section
        .lines()
        .filter(|line| line.starts_with("Works (") || line.starts_with("* "));
    for code in lines.flat_map(|line| line.split('`').skip(1).step_by(2)) {
        for name in code.split([',', ' ']).filter(|name| !name.is_empty()) {
            if OWN_COLUMNS
                .iter()
                .any(|own| name.eq_ignore_ascii_case(own) || code.split(' ').any(|c| c == *own))
            {
                continue;
            }
            // Usage, which is measured.
            let is_usage = ["Max", "Min", "Ave", "TRESUsage"]
                .iter()
                .any(|start| name.starts_with(start));
            if command == "sacct" && is_usage {
                continue;
            }
            match name.strip_prefix('%') {
                Some(letter) => columns.letters.push(letter.into()),
                None => columns.names.push(name.into()),
            }
        }
    }
    columns
}

impl DrawnColumns {
    /// `-o '%.8i %j'`, `-O jobid:10,name` or, for sacct, `-o jobid%10,state`.
    fn format(&self, command: &str, draw: &mut DrawSource) -> Vec<String> {
        let count = 1 + draw.below(4);
        if command == "sacct" {
            // A column that is named twice has one width in Slurm; the files have lines of comments.
            let mut names: Vec<&str> = Vec::new();
            while names.len() < count {
                let name = draw.one(&self.names);
                if **name != *"Comment" && !names.contains(&&**name) {
                    names.push(name);
                }
            }
            let fields = names.iter().map(|name| {
                let width = ["", "", "%10", "%-20", "%3"][draw.below(5)];
                format!("{name}{width}")
            });
            return vec!["-o".to_owned(), fields.collect::<Vec<_>>().join(",")];
        }
        if draw.below(2) == 0 {
            let fields = (0..count).map(|_| {
                let width = ["", ".8", "20", ".14", "8"][draw.below(5)];
                format!("%{width}{}", draw.one(&self.letters))
            });
            let text = fields.collect::<Vec<_>>().join([" ", "|"][draw.below(2)]);
            return vec!["-o".to_owned(), format!("'{text}'")];
        }
        let fields = (0..count).map(|_| {
            let width = ["", ":", ":12", ":.14", ":40"][draw.below(5)];
            format!("{}{width}", draw.one(&self.names))
        });
        let text = fields.collect::<Vec<_>>().join(",");
        vec!["-O".to_owned(), format!("'{text}'")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option that the table gained and values.txt did not have ended the runner before its first line.
    #[test]
    fn each_option_of_the_table_has_values_or_is_left_out() {
        let table = fs::read_to_string("../docs/compat.md").unwrap();
        let values = fs::read_to_string("../tests/differ/values.txt").unwrap();
        for (command, _) in SHARES {
            options(command, &table, &values).unwrap();
        }
    }

    const TABLE: &str = "\n# squeue\n\nText.\n\nWorks (3): `-a, --all`; `-j, --jobs, --job`; `-M, --clusters`\n\n\
        Accepted without effect (1):\n\n* `--local`: one cluster\n\nRefused (1):\n\n* `--array-unique`: no\n\n\
        ## squeue: Columns\n\nWorks (2): `%a account`; `%b tres-per-node, gres`; `name`\n\n# sinfo\n";
    const VALUES: &str = "[squeue]\n-a -\n-j 1 | x\n--local -\nskip -M\n[sinfo]\n-a -\n";

    #[test]
    fn options_are_those_of_the_table() {
        let drawn = options("squeue", TABLE, VALUES).unwrap();
        let names: Vec<&str> = drawn.iter().map(|d| d.option.as_str()).collect();
        assert_eq!(names, ["-a", "-j", "--local"]);
        assert!(options("squeue", TABLE, "[squeue]\n-a -\n").is_err());
    }

    #[test]
    fn columns_are_letters_and_names() {
        let columns = columns("squeue", TABLE);
        assert_eq!(columns.letters, ["a".into(), "b".into()]);
        assert_eq!(
            columns.names,
            ["account", "tres-per-node", "gres", "name"].map(Into::into)
        );
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(word("-C", "f1&big"), "-C\"f1&big\"");
        assert_eq!(word("--mem", "1G"), "--mem=1G");
        assert_eq!(word("qos=", "high"), "qos=high");
        assert_eq!(word("-H", ""), "-H");
    }

    #[test]
    fn a_seed_draws_the_same_lines() {
        let drawn = |seed| {
            let options = options("squeue", TABLE, VALUES).unwrap();
            let columns = columns("squeue", TABLE);
            let mut draw = DrawSource(seed);
            let lines = (0..20).map(|_| line("squeue", &options, &columns, &mut draw).text);
            lines.collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
