//! srun: a program, many times, on the nodes of an allocation: of the one that srun is called in, or of one that it
//! asks for first.

mod bcast;
mod debugger_test;
mod detached;
mod device_ask;
mod executor;
mod het;
mod input;
mod linked;
mod multi_prog;
mod output;
pub(crate) mod peer;
mod request;
mod stdio_passing;
pub(crate) mod terminal;

use crate::clusters;
use crate::connect::{Client, ConnectError, TOKEN_VARIABLE, own_token, unexpected};
use crate::process;
use crate::say;
use crate::submit::filters::Filters;
use crate::submit::holder::{Holder, NotGranted};
use crate::submit::line::{self, SubmitLine};
use crate::submit::verbose;
use executor::Executor;
use muster_conf::endpoint::{self, Endpoint};
use muster_conf::options::{ChosenOptions, Group, OptionCommand, OptionError, Source, values};
use muster_model::ids::JobId;
use muster_model::job_env;
use muster_node_core::srun::config::{
    ExitCodes, Lead, NumberSource, SrunConfig, StepComponent, StepRules, Streams,
};
use muster_proto::client::{AllocationInfo, Query, Response};
use std::process::ExitCode;

const PREFIX: &str = "Unable to allocate resources";

/// Command line and environment of srun.
#[derive(Clone, Copy)]
struct SrunCall<'c> {
    args: &'c [String],
    filters: &'c Filters,
    /// `KillWait`, seconds.
    kill_wait_s: u32,
    /// Settings of a new job beyond the options (`JobSpec::shown`).
    marks: &'c [(String, String)],
}

/// Runs srun.
pub(crate) fn main(args: &[String]) -> ExitCode {
    main_with_marks(args, &[])
}

/// Runs srun for a command whose jobs say more than its options do.
pub(crate) fn main_with_marks(args: &[String], marks: &[(String, String)]) -> ExitCode {
    run(args, marks).unwrap_or_else(|code| code)
}

fn run(args: &[String], marks: &[(String, String)]) -> Result<ExitCode, ExitCode> {
    let (args, stays) = detached::own_arguments(args);
    let filters = Filters::of_site(OptionCommand::Srun, args)?;
    let mut lines = line::read_in(OptionCommand::Srun, args, &filters, het::variable)?;
    clusters::choose_working_cluster();
    let say = lines[0].say;
    if own_token().is_some() {
        let text = format!(
            "{TOKEN_VARIABLE} is set, and steps cannot be run by a token: unset it, or use sbatch"
        );
        return Err(say.fatal(&text));
    }
    if lines[0].chosen.value("mpi") == Some("list") {
        say::stdout(&mpi_kinds());
        return Ok(ExitCode::SUCCESS);
    }
    detached::check(&lines).map_err(|e| say.option_error(&e))?;
    if lines[0].chosen.has("async") {
        if !stays {
            return detached::start(&lines[0], args);
        }
        detached::begin(&mut lines[0].chosen).map_err(|e| say.option_error(&e))?;
    }
    filters.pre_submit(&mut lines)?;
    verbose::list_options(&lines);
    if let Some(text) = binding_help(&lines[0].chosen) {
        say::stdout(text);
        return Ok(ExitCode::SUCCESS);
    }
    let site = endpoint::read(&endpoint::conf_path()).ok();
    for line in &mut lines {
        if let Some(site) = &site {
            request::fill_from_site(&mut line.chosen, site);
        }
        request::forget_own_binding(&mut line.chosen, |name| process::variable(name).is_some());
        if let Some(path) = process::variable("SLURM_HOSTFILE") {
            request::read_hostfile(&mut line.chosen, path).map_err(|e| say.option_error(&e))?;
        }
        // A step is its job's user's: another user is refused as for a job, or in `check_owner`.
        line::owner(&line.chosen).map_err(|e| say.option_error(&e))?;
        check_mpi(&line.chosen).map_err(|e| say.option_error(&e))?;
        bcast::check(line).map_err(|e| say.option_error(&e))?;
    }
    if lines.last().is_none_or(|line| line.words.is_empty()) {
        return Err(say.fatal("No command given to execute."));
    }
    if process::variable("SLURM_TEST_EXEC").is_some() {
        lines.iter().try_for_each(bcast::test_program)?;
    }
    let job = own_job(&lines[0].chosen).map_err(|e| say.option_error(&e))?;
    let all = lines.iter().flat_map(|line| line.chosen.iter());
    let of_site: Vec<&str> = all
        .filter(|given| given.row.group == Group::Site)
        .map(|given| given.row.long)
        .collect();
    if let (Some(job), Some(long)) = (job, of_site.first()) {
        return Err(say.fatal(&format!(
            "--{long} is an option of jobs: job {job} is there already, and a step has none of its own"
        )));
    }
    if let Some(job) = job {
        check_owner(&lines, job)?;
    }
    let call = SrunCall {
        args,
        filters: &filters,
        kill_wait_s: site.map_or(endpoint::KILL_WAIT_S, |site: Endpoint| site.kill_wait_s),
        marks,
    };
    let groups = het::groups(&lines)?;
    if (lines.len() > 1 || groups.is_some()) && lines.iter().any(|line| line.chosen.has("bcast")) {
        return Err(say.fatal("--bcast is not supported in heterogeneous jobs; use sbcast"));
    }
    match (job, groups) {
        (Some(job), Some(groups)) => het::inside(lines, &groups, job, call),
        (Some(job), None) => inside(&mut lines[0], job, call),
        (None, _) if lines.len() > 1 => het::outside(lines, call),
        (None, _) => outside(&mut lines[0], call),
    }
}

/// Refuses a user or group that is not the job's: a step runs as these.
fn check_owner(lines: &[SubmitLine], job: JobId) -> Result<(), ExitCode> {
    let names_other = |line: &&SubmitLine| line.chosen.has("uid") || line.chosen.has("gid");
    let Some(SubmitLine { say, .. }) = lines.iter().find(names_other) else {
        return Ok(());
    };
    let info = allocation(job)
        .map_err(|e| say.connect_error("Unable to confirm allocation for job", &e))?;
    let of_job = &info.job.spec.owner;
    for line in lines {
        let asked = line::owner(&line.chosen).map_err(|e| say.option_error(&e))?;
        for (long, asked, own) in [
            ("uid", asked.uid, of_job.uid),
            ("gid", asked.gid, of_job.gid),
        ] {
            if let Some(text) = line.chosen.value(long).filter(|_| asked != own) {
                return Err(say.fatal(&format!(
                    "--{long}={text}: job {job} has {long} {own}, and its steps run with that"
                )));
            }
        }
    }
    Ok(())
}

/// `--cpu-bind=help`, `--mem-bind=help`.
fn binding_help(chosen: &ChosenOptions) -> Option<&'static str> {
    if chosen.value("cpu-bind") == Some("help") {
        return Some(
            "CPU bind options, one kind after words that are joined by commas:\n\
             \tquiet, verbose         whether each task tells what it is bound to\n\
             \tnone                   not bound\n\
             \tthreads, cores, sockets, ldoms\n\
             \t                       bound to what holds the CPUs that a task is given\n\
             \trank, rank_ldom        by the task's number on its node: to a CPU, to a NUMA domain\n\
             \tmap_cpu:<list>         to these CPUs, one for each task\n\
             \tmask_cpu:<list>        to these sets of CPUs, in hexadecimal\n\
             \tmap_ldom:<list>, mask_ldom:<list>\n\
             \t                       likewise to NUMA domains\n",
        );
    }
    (chosen.value("mem-bind") == Some("help")).then_some(
        "Memory bind options, one kind after words that are joined by commas:\n\
         \tquiet, verbose         whether each task tells what it is bound to\n\
         \tprefer                 other NUMA domains may be used too\n\
         \tnone                   not bound\n\
         \tlocal                  next to the CPU that a task runs on\n\
         \trank                   to the NUMA domain with the task's number on its node\n\
         \tmap_mem:<list>         to these NUMA domains, one for each task\n\
         \tmask_mem:<list>        to these sets of NUMA domains, in hexadecimal\n",
    )
}

/// Output of `--mpi=list`: the abilities of this machine. The nodes decide for themselves.
fn mpi_kinds() -> String {
    if let Some(kinds) = ask_muster() {
        return kinds;
    }
    let mut text = "MPI plugin types are...\n\tnone\n\tauto\n\tpmi2\n".to_owned();
    if let Ok(library) = muster_pmix::library() {
        text += &format!(
            "\tpmix\nspecific pmix plugin versions available: pmix_v{}\n",
            library.major
        );
    }
    text
}

/// A command that is linked statically cannot open libraries: the program that lies beside it can.
fn ask_muster() -> Option<String> {
    if cfg!(not(target_env = "musl")) {
        return None;
    }
    let muster = std::env::current_exe().ok()?.with_file_name("muster");
    let mut command = std::process::Command::new(muster);
    let out = command.args(["srun", "--mpi=list"]).output().ok()?;
    String::from_utf8(out.stdout).ok()
}

/// `--mpi`: only what this build really has.
fn check_mpi(chosen: &ChosenOptions) -> Result<(), OptionError> {
    match chosen.get("mpi") {
        Some(given) if given.source == Source::CommandLine => {
            let kind = given.value.as_deref().unwrap_or("");
            if matches!(
                kind,
                "none" | "" | "auto" | "pmi2" | "pmix" | "pmix_v3" | "pmix_v4" | "pmix_v5"
            ) {
                return Ok(());
            }
            Err(OptionError::fatal(format!(
                "Invalid MPI type '{kind}', --mpi=list for acceptable types"
            ))
            .with_hint(
                "MPI programs that need another kind can be started with their own mpirun inside the allocation",
            ))
        }
        _ => Ok(()),
    }
}

/// The allocation that the step belongs to: `--jobid`, or the one srun is called in.
fn own_job(chosen: &ChosenOptions) -> Result<Option<JobId>, OptionError> {
    match chosen.value("jobid") {
        None => Ok(None),
        Some(text) => text
            .parse()
            .ok()
            .filter(|id| *id > 0)
            .map(|id| Some(JobId(id)))
            .ok_or_else(|| {
                OptionError::fatal(format!("Invalid numeric value \"{text}\" for --jobid."))
            }),
    }
}

/// A step in an allocation that exists.
fn inside(line: &mut SubmitLine, job: JobId, call: SrunCall<'_>) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    request::forget_other_counts(&mut line.chosen);
    let made =
        request::step(line, call.args).map_err(|e| say.build_error("Unable to create step", &e))?;
    let (mut spec, streams) = made;
    spec.job = job;
    if is_own(job) {
        request::fill_job(&mut spec, process::variable("SLURM_JOB_CPUS_PER_NODE"));
        let nodes = process::variable("SLURM_JOB_NUM_NODES").and_then(|text| text.parse().ok());
        if let Some(text) =
            nodes.and_then(|nodes| request::excess_nodes(&line.chosen, &spec, nodes))
        {
            say.error(&text);
            return Err(say.failed());
        }
    }
    spec.resizes = own_resizes();
    bcast::copy(line, &mut spec, None)?;
    let can_pass_stdio = stdio_passing::can_pass_stdio(&line.chosen, &spec, &streams);
    let config = config(line, call, streams, spec.kill_on_bad_exit)?;
    let part = StepComponent {
        spec: Box::new(spec),
        lead: own_lead(job),
    };
    let config = SrunConfig {
        can_pass_stdio,
        number: own_het_job(job).then(|| number_source(job)),
        parts: vec![part],
        ..config
    };
    let executor = Executor::new(config, None, call.filters);
    Ok(match line.chosen.has("async") {
        true => executor.announcing().run(),
        false => executor.run(),
    })
}

/// A job of its own for the step.
fn outside(line: &mut SubmitLine, call: SrunCall<'_>) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    let mut spec = line::build(line, PREFIX)?.spec;
    if spec.name.is_empty() {
        spec.name = line::base_name(&line.words[0]);
    }
    spec.argv = line.words.clone();
    spec.submit_line = line::submit_line("srun", call.args);
    spec.stdio =
        muster_conf::options::job::stdio(&line.chosen).map_err(|e| say.option_error(&e))?;
    spec.shown.extend(call.marks.iter().cloned());
    let ask = spec.ask.clone();
    // An error of the step is found before anyone waits for nodes.
    let made =
        request::step(line, call.args).map_err(|e| say.build_error("Unable to create step", &e))?;
    let (mut step, streams) = made;
    let config = config(line, call, streams, step.kill_on_bad_exit)?;
    let holder = Holder::obtain(line, vec![spec], PREFIX).map_err(|NotGranted(code)| code)?;
    request::fill_allocation(&mut step, &holder, &ask);
    let info = holder.info.as_ref();
    if let Some(alloc) = info.and_then(|info| info.job.alloc.as_ref()) {
        verbose::say_allocation(&say, holder.job.0, alloc);
    }
    bcast::copy(line, &mut step, info.map(|info| &**info))?;
    let address = info.and_then(|info| info.addresses.first().cloned());
    let part = StepComponent {
        spec: Box::new(step),
        lead: Lead::At(address.unwrap_or_default()),
    };
    let config = SrunConfig {
        has_allocation: true,
        parts: vec![part],
        ..config
    };
    Ok(Executor::new(config, Some(holder), call.filters).run())
}

/// Configuration of srun at its begin, but for the parts of the step. `kills` is whether a bad exit of a task ends all.
fn config(
    line: &SubmitLine,
    call: SrunCall<'_>,
    streams: Streams,
    kills: bool,
) -> Result<SrunConfig, ExitCode> {
    let (say, chosen) = (&line.say, &line.chosen);
    let wait_s = seconds(chosen, "wait").map_err(|e| say.option_error(&e))?;
    let exit_msg = process::variable("SLURM_SRUN_REDUCE_TASK_EXIT_MSG");
    let program = |long| chosen.value(long).map(str::to_owned);
    let is_named = |p: &String| !p.is_empty() && !p.eq_ignore_ascii_case("none");
    Ok(SrunConfig {
        quiet: say.quiet,
        verbose: say.verbose > 0,
        rules: StepRules {
            kill_on_bad_exit: kills,
            keeps_going: chosen.has("kill-on-bad-exit") && !kills,
            wait_s: wait_s.unwrap_or(0),
            disable_status: chosen.has("disable-status"),
            quit_on_interrupt: chosen.has("quit-on-interrupt"),
            label: chosen.has("label"),
            print_once: exit_msg.is_some_and(|v| v != "0"),
            prolog: program("prolog").filter(is_named),
            epilog: program("epilog").filter(is_named),
            kill_wait_s: call.kill_wait_s,
        },
        streams,
        exit_codes: ExitCodes {
            error: say::exit_variable("SLURM_EXIT_ERROR").unwrap_or(1),
            immediate: say::exit_variable("SLURM_EXIT_IMMEDIATE"),
        },
        has_allocation: false,
        can_pass_stdio: false,
        number: None,
        parts: Vec::new(),
    })
}

/// Number of times that the own job has lost nodes, from the environment.
fn own_resizes() -> u32 {
    let known = process::variable(job_env::RESIZES);
    known.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether srun is called in that heterogeneous job.
fn own_het_job(job: JobId) -> bool {
    is_own(job) && process::variable("SLURM_HET_SIZE").is_some()
}

fn own_user() -> String {
    let uid = nix::unistd::getuid().as_raw().to_string();
    line::user(&uid).map_or(uid, |u| u.name)
}

/// The agent of the first node of a job: inside the job its address is in the environment; outside of it the controller knows it.
fn own_lead(job: JobId) -> Lead {
    let address = process::variable("MUSTER_NODE").filter(|_| is_own(job));
    match address.filter(|address| address.starts_with("unix:")) {
        Some(address) => Lead::Local(address.to_owned()),
        None => Lead::Unknown,
    }
}

/// Where the number of a step of a heterogeneous job comes from.
fn number_source(leader: JobId) -> NumberSource {
    NumberSource {
        leader,
        lead: own_lead(leader),
    }
}

/// Whether srun is called in that job.
fn is_own(job: JobId) -> bool {
    process::variable("SLURM_JOB_ID").is_some_and(|id| id == job.to_string())
}

fn allocation(job: JobId) -> Result<Box<AllocationInfo>, ConnectError> {
    let mut client = Client::connect_patiently(line::PATIENCE)?;
    match client.query(Query::Allocation(job))? {
        Response::JobStarted(info) => Ok(info),
        other => Err(unexpected(&other)),
    }
}

/// A limit that `--wait` and its like give as text.
fn seconds(chosen: &ChosenOptions, long: &'static str) -> Result<Option<u32>, OptionError> {
    match chosen.value(long) {
        None => Ok(None),
        Some(text) => values::number(long, text, 0).map(Some),
    }
}
