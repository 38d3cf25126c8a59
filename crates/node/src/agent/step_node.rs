//! This node's part of steps, whichever node leads them: starts their daemons, and reports to the lead how they ended.

use super::closing::Streams;
use super::lead::{Asked, Reply, StepKey};
use super::{Agent, Event, OfUser};
use crate::descriptors::OrderFds;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_core::environment::Environment;
use muster_core::hostlist;
use muster_core::ids::{JobId, StepNo};
use muster_core::job::StepEnd;
use muster_core::job_env::{self, StepView};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_node_core::binding::BindVariables;
use muster_node_core::job_view::array_of;
use muster_node_core::kept_entries::{KEPT_NODE, kept_of_node};
use muster_node_core::messages::{JobAttempt, LauncherCommand, StepOrder, TaskBinding};
use muster_node_core::step_variables::StepVariables;
use muster_proto::node::JobGrant;
use muster_proto::step::{AgentReply, StepLaunch, StepShare};
use muster_trust::{JobKeyUse, derive_job_key, is_same_key};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long a step's start waits for the controller to tell this node of the job.
const GRANT_WAIT: Duration = Duration::from_secs(30);
/// Who wants a step daemon.
#[derive(Debug)]
pub(super) enum Origin {
    /// This agent, which leads the job; with srun's streams, if it has handed them over.
    Lead(Option<Streams>),
    /// Another agent, or this one for the nodes below as well: these have still to be asked.
    Remote(Reply, Vec<StepShare>),
}

/// A request that came before the controller's word of its job: the controller sends both at once, and the client
/// was quicker.
#[derive(Debug)]
pub(super) enum Early {
    /// A step's lead starts it here.
    Start(Box<StepLaunch>, Origin),
    /// srun asks for a step that is to be led from here.
    Create(Box<Asked>),
    /// srun asks for the number of a step that this node leads a part of.
    Number(Box<Asked>),
}

impl Early {
    fn job(&self) -> JobId {
        match self {
            Early::Start(launch, _) => launch.spec.job,
            Early::Create(asked) | Early::Number(asked) => asked.spec.job,
        }
    }
}

/// Where a step daemon listens.
#[derive(Debug)]
pub(super) struct Listening {
    /// For srun.
    pub(super) address: String,
    /// For the step's other nodes.
    pub(super) wire: Option<String>,
    /// It does not wait for srun: its task has srun's streams.
    pub(super) direct: bool,
}

/// Parts of steps on this node.
#[derive(Debug, Default)]
pub(super) struct NodeSteps {
    /// Daemons that are being started.
    starting: HashMap<(JobAttempt, StepNo), Starting>,
    /// Starts that came before the job.
    early: HashMap<u64, Early>,
    parts: HashMap<StepKey, Part>,
    next_wait: u64,
}

/// The part of a step whose daemon is being started.
#[derive(Debug)]
struct Starting {
    /// For another launcher, should this one be lost before it answers.
    order: Box<StepOrder>,
    position: u32,
    origin: Origin,
    /// srun's, for the daemon of a direct step once it is there. The launcher is there for all users and never has them.
    streams: Option<Streams>,
}

/// What is needed to tell of a part's end; the shim keeps it too.
#[derive(Clone, Debug, Encode, Decode)]
pub(super) struct Part {
    #[n(0)]
    pub(super) run: JobAttempt,
    #[n(1)]
    position: u32,
    #[n(2)]
    pub(super) lead: String,
    /// The agent above in the tree, if that is not the lead.
    #[n(3)]
    pub(super) above: Option<String>,
}

/// Whether a task may have srun's own streams: it is the only one, and nobody else writes to them.
fn may_have_streams(order: &StepOrder) -> bool {
    let (launch, spec) = (&order.launch, &order.launch.spec);
    let alone = matches!(&launch.tasks[..], [tasks] if tasks.len() == 1);
    let programs = [
        &order.task_prolog,
        &order.task_epilog,
        &spec.task_prolog,
        &spec.task_epilog,
    ];
    let files = [&spec.stdio.stdin, &spec.stdio.stdout, &spec.stdio.stderr];
    alone
        && order.pmix.is_none()
        && spec.pty.is_none()
        && programs.into_iter().chain(files).all(Option::is_none)
}

impl NodeSteps {
    /// This node's part of a step, until the lead knows of its end.
    pub(super) fn part(&self, key: StepKey) -> Option<&Part> {
        self.parts.get(&key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &StepKey> {
        self.parts.keys()
    }

    /// Takes a kept record back; whether it is one of these.
    pub(super) fn adopt(&mut self, run: JobAttempt, kept: u32, bytes: &[u8]) -> bool {
        let Some(step) = kept.checked_sub(KEPT_NODE) else {
            return false;
        };
        if let Ok(part) = minicbor::decode::<Part>(bytes) {
            self.parts.insert((run.job, StepNo(step)), part);
        }
        true
    }

    /// A part as the shim keeps it, and under which number.
    pub(super) fn kept_of(&self, key: StepKey) -> Option<(u32, ByteVec)> {
        let bytes = minicbor::to_vec(self.parts.get(&key)?);
        let bytes = bytes.expect("writing to memory cannot fail");
        Some((kept_of_node(key.1), bytes.into()))
    }

    pub(super) fn forget(&mut self, run: JobAttempt) {
        self.parts.retain(|_, part| part.run != run);
    }
}

impl Agent {
    /// Starts the daemon of a step on this node.
    pub(super) fn start_here(&mut self, launch: StepLaunch, origin: Origin) {
        let job = launch.spec.job;
        let known = self
            .jobs
            .with_key(job, &launch.key)
            .or_else(|| self.jobs.latest(job))
            .map(|(_, j)| j);
        let grant = known.map(|j| (j.grant.clone(), j.is_over()));
        match grant {
            // The lead's order came faster than the controller's.
            None => self.wait_for_grant(launch, origin),
            Some((Some(grant), false)) if grant.resizes < launch.spec.resizes => {
                self.wait_for_grant(launch, origin);
            }
            Some((Some(grant), true)) if !is_same_key(&grant.key, &launch.key) => {
                // This node knows an earlier launch of the job, which is ending.
                self.wait_for_grant(launch, origin);
            }
            Some((None, _)) => self.step_refused(&launch, origin, "its grant was lost"),
            Some((_, true)) => self.step_refused(&launch, origin, "the job is ending"),
            Some((Some(grant), false)) if !is_same_key(&grant.key, &launch.key) => {
                self.step_refused(&launch, origin, "the key is not the job's");
            }
            Some((Some(grant), false)) => {
                let run = JobAttempt::new(job, grant.attempt);
                let (step, position) = (launch.step, launch.position);
                let site = self.site_binding.of(&grant.alloc);
                let bound = match self.machine.bind(&launch, &self.settings, site) {
                    Ok(bound) => bound,
                    Err(why) => return self.step_refused(&launch, origin, &why),
                };
                let part = Part {
                    run,
                    position,
                    lead: launch.lead.clone(),
                    above: launch.above.clone(),
                };
                let mut origin = self.start_below(&launch, origin);
                let streams = match &mut origin {
                    Origin::Lead(streams) => streams.take(),
                    Origin::Remote(..) => None,
                };
                self.keep(run, kept_of_node(step), &part);
                self.node_steps.parts.insert((job, step), part);
                self.step_may_have(run, step, launch.memory_mib);
                let mut order = Box::new(self.step_order(&grant, launch, bound));
                let srun = streams.filter(|_| may_have_streams(&order));
                let srun = srun.and_then(Streams::into_fds);
                order.direct = srun.is_some();
                let with = OrderFds {
                    srun,
                    ..OrderFds::default()
                };
                match self.give_step(order, with) {
                    Ok(there) => self.answer_start((job, step), position, origin, Ok(there)),
                    Err((order, with)) => {
                        let uid = order.user.uid;
                        let streams = with.srun.map(|fds| Streams::of(uid, fds));
                        self.start_by_shim(order, streams, (position, origin));
                    }
                }
            }
        }
    }

    /// Has the shim find a daemon for a step.
    fn start_by_shim(
        &mut self,
        order: Box<StepOrder>,
        streams: Option<Streams>,
        (position, origin): (u32, Origin),
    ) {
        let (run, step, uid) = (order.run, order.launch.step, order.user.uid);
        let message = LauncherCommand::StartStep(order.clone());
        let starting = Starting {
            order,
            position,
            origin,
            streams,
        };
        self.node_steps.starting.insert((run, step), starting);
        let with = match self.new_line(run, step) {
            Ok(line) => OrderFds {
                agent: Some(line),
                ..OrderFds::default()
            },
            Err(e) => return self.stepd_started(run, step, Err(e.to_string())),
        };
        self.shim_order_with(&message, OfUser { uid, with });
    }

    fn wait_for_grant(&mut self, launch: StepLaunch, origin: Origin) {
        self.wait_early(Early::Start(Box::new(launch), origin));
    }

    /// Keeps a request that came before the job that it is of.
    pub(super) fn wait_early(&mut self, early: Early) {
        let wait = self.node_steps.next_wait;
        self.node_steps.next_wait += 1;
        self.node_steps.early.insert(wait, early);
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GRANT_WAIT).await;
            let _ = events.send(Event::GaveUp(wait));
        });
    }

    /// The job came: steps that were ahead of it start.
    pub(super) fn grant_came(&mut self, job: JobId) {
        let early = &mut self.node_steps.early;
        let ready: Vec<u64> = early
            .iter()
            .filter(|(_, early)| early.job() == job)
            .map(|(wait, _)| *wait)
            .collect();
        for wait in ready {
            match self.node_steps.early.remove(&wait) {
                Some(Early::Start(launch, origin)) => self.start_here(*launch, origin),
                Some(Early::Create(asked)) => self.create_step(*asked),
                Some(Early::Number(asked)) => self.take_step_number(*asked),
                None => {}
            }
        }
    }

    /// The client has gone: nothing is started for it.
    pub(super) fn forget_early(&mut self, conn: u64) {
        let early = &mut self.node_steps.early;
        early.retain(|_, e| match e {
            Early::Create(asked) | Early::Number(asked) => asked.conn != conn,
            Early::Start(..) => true,
        });
    }

    /// The job did not come.
    pub(super) fn gave_up(&mut self, wait: u64) {
        match self.node_steps.early.remove(&wait) {
            Some(Early::Start(launch, origin)) => {
                let why = "the controller has not given it the job";
                self.step_refused(&launch, origin, why);
            }
            Some(Early::Create(asked) | Early::Number(asked)) => asked.refuse_unknown(),
            None => {}
        }
    }

    fn step_refused(&mut self, launch: &StepLaunch, origin: Origin, why: &str) {
        let key = (launch.spec.job, launch.step);
        self.answer_start(key, launch.position, origin, Err(why.to_owned()));
    }

    fn answer_start(
        &mut self,
        key: StepKey,
        position: u32,
        origin: Origin,
        result: Result<Listening, String>,
    ) {
        match (origin, result) {
            (Origin::Lead(_), result) => self.node_started(key, position, result),
            (Origin::Remote(reply, _), Ok(Listening { address, wire, .. })) => {
                let _ = reply.send(AgentReply::Started {
                    address,
                    wire,
                    below: Vec::new(),
                });
            }
            (Origin::Remote(reply, _), Err(error)) => {
                let refusal = Refusal::new(RefusalCode::JobNotHere, error);
                let _ = reply.send(AgentReply::Refused(refusal));
            }
        }
    }

    /// Has another shim start the daemons that a lost one did not answer for. A step that is known has had a daemon whose
    /// place nobody knows, and fails; the shim refuses a number that was used.
    pub(super) fn repeat_starts(&mut self, known: &HashSet<(JobAttempt, StepNo)>) {
        for ((run, step), starting) in std::mem::take(&mut self.node_steps.starting) {
            let (position, origin) = (starting.position, starting.origin);
            self.daemons.drop_unplaced(run, step);
            if known.contains(&(run, step)) {
                let result = Err("the node's launcher was lost".to_owned());
                self.answer_start((run.job, step), position, origin, result);
            } else {
                self.start_by_shim(starting.order, starting.streams, (position, origin));
            }
        }
    }

    /// Gives the shim what it is to keep of this node's parts of a job's steps.
    pub(super) fn keep_parts(&mut self, run: JobAttempt) {
        let parts: Vec<(StepNo, Part)> = self
            .node_steps
            .parts
            .iter()
            .filter(|(_, part)| part.run == run)
            .map(|(key, part)| (key.1, part.clone()))
            .collect();
        for (step, part) in parts {
            self.keep(run, kept_of_node(step), &part);
        }
    }

    /// The shim started a daemon, or could not.
    pub(super) fn stepd_started(
        &mut self,
        run: JobAttempt,
        step: StepNo,
        result: Result<Listening, String>,
    ) {
        if result.is_err() {
            self.node_steps.parts.remove(&(run.job, step));
            self.drop_kept(run, kept_of_node(step));
        }
        if let Some(starting) = self.node_steps.starting.remove(&(run, step)) {
            if let (Ok(_), Some(streams)) = (&result, &starting.streams) {
                self.daemons.send_streams((run, step), streams);
            }
            self.answer_start((run.job, step), starting.position, starting.origin, result);
        }
    }

    /// A daemon ended: the lead must know, however long it takes.
    pub(super) fn stepd_ended(&mut self, run: JobAttempt, step: StepNo, mut end: StepEnd) {
        if self.reports.has_step_end(run, step) {
            // It is forgotten when the controller knows.
            return;
        }
        end.usage.set_node(&self.options.name);
        let as_received = end.clone();
        self.add_samples(run, step, &mut end);
        let key = (run.job, step);
        let Some(part) = self.node_steps.parts.get(&key).cloned() else {
            return self.shim_order(&LauncherCommand::ForgetStep(run, step));
        };
        let job = self.jobs.get(run);
        if job.is_some_and(muster_node_core::job_table::Job::leads) {
            if end == as_received && self.only_node_ended(key, &end) {
                return;
            }
            self.node_ended(key, part.position, end);
            return self.end_delivered(key);
        }
        if job.is_none_or(|j| j.grant.is_none()) {
            // Agent and shim were both lost, and the key with them; the lead learns of the job's end otherwise.
            return self.end_delivered(key);
        }
        self.tell_end(key, vec![(part.position, end)], None);
    }

    /// The lead knows: the part is forgotten.
    pub(super) fn end_delivered(&mut self, key: StepKey) {
        if let Some(part) = self.node_steps.parts.remove(&key) {
            self.drop_kept(part.run, kept_of_node(key.1));
            self.shim_order(&LauncherCommand::ForgetStep(part.run, key.1));
        }
    }

    fn step_order(
        &mut self,
        grant: &JobGrant,
        mut launch: StepLaunch,
        (binding, bind_env): (TaskBinding, BindVariables),
    ) -> StepOrder {
        let variables = self.step_variables(grant, &launch, bind_env);
        let env = variables.environment(&launch.spec, launch.step);
        // It is in there.
        launch.spec.context.environment = Environment::default();
        // What runs as the user gets no key of agents.
        launch.key = derive_job_key(&launch.key, JobKeyUse::Pmix).into();
        StepOrder {
            run: JobAttempt::new(grant.job, grant.attempt),
            user: Agent::user_of(grant),
            env,
            binding,
            limits: self.limits(&launch.spec.context.soft_limits),
            array: array_of(grant),
            job_name: grant.spec.name.clone(),
            append: self.settings.append,
            task_prolog: self.settings.task_prolog.clone(),
            task_epilog: self.settings.task_epilog.clone(),
            pmix: self.pmix_order(grant, &launch),
            direct: false,
            launch,
        }
    }

    /// What is put over the environment of srun.
    fn step_variables(
        &self,
        grant: &JobGrant,
        launch: &StepLaunch,
        bind_env: BindVariables,
    ) -> StepVariables {
        let hostlist = hostlist::compress(&launch.names);
        let spec = &launch.spec;
        let view = StepView {
            step: launch.step,
            hostlist: &hostlist,
            tasks: &launch.tasks,
            position: launch.position as usize,
            node: &self.options.name,
            cpus_on_node: launch.cpus.len(),
            gres: &launch.gres,
            cpus_per_task: spec.cpus_per_task,
            distribution: spec.distribution.as_deref(),
            total_tasks: spec.het.as_ref().and_then(|het| het.total_tasks),
        };
        let spool = self.options.spool_dir.to_string_lossy().into_owned();
        let place = [
            ("MUSTER_SPOOL", spool),
            ("MUSTER_ATTEMPT", grant.attempt.0.to_string()),
        ];
        let of_node = bind_env.into_iter().chain(place);
        StepVariables {
            own: job_env::step_env(&self.view(grant), &view),
            node: of_node.map(|(k, v)| (k.to_owned(), v)).collect(),
        }
    }
}
