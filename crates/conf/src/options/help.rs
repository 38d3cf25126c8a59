//! `--help` and `--usage` from the table.

use super::row::{Arg, Group, OptionCommand, OptionRow};
use std::fmt::Write as _;

const INDENT: usize = 30;
const WIDTH: usize = 80;

const GROUPS: &[(Group, &str)] = &[
    (Group::Run, "Parallel run options:"),
    (Group::Constraint, "Constraint options:"),
    (Group::Consumable, "Consumable resources related options:"),
    (Group::Affinity, "Affinity/Multi-core options:"),
    (Group::Gpu, "GPU scheduling options:"),
    (Group::Help, "Help options:"),
    (Group::Other, "Other options:"),
];

/// Text of `--help`; `site` are options of the site's own.
pub fn help(command: OptionCommand, site: &[OptionRow]) -> String {
    let mut text = format!("Usage: {}\n", synopsis(command));
    for (group, title) in GROUPS {
        let mut rows: Vec<&OptionRow> = super::table()
            .iter()
            .filter(|r| r.group == *group && r.commands.has(command) && r.same_as.is_none())
            .collect();
        if rows.is_empty() {
            continue;
        }
        rows.sort_by_key(|r| r.long);
        let _ = write!(text, "\n{title}\n");
        for row in rows {
            push_row(&mut text, row);
        }
    }
    if !site.is_empty() {
        text.push_str("\nOptions of this site:\n");
        site.iter().for_each(|row| push_row(&mut text, row));
    }
    text
}

fn synopsis(command: OptionCommand) -> &'static str {
    match command {
        OptionCommand::Sbatch => "sbatch [OPTIONS...] executable [args...]",
        OptionCommand::Srun => "srun [OPTIONS...] executable [args...]",
        OptionCommand::Salloc => "salloc [OPTIONS...] [command [args...]]",
    }
}

fn push_row(text: &mut String, row: &OptionRow) {
    let short = row
        .short
        .map_or_else(|| "    ".to_owned(), |c| format!("-{c}, "));
    let mut left = format!("  {short}{}", long_form(row));
    if left.len() < INDENT {
        left = format!("{left:INDENT$}");
    } else {
        left.push(' ');
    }
    let note = match row.status {
        super::OptionStatus::Works | super::OptionStatus::Partly(_) => "",
        super::OptionStatus::StoredOnly { .. } => " (no effect here)",
        super::OptionStatus::Refused(_) => " (not supported here)",
    };
    let mut column = left.chars().count();
    text.push_str(&left);
    let mut first = true;
    for word in row
        .help
        .split(' ')
        .chain(note.split(' '))
        .filter(|w| !w.is_empty())
    {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:INDENT$}", "");
            column = INDENT;
        } else if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        first = false;
    }
    text.push('\n');
}

fn long_form(row: &OptionRow) -> String {
    match row.arg {
        Arg::None => format!("--{}", row.long),
        Arg::Required => format!("--{}={}", row.long, row.placeholder),
        Arg::Optional => format!("--{}[={}]", row.long, row.placeholder),
    }
}

/// Text of `--usage`.
pub fn usage(command: OptionCommand) -> String {
    let name = command.name();
    let head = format!("Usage: {name}");
    let indent = head.len() + 1;
    let mut text = head;
    let mut column = indent - 1;
    let rows = super::table()
        .iter()
        .filter(|r| r.commands.has(command) && r.same_as.is_none())
        .filter(|r| !matches!(r.status, super::OptionStatus::Refused(_)));
    let options = rows.map(|row| match row.short {
        Some(c) if row.arg == Arg::Required => format!("[-{c} {}]", row.placeholder),
        _ => format!("[{}]", long_form(row)),
    });
    let last = synopsis(command)
        .split_once("...] ")
        .map_or("", |(_, rest)| rest)
        .to_owned();
    for item in options.chain([last]) {
        if column + 1 + item.len() > WIDTH {
            let _ = write!(text, "\n{:indent$}{item}", "");
            column = indent + item.len();
        } else {
            let _ = write!(text, " {item}");
            column += 1 + item.len();
        }
    }
    text.push('\n');
    text
}
