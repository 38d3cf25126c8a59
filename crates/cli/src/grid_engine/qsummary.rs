//! qsummary: how many jobs and slots users, queues or projects have in each state. Grid Engine 8.1.9 has no such command; its
//! columns and options are Muster's own.

use super::arguments::Parsed;
use super::qstat::lines;
use super::{fail, fits, run_command, selection, site, unreachable};
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_conf::grid_engine::Mapping;
use muster_model::job::{ArrayRole, Job};
use muster_proto::client::JobFilter;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

/// qsummary.
pub(crate) static SPEC: Spec = Spec {
    name: "qsummary",
    about: "Counts jobs and slots of users, queues or projects.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Tasks of arrays count one by one. A job that waits for one of several queues counts for the first.\n",
};

static OPTIONS: &[Opt] = &[
    opt(
        "g",
        "u|q|p",
        "a line for each user (default), queue or project",
    ),
    opt("q", "queues", "only jobs of these queues"),
    opt("u", "users", "only jobs of these users; all without it"),
    flag("xml", "as XML"),
    flag("help", "print this help"),
];

/// Runs qsummary.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, false, run)
}

/// The counts of a user, queue or project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    running: u64,
    /// Slots of those that run.
    slots: u64,
    pending: u64,
    /// Slots that pending jobs request.
    slots_pending: u64,
    held: u64,
    suspended: u64,
    in_error: u64,
}

impl Counts {
    const COLUMNS: [&'static str; 7] = [
        "running",
        "slots",
        "pending",
        "slots_pending",
        "held",
        "suspended",
        "error",
    ];

    fn values(&self) -> [u64; 7] {
        [
            self.running,
            self.slots,
            self.pending,
            self.slots_pending,
            self.held,
            self.suspended,
            self.in_error,
        ]
    }

    fn add(&mut self, job: &Job) {
        let tasks = match &job.array {
            ArrayRole::Pending { indices } => u64::try_from(indices.iter().count()).unwrap_or(0),
            ArrayRole::None | ArrayRole::Task { .. } => 1,
        };
        let state = lines::state(job);
        if lines::is_pending(job) {
            self.slots_pending += tasks.saturating_mul(lines::slots(job));
            match () {
                () if lines::is_in_error(job) => self.in_error += tasks,
                () if state.starts_with('h') => self.held += tasks,
                () => self.pending += tasks,
            }
            return;
        }
        self.slots += lines::slots(job);
        match state.contains(['s', 'S', 'T']) {
            true => self.suspended += tasks,
            false => self.running += tasks,
        }
    }

    fn sum(&mut self, other: &Counts) {
        self.running += other.running;
        self.slots += other.slots;
        self.pending += other.pending;
        self.slots_pending += other.slots_pending;
        self.held += other.held;
        self.suspended += other.suspended;
        self.in_error += other.in_error;
    }
}

/// The key of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    User,
    Queue,
    Project,
}

impl Group {
    fn read(text: &str) -> Option<Group> {
        match text {
            "u" => Some(Group::User),
            "q" => Some(Group::Queue),
            "p" => Some(Group::Project),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Group::User => "user",
            Group::Queue => "queue",
            Group::Project => "project",
        }
    }

    fn key_of_job(self, job: &Job, queue: String, mapping: &Mapping) -> String {
        match self {
            Group::User => job.spec.owner.user.clone(),
            Group::Queue => queue,
            Group::Project => {
                let account = job.spec.account_name();
                let known = mapping.projects.iter().find(|(_, own)| own == account);
                known.map_or(account, |(project, _)| project).to_owned()
            }
        }
    }
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let word = parsed.last("g").unwrap_or("u");
    let group = Group::read(word).ok_or_else(|| {
        fail(
            &format!("qsummary: invalid option argument \"-g {word}\""),
            1,
        )
    })?;
    let uids = selection::users(parsed.all("u"))
        .map_err(|name| fail(&format!("error: unknown user \"{name}\""), 1))?
        .filter(|uids| !uids.is_empty());
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    let filter = JobFilter {
        uids: uids.unwrap_or_default(),
        active: true,
        ..JobFilter::default()
    };
    let listed = query::jobs(&mut client, &mut ctx, filter).map_err(|e| unreachable(&e))?;
    let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
    let jobs = listed
        .jobs
        .iter()
        .filter(|job| !job.state.is_ended() || job.completing);
    for job in jobs {
        let queue = site::queue_of(&mapping, &ctx.partitions, &job.partition);
        let is_wanted = |list: &str| list.split(',').any(|pattern| fits(pattern, &queue));
        if parsed.last("q").is_none_or(is_wanted) {
            let key = group.key_of_job(job, queue, &mapping);
            groups.entry(key).or_default().add(job);
        }
    }
    crate::listing::print(&match parsed.has("xml") {
        true => xml(group, &groups),
        false => table(group, &groups),
    });
    Ok(ExitCode::SUCCESS)
}

fn table(group: Group, groups: &BTreeMap<String, Counts>) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut text = format!("{:<20}", group.name());
    for column in Counts::COLUMNS {
        let _ = write!(text, " {column:>13}");
    }
    let width = text.len();
    let _ = writeln!(text, "\n{}", "-".repeat(width));
    let mut total = Counts::default();
    let mut line = |name: &str, counts: &Counts| {
        let _ = write!(text, "{name:<20}");
        for value in counts.values() {
            let _ = write!(text, " {value:>13}");
        }
        text.push('\n');
    };
    for (name, counts) in groups {
        total.sum(counts);
        line(name, counts);
    }
    line("total", &total);
    text
}

fn xml(group: Group, groups: &BTreeMap<String, Counts>) -> String {
    use super::qstat::xml::escaped;
    let mut text = String::from("<?xml version='1.0'?>\n<qsummary>\n");
    for (name, counts) in groups {
        let _ = writeln!(text, "  <{} name=\"{}\">", group.name(), escaped(name));
        for (column, value) in Counts::COLUMNS.iter().zip(counts.values()) {
            let _ = writeln!(text, "    <{column}>{value}</{column}>");
        }
        let _ = writeln!(text, "  </{}>", group.name());
    }
    text + "</qsummary>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_and_their_sum() {
        let one = Counts {
            running: 2,
            slots: 8,
            ..Counts::default()
        };
        let two = Counts {
            pending: 3,
            slots_pending: 6,
            ..Counts::default()
        };
        let groups = BTreeMap::from([("ada".to_owned(), one), ("bob".to_owned(), two)]);
        let text = table(Group::User, &groups);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(words[2], ["ada", "2", "8", "0", "0", "0", "0", "0"]);
        assert_eq!(words[4], ["total", "2", "8", "3", "6", "0", "0", "0"]);
        assert_eq!(table(Group::Queue, &BTreeMap::new()), "");
        assert!(
            xml(Group::Project, &groups)
                .contains("  <project name=\"bob\">\n    <running>0</running>\n")
        );
    }
}
