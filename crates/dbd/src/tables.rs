//! Rows of the tables, of what the controller's accounting has.

use crate::schema::KEY_CHARACTERS_MAX;
use crate::sql::SqlValue;
use muster_acct::{OutSum, Suspension, UsedSum};
use muster_model::job::ExitStatus;
use muster_model::reservation::Flags;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::{AcctJob, AcctStep, LoggedTransaction, NodeEvent, ReservationRecord};

/// Columns of `muster_job`.
pub(crate) const JOB: &[&str] = &[
    "cluster",
    "origin",
    "run",
    "job_id",
    "restarts",
    "array_job_id",
    "array_task_id",
    "het_job_id",
    "het_offset",
    "name",
    "uid",
    "gid",
    "user_name",
    "group_name",
    "account",
    "partition_name",
    "qos",
    "wckey",
    "state",
    "exit_code",
    "exit_signal",
    "derived_exit_code",
    "derived_exit_signal",
    "cancelled_by",
    "submit_ms",
    "eligible_ms",
    "start_ms",
    "end_ms",
    "suspended_ms",
    "time_limit_min",
    "req_cpus",
    "req_nodes",
    "req_mem_mib",
    "alloc_cpus",
    "alloc_nodes",
    "alloc_mem_mib",
    "alloc_gres",
    "node_list",
    "reason",
    "priority",
    "ntasks",
    "work_dir",
    "submit_line",
    "comment",
    "admin_comment",
    "constraints",
    "reservation",
    "submit_host",
    "is_batch",
    "is_requeued",
    "is_resized",
    "is_backfilled",
];
/// Columns of `muster_step`.
pub(crate) const STEP: &[&str] = &[
    "cluster",
    "origin",
    "run",
    "place",
    "step_id",
    "name",
    "state",
    "exit_code",
    "exit_signal",
    "cancelled_by",
    "start_ms",
    "end_ms",
    "nodes",
    "tasks",
    "cpus",
    "mem_mib",
    "node_list",
    "submit_line",
    "distribution",
    "user_us",
    "system_us",
    "max_rss_kib",
    "total_rss_kib",
    "max_rss_node",
    "max_rss_task",
    "pages",
    "disk_read_bytes",
    "disk_write_bytes",
    "measured_tasks",
    "min_cpu_us",
];
/// Columns of `muster_suspension`.
pub(crate) const SUSPENSION: &[&str] = &["cluster", "origin", "run", "start_ms", "end_ms"];
/// Columns of `muster_node_event`.
pub(crate) const NODE_EVENT: &[&str] = &[
    "cluster",
    "origin",
    "id",
    "node",
    "start_ms",
    "end_ms",
    "is_down",
    "is_drained",
    "is_failing",
    "reason",
    "uid",
];
/// Columns of `muster_transaction`.
pub(crate) const TRANSACTION: &[&str] = &[
    "cluster", "origin", "id", "at_ms", "actor", "action", "target", "info", "users", "accounts",
];

/// Columns of `muster_used`.
pub(crate) const USED: &[&str] = &[
    "cluster",
    "origin",
    "id",
    "length",
    "begin_ms",
    "account",
    "uid",
    "user_name",
    "wckey",
    "device",
    "run_ms",
    "cpu_ms",
    "mem_mib_ms",
    "node_ms",
    "planned_cpu_ms",
];
/// Columns of `muster_out_of_service`.
pub(crate) const OUT: &[&str] = &[
    "cluster", "origin", "id", "length", "begin_ms", "node", "out_ms",
];

/// Columns of `muster_reservation`.
pub(crate) const RESERVATION: &[&str] = &[
    "cluster",
    "origin",
    "id",
    "name",
    "start_ms",
    "end_ms",
    "is_over",
    "node_list",
    "cpus",
    "flags",
    "users",
    "accounts",
];

/// Cluster and origin of rows.
#[derive(Clone, Copy)]
pub(crate) struct RowOrigin<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) origin: i64,
}

impl RowOrigin<'_> {
    fn row(self, key: i64, rest: impl IntoIterator<Item = SqlValue>) -> Vec<SqlValue> {
        let mut row = vec![SqlValue::text(self.cluster), self.origin.into(), key.into()];
        row.extend(rest);
        row
    }

    /// In the order of [`JOB`].
    pub(crate) fn job(self, run: i64, job: &AcctJob) -> Vec<SqlValue> {
        let gres = job
            .gres
            .iter()
            .map(|(name, count)| format!("{name}={count}"));
        let gres: Vec<String> = gres.collect();
        let asked = [
            SqlValue::unsigned(job.id.0),
            job.restarts.into(),
            of(job.array.map(|task| task.array.0)),
            job.array.map(|task| task.index).into(),
            of(job.het.map(|part| part.leader.0)),
            job.het.map(|part| part.offset).into(),
            SqlValue::text(&job.name),
            job.uid.into(),
            job.gid.into(),
            key(&job.user),
            key(&job.group),
            key(&job.account),
            key(&job.partition),
            key(&job.qos),
            key(&job.wckey),
        ];
        let life = [
            key(job.state.name()),
            code(job.exit),
            signal(job.exit),
            code(job.derived_exit),
            signal(job.derived_exit),
            job.cancelled_by.into(),
            job.submit.0.into(),
            ms(job.eligible),
            ms(job.start),
            ms(job.end),
            SqlValue::unsigned(job.suspended_ms),
            match job.time_limit {
                TimeLimit::Minutes(minutes) => minutes.into(),
                TimeLimit::Unlimited => SqlValue::Null,
            },
            job.req_cpus.into(),
            job.req_nodes.into(),
            SqlValue::unsigned(job.req_mem_mib),
            job.alloc_cpus.into(),
            job.alloc_nodes.into(),
            SqlValue::unsigned(job.alloc_mem_mib),
            SqlValue::text(&gres.join(",")),
            SqlValue::text(&job.nodelist),
            SqlValue::text(&job.reason),
            job.priority.into(),
            job.ntasks.into(),
        ];
        let texts = [
            SqlValue::text(&job.work_dir),
            SqlValue::text(&job.submit_line),
            SqlValue::text(&job.comment),
            SqlValue::text(&job.admin_comment),
            SqlValue::text(&job.constraint),
            SqlValue::text(&job.reservation),
            SqlValue::text(&job.submit_host),
            job.batch.into(),
            job.requeued.into(),
            job.resized.into(),
            job.backfilled.into(),
        ];
        self.row(run, asked.into_iter().chain(life).chain(texts))
    }

    /// In the order of [`STEP`].
    pub(crate) fn step(self, run: i64, place: i64, step: &AcctStep) -> Vec<SqlValue> {
        let asked = [
            place.into(),
            key(&step.step.to_string()),
            SqlValue::text(&step.name),
            key(step.state.name()),
            code(step.exit),
            signal(step.exit),
            step.cancelled_by.into(),
            step.start.0.into(),
            ms(step.end),
            step.nodes.into(),
            step.tasks.into(),
            step.cpus.into(),
            SqlValue::unsigned(step.mem_mib),
            SqlValue::text(&step.nodelist),
            SqlValue::text(&step.submit_line),
            SqlValue::text(&step.distribution),
        ];
        let usage = match &step.usage {
            None => vec![SqlValue::Null; 11],
            Some(usage) => vec![
                SqlValue::unsigned(usage.user_us),
                SqlValue::unsigned(usage.system_us),
                SqlValue::unsigned(usage.max_rss_kib),
                SqlValue::unsigned(usage.total_rss_kib),
                SqlValue::text(&usage.max_rss_node),
                usage.max_rss_task.into(),
                SqlValue::unsigned(usage.pages),
                SqlValue::unsigned(usage.disk_read_bytes),
                SqlValue::unsigned(usage.disk_write_bytes),
                usage.tasks.into(),
                SqlValue::unsigned(usage.min_cpu_us),
            ],
        };
        self.row(run, asked.into_iter().chain(usage))
    }

    /// In the order of [`SUSPENSION`].
    pub(crate) fn suspension(self, suspension: &Suspension) -> Vec<SqlValue> {
        let rest = [suspension.start.0.into(), ms(suspension.end)];
        self.row(suspension.job, rest)
    }

    /// In the order of [`NODE_EVENT`].
    pub(crate) fn node_event(self, id: i64, event: &NodeEvent) -> Vec<SqlValue> {
        let rest = [
            key(&event.node),
            event.start.0.into(),
            ms(event.end),
            event.down.into(),
            event.drain.into(),
            event.fail.into(),
            SqlValue::text(&event.reason),
            event.uid.into(),
        ];
        self.row(id, rest)
    }

    /// In the order of [`USED`].
    pub(crate) fn used(self, id: i64, sum: &UsedSum) -> Vec<SqlValue> {
        let rest = [
            key(sum.length),
            sum.begin.0.into(),
            key(&sum.account),
            sum.uid.into(),
            key(&sum.user),
            key(&sum.wckey),
            key(&sum.device),
            sum.run_ms.into(),
            sum.cpu_ms.into(),
            sum.mem_mib_ms.into(),
            sum.node_ms.into(),
            sum.planned_cpu_ms.into(),
        ];
        self.row(id, rest)
    }

    /// In the order of [`OUT`].
    pub(crate) fn out(self, id: i64, sum: &OutSum) -> Vec<SqlValue> {
        let rest = [
            key(sum.length),
            sum.begin.0.into(),
            key(&sum.node),
            sum.out_ms.into(),
        ];
        self.row(id, rest)
    }

    /// In the order of [`RESERVATION`].
    pub(crate) fn reservation(self, id: i64, record: &ReservationRecord) -> Vec<SqlValue> {
        let flags = Flags::ALL.iter();
        let flags = flags.filter(|(flag, _)| record.flags.has(*flag));
        let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
        let rest = [
            key(&record.name),
            record.start.0.into(),
            record.end.0.into(),
            record.is_over.into(),
            SqlValue::text(&record.nodes),
            SqlValue::unsigned(record.cpus),
            SqlValue::text(&flags.join(",")),
            SqlValue::text(&record.users),
            SqlValue::text(&record.accounts),
        ];
        self.row(id, rest)
    }

    /// In the order of [`TRANSACTION`].
    pub(crate) fn transaction(self, logged: &LoggedTransaction) -> Vec<SqlValue> {
        let made = &logged.transaction;
        let rest = [
            logged.at.0.into(),
            SqlValue::text(&made.actor),
            SqlValue::text(&made.action),
            SqlValue::text(&made.target),
            SqlValue::text(&made.info),
            SqlValue::text(&made.users.join(",")),
            SqlValue::text(&made.accounts.join(",")),
        ];
        self.row(i64::try_from(logged.id).unwrap_or(i64::MAX), rest)
    }
}

/// A text of a column that is in keys, as much of it as fits.
fn key(text: &str) -> SqlValue {
    match text.char_indices().nth(KEY_CHARACTERS_MAX) {
        Some((end, _)) => SqlValue::text(&text[..end]),
        None => SqlValue::text(text),
    }
}

fn of(number: Option<u64>) -> SqlValue {
    number.map_or(SqlValue::Null, SqlValue::unsigned)
}

fn ms(at: Option<Timestamp>) -> SqlValue {
    at.map(|at| at.0).into()
}

fn code(exit: ExitStatus) -> SqlValue {
    exit.code.into()
}

fn signal(exit: ExitStatus) -> SqlValue {
    exit.signal.into()
}
