//! Purpose, options and behaviour of every command, read from the tables that the commands themselves run on. Man
//! pages, completion and the compatibility page are made from it.

use crate::grid_engine;
use crate::listing::format::{Field, Record};
use crate::listing::{job_fields, node_fields, step_fields};
use crate::options::{Arg, HelpForm, OptionStatus, Spec};
use crate::sacct::fields as sacct_fields;
use crate::scancel;
use crate::scontrol::{partition, reservation, table, update, update_job};
use crate::{
    class, logs, report, sacct, sacctmgr, sattach, sbcast, scrontab, sdiag, seff, sgather, sinfo,
    sprio, squeue, sreport, sshare, sstat, storage, strigger, top, torque, watch, why,
};
use muster_conf::options::{self as submission, OptionCommand as Submission};

/// A command.
#[derive(Clone, Debug)]
pub struct CommandEntry {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// Its operands after the options.
    pub operands: &'static str,
    /// Its options.
    pub options: Vec<Row>,
    /// Environment variables, and their meanings.
    pub variables: Vec<(String, String)>,
    /// Further lists: scontrol's commands and fields, columns of listings.
    pub lists: Vec<CatalogueList>,
    /// Further notes.
    pub notes: &'static str,
    /// Exit statuses and their meanings.
    pub exits: &'static [(&'static str, &'static str)],
}

/// An option.
#[derive(Clone, Debug)]
pub struct Row {
    /// Prefix of long names: two dashes, or one in the commands of Grid Engine.
    pub dash: &'static str,
    /// Long name, without dashes; empty where an option has a letter only.
    pub long: &'static str,
    /// Other long names.
    pub also: Vec<&'static str>,
    /// Short name.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub arg: Arg,
    /// Name of its value.
    pub placeholder: &'static str,
    /// One line on its effect.
    pub help: &'static str,
    /// Its effect here.
    pub status: OptionStatus,
}

/// Other things that a command knows.
#[derive(Clone, Debug)]
pub struct CatalogueList {
    /// Title of the list.
    pub title: &'static str,
    /// Each entry: its name, its description (may be empty), its effect here.
    pub rows: Vec<(String, String, OptionStatus)>,
}

const PLAIN: &[(&str, &str)] = &[
    ("0", "all went well"),
    (
        "1",
        "something was refused, or the controller cannot be reached",
    ),
];
const SUBMISSION: &[(&str, &str)] = &[
    ("0", "the job was accepted"),
    (
        "1",
        "it was refused, or the controller cannot be reached; SLURM_EXIT_ERROR changes the number",
    ),
    ("255", "an option's value is malformed"),
    (
        "other",
        "with --wait, the highest exit code of the job's tasks",
    ),
];
const RUNNER: &[(&str, &str)] = &[
    ("0", "all tasks, or the command, ended with 0"),
    (
        "1",
        "nothing could be started; SLURM_EXIT_ERROR changes the number",
    ),
    ("255", "an option's value is malformed"),
    ("128+N", "the task was ended by signal N"),
    (
        "other",
        "the highest exit code of the tasks, or the command's",
    ),
];

/// Every command of users and administrators that is no daemon.
pub fn commands() -> Vec<CommandEntry> {
    let mut all: Vec<CommandEntry> = Submission::ALL.into_iter().map(submitted).collect();
    all.push(of_spec(&scancel::SPEC, Vec::new()));
    all.push(of_spec(&table::SPEC, scontrol_lists()));
    all.push(of_spec(
        &squeue::SPEC,
        vec![
            columns("Columns", job_fields::FIELDS),
            columns("Columns of --steps", step_fields::FIELDS),
        ],
    ));
    all.push(of_spec(
        &sinfo::SPEC,
        vec![columns("Columns", node_fields::FIELDS)],
    ));
    all.push(of_spec(&sacct::SPEC, vec![sacct_columns()]));
    all.push(of_spec(&sdiag::SPEC, Vec::new()));
    let others = [
        &sattach::SPEC,
        &sbcast::SPEC,
        &scrontab::SPEC,
        &sgather::SPEC,
        &seff::SPEC,
        &sprio::SPRIO,
        &sreport::SPEC,
        &sshare::SPEC,
        &sstat::SPEC,
        &strigger::SPEC,
    ];
    for spec in others {
        all.push(of_spec(spec, Vec::new()));
    }
    all.push(of_spec(&sacctmgr::SPEC, sacctmgr_lists()));
    all.push(of_spec(&why::SPEC, Vec::new()));
    all.push(of_spec(&class::SPEC, Vec::new()));
    all.push(of_spec(&logs::SPEC, Vec::new()));
    all.push(of_spec(&watch::SPEC, Vec::new()));
    all.push(of_spec(&top::SPEC, Vec::new()));
    all.push(of_spec(&report::SPEC, Vec::new()));
    all.push(of_spec(&storage::SPEC, Vec::new()));
    all.extend(grid_engine::SPECS.iter().map(|spec| CommandEntry {
        exits: grid_engine::exits(spec.name),
        ..of_spec(spec, Vec::new())
    }));
    all.extend(torque::SPECS.iter().map(|spec| {
        let lists = match spec.name {
            "torque-qsub" => vec![resources_of_torque()],
            _ => Vec::new(),
        };
        of_spec(spec, lists)
    }));
    all
}

fn of_spec(spec: &'static Spec, lists: Vec<CatalogueList>) -> CommandEntry {
    let aliases = |name| {
        let others = spec
            .options
            .iter()
            .filter(move |o| o.is_alias() && o.name == name);
        others.map(|o| o.long).collect()
    };
    CommandEntry {
        name: spec.name,
        about: spec.about,
        operands: spec.operands,
        options: spec
            .options
            .iter()
            .filter(|o| !o.is_alias())
            .map(|o| Row {
                dash: match spec.form {
                    HelpForm::GridEngine | HelpForm::Torque => "-",
                    _ => "--",
                },
                long: o.long,
                also: aliases(o.name),
                short: o.short,
                arg: o.arg,
                placeholder: o.placeholder,
                help: o.help,
                status: o.status,
            })
            .collect(),
        variables: spec
            .variables
            .iter()
            .map(|(name, option)| ((*name).to_owned(), format!("as --{option}")))
            .collect(),
        lists,
        notes: spec.notes,
        exits: PLAIN,
    }
}

fn submitted(command: Submission) -> CommandEntry {
    let (about, operands, exits) = match command {
        Submission::Sbatch => (
            "Submits a script that runs when its resources are free.",
            "[SCRIPT [ARGUMENT...]]",
            SUBMISSION,
        ),
        Submission::Srun => (
            "Runs a program as parallel tasks, in the job that it is called in or in one of its own.",
            "PROGRAM [ARGUMENT...]",
            RUNNER,
        ),
        Submission::Salloc => (
            "Gets resources and runs a command, a shell at first, while it holds them.",
            "[COMMAND [ARGUMENT...]]",
            RUNNER,
        ),
    };
    let rows = || {
        submission::table()
            .iter()
            .filter(|r| r.commands.has(command))
    };
    let mut options: Vec<Row> = rows()
        .filter(|r| r.same_as.is_none())
        .map(|r| Row {
            dash: "--",
            long: r.long,
            also: rows()
                .filter(|o| o.same_as == Some(r.long))
                .map(|o| o.long)
                .collect(),
            short: r.short,
            arg: r.arg,
            placeholder: r.placeholder,
            help: r.help,
            status: r.status,
        })
        .collect();
    options.sort_by_key(|r| r.long);
    let mut variables: Vec<(String, String)> = rows()
        .flat_map(|r| {
            r.env_of(command)
                .iter()
                .map(|v| ((*v).to_owned(), format!("as --{}", r.long)))
        })
        .collect();
    variables.sort();
    CommandEntry {
        name: command.name(),
        about,
        operands,
        options,
        variables,
        lists: Vec::new(),
        notes: "",
        exits,
    }
}

fn columns<R: Record>(title: &'static str, fields: &[Field<R>]) -> CatalogueList {
    let name = |field: &Field<R>| {
        let letter = match field.letter {
            0 => String::new(),
            letter => format!("%{} ", char::from(letter)),
        };
        letter + &field.names.join(", ")
    };
    CatalogueList {
        title,
        rows: fields
            .iter()
            .map(|f| (name(f), String::new(), of_column(f.constant)))
            .collect(),
    }
}

fn resources_of_torque() -> CatalogueList {
    let names = muster_conf::options::torque::statuses();
    CatalogueList {
        title: "Resources of '-l'",
        rows: names
            .map(|(name, status)| (name.to_owned(), String::new(), status))
            .collect(),
    }
}

fn of_column(constant: bool) -> OptionStatus {
    match constant {
        true => OptionStatus::Partly(
            "always the same, or empty: it is not measured or there is no such thing here",
        ),
        false => OptionStatus::Works,
    }
}

fn sacct_columns() -> CatalogueList {
    CatalogueList {
        title: "Columns",
        rows: sacct_fields::FIELDS
            .iter()
            .map(|f| (f.name.to_owned(), String::new(), of_column(f.constant)))
            .collect(),
    }
}

fn sacctmgr_lists() -> Vec<CatalogueList> {
    let lists = sacctmgr::surface::surfaces().into_iter();
    let list = |(title, rows): sacctmgr::surface::Surface| CatalogueList {
        title,
        rows: rows
            .into_iter()
            .map(|(name, status)| (name, String::new(), status))
            .collect(),
    };
    lists.map(list).collect()
}

fn scontrol_lists() -> Vec<CatalogueList> {
    let plain = |name: &str, status| (name.to_owned(), String::new(), status);
    let keywords = table::KEYWORDS.iter().map(|k| {
        let name = format!("{} {}", k.name, k.arguments);
        (name.trim_end().to_owned(), k.help.to_owned(), k.status)
    });
    let shown = crate::scontrol::show::ENTITIES
        .iter()
        .map(|(name, _, _, status)| plain(name, *status));
    let job = update_job::fields().map(|name| plain(name, OptionStatus::Works));
    let not = update_job::REFUSED
        .iter()
        .map(|(name, why)| plain(name, OptionStatus::Refused(why)));
    let list = |title, rows| CatalogueList { title, rows };
    vec![
        list("Commands", keywords.collect()),
        list("What 'show' shows", shown.collect()),
        list("Fields of 'update JobId='", job.chain(not).collect()),
        list(
            "Fields of 'update NodeName='",
            update::NODE_FIELDS
                .iter()
                .map(|f| plain(f.name, f.status))
                .collect(),
        ),
        list(
            "Fields of 'create' and 'update ReservationName='",
            reservation::FIELDS
                .iter()
                .map(|(name, _, status)| plain(name, *status))
                .collect(),
        ),
        list(
            "Flags of reservations",
            reservation::flag_names()
                .map(|name| plain(name, OptionStatus::Works))
                .collect(),
        ),
        list(
            "Fields of 'update PartitionName='",
            partition::FIELDS
                .iter()
                .map(|(name, status)| plain(name, *status))
                .collect(),
        ),
    ]
}
