//! Records of ended jobs: `JobCompType=jobcomp/filetxt` appends a line to a file, `jobcomp/script` runs a program.

use super::record::ProgramJob;
use super::variable;
use muster_model::job::ArrayRole;
use muster_model::time::{TimeLimit, Timestamp};

/// The record of a job as a line.
pub(super) fn line(job: &ProgramJob, cluster: &str) -> String {
    let (spec, owner) = (&job.spec, &job.spec.owner);
    let alloc = job.alloc.as_ref();
    format!(
        "JobId={} UserId={}({}) GroupId={}({}) Name={} JobState={} Partition={} TimeLimit={} StartTime={} EndTime={} \
         NodeList={} NodeCnt={} ProcCnt={} WorkDir={} ReservationName={} Tres={} Account={} QOS={} WcKey={} Cluster={} \
         SubmitTime={} EligibleTime={}{} DerivedExitCode={}:{} ExitCode={}:{} \n",
        job.id,
        owner.user,
        owner.uid,
        owner.group,
        owner.gid,
        spec.name,
        job.state.name(),
        job.partition,
        limit(job),
        time(job.start_time),
        time(job.end_time),
        alloc.map_or("(null)", |a| a.hostlist.as_str()),
        alloc.map_or(0, |a| a.nodes),
        alloc.map_or(0, |a| a.cpus),
        spec.work_dir,
        spec.reservation.as_deref().unwrap_or_default(),
        tres(job),
        spec.account_name(),
        spec.qos_name(),
        spec.wckey.as_deref().unwrap_or_default(),
        cluster,
        time(Some(job.submit_time)),
        time(job.eligible_time),
        array(job),
        job.derived_exit.code,
        job.derived_exit.signal,
        job.exit.code,
        job.exit.signal,
    )
}

/// Variables for a program of `jobcomp/script`, beside those for all of the controller's programs.
pub(super) fn script_env(job: &ProgramJob, cluster: &str) -> Vec<(String, String)> {
    let (spec, owner) = (&job.spec, &job.spec.owner);
    let alloc = job.alloc.as_ref();
    let unix = |at: Option<Timestamp>| at.map_or(0, Timestamp::unix_s);
    let mut env = vec![
        variable("ACCOUNT", spec.account_name()),
        variable("CLUSTER", cluster),
        variable("END", unix(job.end_time)),
        variable("ELIGIBLE", unix(job.eligible_time)),
        variable("EXITCODE", format!("{}:{}", job.exit.code, job.exit.signal)),
        variable(
            "DERIVED_EC",
            format!("{}:{}", job.derived_exit.code, job.derived_exit.signal),
        ),
        variable("GID", owner.gid),
        variable("GROUPNAME", &owner.group),
        variable("JOBID", job.id),
        variable("JOBNAME", &spec.name),
        variable("JOBSTATE", job.state.name()),
        variable("LIMIT", limit(job)),
        variable("NODECNT", alloc.map_or(0, |a| a.nodes)),
        variable("NODES", alloc.map_or("", |a| a.hostlist.as_str())),
        variable("PARTITION", &job.partition),
        variable("PROCS", alloc.map_or(0, |a| a.cpus)),
        variable("QOS", spec.qos_name()),
        variable("RESTARTS", job.restarts),
        variable("START", unix(job.start_time)),
        variable("SUBMIT", unix(Some(job.submit_time))),
        variable("UID", owner.uid),
        variable("USERNAME", &owner.user),
        variable("WORK_DIR", &spec.work_dir),
    ];
    if let ArrayRole::Task { base, index } = job.array {
        env.push(variable("ARRAYJOBID", base));
        env.push(variable("ARRAYTASKID", index));
    }
    env
}

fn array(job: &ProgramJob) -> String {
    match job.array {
        ArrayRole::Task { base, index } => format!(" ArrayJobId={base} ArrayTaskId={index}"),
        ArrayRole::None | ArrayRole::Pending { .. } => String::new(),
    }
}

fn limit(job: &ProgramJob) -> String {
    match job.time_limit {
        TimeLimit::Minutes(minutes) => minutes.to_string(),
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
    }
}

fn tres(job: &ProgramJob) -> String {
    let Some(alloc) = job.alloc.as_ref() else {
        return String::new();
    };
    let (cpus, memory) = (alloc.cpus, alloc.memory_mib);
    let mut text = format!("cpu={cpus}");
    if memory > 0 {
        text.push_str(&format!(",mem={memory}M"));
    }
    text.push_str(&format!(",node={},billing={cpus}", alloc.nodes));
    text
}

/// `2026-11-21T21:53:46` where the controller is.
pub(super) fn time(at: Option<Timestamp>) -> String {
    let known = at.and_then(|at| jiff::Timestamp::from_second(at.unix_s()).ok());
    known.map_or_else(
        || "Unknown".to_owned(),
        |at| {
            let local = at.to_zoned(muster_conf::zone::local());
            local.strftime("%Y-%m-%dT%H:%M:%S").to_string()
        },
    )
}
