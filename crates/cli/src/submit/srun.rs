//! srun: a program, many times, on the nodes of an allocation: of the one that srun is called in, or of one that it
//! asks for first.

mod het;
mod input;
mod linked;
mod multi_prog;
mod output;
mod request;
mod session;
mod stdio_passing;
pub(super) mod tasks;
mod terminal;

use super::agent::AgentStream;
use super::holder::{Holder, NotGranted};
use super::line::{self, Line};
use super::say::{self, Say};
use crate::connect::{Client, ConnectError, unexpected};
use crate::process;
use muster_conf::endpoint;
use muster_conf::options::{Chosen, Command, OptionError, Source, values};
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::job_env;
use muster_model::refusal::RefusalCode;
use muster_model::spec::ExecContext;
use muster_proto::client::{AllocationInfo, Query, Response};
use muster_proto::step::{AgentReply, AgentRequest, HetStep, StepCreated, StepSpec};
use request::Streams;
use session::Session;
use std::process::ExitCode;
use std::time::Duration;
use stdio_passing::StepdChannel;

const PREFIX: &str = "Unable to allocate resources";

/// How srun and the tasks of its step reach each other. srun chooses it once, before it asks for the step: *direct* for a
/// step in an allocation that exists, whose first node is this host, and of whose only task nobody would notice that it
/// reads and writes srun's own streams (`stdio_passing::can_pass_stdio`); *attached* for all others. The node may know more,
/// such as a program of the site's before each task: it then declines the streams (`StepCreated::direct`), and srun attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepTransport {
    /// The task has srun's streams. All that srun need know comes by a connection to the step daemon that is sent with them.
    Direct,
    /// srun connects to the step daemons, which carry the streams.
    Attached,
}

/// Runs srun.
pub(super) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let mut lines = line::read_in(Command::Srun, args, het::variable)?;
    let say = lines[0].say;
    if lines[0].chosen.value("mpi") == Some("list") {
        say::stdout(&mpi_kinds());
        return Ok(ExitCode::SUCCESS);
    }
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
        check_mpi(&line.chosen).map_err(|e| say.option_error(&e))?;
    }
    if lines.last().is_none_or(|line| line.words.is_empty()) {
        return Err(say.fatal("No command given to execute."));
    }
    let job = own_job(&lines[0].chosen).map_err(|e| say.option_error(&e))?;
    match (job, het::groups(&lines).map_err(|e| say.option_error(&e))?) {
        (Some(job), Some(groups)) => het::inside(lines, &groups, job, args),
        (Some(job), None) => inside(&mut lines[0], job, args),
        (None, _) if lines.len() > 1 => het::outside(lines, args),
        (None, _) => outside(&mut lines[0], args),
    }
}

/// `--cpu-bind=help`, `--mem-bind=help`.
fn binding_help(chosen: &Chosen) -> Option<&'static str> {
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

/// What `--mpi=list` prints: what this machine can do. The nodes decide for themselves.
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
fn check_mpi(chosen: &Chosen) -> Result<(), OptionError> {
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
fn own_job(chosen: &Chosen) -> Result<Option<JobId>, OptionError> {
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
fn inside(line: &mut Line, job: JobId, args: &[String]) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    request::forget_other_counts(&mut line.chosen);
    let made =
        request::step(line, args).map_err(|e| say.build_error("Unable to create step", &e))?;
    let (mut spec, streams) = made;
    spec.job = job;
    spec.resizes = own_resizes();
    let can_pass_stdio = stdio_passing::can_pass_stdio(&line.chosen, &spec, &streams);
    // Close to the request, for the agent to be woken once for both.
    let (stream, info) = reach_lead(&say, job, own_lead(job))?;
    let transport = match can_pass_stdio && stream.is_local() {
        true => StepTransport::Direct,
        false => StepTransport::Attached,
    };
    if let Some(info) = info {
        spec.key = Some(info.key.clone());
        spec.resizes = info.job.resizes;
    }
    if own_het_job(job) {
        // Numbers of steps are the whole job's.
        let (step, proof) = het::take_number(&say, job)?;
        spec.het = Some(HetStep {
            step,
            proof: Some(proof),
            ..HetStep::default()
        });
    }
    let (stream, created, stepd) = create(&say, stream, &mut spec, transport)?;
    // A lead that has reported the end is not needed any more.
    let done = stepd.as_ref().is_some_and(|channel| channel.done);
    let leads = Vec::from_iter(Some(stream).filter(|_| !done));
    let session = Session::start(&say, line, vec![(spec, created)], streams, stepd)?;
    let outcome = session.run(leads, None);
    Ok(outcome.code)
}

/// A job of its own for the step.
fn outside(line: &mut Line, args: &[String]) -> Result<ExitCode, ExitCode> {
    let say = line.say;
    let mut spec = line::build(line, PREFIX)?.spec;
    if spec.name.is_empty() {
        spec.name = line::base_name(&line.words[0]);
    }
    spec.argv = line.words.clone();
    spec.submit_line = line::submit_line("srun", args);
    spec.stdio =
        muster_conf::options::job::stdio(&line.chosen).map_err(|e| say.option_error(&e))?;
    let ask = spec.ask.clone();
    // What is wrong with the step is found before anyone waits for nodes.
    let made =
        request::step(line, args).map_err(|e| say.build_error("Unable to create step", &e))?;
    let (mut step, streams) = made;
    let holder = Holder::obtain(line, vec![spec], PREFIX).map_err(|NotGranted(code)| code)?;
    request::fill_allocation(&mut step, &holder, &ask);
    let launched = launch(line, &holder, step, streams);
    match launched {
        Ok((session, stream)) => {
            let outcome = session.run(vec![stream], Some(holder));
            Ok(outcome.code)
        }
        Err(code) => {
            holder.finish(ExitStatus { code: 1, signal: 0 });
            Err(code)
        }
    }
}

fn launch(
    line: &Line,
    holder: &Holder,
    mut step: StepSpec,
    streams: Streams,
) -> Result<(Session, AgentStream), ExitCode> {
    let say = line.say;
    let address = holder
        .info
        .as_ref()
        .and_then(|i| i.addresses.first().cloned())
        .unwrap_or_default();
    let stream = AgentStream::connect(&address).map_err(|e| unreachable(&say, &address, &e))?;
    let (stream, created, _) = create(&say, stream, &mut step, StepTransport::Attached)?;
    let session = Session::start(&say, line, vec![(step, created)], streams, None)?;
    Ok((session, stream))
}

/// How often the own job has lost nodes, from the environment.
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

/// The address of the agent of the first node of the job that srun is called in, where it is on this host.
fn own_lead(job: JobId) -> Option<String> {
    let address = process::variable("MUSTER_NODE").filter(|_| is_own(job))?;
    address.starts_with("unix:").then(|| address.to_owned())
}

/// Whether srun is called in that job.
fn is_own(job: JobId) -> bool {
    process::variable("SLURM_JOB_ID").is_some_and(|id| id == job.to_string())
}

/// The agent of the job's first node. Inside the job its address is in the environment; outside of it the controller
/// knows it.
fn reach_lead(
    say: &Say,
    job: JobId,
    own: Option<String>,
) -> Result<(AgentStream, Option<Box<AllocationInfo>>), ExitCode> {
    if let Some(address) = own
        && let Ok(stream) = AgentStream::connect(&address)
    {
        return Ok((stream, None));
    }
    let info = allocation(job)
        .map_err(|e| say.connect_error("Unable to confirm allocation for job", &e))?;
    let address = info.addresses.first().cloned().unwrap_or_default();
    let stream = AgentStream::connect(&address).map_err(|e| unreachable(say, &address, &e))?;
    Ok((stream, Some(info)))
}

fn allocation(job: JobId) -> Result<Box<AllocationInfo>, ConnectError> {
    let mut client = Client::connect_patiently(line::PATIENCE)?;
    match client.query(Query::Allocation(job))? {
        Response::JobStarted(info) => Ok(info),
        other => Err(unexpected(&other)),
    }
}

fn unreachable(say: &Say, address: &str, error: &std::io::Error) -> ExitCode {
    say.error(&format!(
        "Unable to reach the agent of the job's first node at {address}: {error}"
    ));
    say.failed()
}

/// Asks for the step and waits for its turn. With the connection to the agent comes the one to the step daemon, where
/// the task has srun's streams.
fn create(
    say: &Say,
    mut stream: AgentStream,
    spec: &mut StepSpec,
    transport: StepTransport,
) -> Result<(AgentStream, StepCreated, Option<StepdChannel>), ExitCode> {
    request::add_addresses(spec, stream.own_ip());
    let job = spec.job;
    let lost = |e: std::io::Error| {
        say.error(&format!(
            "Unable to create step for job {job}: connection to the agent lost: {e}"
        ));
        say.failed()
    };
    let mut stepd = ask(&mut stream, spec, transport).map_err(lost)?;
    let mut queued = false;
    loop {
        match stdio_passing::answer(&mut stream, &mut stepd).map_err(lost)? {
            AgentReply::Queued(why) => {
                if !queued {
                    let why = if why.is_empty() {
                        "Requested nodes are busy"
                    } else {
                        why.as_str()
                    };
                    say.info(&format!(
                        "Job {job} step creation temporarily disabled, retrying ({why})"
                    ));
                }
                queued = true;
            }
            AgentReply::Created(created) => {
                if queued {
                    say.info(&format!("Step created for StepId={job}.{}", created.step));
                }
                // What the tasks inherit is with them.
                spec.context = ExecContext::default();
                let stepd = stepd.filter(|_| created.direct);
                return Ok((stream, *created, stepd));
            }
            AgentReply::Refused(refusal)
                if spec.key.is_none() && refusal.code == RefusalCode::JobNotHere =>
            {
                // Who is in an allocation may be ahead of the node's own word of it. With the job's key the node waits.
                let info = allocation(job).map_err(|_| {
                    say.refusal(&format!("Unable to create step for job {job}"), &refusal)
                })?;
                spec.key = Some(info.key.clone());
                stepd = ask(&mut stream, spec, transport).map_err(lost)?;
            }
            AgentReply::Refused(refusal) => {
                let code = say.refusal(&format!("Unable to create step for job {job}"), &refusal);
                return Err(match say::exit_variable("SLURM_EXIT_IMMEDIATE") {
                    Some(own) if spec.immediate => ExitCode::from(own),
                    _ => code,
                });
            }
            other => {
                say.error(&format!("unexpected answer of the agent: {other:.60?}"));
                return Err(say.failed());
            }
        }
    }
}

fn ask(
    stream: &mut AgentStream,
    spec: &mut StepSpec,
    transport: StepTransport,
) -> std::io::Result<Option<StepdChannel>> {
    spec.hands_streams = transport == StepTransport::Direct;
    spec.has_stepd_channel = spec.hands_streams;
    // It is lent: a copy of it, with its environment, would be a good part of what this program does.
    let request = AgentRequest::Create(Box::new(std::mem::take(spec)));
    let sent = match transport {
        StepTransport::Direct => stream
            .send_with_streams(&request)
            .map(|near| Some(StepdChannel::new(near))),
        StepTransport::Attached => stream.send(&request).map(|()| None),
    };
    if let AgentRequest::Create(lent) = request {
        *spec = *lent;
    }
    sent
}

/// Between TERM and KILL when srun ends a step: `KillWait`, read when it is needed.
fn kill_wait() -> Duration {
    let site = endpoint::read(&endpoint::conf_path());
    let seconds = site.map_or(endpoint::KILL_WAIT_S, |site| site.kill_wait_s);
    Duration::from_secs(seconds.into())
}

/// A limit that `--wait`, `--kill-on-bad-exit` and their like give as text.
fn seconds(chosen: &Chosen, long: &'static str) -> Result<Option<u32>, OptionError> {
    match chosen.value(long) {
        None => Ok(None),
        Some(text) => values::number(long, text, 0).map(Some),
    }
}
