//! scancel: ends jobs, or sends them a signal. To end a job that is gone is no failure, and said only with `-v`;
//! a signal or a step that finds nothing is one.

mod selection;

use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError};
use crate::options::{Arg, HelpForm, Opt, Spec, also, flag, opt};
use crate::say::{self, Say};
use crate::submit::line;
use crate::targets::{job_target, step_number};
use muster_conf::options::values;
use muster_model::command::{JobSelection, JobTarget, Reply, SignalScope, UserCommand};
use muster_model::ids::StepNo;
use muster_model::job::JobState;
use muster_model::refusal::RefusalCode;
use std::process::ExitCode;
use std::time::Duration;

/// scancel.
pub(crate) static SPEC: Spec = Spec {
    name: "scancel",
    about: "Ends jobs and steps, or sends them a signal.",
    operands: "[job_id[_array_id][.step_id] ...]",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: VARIABLES,
    notes: "Without a JOB, one of the options that choose jobs must be there. A job that has ended is not an error.\n",
};

static OPTIONS: &[Opt] = &[
    opt("account", "NAME", "only jobs of this account").short('A'),
    opt(
        "admin-comment",
        "TEXT",
        "leave this comment in the jobs' records",
    )
    .refused("set it with scontrol update JobId=JOB AdminComment=TEXT"),
    opt(
        "autocomplete",
        "WORD",
        "names that complete a word, for shells",
    )
    .refused("completion scripts are not made by the commands themselves"),
    flag("batch", "signal the batch script's shell only").short('b'),
    opt(
        "clusters",
        "NAME",
        "cluster that has the jobs; only this one is known",
    )
    .short('M'),
    also("clusters", "cluster", Arg::Required),
    flag(
        "cron",
        "jobs of crontabs, too (ScronParameters=explicit_scancel)",
    )
    .short('c'),
    flag("ctld", "send the request through the controller").stored("it always goes there"),
    flag(
        "full",
        "signal the batch script, its children and all steps",
    )
    .short('f'),
    flag("help", "print this help"),
    flag("hurry", "do not wait for burst buffers")
        .short('H')
        .stored("there are no burst buffers"),
    flag("interactive", "ask before each job").short('i'),
    flag("me", "only one's own jobs"),
    opt("name", "NAME", "only jobs of this name").short('n'),
    also("name", "jobname", Arg::Required),
    opt("nodelist", "HOSTLIST", "only jobs on these nodes").short('w'),
    opt("partition", "NAME", "only jobs in this partition").short('p'),
    opt("qos", "NAME", "only jobs of this quality of service").short('q'),
    flag("quiet", "print nothing about jobs that are gone").short('Q'),
    opt("reservation", "NAME", "only jobs in this reservation").short('R'),
    opt("sibling", "NAME", "a federation's job on this cluster")
        .refused("this cluster is not in a federation"),
    opt(
        "signal",
        "NAME|NUMBER",
        "send this signal instead of ending the job",
    )
    .short('s'),
    opt("state", "STATE", "only PENDING, RUNNING or SUSPENDED jobs").short('t'),
    flag("usage", "print a short summary"),
    opt("user", "NAME|UID", "only jobs of this user").short('u'),
    flag("verbose", "say what is done").short('v'),
    flag("version", "print the version").short('V'),
    opt("wckey", "KEY", "only jobs with this workload key"),
];

/// Variables that stand for options; those of flags must begin with t, y or 1.
static VARIABLES: &[(&str, &str)] = &[
    ("SCANCEL_ACCOUNT", "account"),
    ("SCANCEL_NAME", "name"),
    ("SCANCEL_PARTITION", "partition"),
    ("SCANCEL_QOS", "qos"),
    ("SCANCEL_STATE", "state"),
    ("SCANCEL_USER", "user"),
    ("SCANCEL_NODELIST", "nodelist"),
    ("SCANCEL_RESERVATION", "reservation"),
    ("SCANCEL_WCKEY", "wckey"),
    ("SCANCEL_BATCH", "batch"),
    ("SCANCEL_FULL", "full"),
    ("SCANCEL_INTERACTIVE", "interactive"),
    ("SCANCEL_VERBOSE", "verbose"),
];

/// The options and targets of scancel.
#[derive(Debug, Default)]
struct CancelRequest {
    filter: JobSelection,
    /// Targets as the user wrote them.
    targets: Vec<CancelTarget>,
    signal: Option<u32>,
    batch: bool,
    full: bool,
    interactive: bool,
    quiet: bool,
    verbose: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CancelTarget {
    text: String,
    job: JobTarget,
    step: Option<StepNo>,
}

/// Runs scancel.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let say = Say::new("scancel");
    let request = match read(&say, args) {
        Ok(request) => request,
        Err(code) => return code,
    };
    let say = Say {
        quiet: request.quiet,
        verbose: request.verbose,
        ..say
    };
    let mut client = match Client::connect_patiently(line::PATIENCE) {
        Ok(client) => client,
        Err(error) => return say.connect_error("Unable to cancel jobs", &error),
    };
    carry_out(&say, &mut client, request)
}

fn read(say: &Say, args: &[String]) -> Result<CancelRequest, ExitCode> {
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        say.failed()
    })?;
    let mut request = CancelRequest::default();
    from_environment(say, &mut request)?;
    for (option, value) in parsed.options {
        apply(say, &mut request, option, value.unwrap_or_default())?;
    }
    for word in &parsed.operands {
        // Ids may be given with commas between them.
        for text in split_ids(word) {
            let target = target(text).ok_or_else(|| {
                say.error(&format!("Invalid job id {text}"));
                say.failed()
            })?;
            request.targets.push(target);
        }
    }
    if request.targets.is_empty() && request.filter == JobSelection::default() {
        say.error("No job identification provided");
        return Err(say.failed());
    }
    if request.batch && request.targets.iter().any(|t| t.step.is_some()) {
        say.error("the --batch option is only valid with whole jobs, not with steps");
        return Err(say.failed());
    }
    Ok(request)
}

fn from_environment(say: &Say, request: &mut CancelRequest) -> Result<(), ExitCode> {
    for (name, option) in VARIABLES {
        let takes_value = OPTIONS
            .iter()
            .any(|o| o.name == *option && o.arg != Arg::None);
        let Ok(value) = std::env::var(name) else {
            continue;
        };
        if takes_value && !value.is_empty() {
            apply(say, request, option, value)?;
        } else if !takes_value && value.starts_with(['t', 'T', 'y', 'Y', '1']) {
            apply(say, request, option, String::new())?;
        }
    }
    Ok(())
}

fn apply(
    say: &Say,
    request: &mut CancelRequest,
    option: &str,
    value: String,
) -> Result<(), ExitCode> {
    let filter = &mut request.filter;
    match option {
        "account" => filter.account = Some(value),
        "batch" => request.batch = true,
        "clusters" => {
            if let Err(failure) = ClusterSelection::choose_one("scancel", &value) {
                say::stderr(&format!("{failure}\n"));
                return Err(say.failed());
            }
        }
        "full" => request.full = true,
        "interactive" => request.interactive = true,
        "cron" => filter.cron = true,
        "me" => filter.uid = Some(nix::unistd::getuid().as_raw()),
        "name" => filter.name = Some(value),
        "nodelist" => {
            filter.nodes = muster_model::hostlist::parse(&value).map_err(|e| {
                say.error(&format!("Invalid --nodelist: {e}"));
                say.failed()
            })?;
        }
        "partition" => filter.partition = Some(value),
        "qos" => filter.qos = Some(value),
        "quiet" => request.quiet = true,
        "reservation" => filter.reservation = Some(value),
        "signal" => {
            request.signal = Some(values::signal(&value).ok_or_else(|| {
                say::stderr(&format!("Unknown job signal: {value}\n"));
                say.failed()
            })?);
        }
        "state" => filter.state = Some(state(&value).ok_or_else(|| {
            say::stderr(&format!(
                "Invalid job state specified: {value}\nValid job states are PENDING, RUNNING, and SUSPENDED\n"
            ));
            say.failed()
        })?),
        "user" => {
            let user = line::user(&value).map(|u| u.uid.as_raw());
            filter.uid = Some(user.or_else(|| value.parse().ok()).ok_or_else(|| {
                say.error(&format!("Invalid user name: {value}"));
                say.failed()
            })?);
        }
        "verbose" => request.verbose += 1,
        "wckey" => filter.wckey = Some(value),
        "help" => {
            say::stdout(&SPEC.help());
            return Err(ExitCode::SUCCESS);
        }
        "usage" => {
            say::stdout(&SPEC.usage());
            return Err(ExitCode::SUCCESS);
        }
        "version" => return Err(say::version()),
        other => {
            say.error(&format!("option --{other} is not implemented"));
            return Err(say.failed());
        }
    }
    Ok(())
}

fn state(text: &str) -> Option<JobState> {
    [JobState::Pending, JobState::Running, JobState::Suspended]
        .into_iter()
        .find(|s| s.name().eq_ignore_ascii_case(text) || s.code().eq_ignore_ascii_case(text))
}

/// Splits at commas and blanks outside brackets.
fn split_ids(word: &str) -> Vec<&str> {
    let mut depth = 0;
    word.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth <= 0 && (c == ',' || c.is_whitespace())
    })
    .filter(|part| !part.is_empty())
    .collect()
}

/// `J`, `J_1`, `J_[1-3]`, `J.0`, `J_1.batch`.
fn target(text: &str) -> Option<CancelTarget> {
    let (id, step) = match text.split_once('.') {
        Some((id, step)) => (id, Some(step_number(step)?)),
        None => (text, None),
    };
    Some(CancelTarget {
        text: text.to_owned(),
        job: job_target(id)?,
        step,
    })
}

/// Jobs that one request names: fewer than the refusals that an answer tells one by one.
const TARGETS_MAX: usize = 5_000;

/// Waits between tries to signal a job that has not started: ten, as in Slurm, but the first are short, since jobs start soon.
const SIGNAL_WAITS: [Duration; 10] = {
    let ms = [50, 100, 200, 400, 800, 1000, 1000, 2000, 2000, 2000];
    let mut waits = [Duration::ZERO; 10];
    let mut at = 0;
    while at < waits.len() {
        waits[at] = Duration::from_millis(ms[at]);
        at += 1;
    }
    waits
};

fn carry_out(say: &Say, client: &mut Client, mut request: CancelRequest) -> ExitCode {
    let mut failed = 0;
    let is_named = !request.targets.is_empty();
    if request.interactive || say.verbose > 0 && !is_named {
        match selection::choose(say, client, &request) {
            Ok(chosen) => {
                (request.targets, failed) = (chosen.targets, u8::from(chosen.has_failed));
            }
            Err(code) => return code,
        }
        if request.targets.is_empty() {
            return ended(say, failed);
        }
    }
    // Steps are named one at a time; whole jobs go in one request.
    let (steps, jobs): (Vec<CancelTarget>, Vec<CancelTarget>) =
        request.targets.drain(..).partition(|t| t.step.is_some());
    for target in &steps {
        announce(say, &request, target);
        let selection = JobSelection {
            targets: vec![target.job.clone()],
            step: target.step,
            ..request.filter.clone()
        };
        failed = failed.max(send(
            say,
            client,
            &request,
            selection,
            std::slice::from_ref(target),
        ));
    }
    if steps.is_empty() || !jobs.is_empty() {
        for target in &jobs {
            announce(say, &request, target);
        }
        // Without targets there is one request, of the filters alone.
        let mut parts: Vec<&[CancelTarget]> = jobs.chunks(TARGETS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        for part in parts {
            let selection = JobSelection {
                targets: part.iter().map(|t| t.job.clone()).collect(),
                ..request.filter.clone()
            };
            failed = failed.max(send(say, client, &request, selection, part));
        }
    }
    ended(say, failed)
}

/// The last byte of Slurm's number of the refusal, which scancel ends with.
const NOT_ALLOWED: u8 = (2002 & 0xff) as u8;

/// Exit status of the command: success, a failure, or a job that the user may not touch.
fn ended(say: &Say, failed: u8) -> ExitCode {
    match failed {
        0 => ExitCode::SUCCESS,
        NOT_ALLOWED => ExitCode::from(NOT_ALLOWED),
        _ => say.failed(),
    }
}

fn announce(say: &Say, request: &CancelRequest, target: &CancelTarget) {
    match (request.signal, target.step) {
        (None, None) => say.verbose(&format!("Terminating job {}", target.text)),
        (None, Some(_)) => say.verbose(&format!("Terminating step {}", target.text)),
        (Some(signal), None) if request.batch => {
            say.verbose(&format!("Signal {signal} to batch job {}", target.text));
        }
        (Some(signal), None) => say.verbose(&format!("Signal {signal} to job {}", target.text)),
        (Some(signal), Some(_)) => say.verbose(&format!("Signal {signal} to step {}", target.text)),
    }
}

/// Sends one request; what the command is to end with.
fn send(
    say: &Say,
    client: &mut Client,
    request: &CancelRequest,
    selection: JobSelection,
    targets: &[CancelTarget],
) -> u8 {
    let selection_step = selection.step;
    let is_step = selection_step.is_some();
    let whole_kill =
        matches!(request.signal, None | Some(9)) && !request.batch && !request.full && !is_step;
    let command = if whole_kill {
        UserCommand::Cancel { selection }
    } else {
        UserCommand::Signal {
            selection,
            signal: request.signal.unwrap_or(9),
            scope: match (request.batch, request.full) {
                (_, true) => SignalScope::Full,
                (true, false) => SignalScope::Batch,
                (false, false) => SignalScope::Steps,
            },
        }
    };
    let mut answer = client.command(command.clone());
    // A job that was submitted just now may be about to start, and then gets it; without targets it is none that was meant.
    for wait in SIGNAL_WAITS {
        let waits = |code: RefusalCode| code == RefusalCode::JobPending && !targets.is_empty();
        let pending = match &answer {
            Ok(Reply::Done { refused, changed }) => {
                *changed == 0 && refused.iter().any(|(_, refusal)| waits(refusal.code))
            }
            Err(ConnectError::Refused(refusal)) => waits(refusal.code),
            _ => false,
        };
        if !pending {
            break;
        }
        say.verbose("Job is in transitional state, retrying");
        std::thread::sleep(wait);
        answer = client.command(command.clone());
    }
    match answer {
        Ok(Reply::Done { refused, .. }) => {
            let mut failed = 0;
            for (id, refusal) in refused {
                let id = match selection_step {
                    Some(step) => format!("{id}.{step}"),
                    None => id,
                };
                let signal = request.signal.is_some();
                failed = failed.max(complain(say, &id, signal, is_step, refusal.code));
            }
            failed
        }
        Err(ConnectError::Refused(refusal)) => {
            let id = targets.first().map_or("", |t| t.text.as_str());
            complain(say, id, request.signal.is_some(), is_step, refusal.code)
        }
        Ok(other) => {
            say.error(&format!("unexpected answer {other:.60?}"));
            1
        }
        Err(error) => {
            say.connect_error("Unable to cancel jobs", &error);
            1
        }
    }
}

/// A job that is gone already is what the user wanted; that is said only with `-v`. One that was to be signalled,
/// and a step, should have been there.
fn complain(say: &Say, id: &str, signal: bool, is_step: bool, code: RefusalCode) -> u8 {
    let gone = match code {
        RefusalCode::InvalidJobId | RefusalCode::AlreadyDone => !signal && !is_step,
        _ => false,
    };
    if gone && (say.verbose == 0 || say.quiet) {
        return 0;
    }
    let what = if is_step {
        "Kill job error on job step id"
    } else {
        "Kill job error on job id"
    };
    say.error(&format!("{what} {id}: {}", code.text()));
    match code {
        RefusalCode::AccessDenied => NOT_ALLOWED,
        _ => u8::from(!gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

    #[test]
    fn ids() {
        let t = target("12_[1-3,5].0").unwrap();
        assert_eq!((t.job.job, t.step), (JobId(12), Some(StepNo(0))));
        assert_eq!(
            t.job.tasks.unwrap().iter().collect::<Vec<_>>(),
            [1, 2, 3, 5]
        );
        assert_eq!(target("7.batch").unwrap().step, Some(StepNo::BATCH));
        assert_eq!(target("7_*").unwrap().job.tasks, None);
        assert_eq!(target("7_4").unwrap().job.tasks.unwrap().len(), 1);
        for bad in [
            "", "foo", "1_", "1.x", "1_[1-3", "0", "+1", "-1", "1.", "1__2",
        ] {
            assert!(target(bad).is_none(), "{bad}");
        }
        assert_eq!(split_ids("1,2_[3,4] 5"), ["1", "2_[3,4]", "5"]);
    }

    fn request(args: &[&str]) -> Result<CancelRequest, ExitCode> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        read(&Say::new("scancel"), &args)
    }

    /// Scripts tell by it that a job is somebody else's.
    #[test]
    fn what_it_ends_with() {
        let say = Say::new("scancel");
        let code = |signal, is_step, code| complain(&say, "7", signal, is_step, code);
        assert_eq!(code(false, false, RefusalCode::AccessDenied), 210);
        assert_eq!(code(false, false, RefusalCode::InvalidJobId), 0);
        assert_eq!(code(true, false, RefusalCode::InvalidJobId), 1);
        assert_eq!(code(false, true, RefusalCode::InvalidJobId), 1);
    }

    #[test]
    fn options_may_follow_ids() {
        let w = request(&["5", "--signal", "USR2"]).unwrap();
        assert_eq!((w.signal, w.targets.len()), (Some(12), 1));
        let w = request(&["-v", "-t", "pd", "-n", "x"]).unwrap();
        assert_eq!(w.filter.state, Some(JobState::Pending));
        assert_eq!(w.filter.name.as_deref(), Some("x"));
        for bad in [
            &[][..],
            &["-t", "CD", "1"],
            &["foo"],
            &["-s", "FOO", "1"],
            &["--nosuch"],
        ] {
            assert!(request(bad).is_err(), "{bad:?}");
        }
    }
}
