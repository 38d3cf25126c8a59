//! sacctmgr: accounts, users with their associations, QOS, workload characterization keys and clusters, which the
//! controller keeps. It takes the words of Slurm's manual and answers in its texts, which scripts compare. Each entity
//! has a file; what only several clusters with one accounting would need is kept and shown, or refused by name.

mod account;
mod archive;
pub(crate) mod book;
mod cluster;
mod commands;
mod conditions;
mod console;
mod coordinator;
mod edit;
mod events;
mod federation;
mod fields;
mod flat_file;
mod job;
pub(crate) mod ledger;
mod other_clusters;
mod prompt;
mod qos;
#[cfg(test)]
mod replay;
mod resource;
mod row;
mod service;
mod session;
pub(crate) mod settings;
mod show;
mod shutdown;
mod slurmdbd_process;
pub(crate) mod surface;
mod user;
mod words;

use self::console::Terminal;
use self::ledger::Controller;
use self::session::Invocation;
use crate::SLURM_VERSION;
use crate::listing::Failure;
use crate::options::{HelpForm, Spec, flag, opt};
use muster_model::account_limits::TresAmounts;

/// Its commands, for `--help`.
const COMMANDS: &str = "\
     add <ENTITY> <SPECS>     make one
     archive dump <SPECS>     archive and purge old records
     archive load <FILE>      take an archive back
     delete <ENTITY> <SPECS>  take away those that where keys name
     modify <ENTITY> <SPECS>  change them: 'set' is followed by what is new, 'where' by which
     show <ENTITY> <SPECS>    show them; 'list' is the same
     dump <CLUSTER> [file=F]  write accounts and users to a file
     load <FILE> [clean]      read such a file, with 'clean' in place of what is there
     exit, quit, !!           end; again
     help                     show this text
     version                  display tool version number

    <ENTITY> may be account, association, cluster, configuration, coordinator, event, federation, job, problem,
     qos, resource, runawayjobs, stats, transaction, tres, user or wckey
    <SPECS> are different for each command entity pair: KEY=VALUE words, for instance
       add account NAME       Description= Organization= Parent= Fairshare=
       add cluster NAME       Fairshare=
       add user NAME          Account= AdminLevel= DefaultAccount=
       delete qos NAME
       list associations      Accounts= Users= Format=
       modify cluster NAME    set DefaultQOS= Fairshare= QosLevel=
";

/// Options and operands of sacctmgr.
pub(crate) static SPEC: Spec = Spec {
    name: "sacctmgr",
    about: "Shows and changes accounts, users with their associations, QOS and clusters.",
    operands: "[show|add|modify|delete ENTITY [NAME,...] [where KEY=VALUE...] [set KEY=VALUE...]]",
    form: HelpForm::Commands(COMMANDS),
    options: &[
        flag("associations", "with 'show': associations, too").short('s'),
        flag("help", "print this help").short('h'),
        flag("immediate", "commit changes immediately").short('i'),
        opt(
            "json",
            "VERSION",
            "with 'show': as JSON, in this version; list: versions there are",
        )
        .optional(),
        flag("noheader", "no line above the columns").short('n'),
        flag("oneliner", "one record a line")
            .short('o')
            .stored("each record is one line"),
        flag("parsable", "columns separated by '|', and one at the end").short('p'),
        flag("parsable2", "columns separated by '|'").short('P'),
        flag("quiet", "say less")
            .short('Q')
            .stored("nothing is said but results and errors"),
        flag("readonly", "refuse changes").short('r'),
        flag("usage", "print a short summary"),
        flag("verbose", "say more")
            .short('v')
            .stored("there is no more to say"),
        flag("version", "print the version").short('V'),
        opt("yaml", "VERSION", "with 'show': as YAML, in this version").optional(),
    ],
    variables: &[],
    notes: "Without a command it reads commands from standard input. Entities to show: account, association, cluster, \
            configuration, event, federation, problem, qos, reservation, resource, runawayjobs, stats, transaction, tres, \
            user, wckey. To add and delete: account, cluster, coordinator, federation, qos, resource, user; to modify: \
            account, cluster, federation, job, qos, resource, user. 'dump CLUSTER [file=FILE]' writes accounts and users to a file, 'load FILE [clean]' reads it. \
            'archive dump' archives and purges now what slurmdbd.conf and its words say, 'archive load FILE' takes an \
            archive back; both are done on the controller's host.\n",
};

/// Runs sacctmgr.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    for (name, _) in &parsed.options {
        match *name {
            "version" => return print_text(&format!("slurm {SLURM_VERSION}\n")),
            "help" => return print_text(&SPEC.help()),
            "usage" => return print_text(&SPEC.usage()),
            _ => {}
        }
    }
    let (mut controller, mut terminal) = (Controller::find(), Terminal::default());
    let mut session = Invocation::new(&mut controller, &mut terminal);
    for (name, _) in &parsed.options {
        match *name {
            "noheader" => session.style.no_header = true,
            "parsable" => session.style.bars = Some(true),
            "parsable2" => session.style.bars = Some(false),
            "associations" => session.associations = true,
            "immediate" => session.immediate = true,
            "readonly" => session.readonly = true,
            _ => {}
        }
    }
    match parsed.operands.is_empty() {
        true => prompt::run(&mut session),
        false => commands::execute(&mut session, &parsed.operands),
    }
}

fn print_text(text: &str) -> Result<(), Failure> {
    crate::listing::print(text);
    Ok(())
}

/// Whether a word is the beginning of a name, in any case.
fn begins(name: &str, word: &str) -> bool {
    let start = name.get(..word.len());
    !word.is_empty() && start.is_some_and(|s| s.eq_ignore_ascii_case(word))
}

/// `[days-]hours:minutes:seconds`.
fn clock(seconds: u32) -> String {
    let (days, s) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    match days {
        0 => time,
        days => format!("{days}-{time}"),
    }
}

fn clock_of_minutes(minutes: u64) -> String {
    clock(u32::try_from(minutes.saturating_mul(60)).unwrap_or(u32::MAX))
}

/// Amounts as they are shown: memory in the largest unit that leaves no rest.
fn amounts_text(of: &TresAmounts) -> String {
    let words = of.iter().map(|tres| match tres.name.as_str() {
        "mem" => {
            let (mut count, mut unit) = (tres.amount, 0);
            while count > 0 && count % 1024 == 0 && unit < 3 {
                (count, unit) = (count / 1024, unit + 1);
            }
            format!("mem={count}{}", ["M", "G", "T", "P"][unit])
        }
        name => format!("{name}={}", tres.amount),
    });
    words.collect::<Vec<_>>().join(",")
}
