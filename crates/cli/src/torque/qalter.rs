//! qalter: changes jobs. What the controller cannot change is refused by name.

use super::arguments::TorqueLine;
use super::change;
use super::qhold;
use super::request::TorqueRequest;
use super::{HELP, fail, jobs, run_command};
use crate::connect::Client;
use crate::options::{HelpForm, Opt, Spec, opt};
use crate::say;
use crate::zone::{self, LocalZone};
use muster_conf::options::torque::{AmountUnits, ResourceReader};
use muster_conf::options::values::{self, time};
use muster_model::command::{JobTarget, JobUpdate, UserCommand};
use muster_model::job::{Job, JobState};
use muster_model::time::TimeLimit;
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// qalter.
pub(crate) static SPEC: Spec = Spec {
    name: "torque-qalter",
    about: "Changes jobs, with the options of Torque's qsub.",
    operands: "JOB...",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "",
};

const LATER: &str = "it cannot be changed after submission; delete the job and submit it anew";

static OPTIONS: &[Opt] = &[
    opt("a", "date_time", "do not start before this time"),
    opt("A", "account", "account of the job"),
    opt("c", "n", "when to checkpoint").refused("jobs are not checkpointed"),
    opt("e", "path", "file for standard error").partly("while the job waits"),
    opt("h", "u|o|s|n", "hold; n releases"),
    opt("j", "oe|eo|n", "standard error and output go into one file").refused(LATER),
    opt("k", "o|e|oe|n", "keep output on the node").refused(LATER),
    opt("l", "resources", "request other resources")
        .partly("walltime; what else is asked for stays"),
    opt("m", "a|b|e|n", "send mail").refused("use scontrol update job MailType="),
    opt("M", "addresses", "who gets the mail").refused("use scontrol update job MailUser="),
    opt("N", "name", "name of the job"),
    opt("o", "path", "file for standard output")
        .partly("while the job waits; of others the comment alone says it, as with Slurm's"),
    opt("p", "priority", "as sbatch --nice"),
    opt("q", "queue", "partition of the job"),
    opt("r", "y|n", "whether the job may run again"),
    opt("S", "path", "shell that runs the script").refused(LATER),
    opt("t", "tasks", "tasks of the arrays: 1-3,7"),
    opt("u", "user", "another user").refused(LATER),
    opt("v", "variables", "variables of the job").refused(LATER),
    opt("W", "attributes", "depend=").partly("depend alone"),
    HELP[0],
    HELP[1],
];

/// Runs qalter.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, run)
}

fn run(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let wrong = |why: String| fail("qalter", &why, 2);
    let mut request = TorqueRequest::default();
    for given in &parsed.options {
        if !["h", "t"].contains(&given.name) {
            request.take(given, AmountUnits::Torque).map_err(wrong)?;
        }
    }
    let hold = parsed.last("h").map(qhold::kinds).transpose();
    let hold = hold.map_err(wrong)?;
    let update = common(&request).map_err(wrong)?;
    if parsed.options.iter().all(|given| given.name == "t") {
        return Err(wrong("nothing is to be changed".to_owned()));
    }
    let named = jobs::named("qalter", &parsed.operands, parsed.last("t"))?;
    let mut client = change::connect("qalter")?;
    let mut status = ExitCode::SUCCESS;
    for (word, target) in named {
        let mut update = update.clone();
        if request.stdout.is_some() || request.stderr.is_some() {
            let job = record(&mut client, &word, &target)?;
            files(&mut update, &request, &job, &word);
        }
        let mut commands = Vec::new();
        if update != JobUpdate::default() {
            commands.push(UserCommand::UpdateJob {
                target: target.clone(),
                update: Box::new(update),
            });
        }
        commands.extend(hold.map(|(is_any, user)| match is_any {
            true => UserCommand::Hold {
                target: target.clone(),
                user,
            },
            false => UserCommand::Release { target },
        }));
        for command in commands {
            if let Err(refused) = change::send(&mut client, command) {
                change::complain("qalter", "Error", &word, &refused);
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

/// Changes that are the same for all jobs.
fn common(request: &TorqueRequest) -> Result<JobUpdate, String> {
    let mut update = JobUpdate {
        name: request.name.clone(),
        account: request.account.clone().or(request.group.clone()),
        requeue: request.rerun,
        partitions: request.queue.clone().map(|queue| vec![queue]),
        ..JobUpdate::default()
    };
    if let Some(nice) = request.nice {
        let nice = i32::try_from(nice).map_err(|_| format!("-p {nice}: it is too large"))?;
        update.nice = Some(nice);
    }
    if let Some(text) = &request.begin {
        let at = time::parse(text, zone::now(), &LocalZone::default());
        update.begin = Some(at.ok_or_else(|| format!("-a {text}: it is no time"))?);
    }
    if let Some(text) = &request.depend {
        let found = values::dependency(text);
        let found = found.map_err(|refusal| format!("-W depend={text}: {}", refusal.detail))?;
        update.dependency = Some(found);
    }
    for option in request.resources.translated(ResourceReader::Qsub)?.options {
        let value = option.value.as_deref();
        let minutes = value.and_then(|value| value.parse().ok());
        match (option.long, minutes) {
            ("time", Some(minutes)) => update.time_limit = Some(TimeLimit::Minutes(minutes)),
            _ => {
                return Err(
                    "-l: walltime alone can be changed; delete the job and submit it anew"
                        .to_owned(),
                );
            }
        }
    }
    let others = request.umask.is_some() || request.block || request.exclusive;
    match others {
        true => Err(format!("-W: depend alone can be changed: {LATER}")),
        false => Ok(update),
    }
}

/// The job as the controller has it.
fn record(client: &mut Client, word: &str, target: &JobTarget) -> Result<Job, ExitCode> {
    let filter = JobFilter {
        ids: vec![target.job],
        ..JobFilter::default()
    };
    let found = client.query_jobs(filter);
    let found = found.map_err(|e| super::unreachable("qalter", &e))?;
    let first = found.into_iter().next();
    first.ok_or_else(|| fail("qalter", &format!("Job id {word} not valid!"), 1))
}

/// Files of a job that waits. The comment says where standard output is to go, since sites have programs that move it there.
fn files(update: &mut JobUpdate, request: &TorqueRequest, job: &Job, word: &str) {
    let waits = job.state == JobState::Pending;
    if let Some(path) = &request.stdout {
        let before = job.spec.comment.iter().flat_map(|text| text.split(','));
        let kept = before.filter(|part| !part.starts_with("stdout=") && !part.is_empty());
        let own = format!("stdout={path}");
        let all: Vec<&str> = kept.chain([own.as_str()]).collect();
        update.comment = Some(all.join(","));
    }
    if waits {
        let mut stdio = job.spec.stdio.clone();
        if request.stdout.is_some() {
            stdio.stdout.clone_from(&request.stdout);
        }
        if request.stderr.is_some() {
            stdio.stderr.clone_from(&request.stderr);
        }
        update.stdio = Some(stdio);
    } else {
        say::stderr(&format!(
            "qalter: warning: job {word} has begun: its output stays where it is\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torque::arguments::{WordPlaces, parse};
    use crate::torque::qsub;

    fn of(text: &str) -> Result<JobUpdate, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut request = TorqueRequest::default();
        for given in &parse(&SPEC, &words, WordPlaces::Mixed)?.options {
            request.take(given, AmountUnits::Torque)?;
        }
        common(&request)
    }

    #[test]
    fn options_change_fields() {
        let update = of("-N new -r n -p 5 -l walltime=2:00:00 -A acct -q long 7").unwrap();
        assert_eq!(update.name.as_deref(), Some("new"));
        assert_eq!((update.requeue, update.nice), (Some(false), Some(5)));
        assert_eq!(update.time_limit, Some(TimeLimit::Minutes(120)));
        assert_eq!(update.account.as_deref(), Some("acct"));
        assert_eq!(update.partitions, Some(vec!["long".to_owned()]));
        assert!(of("-W depend=afterok:3").unwrap().dependency.is_some());
        for (text, why) in [
            ("-l nodes=2", "-l: walltime alone can be changed"),
            ("-a soon", "-a soon: it is no time"),
            ("-W umask=022", "-W: depend alone can be changed"),
            ("-j oe", "-j is not supported"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.starts_with(why), "{text}: {said}");
        }
    }

    /// Each option of qsub that a job that waits could have is one of qalter, be it refused.
    #[test]
    fn options_of_qsub_are_known() {
        let only_there = "b C d D E f F I J K L n P pe sbatchline T V w wd x X z version";
        for option in qsub::SPEC.options {
            let known = SPEC.options.iter().any(|own| own.long == option.long);
            let other = only_there.split(' ').any(|own| own == option.long);
            assert!(known != other, "-{}", option.long);
        }
    }

    #[test]
    fn the_comment_says_where_output_goes() {
        let request = TorqueRequest {
            stdout: Some("/new".to_owned()),
            ..TorqueRequest::default()
        };
        let mut job = crate::listing::fixture::job(7, "x");
        let mut spec = (*job.spec).clone();
        spec.comment = Some("own,stdout=/old".to_owned());
        job.spec = spec.into();
        job.state = JobState::Pending;
        let mut update = JobUpdate::default();
        files(&mut update, &request, &job, "7");
        assert_eq!(update.comment.as_deref(), Some("own,stdout=/new"));
        assert_eq!(update.stdio.unwrap().stdout.as_deref(), Some("/new"));
    }
}
