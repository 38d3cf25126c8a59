//! Man pages.

use super::names;
use muster_cli::catalogue::{CatalogueList, CommandEntry, Row};
use muster_cli::options::{Arg, OptionStatus};
use std::fmt::Write as _;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// File names and texts.
pub(super) fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = super::daemons_and_commands()
        .iter()
        .map(|command| {
            let section = section(command);
            (
                format!("{}.{section}", command.name),
                page(command, section),
            )
        })
        .collect();
    pages.push(("muster.1".to_owned(), own_page()));
    pages
}

fn section(command: &CommandEntry) -> u8 {
    match command.name {
        "slurmctld" | "slurmd" | "slurmdbd" | "slurmrestd" | "sackd" => 8,
        _ => 1,
    }
}

fn page(command: &CommandEntry, section: u8) -> String {
    let name = command.name;
    let mut out = head(name, section, command.about);
    let operands = roff(&format!("[OPTIONS] {}", command.operands));
    // Alternatives may be broken over lines.
    let operands = operands.replace('|', "|\\:");
    let _ = writeln!(out, ".SH SYNOPSIS\n.B {}\n{operands}", roff(name));
    let _ = writeln!(out, ".SH DESCRIPTION\n{}", roff(command.about));
    paragraphs(&mut out, command.notes);
    if section == 1 && command.options.iter().any(|row| row.dash == "--") {
        let text = "Long options may be shortened as far as they stay unambiguous.";
        let _ = writeln!(out, ".PP\n{}", roff(text));
    }
    out.push_str(".SH OPTIONS\n");
    command.options.iter().for_each(|row| option(&mut out, row));
    command.lists.iter().for_each(|each| list(&mut out, each));
    environment(&mut out, command);
    out.push_str(".SH EXIT STATUS\n");
    for (status, meaning) in command.exits {
        item(&mut out, status, meaning);
    }
    files(&mut out, section);
    tail(&mut out, name);
    out
}

fn head(name: &str, section: u8, about: &str) -> String {
    format!(
        ".TH {} {section} \"\" \"Muster {VERSION}\" \"Muster\"\n.SH NAME\n{} \\- {}\n",
        name.to_uppercase(),
        roff(name),
        roff(about.trim_end_matches('.'))
    )
}

fn option(out: &mut String, row: &Row) {
    let value = match row.arg {
        Arg::None => String::new(),
        Arg::Required if row.long.is_empty() || row.dash == "-" => format!(" {}", row.placeholder),
        Arg::Required => format!("={}", row.placeholder),
        Arg::Optional if row.dash == "-" => format!(" [{}]", row.placeholder),
        Arg::Optional => format!("[={}]", row.placeholder),
    };
    let left = names(row).join(", ") + &value;
    item(out, &left, &with_status(row.help, row.status));
}

fn with_status(help: &str, status: OptionStatus) -> String {
    let note = match status {
        OptionStatus::Works => return help.to_owned(),
        OptionStatus::Partly(how) => format!("In part: {how}."),
        OptionStatus::StoredOnly { why, .. } => format!("Accepted without effect: {why}."),
        OptionStatus::Refused(why) => format!("Not supported here: {why}."),
    };
    match help {
        "" => note,
        help => format!("{help}. {note}"),
    }
}

/// Lists with explanations get a paragraph an entry; bare names, such as columns, one for all that work.
fn list(out: &mut String, list: &CatalogueList) {
    let _ = writeln!(out, ".SH {}", roff(&list.title.to_uppercase()));
    let is_plain =
        |row: &&(String, String, OptionStatus)| row.1.is_empty() && row.2 == OptionStatus::Works;
    let plain: Vec<&str> = list
        .rows
        .iter()
        .filter(is_plain)
        .map(|r| r.0.as_str())
        .collect();
    if !plain.is_empty() {
        let _ = writeln!(out, "{}", roff(&plain.join("; ")));
    }
    for row in list.rows.iter().filter(|row| !is_plain(row)) {
        item(out, &row.0, &with_status(&row.1, row.2));
    }
}

fn environment(out: &mut String, command: &CommandEntry) {
    if section(command) == 8 {
        out.push_str(".SH ENVIRONMENT\n");
        item(out, "SLURM_CONF", "slurm.conf to read");
        return;
    }
    out.push_str(".SH ENVIRONMENT\n");
    for (name, meaning) in &command.variables {
        item(out, name, meaning);
    }
    item(out, "SLURM_CONF", "slurm.conf that names the cluster");
    if matches!(command.name, "squeue" | "sinfo" | "sacct" | "scontrol") {
        item(
            out,
            "SLURM_TIME_FORMAT",
            "how times are written: standard, relative, or a strftime format",
        );
    }
    if matches!(command.name, "sbatch" | "srun" | "salloc" | "scancel") {
        item(
            out,
            "SLURM_EXIT_ERROR",
            "exit status for failures of the command itself, instead of 1",
        );
    }
    if matches!(command.name, "srun" | "salloc") {
        item(
            out,
            "SLURM_EXIT_IMMEDIATE",
            "exit status when --immediate gives up, instead of 1",
        );
    }
}

fn files(out: &mut String, section: u8) {
    out.push_str(".SH FILES\n");
    item(
        out,
        "/etc/slurm/slurm.conf",
        "the configuration, unless SLURM_CONF names another",
    );
    if section == 8 {
        item(
            out,
            "StateSaveLocation",
            "the controller's state: its journal, snapshots and the accounting store",
        );
        item(
            out,
            "SlurmdSpoolDir",
            "what an agent keeps of its jobs, and its key",
        );
    }
}

fn tail(out: &mut String, name: &str) {
    let others = [
        "muster(1)",
        "sbatch(1)",
        "squeue(1)",
        "scontrol(1)",
        "slurmctld(8)",
    ];
    let others: Vec<&str> = others
        .into_iter()
        .filter(|other| other.split('(').next() != Some(name))
        .collect();
    let _ = writeln!(out, ".SH SEE ALSO\n{}", roff(&others.join(", ")));
}

/// muster(1): its help is its table.
fn own_page() -> String {
    let about = "a workload manager that speaks Slurm's language";
    let mut out = head("muster", 1, about);
    out.push_str(".SH SYNOPSIS\n.B muster\nCOMMAND [ARGUMENT...]\n.SH DESCRIPTION\n");
    let text = "One program with every role. Called by the name of one of Slurm's commands, through a link of that \
                name or as the first argument, it is that command.";
    let _ = writeln!(out, "{}\n.PP\n.nf", roff(text));
    for line in crate::help::GENERAL.lines().skip(1) {
        let _ = writeln!(out, "{}", roff(line));
    }
    out.push_str(".fi\n.SH ENVIRONMENT\n");
    item(
        &mut out,
        "MUSTER_HOME",
        "where 'muster up' keeps its cluster; /var/lib/muster for root, else ~/.local/state/muster",
    );
    item(&mut out, "SLURM_CONF", "slurm.conf that names the cluster");
    out.push_str(".SH EXIT STATUS\n");
    item(&mut out, "0", "all went well");
    item(
        &mut out,
        "1",
        "it failed; standard error says why. A command's own status is in its page.",
    );
    files(&mut out, 1);
    tail(&mut out, "muster");
    out
}

fn paragraphs(out: &mut String, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(
            out,
            ".PP\n{}",
            roff(&text.split_whitespace().collect::<Vec<_>>().join(" "))
        );
    }
}

fn item(out: &mut String, left: &str, right: &str) {
    let mut right = right.to_owned();
    if !right.is_empty() && !right.ends_with('.') {
        right.push('.');
    }
    let _ = writeln!(out, ".TP\n.B {}\n{}", roff(left), roff(&right));
}

/// Text that roff takes as it is. A quotation mark would begin an argument of a macro.
fn roff(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    for c in text.trim_end().chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            '`' => out.push_str("\\(ga"),
            '\'' => out.push_str("\\(aq"),
            c => out.push(c),
        }
    }
    out
}
