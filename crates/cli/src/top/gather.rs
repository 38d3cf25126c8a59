//! Asks the controller for the lists: one thread follows changes, another asks for the lists after one, and now and
//! then without one. Where the changes cannot be followed, the lists are asked for by the clock alone.

use super::clean;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::job::JobRow;
use crate::listing::node::NodeView;
use crate::listing::{query, text};
use crate::zone;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{Hold, JobState};
use muster_model::private_data::PrivateData;
use muster_proto::changes::{
    ChangeNotice, ChangePosition, ChangedRecord, ChangesAnswer, ChangesQuery,
};
use muster_proto::client::{JobFilter, Query, Response};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Time after a change at which the lists are asked for: others may follow at once.
const PAUSE: Duration = Duration::from_millis(200);
/// By how much the time between two questions is longer than the answer took.
const PAUSE_FACTOR: u32 = 20;
/// Time for which an absent controller is left alone.
const RETRY: Duration = Duration::from_secs(2);
/// Rows that are kept of a list: nobody reads on a terminal what comes after them.
const ROWS_MAX: usize = 20_000;

/// Update of the page.
#[derive(Debug)]
pub(super) enum Update {
    /// The lists as they are.
    Lists(Box<Lists>),
    /// Lines that say what has changed.
    Events(Vec<String>),
    /// Why nothing comes.
    Trouble(String),
}

/// Data of the lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    /// Name of the cluster.
    pub(super) cluster: String,
    /// Jobs that are not over, first those that run.
    pub(super) jobs: Vec<JobLine>,
    /// The nodes.
    pub(super) nodes: Vec<NodeLine>,
    /// Why there are no nodes, if they are private.
    pub(super) nodes_withheld: bool,
    /// Records of jobs, with tasks of arrays counted, that run, and that wait.
    pub(super) running: u64,
    pub(super) pending: u64,
}

/// A line of the queue. Its texts are clean.
#[derive(Clone, Debug, Default)]
pub(super) struct JobLine {
    pub(super) id: JobId,
    /// As squeue names it.
    pub(super) name: String,
    /// The indices of an array that waits.
    pub(super) indices: Option<IndexSet>,
    pub(super) partition: String,
    pub(super) title: String,
    pub(super) user: String,
    pub(super) state: &'static str,
    pub(super) is_pending: bool,
    pub(super) is_held: bool,
    /// Seconds that it has run; it runs on.
    pub(super) ran_s: i64,
    pub(super) runs: bool,
    pub(super) cpus: u64,
    /// Its nodes, or the reason.
    pub(super) place: String,
    /// It is of who looks.
    pub(super) is_own: bool,
}

/// A line of the list of nodes. Its texts are clean.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeLine {
    pub(super) name: String,
    pub(super) state: String,
    /// It does not take jobs, and not because it is full.
    pub(super) is_wrong: bool,
    pub(super) used_cpus: u32,
    pub(super) cpus: u32,
    pub(super) load: String,
    pub(super) free_mib: Option<u64>,
    pub(super) mib: u64,
    pub(super) jobs: usize,
    pub(super) reason: String,
}

/// Begins to ask.
pub(super) fn start(interval: Duration) -> Receiver<Update> {
    let (updates, receiver) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let own = updates.clone();
    std::thread::spawn(move || follow(&own, &wake));
    std::thread::spawn(move || list(&updates, &woken, interval));
    receiver
}

/// Follows what changes, until nobody is there.
fn follow(updates: &Sender<Update>, wake: &Sender<()>) {
    let mut after = None;
    loop {
        match follow_by(&mut after, updates, wake) {
            Ok(()) => return,
            Err(ConnectError::Refused(_)) => return follow_no_more(updates),
            // The thread that asks for the lists reports the error.
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

fn follow_no_more(updates: &Sender<Update>) {
    let line = "The controller does not say what changes; the lists are asked for by the clock.";
    let _ = updates.send(Update::Events(vec![line.to_owned()]));
}

fn follow_by(
    after: &mut Option<ChangePosition>,
    updates: &Sender<Update>,
    wake: &Sender<()>,
) -> Result<(), ConnectError> {
    let mut client = Client::connect()?;
    loop {
        let query = ChangesQuery {
            after: *after,
            wait: true,
        };
        let answer = match client.query(Query::Changes(query))? {
            Response::Changes(answer) => *answer,
            other => return Err(unexpected(&other)),
        };
        *after = Some(answer.last);
        let lines = lines_of(&answer);
        let is_over = wake.send(()).is_err()
            || (!lines.is_empty() && updates.send(Update::Events(lines)).is_err());
        if is_over {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn lines_of(answer: &ChangesAnswer) -> Vec<String> {
    let mut lines: Vec<String> = answer.changes.iter().map(line_of).collect();
    if answer.reset {
        lines.push("Some changes were missed.".to_owned());
    }
    lines
}

fn line_of(change: &ChangeNotice) -> String {
    let local = zone::show(change.time);
    let clock = local.get(11..19).unwrap_or(&local);
    let what = match &change.subject {
        ChangedRecord::Job(job) => {
            let name = match (job.array, job.index) {
                (Some(array), Some(index)) => format!("{array}_{index}"),
                _ => job.id.to_string(),
            };
            format!(
                "job {name} ({}, {}) {}: {}{}",
                job.user,
                job.name,
                job.kind.name(),
                job.state.name(),
                match job.state {
                    JobState::Pending => format!(" ({})", job.reason.name()),
                    _ => String::new(),
                }
            )
        }
        ChangedRecord::Node(node) if node.state.is_empty() => format!("node {} is gone", node.name),
        ChangedRecord::Node(node) => match node.reason.as_str() {
            "" => format!("node {}: {}", node.name, node.state),
            reason => format!("node {}: {} ({reason})", node.name, node.state),
        },
        ChangedRecord::Partition(name) if name.is_empty() => {
            "the configuration was read".to_owned()
        }
        ChangedRecord::Partition(name) => format!("partition {name} has changed"),
        ChangedRecord::Reservation(name) => format!("reservation {name} has changed"),
    };
    clean::line(&format!("{clock} {what}"))
}

/// Asks for the lists, until nobody is there.
fn list(updates: &Sender<Update>, woken: &Receiver<()>, interval: Duration) {
    let mut client = None;
    loop {
        let asked = Instant::now();
        let lists = match client.take() {
            Some(client) => Ok(client),
            None => Client::connect(),
        };
        let lists = lists.and_then(|mut own: Client| {
            let lists = lists_of(&mut own)?;
            client = Some(own);
            Ok(lists)
        });
        let is_there = lists.is_ok();
        let update = match lists {
            Ok(lists) => Update::Lists(Box::new(lists)),
            Err(error) => Update::Trouble(clean::line(&error.to_string())),
        };
        if updates.send(update).is_err() {
            return;
        }
        if !is_there {
            std::thread::sleep(RETRY);
            continue;
        }
        std::thread::sleep(PAUSE.max(asked.elapsed() * PAUSE_FACTOR));
        // Changes of meanwhile are in the next answer.
        let wait = match woken.try_iter().count() {
            0 => woken.recv_timeout(interval),
            _ => Ok(()),
        };
        if wait == Err(RecvTimeoutError::Disconnected) {
            std::thread::sleep(interval.min(RETRY));
        }
    }
}

fn lists_of(client: &mut Client) -> Result<Lists, ConnectError> {
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let filter = JobFilter {
        active: true,
        ..JobFilter::default()
    };
    let jobs = query::jobs(client, &mut ctx, filter)?;
    let completing = query::cluster(client, &mut ctx)?;
    let uid = nix::unistd::getuid().as_raw();
    let mut lists = Lists {
        cluster: clean::line(&ctx.cluster),
        nodes_withheld: ctx.withheld.has(PrivateData::NODES),
        ..Lists::default()
    };
    for job in jobs.jobs.iter() {
        let row = JobRow::new(job, jobs.array_of(job));
        if ctx.partition(&job.partition).is_some_and(|p| p.hidden) {
            continue;
        }
        let count = row
            .pending_indices()
            .map_or(1, |indices| indices.iter().count() as u64);
        match job.state {
            JobState::Pending => lists.pending += count,
            JobState::Running => lists.running += count,
            _ => {}
        }
        lists.jobs.push(job_line(&row, &ctx, uid));
    }
    // Running jobs come first, then pending ones, each the newest first.
    lists
        .jobs
        .sort_by_key(|line| (line.is_pending, std::cmp::Reverse(line.id)));
    lists.jobs.truncate(ROWS_MAX);
    for node in ctx.nodes.iter().take(ROWS_MAX) {
        let is_completing = completing.contains(&node.idx);
        let view = NodeView::new(node, is_completing, ctx.reserved.get(&node.idx).copied());
        lists.nodes.push(node_line(&view));
    }
    Ok(lists)
}

pub(super) fn job_line(row: &JobRow<'_>, ctx: &Ctx, uid: u32) -> JobLine {
    let job = row.job;
    let collect = |write: &dyn Fn(&mut String)| clean::line(&text::collect(write));
    JobLine {
        id: job.id,
        name: collect(&|out| row.write_id(out, ctx)),
        indices: row.pending_indices().cloned(),
        partition: clean::line(&job.partition),
        title: clean::line(&job.spec.name),
        user: clean::line(&job.spec.owner.user),
        state: row.state_code(),
        is_pending: row.is_pending(),
        is_held: job.hold != Hold::None,
        ran_s: row.run_time_s(ctx),
        runs: job.state == JobState::Running,
        cpus: row.cpus(),
        place: collect(&|out| row.write_reason_list(out)),
        is_own: job.spec.owner.uid == uid,
    }
}

pub(super) fn node_line(view: &NodeView<'_>) -> NodeLine {
    let node = view.node;
    NodeLine {
        name: clean::line(&node.config.name),
        state: clean::line(&text::collect(|out| view.write_state(out))),
        is_wrong: !view.state.is_busy() && !view.state.offers_cpus(),
        used_cpus: view.used_cpus(),
        cpus: view.job_cpus(),
        load: view.load_centi().map_or_else(String::new, |centi| {
            text::collect(|out| text::load(out, centi))
        }),
        free_mib: view.free_mib(),
        mib: node.config.memory_mib,
        jobs: node.jobs.len(),
        reason: node
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| clean::line(&reason.text)),
    }
}
