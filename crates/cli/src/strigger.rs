//! strigger: programs that the controller runs when something happens to a job, to nodes or to itself.

use crate::SLURM_VERSION;
use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::print;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::people;
use crate::say::{self, Say};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::trigger::{TRIGGER_OFFSET_MAX_S, Trigger, TriggerAsk, TriggerEvents};
use muster_proto::client::{Query, Response};
use nix::unistd::{AccessFlags, access};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// strigger.
pub(crate) static SPEC: Spec = Spec {
    name: "strigger",
    about: "Sets, shows and clears triggers: programs that the controller runs when something happens.",
    operands: "",
    form: HelpForm::OptionsAs("[--set | --get | --clear] [OPTIONS]"),
    options: OPTIONS,
    variables: &[],
    notes: "\
One of --set, --get and --clear is needed. The program runs on the controller's host as the user who set the trigger, with the job, the
nodes or the event as its last argument, in / and with SLURM_CONF and PATH alone. It is killed with what it has started after
five minutes. What happens to nodes is compared with triggers every 15 seconds, and all nodes are one argument; a trigger that is set
before that fires, too. It goes when it fires, unless it is permanent. Triggers and programs that were not started outlive a restart of
the controller. SlurmUser and root set triggers; a controller that is not root runs root's as SlurmUser. With
SlurmctldParameters=allow_user_triggers and SlurmUser=root users set triggers for nodes and for their own jobs; those that there are
go when a configuration without it is read.
There is no backup controller: its events, and the failure of the primary, do not happen, nor do those of burst buffers and front end
nodes, of which there are none. Accounting is a part of the controller: slurmdbd and the database fail when accounting cannot write what it has, and resume when it can.
",
};

static OPTIONS: &[Opt] = &[
    flag(
        "backup_slurmctld_assumed_control",
        "when the backup slurmctld has control",
    )
    .short('C'),
    flag(
        "backup_slurmctld_failure",
        "when the backup slurmctld fails",
    )
    .short('B'),
    flag(
        "backup_slurmctld_resumed_operation",
        "when the backup slurmctld works again",
    )
    .short('c'),
    flag("burst_buffer", "when a burst buffer fails"),
    flag("clear", "delete a trigger, or several"),
    opt("clusters", "NAME", "cluster to ask").short('M'),
    flag("down", "when a node goes DOWN").short('d'),
    flag("drained", "when a node is DRAINED").short('D'),
    flag("draining", "when a node is DRAINING"),
    flag("fail", "when a node is set to FAIL").short('F'),
    flag("fini", "when the job is over").short('f'),
    opt("flags", "FLAG", "PERM: the trigger stays after the event"),
    flag("front_end", "--up and --down of front end nodes"),
    flag("get", "get trigger information"),
    flag("help", "print this help"),
    opt("id", "ID", "the trigger of this number").short('i'),
    flag("idle", "when a node has been IDLE for the time of --offset").short('I'),
    opt("jobid", "ID", "for this job, or for its nodes").short('j'),
    opt("node", "host", "for these nodes; without a value for all")
        .short('n')
        .optional(),
    flag("noheader", "no line above the columns").short('N'),
    opt(
        "offset",
        "SECONDS",
        "so long after the event, negative: before it",
    )
    .short('o'),
    flag(
        "primary_database_failure",
        "when accounting cannot write to its database",
    )
    .short('h'),
    flag("primary_database_resumed_operation", "when it can again").short('H'),
    flag(
        "primary_slurmctld_acct_buffer_full",
        "when what accounting has not written is too much",
    )
    .short('e'),
    flag(
        "primary_slurmctld_failure",
        "when the primary slurmctld fails",
    )
    .short('a'),
    flag(
        "primary_slurmctld_resumed_control",
        "when the primary slurmctld has control again",
    )
    .short('b'),
    flag(
        "primary_slurmctld_resumed_operation",
        "when the primary slurmctld works again",
    )
    .short('A'),
    flag("primary_slurmdbd_failure", "when accounting fails").short('g'),
    flag(
        "primary_slurmdbd_resumed_operation",
        "when accounting works again",
    )
    .short('G'),
    opt("program", "PATH", "the program, with arguments").short('p'),
    flag("quiet", "do not complain of triggers that are gone").short('Q'),
    flag(
        "reconfig",
        "when the configuration was read, or that of a node changed",
    )
    .short('r'),
    flag("resume", "when a node is set to RESUME").short('R'),
    flag("set", "create a trigger"),
    flag("time", "when the job reaches its time limit").short('t'),
    flag("up", "when a node that was DOWN is in service again").short('u'),
    flag("usage", "print a short summary"),
    opt("user", "USER", "triggers of this user"),
    flag("verbose", "print detailed event logging").short('v'),
    flag("version", "print the version").short('V'),
];

/// The end of the text where no event is named.
const NO_EVENT: &str = "\
(--down, --up, --reconfig, --time, --fini, --burst_buffer,
--primary_slurmctld_failure,
--primary_slurmctld_resumed_operation,
--primary_slurmctld_resumed_control,
--primary_slurmctld_acct_buffer_full,
--backup_slurmctld_failure,
--backup_slurmctld_resumed_operation,
--backup_slurmctld_as_ctrl,
--primary_slurmdbd_failure,
--primary_slurmdbd_resumed_operation,
--primary_database_failure, or 
--primary_database_resumed_operation)

";

/// Action of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TriggerMode {
    Set,
    Get,
    Clear,
}

/// A command line.
#[derive(Debug, Default)]
struct TriggerOptions {
    modes: Vec<TriggerMode>,
    events: TriggerEvents,
    id: Option<u32>,
    job: Option<JobId>,
    uid: Option<u32>,
    /// Nodes, or all.
    nodes: Option<String>,
    offset_s: i32,
    permanent: bool,
    program: Option<String>,
    no_header: bool,
}

/// Runs strigger.
pub(crate) fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn run(args: &[String]) -> Result<(), ExitCode> {
    let mut say = Say::new("strigger");
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        ExitCode::FAILURE
    })?;
    let mut options = TriggerOptions::default();
    for (name, value) in parsed.options {
        match name {
            "help" => return text(&SPEC.help()),
            "usage" => return text(&SPEC.usage()),
            "version" => return text(&format!("slurm {SLURM_VERSION}\n")),
            "quiet" => say.quiet = true,
            "verbose" => say.verbose += 1,
            _ => take(&mut options, name, value).map_err(|why| failed(&say, &why))?,
        }
    }
    let mode = check(&options).map_err(|why| failed(&say, &why))?;
    match mode {
        TriggerMode::Set => set(&say, options),
        TriggerMode::Get => get(&say, &options),
        TriggerMode::Clear => clear(&say, &options),
    }
}

fn text(text: &str) -> Result<(), ExitCode> {
    say::stdout(text);
    Ok(())
}

/// Slurm's text, which may end with empty lines.
fn failed(say: &Say, why: &str) -> ExitCode {
    say::stderr(&format!("{}: error: {why}\n", say.name));
    ExitCode::FAILURE
}

/// Takes an option.
fn take(options: &mut TriggerOptions, name: &str, value: Option<String>) -> Result<(), String> {
    let given = value.as_deref().unwrap_or_default();
    match name {
        "set" => options.modes.push(TriggerMode::Set),
        "get" => options.modes.push(TriggerMode::Get),
        "clear" => options.modes.push(TriggerMode::Clear),
        "clusters" => {
            ClusterSelection::choose_one("strigger", given)
                .map_err(|failure| failure.to_string())?;
        }
        "flags" => {
            if !given.to_ascii_lowercase().contains("perm") {
                return Err(format!("Invalid flags {given}"));
            }
            options.permanent = true;
        }
        "id" => options.id = u32::try_from(number(given)).ok().filter(|id| *id > 0),
        "jobid" => {
            let id = u64::try_from(number(given)).ok().filter(|id| *id > 0);
            options.job = Some(JobId(id.ok_or_else(|| format!("Invalid jobid {given}"))?));
        }
        "node" => options.nodes = Some(given.to_owned()),
        "noheader" => options.no_header = true,
        "offset" => {
            let offset = i32::try_from(number(given)).unwrap_or(i32::MAX);
            if offset.saturating_abs() > TRIGGER_OFFSET_MAX_S {
                let most = TRIGGER_OFFSET_MAX_S;
                return Err(format!("The --offset parameter must be between +/-{most}"));
            }
            options.offset_s = offset;
        }
        "program" => options.program = value,
        "user" => {
            let by_number = || given.parse().ok().and_then(people::user_of_uid);
            let user = people::user_named(given).or_else(by_number);
            let user = user.ok_or_else(|| format!("Invalid user {given}"))?;
            options.uid = Some(user.uid.as_raw());
        }
        event => {
            let mut words = TriggerEvents::WORDS.iter();
            if let Some((event, _)) = words.find(|(_, word)| *word == event) {
                options.events = options.events.with(*event);
            }
        }
    }
    Ok(())
}

/// The number that a text begins with, as C's `strtol` reads it.
fn number(text: &str) -> i64 {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let digits = &digits[..end.unwrap_or(digits.len())];
    match digits.parse::<i64>() {
        Ok(number) => sign * number,
        Err(_) if digits.is_empty() => 0,
        Err(_) => sign * i64::MAX,
    }
}

/// Action, if the options fit it.
fn check(options: &TriggerOptions) -> Result<TriggerMode, String> {
    let [mode] = options.modes.as_slice() else {
        let text = "You must use exactly one of the following options: --set, --get or --clear";
        return Err(text.to_owned());
    };
    let is_set = *mode == TriggerMode::Set;
    if *mode == TriggerMode::Clear {
        let is_named = options.id.is_some() || options.job.is_some() || options.uid.is_some();
        return match is_named {
            true => Ok(*mode),
            false => Err("You must specify a --id, --jobid, or --user to clear".to_owned()),
        };
    }
    let named = options.events.without(TriggerEvents::FRONT_END);
    if is_set && named == TriggerEvents::NONE {
        return Err(format!("You must specify a trigger {NO_EVENT}")
            .trim_end_matches('\n')
            .to_owned()
            + "\n");
    }
    if options.events.meets(TriggerEvents::OF_JOBS) && options.job.is_none() {
        return Err("You must specify a --jobid value".to_owned());
    }
    if is_set {
        check_program(options.program.as_deref())?;
    }
    Ok(*mode)
}

fn check_program(program: Option<&str>) -> Result<(), String> {
    let program = program.ok_or("You must specify a --program value")?;
    if !program.starts_with('/') {
        return Err("The --program value must start with \"/\"".to_owned());
    }
    match std::fs::metadata(path_of(program)) {
        Err(_) => Err("Invalid --program value, file not found".to_owned()),
        Ok(found) if !found.is_file() => {
            Err("Invalid --program value, not regular file".to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// The path of a program that has arguments.
fn path_of(program: &str) -> &Path {
    Path::new(program.split_ascii_whitespace().next().unwrap_or_default())
}

fn connect(call: &str) -> Result<Client, ExitCode> {
    Client::connect().map_err(|error| refused(call, &error))
}

/// Prints an error, in Slurm's words.
fn refused(call: &str, error: &ConnectError) -> ExitCode {
    let why = match error {
        ConnectError::Refused(Refusal { code, .. }) => code.text().to_owned(),
        other => other.to_string(),
    };
    say::stderr(&format!("{call}: {why}\n"));
    ExitCode::FAILURE
}

/// Prints the limit or the right that is missing, which Slurm's words do not name.
fn detail(say: &Say, error: &ConnectError) {
    if let ConnectError::Refused(refusal) = error
        && matches!(
            refusal.code,
            RefusalCode::TooManyTriggers | RefusalCode::AccessDenied
        )
    {
        say.error(&refusal.detail);
    }
}

fn command(call: &str, ask: TriggerAsk) -> Result<Result<(), ConnectError>, ExitCode> {
    match connect(call)?.command(UserCommand::Trigger(Box::new(ask))) {
        Ok(Reply::Done { .. }) => Ok(Ok(())),
        Ok(other) => Ok(Err(unexpected(&Response::Reply(Box::new(other))))),
        Err(error) => Ok(Err(error)),
    }
}

fn set(say: &Say, options: TriggerOptions) -> Result<(), ExitCode> {
    const CALL: &str = "slurm_set_trigger";
    let program = options.program.unwrap_or_default();
    // The controller has no look at files: it would wait for them.
    if access(path_of(&program), AccessFlags::X_OK).is_err() {
        say.error(&format!("--program={program} cannot be executed"));
        say::stderr(&format!("{CALL}: Access/permission denied\n"));
        return Err(ExitCode::FAILURE);
    }
    let ask = TriggerAsk::Set {
        events: options.events,
        job: options.job,
        nodes: options.nodes.unwrap_or_default(),
        offset_s: options.offset_s,
        program,
        permanent: options.permanent,
    };
    command(CALL, ask)?.map_err(|error| {
        detail(say, &error);
        refused(CALL, &error)
    })?;
    say.verbose("trigger set");
    Ok(())
}

fn clear(say: &Say, options: &TriggerOptions) -> Result<(), ExitCode> {
    const CALL: &str = "slurm_clear_trigger";
    let ask = TriggerAsk::Clear {
        id: options.id,
        job: options.job,
        uid: options.uid,
    };
    if let Err(error) = command(CALL, ask)? {
        let is_refusal = matches!(error, ConnectError::Refused(_));
        return match say.quiet && is_refusal {
            true => Ok(()),
            false => {
                detail(say, &error);
                Err(refused(CALL, &error))
            }
        };
    }
    match (options.job, options.id, options.uid) {
        (Some(job), ..) => say.verbose(&format!("triggers for job {job} cleared")),
        (None, Some(id), _) => say.verbose(&format!("trigger {id} cleared")),
        (None, None, uid) => {
            say.verbose(&format!("triggers for user {} cleared", uid.unwrap_or(0)));
        }
    }
    Ok(())
}

fn get(say: &Say, options: &TriggerOptions) -> Result<(), ExitCode> {
    const CALL: &str = "slurm_get_triggers";
    let all = match connect(CALL)?.query(Query::Triggers) {
        Ok(Response::Triggers(all)) => all,
        Ok(Response::Refused(refusal)) => return Err(refused(CALL, &refusal.into())),
        Ok(other) => return Err(refused(CALL, &unexpected(&other))),
        Err(error) => return Err(refused(CALL, &error)),
    };
    say.verbose(&format!("Read {} trigger records", all.len()));
    print(&table(options, &all, |uid| {
        people::user_of_uid(uid).map_or_else(|| uid.to_string(), |user| user.name)
    }));
    Ok(())
}

/// Whether a trigger is one of those that are asked for. What is about nodes and controllers is compared with the event
/// alone; --reconfig chooses none, as in Slurm.
fn is_meant(options: &TriggerOptions, trigger: &Trigger) -> bool {
    let is_of = |job: JobId| trigger.job == Some(job);
    let by_options = options.id.is_none_or(|id| trigger.id == id)
        && options.job.is_none_or(is_of)
        && options.uid.is_none_or(|uid| trigger.uid == uid)
        && (options.nodes.is_none() || trigger.resource() == "node");
    let by_event = |event: TriggerEvents| {
        let is_of_jobs = event.meets(TriggerEvents::OF_JOBS);
        let is_about = is_of_jobs == trigger.job.is_some();
        event == TriggerEvents::RECONFIG || is_about && trigger.events == event
    };
    // Which nodes are meant is no condition, as in Slurm.
    let named = options.events.without(TriggerEvents::FRONT_END);
    by_options && named.each().all(by_event)
}

/// The triggers that are asked for, as a table; nothing where there is none.
fn table(options: &TriggerOptions, all: &[Trigger], name: impl Fn(u32) -> String) -> String {
    let mut out = String::new();
    for trigger in all.iter().filter(|trigger| is_meant(options, trigger)) {
        if out.is_empty() && !options.no_header {
            out.push_str(&row(&[
                "TRIG_ID", "RES_TYPE", "RES_ID", "TYPE", "OFFSET", "USER", "FLAGS", "PROGRAM",
            ]));
        }
        let about = match (trigger.job, trigger.nodes.as_str()) {
            (Some(job), _) => job.to_string(),
            (None, "") if !matches!(trigger.resource(), "other" | "front_end") => "*".to_owned(),
            (None, "") => "(null)".to_owned(),
            (None, nodes) => nodes.to_owned(),
        };
        out.push_str(&row(&[
            &trigger.id.to_string(),
            trigger.resource(),
            &about,
            trigger.events.word(),
            &trigger.offset_s.to_string(),
            &name(trigger.uid),
            if trigger.permanent { "PERM" } else { "" },
            &trigger.program,
        ]));
    }
    out
}

fn row(cells: &[&str; 8]) -> String {
    let [id, resource, about, event, offset, user, flags, program] = cells;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{id:>7} {resource:<9} {about:>7} {event:<35} {offset:>6} {user:<8} {flags:<5} {program}"
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(TriggerMode, TriggerOptions), String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut options = TriggerOptions::default();
        for (name, value) in SPEC.parse(&args)?.options {
            take(&mut options, name, value)?;
        }
        Ok((check(&options)?, options))
    }

    fn refused(line: &str) -> String {
        parse(line).unwrap_err()
    }

    /// The texts of Slurm 22.05.
    #[test]
    fn what_does_not_fit_is_refused_in_slurms_words() {
        let one = "You must use exactly one of the following options: --set, --get or --clear";
        assert_eq!(refused("--get --set"), one);
        let no_event = refused("--set -p /bin/true");
        assert!(
            no_event.starts_with("You must specify a trigger (--down, --up, --reconfig, --time")
        );
        assert!(no_event.ends_with("or \n--primary_database_resumed_operation)\n"));
        let cases = [
            (
                "--set --fini -p /bin/true",
                "You must specify a --jobid value",
            ),
            ("--get --time", "You must specify a --jobid value"),
            ("--set --node --down", "You must specify a --program value"),
            (
                "--set --down -p true",
                "The --program value must start with \"/\"",
            ),
            (
                "--set --down -p /nosuch",
                "Invalid --program value, file not found",
            ),
            (
                "--set --down -p /tmp",
                "Invalid --program value, not regular file",
            ),
            (
                "--clear --id=x",
                "You must specify a --id, --jobid, or --user to clear",
            ),
            ("--set --jobid=x --fini -p /bin/true", "Invalid jobid x"),
            ("--set --jobid=-1 --fini -p /bin/true", "Invalid jobid -1"),
            ("--get --user=nosuch", "Invalid user nosuch"),
            (
                "--set --down -p /bin/true --flags=NOSUCH",
                "Invalid flags NOSUCH",
            ),
            (
                "--set --down -p /bin/true --offset=-40000",
                "The --offset parameter must be between +/-32000",
            ),
        ];
        for (line, text) in cases {
            assert_eq!(refused(line), text, "{line}");
        }
        let no_event = refused("--set --front_end -p /bin/true");
        assert!(no_event.starts_with("You must specify a trigger"));
    }

    #[test]
    fn every_event_has_an_option() {
        let (_, options) = parse("--set --front_end --down -p /bin/true").unwrap();
        let both = TriggerEvents::FRONT_END.with(TriggerEvents::DOWN);
        assert_eq!(options.events, both);
        let words = TriggerEvents::WORDS.iter();
        for (event, word) in words.filter(|(event, _)| *event != TriggerEvents::FRONT_END) {
            let (mode, options) = parse(&format!("--set --{word} --jobid=7 -p /bin/true")).unwrap();
            assert_eq!((mode, options.events), (TriggerMode::Set, *event));
        }
        let (_, options) = parse("--set -ntux -u -o x --flags=perm,x -p /bin/true").unwrap();
        assert_eq!(options.nodes.as_deref(), Some("tux"));
        assert_eq!((options.offset_s, options.permanent), (0, true));
        assert_eq!(
            parse("--set -f -j 9x -p /bin/true").unwrap().1.job,
            Some(JobId(9))
        );
    }

    /// Output of Slurm 22.05.
    #[test]
    fn a_listing_is_slurms() {
        let trigger = |id, events, nodes: &str| Trigger {
            id,
            events,
            nodes: nodes.to_owned(),
            program: "/p/prog".to_owned(),
            ..Trigger::default()
        };
        let of_front_end = TriggerEvents::FRONT_END.with(TriggerEvents::DOWN);
        let of_nothing = [
            trigger(1, TriggerEvents::BURST_BUFFER, ""),
            trigger(2, of_front_end, ""),
        ];
        let options = parse("--get --front_end").unwrap().1;
        assert_eq!(
            table(&options, &of_nothing, |_| "root".to_owned()),
            "\
TRIG_ID RES_TYPE   RES_ID TYPE                                OFFSET USER     FLAGS PROGRAM
      1 other      (null) burst_buffer                             0 root           /p/prog
      2 front_end  (null) down                                     0 root           /p/prog
"
        );
        let all = [
            trigger(3, TriggerEvents::UP, ""),
            trigger(10, TriggerEvents::CONTROLLER_RESUMES, ""),
            Trigger {
                permanent: true,
                ..trigger(22, TriggerEvents::DRAINED.with(TriggerEvents::UP), "n3")
            },
            Trigger {
                offset_s: -5,
                ..trigger(23, TriggerEvents::IDLE, "n[1-3]")
            },
            Trigger {
                offset_s: -60,
                job: Some(JobId(9)),
                ..trigger(26, TriggerEvents::TIME, "")
            },
        ];
        let listed = |line: &str| {
            let options = parse(line).unwrap().1;
            table(&options, &all, |_| "root".to_owned())
        };
        assert_eq!(
            listed("--get"),
            "\
TRIG_ID RES_TYPE   RES_ID TYPE                                OFFSET USER     FLAGS PROGRAM
      3 node            * up                                       0 root           /p/prog
     10 slurmctld       * primary_slurmctld_resumed_operation      0 root           /p/prog
     22 node           n3 unknown                                  0 root     PERM  /p/prog
     23 node       n[1-3] idle                                    -5 root           /p/prog
     26 job             9 time                                   -60 root           /p/prog
"
        );
        let ids = |line: &str| -> Vec<u32> {
            let text = listed(&format!("--get --noheader {line}"));
            let words = text
                .lines()
                .filter_map(|line| line.split_whitespace().next());
            words.map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(ids("--id=3"), [3]);
        assert_eq!(ids("--jobid=9"), [26]);
        assert_eq!(ids("--node"), [3, 22, 23]);
        assert_eq!(ids("--up"), [3]);
        assert_eq!(ids("--reconfig").len(), 5);
        assert_eq!(ids("--primary_slurmctld_failure"), [0; 0]);
        assert_eq!(ids("--down --jobid=9"), [0; 0]);
        assert_eq!(listed("--get --id=99"), "");
    }
}
