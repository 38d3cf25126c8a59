//! `muster why`: what a job waits for, who is ahead of it, when it is expected to start and what would start it sooner.
//! The controller works it out (`muster_sched::explain`); here it is put into lines.

use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::{Failure, failed_call, print};
use crate::options::{HelpForm, Spec, flag};
use muster_model::explain::{ExpectedStart, Explanation, JobAhead, TasksStart};
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::time::Timestamp;
use muster_proto::client::{Query, Response};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// muster why.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-why",
    about: "Tells what a job waits for, when it is expected to start, and what would start it sooner.",
    operands: "JOBID",
    form: HelpForm::Options,
    options: &[
        flag("help", "print this help"),
        flag("json", "as JSON; times in seconds since 1970"),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
Times come from playing the scheduler's own work through on a copy of the cluster: jobs run as long as is predicted from \
their owners' earlier jobs, or to their time limits where run times are not predicted, and nobody submits anything. Each \
change that would start the job sooner was tried in the same way. The answer comes within two seconds: what could not be \
worked out by then is named at its end, and starts that the simulation has not come to are estimates. 'squeue --start' and 'scontrol show job' show the same \
times, 'sbatch --test-only' tells them before submitting.",
};

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let has = |name: &str| parsed.options.iter().any(|(option, _)| *option == name);
    if has("help") || has("usage") {
        print(&if has("help") {
            SPEC.help()
        } else {
            SPEC.usage()
        });
        return Ok(());
    }
    let [word] = parsed.operands.as_slice() else {
        return Err(Failure::new(format!(
            "muster why: one job number is needed\n{}",
            SPEC.usage().trim_end()
        )));
    };
    // A task of an array that waits is in its array's record.
    let number = word.split('_').next().unwrap_or(word);
    let id = number
        .parse()
        .map(JobId)
        .map_err(|_| Failure::new(format!("muster why: '{word}' is not a job number")))?;
    let failed = failed_call("muster why");
    let mut client = Client::connect().map_err(&failed)?;
    let ctx = Ctx::new(&client.endpoint.cluster);
    let explanation = ask(&mut client, id).map_err(|error| not_explained(word, error))?;
    if has("json") {
        print(&format!("{:#}\n", document(&explanation)));
    } else {
        print(&text(&explanation, &ctx));
    }
    Ok(())
}

/// Why there is no answer about a job.
fn not_explained(word: &str, error: ConnectError) -> Failure {
    match error {
        ConnectError::Refused(refusal) if refusal.code == RefusalCode::InvalidJobId => {
            Failure::new(format!(
                "muster why: there is no job {word} in the queue's memory; 'sacct -j {word}' may have its record"
            ))
        }
        other => failed_call("muster why")(other),
    }
}

/// Asks the controller why a job waits, and what would start it sooner.
pub(crate) fn ask(client: &mut Client, id: JobId) -> Result<Box<Explanation>, ConnectError> {
    answered(client, id, false)
}

/// Asks the controller why a job waits.
pub(crate) fn ask_briefly(
    client: &mut Client,
    id: JobId,
) -> Result<Box<Explanation>, ConnectError> {
    answered(client, id, true)
}

fn answered(
    client: &mut Client,
    job: JobId,
    is_brief: bool,
) -> Result<Box<Explanation>, ConnectError> {
    match client.query(Query::Why { job, is_brief })? {
        Response::Why(explanation) => Ok(explanation),
        other => Err(unexpected(&other)),
    }
}

/// Reasons for which a job waits, in lines.
pub(crate) fn text_of(client: &mut Client, id: JobId) -> Result<String, ConnectError> {
    let ctx = Ctx::new(&client.endpoint.cluster);
    Ok(text(&*ask(client, id)?, &ctx))
}

/// A start that is further off waits for jobs without a limit, which are taken to run for a year.
const ENDLESS_FROM_S: u64 = 300 * 86_400;

fn text(explanation: &Explanation, ctx: &Ctx) -> String {
    let mut out = String::new();
    if !explanation.waits {
        let _ = writeln!(out, "Job {} does not wait in the queue.", explanation.job);
        for line in &explanation.waits_for {
            let _ = writeln!(out, "  {line}");
        }
        return out;
    }
    let _ = writeln!(
        out,
        "Job {} waits: {}",
        explanation.job,
        explanation.reason.name()
    );
    for line in &explanation.waits_for {
        let _ = writeln!(out, "  {line}");
    }
    for moment in &explanation.times {
        let _ = write!(out, "  {}: ", moment.what);
        ctx.time(&mut out, moment.at);
        let _ = writeln!(
            out,
            " (in {})",
            span(moment.at.since_ms(explanation.now) / 1000)
        );
    }
    write_start(&mut out, explanation, ctx);
    write_by_tasks(&mut out, explanation, ctx);
    write_jobs_ahead(&mut out, explanation, ctx);
    write_sooner(&mut out, explanation, ctx);
    if !explanation.not_worked_out.is_empty() {
        out.push_str("Not worked out in the time for an answer:\n");
        for line in &explanation.not_worked_out {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

fn write_start(out: &mut String, explanation: &Explanation, ctx: &Ctx) {
    let Some(start) = &explanation.start else {
        let is_known = explanation.not_worked_out.is_empty();
        out.push_str(match is_known {
            true => "Expected start: none; nothing that is foreseen starts it\n",
            false => "Expected start: not worked out\n",
        });
        return;
    };
    let _ = writeln!(out, "Expected start: {}", when(start, explanation.now, ctx));
    let assumed = match (start.estimate, explanation.predicted) {
        (true, _) => "an estimate: the work ahead of it, divided among all CPUs",
        (_, true) => "if jobs run as long as predicted, and no job is submitted that comes first",
        (_, false) => "if jobs run to their time limits, and no job is submitted that comes first",
    };
    let _ = writeln!(out, "  {assumed}");
    if start.at.since_ms(explanation.now) / 1000 > ENDLESS_FROM_S {
        out.push_str("  (jobs without a time limit are taken to end after a year)\n");
    }
}

/// Starts with single numbers of a range of tasks.
fn write_by_tasks(out: &mut String, explanation: &Explanation, ctx: &Ctx) {
    if explanation.by_tasks.is_empty() {
        return;
    }
    let range = &explanation.task_range;
    let _ = writeln!(
        out,
        "It asks for {range} tasks, waits for the least number, and takes the greatest that fits then. With one number alone:"
    );
    for TasksStart { tasks, start } in &explanation.by_tasks {
        let s = if *tasks == 1 { "" } else { "s" };
        let start = start.as_ref();
        let when = start.map_or("nothing that is foreseen makes room".to_owned(), |start| {
            when(start, explanation.now, ctx)
        });
        let _ = writeln!(out, "  {tasks} task{s}: {when}");
    }
}

/// The jobs that come before it.
fn write_jobs_ahead(out: &mut String, explanation: &Explanation, ctx: &Ctx) {
    if explanation.ahead.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "Ahead of it on those nodes ({}):",
        explanation.ahead_count
    );
    for ahead in &explanation.ahead {
        let _ = writeln!(out, "  {}", line_of(ahead, ctx));
    }
    let more = explanation.ahead_count as usize
        - explanation
            .ahead
            .len()
            .min(explanation.ahead_count as usize);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more");
    }
}

/// Changes by which it would start sooner.
fn write_sooner(out: &mut String, explanation: &Explanation, ctx: &Ctx) {
    if explanation.sooner.is_empty() {
        if explanation.tried > 0 {
            let _ = writeln!(
                out,
                "None of the {} changes that were tried would start it sooner.",
                explanation.tried
            );
        }
        return;
    }
    out.push_str("It would start sooner:\n");
    for sooner in &explanation.sooner {
        let when = when(&sooner.start, explanation.now, ctx);
        let _ = writeln!(out, "  {}: {when}", sooner.change);
        if sooner.words != sooner.change {
            let _ = writeln!(out, "      {}", sooner.words);
        }
    }
}

/// A time, how far it is off, and where.
fn when(start: &ExpectedStart, now: Timestamp, ctx: &Ctx) -> String {
    let mut out = String::new();
    let off_s = start.at.since_ms(now) / 1000;
    if off_s == 0 {
        out.push_str("now");
    } else {
        ctx.time(&mut out, start.at);
        let _ = write!(out, " (in {})", span(off_s));
    }
    if !start.nodes.is_empty() {
        let _ = write!(out, " on {}", start.nodes);
    }
    let _ = write!(out, " in partition {}", start.partition);
    if let Some(tasks) = start.tasks {
        let s = if tasks == 1 { "" } else { "s" };
        let _ = write!(out, ", with {tasks} task{s}");
    }
    out
}

fn span(s: u64) -> String {
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, _) => format!("{m} min"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

fn line_of(ahead: &JobAhead, ctx: &Ctx) -> String {
    let mut out = format!(
        "{} ({}, {}): {} CPU{}, ",
        ahead.job,
        ahead.user,
        ahead.name,
        ahead.cpus,
        if ahead.cpus == 1 { "" } else { "s" }
    );
    match (ahead.runs, ahead.until) {
        (true, Some(at)) => {
            let _ = write!(out, "runs on {} until ", ahead.nodes);
            ctx.time(&mut out, at);
            out.push_str(" at the latest");
        }
        (true, None) => {
            let _ = write!(out, "runs on {} without a time limit", ahead.nodes);
        }
        (false, Some(at)) => {
            out.push_str("waits too, starts first, at ");
            ctx.time(&mut out, at);
        }
        (false, None) => out.push_str("waits too, starts first"),
    }
    out
}

/// The explanation as a document for programs.
pub(crate) fn document(explanation: &Explanation) -> Value {
    let start = |start: &ExpectedStart| {
        json!({
            "time": start.at.unix_s(),
            "nodes": start.nodes,
            "cpus": start.cpus,
            "partition": start.partition,
            "estimate": start.estimate,
            "tasks": start.tasks,
        })
    };
    let ahead = |a: &JobAhead| {
        json!({
            "job_id": a.job.0,
            "user": a.user,
            "name": a.name,
            "partition": a.partition,
            "cpus": a.cpus,
            "nodes": a.nodes,
            "runs": a.runs,
            "until": a.until.map(|at| at.unix_s()),
        })
    };
    let sooner: Vec<Value> = explanation
        .sooner
        .iter()
        .map(|s| json!({"change": s.change, "words": s.words, "start": start(&s.start)}))
        .collect();
    json!({
        "job_id": explanation.job.0,
        "waits": explanation.waits,
        "reason": explanation.reason.name(),
        "waits_for": explanation.waits_for,
        "times": explanation.times.iter().map(|m| json!({"what": m.what, "at": m.at.unix_s()})).collect::<Vec<Value>>(),
        "ahead": explanation.ahead.iter().map(ahead).collect::<Vec<Value>>(),
        "ahead_count": explanation.ahead_count,
        "expected_start": explanation.start.as_ref().map(start),
        "assumption": if explanation.predicted { "predictions" } else { "time_limits" },
        "sooner": sooner,
        "tried": explanation.tried,
        "task_range": explanation.task_range,
        "by_tasks": explanation.by_tasks.iter()
            .map(|own| json!({"tasks": own.tasks, "start": own.start.as_ref().map(start)}))
            .collect::<Vec<Value>>(),
        "not_worked_out": explanation.not_worked_out,
        "now": explanation.now.unix_s(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use muster_model::explain::{EarlierStart, ExpectedTime};
    use muster_model::job::Reason;

    fn explanation() -> Explanation {
        let now = Timestamp::from_unix_s(1_795_470_826);
        let start = |s: u64, nodes: &str| ExpectedStart {
            at: now.plus_s(s),
            nodes: nodes.into(),
            cpus: 2,
            partition: "batch".into(),
            estimate: false,
            tasks: None,
        };
        Explanation {
            job: JobId(17),
            reason: Reason::Resources,
            waits_for: vec!["It is next in partition batch.".into()],
            ahead: vec![
                JobAhead {
                    job: JobId(12),
                    user: "ann".into(),
                    name: "big".into(),
                    partition: "batch".into(),
                    cpus: 1,
                    nodes: "n1".into(),
                    runs: true,
                    until: Some(now.plus_s(5400)),
                },
                JobAhead {
                    job: JobId(16),
                    user: "bob".into(),
                    name: "next".into(),
                    partition: "batch".into(),
                    cpus: 4,
                    until: Some(now.plus_s(60)),
                    ..JobAhead::default()
                },
            ],
            ahead_count: 3,
            start: Some(start(5400, "n[1-2]")),
            predicted: true,
            sooner: vec![EarlierStart {
                change: "--time=10".into(),
                words: "with a limit of 10 instead of 60 minutes".into(),
                start: start(0, "n2"),
            }],
            tried: 5,
            now,
            waits: true,
            times: vec![ExpectedTime {
                what: "Not before".into(),
                at: now.plus_s(3600),
            }],
            ..Explanation::default()
        }
    }

    #[test]
    fn all_of_it() {
        let ctx = Ctx::bare("cluster", TimeZone::UTC);
        assert_eq!(
            text(&explanation(), &ctx),
            "\
Job 17 waits: Resources
  It is next in partition batch.
  Not before: 2026-11-23T22:53:46 (in 1 h 0 min)
Expected start: 2026-11-23T23:23:46 (in 1 h 30 min) on n[1-2] in partition batch
  if jobs run as long as predicted, and no job is submitted that comes first
Ahead of it on those nodes (3):
  12 (ann, big): 1 CPU, runs on n1 until 2026-11-23T23:23:46 at the latest
  16 (bob, next): 4 CPUs, waits too, starts first, at 2026-11-23T21:54:46
  and 1 more
It would start sooner:
  --time=10: now on n2 in partition batch
      with a limit of 10 instead of 60 minutes
"
        );
    }

    #[test]
    fn numbers_of_a_range_have_starts_of_their_own() {
        let ctx = Ctx::bare("cluster", TimeZone::UTC);
        let mut explanation = explanation();
        explanation.task_range = "1,4-8".into();
        let start = explanation.start.clone().unwrap();
        for (tasks, start) in [(1, Some(start)), (8, None)] {
            explanation.by_tasks.push(TasksStart { tasks, start });
        }
        explanation.start.as_mut().unwrap().tasks = Some(4);
        let text = text(&explanation, &ctx);
        assert!(
            text.contains(
                "\
Expected start: 2026-11-23T23:23:46 (in 1 h 30 min) on n[1-2] in partition batch, with 4 tasks
  if jobs run as long as predicted, and no job is submitted that comes first
It asks for 1,4-8 tasks, waits for the least number, and takes the greatest that fits then. With one number alone:
  1 task: 2026-11-23T23:23:46 (in 1 h 30 min) on n[1-2] in partition batch
  8 tasks: nothing that is foreseen makes room
Ahead of it on those nodes (3):
"
            ),
            "{text}"
        );
        let document = document(&explanation);
        assert_eq!(document["by_tasks"][0]["start"]["nodes"], "n[1-2]");
        assert_eq!(document["by_tasks"][1]["start"], Value::Null);
    }

    /// A start that there was no time for was said never to come.
    #[test]
    fn parts_without_time_are_named() {
        let ctx = Ctx::bare("cluster", TimeZone::UTC);
        let explanation = Explanation {
            ahead: vec![],
            start: None,
            sooner: vec![],
            tried: 0,
            not_worked_out: vec!["Its start and the jobs ahead of it.".into()],
            ..explanation()
        };
        let text = text(&explanation, &ctx);
        let end = "\
Expected start: not worked out
Not worked out in the time for an answer:
  Its start and the jobs ahead of it.
";
        assert!(text.ends_with(end), "{text}");
        let document = document(&explanation);
        assert_eq!(
            document["not_worked_out"][0],
            "Its start and the jobs ahead of it."
        );
    }

    #[test]
    fn nothing_helps() {
        let ctx = Ctx::bare("cluster", TimeZone::UTC);
        let explanation = Explanation {
            ahead: vec![],
            start: None,
            sooner: vec![],
            ..explanation()
        };
        let text = text(&explanation, &ctx);
        assert!(
            text.ends_with(
                "Expected start: none; nothing that is foreseen starts it\nNone of the 5 changes that were tried would start it sooner.\n"
            ),
            "{text}"
        );
        let document = document(&explanation);
        assert_eq!(document["expected_start"], Value::Null);
        assert_eq!(document["reason"], "Resources");
    }
}
