//! Jobs and steps of the source as accounting keeps them.

use super::source::{Fields, ImportError, Names, Source};
use super::tres::{self, TresNames};
use muster_acct::ImportedJob;
use muster_conf::options::values::indices;
use muster_model::account_limits::TresAmount;
use muster_model::het::HetPlace;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::ArrayTask;
use muster_model::job::{ExitStatus, JobState, Peak, Peaks, ResourceUsage};
use muster_model::spec::{ArraySpec, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::acct::{AcctJob, AcctStep};
use std::collections::HashMap;

/// Numbers of jobs that one query looks at.
const SPAN: u64 = 4000;
/// Jobs that one transaction writes, which the controller may have to wait for.
const JOBS_MAX: usize = 1000;
/// Steps that are read at once, unless one job has more.
const STEPS_MAX: u64 = 20_000;
/// Nodes of a list in which one is looked for.
const NODES_MAX: usize = 1 << 16;

/// States that are no state of a job of its own: it went back into the queue, or on with fewer nodes.
const REQUEUED: u64 = 0x400;
const RESIZED: u64 = 0x2000;
/// The lower bits of a state.
const STATE_BASE: u64 = 0xff;
/// `SchedBackfill` among the flags.
const BACKFILLED: u64 = 8;

const JOB: &[&str] = &[
    "job_db_inx",
    "id_job",
    "state",
    "account",
    "id_assoc",
    "id_user",
    "id_group",
    "job_name",
    "id_array_job",
    "id_array_task",
    "array_task_str",
    "array_max_tasks",
    "het_job_id",
    "het_job_offset",
    "partition",
    "id_qos",
    "id_resv",
    "wckey",
    "constraints",
    "derived_es",
    "admin_comment",
    "work_dir",
    "submit_line",
    "std_in",
    "std_out",
    "std_err",
    "exit_code",
    "derived_ec",
    "kill_requid",
    "time_submit",
    "time_eligible",
    "time_start",
    "time_end",
    "time_suspended",
    "timelimit",
    "cpus_req",
    "nodes_alloc",
    "nodelist",
    "priority",
    "state_reason_prev",
    "flags",
    "tres_alloc",
    "tres_req",
];

const STEP: &[&str] = &[
    "job_db_inx",
    "id_step",
    "step_name",
    "time_start",
    "time_end",
    "state",
    "exit_code",
    "kill_requid",
    "nodes_alloc",
    "nodelist",
    "task_cnt",
    "user_sec",
    "user_usec",
    "sys_sec",
    "sys_usec",
    "submit_line",
    "tres_alloc",
    "tres_usage_in_tot",
    "tres_usage_in_max",
    "tres_usage_in_max_nodeid",
    "tres_usage_in_max_taskid",
    "tres_usage_in_min",
    "tres_usage_in_min_nodeid",
    "tres_usage_in_min_taskid",
    "tres_usage_out_tot",
    "tres_usage_out_max",
    "tres_usage_out_max_nodeid",
    "tres_usage_out_max_taskid",
];

/// Jobs that were read.
pub(super) struct Jobs {
    pub(super) jobs: Vec<ImportedJob>,
    /// All up to this number are there.
    pub(super) up_to: u64,
}

/// Reads jobs in the order of their numbers.
pub(super) struct JobReader<'a> {
    source: &'a mut Source,
    names: &'a dyn Names,
    users: HashMap<u64, String>,
    qos: HashMap<u64, String>,
    reservations: HashMap<u64, String>,
    groups: HashMap<u32, String>,
    select_job: String,
    select_step: String,
    select_suspend: String,
    steps: String,
}

impl<'a> JobReader<'a> {
    pub(super) fn open(
        source: &'a mut Source,
        names: &'a dyn Names,
    ) -> Result<JobReader<'a>, ImportError> {
        let [assoc, job, step, suspend, resv] =
            ["assoc", "job", "step", "suspend", "resv"].map(|table| source.table_name(table));
        let mut names_of = |sql: &str| -> Result<HashMap<u64, String>, ImportError> {
            let rows = source.rows(sql, ())?;
            Ok(rows
                .map(|mut row| (row.number().unwrap_or(0), row.text()))
                .collect())
        };
        let users = names_of(&format!(
            "SELECT id_assoc, user FROM `{assoc}` WHERE user <> ''"
        ))?;
        let qos = names_of("SELECT id, name FROM qos_table")?;
        let reservations = names_of(&format!("SELECT id_resv, resv_name FROM `{resv}`"))?;
        let select_job = source.select(&job, JOB)?;
        let select_step = source.select(&step, STEP)?;
        let columns = ["job_db_inx", "time_start", "time_end"];
        let select_suspend = source.select(&suspend, &columns)?;
        Ok(JobReader {
            source,
            names,
            users,
            qos,
            reservations,
            groups: HashMap::new(),
            select_job,
            select_step,
            select_suspend,
            steps: step,
        })
    }

    /// Reads jobs that are over and changed since then, after a number and up to another.
    pub(super) fn read(
        &mut self,
        after: u64,
        since_s: u64,
        last: u64,
    ) -> Result<Jobs, ImportError> {
        let mut up_to = after.saturating_add(SPAN).min(last);
        let sql = format!(
            "{} WHERE job_db_inx > ? AND job_db_inx <= ? AND deleted = 0 AND time_end > 0 AND mod_time >= ?
             ORDER BY job_db_inx LIMIT {JOBS_MAX}",
            self.select_job
        );
        let rows: Vec<Fields> = self.source.rows(&sql, (after, up_to, since_s))?.collect();
        let is_cut = rows.len() >= JOBS_MAX;
        let mut jobs: Vec<ImportedJob> = Vec::with_capacity(rows.len());
        for mut row in rows {
            jobs.push(self.job(&mut row));
        }
        if let (true, Some(last)) = (is_cut, jobs.last()) {
            up_to = last.number;
        }
        if let Some(last) = self.fitting(&jobs)? {
            jobs.retain(|job| job.number <= last);
            up_to = last;
        }
        if let (Some(first), Some(last)) = (jobs.first(), jobs.last()) {
            let range = (first.number, last.number);
            self.add_steps(&mut jobs, range)?;
        }
        Ok(Jobs { jobs, up_to })
    }

    /// The last of these jobs whose steps may be read at once with those before; none if that is the last.
    fn fitting(&mut self, jobs: &[ImportedJob]) -> Result<Option<u64>, ImportError> {
        let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT job_db_inx, count(*) FROM `{}` WHERE job_db_inx BETWEEN ? AND ? GROUP BY job_db_inx",
            self.steps
        );
        let rows = self.source.rows(&sql, (first.number, last.number))?;
        let counts: HashMap<u64, u64> = rows
            .map(|mut row| (row.number().unwrap_or(0), row.number().unwrap_or(0)))
            .collect();
        let mut sum: u64 = 0;
        let mut before = None;
        for job in jobs {
            sum = sum.saturating_add(counts.get(&job.number).copied().unwrap_or(0));
            if sum > STEPS_MAX {
                return Ok(before.or(Some(job.number)).filter(|n| *n < last.number));
            }
            before = Some(job.number);
        }
        Ok(None)
    }

    fn add_steps(
        &mut self,
        jobs: &mut [ImportedJob],
        range: (u64, u64),
    ) -> Result<(), ImportError> {
        let places: HashMap<u64, usize> = jobs.iter().map(|job| job.number).zip(0..).collect();
        let which = "WHERE job_db_inx BETWEEN ? AND ?";
        let sql = format!(
            "{} {which} AND deleted = 0 AND time_start > 0",
            self.select_step
        );
        let rows = self.source.rows(&sql, range)?;
        for mut row in rows {
            let place = places.get(&row.number().unwrap_or(0));
            let Some(job) = place.and_then(|place| jobs.get_mut(*place)) else {
                continue;
            };
            job.job.steps.extend(step_of(&mut row, &self.source.tres));
        }
        let sql = format!("{} {which} AND time_end > 0", self.select_suspend);
        let rows = self.source.rows(&sql, range)?;
        for mut row in rows {
            let place = places.get(&row.number().unwrap_or(0));
            let times = row.time().zip(row.time());
            if let (Some(job), Some(times)) = (place.and_then(|p| jobs.get_mut(*p)), times) {
                job.suspensions.push(times);
            }
        }
        for job in jobs {
            let steps = &mut job.job.steps;
            steps.sort_by_key(|step| step.start);
            job.job.batch = job.job.submit_line.starts_with("sbatch")
                || steps.iter().any(|step| step.step == StepNo::BATCH);
        }
        Ok(())
    }

    fn user(&self, association: u64, uid: u32) -> String {
        let known = self.users.get(&association).cloned();
        let known = known.or_else(|| self.names.user(uid));
        known.unwrap_or_else(|| uid.to_string())
    }

    fn group(&mut self, gid: u32) -> String {
        let names = self.names;
        let name = || names.group(gid).unwrap_or_else(|| gid.to_string());
        self.groups.entry(gid).or_insert_with(name).clone()
    }

    /// In the order of [`JOB`].
    fn job(&mut self, row: &mut Fields) -> ImportedJob {
        let (number, id, state) = (
            row.number().unwrap_or(0),
            row.number().unwrap_or(0),
            row.number().unwrap_or(0),
        );
        let (account, association, uid, gid) = (
            row.text(),
            row.number().unwrap_or(0),
            row.small(),
            row.small(),
        );
        let name = row.text();
        let (array_job, array_task) = (row.number().filter(|n| *n > 0), row.set());
        let (array_text, throttle) = (row.text(), row.small());
        let (het_leader, het_offset) = (row.number().filter(|n| *n > 0), row.set());
        let (partition, qos, reservation) = (
            row.text(),
            row.number().unwrap_or(0),
            row.number().unwrap_or(0),
        );
        let wckey = row.text();
        let constraint = row.text();
        let (comment, admin_comment) = (row.text(), row.text());
        let (work_dir, submit_line) = (row.text(), row.text());
        let mut path = || Some(row.text()).filter(|path| !path.is_empty());
        let stdio = StdioSpec {
            stdin: path(),
            stdout: path(),
            stderr: path(),
            ..StdioSpec::default()
        };
        let (exit, derived_exit) = (exit_of(row.number()), exit_of(row.number()));
        let cancelled_by = row.set();
        let submit = row.time();
        let (eligible, start, end) = (row.time(), row.time(), row.time());
        let suspended_ms = row.number().unwrap_or(0).saturating_mul(1000);
        let time_limit = row.set().filter(|minutes| *minutes > 0);
        let (req_cpus, alloc_nodes) = (row.small(), row.small());
        let nodelist = Some(row.text()).filter(|list| list != "None assigned");
        let (priority, reason) = (row.small(), row.number().unwrap_or(0));
        let backfilled = row.number().unwrap_or(0) & BACKFILLED != 0;
        let (alloc, asked) = (row.text(), row.text());
        let count = |text: &str, id| tres::count(text, id).unwrap_or(0);
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let pending = array_job.is_some() && array_task.is_none();
        let array = pending.then(|| indices(&array_text)).flatten();
        let group = self.group(gid);
        let user = self.user(association, uid);
        let name_of =
            |names: &HashMap<u64, String>, id| names.get(&id).cloned().unwrap_or_default();
        let job = AcctJob {
            class: String::new(),
            id: JobId(id),
            restarts: 0,
            array: (array_job.map(JobId).zip(array_task))
                .map(|(array, index)| ArrayTask { array, index }),
            array_pending: None,
            name,
            uid,
            gid,
            user,
            group,
            account,
            partition,
            qos: name_of(&self.qos, qos),
            state: state_of(state),
            cancelled_by,
            exit,
            derived_exit,
            submit: submit.or(eligible).or(end).unwrap_or(Timestamp(0)),
            eligible,
            start,
            end,
            suspended_ms,
            time_limit: time_limit.map_or(TimeLimit::Unlimited, TimeLimit::Minutes),
            req_cpus,
            req_nodes: small(count(&asked, tres::NODES)),
            req_mem_mib: count(&asked, tres::MEMORY),
            alloc_cpus: small(count(&alloc, tres::CPU)),
            alloc_nodes,
            alloc_mem_mib: count(&alloc, tres::MEMORY),
            gres: devices(&self.source.tres, &alloc),
            req_gres: devices(&self.source.tres, &asked),
            grid_engine: Vec::new(),
            mcs_label: String::new(),
            nodelist: nodelist.unwrap_or_default(),
            work_dir,
            submit_line,
            comment,
            admin_comment,
            reason: reason_of(reason).to_owned(),
            priority,
            wckey,
            constraint,
            reservation: name_of(&self.reservations, reservation),
            ntasks: 0,
            stdio,
            batch: false,
            steps: Vec::new(),
            submit_host: String::new(),
            requeued: state & REQUEUED != 0,
            het: het_leader.zip(het_offset).map(|(leader, offset)| HetPlace {
                leader: JobId(leader),
                offset,
                size: 0,
            }),
            resized: state & RESIZED != 0,
            backfilled,
        };
        ImportedJob {
            number,
            job,
            array: array
                .filter(|indices| !indices.is_empty())
                .map(|indices| ArraySpec {
                    indices,
                    throttle: Some(throttle).filter(|most| *most > 0),
                }),
            suspensions: Vec::new(),
        }
    }
}

/// Devices that a job had, by name.
fn devices(names: &TresNames, alloc: &str) -> Vec<(String, u64)> {
    let is_device = |name: &str| name.starts_with("gres/") || name.starts_with("license/");
    let amounts = names.amounts(alloc);
    let devices = amounts.iter().filter(|tres| is_device(&tres.name));
    devices
        .map(|tres| (tres.name.clone(), tres.amount))
        .collect()
}

/// The state of a number; one that went back into the queue or on with fewer nodes has a flag.
fn state_of(number: u64) -> JobState {
    match number & STATE_BASE {
        0 | 2 if number & RESIZED != 0 => JobState::Running,
        0 => JobState::Pending,
        3 => JobState::Completed,
        5 => JobState::Failed,
        6 => JobState::Timeout,
        7 => JobState::NodeFail,
        8 => JobState::Preempted,
        9 => JobState::BootFail,
        10 => JobState::Deadline,
        11 => JobState::OutOfMemory,
        // Also what should not be there: a run that is over and said to run.
        _ => JobState::Cancelled,
    }
}

/// Why a job waited last, by the numbers of the source.
fn reason_of(number: u64) -> &'static str {
    match number {
        1 => "Priority",
        2 => "Dependency",
        3 => "Resources",
        9 => "BeginTime",
        10 => "Licenses",
        14 => "Reservation",
        15 => "ReqNodeNotAvail",
        16 => "JobHeldUser",
        65 => "AssocMaxJobsLimit",
        72 => "JobArrayTaskLimit",
        _ => "None",
    }
}

/// The status that wait(2) gives.
fn exit_of(status: Option<u64>) -> ExitStatus {
    let status = u32::try_from(status.unwrap_or(0)).unwrap_or(0);
    ExitStatus {
        code: (status >> 8) & 0xff,
        signal: status & 0x7f,
    }
}

/// The step of a number.
fn step_no(number: i64) -> Option<StepNo> {
    match number {
        -5 => Some(StepNo::BATCH),
        -4 => Some(StepNo::EXTERN),
        -6 => Some(StepNo::INTERACTIVE),
        number => u32::try_from(number)
            .ok()
            .filter(|number| *number <= StepNo::COUNTED_MAX)
            .map(StepNo),
    }
}

/// In the order of [`STEP`], after the job's number; none if the step is none that is kept.
fn step_of(row: &mut Fields, names: &TresNames) -> Option<AcctStep> {
    let step = step_no(row.signed()?)?;
    let name = row.text();
    let (start, end) = (row.time()?, row.time());
    let state = state_of(row.number().unwrap_or(0));
    let exit = exit_of(row.number());
    let cancelled_by = row.set();
    let (nodes, nodelist, tasks) = (row.small(), row.text(), row.small());
    let mut micros = || {
        let seconds = row.number().unwrap_or(0);
        seconds
            .saturating_mul(1_000_000)
            .saturating_add(row.number().unwrap_or(0))
    };
    let (user_us, system_us) = (micros(), micros());
    let (submit_line, alloc) = (row.text(), row.text());
    let total = row.text();
    let (most, least, written_total) = (Extreme::of(row), Extreme::of(row), row.text());
    let written = Extreme::of(row);
    let nodes_of = Nodes(&nodelist);
    let total_of = |id| tres::count(&total, id).unwrap_or(0);
    let count = |id| tres::count(&alloc, id).unwrap_or(0);
    let memory = most.peak(tres::MEMORY, &nodes_of, |bytes| bytes / 1024);
    let peaks = Peaks {
        vsize_kib: most.peak(tres::VIRTUAL_MEMORY, &nodes_of, |bytes| bytes / 1024),
        total_vsize_kib: total_of(tres::VIRTUAL_MEMORY) / 1024,
        pages: most.peak(tres::PAGES, &nodes_of, |n| n),
        read_bytes: most.peak(tres::DISK, &nodes_of, |n| n),
        write_bytes: written.peak(tres::DISK, &nodes_of, |n| n),
        min_cpu_us: least.peak(tres::CPU, &nodes_of, |ms| ms.saturating_mul(1000)),
    };
    let usage = ResourceUsage {
        user_us,
        system_us,
        max_rss_kib: memory.amount,
        total_rss_kib: total_of(tres::MEMORY) / 1024,
        max_rss_node: memory.node,
        max_rss_task: memory.task,
        pages: total_of(tres::PAGES),
        disk_read_bytes: total_of(tres::DISK),
        disk_write_bytes: tres::count(&written_total, tres::DISK).unwrap_or(0),
        tasks,
        min_cpu_us: peaks.min_cpu_us.amount,
        peaks: Some(Box::new(peaks)),
    };
    Some(AcctStep {
        step,
        name,
        state,
        cancelled_by,
        exit,
        start,
        end,
        nodes,
        tasks,
        cpus: u32::try_from(count(tres::CPU)).unwrap_or(u32::MAX),
        mem_mib: count(tres::MEMORY),
        nodelist,
        usage: end.map(|_| usage),
        submit_line,
        distribution: String::new(),
        devices: devices(names, &alloc)
            .into_iter()
            .map(|(name, amount)| TresAmount::new(name, amount))
            .collect(),
    })
}

/// Nodes of a step, looked up by their place.
struct Nodes<'a>(&'a str);

impl Nodes<'_> {
    fn at(&self, place: u64) -> String {
        if !self.0.contains(['[', ',']) {
            return self.0.to_owned();
        }
        let all = hostlist::parse_limited(self.0, NODES_MAX).unwrap_or_default();
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        all.get(place).cloned().unwrap_or_default()
    }
}

/// Amounts of the tasks that used most, or least, with places of their nodes and their numbers.
struct Extreme {
    amounts: String,
    nodes: String,
    tasks: String,
}

impl Extreme {
    fn of(row: &mut Fields) -> Extreme {
        Extreme {
            amounts: row.text(),
            nodes: row.text(),
            tasks: row.text(),
        }
    }

    fn peak(&self, id: u32, nodes: &Nodes<'_>, unit: impl Fn(u64) -> u64) -> Peak {
        let Some(amount) = tres::count(&self.amounts, id) else {
            return Peak::default();
        };
        let task = tres::count(&self.tasks, id).unwrap_or(0);
        Peak {
            amount: unit(amount),
            node: nodes.at(tres::count(&self.nodes, id).unwrap_or(0)),
            task: u32::try_from(task).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_slurmdbd_writes_them() {
        assert_eq!(exit_of(Some(1792)), ExitStatus { code: 7, signal: 0 });
        assert_eq!(
            exit_of(Some(11)),
            ExitStatus {
                code: 0,
                signal: 11
            }
        );
        assert_eq!(state_of(3), JobState::Completed);
        assert_eq!(state_of(REQUEUED), JobState::Pending);
        assert_eq!(state_of(1), JobState::Cancelled);
        assert_eq!(
            (step_no(-5), step_no(7)),
            (Some(StepNo::BATCH), Some(StepNo(7)))
        );
        assert_eq!((step_no(-3), step_no(1 << 40)), (None, None));
        assert_eq!(Nodes("n[1-4,8]").at(4), "n8");
        assert_eq!(Nodes("n[1-4]").at(9), "");
    }
}
