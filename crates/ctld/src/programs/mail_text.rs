//! The text of a mail about a job, for the standard input of `MailProg`. Texts that users choose are shown without control characters
//! and cut: none begins a line of its own.

use super::completion::time;
use super::job_mail::{ArrayOutcome, JobMail, MailMoment};
use super::mail_accounting::JobUse;
use super::record::ProgramJob;
use muster_model::job::{ArrayRole, Reason};
use muster_model::time::TimeLimit;
use muster_model::visible_text::{beginning, visible};
use muster_proto::acct::efficiency::{duration, memory};

/// Bytes of a text that a user chooses.
const VALUE_BYTES_MAX: usize = 512;
/// Bytes of a line of output: mail has lines of 998 bytes at most.
const LAST_LINE_BYTES_MAX: usize = 900;
/// Width of the names.
const NAME_WIDTH: usize = 15;

/// Lines of a name and a value.
struct MailLines {
    text: String,
}

impl MailLines {
    fn add(&mut self, name: &str, value: &str) {
        let shown = visible(value);
        let (name, value) = (format!("{name}:"), beginning(&shown, VALUE_BYTES_MAX));
        let dots = if value.len() < shown.len() { "..." } else { "" };
        self.text
            .push_str(&format!("{name:NAME_WIDTH$}{value}{dots}\n"));
    }
}

/// See the module.
pub(super) fn text(job: &ProgramJob, mail: &JobMail, cluster: &str, used: JobUse) -> String {
    let mut lines = MailLines {
        text: String::new(),
    };
    add_job(&mut lines, job, mail, cluster);
    match mail.array {
        Some(array) => add_array(&mut lines, array),
        None => add_state(&mut lines, job, mail),
    }
    add_times(&mut lines, job, mail);
    add_resources(&mut lines, job);
    add_use(&mut lines, used);
    if let Some(last) = &mail.last_lines {
        add_last_lines(&mut lines, job, last);
    }
    lines.text
}

fn add_job(lines: &mut MailLines, job: &ProgramJob, mail: &JobMail, cluster: &str) {
    let id = match job.array {
        ArrayRole::Task { base, index } => format!("{base}_{index} ({})", job.id),
        ArrayRole::None | ArrayRole::Pending { .. } => job.id.to_string(),
    };
    let owner = &job.spec.owner;
    lines.add("Event", &mail.word);
    lines.add("Job", &id);
    lines.add("Name", &job.spec.name);
    lines.add("Cluster", cluster);
    lines.add("Owner", &format!("{} ({})", owner.user, owner.uid));
}

fn add_array(lines: &mut MailLines, array: ArrayOutcome) {
    let ArrayOutcome { tasks, failed } = array;
    lines.add("Array", &format!("{tasks} tasks, {failed} failed"));
}

fn add_state(lines: &mut MailLines, job: &ProgramJob, mail: &JobMail) {
    let state = job.state.name();
    match job.cancelled_by.filter(|_| job.state.is_ended()) {
        Some(uid) => lines.add("State", &format!("{state} by uid {uid}")),
        None => lines.add("State", state),
    }
    if mail.moment == MailMoment::Ended {
        let exit = match (job.exit.code, job.exit.signal) {
            (code, 0) => code.to_string(),
            (code, signal) => format!("{code}, by signal {signal}"),
        };
        lines.add("Exit code", &exit);
    }
    if job.reason != Reason::None {
        let reason = job.reason.name();
        match explained(job.reason) {
            Some(text) => lines.add("Reason", &format!("{reason} ({text})")),
            None => lines.add("Reason", reason),
        }
    }
    if let Some(detail) = &job.detail {
        lines.add("Detail", detail);
    }
}

/// The meaning of reasons for which a job ends or can never run, where the word does not say it.
fn explained(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::NonZeroExitCode => "the script ended with an exit code other than 0",
        Reason::RaisedSignal => "a signal ended the script",
        Reason::TimeLimit => "the job ran until its time limit (--time)",
        Reason::OutOfMemory => "it needed more memory than it had (--mem)",
        Reason::NodeDown => "a node of the job was lost",
        Reason::JobLaunchFailure => "a node could not start the job",
        Reason::DeadLine => "its deadline has passed (--deadline)",
        Reason::InactiveLimit => "the command that held the allocation is gone",
        Reason::SystemFailure => "the system ended it",
        Reason::DependencyNeverSatisfied => {
            "a job that it waits for ended otherwise than asked for; it never starts"
        }
        _ => return None,
    })
}

fn add_times(lines: &mut MailLines, job: &ProgramJob, mail: &JobMail) {
    let mut add = |name, value: String| lines.add(name, &value);
    add("Submitted", time(Some(job.submit_time)));
    let limit = match job.time_limit {
        TimeLimit::Minutes(minutes) => duration(u64::from(minutes) * 60),
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
    };
    let Some(start) = job.start_time else {
        return add("Time limit", limit);
    };
    add("Waited", duration(start.since_ms(job.submit_time) / 1000));
    add("Started", time(Some(start)));
    if mail.moment == MailMoment::Ended {
        add("Ended", time(job.end_time));
    }
    match mail.ran_ms {
        Some(ran_ms) => add(
            "Run time",
            format!("{} of {limit}", duration(ran_ms / 1000)),
        ),
        None => add("Time limit", limit),
    }
}

fn add_resources(lines: &mut MailLines, job: &ProgramJob) {
    lines.add("Partition", &job.partition);
    lines.add("Account", job.spec.account_name());
    lines.add("QOS", job.spec.qos_name());
    let Some(alloc) = &job.alloc else {
        return;
    };
    lines.add("Nodes", &format!("{} ({})", alloc.nodes, alloc.hostlist));
    lines.add("CPUs", &alloc.cpus.to_string());
    if alloc.memory_mib > 0 {
        lines.add("Memory", &memory(alloc.memory_mib.saturating_mul(1024)));
    }
}

fn add_use(lines: &mut MailLines, used: JobUse) {
    match used {
        JobUse::None => {}
        JobUse::Unknown(why) => lines.add("Efficiency", &format!("not known, {why}")),
        JobUse::Known(used) => {
            let cpu = format!(
                "{:.2}% ({} of {} core-walltime)",
                used.cpu_percent(),
                duration(used.used_cpu_s),
                duration(used.had_cpu_s)
            );
            lines.add("CPU use", &cpu);
            let of_memory = format!(
                "{:.2}% ({} of {})",
                used.memory_percent(),
                memory(used.used_kib),
                memory(used.had_kib)
            );
            lines.add("Memory use", &of_memory);
        }
    }
}

/// The last lines of the script's standard error, each indented: none is taken for a line of the mail's own.
fn add_last_lines(lines: &mut MailLines, job: &ProgramJob, last: &str) {
    let stream = match job.spec.stdio.stderr {
        Some(_) => "standard error",
        None => "output",
    };
    lines
        .text
        .push_str(&format!("\nLast lines of the script's {stream}:\n\n"));
    for line in last.lines() {
        let shown = visible(line);
        let line = beginning(&shown, LAST_LINE_BYTES_MAX);
        let dots = if line.len() < shown.len() { "..." } else { "" };
        lines.text.push_str(&format!("    {line}{dots}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::job_mail::JobMails;
    use muster_core::event::Event;
    use muster_core::state::State;
    use muster_model::ids::JobId;
    use muster_model::job::{ExitStatus, Job, JobState};
    use muster_model::mail::MailOptions;
    use muster_model::spec::{JobSpec, Owner};
    use muster_model::time::Timestamp;
    use muster_proto::acct::efficiency::JobEfficiency;
    use std::sync::Arc;

    fn job(name: &str) -> Job {
        let spec = JobSpec {
            name: name.to_owned(),
            owner: Owner {
                uid: 1000,
                user: "ann".to_owned(),
                ..Owner::default()
            },
            mail: MailOptions::of_texts("ALL".to_owned(), String::new()),
            partitions: vec!["main".to_owned()],
            ..JobSpec::default()
        };
        let at = Timestamp::from_unix_s(1000);
        let mut job = Job::single(JobId(7), Arc::new(spec), TimeLimit::Minutes(60), at);
        job.start_time = Some(at.plus_s(5));
        job
    }

    fn failed(name: &str) -> Job {
        let mut job = job(name);
        (job.state, job.reason) = (JobState::Failed, Reason::NonZeroExitCode);
        job.exit = ExitStatus { code: 3, signal: 0 };
        job.end_time = Some(Timestamp::from_unix_s(1075));
        job
    }

    #[test]
    fn last_lines_are_indented_and_harmless() {
        let job = failed("calc");
        let state = State::default();
        let at = Timestamp::from_unix_s(1075);
        let mut mail = JobMails::default()
            .on(&state, &job, &ending(&job), at)
            .remove(0);
        let long = "x".repeat(2000);
        mail.last_lines = Some(format!("a\tb\n.\nTo: eve\r\n\u{1b}[2J\0\n{long}\n"));
        let whole = text(&ProgramJob::of(&state, &job), &mail, "c", JobUse::None);
        let (_, lines) = whole
            .split_once("\nLast lines of the script's output:\n\n")
            .unwrap();
        let cut = "x".repeat(LAST_LINE_BYTES_MAX);
        let expected = format!("    a b\n    .\n    To: eve\n    ?[2J?\n    {cut}...\n");
        assert_eq!(lines, expected);
    }

    fn text_of(job: &Job, event: &Event, used: JobUse) -> String {
        let state = State::default();
        let at = Timestamp::from_unix_s(1075);
        let mails = JobMails::default().on(&state, job, event, at);
        assert_eq!(mails.len(), 1);
        text(&ProgramJob::of(&state, job), &mails[0], "c", used)
    }

    fn ending(job: &Job) -> Event {
        Event::JobEnding {
            id: job.id,
            at: Timestamp::from_unix_s(1075),
            state: job.state,
            reason: job.reason,
            exit: job.exit,
            cancelled_by: None,
            requeue: None,
        }
    }

    /// The text without the lines of times, which depend on where the controller is.
    fn without_times(text: &str) -> String {
        let is_time = |line: &&str| {
            ["Submitted", "Started", "Ended"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        assert_eq!(text.lines().filter(is_time).count(), 3, "{text}");
        let others = text.lines().filter(|line| !is_time(line));
        others.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_mail_of_an_end_sums_the_run_up() {
        let job = failed("calc");
        let used = JobUse::Known(JobEfficiency {
            used_cpu_s: 14,
            had_cpu_s: 280,
            elapsed_s: 70,
            used_kib: 512,
            had_kib: 1024,
        });
        let expected = "\
Event:         Failed
Job:           7
Name:          calc
Cluster:       c
Owner:         ann (1000)
State:         FAILED
Exit code:     3
Reason:        NonZeroExitCode (the script ended with an exit code other than 0)
Waited:        00:00:05
Run time:      00:01:10 of 01:00:00
Partition:     main
Account:       ann
QOS:           normal
CPU use:       5.00% (00:00:14 of 00:04:40 core-walltime)
Memory use:    50.00% (512.00 KB of 1.00 MB)
";
        assert_eq!(without_times(&text_of(&job, &ending(&job), used)), expected);
        let unknown = text_of(&job, &ending(&job), JobUse::Unknown("it is behind"));
        assert!(
            unknown.ends_with("Efficiency:    not known, it is behind\n"),
            "{unknown}"
        );
    }

    #[test]
    fn texts_of_users_begin_no_lines_and_have_an_end() {
        let name = format!("a\nState: COMPLETED\r\n.\n\u{1b}[2J{}", "n".repeat(1 << 20));
        let mut job = failed(&name);
        job.reason_detail = Some("b\nTo: eve\n".repeat(1 << 16));
        let text = text_of(&job, &ending(&job), JobUse::None);
        let names = [
            "Event",
            "Job",
            "Name",
            "Cluster",
            "Owner",
            "State",
            "Exit code",
            "Reason",
            "Detail",
            "Submitted",
            "Waited",
            "Started",
            "Ended",
            "Run time",
            "Partition",
            "Account",
            "QOS",
        ];
        let begun = |(line, name): (&str, &&str)| line.starts_with(&format!("{name}:"));
        assert!(text.lines().zip(&names).all(begun), "{text}");
        assert_eq!(text.lines().count(), names.len(), "{text}");
        assert!(text.len() < 4096, "{}", text.len());
        assert!(!text.contains(['\r', '\u{1b}']), "{text}");
    }
}
