//! The state as scripts see it: partitions, jobs, reservations and accounting, by Slurm's names of fields.

use muster_core::decide::{means_all_components, unknown};
use muster_core::policy::access;
use muster_core::state::State;
use muster_model::command::{Identity, JobTarget};
use muster_model::config::{OverSubscribe, PartitionConfig, PartitionState};
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, JobState, Phase};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::Reservation;
use muster_model::rights::AccessRequest;
use muster_model::spec::{JobSpec, MemoryAsk};
use muster_model::time::{TimeLimit, Timestamp};
use muster_verifier::fields::{INFINITE, MEM_PER_CPU, NICE_OFFSET, NO_VAL, NO_VAL64, gres_text};
use muster_verifier::message::{DataQuery, DataReply, PART_BYTES_MAX, Row, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Kinds of records that one change may have for a verifier to see.
const KINDS_MAX: usize = 16;

/// Fields of a row; those without a value are left out.
#[derive(Default)]
struct Fields(Vec<(String, Value)>);

impl Fields {
    fn number(&mut self, name: &str, number: impl Into<i64>) {
        self.0.push((name.to_owned(), Value::Number(number.into())));
    }

    fn large(&mut self, name: &str, number: u64) {
        self.number(name, i64::try_from(number).unwrap_or(i64::MAX));
    }

    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            let value = Value::Text(text.to_owned());
            self.0.push((name.to_owned(), value));
        }
    }

    fn maybe(&mut self, name: &str, text: Option<&String>) {
        self.text(name, text.map_or("", String::as_str));
    }

    fn time(&mut self, name: &str, time: Option<Timestamp>) {
        self.number(name, time.map_or(0, Timestamp::unix_s));
    }

    fn memory(&mut self, per_node: &str, per_cpu: &str, memory: MemoryAsk) {
        match memory {
            MemoryAsk::Default => {}
            MemoryAsk::PerNode(mib) => self.large(per_node, mib),
            MemoryAsk::PerCpu(mib) => self.large(per_cpu, mib),
        }
    }

    fn row(self, key: &str) -> Row {
        Row {
            key: key.to_owned(),
            fields: self.0,
        }
    }
}

/// The answer to a question of a verifier's, about a request of this user.
pub(crate) fn answer(state: &State, identity: &Identity, question: &DataQuery) -> DataReply {
    match question {
        DataQuery::Partitions => {
            let usable = state.partitions.iter().filter(|p| may_use(identity, p));
            DataReply::Rows(usable.map(|p| partition(state, p)).collect())
        }
        DataQuery::JobsFrom(first) => jobs_from(state, JobId(*first)),
        DataQuery::Reservations => {
            DataReply::Rows(state.reservations.iter().map(reservation).collect())
        }
        DataQuery::Association { account, partition } => {
            DataReply::Rows(vec![association(state, identity, account, partition)])
        }
        DataQuery::QosPriority(name) => {
            let found = state.accounts.qos(&state.accounts.qos_key(name));
            DataReply::Number(found.map(|qos| i64::from(qos.priority)))
        }
    }
}

/// A part of the jobs, and where the next begins.
fn jobs_from(state: &State, first: JobId) -> DataReply {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for own in state.jobs.values_from(first) {
        if bytes >= PART_BYTES_MAX {
            return DataReply::Part(rows, Some(own.id.0));
        }
        let row = job(state, own).shortened();
        bytes += row.bytes();
        rows.push(row);
    }
    DataReply::Part(rows, None)
}

/// Refuses a number that no job and no array has. The state is that of acknowledged commands: a change of a job whose submission
/// is on its way would else be decided after it, and nothing would have been asked of it before.
///
/// # Errors
/// There is none.
pub(crate) fn require_job(state: &State, target: &JobTarget) -> Result<(), Refusal> {
    let id = target.job;
    // An array is known as long as one of its tasks is.
    match state.jobs.contains_key(&id) || state.arrays.contains_key(&id) {
        true => Ok(()),
        false => Err(unknown(target)),
    }
}

/// The specifications of the named jobs that a user may change: a job, tasks of an array, a component or all of a
/// heterogeneous job. Equal ones are there once.
pub(crate) fn specs_of(
    state: &State,
    identity: &Identity,
    target: &JobTarget,
) -> Vec<Arc<JobSpec>> {
    let may_change = |job: &&Job| access::may_job(state, identity, AccessRequest::UpdateJob, job);
    let mut seen = HashSet::new();
    named(state, target)
        .into_iter()
        .filter(may_change)
        .filter(|job| seen.insert(Arc::as_ptr(&job.spec)))
        .map(|job| Arc::clone(&job.spec))
        .collect()
}

/// The records of jobs that a user wants to change and may, with their requests, each kind once: records with the same
/// specification, state, limit, fixed priority and leave to be requeued are of one kind. Where other fields differ,
/// such as nodes and times, a script sees the first record's (docs/verifiers.md). Ended ones count only where there are
/// no others.
///
/// # Errors
/// They are of too many kinds for a script to see each.
pub(crate) fn to_verify(
    state: &State,
    identity: &Identity,
    target: &JobTarget,
) -> Result<Vec<(Row, JobSpec)>, Refusal> {
    let mut all = named(state, target);
    all.retain(|job| access::may_job(state, identity, AccessRequest::UpdateJob, job));
    let may_change =
        |job: &&Job| !matches!(job.phase(), Phase::Completing | Phase::Ended | Phase::Gone);
    if all.iter().any(may_change) {
        all.retain(may_change);
    }
    let fixed = |job: &Job| job.priority_fixed.then_some(job.priority);
    let is_same_kind = |a: &Job, b: &Job| {
        Arc::ptr_eq(&a.spec, &b.spec)
            && (a.state, a.time_limit, a.requeueable) == (b.state, b.time_limit, b.requeueable)
            && fixed(a) == fixed(b)
    };
    let mut kinds: Vec<&Job> = Vec::new();
    for own in all {
        if kinds.iter().any(|known| is_same_kind(known, own)) {
            continue;
        }
        if kinds.len() >= KINDS_MAX {
            let detail = format!(
                "the site's verifier sees changes, and the tasks of job {} that this one names differ in more than {KINDS_MAX} ways; \
                 name fewer of them",
                target.job
            );
            return Err(Refusal::new(RefusalCode::NotSupported, detail));
        }
        kinds.push(own);
    }
    let with_spec = |own: &&Job| (job(state, own), (*own.spec).clone());
    Ok(kinds.iter().map(with_spec).collect())
}

/// The records of jobs that a target names, as a change of it finds them. Tasks that have left their array, because they ran or were changed alone, have
/// records of their own.
fn named<'a>(state: &'a State, target: &JobTarget) -> Vec<&'a Job> {
    let id = target.job;
    let own = state.jobs.get(&id);
    if let Some(array) = state.arrays.get(&id) {
        let is_named = |index: u32| target.tasks.as_ref().is_none_or(|t| t.contains(index));
        let left = own.filter(|job| match &job.array {
            ArrayRole::Pending { indices } => {
                let named = |tasks| !indices.intersection(tasks).is_empty();
                target.tasks.as_ref().is_none_or(named)
            }
            ArrayRole::None | ArrayRole::Task { .. } => true,
        });
        let tasks = array.tasks.iter().filter(|(index, _)| is_named(**index));
        let tasks = tasks.filter_map(|(_, task)| state.jobs.get(task));
        return left.into_iter().chain(tasks).collect();
    }
    if let Some(offset) = target.component {
        let part = state
            .jobs
            .get(&JobId(id.0.saturating_add(u64::from(offset))));
        return match part.and_then(|job| job.het.map(|place| (job, place))) {
            Some((_, place)) if place.leader == id && place.leads() => {
                state.het_jobs(place).collect()
            }
            Some((job, place)) if place.leader == id => vec![job],
            _ => Vec::new(),
        };
    }
    let place = own.and_then(|job| job.het);
    match place.filter(|place| means_all_components(state, *place)) {
        Some(place) => state.het_jobs(place).collect(),
        None => own.into_iter().collect(),
    }
}

fn may_use(identity: &Identity, partition: &PartitionConfig) -> bool {
    if identity.uid == 0 {
        return true;
    }
    let allowed = &partition.allow_groups;
    !partition.root_only
        && (allowed.is_empty() || identity.groups.iter().any(|group| allowed.contains(group)))
}

fn limit(limit: Option<TimeLimit>, unset: i64) -> i64 {
    match limit {
        None => unset,
        Some(TimeLimit::Unlimited) => INFINITE,
        Some(TimeLimit::Minutes(minutes)) => i64::from(minutes),
    }
}

fn partition(state: &State, partition: &PartitionConfig) -> Row {
    let mut fields = Fields::default();
    fields.text("name", &partition.name);
    fields.text("allow_accounts", &partition.allow_accounts.join(","));
    fields.text("allow_alloc_nodes", &partition.alloc_nodes.join(","));
    fields.text("allow_groups", &partition.allow_groups.join(","));
    fields.text("allow_qos", &partition.allow_qos.join(","));
    fields.maybe("billing_weights_str", partition.billing_weights.as_ref());
    fields.number("default_time", limit(partition.default_time, NO_VAL));
    fields.memory(
        "def_mem_per_node",
        "def_mem_per_cpu",
        partition.default_memory,
    );
    fields.text("deny_accounts", &partition.deny_accounts.join(","));
    fields.text("deny_qos", &partition.deny_qos.join(","));
    fields.number("flag_default", i64::from(partition.default));
    fields.number("flags", i64::from(partition.default));
    fields.number(
        "max_cpus_per_node",
        partition.max_cpus_per_node.map_or(INFINITE, i64::from),
    );
    fields.memory("max_mem_per_node", "max_mem_per_cpu", partition.max_memory);
    let most = partition.max_nodes.map_or(INFINITE, i64::from);
    fields.number("max_nodes", most);
    fields.number("max_nodes_orig", most);
    let shared = match partition.over_subscribe {
        OverSubscribe::Exclusive => 0,
        OverSubscribe::Yes(most) | OverSubscribe::Force(most) => i64::from(most),
        OverSubscribe::No => 1,
    };
    fields.number("max_share", shared);
    fields.number("max_oversubscribe", shared);
    fields.number("max_time", limit(Some(partition.max_time), INFINITE));
    fields.number("min_nodes", i64::from(partition.min_nodes));
    fields.number("min_nodes_orig", i64::from(partition.min_nodes));
    fields.text("nodes", &partition.nodes_text);
    fields.number(
        "priority_job_factor",
        i64::from(partition.priority_job_factor),
    );
    fields.number("priority_tier", i64::from(partition.priority_tier));
    fields.maybe("qos", partition.qos.as_ref());
    // Bits of submitting and scheduling, as in Slurm.
    fields.number(
        "state_up",
        match partition.effective_state() {
            PartitionState::Up => 3_i64,
            PartitionState::Down => 1,
            PartitionState::Drain => 2,
            PartitionState::Inactive => 0,
        },
    );
    let nodes = partition.nodes.iter().filter_map(|name| {
        let index = state.node_by_name.get(name)?;
        state.nodes.get(usize::try_from(index.0).ok()?)
    });
    fields.large(
        "total_cpus",
        nodes.map(|node| u64::from(node.config.cpus)).sum(),
    );
    fields.large("total_nodes", partition.nodes.len() as u64);
    fields.row(&partition.name)
}

fn state_number(state: JobState) -> i64 {
    match state {
        JobState::Pending => 0,
        JobState::Running => 1,
        JobState::Suspended => 2,
        JobState::Completed => 3,
        JobState::Cancelled => 4,
        JobState::Failed => 5,
        JobState::Timeout => 6,
        JobState::NodeFail => 7,
        JobState::Preempted => 8,
        JobState::BootFail => 9,
        JobState::Deadline => 10,
        JobState::OutOfMemory => 11,
    }
}

fn job(state: &State, job: &Job) -> Row {
    let spec = &job.spec;
    let ask = &spec.ask;
    let mut fields = Fields::default();
    fields.text("account", spec.account_name());
    let shown = |name: &str| spec.shown.iter().find(|(key, _)| key == name);
    for (name, key) in [
        ("admin_comment", "admin-comment"),
        ("extra", "extra"),
        ("mcs_label", "mcs-label"),
    ] {
        fields.maybe(name, shown(key).map(|(_, text)| text));
    }
    match &job.array {
        ArrayRole::None => {}
        ArrayRole::Pending { .. } => fields.large("array_job_id", job.id.0),
        ArrayRole::Task { index, .. } => {
            fields.large("array_job_id", job.submission().0);
            fields.number("array_task_id", i64::from(*index));
        }
    }
    fields.maybe("batch_features", ask.batch.as_ref());
    fields.maybe("comment", spec.comment.as_ref());
    fields.number("derived_ec", i64::from(job.derived_exit.code));
    fields.number("direct_set_prio", i64::from(job.priority_fixed));
    fields.time("end_time", job.end_time);
    fields.number("exit_code", i64::from(job.exit.code));
    fields.maybe("features", ask.constraint.as_ref());
    fields.number("group_id", i64::from(spec.owner.gid));
    fields.text("gres", &gres_text(&ask.gres));
    fields.text("gres_req", &gres_text(&ask.gres));
    fields.large("job_id", job.id.0);
    fields.number("job_state", state_number(job.state));
    fields.maybe("licenses", spec.licenses.as_ref());
    fields.number("max_nodes", ask.max_nodes.map_or(0, i64::from));
    fields.number("min_cpus", i64::from(ask.min_cpus()));
    fields.memory("min_mem_per_node", "min_mem_per_cpu", ask.memory);
    fields.number(
        "pn_min_memory",
        match ask.memory {
            MemoryAsk::Default => NO_VAL64,
            MemoryAsk::PerNode(mib) => i64::try_from(mib).unwrap_or(i64::MAX),
            MemoryAsk::PerCpu(mib) => i64::try_from(mib).unwrap_or(i64::MAX) | MEM_PER_CPU,
        },
    );
    fields.number("min_nodes", i64::from(ask.min_nodes));
    fields.text("name", &spec.name);
    fields.number("nice", NICE_OFFSET + i64::from(spec.nice));
    let alloc = job.alloc.as_deref().filter(|_| job.start_time.is_some());
    let names = alloc.map(|alloc| {
        let names = alloc.nodes.iter().filter_map(|share| {
            let at = usize::try_from(share.node.0).ok()?;
            Some(state.nodes.get(at)?.config.name.clone())
        });
        names.collect::<Vec<String>>()
    });
    fields.maybe("batch_host", names.as_ref().and_then(|names| names.first()));
    fields.text(
        "nodes",
        &muster_model::hostlist::compress(&names.unwrap_or_default()),
    );
    fields.text("partition", &spec.partitions.join(","));
    fields.number("pn_min_cpus", i64::from(ask.min_cpus_per_node.unwrap_or(1)));
    fields.number("priority", i64::from(job.priority));
    fields.text("qos", spec.qos_name());
    fields.number("requeue", i64::from(job.requeueable));
    fields.number("restart_cnt", i64::from(job.restarts));
    fields.maybe("resv_name", spec.reservation.as_ref());
    fields.number("site_factor", NICE_OFFSET + i64::from(spec.site_factor));
    fields.time("start_time", job.start_time);
    fields.maybe("std_err", spec.stdio.stderr.as_ref());
    fields.maybe("std_in", spec.stdio.stdin.as_ref());
    fields.maybe("std_out", spec.stdio.stdout.as_ref());
    fields.time("submit_time", Some(job.submit_time));
    fields.number("time_limit", limit(Some(job.time_limit), INFINITE));
    fields.number("time_min", limit(spec.time_min, 0));
    fields.text("tres_per_node", &gres_text(&ask.gres));
    let devices = ask.devices();
    fields.text("tres_per_job", &gres_text(&devices.per_job));
    fields.text("tres_per_socket", &gres_text(&devices.per_socket));
    fields.text("tres_per_task", &gres_text(&devices.per_task));
    fields.number("user_id", i64::from(spec.owner.uid));
    fields.text("user_name", &spec.owner.user);
    fields.maybe("wckey", spec.wckey.as_ref());
    fields.text("work_dir", &spec.work_dir);
    fields.row(&job.id.0.to_string())
}

fn reservation(reservation: &Reservation) -> Row {
    let mut fields = Fields::default();
    fields.text("name", &reservation.name);
    fields.text("accounts", &reservation.accounts.join(","));
    let duration_s = reservation.end.unix_s() - reservation.start.unix_s();
    fields.number("duration", duration_s / 60);
    fields.time("end_time", Some(reservation.end));
    fields.maybe("features", reservation.features.as_ref());
    fields.number("flags", i64::from(reservation.flags.0));
    fields.maybe("licenses", reservation.licenses.as_ref());
    fields.large("node_cnt", reservation.nodes.len() as u64);
    fields.text("node_list", &reservation.hostlist);
    fields.maybe("partition", reservation.partition.as_ref());
    fields.time("start_time", Some(reservation.start));
    fields.text("users", &reservation.users.join(","));
    fields.row(&reservation.name)
}

fn association(state: &State, identity: &Identity, account: &str, partition: &str) -> Row {
    let accounts = &state.accounts;
    let user = accounts.user(&identity.user);
    let mut fields = Fields::default();
    let default = user.map_or("", |user| user.default_account.as_str());
    fields.text("default_account", default);
    fields.text(
        "default_wckey",
        user.map_or("", |user| user.default_wckey.as_str()),
    );
    let account = match account {
        "" => default,
        named => named,
    };
    let qos = accounts.default_qos(account, &identity.user, partition);
    fields.text("default_qos", qos);
    let all = accounts.qos_list(account, &identity.user, partition);
    fields.text("assoc_qos", &all.unwrap_or_default().join(","));
    fields.row("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::config::ClusterConfig;
    use muster_model::het::HetPlace;
    use muster_model::index_set::IndexSet;

    #[test]
    fn a_change_waits_for_the_submission_to_be_acknowledged() {
        let mut state = State::default();
        let target = JobTarget {
            job: JobId(7),
            tasks: None,
            component: None,
        };
        let refused = require_job(&state, &target).unwrap_err();
        // In the words of the writer: an answer of another kind would show which numbers are others' hidden jobs.
        assert_eq!(refused.code, RefusalCode::InvalidJobId);
        assert_eq!(refused.detail, "there is no job 7");
        let spec = Arc::new(JobSpec::default());
        let job = Job::new(JobId(7), spec, TimeLimit::Unlimited, Timestamp(0));
        state.jobs.insert(JobId(7), job);
        assert_eq!(require_job(&state, &target), Ok(()));
    }

    /// Array 7, of which tasks 2 and 3 have records of their own that share its request.
    fn array() -> State {
        let mut state = State::default();
        let job = |id, name: &str, array| {
            let spec = JobSpec {
                name: name.to_owned(),
                ..JobSpec::default()
            };
            let id = JobId(id);
            let job = Job::new(id, Arc::new(spec), TimeLimit::Unlimited, Timestamp(0));
            Job { array, ..job }
        };
        let task = |index| ArrayRole::Task {
            base: JobId(7),
            index,
        };
        let indices: IndexSet = [0, 1].into_iter().collect();
        let jobs = [
            job(7, "left", ArrayRole::Pending { indices }),
            job(8, "two", task(2)),
            job(9, "three", task(3)),
        ];
        let tasks = state.arrays.entry(JobId(7)).or_default();
        tasks.tasks.extend([(2, JobId(8)), (3, JobId(9))]);
        for job in jobs {
            state.jobs.insert(job.id, job);
        }
        state.jobs.get_mut(&JobId(9)).unwrap().spec = Arc::clone(&state.jobs[&JobId(8)].spec);
        state
    }

    /// Only the first record of an array was compared with what a change says: of tasks that had left it, anything could be
    /// changed that made them what the first one is.
    #[test]
    fn a_change_of_an_array_is_compared_with_all_records_that_it_changes() {
        let state = array();
        let root = Identity::default();
        let names = |job, tasks: Option<&[u32]>| {
            let target = JobTarget {
                job: JobId(job),
                tasks: tasks.map(|tasks| tasks.iter().copied().collect()),
                component: None,
            };
            let specs = specs_of(&state, &root, &target);
            specs.iter().map(|s| s.name.clone()).collect::<Vec<_>>()
        };
        // A task that shares the request is no other.
        assert_eq!(names(7, None), ["left", "two"]);
        assert_eq!(names(7, Some(&[1, 2])), ["left", "two"]);
        assert_eq!(names(7, Some(&[3])), ["two"]);
        assert_eq!(names(9, None), ["two"]);
        assert!(names(7, Some(&[5])).is_empty());
    }

    /// The number of a leader with component 0 means all components, and so does each number with `whole_hetjob`: only one record
    /// was compared and seen by scripts, and all were changed.
    #[test]
    fn a_change_of_a_heterogeneous_job_is_compared_with_all_components_that_it_changes() {
        let mut state = State::default();
        for offset in 0..3 {
            let id = JobId(7 + u64::from(offset));
            let spec = JobSpec {
                name: format!("part{offset}"),
                ..JobSpec::default()
            };
            let mut job = Job::new(id, Arc::new(spec), TimeLimit::Unlimited, Timestamp(0));
            job.het = Some(HetPlace {
                leader: JobId(7),
                offset,
                size: 3,
            });
            state.jobs.insert(id, job);
        }
        let names = |state: &State, job, component| {
            let target = JobTarget {
                job: JobId(job),
                tasks: None,
                component,
            };
            let specs = specs_of(state, &Identity::default(), &target);
            specs.iter().map(|s| s.name.clone()).collect::<Vec<_>>()
        };
        let all = ["part0", "part1", "part2"];
        assert_eq!(names(&state, 7, None), all);
        assert_eq!(names(&state, 7, Some(0)), all);
        assert_eq!(names(&state, 7, Some(2)), ["part2"]);
        assert_eq!(names(&state, 8, None), ["part1"]);
        assert!(names(&state, 7, Some(3)).is_empty());
        assert!(names(&state, 8, Some(1)).is_empty());
        state.config = Some(Arc::new(ClusterConfig {
            scheduler_parameters: vec!["whole_hetjob".to_owned()],
            ..ClusterConfig::default()
        }));
        assert_eq!(names(&state, 8, None), all);
        assert_eq!(names(&state, 7, Some(2)), ["part2"]);
    }

    /// The list of all jobs was one message, which was too long for the verifier from some ten thousand of them on.
    #[test]
    fn all_jobs_are_listed_in_parts() {
        use muster_proto::frame;
        use muster_verifier::message::ControllerRequest;
        let mut state = State::default();
        let spec = Arc::new(JobSpec {
            comment: Some("x".repeat(1 << 10)),
            ..JobSpec::default()
        });
        for id in (1..=3000).map(JobId) {
            let job = Job::new(id, Arc::clone(&spec), TimeLimit::Unlimited, Timestamp(0));
            state.jobs.insert(id, job);
        }
        let (mut next, mut keys, mut parts) = (Some(0), Vec::new(), 0);
        while let Some(first) = next {
            let said = answer(&state, &Identity::default(), &DataQuery::JobsFrom(first));
            let bytes = frame::encode(&ControllerRequest::Answer(said.clone())).len();
            assert!(bytes < 2 * PART_BYTES_MAX, "{bytes}");
            let DataReply::Part(rows, more) = said else {
                panic!("{said:?}");
            };
            keys.extend(rows.into_iter().map(|row| row.key));
            (next, parts) = (more, parts + 1);
        }
        assert!(parts > 2, "{parts}");
        assert!(
            keys.iter()
                .eq(&(1..=3000).map(|id| id.to_string()).collect::<Vec<_>>())
        );
    }

    /// A script saw only the first record: a change that it refuses for one task passed beside another.
    #[test]
    fn a_verifier_sees_all_kinds_of_tasks_that_a_change_names() {
        let mut state = array();
        let target = JobTarget {
            job: JobId(7),
            tasks: None,
            component: None,
        };
        let root = Identity::default();
        let keys = |state: &State| {
            let found = to_verify(state, &root, &target);
            found.map(|rows| rows.into_iter().map(|(row, _)| row.key).collect::<Vec<_>>())
        };
        assert_eq!(keys(&state).unwrap(), ["7", "8"]);
        let limit = TimeLimit::Minutes(5);
        state.jobs.get_mut(&JobId(9)).unwrap().time_limit = limit;
        assert_eq!(keys(&state).unwrap(), ["7", "8", "9"]);
        state.jobs.get_mut(&JobId(8)).unwrap().state = JobState::Failed;
        assert_eq!(keys(&state).unwrap(), ["7", "9"]);
        for index in 10..40 {
            let mut own = state.jobs[&JobId(9)].clone();
            own.id = JobId(u64::from(index));
            own.time_limit = TimeLimit::Minutes(index);
            let tasks = &mut state.arrays.get_mut(&JobId(7)).unwrap().tasks;
            tasks.insert(index, own.id);
            state.jobs.insert(own.id, own);
        }
        let refusal = keys(&state).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::NotSupported);
        let stranger = Identity {
            uid: 1001,
            ..Identity::default()
        };
        assert!(to_verify(&state, &stranger, &target).unwrap().is_empty());
    }
}
