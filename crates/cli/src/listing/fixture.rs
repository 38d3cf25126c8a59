//! A cluster for tests: the one that a real Slurm 22.05.8 was in when the expected texts of these tests were printed
//! (four nodes of 16 CPUs, two partitions, CPUs consumable and memory not).

use super::context::Ctx;
use super::query::Jobs;
use jiff::tz::TimeZone;
use muster_model::config::{
    ClusterConfig, EnforcePartLimits, OverSubscribe, PartitionConfig, PartitionState,
};
use muster_model::cpuset::CpuSet;
use muster_model::ids::{Attempt, JobId, NodeIdx, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{
    AfterCompleting, Allocation, ArrayInfo, ArrayRole, ExitStatus, Hold, Job, JobState, NodeShare,
    Reason, Step,
};
use muster_model::node::{Node, NodeConfig, NodeInfo, NodeLink};
use muster_model::node_state::InitialState;
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, JobKind, JobSpec, MemoryAsk, Owner,
    Sharing, StdioSpec,
};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

/// 2026-11-21T20:23:00.
pub(crate) const T: i64 = 1_795_292_580;

/// So many seconds after 20:23:00.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_s(T + seconds)
}

/// A pending job of one CPU, submitted at 20:23:38.
pub(crate) fn job(id: u64, name: &str) -> Job {
    let scratch = "/tmp/peer/slurm/acct/scratch/cap.XZYxPe";
    let null = || Some("/dev/null".to_owned());
    let spec = JobSpec {
        name: name.to_owned(),
        owner: Owner {
            uid: 0,
            gid: 0,
            user: "root".to_owned(),
            group: "root".to_owned(),
        },
        account: Some("root".to_owned()),
        qos: Some("normal".to_owned()),
        partitions: vec!["batch".to_owned()],
        command: format!("{scratch}/sleep.sh"),
        work_dir: scratch.to_owned(),
        stdio: StdioSpec {
            stdout: null(),
            ..StdioSpec::default()
        },
        submit_host: "localhost".to_owned(),
        submit_sid: 2992,
        ..JobSpec::default()
    };
    Job {
        end_by: None,
        predicted_s: None,
        priority_fixed: false,
        priority_least: 0,
        het: None,
        preempted: None,
        cpus_released_by_preemption: false,
        resumed: false,
        power_up: None,
        gang_slice_ends: None,
        stopped_by_calendar: false,
        id: JobId(id),
        spec: Arc::new(spec),
        array: ArrayRole::None,
        state: JobState::Pending,
        completing: false,
        reason: Reason::None,
        reason_detail: None,
        hold: Hold::None,
        priority: 11_000,
        submit_time: at(38),
        eligible_time: Some(at(38)),
        start_time: None,
        end_time: None,
        suspend_time: None,
        suspended_ms: 0,
        restarts: 0,
        attempt: Attempt(0),
        alloc: None,
        resize_time: None,
        resizes: 0,
        accrual: None,
        nodes_held: CpuSet::default(),
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        time_limit: TimeLimit::Minutes(60),
        waiting_on: Vec::new(),
        steps: Vec::new(),
        after_completing: AfterCompleting::End,
        cancelled_by: None,
        partition: "batch".to_owned(),
        warned: false,
        term_time: None,
        requeueable: true,
        special_exit: false,
        configuring: false,
        last_sched_eval: Some(at(39)),
        expected_start: None,
        switch_wait_since: None,
        next_step: 0,
        unreported_steps: muster_model::index_set::IndexSet::default(),
        begin_at: None,
    }
}

/// Changes the job's specification.
pub(crate) fn ask(job: &mut Job, change: impl FnOnce(&mut JobSpec)) {
    change(Arc::make_mut(&mut job.spec));
}

/// Starts a job at 20:23:34 on nodes, with these CPUs of each.
pub(crate) fn start(job: &mut Job, hostlist: &str, cpus: &[&[u32]]) {
    let names = muster_model::hostlist::parse(hostlist).unwrap();
    let nodes: Vec<NodeShare> = names
        .into_iter()
        .zip(cpus)
        .map(|(name, cpus)| NodeShare {
            node: NodeIdx(name[1..].parse::<u32>().unwrap() - 1),
            name,
            cpus: cpus.iter().copied().collect(),
            memory_mib: 0,
            tasks: u32::try_from(cpus.len()).unwrap(),
            gres: Vec::new(),
        })
        .collect();
    job.state = JobState::Running;
    job.reason = Reason::None;
    job.submit_time = at(33);
    job.eligible_time = Some(at(33));
    job.start_time = Some(at(34));
    job.last_sched_eval = Some(at(34));
    job.nodes_held = CpuSet::first(u32::try_from(nodes.len()).unwrap());
    job.alloc = Some(Arc::new(Allocation {
        reservation: None,
        end_by: None,
        billing_milli: 0,
        billing_units_milli: None,
        cpus_counted: None,
        mcs_label: None,
        usage_factor_millionths: None,
        backfilled: false,
        sharers: 0,
        only_user: None,
        licenses: Vec::new(),
        ntasks: nodes.iter().map(|n| n.tasks).sum(),
        nodes,
        partition: job.partition.clone(),
        exclusive: false,
        hostlist: hostlist.to_owned(),
    }));
}

/// Ends a job in a state after this number of seconds.
pub(crate) fn end(job: &mut Job, state: JobState, reason: Reason, seconds: i64) {
    start(job, "n1", &[&[0]]);
    job.state = state;
    job.reason = reason;
    job.start_time = Some(at(11));
    job.end_time = Some(at(11 + seconds));
    job.nodes_held = CpuSet::default();
}

/// A running step on n1.
pub(crate) fn step(number: StepNo, name: &str, tasks: u32) -> Step {
    Step {
        step: number,
        name: name.to_owned(),
        hostlist: "n1".to_owned(),
        nodes: 1,
        tasks,
        cpus: tasks,
        memory_mib: 0,
        start_time: at(34),
        stdio: StdioSpec::default(),
        submit_line: String::new(),
        time_limit: None,
        distribution: Some("Block".to_owned()),
        maker: None,
        devices: Vec::new(),
        device_ask: None,
    }
}

fn depends(job: &mut Job, kind: DependencyKind, on: u64) {
    let term = DependencyTerm::Job {
        kind,
        job: JobId(on),
        task: None,
        delay_minutes: 0,
    };
    job.waiting_on = vec![term.clone()];
    ask(job, |spec| {
        spec.dependency = Dependency {
            terms: vec![term],
            any: false,
        };
    });
}

fn indices(list: &[u32]) -> IndexSet {
    let mut set = IndexSet::default();
    list.iter().for_each(|i| set.insert(*i));
    set
}

fn waiting() -> Vec<Job> {
    let mut afternok = job(5, "afternok");
    afternok.submit_time = at(8);
    afternok.eligible_time = None;
    afternok.reason = Reason::DependencyNeverSatisfied;
    depends(&mut afternok, DependencyKind::AfterOk, 3);
    let mut full = job(14, "full");
    full.partition = "short".to_owned();
    full.time_limit = TimeLimit::Minutes(20);
    full.reason = Reason::Resources;
    let mut pending = job(15, "pending");
    pending.time_limit = TimeLimit::Minutes(2880);
    pending.reason = Reason::NodesUnavailable;
    for job in [&mut full, &mut pending] {
        let partition = job.partition.clone();
        ask(job, |spec| {
            spec.partitions = vec![partition];
            spec.ask.min_nodes = 4;
            spec.ask.max_nodes = Some(4);
            spec.ask.nodes_set = true;
            spec.ask.sharing = Sharing::Exclusive;
        });
    }
    let mut held = job(16, "held");
    held.reason = Reason::JobHeldUser;
    held.hold = Hold::User;
    held.priority = 0;
    held.eligible_time = None;
    let mut future = job(17, "future");
    future.reason = Reason::BeginTime;
    future.eligible_time = None;
    future.begin_at = Some(at(38 + 3600));
    ask(&mut future, |spec| spec.begin = Some(at(38 + 3600)));
    let mut dep = job(18, "dep");
    dep.reason = Reason::Dependency;
    dep.eligible_time = None;
    depends(&mut dep, DependencyKind::AfterAny, 9);
    vec![afternok, full, pending, held, future, dep]
}

fn running() -> Vec<Job> {
    let mut two_nodes = job(9, "running");
    start(&mut two_nodes, "n[1-2]", &[&[0, 1, 2], &[0]]);
    two_nodes.steps = [step(StepNo::BATCH, "batch", 1)].map(Arc::new).into();
    ask(&mut two_nodes, |spec| {
        spec.comment = Some("hello".to_owned());
        spec.ask.min_nodes = 2;
        spec.ask.ntasks = Some(4);
    });
    let mut with_step = job(10, "withstep");
    start(&mut with_step, "n1", &[&[3, 4]]);
    with_step.steps = [step(StepNo(0), "sleep", 2), step(StepNo::BATCH, "batch", 1)]
        .map(Arc::new)
        .into();
    ask(&mut with_step, |spec| {
        spec.command = String::new();
        spec.ask.ntasks = Some(2);
        spec.ask.memory = MemoryAsk::PerNode(50);
    });
    let mut array = job(11, "arrayrun");
    array.array = ArrayRole::Pending {
        indices: indices(&[4, 6, 8]),
    };
    array.reason = Reason::JobArrayTaskLimit;
    array.submit_time = at(33);
    array.eligible_time = Some(at(34));
    array.last_sched_eval = Some(at(34));
    let mut tasks = vec![two_nodes, with_step, array];
    for (id, index, cpu) in [(12, 0, 5), (13, 2, 6)] {
        let mut task = job(id, "arrayrun");
        start(&mut task, "n1", &[&[cpu]]);
        task.array = ArrayRole::Task {
            base: JobId(11),
            index,
        };
        task.eligible_time = Some(at(34));
        task.steps = [step(StepNo::BATCH, "batch", 1)].map(Arc::new).into();
        tasks.push(task);
    }
    for task in &mut tasks[2..] {
        ask(task, |spec| {
            spec.array = Some(ArraySpec {
                indices: indices(&[0, 2, 4, 6, 8]),
                throttle: Some(2),
            });
        });
    }
    tasks
}

fn ended() -> Vec<Job> {
    let mut all = Vec::new();
    for (id, name, state, reason, seconds) in [
        (1, "envdump", JobState::Completed, Reason::None, 1),
        (3, "failing", JobState::Failed, Reason::NonZeroExitCode, 0),
        (
            4,
            "signalled",
            JobState::Failed,
            Reason::JobLaunchFailure,
            0,
        ),
        (8, "interactive", JobState::Completed, Reason::None, 0),
    ] {
        let mut job = job(id, name);
        end(&mut job, state, reason, seconds);
        all.push(job);
    }
    start_on_two(&mut all[0]);
    all[1].exit = ExitStatus { code: 7, signal: 0 };
    all[2].exit = ExitStatus { code: 0, signal: 9 };
    ask(&mut all[3], |spec| {
        spec.kind = JobKind::Allocation;
        spec.command = String::new();
    });
    for (id, index) in [(6, 1), (7, 2), (2, 3)] {
        let mut task = job(id, "arr.sh");
        end(&mut task, JobState::Completed, Reason::None, 0);
        task.array = ArrayRole::Task {
            base: JobId(2),
            index,
        };
        all.push(task);
    }
    all
}

fn start_on_two(job: &mut Job) {
    let before = job.clone();
    start(job, "n[1-2]", &[&[0, 1, 2, 3], &[0, 1, 2, 3]]);
    job.state = before.state;
    job.start_time = before.start_time;
    job.end_time = before.end_time;
}

/// All jobs, by number.
pub(crate) fn jobs() -> Jobs {
    let mut jobs: Vec<Job> = waiting()
        .into_iter()
        .chain(running())
        .chain(ended())
        .collect();
    jobs.sort_by_key(|job| job.id);
    let array = ArrayInfo {
        throttle: Some(2),
        ..ArrayInfo::default()
    };
    Jobs {
        jobs: jobs.into(),
        arrays: [(JobId(11), array), (JobId(2), ArrayInfo::default())].into(),
        unknown: Vec::new(),
    }
}

fn partition(name: &str) -> PartitionConfig {
    PartitionConfig {
        name: name.to_owned(),
        nodes: (1..=4).map(|n| format!("n{n}")).collect(),
        nodes_text: "n[1-4]".to_owned(),
        default: false,
        state: PartitionState::Up,
        max_time: TimeLimit::Unlimited,
        default_time: None,
        min_nodes: 0,
        max_nodes: None,
        max_cpus_per_node: None,
        allow_groups: Vec::new(),
        allow_accounts: Vec::new(),
        deny_accounts: Vec::new(),
        allow_qos: Vec::new(),
        deny_qos: Vec::new(),
        alloc_nodes: Vec::new(),
        priority_tier: 1,
        priority_job_factor: 1,
        over_subscribe: OverSubscribe::No,
        default_memory: MemoryAsk::Default,
        max_memory: MemoryAsk::Default,
        hidden: false,
        root_only: false,
        disable_root_jobs: false,
        exclusive_user: false,
        lln: false,
        req_resv: false,
        qos: None,
        grace_time_s: 0,
        preempt_mode: None,
        over_time_limit_min: None,
        billing_weights: None,
        topology: None,
        ..PartitionConfig::named("")
    }
}

/// Node `n1` and so on, of which the lowest CPUs are taken.
pub(crate) fn node(number: u32, used: u32, free_mib: u64, last_busy: i64) -> Node {
    let mut free_cpus = CpuSet::first(16);
    free_cpus.subtract(&CpuSet::first(used));
    Node {
        idx: NodeIdx(number - 1),
        config: NodeConfig {
            name: format!("n{number}"),
            hostname: "vm".to_owned(),
            addr: "127.0.0.1".to_owned(),
            port: 17_110 + number,
            cpus: 16,
            boards: 1,
            sockets: 1,
            cores_per_socket: 16,
            threads_per_core: 1,
            memory_mib: 8000,
            tmp_disk_mib: 0,
            features: Vec::new(),
            gres: Vec::new(),
            weight: 1,
            state: InitialState::Unknown,
            reason: None,
            ..NodeConfig::default()
        },
        report: Some(NodeInfo {
            arch: "x86_64".to_owned(),
            os: "Linux 6.18.44-fc-v669 #1 SMP PREEMPT_DYNAMIC @0".to_owned(),
            boot_id: String::new(),
            boot_time: Timestamp::from_unix_s(1_795_286_168),
            agent_start: at(8),
            cpus: 16,
            memory_mib: 24_000,
            free_mib,
            load_centi: 1110,
            address: String::new(),
            version: "22.05.8".to_owned(),
            hostname: "vm".to_owned(),
            numa_domains: None,
            numa_distances: Vec::new(),
            cross_memory: None,
            trusted_by: None,
            control_groups: None,
        }),
        link: NodeLink::Up,
        down: false,
        drain: false,
        fail: false,
        reason: None,
        free_cpus,
        used_mib: 0,
        jobs: Vec::new(),
        exclusive: false,
        last_busy: Some(at(last_busy)),
        launch_failures: 0,
        used_gres: Vec::new(),
        removed: false,
        reboot: None,
        power: None,
        future: false,
        line_host: None,
        alone_by_label: 0,
        mcs_label: None,
        comment: None,
        shared_cpus: Vec::new(),
        alone: 0,
        alone_by_user: 0,
        only_user: None,
        stopped: 0,
    }
}

/// The surroundings at 20:23:45.
pub(crate) fn ctx() -> Ctx {
    let mut ctx = Ctx::bare("peer", TimeZone::UTC);
    ctx.now = at(45);
    let mut batch = partition("batch");
    batch.default = true;
    batch.default_time = Some(TimeLimit::Minutes(60));
    let mut short = partition("short");
    short.max_time = TimeLimit::Minutes(30);
    short.priority_tier = 10;
    ctx.partitions = vec![batch, short];
    ctx.nodes = vec![
        node(1, 7, 20_767, 33),
        node(2, 1, 20_766, 12),
        node(3, 0, 20_765, 8),
        node(4, 0, 20_765, 8),
    ];
    ctx.config = Some(ClusterConfig {
        cluster_name: "peer".to_owned(),
        nodes: Vec::new(),
        partitions: Vec::new(),
        first_job_id: 1,
        max_job_count: 300_000,
        max_array_size: 100_001,
        min_job_age_s: 300,
        kill_wait_s: 30,
        node_timeout_s: 300,
        return_to_service: 2,
        job_requeue: true,
        default_memory: MemoryAsk::Default,
        max_memory: MemoryAsk::Default,
        enforce_part_limits: EnforcePartLimits::No,
        memory_is_consumable: false,
        whole_nodes: false,
        backfill: true,
        over_time_limit_min: None,
        kill_invalid_depend: false,
        inactive_limit_s: 0,
        admin_uids: Vec::new(),
        whole_cores: false,
        select_parameters: Vec::new(),
        scheduler_parameters: Vec::new(),
        ..ClusterConfig::default()
    });
    ctx
}
