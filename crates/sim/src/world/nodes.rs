//! What nodes do: carry out orders, run scripts for a while, kill, report, crash, reboot.

use super::{Outcome, World, WorldEvent, trace};
use crate::agent::{self, Local, Run};
use crate::outlets::Conn;
use crate::{Plant, invariants};
use muster_ctld::mail::ToLink;
use muster_model::job::ExitStatus;
use muster_model::spec::JobKind;
use muster_proto::node::{JobGrant, Order, Report};

const SIGTERM: u32 = 15;
const SIGSTOP: u32 = 19;
const SIGCONT: u32 = 18;

impl World {
    pub(crate) fn agent_receives(&mut self, conn: Conn, message: ToLink) -> Outcome {
        let Some(node) = self.node_receiving(conn) else {
            return Ok(());
        };
        match message {
            ToLink::Welcome(..) => {
                self.agents[node].welcomed = true;
                let reports: Vec<_> = self.agents[node].outbox.iter().cloned().collect();
                if !reports.is_empty() {
                    self.send_to_ctld(conn, reports);
                }
                self.send_health(conn);
                Ok(())
            }
            ToLink::Ack(seq) => {
                let reports = self.agents[node].acknowledged(seq);
                reports.iter().try_for_each(|report| {
                    invariants::invariant_observed_ends_are_recorded(self, node, report)
                })
            }
            ToLink::Order(Order::Launch(grant), _) => self.launch(node, *grant),
            ToLink::Order(
                Order::Terminate {
                    job, attempt, now, ..
                },
                _,
            ) => {
                self.terminate(node, (job, attempt), now);
                Ok(())
            }
            ToLink::Order(
                Order::Signal {
                    job,
                    attempt,
                    signal,
                    ..
                },
                _,
            ) => {
                self.signal(node, (job, attempt), signal);
                Ok(())
            }
            // Machines here boot again by chance only.
            ToLink::Order(Order::Reboot, _) => Ok(()),
            // Scripts and steps here neither read nor are timed.
            ToLink::Order(Order::Tell { .. } | Order::StepLimit { .. }, _) => Ok(()),
            ToLink::Settings(_) | ToLink::Stop(_) | ToLink::Replaced => Ok(()),
        }
    }

    fn launch(&mut self, node: usize, grant: JobGrant) -> Outcome {
        let run = (grant.job, grant.attempt);
        invariants::invariant_a_launch_is_for_this_node(self, node, &grant)?;
        let agent = &mut self.agents[node];
        if agent.has_seen(run) {
            invariants::invariant_a_released_launch_is_not_ordered_again(self, node, run)?;
            trace!(
                self,
                "{}: launch of {}/{} was seen", self.agents[node].name, run.0, run.1.0
            );
            return Ok(());
        }
        agent.mark_seen(run);
        self.start_or_wait(node, grant)
    }

    fn start_or_wait(&mut self, node: usize, grant: JobGrant) -> Outcome {
        let agent = &mut self.agents[node];
        let cpus = share_of(&grant);
        let in_the_way = agent.using(&cpus, shared_with(&grant).as_deref());
        let all_are_ending = in_the_way
            .iter()
            .all(|run| agent.runs[run].is_being_killed());
        if !in_the_way.is_empty() && all_are_ending {
            // CPUs of a job that the controller gave up; its end was ordered before this.
            agent.waiting.push_back(grant);
            trace!(
                self,
                "{}: a launch waits for {in_the_way:?}", self.agents[node].name
            );
            return Ok(());
        }
        self.start(node, grant)
    }

    fn start(&mut self, node: usize, grant: JobGrant) -> Outcome {
        let run = (grant.job, grant.attempt);
        invariants::invariant_no_attempt_starts_twice_on_a_node(self, node, run)?;
        invariants::invariant_no_cpu_is_used_twice(self, node, &grant)?;
        invariants::invariant_one_attempt_runs_at_once(self, node, run)?;
        self.truth.started.insert((node, run.0, run.1));
        let name = self.agents[node].name.clone();
        let plan = crate::world::clients::script_of(&grant.spec.name, run);
        let leads = grant.position == 0;
        let cause = self.failure_of(node);
        if cause.is_some() || plan.fails_to_launch && leads {
            trace!(self, "{name}: {}/{} cannot be launched", run.0, run.1.0);
            let local = Local {
                alive: false,
                ..new_local(&grant)
            };
            self.agents[node].runs.insert(run, local);
            let report = Report::LaunchFailed {
                error: cause.unwrap_or("no such directory").to_owned(),
                node_fault: cause.is_some() || plan.node_fault,
                prolog: false,
                lack: false,
            };
            self.report(node, run, report);
            return Ok(());
        }
        trace!(
            self,
            "{name}: {}/{} runs on {:?}",
            run.0,
            run.1.0,
            share_of(&grant)
        );
        let script = leads && grant.spec.kind == JobKind::Batch;
        let ends_at = self.now + plan.duration_ms;
        let local = Local {
            alive: true,
            script,
            exit: plan.exit,
            ends_at,
            ..new_local(&grant)
        };
        self.agents[node].runs.insert(run, local);
        if script {
            let timer = 0;
            self.later(
                plan.duration_ms,
                WorldEvent::ScriptEnds { node, run, timer },
            );
        }
        if self.agents[node].stopped.remove(&run) {
            self.signal(node, run, SIGSTOP);
        }
        Ok(())
    }

    pub(crate) fn script_ends(&mut self, node: usize, run: Run, timer: u64) -> Outcome {
        let now = self.time();
        let Some(local) = self.agents[node].runs.get_mut(&run) else {
            return Ok(());
        };
        if local.timer != timer || !local.alive || !local.script || local.ends_at != self.now {
            return Ok(());
        }
        local.alive = false;
        let exit = local.exit;
        trace!(
            self,
            "{}: {}/{} ends {exit:?}", self.agents[node].name, run.0, run.1.0
        );
        self.truth.exits.insert(run, exit);
        self.report(node, run, agent::batch_ended(exit, false, now));
        self.start_waiting(node)
    }

    fn terminate(&mut self, node: usize, run: Run, at_once: bool) {
        let early = self.planted(Plant::EarlyRelease) && self.random.one_in(3);
        let kill_after = if at_once {
            10
        } else {
            self.random.around(1_500)
        };
        let agent = &mut self.agents[node];
        agent
            .waiting
            .retain(|grant| (grant.job, grant.attempt) != run);
        agent.mark_seen(run);
        let Some(local) = agent.runs.get_mut(&run) else {
            // Nothing is known of it, so nothing is left of it.
            let said = |r: &muster_proto::node::NumberedReport| {
                (r.job, r.attempt) == run && matches!(r.report, Report::Released)
            };
            if !agent.outbox.iter().any(said) {
                self.report(node, run, Report::Released);
            }
            return;
        };
        if local.released || (local.ending && !at_once) {
            return;
        }
        local.ending = true;
        if local.alive {
            local.timer += 1;
            local.stopped = None;
            let timer = local.timer;
            if early {
                local.released = true;
                self.report(node, run, Report::Released);
            }
            self.later(kill_after, WorldEvent::Killed { node, run, timer });
        } else {
            local.released = true;
            self.report(node, run, Report::Released);
        }
    }

    pub(crate) fn killed(&mut self, node: usize, run: Run, timer: u64) -> Outcome {
        let now = self.time();
        let Some(local) = self.agents[node].runs.get_mut(&run) else {
            return Ok(());
        };
        if local.timer != timer || !local.alive {
            return Ok(());
        }
        local.alive = false;
        let script = local.script;
        let released = std::mem::replace(&mut local.released, true);
        trace!(
            self,
            "{}: {}/{} is gone", self.agents[node].name, run.0, run.1.0
        );
        if script {
            let exit = ExitStatus {
                code: 0,
                signal: SIGTERM,
            };
            self.report(node, run, agent::batch_ended(exit, true, now));
        }
        if released {
            self.agents[node].runs.remove(&run);
        } else {
            self.report(node, run, Report::Released);
        }
        self.start_waiting(node)
    }

    /// CPUs became free: launches that wait may go on.
    fn start_waiting(&mut self, node: usize) -> Outcome {
        let waiting = std::mem::take(&mut self.agents[node].waiting);
        waiting
            .into_iter()
            .try_for_each(|grant| self.start_or_wait(node, grant))
    }

    fn signal(&mut self, node: usize, run: Run, signal: u32) {
        let now = self.now;
        let agent = &mut self.agents[node];
        if agent.waiting.iter().any(|g| (g.job, g.attempt) == run) {
            match signal {
                SIGSTOP => agent.stopped.insert(run),
                SIGCONT => agent.stopped.remove(&run),
                _ => false,
            };
            return;
        }
        let Some(local) = agent.runs.get_mut(&run) else {
            return;
        };
        if !local.alive || local.ending {
            return;
        }
        match (signal, local.stopped) {
            (SIGSTOP, None) => {
                local.stopped = Some(local.ends_at.saturating_sub(now));
                local.timer += 1;
            }
            (SIGCONT, Some(left)) => {
                local.stopped = None;
                local.timer += 1;
                local.ends_at = now + left;
                let (timer, script) = (local.timer, local.script);
                if script {
                    self.later(left, WorldEvent::ScriptEnds { node, run, timer });
                }
            }
            _ => {}
        }
    }

    /// Keeps a report and sends it if there is a connection.
    fn report(&mut self, node: usize, run: Run, report: Report) {
        let agent = &mut self.agents[node];
        agent.report(run, report);
        if let (true, true, Some(conn)) = (agent.agent_up, agent.welcomed, agent.conn)
            && let Some(last) = agent.outbox.back().cloned()
        {
            self.send_to_ctld(conn, vec![last]);
        }
    }

    /// The agent's process dies; the shim and the jobs stay.
    pub(crate) fn agent_dies(&mut self, node: usize) {
        if !self.agents[node].agent_up {
            return;
        }
        trace!(self, "{}: the agent dies", self.agents[node].name);
        self.cut(node, false);
        self.agents[node].agent_up = false;
        let delay = self.random.between(100, 30_000);
        self.later(delay, WorldEvent::AgentStarts { node });
    }

    pub(crate) fn agent_starts(&mut self, node: usize) {
        let agent = &mut self.agents[node];
        if agent.machine_up && !agent.agent_up {
            agent.agent_up = true;
            self.later(10, WorldEvent::Connect { node });
        }
    }

    /// The machine loses power and comes back with a new boot.
    pub(crate) fn reboot(&mut self, node: usize) {
        if !self.agents[node].machine_up {
            return;
        }
        trace!(self, "{}: the machine goes down", self.agents[node].name);
        self.cut(node, false);
        self.agents[node].power_off();
        let boot = self.agents[node].boot;
        let delay = self.random.between(1_000, 120_000);
        self.later(delay, WorldEvent::MachineStarts { node, boot });
    }

    pub(crate) fn machine_starts(&mut self, node: usize, boot: u64) {
        let agent = &mut self.agents[node];
        if agent.machine_up || agent.boot != boot {
            return;
        }
        agent.machine_up = true;
        agent.agent_up = true;
        agent.boot += 1;
        self.later(10, WorldEvent::Connect { node });
    }

    /// The shim is killed: its jobs are gone without a trace, which the agent reports.
    pub(crate) fn shim_dies(&mut self, node: usize) -> Outcome {
        trace!(self, "{}: all jobs vanish", self.agents[node].name);
        let runs: Vec<Run> = self.agents[node].runs.keys().copied().collect();
        for run in runs {
            let Some(local) = self.agents[node].runs.get_mut(&run) else {
                continue;
            };
            if !local.alive {
                continue;
            }
            local.alive = false;
            local.timer += 1;
            let ending = local.ending;
            if ending {
                if let Some(local) = self.agents[node].runs.get_mut(&run) {
                    local.released = true;
                }
                self.report(node, run, Report::Released);
            } else {
                self.report(node, run, Report::Vanished);
            }
        }
        self.start_waiting(node)
    }
}

/// The partition whose jobs may have the same CPUs.
pub(crate) fn shared_with(grant: &JobGrant) -> Option<String> {
    (grant.alloc.sharers > 1).then(|| grant.alloc.partition.clone())
}

pub(crate) fn share_of(grant: &JobGrant) -> muster_model::cpuset::CpuSet {
    let share = grant.alloc.nodes.get(grant.position as usize);
    share.map(|share| share.cpus.clone()).unwrap_or_default()
}

fn new_local(grant: &JobGrant) -> Local {
    Local {
        cpus: share_of(grant),
        shared_with: shared_with(grant),
        alive: true,
        script: false,
        exit: ExitStatus::default(),
        timer: 0,
        ends_at: 0,
        stopped: None,
        ending: false,
        released: false,
    }
}
