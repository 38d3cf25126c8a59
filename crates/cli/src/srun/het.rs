//! Steps over components of a heterogeneous job: `srun --het-group=0,1`, `srun a : b`. Each component has a step of its
//! own under one number; srun holds them together, and their tasks are numbered over all of them.

mod in_one_job;

use super::executor::Executor;
use super::request;
use super::{PREFIX, SrunCall, allocation, config, number_source};
use crate::say::Say;
use crate::submit::holder::{Holder, NotGranted};
use crate::submit::line::{self, SubmitLine, Variables};
use muster_conf::options::{ChosenOptions, OptionError, Source, values};
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::job_env;
use muster_model::job_env::HetComponent;
use muster_node_core::srun::config::{Lead, SrunConfig, StepComponent, Streams};
use muster_proto::client::AllocationInfo;
use muster_proto::step::{HetStep, StepSpec};
use std::process::ExitCode;

/// The text before errors of a step.
const STEP: &str = "Unable to create step";

/// A variable as the step in a component sees it: what describes the job is the component's.
pub(super) fn variable(own: &Variables, component: usize, name: &str) -> Option<String> {
    let own = |name: &str| own.value(name);
    if component == 0 || !job_env::is_job_variable(name) {
        return own(name);
    }
    own(&format!("{name}_HET_GROUP_{component}")).or_else(|| match name {
        "SLURM_JOB_ID" | "SLURM_JOBID" => own(name),
        _ => None,
    })
}

/// The components that each part of the command line runs in; none if this is a step like any other.
///
/// # Errors
/// `--het-group` is no list of components, or names one twice.
pub(super) fn groups(lines: &[SubmitLine]) -> Result<Option<Vec<Vec<u32>>>, ExitCode> {
    if lines.len() == 1 && !lines[0].chosen.has("het-group") {
        return Ok(None);
    }
    let mut all: Vec<Vec<u32>> = Vec::with_capacity(lines.len());
    for (line, number) in lines.iter().zip(0u32..) {
        let of_line = match line.chosen.value("het-group") {
            None => vec![number],
            Some(text) => {
                let set = values::indices(text).filter(|set| set.len() <= 128);
                let wrong = || {
                    let text = format!("Invalid --het-group specification: {text}");
                    line.say.option_error(&OptionError::fatal(text))
                };
                let set = set.ok_or_else(wrong)?;
                set.iter().collect()
            }
        };
        if all.iter().flatten().any(|group| of_line.contains(group)) {
            let text = "Duplicate het groups in single srun not supported";
            return Err(line.say.fatal(text));
        }
        all.push(of_line);
    }
    Ok(Some(all))
}

/// Request of a line of srun for one component of a step.
struct ComponentRequest {
    spec: StepSpec,
    streams: Streams,
    /// `-n` as it was given for this component.
    asked: Option<u32>,
}

/// A step in an allocation that exists.
pub(super) fn inside(
    lines: Vec<SubmitLine>,
    groups: &[Vec<u32>],
    job: JobId,
    call: SrunCall<'_>,
) -> Result<ExitCode, ExitCode> {
    let say = lines[0].say;
    let info = allocation(job)
        .map_err(|e| say.connect_error("Unable to confirm allocation for job", &e))?;
    let highest = groups.iter().flatten().max().copied().unwrap_or(0);
    if info.components.is_empty() && highest == 0 {
        let mut line = lines.into_iter().next().expect("there is a first line");
        return super::inside(&mut line, job, call);
    }
    if info.components.is_empty() && !lines.iter().any(|line| line.chosen.has("het-group")) {
        return in_one_job::run(&lines, *info, call);
    }
    let most = info.components.len().saturating_sub(1);
    if highest as usize > most {
        say.error(&format!(
            "Attempt to run a job step with het group value of {highest}, but the job allocation has maximum value of {most}"
        ));
        return Err(say.failed());
    }
    let words = programs(&lines);
    let mut parts: Vec<(usize, ComponentRequest)> = Vec::new();
    for ((line, groups), words) in lines.iter().zip(groups).zip(words) {
        for &group in groups {
            let mut own = of_component(line, group as usize);
            own.words = words.clone();
            request::forget_other_counts(&mut own.chosen);
            let asked = own.chosen.has("ntasks") || own.chosen.has("ntasks-per-node");
            parts.push((group as usize, part(&own, call.args, asked)?));
        }
    }
    parts.sort_by_key(|(group, _)| *group);
    let config = config_of(&lines[0], call, &parts)?;
    let (leader, parts) = components(&say, parts, &info)?;
    let config = SrunConfig {
        number: Some(number_source(leader)),
        parts,
        ..config
    };
    Ok(Executor::new(config, None, call.filters).run())
}

/// An allocation of several components, and a step over all of them.
pub(super) fn outside(
    mut lines: Vec<SubmitLine>,
    call: SrunCall<'_>,
) -> Result<ExitCode, ExitCode> {
    let say = lines[0].say;
    let words = programs(&lines);
    let mut specs = Vec::with_capacity(lines.len());
    let mut parts = Vec::with_capacity(lines.len());
    for (number, (line, words)) in lines.iter_mut().zip(words).enumerate() {
        line.words = words;
        let mut spec = line::build(line, PREFIX)?.spec;
        if spec.name.is_empty() {
            spec.name = line::base_name(&line.words[0]);
        }
        spec.argv = line.words.clone();
        spec.submit_line = line::submit_line("srun", call.args);
        spec.stdio =
            muster_conf::options::job::stdio(&line.chosen).map_err(|e| say.option_error(&e))?;
        // The holder of the first component holds all.
        spec.interactive = number == 0;
        let asked = spec.ask.ntasks.is_some();
        specs.push(spec);
        parts.push((number, part(line, call.args, asked)?));
    }
    let config = config_of(&lines[0], call, &parts)?;
    let holder = Holder::obtain(&lines[0], specs, PREFIX).map_err(|NotGranted(code)| code)?;
    let info = holder
        .info
        .clone()
        .unwrap_or_else(|| unreachable!("a holder that was obtained knows its allocation"));
    for (number, part) in &mut parts {
        if let Some(component) = info.components.get(*number) {
            request::fill_component(&mut part.spec, component, part.asked);
        }
    }
    match components(&say, parts, &info) {
        Ok((leader, parts)) => {
            let config = SrunConfig {
                has_allocation: true,
                number: Some(number_source(leader)),
                parts,
                ..config
            };
            Ok(Executor::new(config, Some(holder), call.filters).run())
        }
        Err(code) => {
            holder.finish(ExitStatus { code: 1, signal: 0 });
            Err(code)
        }
    }
}

/// The program of each part: one without runs the next one's.
fn programs(lines: &[SubmitLine]) -> Vec<Vec<String>> {
    let mut programs: Vec<Vec<String>> = lines.iter().map(|line| line.words.clone()).collect();
    for number in (0..programs.len().saturating_sub(1)).rev() {
        if programs[number].is_empty() {
            programs[number] = programs[number + 1].clone();
        }
    }
    programs
}

/// The options of a part in another component: what the environment said of the first is replaced.
fn of_component(line: &SubmitLine, group: usize) -> SubmitLine {
    let mut chosen = ChosenOptions::new(line.chosen.command);
    for given in line.chosen.iter() {
        if given.source != Source::Environment {
            chosen.give(given.row, given.value.clone(), given.source);
        }
    }
    let own = Variables::read();
    muster_conf::options::environment::read(&mut chosen, |name| variable(&own, group, name));
    SubmitLine {
        chosen,
        words: line.words.clone(),
        say: line.say,
    }
}

fn part(line: &SubmitLine, args: &[String], asked: bool) -> Result<ComponentRequest, ExitCode> {
    let say = line.say;
    let (mut spec, streams) = request::step(line, args).map_err(|e| say.build_error(STEP, &e))?;
    if !matches!(spec.mpi.as_deref(), None | Some("none" | "")) {
        say.error(
            "--mpi: the tasks of several components cannot be one MPI program here; start one step for each component with --het-group",
        );
        return Err(say.failed());
    }
    spec.mpi = Some("none".to_owned());
    let asked = spec.ntasks.filter(|_| asked);
    Ok(ComponentRequest {
        spec,
        streams,
        asked,
    })
}

/// Configuration of srun without the parts. The first line's options of streams and bad exits hold for all.
fn config_of(
    line: &SubmitLine,
    call: SrunCall<'_>,
    parts: &[(usize, ComponentRequest)],
) -> Result<SrunConfig, ExitCode> {
    match parts.first() {
        Some((_, first)) => config(
            line,
            call,
            first.streams.clone(),
            first.spec.kill_on_bad_exit,
        ),
        None => Err(line.say.fatal("No command given to execute.")),
    }
}

/// The first component's job, and the parts of the step in the order of the components, with their tasks numbered over all.
fn components(
    say: &Say,
    parts: Vec<(usize, ComponentRequest)>,
    info: &AllocationInfo,
) -> Result<(JobId, Vec<StepComponent>), ExitCode> {
    let leader = info
        .components
        .first()
        .map_or(info.job.id, |first| first.job);
    let mut placed = Vec::with_capacity(parts.len());
    for (group, part) in parts {
        let Some(component) = info.components.get(group) else {
            say.error(&format!("component {group} of job {leader} has no nodes"));
            return Err(say.failed());
        };
        let tasks = tasks_of(&part, component);
        placed.push((part.spec, component, tasks));
    }
    let total = placed.iter().map(|(_, _, tasks)| tasks).sum();
    let mut first_task = 0;
    let parts = placed.into_iter().map(|(mut spec, component, tasks)| {
        spec.job = component.job;
        spec.ntasks = Some(tasks);
        spec.het = Some(HetStep {
            first_task,
            total_tasks: Some(total),
            ..HetStep::default()
        });
        first_task += tasks;
        StepComponent {
            spec: Box::new(spec),
            lead: Lead::Component(component.lead_address.clone()),
        }
    });
    Ok((leader, parts.collect()))
}

/// Number of tasks of a part: as requested, or as the component has.
fn tasks_of(part: &ComponentRequest, component: &HetComponent) -> u32 {
    let nodes = u32::try_from(component.alloc.nodes.len()).unwrap_or(u32::MAX);
    part.asked
        .or(part.spec.ntasks)
        .or_else(|| Some(part.spec.ntasks_per_node?.saturating_mul(nodes)))
        .unwrap_or_else(|| component.alloc.ntasks.max(nodes))
}
