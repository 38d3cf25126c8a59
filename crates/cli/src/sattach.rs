//! sattach: the streams of a step that runs, beside srun's. The agent that leads the step says where its daemons are and gives
//! the key to them; each sends what its tasks write from then on.

mod output;

use crate::SLURM_VERSION;
use crate::agent::AgentStream;
use crate::connect::{Client, ConnectError, unexpected};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say::{self, Say};
use crate::srun::peer::Peer;
use crate::srun::terminal::Raw;
use crate::targets::{job_target, step_number};
use muster_model::ids::{JobId, StepId, StepNo};
use muster_node_core::srun::interface::StepdIdx;
use muster_proto::client::{AllocationInfo, JobFilter, Query, Response};
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated, ToStepd};
use muster_proto::version::Versions;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use output::{Output, Stream};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

/// sattach.
pub(crate) static SPEC: Spec = Spec {
    name: "sattach",
    about: "Shows what the tasks of a running step write, and sends them input.",
    operands: "<jobid.stepid>",
    form: HelpForm::OptionsAs("[options] <jobid.stepid>"),
    options: OPTIONS,
    variables: &[],
    notes: "\
What tasks wrote before is not shown. Several may attach to a step. Who does not read as fast as tasks write is dropped, so that
no task waits. Input goes to the tasks that srun's own input goes to, while that has not ended; its end here ends nothing there.
A step of one task that srun started on its own host has srun's streams, and cannot be attached to; nor can a batch script.
The exit status is the highest exit code of the tasks that ended meanwhile.
",
};

static OPTIONS: &[Opt] = &[
    opt("error-filter", "TASK", "error output of this task alone"),
    flag("help", "print this help").short('h'),
    opt("input-filter", "TASK", "input for this task alone"),
    flag("label", "begin each line with the number of its task").short('l'),
    flag("layout", "print where the tasks run, and end"),
    opt(
        "output-filter",
        "TASK",
        "output of this task alone, and its errors without --error-filter",
    ),
    flag(
        "pty",
        "put the own terminal into raw mode, for a step of srun --pty",
    ),
    flag("quiet", "print errors only").short('Q'),
    flag("usage", "print a short summary").short('u'),
    flag("verbose", "say what is done").short('v'),
    flag("version", "print the version").short('V'),
];

/// Input that a daemon has not taken: with more no further is read.
const INPUT_MAX: usize = 1 << 20;

/// Options of the command line.
#[derive(Debug, Default)]
struct Options {
    input: Option<u32>,
    output: Option<u32>,
    error: Option<u32>,
    label: bool,
    layout: bool,
    pty: bool,
}

/// Runs sattach.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let mut say = Say::new("sattach");
    let parsed = SPEC.parse(args).map_err(|text| {
        say::stderr(&format!("{text}\n"));
        say.failed()
    })?;
    let mut options = Options::default();
    for (name, value) in parsed.options {
        let task = || filter(&say, name, value.as_deref().unwrap_or_default());
        match name {
            "help" => return Ok(print(&SPEC.help())),
            "usage" => return Ok(print(&SPEC.usage())),
            "version" => return Ok(print(&format!("slurm {SLURM_VERSION}\n"))),
            "input-filter" => options.input = Some(task()?),
            "output-filter" => options.output = Some(task()?),
            "error-filter" => options.error = Some(task()?),
            "label" => options.label = true,
            "layout" => options.layout = true,
            "pty" => options.pty = true,
            "quiet" => say.quiet = true,
            _ => say.verbose += 1,
        }
    }
    if say.verbose > 0 {
        say.verbose("defined options");
        say.verbose(&format!("verbose             : {}", say.verbose));
        say.verbose("end of defined options");
    }
    let filters = [options.input, options.output, options.error];
    if options.pty && filters.iter().any(Option::is_some) {
        say.error("--pty goes with no filter: it is task 0 that has the terminal");
        return Err(say.failed());
    }
    let [operand] = parsed.operands.as_slice() else {
        say::stdout("Usage: sattach [options] <jobid.stepid>\n");
        say.error("too many parameters");
        return Err(say.failed());
    };
    let StepId { job, step } = parse_step_id(&say, operand)?;
    let (info, created) = locate_step(job, step).map_err(|why| {
        say.error(&format!("Could not get job step info: {why}"));
        say.failed()
    })?;
    if options.layout {
        return Ok(print(&layout(&created)));
    }
    if created.direct {
        say.error(&format!(
            "the task of step {operand} has srun's own streams: only that srun reads and writes them"
        ));
        return Err(say.failed());
    }
    let _raw = options.pty.then(Raw::enter).flatten();
    Ok(Attached::new(&options, &info, &created, say)?.run())
}

fn print(text: &str) -> ExitCode {
    say::stdout(text);
    ExitCode::SUCCESS
}

/// The number of a task.
fn filter(say: &Say, name: &str, text: &str) -> Result<u32, ExitCode> {
    text.parse().map_err(|_| {
        say.error(&format!("Invalid numeric value \"{text}\" for {name}."));
        say.failed()
    })
}

/// `12.0`, `12_3.0`, `12+1.0`: the job's own number, and the step.
fn parse_step_id(say: &Say, text: &str) -> Result<StepId, ExitCode> {
    let Some((job_text, step)) = text.split_once('.') else {
        say::stdout("Usage: sattach [options] <jobid.stepid>\n");
        say.error("Failed to parse stepid from command line options");
        return Err(say.failed());
    };
    let target = job_target(job_text).zip(step_number(step));
    let Some((target, step)) = target else {
        return Err(say.fatal(&format!("Bad step specified: {job_text}")));
    };
    let base = JobId(target.job.0 + u64::from(target.component.unwrap_or(0)));
    let Some((_, index)) = job_text.split_once('_') else {
        return Ok(StepId::new(base, step));
    };
    let found = Client::connect().and_then(|mut client| {
        client.query_jobs(JobFilter {
            ids: vec![base],
            ..JobFilter::default()
        })
    });
    let jobs = found.map_err(|e| say.connect_error("Could not get job step info", &e))?;
    let task = jobs
        .iter()
        .find(|job| job.task_index().map(|i| i.to_string()).as_deref() == Some(index));
    task.map(|job| StepId::new(job.id, step)).ok_or_else(|| {
        say.error("Could not get job step info: Invalid job id specified");
        say.failed()
    })
}

/// Where the step's tasks run.
fn locate_step(
    job: JobId,
    step: StepNo,
) -> Result<(Box<AllocationInfo>, Box<StepCreated>), String> {
    let mut client = Client::connect().map_err(|e| e.to_string())?;
    let info = match client.query(Query::Allocation(job)) {
        Ok(Response::JobStarted(info)) => info,
        Ok(Response::Refused(refusal)) | Err(ConnectError::Refused(refusal)) => {
            return Err(refusal.code.text().to_owned());
        }
        Ok(other) => return Err(unexpected(&other).to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let lead = info.addresses.first().ok_or("the job has no nodes yet")?;
    let mut agent =
        AgentStream::connect_agent(lead, job, Some(&info.key)).map_err(|e| e.to_string())?;
    let request = AgentRequest::LocateStep { job, step };
    let reply = agent.send(&request).and_then(|()| agent.receive());
    match reply {
        Ok(AgentReply::Created(created)) => Ok((info, created)),
        Ok(AgentReply::Refused(refusal)) => Err(refusal.code.text().to_owned()),
        Ok(_) => Err("the node answers another question".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Output of `--layout`.
fn layout(created: &StepCreated) -> String {
    let tasks: usize = created.nodes.iter().map(|node| node.tasks.len()).sum();
    let mut text = format!(
        "Job step layout:\n\t{tasks} tasks, {} nodes ({})\n\n",
        created.nodes.len(),
        created.hostlist
    );
    for (at, node) in created.nodes.iter().enumerate() {
        let numbers: String = node.tasks.iter().map(|task| format!("{task} ")).collect();
        let count = node.tasks.len();
        text += &format!("\tNode {at} ({}), {count} task(s): {numbers}\n", node.name);
    }
    text
}

/// The connections to the daemons of a step.
struct Attached<'a> {
    options: &'a Options,
    say: Say,
    names: Vec<String>,
    peers: Vec<Peer>,
    /// Tasks that have not ended, with their nodes' places.
    running: BTreeSet<(u32, u32)>,
    output: Output,
    code: u8,
    is_input_open: bool,
}

impl<'a> Attached<'a> {
    fn new(
        options: &'a Options,
        info: &AllocationInfo,
        created: &StepCreated,
        say: Say,
    ) -> Result<Attached<'a>, ExitCode> {
        let hello = ToStepd::AttachReader(created.key.clone(), Some(Versions::CLUSTER.greeting()));
        let hello = frame::encode(&hello);
        let mut peers = Vec::with_capacity(created.nodes.len());
        let mut running = BTreeSet::new();
        for (at, node) in (0u32..).zip(&created.nodes) {
            let step = StepId::new(info.job.id, created.step);
            let stream = AgentStream::connect_stepd(&node.address, step, &created.key);
            let stream = stream.map_err(|e| {
                say.error(&format!("Node {}: {e}", node.name));
                say.failed()
            })?;
            let mut peer = Peer::new(StepdIdx(at), stream);
            peer.send(&hello);
            peers.push(peer);
            running.extend(node.tasks.iter().map(|task| (at, *task)));
        }
        let most = running.iter().map(|(_, task)| *task).max().unwrap_or(0);
        Ok(Attached {
            options,
            say,
            names: created.nodes.iter().map(|node| node.name.clone()).collect(),
            peers,
            running,
            output: Output::new(options.label.then_some(most)),
            code: 0,
            is_input_open: true,
        })
    }

    /// Until the step is over on all its nodes.
    fn run(mut self) -> ExitCode {
        while !self.peers.is_empty() {
            if let Err(error) = self.wait() {
                self.say.error(&error.to_string());
                return self.say.failed();
            }
        }
        self.output.flush();
        ExitCode::from(self.code)
    }

    fn wait(&mut self) -> io::Result<()> {
        let stdin = io::stdin();
        let has_room = self.peers.iter().all(|peer| peer.backlog() < INPUT_MAX);
        let mut fds: Vec<PollFd<'_>> = self.peers.iter().map(Peer::poll_fd).collect();
        let reads = self.is_input_open && has_room;
        if reads {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let happened = |fd: &PollFd<'_>| fd.revents().is_some_and(|seen| !seen.is_empty());
        let has_input = reads && fds.last().is_some_and(happened);
        let ready: Vec<bool> = fds.iter().take(self.peers.len()).map(happened).collect();
        drop(fds);
        // From the last on, since those that have ended go.
        for at in (0..ready.len()).rev().filter(|at| ready[*at]) {
            self.exchange(at);
        }
        if has_input {
            self.read_input()?;
        }
        Ok(())
    }

    fn exchange(&mut self, at: usize) {
        let (messages, end) = self.peers[at].exchange();
        let place = self.peers[at].id.0;
        for message in messages {
            self.take(place, message);
        }
        if end.is_some() {
            self.peers.swap_remove(at);
            if self.running.iter().any(|(node, _)| *node == place) {
                let name = self.names.get(place as usize).cloned().unwrap_or_default();
                self.say.error(&format!(
                    "Node {name}: the connection ended before the tasks: the node is lost, or output came faster than it was read"
                ));
                self.code = self.code.max(1);
            }
        }
    }

    fn take(&mut self, place: u32, message: FromStepd) {
        let Options { output, error, .. } = *self.options;
        match message {
            FromStepd::Stdout { task, bytes } if output.is_none_or(|only| only == task) => {
                self.output.write(Stream::Out, task, &bytes);
            }
            FromStepd::Stderr { task, bytes }
                if error.or(output).is_none_or(|only| only == task) =>
            {
                self.output.write(Stream::Err, task, &bytes);
            }
            FromStepd::Exited { task, exit, .. } => {
                self.running.remove(&(place, task));
                if exit.signal == 0 && exit.code != 0 {
                    let code = exit.code;
                    self.say
                        .error(&format!("task {task} exited with exit code {code}"));
                    self.code = self.code.max(u8::try_from(code).unwrap_or(u8::MAX));
                }
            }
            FromStepd::Refused(refusal) => {
                let name = self.names.get(place as usize).cloned().unwrap_or_default();
                self.say.error(&format!("Node {name}: {refusal}"));
                self.running.retain(|(node, _)| *node != place);
                self.code = self.code.max(1);
            }
            _ => {}
        }
    }

    fn read_input(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64 << 10];
        let count = match nix::unistd::read(io::stdin(), &mut bytes) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return Ok(()),
            // A terminal that is another's to read.
            Err(_) => 0,
        };
        if count == 0 {
            self.is_input_open = false;
            return Ok(());
        }
        let message = ToStepd::Stdin {
            task: self.options.input,
            bytes: bytes[..count].to_vec().into(),
        };
        let frame = frame::encode(&message);
        self.peers.iter_mut().for_each(|peer| peer.send(&frame));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::step::StepNode;

    #[test]
    fn a_layout_reads_as_slurms() {
        let node = |name: &str, tasks: &[u32]| StepNode {
            name: name.to_owned(),
            address: String::new(),
            tasks: tasks.to_vec(),
        };
        let created = StepCreated {
            step: StepNo(0),
            nodes: vec![node("n3", &[0, 2, 3]), node("n4", &[1])],
            key: Vec::new().into(),
            hostlist: "n[3-4]".to_owned(),
            mesh_addresses: Vec::new(),
            width: 0,
            direct: false,
            cpu_bind: String::new(),
        };
        assert_eq!(
            layout(&created),
            "Job step layout:\n\t4 tasks, 2 nodes (n[3-4])\n\n\tNode 0 (n3), 3 task(s): 0 2 3 \n\
             \tNode 1 (n4), 1 task(s): 1 \n"
        );
    }
}
