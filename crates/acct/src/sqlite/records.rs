//! Runs and steps as their rows have them.

use super::row::{
    ASKED, Context, IMPORTED_RUN, LIFE, OPEN, Owner, RESIZED, STEP_END, STEP_START, key_exit,
    key_limit, key_state, key_step, row_run, small, time, unsigned,
};
use super::text::Texts;
use super::write::{step_name, step_nodes};
use crate::store::StoreError;
use minicbor::Decode;
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{ArrayTask, JobState, ResourceUsage};
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctStep};
use rusqlite::{Connection, Row, types::FromSql};
use std::sync::LazyLock;

/// Makes records of rows.
pub(super) struct Records<'a> {
    pub(super) connection: &'a Connection,
    pub(super) texts: &'a mut Texts,
}

impl Records<'_> {
    pub(super) fn text(&mut self, number: i64) -> Result<String, StoreError> {
        let text = self.texts.text(self.connection, number)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A run, without its steps.
    pub(super) fn job(&mut self, run: &RawJob<'_>) -> Result<AcctJob, StoreError> {
        let key = row_run(run.row);
        let owner = self.texts.text(self.connection, run.owner)?;
        let owner: Owner = decode(run, "owner", &owner)?;
        let context = self.texts.text(self.connection, run.context)?;
        let context: Context = decode(run, "context", &context)?;
        let wckey = run.wckey.map(|number| self.text(number)).transpose()?;
        let gres = run.gres.map(|gres| decode(run, "gres", gres)).transpose()?;
        let array = run.array_id.zip(run.array_index);
        Ok(AcctJob {
            id: key.job,
            restarts: key.number % IMPORTED_RUN,
            array: array.map(|(array, index)| ArrayTask {
                array: JobId(unsigned(array)),
                index: small(index),
            }),
            array_pending: None,
            name: run.name.to_owned(),
            uid: small(run.uid),
            gid: small(run.gid),
            user: owner.user,
            group: owner.group,
            account: self.text(run.account)?,
            partition: self.text(run.partition)?,
            qos: self.text(run.qos)?,
            state: run.state()?,
            requeued: run.requeued == 1,
            resized: run.requeued == RESIZED,
            cancelled_by: run.cancelled_by.map(small),
            exit: key_exit(run.exit),
            derived_exit: key_exit(run.derived_exit),
            submit: Timestamp(run.submit),
            eligible: time(run.eligible),
            start: time(run.start),
            end: time(run.end()),
            suspended_ms: unsigned(run.suspended_ms),
            time_limit: key_limit(run.time_limit),
            req_cpus: small(run.req_cpus),
            req_nodes: small(run.req_nodes),
            req_mem_mib: unsigned(run.req_mem_mib),
            alloc_cpus: small(run.alloc_cpus),
            alloc_nodes: small(run.alloc_nodes),
            alloc_mem_mib: unsigned(run.alloc_mem_mib),
            gres: gres.unwrap_or_default(),
            nodelist: run.nodelist.to_owned(),
            work_dir: context.work_dir,
            submit_line: run.submit_line.to_owned(),
            comment: run.comment.to_owned(),
            admin_comment: run.admin_comment.to_owned(),
            reason: self.text(run.reason)?,
            priority: small(run.priority),
            wckey: wckey.unwrap_or_default(),
            constraint: context.constraint,
            reservation: context.reservation,
            class: context.class,
            req_gres: context.req_gres,
            grid_engine: context.grid_engine,
            mcs_label: context.mcs_label,
            ntasks: small(run.ntasks),
            backfilled: run.backfilled == Some(1),
            stdio: context.stdio,
            batch: run.batch != 0,
            steps: Vec::new(),
            submit_host: context.submit_host,
            het: run.het_id.map(|leader| HetPlace {
                leader: JobId(unsigned(leader)),
                offset: run.het_offset.map_or(0, small),
                size: run.het_size.map_or(0, small),
            }),
        })
    }

    /// The steps of a run. The end of a step on a node that was lost never comes; it did not outlive its job.
    pub(super) fn steps(
        &self,
        run: &RawJob<'_>,
        job: &AcctJob,
    ) -> Result<Vec<AcctStep>, StoreError> {
        let mut steps = self.steps_as_written(run, job, None)?;
        for step in &mut steps {
            if step.end.is_none() && job.end.is_some() {
                step.end = job.end;
                step.state = match job.state {
                    state if state.is_ended() => state,
                    _ => JobState::Cancelled,
                };
            }
        }
        Ok(steps)
    }

    /// The steps of a run, or one of them by its key, as they were written.
    pub(super) fn steps_as_written(
        &self,
        run: &RawJob<'_>,
        job: &AcctJob,
        only: Option<i64>,
    ) -> Result<Vec<AcctStep>, StoreError> {
        let mut statement = self.connection.prepare_cached(&STEPS)?;
        let keys = (run.row, only.unwrap_or(i64::MIN), only.unwrap_or(i64::MAX));
        let mut rows = statement.query(keys)?;
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            let mut step = step_of(run, row, job)?;
            // As they are kept now: those of an older release may be longer than an answer has room for.
            step.name = step_name(step.step, &step.name).to_owned();
            step.nodelist = step_nodes(step.step, &step.nodelist).into_owned();
            steps.push(step);
        }
        Ok(steps)
    }
}

static STEPS: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<&str> = STEP_START.iter().chain(STEP_END).copied().collect();
    let columns = columns.join(", ");
    format!(
        "SELECT job, step, {columns} FROM step WHERE job = ?1 AND step BETWEEN ?2 AND ?3 ORDER BY step"
    )
});

/// Columns in the order that [`RawJob::of`] reads.
pub(super) fn job_columns() -> String {
    let columns: Vec<&str> = ["row"].iter().chain(ASKED).chain(LIFE).copied().collect();
    columns.join(", ")
}

/// The user's and the group's name in a text of `owner`; empty of one that is damaged, which is reported where its job is read.
pub(super) fn owner_names(text: &[u8]) -> (String, String) {
    let owner: Option<Owner> = minicbor::decode(text).ok();
    owner.map_or_else(Default::default, |owner| (owner.user, owner.group))
}

pub(super) fn decode<'b, T: Decode<'b, ()>>(
    run: &RawJob<'_>,
    column: &'static str,
    bytes: &'b [u8],
) -> Result<T, StoreError> {
    minicbor::decode(bytes).map_err(|error| StoreError::Damaged {
        job: row_run(run.row).job,
        column,
        why: error.to_string(),
    })
}

/// Reads columns one after another.
struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r> Columns<'r, '_> {
    fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    fn text(&mut self) -> rusqlite::Result<&'r str> {
        self.next += 1;
        let value = self.row.get_ref(self.next - 1)?;
        Ok(value.as_str_or_null()?.unwrap_or_default())
    }

    fn blob(&mut self) -> rusqlite::Result<Option<&'r [u8]>> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_blob_or_null()?)
    }
}

/// A row of `job` as it stands there.
pub(super) struct RawJob<'r> {
    pub(super) row: i64,
    pub(super) array_id: Option<i64>,
    pub(super) array_index: Option<i64>,
    pub(super) array_spec: Option<&'r [u8]>,
    pub(super) name: &'r str,
    pub(super) uid: i64,
    pub(super) gid: i64,
    pub(super) owner: i64,
    pub(super) account: i64,
    pub(super) qos: i64,
    pub(super) wckey: Option<i64>,
    pub(super) context: i64,
    pub(super) submit_line: &'r str,
    pub(super) comment: &'r str,
    pub(super) admin_comment: &'r str,
    pub(super) req_cpus: i64,
    pub(super) req_nodes: i64,
    pub(super) batch: i64,
    pub(super) submit: i64,
    pub(super) het_id: Option<i64>,
    pub(super) het_offset: Option<i64>,
    pub(super) het_size: Option<i64>,
    pub(super) partition: i64,
    pub(super) state: i64,
    pub(super) requeued: i64,
    pub(super) cancelled_by: Option<i64>,
    pub(super) exit: i64,
    pub(super) derived_exit: i64,
    pub(super) eligible: Option<i64>,
    pub(super) start: Option<i64>,
    pub(super) suspended_ms: i64,
    pub(super) time_limit: Option<i64>,
    pub(super) req_mem_mib: i64,
    pub(super) alloc_cpus: i64,
    pub(super) alloc_nodes: i64,
    pub(super) alloc_mem_mib: i64,
    pub(super) gres: Option<&'r [u8]>,
    pub(super) nodelist: &'r str,
    pub(super) reason: i64,
    pub(super) priority: i64,
    pub(super) ntasks: i64,
    pub(super) backfilled: Option<i64>,
    pub(super) end_ms: i64,
}

impl<'r> RawJob<'r> {
    /// In the order of [`ASKED`] and [`LIFE`]; fields are read in the order in which they are written here.
    pub(super) fn of(row: &'r Row<'_>) -> rusqlite::Result<RawJob<'r>> {
        let mut columns = Columns { row, next: 0 };
        Ok(RawJob {
            row: columns.get()?,
            array_id: columns.get()?,
            array_index: columns.get()?,
            array_spec: columns.blob()?,
            name: columns.text()?,
            uid: columns.get()?,
            gid: columns.get()?,
            owner: columns.get()?,
            account: columns.get()?,
            qos: columns.get()?,
            wckey: columns.get()?,
            context: columns.get()?,
            submit_line: columns.text()?,
            comment: columns.text()?,
            admin_comment: columns.text()?,
            req_cpus: columns.get()?,
            req_nodes: columns.get()?,
            batch: columns.get()?,
            submit: columns.get()?,
            het_id: columns.get()?,
            het_offset: columns.get()?,
            het_size: columns.get()?,
            partition: columns.get()?,
            state: columns.get()?,
            requeued: columns.get()?,
            cancelled_by: columns.get()?,
            exit: columns.get()?,
            derived_exit: columns.get()?,
            eligible: columns.get()?,
            start: columns.get()?,
            suspended_ms: columns.get()?,
            time_limit: columns.get()?,
            req_mem_mib: columns.get()?,
            alloc_cpus: columns.get()?,
            alloc_nodes: columns.get()?,
            alloc_mem_mib: columns.get()?,
            gres: columns.blob()?,
            nodelist: columns.text()?,
            reason: columns.get()?,
            priority: columns.get()?,
            ntasks: columns.get()?,
            backfilled: columns.get()?,
            end_ms: columns.get()?,
        })
    }

    pub(super) fn state(&self) -> Result<JobState, StoreError> {
        key_state(self.state).ok_or_else(|| StoreError::Damaged {
            job: row_run(self.row).job,
            column: "state",
            why: format!("{} is not a valid state", self.state),
        })
    }

    pub(super) fn end(&self) -> Option<i64> {
        (self.end_ms != OPEN).then_some(self.end_ms)
    }
}

/// In the order of [`STEP_START`] and [`STEP_END`], after the run's row.
fn step_of(run: &RawJob<'_>, row: &Row<'_>, job: &AcctJob) -> Result<AcctStep, StoreError> {
    let mut columns = Columns { row, next: 1 };
    let step = key_step(columns.get()?);
    let batch = step == muster_model::ids::StepNo::BATCH;
    let or = |text: &str, default: &str| match text {
        "" if batch => default.to_owned(),
        text => text.to_owned(),
    };
    let mut answer = AcctStep {
        step,
        name: or(columns.text()?, "batch"),
        start: Timestamp(columns.get()?),
        nodes: small(columns.get()?),
        tasks: small(columns.get()?),
        cpus: small(columns.get()?),
        mem_mib: unsigned(columns.get()?),
        nodelist: columns.text()?.to_owned(),
        submit_line: or(columns.text()?, &job.submit_line),
        distribution: columns.text()?.to_owned(),
        devices: match columns.blob()? {
            Some(devices) => decode(run, "step gres", devices)?,
            None => Vec::new(),
        },
        state: key_state(columns.get()?).ok_or_else(|| StoreError::Damaged {
            job: row_run(run.row).job,
            column: "step state",
            why: "no such state".to_owned(),
        })?,
        cancelled_by: columns.get::<Option<i64>>()?.map(small),
        exit: key_exit(columns.get()?),
        end: time(columns.get()?),
        usage: None,
    };
    let (user, system, rss): (Option<i64>, Option<i64>, Option<i64>) =
        (columns.get()?, columns.get()?, columns.get()?);
    if let Some(rest) = columns.blob()? {
        answer.usage = Some(ResourceUsage {
            user_us: unsigned(user.unwrap_or(0)),
            system_us: unsigned(system.unwrap_or(0)),
            max_rss_kib: unsigned(rss.unwrap_or(0)),
            ..decode(run, "step usage", rest)?
        });
    }
    Ok(answer)
}
