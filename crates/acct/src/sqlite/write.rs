//! Carrying out a plan inside a transaction.

use super::job_text;
use super::log::{self, EntrySubject};
use super::plan::{DerivedExit, JobWrite, Plan, ResizedRun, StepWrite, SuspensionWrite};
use super::reservation;
use super::rollup::Rollup;
use super::row::{
    ASKED, Context, LIFE, OPEN, Owner, RESIZED, STEP_END, STEP_START, cbor, exit_key, first_row,
    limit_key, signed, some, state_key, step_key,
};
use super::storage;
use super::text::Interned;
use crate::change::{JobRow, NodeServiceRow};
use crate::store::StoreError;
use muster_model::account_limits::TresAmount;
use muster_model::accounts::{JobNote, Transaction};
use muster_model::grid_engine;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Allocation, ExitStatus, GresShare, JobState, Step, StepEnd, sum_devices};
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::node_state::ServiceState;
use muster_model::site_option::site_options_text;
use muster_model::spec::{JobKind, JobSpec, StdioSpec};
use muster_model::time::Timestamp;
use rusqlite::{CachedStatement, Connection, ToSql};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Bytes of a path, of a pattern of file names, and of other texts that a job's rows share (the kernel's `PATH_MAX`).
const PATH_BYTES_MAX: usize = 4 << 10;
/// Bytes of the command line and of comments in rows of tasks of an array, and of runs after the first.
pub(super) const REPEATED_BYTES_MAX: usize = 4 << 10;
/// Bytes of the command line of each of very many steps.
const MANY_STEPS_LINE_BYTES: usize = 256;
/// Bytes of the name, and of the list of nodes, of each of very many steps.
const MANY_STEPS_NAME_BYTES: usize = 64;
const MANY_STEPS_NODES_BYTES: usize = 256;

/// The beginning of a text.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// A node's event that has not ended.
pub(super) struct OpenNode {
    id: i64,
    start: i64,
    service: ServiceState,
    reason: String,
    uid: u32,
}

/// The statements of `job` and `step`.
pub(super) struct Statements {
    pub(super) job_put: String,
    job_end: String,
    job_run: String,
    pub(super) step_put: String,
    step_end: String,
}

pub(super) static SQL: LazyLock<Statements> = LazyLock::new(|| {
    let job: Vec<&str> = ["row"].iter().chain(ASKED).chain(LIFE).copied().collect();
    let step: Vec<&str> = (["job", "step"].iter().chain(STEP_START).chain(STEP_END))
        .copied()
        .collect();
    let still = &LIFE[..LIFE.len() - 1];
    Statements {
        job_put: put("job", &job, 1),
        job_end: format!("UPDATE job SET {} WHERE row = ?1", set(LIFE, 2)),
        job_run: format!("UPDATE job SET {} WHERE row = ?1", set(still, 2)),
        step_put: put("step", &step, 2),
        step_end: format!(
            "UPDATE step SET {} WHERE job = ?1 AND step = ?2",
            set(STEP_END, 3)
        ),
    }
});

/// An insertion that becomes an update if the row is there; the first `keys` columns are its key.
fn put(table: &str, columns: &[&str], keys: usize) -> String {
    let values: Vec<String> = (1..=columns.len()).map(|i| format!("?{i}")).collect();
    let update: Vec<String> = (columns[keys..].iter())
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    format!(
        "INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}",
        columns.join(", "),
        values.join(", "),
        columns[..keys].join(", "),
        update.join(", ")
    )
}

fn set(columns: &[&str], first: usize) -> String {
    let parts: Vec<String> = (columns.iter().zip(first..))
        .map(|(column, i)| format!("{column} = ?{i}"))
        .collect();
    parts.join(", ")
}

/// Binds parameters one after another, without copying texts.
pub(super) struct Binder<'s, 'c> {
    statement: &'s mut CachedStatement<'c>,
    next: usize,
}

impl<'s, 'c> Binder<'s, 'c> {
    pub(super) fn new(statement: &'s mut CachedStatement<'c>) -> Binder<'s, 'c> {
        Binder { statement, next: 0 }
    }

    pub(super) fn bind(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.next += 1;
        self.statement.raw_bind_parameter(self.next, value)
    }
}

/// The events of nodes that have not ended.
pub(super) fn open_nodes(connection: &Connection) -> Result<HashMap<String, OpenNode>, StoreError> {
    let mut statement = connection.prepare(
        "SELECT node, id, down, drain, fail, reason, uid, start_ms FROM node_event WHERE end_ms IS NULL",
    )?;
    let nodes = statement.query_map([], |row| {
        let open = OpenNode {
            id: row.get(1)?,
            start: row.get(7)?,
            service: ServiceState {
                down: row.get(2)?,
                drain: row.get(3)?,
                fail: row.get(4)?,
            },
            reason: row.get(5)?,
            uid: row.get(6)?,
        };
        Ok((row.get(0)?, open))
    })?;
    Ok(nodes.collect::<rusqlite::Result<_>>()?)
}

/// A transaction, and values that are remembered from one to the next.
pub(super) struct Writer<'a> {
    pub(super) connection: &'a Connection,
    pub(super) texts: &'a mut Interned,
    pub(super) open_nodes: &'a mut HashMap<String, OpenNode>,
    /// Which rows are written is logged.
    pub(super) is_logged: bool,
    /// Changes may have been written before.
    pub(super) may_be_there: bool,
    /// Changes of sums.
    pub(super) rollup: Rollup,
}

impl Writer<'_> {
    fn log(&self, written: EntrySubject) -> rusqlite::Result<()> {
        match self.is_logged {
            true => log::append(self.connection, written),
            false => Ok(()),
        }
    }

    /// Writes what changed of sums, after all else.
    pub(super) fn finish(self) -> Result<(), StoreError> {
        self.rollup
            .finish(self.connection, self.texts, self.is_logged)
    }

    /// A run is about to be written.
    fn touch(&mut self, row: i64) -> Result<(), StoreError> {
        self.rollup.touch(self.connection, self.texts, row)
    }

    pub(super) fn carry_out(&mut self, plan: &Plan<'_>) -> Result<(), StoreError> {
        for write in &plan.jobs {
            self.job(write)?;
        }
        for write in &plan.steps {
            self.step(write)?;
        }
        for DerivedExit { row, exit } in &plan.derived {
            self.connection
                .prepare_cached("UPDATE job SET derived_exit = ?2 WHERE row = ?1")?
                .execute((row, exit_key(*exit)))?;
            self.log(EntrySubject::Job(*row))?;
        }
        for SuspensionWrite { row, at, ended } in &plan.suspensions {
            let sql = if *ended {
                "UPDATE suspension SET end_ms = ?2 WHERE job = ?1 AND end_ms IS NULL"
            } else {
                "INSERT OR REPLACE INTO suspension (job, start_ms) VALUES (?1, ?2)"
            };
            self.connection.prepare_cached(sql)?.execute((row, at.0))?;
            self.log(EntrySubject::Suspension(*row))?;
        }
        for now in &plan.nodes {
            self.node(now)?;
        }
        for now in &plan.reservations {
            reservation::write(self.connection, now, self.is_logged)?;
        }
        for write in &plan.transactions {
            self.transaction(write.transaction, write.at)?;
        }
        for write in &plan.texts {
            job_text::put(
                self.connection,
                write.row,
                write.kind,
                &write.id.0,
                write.bytes,
            )?;
        }
        for write in &plan.notes {
            self.note(write.job, write.owner, write.note)?;
        }
        for write in &plan.scans {
            storage::write(self.connection, write.name, write.scan)?;
        }
        if let Some(ResizedRun { row: run, next, at }) = plan.resized {
            self.touch(run)?;
            self.connection
                .prepare_cached("UPDATE job SET requeued = ?2, end_ms = ?3 WHERE row = ?1")?
                .execute((run, RESIZED, at.0))?;
            for sql in [
                "UPDATE OR REPLACE step SET job = ?2 WHERE job = ?1 AND end_ms IS NULL",
                "UPDATE OR REPLACE suspension SET job = ?2 WHERE job = ?1 AND end_ms IS NULL",
            ] {
                self.connection.prepare_cached(sql)?.execute((run, next))?;
            }
            for row in [run, next] {
                self.log(EntrySubject::Job(row))?;
                self.log(EntrySubject::Reset(row))?;
            }
        }
        Ok(())
    }

    fn job(&mut self, write: &JobWrite<'_>) -> Result<(), StoreError> {
        self.touch(write.row)?;
        if write.fresh {
            for sql in [
                "DELETE FROM step WHERE job = ?1",
                "DELETE FROM suspension WHERE job = ?1",
            ] {
                self.connection.prepare_cached(sql)?.execute([write.row])?;
            }
            self.log(EntrySubject::Reset(write.row))?;
        }
        self.log(EntrySubject::Job(write.row))?;
        if !write.whole {
            let ended = write.job.end.is_some();
            let sql = if ended { &SQL.job_end } else { &SQL.job_run };
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut binder = Binder {
                statement: &mut statement,
                next: 0,
            };
            binder.bind(write.row)?;
            self.bind_life(&mut binder, write.job, ended)?;
            if statement.raw_execute()? == 1 {
                return Ok(());
            }
            // The store was made after the job was submitted: the row is complete all the same.
        }
        let mut statement = self.connection.prepare_cached(&SQL.job_put)?;
        let mut binder = Binder {
            statement: &mut statement,
            next: 0,
        };
        binder.bind(write.row)?;
        self.bind_asked(&mut binder, write.job)?;
        self.bind_life(&mut binder, write.job, true)?;
        statement.raw_execute()?;
        Ok(())
    }

    /// In the order of [`ASKED`].
    fn bind_asked(&mut self, binder: &mut Binder<'_, '_>, job: &JobRow) -> rusqlite::Result<()> {
        let spec = &job.spec;
        let shown = |key: &str| {
            let value = spec.shown.iter().find(|(k, _)| k.eq_ignore_ascii_case(key));
            value.and_then(|(_, value)| some(value))
        };
        let owner = cbor(&Owner {
            user: spec.owner.user.clone(),
            group: spec.owner.group.clone(),
        });
        let short = |text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| cut(text, PATH_BYTES_MAX).to_owned())
        };
        let context = cbor(&Context {
            work_dir: cut(&spec.work_dir, PATH_BYTES_MAX).to_owned(),
            submit_host: spec.submit_host.clone(),
            stdio: StdioSpec {
                stdin: short(&spec.stdio.stdin),
                stdout: short(&spec.stdio.stdout),
                stderr: short(&spec.stdio.stderr),
                append: spec.stdio.append,
            },
            constraint: short(&spec.ask.constraint).unwrap_or_default(),
            reservation: short(&spec.reservation).unwrap_or_default(),
            class: spec
                .class
                .as_ref()
                .map_or_else(String::new, |own| own.name.clone()),
            req_gres: asked_devices(job),
            grid_engine: grid_engine_requests(spec),
            mcs_label: spec.mcs_label().unwrap_or_default().to_owned(),
        });
        // Texts of a submission are not kept in full for each task and each further run.
        let repeats = job.array.is_some() || job.key.number > 0;
        let most = if repeats {
            REPEATED_BYTES_MAX
        } else {
            TEXT_BYTES_MAX
        };
        let account = spec.account_name();
        let qos = spec.qos_name();
        let wckey = spec.wckey.as_deref().and_then(some);
        let array_spec = spec.array.as_ref().filter(|_| job.array_record).map(cbor);

        binder.bind(job.array.map(|task| signed(task.array.0)))?;
        binder.bind(job.array.map(|task| task.index))?;
        binder.bind(array_spec)?;
        binder.bind(some(&spec.name))?;
        binder.bind(spec.owner.uid)?;
        binder.bind(spec.owner.gid)?;
        binder.bind(self.texts.number(self.connection, &owner)?)?;
        binder.bind(self.texts.number(self.connection, account.as_bytes())?)?;
        binder.bind(self.texts.number(self.connection, qos.as_bytes())?)?;
        let wckey = match wckey {
            Some(wckey) => Some(self.texts.number(self.connection, wckey.as_bytes())?),
            None => None,
        };
        binder.bind(wckey)?;
        binder.bind(self.texts.number(self.connection, &context)?)?;
        binder.bind(some(cut(&spec.submit_line, most)))?;
        let comment = spec.comment.as_deref().and_then(some);
        binder.bind(comment.map(|text| cut(text, most)))?;
        let of_admin = shown("AdminComment").or_else(|| shown("admin-comment"));
        let of_admin = with_site_options(of_admin, spec);
        binder.bind(of_admin.as_deref().map(|text| cut(text, most)))?;
        binder.bind(spec.ask.min_cpus())?;
        binder.bind(spec.ask.min_nodes)?;
        binder.bind(spec.kind == JobKind::Batch)?;
        binder.bind(job.submit.0)?;
        binder.bind(job.het.map(|part| signed(part.leader.0)))?;
        binder.bind(job.het.map(|part| part.offset))?;
        binder.bind(job.het.map(|part| part.size))
    }

    /// In the order of [`LIFE`].
    fn bind_life(
        &mut self,
        binder: &mut Binder<'_, '_>,
        job: &JobRow,
        with_end: bool,
    ) -> rusqlite::Result<()> {
        let alloc = job.alloc.as_deref();
        let nodes = alloc.map_or(0, |alloc| alloc.nodes.len());
        let ntasks = alloc.map_or(job.spec.ask.task_count(), |alloc| alloc.ntasks);
        let reason = job.reason.name().as_bytes();

        binder.bind(
            self.texts
                .number(self.connection, job.partition.as_bytes())?,
        )?;
        binder.bind(state_key(job.state))?;
        binder.bind(job.requeued)?;
        binder.bind(job.cancelled_by)?;
        binder.bind(exit_key(job.exit))?;
        binder.bind(exit_key(job.derived_exit))?;
        binder.bind(job.eligible.map(|at| at.0))?;
        binder.bind(job.start.map(|at| at.0))?;
        binder.bind(signed(job.suspended_ms))?;
        binder.bind(limit_key(job.time_limit))?;
        binder.bind(signed(job.req_mem_mib))?;
        binder.bind(alloc.map_or(0, |alloc| signed(alloc.cpus())))?;
        binder.bind(signed(nodes as u64))?;
        binder.bind(alloc.map_or(0, |alloc| signed(alloc.memory_mib())))?;
        binder.bind(alloc.and_then(|alloc| devices(alloc, &job.licenses)))?;
        binder.bind(alloc.and_then(|alloc| some(&alloc.hostlist)))?;
        binder.bind(self.texts.number(self.connection, reason)?)?;
        binder.bind(job.priority)?;
        binder.bind(ntasks)?;
        binder.bind(alloc.map(|alloc| alloc.backfilled))?;
        if with_end {
            binder.bind(job.end.map_or(OPEN, |at| at.0))?;
        }
        Ok(())
    }

    fn step(&mut self, write: &StepWrite<'_>) -> Result<(), StoreError> {
        let sql = match write.start {
            Some(_) => &SQL.step_put,
            None => &SQL.step_end,
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut binder = Binder {
            statement: &mut statement,
            next: 0,
        };
        binder.bind(write.row)?;
        binder.bind(step_key(write.step))?;
        if let Some(start) = write.start {
            bind_step_start(&mut binder, start)?;
        }
        bind_step_end(&mut binder, write.end)?;
        statement.raw_execute()?;
        self.log(EntrySubject::Step(write.row, step_key(write.step)))?;
        Ok(())
    }

    /// A line of the log; one that is there is not written again.
    fn transaction(&mut self, change: &Transaction, at: Timestamp) -> Result<(), StoreError> {
        let (users, accounts) = (change.users.join(","), change.accounts.join(","));
        let is_new = self
            .connection
            .prepare_cached(
                "INSERT OR IGNORE INTO txn (at_ms, actor, action, target, info, users, accounts)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute((
                at.0,
                &change.actor,
                &change.action,
                cut(&change.target, TEXT_BYTES_MAX),
                cut(&change.info, TEXT_BYTES_MAX),
                cut(&users, TEXT_BYTES_MAX),
                cut(&accounts, TEXT_BYTES_MAX),
            ))?;
        if is_new > 0 {
            self.log(EntrySubject::Transaction(
                self.connection.last_insert_rowid(),
            ))?;
        }
        Ok(())
    }

    /// Texts of all runs of a job.
    fn note(&mut self, job: JobId, owner: Option<u32>, note: &JobNote) -> Result<(), StoreError> {
        let wckey = match &note.wckey {
            Some(wckey) => Some(self.texts.number(self.connection, wckey.as_bytes())?),
            None => None,
        };
        let exit = note
            .derived_exit
            .map(|signal| exit_key(ExitStatus { code: 0, signal }));
        let (first, last) = (first_row(job)?, first_row(JobId(job.0.saturating_add(1)))?);
        let rows = self.rows(first, last)?;
        if wckey.is_some() {
            for row in &rows {
                self.touch(*row)?;
            }
        }
        self.connection
            .prepare_cached(
                "UPDATE job SET comment = coalesce(?3, comment),
                 admin_comment = coalesce(?4, admin_comment), wckey = coalesce(?5, wckey),
                 derived_exit = coalesce(?6, derived_exit)
                 WHERE row >= ?1 AND row < ?2 AND (?7 IS NULL OR uid = ?7)",
            )?
            .execute((
                first,
                last,
                &note.comment,
                &note.admin_comment,
                wckey,
                exit,
                owner,
            ))?;
        for row in rows {
            self.log(EntrySubject::Job(row))?;
        }
        Ok(())
    }

    /// Numbers of the runs within two rows, the last one left out.
    fn rows(&self, first: i64, last: i64) -> rusqlite::Result<Vec<i64>> {
        let mut rows = self
            .connection
            .prepare_cached("SELECT row FROM job WHERE row >= ?1 AND row < ?2")?;
        let rows = rows.query_map((first, last), |row| row.get(0))?;
        rows.collect()
    }

    /// Whether a node's state was written before: a later one is, or an event of that time.
    fn has_event(&self, now: &NodeServiceRow, reason: &str, uid: u32) -> Result<bool, StoreError> {
        let ServiceState { down, drain, fail } = now.service;
        let mut found = self.connection.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM node_event WHERE node = ?1 AND (start_ms > ?2 OR end_ms > ?2 OR
                 (start_ms = ?2 AND (down, drain, fail, reason, uid) = (?3, ?4, ?5, ?6, ?7))))",
        )?;
        let event = (&now.node, now.at.0, down, drain, fail, reason, uid);
        Ok(found.query_row(event, |row| row.get(0))?)
    }

    /// A node's state: ends the event that it differs from and begins another if it is out of service.
    fn node(&mut self, now: &NodeServiceRow) -> Result<(), StoreError> {
        let reason = now.reason.as_ref().map_or("", |reason| &reason.text);
        let uid = now.reason.as_ref().map_or(0, |reason| reason.uid);
        if self.may_be_there && self.has_event(now, reason, uid)? {
            return Ok(());
        }
        if let Some(open) = self.open_nodes.get(&now.node) {
            let same = open.service == now.service && open.reason == reason && open.uid == uid;
            if same {
                return Ok(());
            }
            self.connection
                .prepare_cached("UPDATE node_event SET end_ms = ?2 WHERE id = ?1")?
                .execute((open.id, now.at.0))?;
            self.log(EntrySubject::NodeEvent(open.id))?;
            self.rollup.add_outage(&now.node, open.start, now.at.0);
            self.open_nodes.remove(&now.node);
        }
        if !now.service.is_in_service() {
            let ServiceState { down, drain, fail } = now.service;
            let id = self
                .connection
                .prepare_cached(
                    "INSERT INTO node_event (node, start_ms, down, drain, fail, reason, uid)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .insert((&now.node, now.at.0, down, drain, fail, reason, uid))?;
            self.log(EntrySubject::NodeEvent(id))?;
            let open = OpenNode {
                id,
                start: now.at.0,
                service: now.service,
                reason: reason.to_owned(),
                uid,
            };
            self.open_nodes.insert(now.node.clone(), open);
        }
        Ok(())
    }
}

/// Bytes of a step's command line that are kept. A job may have tens of thousands of steps: all of a job's together are a few MiB.
pub(super) fn step_line_max(step: StepNo) -> usize {
    match step.0 {
        0..16 => TEXT_BYTES_MAX,
        16..256 => REPEATED_BYTES_MAX,
        256..=StepNo::COUNTED_MAX => MANY_STEPS_LINE_BYTES,
        _ => TEXT_BYTES_MAX,
    }
}

/// Whether a step is one of very many of its job, all of which an answer has at once.
fn is_of_many(step: StepNo) -> bool {
    (256..=StepNo::COUNTED_MAX).contains(&step.0)
}

/// The kept part of a step's name.
pub(super) fn step_name(step: StepNo, name: &str) -> &str {
    match is_of_many(step) {
        true => cut(name, MANY_STEPS_NAME_BYTES),
        false => name,
    }
}

/// The kept part of a step's list of nodes: whole names, so that it is still a list.
pub(super) fn step_nodes(step: StepNo, list: &str) -> Cow<'_, str> {
    if !is_of_many(step) || list.len() <= MANY_STEPS_NODES_BYTES {
        return Cow::Borrowed(list);
    }
    // With room for the bracket that ends it.
    let kept = cut(list, MANY_STEPS_NODES_BYTES - 1);
    let kept = kept.rfind(',').map_or("", |comma| &kept[..comma]);
    let Some(open) = kept.rfind('[').filter(|open| !kept[*open..].contains(']')) else {
        return Cow::Borrowed(kept);
    };
    let after = list[kept.len()..]
        .split_once(']')
        .map_or("", |(_, after)| after);
    match after.is_empty() || after.starts_with(',') {
        true => Cow::Owned(format!("{kept}]")),
        // The rest is part of the names.
        false => Cow::Borrowed(kept[..open].rfind(',').map_or("", |comma| &kept[..comma])),
    }
}

/// In the order of [`STEP_START`].
fn bind_step_start(binder: &mut Binder<'_, '_>, start: &Step) -> rusqlite::Result<()> {
    let batch = start.step == StepNo::BATCH && start.name == "batch";
    binder.bind(some(step_name(start.step, &start.name)).filter(|_| !batch))?;
    binder.bind(start.start_time.0)?;
    binder.bind(start.nodes)?;
    binder.bind(start.tasks)?;
    binder.bind(start.cpus)?;
    binder.bind(signed(start.memory_mib))?;
    binder.bind(some(&step_nodes(start.step, &start.hostlist)))?;
    // The script's command line is the job's.
    let line = cut(&start.submit_line, step_line_max(start.step));
    binder.bind(some(line).filter(|_| !batch))?;
    binder.bind(start.distribution.as_deref().and_then(some))?;
    binder.bind((!start.devices.is_empty()).then(|| cbor(&start.devices)))
}

/// In the order of [`STEP_END`].
fn bind_step_end(binder: &mut Binder<'_, '_>, end: Option<&StepEnd>) -> rusqlite::Result<()> {
    let Some(end) = end else {
        binder.bind(state_key(JobState::Running))?;
        binder.bind(None::<u32>)?;
        binder.bind(0)?;
        for _ in 3..STEP_END.len() {
            binder.bind(None::<i64>)?;
        }
        return Ok(());
    };
    // Values with columns of their own are not stored twice.
    let mut rest = end.usage.clone();
    (rest.user_us, rest.system_us, rest.max_rss_kib) = (0, 0, 0);
    binder.bind(state_key(end.state))?;
    binder.bind(end.cancelled_by)?;
    binder.bind(exit_key(end.exit))?;
    binder.bind(end.end_time.0)?;
    binder.bind(signed(end.usage.user_us))?;
    binder.bind(signed(end.usage.system_us))?;
    binder.bind(signed(end.usage.max_rss_kib))?;
    binder.bind(cbor(&rest))
}

/// Devices that a job has over all nodes, and licenses.
fn devices(alloc: &Allocation, licenses: &[TresAmount]) -> Option<Vec<u8>> {
    let mut sums = GresShare::sums(alloc.nodes.iter().flat_map(|node| &node.gres));
    sums.extend(licenses.iter().cloned());
    (!sums.is_empty()).then(|| cbor(&sums))
}

/// The requests of a job of the Grid Engine commands.
fn grid_engine_requests(spec: &JobSpec) -> Vec<(String, String)> {
    let kept = |name: &&str| {
        let text = grid_engine::value(spec, name)?;
        Some(((*name).to_owned(), cut(text, PATH_BYTES_MAX).to_owned()))
    };
    grid_engine::ACCOUNTED.iter().filter_map(kept).collect()
}

/// Devices that a job asks for over all nodes, and licenses.
fn asked_devices(job: &JobRow) -> Vec<(String, u64)> {
    let ask = &job.spec.ask;
    let asked = ask.gres_of_job(ask.min_nodes);
    let counts = asked
        .iter()
        .map(|one| (one.name.as_str(), one.kind.as_deref(), one.count));
    let mut all = sum_devices(counts);
    let licenses = job.req_licenses.iter();
    all.extend(licenses.map(|of| (of.name.clone(), of.amount)));
    all
}

/// The administrators' comment, and the options of the site's own that the job has.
fn with_site_options(comment: Option<&str>, spec: &JobSpec) -> Option<String> {
    match (comment, site_options_text(spec)) {
        (Some(comment), Some(options)) => Some(format!("{comment}; {options}")),
        (comment, options) => options.or_else(|| comment.map(str::to_owned)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2,400 steps with 64 KB of command line each made an answer that no client takes: nobody could list jobs any more.
    #[test]
    fn the_command_lines_of_all_steps_of_a_job_are_a_few_mib() {
        let all: usize = (0..40_000).map(|step| step_line_max(StepNo(step))).sum();
        assert!(all < 16 << 20, "{all}");
        assert_eq!(step_line_max(StepNo(0)), TEXT_BYTES_MAX);
        assert_eq!(step_line_max(StepNo::BATCH), TEXT_BYTES_MAX);
    }

    /// Names of a kilobyte and lists of scattered nodes made the same of 40,000 steps.
    #[test]
    fn the_names_and_nodes_of_all_steps_of_a_job_are_a_few_mib() {
        let (name, scattered) = ("x".repeat(1024), "n[1,3,5],m7,".repeat(300));
        let one_bracket = format!(
            "n[{}]",
            (1..900)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(",")
        );
        let last = StepNo(StepNo::COUNTED_MAX);
        let of = |step| {
            let nodes = step_nodes(step, &scattered).len();
            step_name(step, &name).len() + nodes + step_line_max(step)
        };
        assert!(40_000 * (of(last) + 512) < 48 << 20, "{}", of(last));
        assert_eq!(of(StepNo(256)), of(last));
        for kept in [StepNo(0), StepNo(255), StepNo::BATCH] {
            assert_eq!(step_name(kept, &name), name);
            assert_eq!(step_nodes(kept, &scattered), scattered);
        }
        for list in [&scattered, &one_bracket] {
            let cut = step_nodes(last, list);
            let names = muster_model::hostlist::parse(&cut).unwrap();
            assert!(names.len() > 40 && cut.len() <= 256, "{cut}");
        }
        assert_eq!(step_nodes(last, "n[1-9]"), "n[1-9]");
        let suffixed = format!("a,{one_bracket}-ib");
        assert_eq!(step_nodes(last, &suffixed), "a");
    }
}
