//! Many nodes in one process. Each has its own connection to the real controller and speaks the
//! agents' protocol, but its jobs run nowhere: they end after a random time. A site can thus try
//! its configuration, and we can measure the controller, with thousands of nodes on one machine.
//!
//! Other differences from an agent: no state survives this process, steps of `srun` start only if
//! requested and only if a real node leads them, and signatures of orders are not checked, because
//! nothing is executed.

mod steps;

use crate::agent::quota::Quotas;
use crate::failure;
use crate::info;
use crate::now;
use anyhow::{Context as _, bail};
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_model::job::{ExitStatus, JobState, ResourceUsage, StepEnd};
use muster_model::node::NodeInfo;
use muster_model::spec::JobKind;
use muster_model::time::Timestamp;
use muster_model::visible_text::debug_beginning;
use muster_proto::client::{Request, RequestBody, Response, daemon_socket};
use muster_proto::frame::{self, Frames};
use muster_proto::node::{
    JobGrant, NodeHello, NumberedReport, Order, Orders, Report, ToCtld, ToNode,
};
use nix::sys::resource::{Resource, getrlimit};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use steps::{Grants, Steps};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;

/// Shortest wait between dials.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest delay between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Time between two versions of the report.
const REPORT: Duration = Duration::from_millis(200);
/// Launches that took at least this many milliseconds are counted together.
const LATE_MS: usize = 1000;

/// Run time of emulated jobs. The controller ends a job that exceeds its limit, as with a real one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunTime {
    /// A fixed number of seconds for each job.
    Fixed(f64),
    /// Exponential distribution with this mean, seconds.
    Exponential(f64),
    /// Uniform distribution between these, seconds.
    Uniform(f64, f64),
}

impl std::str::FromStr for RunTime {
    type Err = String;

    fn from_str(text: &str) -> Result<RunTime, String> {
        let seconds = |word: &str| {
            let number = word
                .parse()
                .ok()
                .filter(|s: &f64| s.is_finite() && *s >= 0.0);
            number.ok_or_else(|| format!("'{word}' is not a number of seconds"))
        };
        let words: Vec<&str> = text.split(':').collect();
        match words[..] {
            ["exp", mean] => seconds(mean).map(RunTime::Exponential),
            ["uniform", low, high] => match (seconds(low)?, seconds(high)?) {
                (low, high) if low <= high => Ok(RunTime::Uniform(low, high)),
                _ => Err(format!("'{text}': the lower bound comes first")),
            },
            [fixed] => seconds(fixed).map(RunTime::Fixed),
            _ => Err(format!(
                "a run time is SECONDS, exp:MEAN or uniform:LOW:HIGH, not '{text}'"
            )),
        }
    }
}

impl RunTime {
    /// The run time of an attempt, milliseconds: the same each time it is asked for.
    fn of(self, job: JobId, attempt: Attempt) -> u64 {
        let share = unit(job.0 << 16 | u64::from(attempt.0 & 0xffff));
        let seconds = match self {
            RunTime::Fixed(seconds) => seconds,
            RunTime::Exponential(mean) => -mean * (1.0 - share).ln(),
            RunTime::Uniform(low, high) => low + (high - low) * share,
        };
        (seconds * 1000.0) as u64
    }
}

/// A number from 0 to below 1 from a key: the last step of SplitMix64 (Steele et al., 2014).
fn unit(key: u64) -> f64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

/// A node to speak for.
#[derive(Clone, Debug)]
pub struct EmulatedNode {
    /// `NodeName`.
    pub name: String,
    /// CPUs that it registers with.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Distances between its NUMA domains, row by row; empty if the node reports none.
    pub numa_distances: Vec<u32>,
}

/// Options of the emulation.
#[derive(Clone, Debug)]
pub struct EmulateOptions {
    /// The nodes.
    pub nodes: Vec<EmulatedNode>,
    /// The controller's socket.
    pub controller_socket: PathBuf,
    /// `ClusterName`.
    pub cluster: String,
    /// Run times of jobs.
    pub run_time: RunTime,
    /// File for the counts, if any.
    pub report: Option<PathBuf>,
    /// Directory for the nodes' step sockets; without it they take part in no steps.
    pub step_dir: Option<PathBuf>,
}

/// Represents the nodes until the controller orders all of them to stop.
///
/// # Errors
/// There is no runtime, or the controller of another cluster answers.
pub fn emulate(options: EmulateOptions) -> anyhow::Result<()> {
    failure::end_on_panic();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let machine = info::of_machine(now());
    let options = Rc::new(options);
    LocalSet::new().block_on(&runtime, async move {
        let launches = Rc::new(RefCell::new(Launches::default()));
        if let Some(file) = options.report.clone() {
            tokio::task::spawn_local(Launches::keep(Rc::clone(&launches), file));
        }
        let mut tasks = Vec::with_capacity(options.nodes.len());
        let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let quotas = Quotas::new(nix::unistd::geteuid().as_raw(), descriptors);
        for node in &options.nodes {
            let grants = Rc::new(Grants::default());
            let address = match &options.step_dir {
                Some(dir) => Steps::listen(&node.name, dir, Rc::clone(&grants), quotas.clone())?,
                None => "emulated".to_owned(),
            };
            let info = NodeInfo {
                cpus: node.cpus,
                memory_mib: node.memory_mib,
                free_mib: node.memory_mib,
                address,
                hostname: node.name.clone(),
                numa_domains: (!node.numa_distances.is_empty())
                    .then(|| u32::try_from(node.numa_distances.len().isqrt()).unwrap_or(u32::MAX)),
                numa_distances: node.numa_distances.clone(),
                cross_memory: None,
                trusted_by: None,
                ..machine.clone()
            };
            let name = node.name.clone();
            let node = RunningNode::new(
                name,
                info,
                grants,
                Rc::clone(&launches),
                Rc::clone(&options),
            );
            tasks.push(tokio::task::spawn_local(node.keep()));
        }
        for task in tasks {
            task.await.context("an emulated node")??;
        }
        Ok(())
    })
}

/// Launches by the milliseconds from the controller's start time to the arrival of the order: both
/// processes run on one machine with one clock.
struct Launches {
    by_ms: Vec<u64>,
    counted: bool,
}

impl Default for Launches {
    fn default() -> Launches {
        Launches {
            by_ms: vec![0; LATE_MS + 1],
            counted: true,
        }
    }
}

impl Launches {
    fn count(&mut self, start: Timestamp) {
        let ms = usize::try_from(now().since_ms(start)).unwrap_or(LATE_MS);
        self.by_ms[ms.min(LATE_MS)] += 1;
        self.counted = true;
    }

    /// Writes the counts whenever they have changed.
    async fn keep(launches: Rc<RefCell<Launches>>, file: PathBuf) {
        loop {
            if std::mem::take(&mut launches.borrow_mut().counted) {
                let text = format!("{{\"launches_by_ms\": {:?}}}\n", launches.borrow().by_ms);
                if let Err(e) = replace(&file, &text) {
                    log::warn!("{}: {e}", file.display());
                }
            }
            tokio::time::sleep(REPORT).await;
        }
    }
}

/// A reader of the file sees one version or the next.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let next = file.with_extension("next");
    std::fs::write(&next, text)?;
    std::fs::rename(&next, file)
}

/// One node.
struct RunningNode {
    name: String,
    info: NodeInfo,
    options: Rc<EmulateOptions>,
    launches: Rc<RefCell<Launches>>,
    /// State for steps.
    grants: Rc<Grants>,
    /// Jobs that the node takes part in; true while their script runs here.
    jobs: HashMap<JobAttempt, bool>,
    /// When scripts end.
    ends: BinaryHeap<Reverse<(Timestamp, JobAttempt)>>,
    /// Unacknowledged reports, and the number of them sent on this connection.
    reports: VecDeque<NumberedReport>,
    sent: usize,
    next: u64,
}

/// Why a connection has ended.
enum End {
    /// Connect again.
    Lost,
    /// Ordered to stop.
    Stopped,
}

impl RunningNode {
    fn new(
        name: String,
        info: NodeInfo,
        grants: Rc<Grants>,
        launches: Rc<RefCell<Launches>>,
        options: Rc<EmulateOptions>,
    ) -> RunningNode {
        RunningNode {
            name,
            info,
            options,
            grants,
            launches,
            jobs: HashMap::new(),
            ends: BinaryHeap::new(),
            reports: VecDeque::new(),
            sent: 0,
            next: u64::try_from(now().0).unwrap_or(0) << 20,
        }
    }

    /// Keeps the connection up.
    async fn keep(mut self) -> anyhow::Result<()> {
        let mut wait = RETRY_MIN;
        loop {
            match self.session(&mut wait).await {
                Ok(End::Stopped) => return Ok(()),
                Ok(End::Lost) => {}
                Err(e) if e.downcast_ref::<std::io::Error>().is_some() => {}
                Err(e) => return Err(e),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn session(&mut self, wait: &mut Duration) -> anyhow::Result<End> {
        let users = &self.options.controller_socket;
        let stream = match UnixStream::connect(daemon_socket(users)).await {
            Ok(stream) => stream,
            Err(_) => UnixStream::connect(users).await?,
        };
        let (mut read, mut write) = stream.into_split();
        let mut frames = Frames::default();
        let mut chunk = vec![0; 16 << 10];
        let mut out = self.greeting();
        let mut welcomed = false;
        loop {
            let due = self.ends.peek().map(|Reverse((at, _))| *at);
            let wait_ms = due.map_or(0, |at| at.since_ms(now()));
            tokio::select! {
                count = read.read(&mut chunk) => match count? {
                    0 => return Ok(End::Lost),
                    n => frames.push(&chunk[..n]),
                },
                written = write.write(&out), if !out.is_empty() => drop(out.drain(..written?)),
                () = tokio::time::sleep(Duration::from_millis(wait_ms)), if due.is_some() => {}
            }
            if !welcomed {
                match frames.take()? {
                    None => continue,
                    Some(Response::Welcome(welcome)) => self.check(&welcome.cluster)?,
                    Some(Response::Refused(r)) => bail!("node {} is refused: {r}", self.name),
                    Some(other) => bail!("unexpected answer {}", debug_beginning(&other, 60)),
                }
                welcomed = true;
                *wait = RETRY_MIN;
                self.sent = 0;
            }
            while let Some(message) = frames.take()? {
                if self.on_message(message, &mut out)? {
                    return Ok(End::Stopped);
                }
            }
            self.end_due();
            self.add_reports(&mut out);
        }
    }

    fn check(&self, cluster: &str) -> anyhow::Result<()> {
        if cluster == self.options.cluster {
            return Ok(());
        }
        bail!(
            "{} is the controller of cluster '{cluster}', these nodes are of '{}'",
            self.options.controller_socket.display(),
            self.options.cluster
        )
    }

    fn greeting(&self) -> Vec<u8> {
        let hello = NodeHello {
            name: self.name.clone(),
            info: self.info.clone(),
            present: self.jobs.keys().copied().collect(),
            // Emulated nodes execute nothing, so a fixed key is enough.
            key: vec![9; muster_trust::KEY].into(),
            launcher_key: vec![9; muster_trust::KEY].into(),
            dynamic: None,
        };
        frame::encode(&Request {
            version: muster_proto::PROTOCOL,
            client: None,
            body: RequestBody::NodeHello(Box::new(hello)),
        })
    }

    /// Processes a message. Returns whether it orders the node to stop.
    fn on_message(&mut self, message: ToNode, out: &mut Vec<u8>) -> anyhow::Result<bool> {
        match message {
            ToNode::Sealed { orders, .. } => {
                let orders: Orders = frame::decode(&orders).context("orders")?;
                orders
                    .orders
                    .into_iter()
                    .for_each(|order| self.ordered(order));
            }
            ToNode::Ack(seq) => self.acknowledged(seq),
            ToNode::Ping => {
                let health = ToCtld::Health {
                    load_centi: 0,
                    free_mib: self.info.memory_mib,
                    configuration: None,
                };
                frame::encode_into(&health, out);
            }
            ToNode::Stop(agents) => return Ok(agents),
        }
        Ok(false)
    }

    fn ordered(&mut self, order: Order) {
        match order {
            Order::Launch(grant) => self.launch(&grant),
            Order::Terminate { job, attempt, .. } => {
                let attempt = JobAttempt::new(job, attempt);
                self.grants.remove(job);
                match self.jobs.remove(&attempt) {
                    // The job has ended here and its report is queued.
                    None if self
                        .reports
                        .iter()
                        .any(|r| JobAttempt::new(r.job, r.attempt) == attempt) =>
                    {
                        return;
                    }
                    Some(true) => self.end_script(
                        attempt,
                        ExitStatus {
                            code: 0,
                            signal: 15,
                        },
                    ),
                    _ => {}
                }
                self.report(attempt, Report::Released);
            }
            // There is no process to signal, and nothing to print or reboot.
            Order::Signal { .. }
            | Order::StepLimit { .. }
            | Order::Notify { .. }
            | Order::Reboot => {}
        }
    }

    fn launch(&mut self, grant: &JobGrant) {
        let attempt = JobAttempt::new(grant.job, grant.attempt);
        let is_reported = |r: &NumberedReport| JobAttempt::new(r.job, r.attempt) == attempt;
        if self.jobs.contains_key(&attempt) || self.reports.iter().any(is_reported) {
            return;
        }
        self.launches.borrow_mut().count(grant.start_time);
        let script = grant.position == 0 && grant.spec.kind == JobKind::Batch;
        self.jobs.insert(attempt, script);
        if self.options.step_dir.is_some() {
            self.grants.insert(attempt.job, grant.key.clone());
        }
        if script {
            let end = now().plus_ms(self.options.run_time.of(attempt.job, attempt.attempt));
            self.ends.push(Reverse((end, attempt)));
        }
    }

    /// Ends the scripts whose time is over.
    fn end_due(&mut self) {
        let now = now();
        while let Some(Reverse((at, attempt))) = self.ends.peek().copied()
            && at <= now
        {
            self.ends.pop();
            if self.jobs.remove(&attempt).is_some() {
                self.grants.remove(attempt.job);
                self.end_script(attempt, ExitStatus::default());
                self.report(attempt, Report::Released);
            }
        }
    }

    fn end_script(&mut self, attempt: JobAttempt, exit: ExitStatus) {
        let state = match exit.is_ok() {
            true => JobState::Completed,
            false => JobState::Cancelled,
        };
        let end = StepEnd {
            end_time: now(),
            exit,
            state,
            usage: ResourceUsage::default(),
            cancelled_by: None,
            last_lines: None,
        };
        let report = Report::BatchEnded {
            exit,
            oom: false,
            end: Box::new(end),
        };
        self.report(attempt, report);
    }

    fn report(&mut self, JobAttempt { job, attempt }: JobAttempt, report: Report) {
        self.reports.push_back(NumberedReport {
            seq: self.next,
            job,
            attempt,
            report,
        });
        self.next += 1;
    }

    fn add_reports(&mut self, out: &mut Vec<u8>) {
        let unsent: Vec<_> = self.reports.iter().skip(self.sent).cloned().collect();
        self.sent = self.reports.len();
        if !unsent.is_empty() {
            frame::encode_into(&ToCtld::Reports(unsent), out);
        }
    }

    fn acknowledged(&mut self, seq: u64) {
        let count = self.reports.partition_point(|r| r.seq <= seq);
        self.reports.drain(..count);
        self.sent = self.sent.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_are_read_and_drawn() {
        let draw = |text: &str, job: u64| {
            let run_time: RunTime = text.parse().unwrap();
            run_time.of(JobId(job), Attempt(1))
        };
        assert_eq!(draw("1.5", 7), 1500);
        assert!((1..1000).all(|job| (2000..3000).contains(&draw("uniform:2:3", job))));
        let sum: u64 = (1..=10_000).map(|job| draw("exp:2", job)).sum();
        assert!((1_900..2_100).contains(&(sum / 10_000)), "{sum}");
        assert_eq!(draw("exp:2", 5), draw("exp:2", 5));
        for bad in ["", "-1", "exp", "exp:x", "uniform:3:2", "norm:1:2:3"] {
            assert!(bad.parse::<RunTime>().is_err(), "{bad}");
        }
    }
}
