//! A valid request of every kind, with who may make it. A kind that is added to the protocol and not here does not compile.

/// A match without a wildcard, and the list of its arms.
macro_rules! kinds {
    ($(#[$doc:meta])* $visible:vis $list:ident, $function:ident, $type:ident: $($kind:ident)*) => {
        $(#[$doc])*
        $visible const $list: &[&str] = &[$(stringify!($kind)),*];

        fn $function(value: &$type) -> &'static str {
            match value { $($type::$kind { .. } => stringify!($kind),)* }
        }
    };
}

pub(crate) mod accounts;
pub(crate) mod parts;

use minicbor::bytes::ByteVec;
use muster_model::command::{
    CrontabAsk, JobSelection, JobTarget, JobUpdate, NodeUpdate, ReservationAsk, SignalScope,
    UserCommand,
};
use muster_model::environment::Environment;
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{ExitStatus, StepEnd, StepMaker};
use muster_model::mail::MailOptions;
use muster_model::node::{NodeConfig, NodeInfo};
use muster_model::rights::AccessRequest as Row;
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, DeviceAsk, ExecContext, GresAsk,
    JobKind, JobSpec, MemoryAsk, Owner, ResourceAsk, SoftLimit, StdioSpec, WarnSignal,
};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::topology::SwitchAsk;
use muster_model::trigger::{TriggerAsk, TriggerEvents};
use muster_proto::acct::{
    JobTextKind, JobTextQuery, NodeEventQuery, ReservationTimesQuery, TransactionQuery, UsageQuery,
};
use muster_proto::archive::{AgeUnit, ArchiveDump, ArchiveRequest, ArchivedKind, PurgeAge};
use muster_proto::changes::ChangesQuery;
use muster_proto::client::{JobFilter, Query, RequestBody};
use muster_proto::node::NodeHello;
use muster_proto::step::NodeEnd;
use muster_proto::step::{AgentRequest, HetStep, StepLaunch, StepShare, StepSpec};
use muster_proto::version::Greeting;

/// Users who may make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Every user.
    Anyone,
    /// The owner of the job that it names, and administrators.
    Owner,
    /// Root and SlurmUser.
    Administrator,
}

/// A request that is valid where its maker has the right to it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The kind, as the protocol calls it.
    pub name: &'static str,
    /// Users who may make it.
    pub rights: Rights,
    /// The request.
    pub body: RequestBody,
}

impl Sample {
    /// Its row in the table of rights.
    pub fn row(&self) -> Row {
        Row::from(&self.body)
    }
}

/// A request to an agent.
#[derive(Clone, Debug)]
pub struct AgentSample {
    /// The kind, as the protocol calls it.
    pub name: &'static str,
    /// The request.
    pub request: AgentRequest,
}

/// Jobs that requests name. All belong to one user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    /// A job that waits.
    pub pending: JobId,
    /// An array that waits.
    pub array: JobId,
    /// A job that runs.
    pub running: JobId,
}

kinds!(
    /// Kinds of commands.
    pub COMMANDS, command_name, UserCommand:
    Submit SubmitHet Cancel Signal Hold Release Requeue Suspend Resume UpdateJob UpdateNodes UpdatePartition EndAllocation
    Reconfigure Top CreatePartition Reboot CancelReboot DeletePartition CreateReservation UpdateReservation EditAccounts
    DeleteReservation UpdateStep Notify CreateNodes DeleteNodes TakeNode SetCrontab Trigger
);
kinds!(
    /// Kinds of queries.
    pub QUERIES, query_name, Query:
    Ping Jobs Cluster Config Script Allocation Accounting Diag Partitions ResetDiag Reservations NodeEvents Transactions
    Differences Accounts AccountsOfClusters AccountsInUse JobClasses Priorities Licenses Listing Why Crontab JobCounts Usage
    Changes Environment JobText ReservationTimes Triggers Storage KnownClusters
);
kinds!(
    /// Kinds of requests to the controller.
    pub BODIES, body_name, RequestBody:
    Command Query WaitStarted WaitEnded Hold NodeHello Shutdown WaitNodes SetDebug ServeNode Token NodeToken
    ForgetNodeKeys NodeKeys Archive
);
kinds!(
    /// Kinds of requests to an agent.
    pub AGENT_REQUESTS, agent_name, AgentRequest:
    Create StartStep StepNodeEnded FindStep SignalStep Inspect Measure LocateStep TakeStepNumber ServeNode Greeting
);

fn name_of(body: &RequestBody) -> &'static str {
    match body {
        RequestBody::Command(command) => command_name(command),
        RequestBody::Query(query) => query_name(query),
        _ => body_name(body),
    }
}

/// The set of one range.
pub fn range(first: u32, last: u32) -> IndexSet {
    let mut set = IndexSet::default();
    set.insert_range(first, last);
    set
}

/// A job by its number.
pub fn target(job: JobId) -> JobTarget {
    JobTarget {
        job,
        tasks: None,
        component: None,
    }
}

/// Names of script and context in a request; the controller has its own.
pub const SCRIPT: BlobId = BlobId([1; 32]);
/// See [`SCRIPT`].
pub const CONTEXT: BlobId = BlobId([2; 32]);

/// A small batch job in a directory.
pub fn job(work_dir: &str) -> JobSpec {
    JobSpec {
        name: "hostile".to_owned(),
        kind: JobKind::Batch,
        script: Some(SCRIPT),
        context: Some(CONTEXT),
        work_dir: work_dir.to_owned(),
        stdio: StdioSpec {
            stdout: Some("/dev/null".to_owned()),
            ..StdioSpec::default()
        },
        time_limit: Some(TimeLimit::Minutes(5)),
        ..JobSpec::default()
    }
}

/// An environment for jobs.
pub fn context(variables: &[&str]) -> ExecContext {
    let path = "PATH=/usr/local/bin:/usr/bin:/bin";
    ExecContext {
        environment: std::iter::once(&path)
            .chain(variables)
            .collect::<Environment>(),
        umask: 0o022,
        soft_limits: vec![SoftLimit::new(3, 8 << 20)],
    }
}

/// Script and context as a submission carries them.
pub fn blobs(script: &str, variables: &[&str]) -> Vec<(BlobId, ByteVec)> {
    let mut encoded = Vec::new();
    minicbor::encode(context(variables), &mut encoded).expect("writing to memory cannot fail");
    vec![
        (SCRIPT, script.as_bytes().to_vec().into()),
        (CONTEXT, encoded.into()),
    ]
}

/// A submission.
pub fn submit(spec: JobSpec, script: &str) -> RequestBody {
    submit_with(spec, blobs(script, &[]))
}

/// A submission with its blobs.
pub fn submit_with(spec: JobSpec, blobs: Vec<(BlobId, ByteVec)>) -> RequestBody {
    RequestBody::Command(Box::new(UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: false,
    }))
}

/// A specification in which every field says something, for changing each of them.
pub fn full_job(work_dir: &str) -> JobSpec {
    let text = |text: &str| Some(text.to_owned());
    let gres = || GresAsk {
        name: "gpu".to_owned(),
        kind: text("a100"),
        count: 1,
    };
    JobSpec {
        owner: Owner {
            uid: 1,
            gid: 1,
            user: "daemon".to_owned(),
            group: "daemon".to_owned(),
        },
        account: text("account"),
        qos: text("normal"),
        partitions: vec!["batch".to_owned()],
        argv: vec!["argument".to_owned()],
        command: "/bin/true".to_owned(),
        submit_line: "sbatch --wrap true".to_owned(),
        submit_host: "host".to_owned(),
        submit_sid: 12,
        ask: ResourceAsk {
            max_nodes: Some(1),
            ntasks: Some(1),
            cpus_per_task: Some(1),
            ntasks_per_node: Some(1),
            min_cpus_per_node: Some(1),
            memory: MemoryAsk::PerCpu(1),
            gres: vec![gres()],
            devices: Some(Box::new(DeviceAsk {
                per_job: vec![gres()],
                per_task: vec![gres()],
                ..DeviceAsk::default()
            })),
            nodelist: text("n1"),
            exclude: text("n2"),
            distribution: text("block:cyclic"),
            switches: Some(SwitchAsk {
                count: 1,
                wait_s: Some(10),
            }),
            ..ResourceAsk::default()
        },
        time_min: Some(TimeLimit::Minutes(1)),
        begin: Some(Timestamp(1_000)),
        deadline: Some(Timestamp(4_102_444_800_000)),
        hold: true,
        priority: Some(3),
        nice: 1,
        requeue: Some(true),
        dependency: Dependency {
            terms: vec![
                DependencyTerm::Job {
                    kind: DependencyKind::AfterAny,
                    job: JobId(1),
                    task: Some(1),
                    delay_minutes: 1,
                },
                DependencyTerm::Singleton,
            ],
            any: true,
        },
        array: Some(ArraySpec {
            indices: range(1, 3),
            throttle: Some(1),
        }),
        warn_signal: Some(WarnSignal {
            signal: 10,
            before_s: 60,
            batch_only: true,
        }),
        comment: text("comment"),
        wckey: text("key"),
        kill_on_invalid_dep: Some(true),
        immediate_s: Some(1),
        mail: MailOptions::of_texts("END".to_owned(), "nobody".to_owned()),
        export: text("ALL"),
        licenses: text("a:1"),
        reservation: text("r"),
        shown: vec![("Extra".to_owned(), "x".to_owned())],
        site_factor: 1,
        stdio: StdioSpec {
            stdin: text("/dev/null"),
            stdout: text("/dev/null"),
            stderr: text("/dev/null"),
            append: Some(true),
        },
        ..job(work_dir)
    }
}

/// Commands that an owner may give.
fn commands_of_owner(ids: &Ids) -> Vec<UserCommand> {
    let waiting = || target(ids.pending);
    let running = || target(ids.running);
    let selection = |job| JobSelection {
        targets: vec![target(job)],
        ..JobSelection::default()
    };
    vec![
        UserCommand::Hold {
            target: waiting(),
            user: true,
        },
        UserCommand::Release { target: waiting() },
        UserCommand::UpdateJob {
            target: waiting(),
            update: Box::new(JobUpdate {
                comment: Some("changed".to_owned()),
                name: Some("changed".to_owned()),
                ..JobUpdate::default()
            }),
        },
        UserCommand::Top { target: waiting() },
        UserCommand::Notify {
            target: running(),
            text: "text".to_owned(),
        },
        UserCommand::UpdateStep {
            target: running(),
            step: None,
            time_limit: TimeLimit::Minutes(1),
        },
        UserCommand::Requeue {
            target: running(),
            hold: true,
            special_exit: false,
            incomplete: false,
        },
        UserCommand::Signal {
            selection: selection(ids.running),
            signal: 10,
            scope: SignalScope::Full,
        },
        UserCommand::EndAllocation {
            job: ids.running,
            exit: ExitStatus { code: 1, signal: 0 },
        },
        UserCommand::Cancel {
            selection: JobSelection {
                targets: vec![JobTarget {
                    tasks: Some(range(1, 2)),
                    ..target(ids.array)
                }],
                ..JobSelection::default()
            },
        },
        UserCommand::Cancel {
            selection: selection(ids.pending),
        },
    ]
}

fn commands_of_administrator(ids: &Ids) -> Vec<UserCommand> {
    let reservation = || ReservationAsk {
        name: Some("r1".to_owned()),
        start: Some(Timestamp(4_000_000_000_000)),
        duration: Some(TimeLimit::Minutes(10)),
        nodes: Some("n1".to_owned()),
        users: Some(muster_model::command::NameList::Only(vec![
            "root".to_owned(),
        ])),
        ..ReservationAsk::default()
    };
    let drain = NodeUpdate {
        state: Some("DRAIN".to_owned()),
        reason: Some("hostile".to_owned()),
        ..NodeUpdate::default()
    };
    let mut all = vec![
        UserCommand::Suspend {
            target: target(ids.running),
        },
        UserCommand::Resume {
            target: target(ids.running),
        },
        UserCommand::UpdateNodes {
            nodes: "n1".to_owned(),
            update: drain,
        },
        UserCommand::UpdatePartition {
            name: "batch".to_owned(),
            pairs: vec![("State".to_owned(), "DOWN".to_owned())],
            read: Vec::new(),
        },
        UserCommand::Reconfigure,
        UserCommand::CreatePartition {
            name: "p1".to_owned(),
            pairs: vec![("Nodes".to_owned(), "n1".to_owned())],
        },
        UserCommand::DeletePartition {
            name: "p1".to_owned(),
        },
        UserCommand::CreateNodes {
            nodes: vec![NodeConfig {
                name: "hostile".to_owned(),
                ..NodeConfig::default()
            }],
        },
        UserCommand::DeleteNodes {
            nodes: "hostile".to_owned(),
        },
        UserCommand::TakeNode(Box::default()),
        UserCommand::Reboot {
            nodes: "n1".to_owned(),
            asap: true,
            down_after: true,
            reason: Some("hostile".to_owned()),
        },
        UserCommand::CancelReboot {
            nodes: "n1".to_owned(),
        },
        UserCommand::Trigger(Box::new(TriggerAsk::Set {
            events: TriggerEvents::DOWN,
            job: None,
            nodes: "n1".to_owned(),
            offset_s: 0,
            program: "/bin/true".to_owned(),
            permanent: false,
        })),
        UserCommand::CreateReservation(Box::new(reservation())),
        UserCommand::UpdateReservation(Box::new(reservation())),
        UserCommand::DeleteReservation {
            name: "r1".to_owned(),
        },
    ];
    let of_accounts = accounts::edits().into_iter();
    all.extend(of_accounts.map(|ask| accounts::edit(&["x"], ask)));
    all
}

fn queries(ids: &Ids) -> Vec<(Rights, Query)> {
    let filter = || JobFilter {
        ids: vec![ids.pending],
        starts: true,
        ..JobFilter::default()
    };
    use Rights::{Administrator, Anyone, Owner};
    vec![
        (Anyone, Query::Ping),
        (Anyone, Query::Jobs(filter())),
        (Anyone, Query::Cluster),
        (Anyone, Query::Config),
        (Owner, Query::Script(ids.running)),
        (Owner, Query::Environment(ids.running)),
        (Owner, Query::Allocation(ids.running)),
        (Anyone, Query::Accounting(Box::default())),
        (
            Anyone,
            Query::ReservationTimes(ReservationTimesQuery::default()),
        ),
        (
            Anyone,
            Query::JobText(JobTextQuery {
                job: ids.running,
                kind: JobTextKind::Environment,
            }),
        ),
        (Anyone, Query::Diag),
        (Anyone, Query::Partitions),
        (Administrator, Query::ResetDiag),
        (Anyone, Query::Reservations),
        (Anyone, Query::NodeEvents(NodeEventQuery::default())),
        (Anyone, Query::Transactions(TransactionQuery::default())),
        (Anyone, Query::Storage),
        (Anyone, Query::KnownClusters),
        (Administrator, Query::Differences),
        (Anyone, Query::Accounts),
        (Anyone, Query::AccountsOfClusters),
        (Anyone, Query::AccountsInUse),
        (Anyone, Query::JobClasses),
        (Anyone, Query::Priorities),
        (Anyone, Query::Licenses),
        (Anyone, Query::Listing(filter())),
        (
            Anyone,
            Query::Why {
                job: ids.pending,
                is_brief: false,
            },
        ),
        (Anyone, Query::Crontab { uid: None }),
        (Anyone, Query::Triggers),
        (Anyone, Query::JobCounts),
        (
            Anyone,
            Query::Usage(UsageQuery {
                start: Timestamp(1_000),
                end: Timestamp(4_102_444_800_000),
            }),
        ),
        (Anyone, Query::Changes(ChangesQuery::default())),
    ]
}

/// A request of each kind to the controller, and of some kinds more than one. Those that would stop the cluster come last.
pub fn samples(ids: &Ids) -> Vec<Sample> {
    let sample = |rights, body| Sample {
        name: name_of(&body),
        rights,
        body,
    };
    let command = |rights| move |c| sample(rights, RequestBody::Command(Box::new(c)));
    let spec = || job("/");
    let (script, test_only) = ("#!/bin/sh\n", false);
    let submissions = [
        UserCommand::Submit {
            spec: Box::new(spec()),
            blobs: blobs(script, &[]),
            test_only,
        },
        UserCommand::SubmitHet {
            specs: vec![
                spec(),
                // The first one has the script of all.
                JobSpec {
                    script: None,
                    kind: JobKind::Allocation,
                    ..spec()
                },
            ],
            blobs: blobs(script, &[]),
            test_only,
        },
        UserCommand::SetCrontab(Box::new(CrontabAsk {
            owner: Owner::default(),
            text: Some("@yearly true\n".to_owned()),
            jobs: vec![spec()],
            blobs: blobs(script, &[]),
        })),
    ];
    let mut all: Vec<Sample> = Vec::new();
    all.extend(submissions.into_iter().map(command(Rights::Anyone)));
    // Before the job ends or waits again by what comes then.
    all.push(sample(Rights::Owner, RequestBody::WaitStarted(ids.running)));
    all.extend(
        commands_of_owner(ids)
            .into_iter()
            .map(command(Rights::Owner)),
    );
    all.extend(
        queries(ids)
            .into_iter()
            .map(|(rights, query)| sample(rights, RequestBody::Query(Box::new(query)))),
    );
    all.extend([
        sample(Rights::Anyone, RequestBody::WaitEnded(JobId(u64::MAX))),
        sample(Rights::Owner, RequestBody::Hold(ids.running)),
        sample(Rights::Anyone, RequestBody::WaitNodes(1)),
        sample(
            Rights::Anyone,
            RequestBody::Token {
                user: None,
                lifespan_s: None,
            },
        ),
    ]);
    let administrators = commands_of_administrator(ids);
    all.extend(
        administrators
            .into_iter()
            .map(command(Rights::Administrator)),
    );
    all.extend([
        sample(
            Rights::Administrator,
            RequestBody::SetDebug("info".to_owned()),
        ),
        sample(
            Rights::Administrator,
            RequestBody::NodeToken {
                node: Some("n1".to_owned()),
                lifespan_s: None,
            },
        ),
        sample(
            Rights::Administrator,
            RequestBody::ForgetNodeKeys(vec!["n1".to_owned()]),
        ),
        sample(Rights::Administrator, RequestBody::NodeKeys),
        sample(Rights::Administrator, archive_dump(None)),
        sample(Rights::Administrator, archive_dump(Some("/tmp"))),
        sample(
            Rights::Administrator,
            RequestBody::Archive(ArchiveRequest::Load {
                file: "/etc/passwd".to_owned(),
            }),
        ),
        sample(
            Rights::Administrator,
            RequestBody::ServeNode("n1".to_owned()),
        ),
        sample(
            Rights::Administrator,
            RequestBody::NodeHello(Box::new(NodeHello {
                name: "n1".to_owned(),
                info: NodeInfo::default(),
                present: Vec::new(),
                key: vec![7; 32].into(),
                launcher_key: vec![8; 32].into(),
                dynamic: None,
            })),
        ),
        sample(Rights::Administrator, RequestBody::Shutdown { nodes: true }),
    ]);
    all
}

/// Purges what nobody has: jobs of a century ago.
fn archive_dump(dir: Option<&str>) -> RequestBody {
    RequestBody::Archive(ArchiveRequest::Dump(Box::new(ArchiveDump {
        dir: dir.map(str::to_owned),
        script: None,
        kept: vec![ArchivedKind::Jobs],
        ages: vec![PurgeAge {
            kind: ArchivedKind::Jobs,
            count: 1200,
            unit: AgeUnit::Months,
        }],
    })))
}

/// Request of srun for a step, without a key.
pub fn step(job: JobId, argv: &[&str]) -> StepSpec {
    StepSpec {
        job,
        name: "hostile".to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        context: context(&[]),
        work_dir: "/".to_owned(),
        ntasks: Some(1),
        immediate: true,
        ..StepSpec::default()
    }
}

/// A step in which most fields say something.
pub fn full_step(job: JobId) -> StepSpec {
    let text = |text: &str| Some(text.to_owned());
    StepSpec {
        key: Some(vec![1; 32].into()),
        min_nodes: Some(1),
        max_nodes: Some(1),
        cpus_per_task: Some(1),
        ntasks_per_node: Some(1),
        nodelist: text("n1"),
        exclude: text("n2"),
        relative: Some(0),
        distribution: text("block"),
        memory: MemoryAsk::PerCpu(1),
        multi_prog: vec![("0".to_owned(), "true".to_owned())],
        pty: Some((24, 80)),
        time_limit: Some(TimeLimit::Minutes(1)),
        cpu_bind: text("none"),
        mpi: text("none"),
        extra_env: vec![("A".to_owned(), "b".to_owned())],
        mem_bind: text("none"),
        threads_per_core: Some(1),
        het: Some(HetStep::default()),
        maker: Some(StepMaker {
            host: "host".to_owned(),
            pid: 1,
        }),
        tree_width: Some(2),
        ..step(job, &["true"])
    }
}

/// A layout for a step that nobody made.
pub fn launch(job: JobId, key: &[u8]) -> StepLaunch {
    StepLaunch {
        key: key.to_vec().into(),
        spec: StepSpec {
            key: Some(key.to_vec().into()),
            ..step(job, &["/bin/sleep", "1000"])
        },
        step: StepNo(77),
        step_key: vec![3; 32].into(),
        position: 0,
        tasks: vec![vec![0]],
        names: vec!["n1".to_owned()],
        cpus: muster_model::cpuset::CpuSet::first(1),
        memory_mib: 1,
        gres: Vec::new(),
        lead: "unix:/nonexistent".to_owned(),
        width: 0,
        above: None,
    }
}

/// A request of each kind to an agent, about a job that the agent has, with a key.
pub fn agent_samples(job: JobId, key: &[u8]) -> Vec<AgentSample> {
    let key = || ByteVec::from(key.to_vec());
    let requests = [
        AgentRequest::Inspect { job },
        AgentRequest::Measure { job },
        AgentRequest::LocateStep {
            job,
            step: StepNo(0),
        },
        AgentRequest::TakeStepNumber {
            job,
            key: Some(key()),
        },
        AgentRequest::SignalStep {
            job,
            key: key(),
            step: StepNo::BATCH,
            signal: 9,
            below: vec!["unix:/nonexistent".to_owned()],
        },
        AgentRequest::FindStep {
            job,
            key: key(),
            step: StepNo(0),
        },
        AgentRequest::StepNodeEnded {
            job,
            key: key(),
            step: StepNo(0),
            position: 0,
            end: Box::new(StepEnd::never_ran(Timestamp(1))),
            others: vec![NodeEnd {
                position: 1,
                end: StepEnd::never_ran(Timestamp(1)),
            }],
            onwards: false,
        },
        AgentRequest::StartStep(
            Box::new(launch(job, &key())),
            vec![StepShare {
                address: "unix:/nonexistent".to_owned(),
                cpus: muster_model::cpuset::CpuSet::first(1),
                memory_mib: 1,
                gres: Vec::new(),
            }],
        ),
        AgentRequest::Create(Box::new(full_step(job))),
        AgentRequest::ServeNode("n1".to_owned(), None),
        // A version that does not exist: others are taken from everybody.
        AgentRequest::Greeting(Greeting {
            protocol: u32::MAX,
            ..Greeting::default()
        }),
    ];
    requests
        .into_iter()
        .map(|request| AgentSample {
            name: agent_name(&request),
            request,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_request_is_there() {
        let ids = Ids::default();
        let there: BTreeSet<&str> = samples(&ids).iter().map(|s| s.name).collect();
        let wanted = [COMMANDS, QUERIES, BODIES].concat();
        let wanted: BTreeSet<&str> = wanted.into_iter().collect();
        // A command or a query is there under its own name.
        let containers = BTreeSet::from(["Command", "Query"]);
        assert_eq!(&wanted - &containers, there);
        let agents = agent_samples(JobId(1), &[0; 32]);
        let there: BTreeSet<&str> = agents.iter().map(|s| s.name).collect();
        assert_eq!(
            AGENT_REQUESTS.iter().copied().collect::<BTreeSet<_>>(),
            there
        );
    }
}
