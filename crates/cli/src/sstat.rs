//! sstat: what the steps of running jobs use now, as the agents of their nodes measure it.

use crate::SLURM_VERSION;
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::account::{AcctRow, AmountStyle};
use crate::listing::context::Ctx;
use crate::listing::document::{Dialect, print_document, versions};
use crate::listing::{Failure, complain, print};
use crate::measure::{self, AgentQuestion, MESSAGE_TIMEOUT, NodeAnswer, ask_agents, nodes_of};
use crate::options::{Arg, HelpForm, Opt, Spec, also, flag, opt};
use crate::sacct::document::write_measured;
use crate::sacct::fields::{AcctField, find};
use crate::sacct::{Separation, cell, names_in_rows};
use crate::targets::{job_target, step_number};
use muster_model::command::JobTarget;
use muster_model::hostlist;
use muster_model::ids::{JobId, StepId, StepNo};
use muster_model::job::{Job, ResourceUsage, Step};
use muster_model::refusal::RefusalCode;
use muster_proto::acct::{AcctJob, AcctStep};
use muster_proto::client::{AllocationInfo, JobFilter, Query, Response};
use muster_proto::step::{AgentReply, Process};
use std::collections::{BTreeMap, BTreeSet};

/// sstat.
pub(crate) static SPEC: Spec = Spec {
    name: "sstat",
    about: "Shows what steps of running jobs use now: one's own, for root anybody's.",
    operands: "",
    form: HelpForm::Values("-j <job(.stepid)>"),
    options: OPTIONS,
    variables: &[],
    notes: "",
};

static OPTIONS: &[Opt] = &[
    flag("allsteps", "all steps of jobs that are named without one").short('a'),
    opt(
        "format",
        "LIST",
        "these columns; name%20 sets a width, name%-20 pads on the right",
    )
    .short('o'),
    also("format", "fields", Arg::Required),
    flag("help", "print this help").short('h'),
    flag("helpformat", "names of the columns").short('e'),
    opt("json", "VERSION", "as JSON; --json=list names the versions").optional(),
    opt("jobs", "LIST", "these steps: 12, 12.0, 12.batch, 12_3.0").short('j'),
    flag("noconvert", "memory always in bytes"),
    flag("noheader", "no lines above the columns").short('n'),
    flag("parsable", "columns separated by '|', and one at the end").short('p'),
    flag("parsable2", "columns separated by '|'").short('P'),
    flag("pidformat", "the processes of each step").short('i'),
    flag("usage", "print a short summary"),
    flag("verbose", "say more")
        .short('v')
        .stored("nothing more is known"),
    flag("version", "print the version").short('V'),
    opt("yaml", "VERSION", "as YAML; as for JSON").optional(),
];

const COLUMNS: &str = "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,\
    MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,\
    ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,\
    MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,\
    TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,\
    TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,\
    TRESUsageOutTot";

/// Columns that are shown where they are asked for. Pids is a column of `--pidformat` alone.
const MORE_COLUMNS: [&str; 3] = ["ConsumedEnergyRaw", "Nodelist", "ReqCPUFreq"];

/// The heading of a column, which is not always sacct's.
fn title(field: &'static AcctField) -> &'static str {
    let own = |name: &&'static str| name.eq_ignore_ascii_case(field.name);
    MORE_COLUMNS.into_iter().find(own).unwrap_or(field.name)
}

#[derive(Debug, Default)]
struct Options {
    jobs: Vec<String>,
    format: Option<String>,
    all_steps: bool,
    processes: bool,
    no_header: bool,
    keep_units: bool,
    separation: Separation,
    /// `--json`, `--yaml`.
    document: Option<Dialect>,
}

/// Runs sstat.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = versions(&parsed) {
        return print_text(&text);
    }
    let mut options = Options::default();
    for (name, value) in parsed.options {
        let value = value.unwrap_or_default();
        match name {
            "allsteps" => options.all_steps = true,
            "format" => options.format = Some(value),
            "jobs" => {
                let listed = value.split(',').filter(|word| !word.is_empty());
                options.jobs.extend(listed.map(str::to_owned));
            }
            "json" | "yaml" => {
                options.document = Some(Dialect::parse("sstat", name == "yaml", &value)?);
            }
            "noconvert" => options.keep_units = true,
            "noheader" => options.no_header = true,
            "parsable" => options.separation = Separation::WithLast,
            "parsable2" => options.separation = Separation::Between,
            "pidformat" => options.processes = true,
            "help" => return print_text(&SPEC.help()),
            "usage" => return print_text(&SPEC.usage()),
            "helpformat" => {
                let mut names: Vec<&str> = COLUMNS.split(',').collect();
                names.extend(MORE_COLUMNS.into_iter().chain(["Pids"]));
                names.sort_by_key(|name| place_in_help(name));
                return print_text(&names_in_rows(&names));
            }
            "version" => return print_text(&format!("slurm {SLURM_VERSION}\n")),
            _ => {}
        }
    }
    options.jobs.extend(parsed.operands);
    options.show()
}

/// Columns are in order of their names, but for those that belong together.
fn place_in_help(name: &str) -> (String, u8) {
    let (name, place) = match name {
        "ReqCPUFreqMin" => ("ReqCPUFreq", 1),
        "ReqCPUFreqMax" => ("ReqCPUFreq", 2),
        "ReqCPUFreqGov" => ("ReqCPUFreq", 3),
        name => (name, 0),
    };
    (name.to_ascii_lowercase(), place)
}

fn print_text(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// Why there are no steps of a job to measure.
fn no_steps(job: JobId, error: &ConnectError) -> String {
    match error {
        ConnectError::Refused(refusal) => match refusal.code {
            RefusalCode::JobPending => format!("No steps running for job {job}"),
            RefusalCode::InvalidJobId => format!("couldn't get steps for job {job}"),
            _ => format!("couldn't get steps for job {job}: {error}"),
        },
        _ => format!("couldn't get steps for job {job}: {error}"),
    }
}

impl Options {
    fn show(&self) -> Result<(), Failure> {
        if self.jobs.is_empty() {
            return Err(Failure::new(
                "sstat: error: You didn't give me any jobs to stat.",
            ));
        }
        let columns = self.columns()?;
        let named: Vec<(&str, JobTarget, Option<StepNo>)> = (self.jobs.iter())
            .map(|text| named(text))
            .collect::<Result<_, _>>()?;
        let mut client =
            Client::connect().map_err(crate::listing::failed_call("slurm_load_jobs"))?;
        let mut out = String::new();
        if !self.no_header {
            self.header(&mut out, &columns);
        }
        let ctx = Ctx::new(&client.endpoint.cluster);
        let mut chosen = Vec::new();
        for (text, target, step) in &named {
            match self.chosen(&mut client, (text, target), *step) {
                Ok(own) => chosen.push(own),
                // A job that is gone is no failure of sstat's, as scripts that poll it expect.
                Err(why) => complain(&format!("sstat: error: {why}")),
            }
        }
        let answers = self.ask(&chosen);
        // As with Slurm's, nodes that do not answer do not change the exit status.
        for failure in measure::failures(&answers) {
            complain(&format!("sstat: error: {failure}"));
        }
        let measured = StepMeasurements::of(answers);
        if let Some(dialect) = self.document {
            let jobs: Vec<AcctJob> = (chosen.iter()).map(|own| own.answered(&measured)).collect();
            print_document(dialect, "sstat", &ctx, |w| write_measured(w, &jobs, &ctx));
            return Ok(());
        }
        for own in &chosen {
            self.rows(&mut out, &columns, (own, &measured), &ctx);
        }
        print(&out);
        Ok(())
    }

    /// The steps that a word names.
    fn chosen(
        &self,
        client: &mut Client,
        (text, target): (&str, &JobTarget),
        step: Option<StepNo>,
    ) -> Result<ChosenSteps, String> {
        let id = match target.tasks {
            None => target.job,
            Some(_) => {
                let job = text.split_once('.').map_or(text, |(job, _)| job);
                task_id(client, target.job, job).ok_or_else(|| format!("no job {job} runs"))?
            }
        };
        let info = match client.query(Query::Allocation(id)) {
            Ok(Response::JobStarted(info)) => info,
            Ok(other) => return Err(unexpected(&other).to_string()),
            Err(e) => return Err(no_steps(id, &e)),
        };
        let mut steps: Vec<&Step> = info.job.steps.iter().map(|s| &**s).collect();
        steps.sort_by_key(|step| (step.step < StepNo::BATCH, step.step));
        let numbered = steps.iter().find(|s| s.step < StepNo::INTERACTIVE);
        let wanted: Vec<StepNo> = match step {
            Some(step) => steps
                .iter()
                .map(|s| s.step)
                .filter(|s| *s == step)
                .collect(),
            None if self.all_steps => steps.iter().map(|s| s.step).collect(),
            None => numbered.map(|s| s.step).into_iter().collect(),
        };
        // A job that runs its script alone has no line unless all steps are asked for.
        if wanted.is_empty() && (step.is_some() || steps.is_empty()) {
            return Err(match step {
                Some(_) => format!("StepId={text} not found running."),
                None => format!("No steps running for job {text}"),
            });
        }
        Ok(ChosenSteps {
            info,
            steps: wanted,
        })
    }

    /// Asks the agents of all nodes that the steps run on, each once.
    fn ask(&self, chosen: &[ChosenSteps]) -> Vec<NodeAnswer> {
        let question = match self.processes {
            true => AgentQuestion::Processes,
            false => AgentQuestion::Usage,
        };
        let mut asked = BTreeSet::new();
        let mut nodes = Vec::new();
        for own in chosen {
            let of_steps = own.nodes();
            let wanted = nodes_of(&own.info).filter(|one| of_steps.contains(&one.node));
            nodes.extend(wanted.filter(|one| asked.insert((one.job, one.node.clone()))));
        }
        ask_agents(nodes, question, MESSAGE_TIMEOUT)
    }

    fn columns(&self) -> Result<Vec<(&'static AcctField, i32)>, Failure> {
        let format = self.format.as_deref().unwrap_or(COLUMNS);
        let mut columns = Vec::new();
        for word in format.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            let (name, width) = match word.split_once('%') {
                Some((name, width)) => (name, Some(width)),
                None => (word, None),
            };
            let invalid =
                || Failure::new(format!("sstat: error: Invalid field requested: \"{name}\""));
            let mut all = COLUMNS.split(',').chain(MORE_COLUMNS);
            let known = all.any(|c| c.eq_ignore_ascii_case(name));
            let field = find(name).filter(|_| known).ok_or_else(invalid)?;
            let width = match width {
                Some(width) => width.parse().map_err(|_| invalid())?,
                None => width_of(field),
            };
            columns.push((field, width));
        }
        Ok(columns)
    }

    fn header(&self, out: &mut String, columns: &[(&'static AcctField, i32)]) {
        if self.processes {
            return self.line(out, &PROCESS_COLUMNS, |(name, _), out| out.push_str(name));
        }
        self.line(out, columns, |(field, _), out| out.push_str(title(field)));
    }

    fn rows(
        &self,
        out: &mut String,
        columns: &[(&'static AcctField, i32)],
        (chosen, measured): (&ChosenSteps, &StepMeasurements),
        ctx: &Ctx,
    ) {
        let id = chosen.info.job.id;
        let job = &chosen.with_usage(measured);
        let known = job.steps.iter().zip(chosen.records());
        // The use on some of its nodes is not that of the step: Slurm's has no line for it.
        let known = known.filter(|(_, step)| {
            self.processes || !nodes_of_step(step).any(|node| measured.is_silent(id, &node))
        });
        for (step, _) in known {
            let row = AcctRow {
                job,
                step: Some(step),
                shown: AmountStyle {
                    keep_units: self.keep_units,
                    exact: true,
                    ..AmountStyle::default()
                },
            };
            if !self.processes {
                self.line(out, columns, |(field, _), out| {
                    (field.render)(&row, ctx, out);
                });
                continue;
            }
            let of_step = measured.pids.get(&StepId::new(id, step.step));
            for (node, pids) in of_step.into_iter().flatten() {
                self.line(out, &PROCESS_COLUMNS, |(name, _), out| match *name {
                    "JobID" => row.write_id(out),
                    "Nodes" => out.push_str(node),
                    _ => out.push_str(pids),
                });
            }
        }
    }

    fn line<C>(
        &self,
        out: &mut String,
        columns: &[(C, i32)],
        write: impl Fn(&(C, i32), &mut String),
    ) {
        let first = out.is_empty();
        for (i, column) in columns.iter().enumerate() {
            if self.separation == Separation::Between && i > 0 {
                out.push('|');
            }
            let start = out.len();
            write(column, out);
            match self.separation {
                Separation::Widths => {
                    cell(out, start, column.1);
                    out.push(' ');
                }
                Separation::WithLast => out.push('|'),
                Separation::Between => {}
            }
        }
        out.push('\n');
        if first && !self.no_header && self.separation == Separation::Widths {
            for (_, width) in columns {
                out.extend(std::iter::repeat_n('-', width.unsigned_abs() as usize));
                out.push(' ');
            }
            out.push('\n');
        }
    }
}

/// `12`, `12.0`, `12_3.batch`: the text, the job and the step.
fn named(text: &str) -> Result<(&str, JobTarget, Option<StepNo>), Failure> {
    let wrong = || Failure::new(format!("sstat: fatal: Bad job/step specified: {text}"));
    let (job, step) = match text.split_once('.') {
        Some((job, step)) => (job, Some(step_number(step).ok_or_else(wrong)?)),
        None => (text, None),
    };
    Ok((text, job_target(job).ok_or_else(wrong)?, step))
}

/// sstat has these narrower than sacct.
fn width_of(field: &AcctField) -> i32 {
    match field.name {
        "AveDiskRead" | "AveDiskWrite" => 12,
        _ => field.width,
    }
}

/// Columns of `--pidformat`.
const PROCESS_COLUMNS: [(&str, i32); 3] = [("JobID", -12), ("Nodes", -20), ("Pids", -20)];

/// Steps of a job that are shown.
struct ChosenSteps {
    info: Box<AllocationInfo>,
    steps: Vec<StepNo>,
}

impl ChosenSteps {
    /// The nodes that they run on.
    fn nodes(&self) -> BTreeSet<String> {
        self.records().flat_map(nodes_of_step).collect()
    }

    fn records(&self) -> impl Iterator<Item = &Step> {
        let all = || self.info.job.steps.iter().map(|step| &**step);
        let numbers = self.steps.iter();
        numbers.filter_map(move |number| all().find(|step| step.step == *number))
    }

    /// As below, without steps of which a node has not answered.
    fn answered(&self, measured: &StepMeasurements) -> AcctJob {
        let id = self.info.job.id;
        let is_silent = |step: &Step| nodes_of_step(step).any(|node| measured.is_silent(id, &node));
        let silent: Vec<StepNo> = (self.records())
            .filter(|step| is_silent(step))
            .map(|step| step.step)
            .collect();
        let mut job = self.with_usage(measured);
        job.steps.retain(|step| !silent.contains(&step.step));
        job
    }

    /// As much of the job as the columns need.
    fn with_usage(&self, measured: &StepMeasurements) -> AcctJob {
        let job = &self.info.job;
        let shown = self.records().map(|step| {
            let id = StepId::new(job.id, step.step);
            row(step, measured.usage.get(&id))
        });
        job_row(job, shown.collect())
    }
}

/// Answers of agents.
#[derive(Default)]
struct StepMeasurements {
    /// Use of steps on all nodes that have answered.
    usage: BTreeMap<StepId, ResourceUsage>,
    /// Numbers of processes, with commas between them, by step and node.
    pids: BTreeMap<StepId, BTreeMap<String, String>>,
    /// Nodes that have not answered.
    silent: BTreeMap<JobId, BTreeSet<String>>,
}

impl StepMeasurements {
    fn of(answers: Vec<NodeAnswer>) -> StepMeasurements {
        let mut all = StepMeasurements::default();
        for NodeAnswer { job, node, reply } in answers {
            match reply {
                Ok(Some(AgentReply::Measured(steps))) => {
                    for measured in steps {
                        let step = StepId::new(job, measured.step);
                        all.usage.entry(step).or_default().add(&measured.usage);
                    }
                }
                Ok(Some(AgentReply::Processes(list))) => {
                    for Process { pid, step, .. } in list {
                        let of_step = all.pids.entry(StepId::new(job, step)).or_default();
                        let text = of_step.entry(node.clone()).or_default();
                        if !text.is_empty() {
                            text.push(',');
                        }
                        text.push_str(&pid.to_string());
                    }
                }
                Ok(_) => {}
                Err(_) => drop(all.silent.entry(job).or_default().insert(node)),
            }
        }
        all
    }

    fn is_silent(&self, job: JobId, node: &str) -> bool {
        let silent = self.silent.get(&job);
        silent.is_some_and(|silent| silent.contains(node))
    }
}

/// The nodes that a step runs on.
fn nodes_of_step(step: &Step) -> impl Iterator<Item = String> {
    let names = hostlist::parse(&step.hostlist).unwrap_or_default();
    names.into_iter()
}

/// The number of a task's own record.
fn task_id(client: &mut Client, base: JobId, text: &str) -> Option<JobId> {
    let (_, index) = text.split_once('_')?;
    let index = index.parse().ok()?;
    let filter = JobFilter {
        ids: vec![base],
        ..JobFilter::default()
    };
    let jobs = client.query_jobs(filter).ok()?;
    let task = jobs.iter().find(|job| job.task_index() == Some(index));
    task.map(|job| job.id)
}

fn row(step: &Step, usage: Option<&ResourceUsage>) -> AcctStep {
    AcctStep {
        step: step.step,
        name: step.name.clone(),
        state: muster_model::job::JobState::Running,
        cancelled_by: None,
        exit: muster_model::job::ExitStatus::default(),
        start: step.start_time,
        end: None,
        nodes: step.nodes,
        tasks: step.tasks,
        cpus: step.cpus,
        mem_mib: step.memory_mib,
        nodelist: step.hostlist.clone(),
        usage: usage.cloned(),
        submit_line: step.submit_line.clone(),
        devices: step.devices.clone(),
        distribution: step.distribution.clone().unwrap_or_default(),
    }
}

/// As much of a job as the columns need.
fn job_row(job: &Job, steps: Vec<AcctStep>) -> AcctJob {
    let (spec, owner) = (&job.spec, &job.spec.owner);
    let alloc = job.alloc.as_deref();
    AcctJob {
        id: job.id,
        restarts: job.restarts,
        het: job.het,
        backfilled: alloc.is_some_and(|alloc| alloc.backfilled),
        array: job.array.task(),
        array_pending: None,
        name: spec.name.clone(),
        uid: owner.uid,
        gid: owner.gid,
        user: owner.user.clone(),
        group: owner.group.clone(),
        account: spec.account_name().to_owned(),
        partition: job.partition.clone(),
        qos: spec.qos_name().to_owned(),
        class: spec
            .class
            .as_ref()
            .map_or_else(String::new, |own| own.name.clone()),
        state: job.state,
        cancelled_by: None,
        exit: job.exit,
        derived_exit: job.derived_exit,
        submit: job.submit_time,
        eligible: job.eligible_time,
        start: job.start_time,
        end: None,
        suspended_ms: job.suspended_ms,
        time_limit: job.time_limit,
        req_cpus: 0,
        req_nodes: spec.ask.min_nodes,
        req_mem_mib: 0,
        alloc_cpus: alloc.map_or(0, |a| u32::try_from(a.cpus()).unwrap_or(u32::MAX)),
        alloc_nodes: alloc.map_or(0, |a| u32::try_from(a.nodes.len()).unwrap_or(u32::MAX)),
        alloc_mem_mib: 0,
        gres: Vec::new(),
        req_gres: Vec::new(),
        grid_engine: Vec::new(),
        mcs_label: String::new(),
        nodelist: alloc.map_or_else(String::new, |a| {
            let names: Vec<&str> = a.nodes.iter().map(|n| n.name.as_str()).collect();
            hostlist::compress(&names)
        }),
        work_dir: String::new(),
        submit_line: String::new(),
        comment: String::new(),
        admin_comment: String::new(),
        reason: String::new(),
        priority: job.priority,
        wckey: String::new(),
        constraint: String::new(),
        reservation: String::new(),
        ntasks: 0,
        stdio: spec.stdio.clone(),
        batch: false,
        steps,
        submit_host: String::new(),
        requeued: false,
        resized: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::step::MeasuredStep;

    #[test]
    fn headings_are_those_of_slurm() {
        let of = |name| title(find(name).unwrap());
        assert_eq!((of("nodelist"), of("maxrss")), ("Nodelist", "MaxRSS"));
    }

    #[test]
    fn what_nodes_say_is_added_up_by_step() {
        let answer = |job, node: &str, reply| NodeAnswer {
            job: JobId(job),
            node: node.to_owned(),
            reply,
        };
        let used = |pages| {
            let usage = ResourceUsage {
                pages,
                ..ResourceUsage::default()
            };
            let step = StepNo(0);
            Ok(Some(AgentReply::Measured(vec![MeasuredStep {
                step,
                usage,
            }])))
        };
        let pids = [7, 8].map(|pid| Process {
            pid,
            step: StepNo(0),
            task: None,
        });
        let answers = vec![
            answer(1, "n1", used(2)),
            answer(1, "n2", used(3)),
            answer(1, "n3", Err("silent".to_owned())),
            answer(2, "n1", used(9)),
            answer(2, "n2", Ok(None)),
            answer(2, "n3", Ok(Some(AgentReply::Processes(pids.to_vec())))),
        ];
        let all = StepMeasurements::of(answers);
        let sums = all
            .usage
            .iter()
            .map(|(step, used)| (step.job.0, used.pages));
        assert_eq!(sums.collect::<Vec<_>>(), [(1, 5), (2, 9)]);
        let key = StepId::new(JobId(2), StepNo(0));
        let of_step = BTreeMap::from([("n3".to_owned(), "7,8".to_owned())]);
        assert_eq!(all.pids, BTreeMap::from([(key, of_step)]));
        let silent = |job, node: &str| all.is_silent(JobId(job), node);
        assert!(silent(1, "n3") && !silent(1, "n1") && !silent(2, "n3"));
    }
}
