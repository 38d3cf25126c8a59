//! The machine driven by events, with an executor that keeps account of what the machine holds.

mod random;
mod scenarios;

use super::config::{Lead, Sink, StepComponent, StepRules};
use super::interface::ControllerError;
use super::*;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, JobState};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest, StepCreated, StepNode, StepSpec, ToStepd};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const JOB: JobId = JobId(5);
const LEAD: &str = "unix:/agent";

/// A step of so many tasks in the job whose agent is on this host.
fn config(ntasks: u32) -> SrunConfig {
    let spec = StepSpec {
        job: JOB,
        ntasks: Some(ntasks),
        name: "prog".to_owned(),
        ..StepSpec::default()
    };
    SrunConfig {
        quiet: false,
        verbose: false,
        rules: StepRules {
            kill_wait_s: 30,
            ..StepRules::default()
        },
        streams: Streams {
            stdin: InputSource::Own,
            stdout: Sink::Own,
            stderr: Sink::Own,
        },
        exit_codes: ExitCodes {
            error: 1,
            immediate: None,
        },
        has_allocation: false,
        can_pass_stdio: false,
        number: None,
        parts: vec![StepComponent {
            spec: Box::new(spec),
            lead: Lead::Local(LEAD.to_owned()),
        }],
    }
}

/// A node by its number, with its tasks.
fn node(number: usize, tasks: &[u32]) -> StepNode {
    StepNode {
        name: format!("n{number}"),
        address: format!("unix:/stepd{number}"),
        tasks: tasks.to_vec(),
    }
}

fn created(nodes: Vec<StepNode>) -> StepCreated {
    StepCreated {
        step: StepNo(0),
        nodes,
        key: b"key".to_vec().into(),
        hostlist: String::new(),
        mesh_addresses: Vec::new(),
        width: 0,
        direct: false,
        cpu_bind: String::new(),
    }
}

fn exited(task: u32, code: u32, signal: u32) -> FromStepd {
    FromStepd::Exited {
        task,
        exit: ExitStatus { code, signal },
        oom: false,
    }
}

fn out(task: u32, text: &str) -> FromStepd {
    FromStepd::Stdout {
        task,
        bytes: text.as_bytes().to_vec().into(),
    }
}

/// What the controller knows of the job.
fn allocation() -> Box<AllocationInfo> {
    let spec = Arc::new(JobSpec::default());
    let job = Job::new(JOB, spec, TimeLimit::Unlimited, Timestamp(0));
    Box::new(AllocationInfo {
        job,
        array: None,
        addresses: vec!["n1:6818".to_owned()],
        key: b"job".to_vec().into(),
        cluster: String::new(),
        components: Vec::new(),
    })
}

/// An executor that has nothing behind it.
struct Bench {
    srun: Srun,
    now_ms: u64,
    allocation: Result<Box<AllocationInfo>, ControllerError>,
    /// Addresses at which nobody listens.
    unreachable: BTreeSet<String>,
    /// Why requests are not sent.
    send_error: Option<String>,
    open_error: Option<String>,
    agents: BTreeMap<AgentId, String>,
    stepds: BTreeMap<StepdIdx, String>,
    requests: Vec<(AgentId, AgentRequest, Option<StepdIdx>)>,
    sent: Vec<(StepdIdx, ToStepd)>,
    opened: Vec<StreamsToOpen>,
    programs: Vec<String>,
    catches_signals: bool,
    is_raw: bool,
    /// What was written and printed.
    stdout: String,
    stderr: String,
    printed: String,
    ended: Option<ExitStatus>,
    exit: Option<u8>,
}

impl Bench {
    fn new(config: SrunConfig) -> Bench {
        Bench {
            srun: Srun::new(config),
            now_ms: 1000,
            allocation: Ok(allocation()),
            unreachable: BTreeSet::new(),
            send_error: None,
            open_error: None,
            agents: BTreeMap::new(),
            stepds: BTreeMap::new(),
            requests: Vec::new(),
            sent: Vec::new(),
            opened: Vec::new(),
            programs: Vec::new(),
            catches_signals: false,
            is_raw: false,
            stdout: String::new(),
            stderr: String::new(),
            printed: String::new(),
            ended: None,
            exit: None,
        }
    }

    /// One that has begun.
    fn begun(config: SrunConfig) -> Bench {
        let mut bench = Bench::new(config);
        bench.event(Event::Started);
        bench
    }

    /// One whose step runs on these nodes.
    fn running(config: SrunConfig, step: StepCreated) -> Bench {
        let mut bench = Bench::begun(config);
        bench.reply(AgentReply::Created(Box::new(step)));
        bench.idle();
        bench.idle();
        bench
    }

    fn event(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            self.srun.on_event(event, self.now_ms, &mut actions);
            for action in actions {
                assert!(self.exit.is_none(), "{action:?} after the end");
                events.extend(self.execute(action));
            }
        }
    }

    /// Does what is asked, and gives the answer.
    fn execute(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::AskAllocation(_) => {
                return Some(Event::Allocation(self.allocation.clone()));
            }
            Action::ConnectAgent { agent, address, .. } => {
                return Some(self.connect(agent, address));
            }
            Action::SendRequest {
                agent,
                request,
                channel,
            } => {
                assert!(self.agents.contains_key(&agent), "{agent:?}");
                self.requests.push((agent, (*request).clone(), channel));
                if let Some(channel) = channel {
                    self.stepds.insert(channel, "channel".to_owned());
                }
                let error = self.send_error.clone();
                return Some(Event::RequestSent {
                    agent,
                    request,
                    error,
                });
            }
            Action::CloseAgent(agent) => assert!(self.agents.remove(&agent).is_some()),
            Action::OpenStreams(streams) => {
                self.opened.push(*streams);
                let result = self.open_error.clone().map_or(Ok(()), Err);
                return Some(Event::StreamsOpened(result));
            }
            Action::RunProgram(path) => {
                self.programs.push(path);
                return Some(Event::ProgramEnded(Ok(())));
            }
            Action::ConnectStepd { stepd, address, .. } => {
                if self.unreachable.contains(&address) {
                    return Some(Event::StepdUnreachable(stepd, "refused".to_owned()));
                }
                self.stepds.insert(stepd, address);
                return Some(Event::StepdConnected(stepd));
            }
            Action::SendStepds(stepds, message) => {
                for stepd in stepds {
                    assert!(self.stepds.contains_key(&stepd), "{stepd:?} {message:?}");
                    self.sent.push((stepd, message.clone()));
                }
            }
            Action::CloseStepd(stepd) => assert!(self.stepds.remove(&stepd).is_some()),
            Action::CatchSignals { raw_terminal } => {
                assert!(!std::mem::replace(&mut self.catches_signals, true));
                self.is_raw = raw_terminal;
            }
            Action::RestoreTerminal => self.is_raw = false,
            Action::Write(stream, bytes) => {
                let text = match stream {
                    interface::OutputStream::Stdout => &mut self.stdout,
                    interface::OutputStream::Stderr => &mut self.stderr,
                };
                text.push_str(&String::from_utf8(bytes).unwrap());
            }
            Action::Print(text) => self.printed.push_str(&text),
            Action::EndAllocation(exit) => {
                assert!(self.ended.replace(exit).is_none(), "ended twice");
            }
            Action::Exit(code) => self.exit = Some(code),
        }
        None
    }

    fn connect(&mut self, agent: AgentId, address: String) -> Event {
        if self.unreachable.contains(&address) {
            return Event::AgentUnreachable(agent, "refused".to_owned());
        }
        let is_local = address.starts_with("unix:");
        self.agents.insert(agent, address);
        Event::AgentConnected {
            agent,
            is_local,
            own_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// The agent that is waited for answers.
    fn reply(&mut self, reply: AgentReply) {
        let agent = self.srun.interest().agent.expect("an agent is waited for");
        self.event(Event::AgentReplied(agent, Box::new(reply)));
    }

    fn idle(&mut self) {
        self.event(Event::Idle);
    }

    /// Lets time pass until something is due, and says how long.
    fn wait(&mut self) -> u64 {
        let until = self.srun.interest().until_ms.expect("something is due");
        let waited = until - self.now_ms;
        self.now_ms = until;
        self.idle();
        waited
    }

    /// The daemon at the address of this node sends something.
    fn stepd(&mut self, number: usize, messages: Vec<FromStepd>) {
        let id = self.stepd_of(number);
        self.event(Event::StepdMessages(id, messages));
        self.idle();
    }

    fn stepd_of(&self, number: usize) -> StepdIdx {
        let address = format!("unix:/stepd{number}");
        let mut all = self.stepds.iter();
        let found = all.find(|(_, known)| **known == address);
        *found.expect("the daemon is connected").0
    }

    fn lose(&mut self, number: usize) {
        let id = self.stepd_of(number);
        self.stepds.remove(&id);
        self.event(Event::StepdLost(id, "end of file".to_owned()));
        self.idle();
    }

    fn signal(&mut self, signal: i32) {
        assert!(self.srun.interest().signals && self.catches_signals);
        self.event(Event::Signal(signal));
        self.idle();
    }

    /// Messages to this node since the last time, but for the greeting.
    fn sent_to(&mut self, number: usize) -> Vec<ToStepd> {
        let id = self.stepd_of(number);
        let of_it = self.sent.extract_if(.., |(to, _)| *to == id);
        let messages = of_it.map(|(_, message)| message);
        let is_greeting = |m: &ToStepd| matches!(m, ToStepd::Hello(..) | ToStepd::Attach(_));
        messages.filter(|m| !is_greeting(m)).collect()
    }

    fn printed(&mut self) -> String {
        std::mem::take(&mut self.printed)
    }
}
