//! A running step, from srun's side: one loop that passes streams and signals between the terminal and the step
//! daemons, and reports how tasks end.

mod nodes;
mod peer;

use super::input::Input;
use super::output::{self, Names, Output, Target};
use super::request::{Feed, Sink, Streams};
use super::stdio_passing::StepdChannel;
use super::tasks::{self, Tasks};
use super::terminal::{self, Raw};
use super::{line, seconds};
use crate::process;
use crate::submit::agent::AgentStream;
use crate::submit::holder::{Holder, timeout};
use crate::submit::say::{self, Say};
use crate::submit::signals::Signals;
use muster_conf::options::Chosen;
use muster_model::job::{ExitStatus, JobState};
use muster_proto::step::{FromStepd, StdinTask, StepCreated, StepSpec, ToStepd};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nodes::{NodeEvent, Nodes};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Ends of tasks within this time are reported in one line.
const TOGETHER: Duration = Duration::from_millis(50);
/// A second Ctrl-C within this time ends the step.
const TWICE: Duration = Duration::from_secs(1);
/// How much longer than `KillWait` a step may take to end before srun leaves.
const LEAVE_AFTER: Duration = Duration::from_secs(2);
/// How long srun waits until the end of a step is recorded.
const STEP_OVER: Duration = Duration::from_secs(2);

/// How srun ends.
pub(super) struct Outcome {
    /// Its exit code.
    pub(super) code: ExitCode,
}

/// Options about a running step.
struct Rules {
    kill_on_bad_exit: bool,
    /// `--kill-on-bad-exit=0`: tasks go on even where they wait for one that is gone.
    keeps_going: bool,
    /// `--wait`: seconds after the first end; 0 is no limit.
    wait_s: u32,
    disable_status: bool,
    quit_on_interrupt: bool,
    pty: bool,
    epilog: Option<String>,
    /// `SLURM_SRUN_REDUCE_TASK_EXIT_MSG`: equal ends are printed once.
    print_once: bool,
}

impl Rules {
    fn read(
        say: &Say,
        chosen: &Chosen,
        spec: &StepSpec,
        epilog: Option<String>,
    ) -> Result<Rules, ExitCode> {
        Ok(Rules {
            kill_on_bad_exit: spec.kill_on_bad_exit,
            keeps_going: chosen.has("kill-on-bad-exit") && !spec.kill_on_bad_exit,
            wait_s: seconds(chosen, "wait")
                .map_err(|e| say.option_error(&e))?
                .unwrap_or(0),
            disable_status: chosen.has("disable-status"),
            quit_on_interrupt: chosen.has("quit-on-interrupt"),
            pty: spec.pty.is_some(),
            epilog,
            print_once: process::variable("SLURM_SRUN_REDUCE_TASK_EXIT_MSG")
                .is_some_and(|v| v != "0"),
        })
    }
}

/// A running step.
pub(super) struct Session {
    say: Say,
    /// `StepId=5.0`.
    id: String,
    job: String,
    nodes: Nodes,
    tasks: Tasks,
    stdout: Option<Output>,
    stderr: Option<Output>,
    input: Input,
    stdin_task: StdinTask,
    rules: Rules,
    /// Texts that were printed, and are not printed again.
    printed: Vec<String>,
    clock: Clock,
    /// The step's daemons know each other: its tasks may wait for each other by MPI.
    meshed: bool,
    /// Some task has joined the others.
    joined: bool,
    /// A task that had not joined has ended badly.
    missing: Option<ExitStatus>,
    /// The status of the task whose end ended the step.
    failed: Option<ExitStatus>,
    aborted: bool,
    /// A note about the whole step was printed.
    noted: bool,
    lost: bool,
    leave: bool,
}

/// Moments at which something is due.
#[derive(Default)]
struct Clock {
    report: Option<Instant>,
    first_exit: Option<Instant>,
    wait: Option<Instant>,
    interrupted: Option<Instant>,
    kill: Option<Instant>,
    leave: Option<Instant>,
}

impl Clock {
    fn next(&self) -> Option<Instant> {
        [self.report, self.wait, self.kill, self.leave]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Whether a moment has come; it is forgotten then.
fn due(moment: &mut Option<Instant>) -> bool {
    match *moment {
        Some(at) if Instant::now() >= at => {
            *moment = None;
            true
        }
        _ => false,
    }
}

impl Session {
    /// Opens files and connections. Tasks start when every step daemon has received the key. The step may have parts in
    /// several components of a heterogeneous job; what the first one says of streams and signals holds for all. `stepd`
    /// is the connection to the step daemon, where the task has the streams and runs already.
    pub(super) fn start(
        say: &Say,
        line: &line::Line,
        parts: Vec<(StepSpec, StepCreated)>,
        streams: Streams,
        stepd: Option<StepdChannel>,
    ) -> Result<Session, ExitCode> {
        let fail = |text: String| {
            say.error(&text);
            say.failed()
        };
        let chosen = &line.chosen;
        let Some((spec, created)) = parts.first() else {
            return Err(fail("there is no step".to_owned()));
        };
        let (spec, step) = (spec.clone(), created.step);
        let nodes = parts.iter().flat_map(|(_, created)| &created.nodes);
        let tasks = Tasks::new(nodes);
        let names = Names {
            job: spec.job,
            step,
            user: super::own_user,
            job_name: &spec.name,
        };
        let append = spec.append.unwrap_or(false);
        let label = chosen
            .has("label")
            .then(|| output::label_width(tasks.count()));
        let unbuffered = spec.unbuffered || spec.pty.is_some() || tasks.count() <= 1;
        let (stdout, stderr) =
            open_outputs(&streams, &names, append, label, unbuffered).map_err(fail)?;
        let direct = stepd.is_some();
        let input = match direct {
            true => Input::None,
            false => open_input(&streams.stdin, &names).map_err(fail)?,
        };
        check_input(spec.stdin_task, tasks.count()).map_err(fail)?;
        let (prolog, epilog) = site_programs(chosen);
        let rules = Rules::read(say, chosen, &spec, epilog)?;
        if let Some(prolog) = prolog {
            run_program(say, &prolog);
        }
        let meshed = parts.iter().any(|(_, created)| !created.wires.is_empty());
        let nodes = Nodes::greet(say, parts, stepd)?;
        let id = format!("StepId={}.{step}", spec.job);
        let mut session = Session {
            say: *say,
            id,
            job: spec.job.to_string(),
            nodes,
            tasks,
            stdout,
            stderr,
            input,
            stdin_task: spec.stdin_task,
            rules,
            printed: Vec::new(),
            clock: Clock::default(),
            meshed,
            joined: false,
            missing: None,
            failed: None,
            aborted: false,
            noted: false,
            lost: false,
            leave: false,
        };
        if direct {
            session.on_message(0, FromStepd::Started(Vec::new()));
        }
        Ok(session)
    }

    /// Stays until the step has ended. `leads` keep the step alive; `holder` keeps the allocation, if it is ours.
    pub(super) fn run(mut self, leads: Vec<AgentStream>, mut holder: Option<Holder>) -> Outcome {
        // A short step may have sent everything already.
        self.serve_nodes();
        let stayed = match self.is_over() && holder.is_none() {
            true => Ok(None),
            false => self.stay(holder.as_mut()).map(Some),
        };
        // What has come and was not taken has to wait until all is done.
        let _signals = match stayed {
            Ok(signals) => signals,
            Err(code) => return Outcome { code },
        };
        if !self.leave && !self.lost {
            // The step is over when every node has reported to the lead: what follows in a script finds its CPUs free, and
            // the batch script's end finds it recorded. A lost node must not keep srun; a daemon that was spoken to from
            // the start says itself that the end is recorded.
            let open = leads.into_iter().filter(|_| !self.nodes.is_recorded());
            for mut lead in open {
                let _ = lead.receive_within(STEP_OVER);
            }
        } else {
            drop(leads);
        }
        self.flush();
        let (exit, mut code) = match self.failed {
            Some(exit) => (exit, tasks::code(exit)),
            None => self.tasks.worst(),
        };
        let mut exit = exit;
        if self.lost || (self.leave && code == 0) {
            code = code.max(1);
            exit = if exit.is_ok() {
                ExitStatus { code: 1, signal: 0 }
            } else {
                exit
            };
        }
        if let Some(epilog) = &self.rules.epilog {
            run_program(&self.say, epilog);
        }
        if let Some(holder) = holder {
            holder.finish(exit);
        }
        Outcome {
            code: ExitCode::from(u8::try_from(code.min(255)).unwrap_or(255)),
        }
    }

    /// Serves the step until it is over, or until it is time to leave it.
    fn stay(&mut self, mut holder: Option<&mut Holder>) -> Result<Signals, ExitCode> {
        let caught = Signals::catch(&CAUGHT);
        let signals = caught.map_err(|e| self.say.fatal(&format!("signalfd: {e}")))?;
        let _raw = if self.rules.pty { Raw::enter() } else { None };
        while !self.leave && !self.is_over() {
            self.turn(&signals, holder.as_deref_mut());
        }
        Ok(signals)
    }

    fn is_over(&self) -> bool {
        self.nodes.are_over()
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self, signals: &Signals, mut holder: Option<&mut Holder>) {
        let until = [self.clock.next(), holder.as_ref().and_then(|h| h.wake())]
            .into_iter()
            .flatten()
            .min();
        let (input_ready, signalled) = {
            let mut fds = vec![PollFd::new(signals.fd(), PollFlags::POLLIN)];
            let wants_input = self.nodes.want_input() && !self.tasks.all_exited();
            let input_at = self.input.fd().filter(|_| wants_input).map(|fd| {
                fds.push(PollFd::new(fd, PollFlags::POLLIN));
                fds.len() - 1
            });
            if let Some(fd) = holder
                .as_ref()
                .and_then(|h| h.fd())
                .filter(|_| !self.aborted)
            {
                fds.push(PollFd::new(fd, PollFlags::POLLIN));
            }
            fds.extend(self.nodes.poll_fds());
            let _ = poll(&mut fds, timeout(until));
            let ready = |at: usize| fds[at].any().unwrap_or(false);
            (input_at.is_some_and(ready), ready(0))
        };
        if signalled {
            while let Some(signal) = signals.take() {
                self.signal(signal);
            }
        }
        if input_ready {
            self.feed();
        }
        self.serve_nodes();
        if let Some(holder) = holder.as_mut() {
            self.poll_controller(holder);
        }
        self.tick();
    }

    fn serve_nodes(&mut self) {
        for event in self.nodes.exchange() {
            match event {
                NodeEvent::Message(at, message) => self.on_message(at, message),
                NodeEvent::Lost(at) => self.node_lost(at),
            }
        }
    }

    fn on_message(&mut self, at: usize, message: FromStepd) {
        match message {
            FromStepd::Started(_) => {
                let node = self.nodes.node(at);
                self.tasks.started(node);
                self.say.verbose(&format!(
                    "Node {}, {} tasks started",
                    node.name,
                    node.tasks.len()
                ));
            }
            FromStepd::Stdout { task, bytes } => {
                if let Some(output) = &mut self.stdout {
                    output.take(task, &bytes);
                }
            }
            FromStepd::Stderr { task, bytes } => {
                // Without a file of its own, error output goes where output goes.
                let shared = self.stderr.is_none();
                if let Some(output) = if shared {
                    &mut self.stdout
                } else {
                    &mut self.stderr
                } {
                    output.take(task, &bytes);
                }
            }
            FromStepd::Message(text) => {
                say::stderr(&format!("{}\n", text.trim_end()));
                if text.contains("*** ") && text.contains("CANCELLED AT") {
                    self.announce_abort();
                }
            }
            FromStepd::Note(text) => {
                if !std::mem::replace(&mut self.noted, true) {
                    say::stderr(&format!("{}\n", text.trim_end()));
                }
            }
            FromStepd::Exited { task, exit, oom } => self.exited(at, task, exit, oom),
            // Those are about connections.
            FromStepd::Created(_)
            | FromStepd::Closed
            | FromStepd::Up { .. }
            | FromStepd::Lost(_)
            | FromStepd::Over
            | FromStepd::Acknowledged => {}
            FromStepd::Joined => {
                self.joined = true;
                if let Some(exit) = self.missing {
                    self.fail(exit);
                }
            }
            FromStepd::Failed {
                exit, joined, line, ..
            } => {
                if let Some(line) = line.filter(|_| self.failed.is_none() && !self.aborted) {
                    say::stderr(&format!("{}\n", line.trim_end()));
                }
                if joined || self.joined {
                    self.fail(exit);
                } else {
                    self.missing.get_or_insert(exit);
                }
            }
        }
    }

    /// The others would wait for ever for a task: the step ends everywhere, with that task's status.
    fn fail(&mut self, exit: ExitStatus) {
        if self.failed.is_some() || self.aborted || self.rules.keeps_going {
            return;
        }
        self.failed = Some(exit);
        self.aborted = true;
        self.report_exits();
        self.say.info(&format!("Terminating {}", self.id));
        self.nodes.send(&ToStepd::Fail(exit));
        self.clock.leave = Some(leave_at());
    }

    fn exited(&mut self, at: usize, task: u32, exit: ExitStatus, oom: bool) {
        let name = self.nodes.node(at).name.clone();
        if !self.tasks.exited(&name, task, exit, oom) {
            return;
        }
        // Of a last one that went well there is nothing to report, and no other task to wait for.
        if !exit.is_ok() || !self.tasks.all_exited() {
            self.wind(Instant::now());
        }
        if !exit.is_ok() && self.rules.kill_on_bad_exit && !self.aborted {
            self.report_exits();
            if self.meshed && self.joined {
                self.fail(exit);
            } else {
                self.terminate_gently();
            }
        }
    }

    /// A task has exited.
    fn wind(&mut self, now: Instant) {
        self.clock.report.get_or_insert(now + TOGETHER);
        if self.clock.first_exit.is_none() {
            self.clock.first_exit = Some(now);
            if self.rules.wait_s > 0 {
                self.clock.wait = Some(now + Duration::from_secs(self.rules.wait_s.into()));
            }
        }
    }

    /// Ends the step as one that is cancelled: TERM, after `KillWait` KILL.
    fn terminate_gently(&mut self) {
        self.aborted = true;
        self.say.info(&format!("Terminating {}", self.id));
        self.broadcast(Signal::SIGCONT);
        self.broadcast(Signal::SIGTERM);
        self.clock.kill = Some(Instant::now() + super::kill_wait());
        self.clock.leave = Some(leave_at());
    }

    /// Ends the step at once.
    fn terminate(&mut self) {
        self.aborted = true;
        self.say.info(&format!("Terminating {}", self.id));
        self.broadcast(Signal::SIGKILL);
        self.clock.leave = Some(leave_at());
    }

    fn broadcast(&mut self, signal: Signal) {
        self.nodes.send(&ToStepd::Signal(signal as u32));
    }

    fn node_lost(&mut self, at: usize) {
        let node = self.nodes.node(at);
        let left = self.tasks.left_on(node);
        if left.is_empty() {
            return;
        }
        self.lost = true;
        self.say.error(&format!("Node failure on {}", node.name));
        self.say.error(&format!(
            "{}: task {}: connection to the node's step daemon lost, exit status unknown",
            node.name,
            muster_model::hostlist::ranges(&left)
        ));
        let exit = ExitStatus { code: 1, signal: 0 };
        match (self.meshed, self.joined) {
            (true, true) => self.fail(exit),
            // Nobody waits for its tasks, unless tasks are yet to join.
            (true, false) => self.missing = self.missing.or(Some(exit)),
            (false, _) => {}
        }
    }

    /// Passes on what there is to read.
    fn feed(&mut self) {
        let Some(bytes) = self.input.read() else {
            return;
        };
        let task = match self.stdin_task {
            StdinTask::All => None,
            StdinTask::One(task) => Some(task),
            StdinTask::None => return,
        };
        let message = ToStepd::Stdin {
            task,
            bytes: bytes.into(),
        };
        self.nodes.send(&message);
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGINT => self.interrupt(),
            Signal::SIGQUIT => self.abort(),
            Signal::SIGTSTP => {}
            Signal::SIGWINCH => {
                if let Some((rows, columns)) = terminal::size() {
                    self.nodes.send(&ToStepd::Window(rows, columns));
                }
            }
            Signal::SIGTERM if self.aborted => {
                self.broadcast(Signal::SIGKILL);
            }
            Signal::SIGTERM => {
                self.aborted = true;
                self.say.info("forcing job termination");
                self.broadcast(Signal::SIGCONT);
                self.broadcast(Signal::SIGTERM);
                self.clock.kill = Some(Instant::now() + super::kill_wait());
            }
            other => self.broadcast(other),
        }
    }

    /// Ctrl-C: once asks what the tasks do, twice within a second ends them, and once more leaves.
    fn interrupt(&mut self) {
        if self.aborted {
            self.say.info("forcing job termination");
            self.broadcast(Signal::SIGKILL);
            self.leave = self.clock.interrupted.is_some();
            self.clock.interrupted = Some(Instant::now());
            self.serve_nodes();
            return;
        }
        let again = self
            .clock
            .interrupted
            .is_some_and(|at| at.elapsed() < TWICE);
        if again || self.rules.quit_on_interrupt {
            self.abort();
            return;
        }
        self.clock.interrupted = Some(Instant::now());
        if self.rules.disable_status {
            self.say.info(&format!("sending Ctrl-C to {}", self.id));
            self.broadcast(Signal::SIGINT);
            return;
        }
        self.say.info("interrupt (one more within 1 sec to abort)");
        self.show_states();
    }

    fn show_states(&self) {
        for state in self.tasks.states() {
            self.say.info(&format!("{} {state}", self.id));
        }
    }

    fn abort(&mut self) {
        self.aborted = true;
        self.say.info(&format!("sending Ctrl-C to {}", self.id));
        self.broadcast(Signal::SIGINT);
        self.announce_abort();
        self.broadcast(Signal::SIGCONT);
        self.broadcast(Signal::SIGTERM);
        self.clock.kill = Some(Instant::now() + super::kill_wait());
        self.clock.leave = Some(leave_at());
    }

    fn announce_abort(&mut self) {
        let wait = super::kill_wait() + LEAVE_AFTER;
        let text = format!(
            "Job step aborted: Waiting up to {} seconds for job step to finish.",
            wait.as_secs()
        );
        if !self.printed.contains(&text) {
            self.say.info(&text);
            self.printed.push(text);
        }
    }

    fn poll_controller(&mut self, holder: &mut Holder) {
        if self.aborted && self.clock.leave.is_some() {
            return;
        }
        let known = holder.ended.is_some();
        if let Err(error) = holder.read() {
            self.say.error(&error.to_string());
            self.aborted = true;
        }
        if let Some(ended) = holder.ended
            && !known
        {
            if ended.state != JobState::Timeout {
                self.say.info(&format!("Force Terminated job {}", self.job));
                self.announce_abort();
            }
            // The nodes end the tasks; srun waits for their reports.
            self.aborted = true;
            self.clock.leave = Some(leave_at());
        }
    }

    fn tick(&mut self) {
        let over = self.is_over();
        if due(&mut self.clock.report) || (over && self.tasks.has_unreported()) {
            self.report_exits();
        }
        if due(&mut self.clock.kill) {
            self.broadcast(Signal::SIGKILL);
        }
        if due(&mut self.clock.wait) && !self.tasks.all_exited() && !self.aborted {
            let ago = self.clock.first_exit.map_or(0, |at| at.elapsed().as_secs());
            self.say.info(&format!("First task exited {ago}s ago"));
            self.show_states();
            self.terminate();
        }
        if due(&mut self.clock.leave) && !over {
            self.say
                .error(&format!("Timed out waiting for {} to end", self.id));
            self.leave = true;
        }
    }

    fn report_exits(&mut self) {
        self.clock.report = None;
        for line in self.tasks.take_exit_lines() {
            if line.success {
                self.say.verbose(&line.text);
                continue;
            }
            let kind = line.text.rsplit(": ").next().unwrap_or("").to_owned();
            if self.rules.print_once && self.printed.contains(&kind) {
                continue;
            }
            self.printed.push(kind);
            self.say.error(&line.text);
        }
    }

    fn flush(&mut self) {
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.flush_all();
        }
        self.report_exits();
    }
}

/// When srun gives up on a step that does not end.
fn leave_at() -> Instant {
    Instant::now() + super::kill_wait() + LEAVE_AFTER
}

const CAUGHT: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGWINCH,
];

type Outputs = (Option<Output>, Option<Output>);

fn open_outputs(
    streams: &Streams,
    names: &Names<'_>,
    append: bool,
    label: Option<usize>,
    direct: bool,
) -> Result<Outputs, String> {
    let make = |sink: &Sink, own: Target| -> Result<Option<Output>, String> {
        Ok(match sink {
            Sink::Nodes => None,
            Sink::Own => Some(Output::new(own, None, label, direct)),
            Sink::OwnOf(task) => Some(Output::new(own, Some(*task), label, direct)),
            Sink::File(pattern) => {
                let path = output::expand(pattern, names);
                let file = output::open(&path, append)
                    .map_err(|e| format!("Could not open stdout file {path}: {e}"))?;
                Some(Output::new(Target::File(file), None, label, direct))
            }
        })
    };
    let stdout = make(&streams.stdout, Target::Stdout)?;
    let same_file = streams.stderr == streams.stdout && matches!(streams.stdout, Sink::File(_));
    let stderr = if same_file {
        None
    } else {
        make(&streams.stderr, Target::Stderr)?
    };
    Ok((stdout, stderr))
}

/// Input is for a task that there is.
fn check_input(to: StdinTask, count: usize) -> Result<(), String> {
    match to {
        StdinTask::One(task) if task as usize >= count => Err(format!(
            "--input={task}: the step has {count} tasks, numbered from 0"
        )),
        _ => Ok(()),
    }
}

fn open_input(feed: &Feed, names: &Names<'_>) -> Result<Input, String> {
    Ok(match feed {
        Feed::Nothing => Input::None,
        Feed::Own => Input::Own(std::io::stdin()),
        Feed::File(pattern) => {
            let path = output::expand(pattern, names);
            let file = std::fs::File::open(&path)
                .map_err(|e| format!("Could not open stdin file {path}: {e}"))?;
            Input::File(file)
        }
    })
}

/// Programs before and after the step: `--prolog` and `--epilog`, `none` being none.
fn site_programs(chosen: &Chosen) -> (Option<String>, Option<String>) {
    let given = |long| chosen.value(long).map(str::to_owned);
    let named = |p: &String| !p.is_empty() && !p.eq_ignore_ascii_case("none");
    (given("prolog").filter(named), given("epilog").filter(named))
}

/// `--prolog`, `--epilog`, `SrunProlog`, `SrunEpilog`.
fn run_program(say: &Say, path: &str) {
    match std::process::Command::new(path).status() {
        Ok(status) if status.success() => {}
        Ok(status) => say.error(&format!("{path}: {status}")),
        Err(e) => say.error(&format!("cannot run {path}: {e}")),
    }
}
