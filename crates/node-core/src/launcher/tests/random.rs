//! Random interleavings of what can happen to jobs and steps, with crashes of the launcher and lacks of everything: a script and a
//! step are started at most once, each end is reported once, and nothing is held when all is over.

use super::*;
use muster_model::ids::AttemptStep;
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that happens next. Numbers choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Incident {
    Launch {
        job: u64,
        is_batch: bool,
    },
    AnswerLookUps,
    Terminate {
        job: u64,
        now: bool,
    },
    StartStep {
        job: u64,
        step: u32,
    },
    /// Tasks of a daemon end.
    TasksEnd(usize),
    /// A process ends, or is killed.
    ProcessEnds(usize),
    /// A step daemon does nothing any more.
    DaemonHangs(usize),
    /// A script leaves a process behind.
    Orphan(u64),
    /// Ends of processes are collected.
    Reap,
    /// The agent gives a step to a daemon that waits for one.
    Assign {
        spare: usize,
        step: u32,
        /// The agent is not lost before it says so.
        is_reported: bool,
    },
    Release(usize),
    Timer,
    Crash,
    /// The agent is lost, and another attaches.
    Attach,
    Lack(bool),
    Full(bool),
    Forget(u64),
    ForgetStep {
        job: u64,
        step: u32,
    },
}

fn incident() -> impl Strategy<Value = Incident> {
    let job = || 1_u64..4;
    let step = || 0_u32..6;
    let index = || 0_usize..16;
    prop_oneof![
        4 => (job(), any::<bool>()).prop_map(|(job, is_batch)| Incident::Launch { job, is_batch }),
        4 => Just(Incident::AnswerLookUps),
        2 => (job(), any::<bool>()).prop_map(|(job, now)| Incident::Terminate { job, now }),
        5 => (job(), step()).prop_map(|(job, step)| Incident::StartStep { job, step }),
        5 => index().prop_map(Incident::TasksEnd),
        4 => index().prop_map(Incident::ProcessEnds),
        1 => index().prop_map(Incident::DaemonHangs),
        1 => job().prop_map(Incident::Orphan),
        6 => Just(Incident::Reap),
        3 => (index(), step(), prop::bool::weighted(0.7)).prop_map(|(spare, step, is_reported)| {
            Incident::Assign { spare, step, is_reported }
        }),
        1 => index().prop_map(Incident::Release),
        4 => Just(Incident::Timer),
        1 => Just(Incident::Crash),
        1 => Just(Incident::Attach),
        1 => any::<bool>().prop_map(Incident::Lack),
        1 => any::<bool>().prop_map(Incident::Full),
        1 => job().prop_map(Incident::Forget),
        2 => (job(), step()).prop_map(|(job, step)| Incident::ForgetStep { job, step }),
    ]
}

/// One of these, chosen by a number.
fn choose<T: Copy>(all: &[T], number: usize) -> Option<T> {
    all.get(number.checked_rem(all.len())?).copied()
}

impl World {
    fn spares(&self) -> Vec<(JobAttempt, i32)> {
        let jobs = self.launcher.state.jobs.iter();
        let spares = jobs.flat_map(|(attempt, e)| e.spares.iter().map(|s| (*attempt, s.pid)));
        spares.collect()
    }

    /// Those to which the agent has a connection: only these it can give a step.
    fn owned_spares(&self) -> Vec<(JobAttempt, i32)> {
        let jobs = self.launcher.state.jobs.iter();
        let spares = jobs.flat_map(|(attempt, e)| e.spares.iter().map(|s| (*attempt, s)));
        let owned = spares.filter(|(_, spare)| spare.is_owned);
        owned.map(|(attempt, spare)| (attempt, spare.pid)).collect()
    }

    fn happen(&mut self, step: Incident) {
        match step {
            Incident::Launch { job, is_batch } => {
                let kind = match is_batch {
                    true => JobKind::Batch,
                    false => JobKind::Allocation,
                };
                // A job that has ended here is not launched again by the controller.
                if !self.forgotten.contains(&attempt_of(job)) {
                    self.order(Order::Launch(Box::new(grant(attempt_of(job), kind))));
                }
            }
            Incident::AnswerLookUps => self.answer_look_ups(),
            Incident::Terminate { job, now } => self.terminate(attempt_of(job), now),
            Incident::StartStep { job, step } => {
                // An agent asks again for a step that a launcher before this one may have forgotten only if it is lost, too.
                let key = AttemptStep::new(attempt_of(job), StepNo(step));
                if !self.steps.contains_key(&key) || self.new_steps.contains(&key) {
                    self.start_step(attempt_of(job), StepNo(step));
                }
            }
            Incident::TasksEnd(which) => {
                let stepds = self.pids(|kind| matches!(kind, Kind::Stepd(_, Some(_))));
                if let Some(pid) = choose(&stepds, which) {
                    self.end_tasks(pid);
                    self.finish_wakeup();
                }
            }
            Incident::ProcessEnds(which) => {
                if let Some(pid) = choose(&self.pids(|_| true), which) {
                    self.end(pid, SIGKILL);
                }
            }
            Incident::DaemonHangs(which) => {
                let stepds = self.pids(|kind| matches!(kind, Kind::Stepd(..)));
                let process = choose(&stepds, which).and_then(|pid| self.processes.get_mut(&pid));
                if let Some(process) = process.filter(|p| p.is_child) {
                    process.hangs = true;
                }
            }
            Incident::Orphan(job) => {
                let has_script = |kind: &Kind| *kind == Kind::Script(attempt_of(job));
                if !self.pids(has_script).is_empty() {
                    let _ = self.spawn(Kind::Orphan(attempt_of(job)));
                }
            }
            Incident::Reap => self.reap(),
            Incident::Assign {
                spare,
                step,
                is_reported,
            } => {
                if let Some((of, pid)) = choose(&self.owned_spares(), spare)
                    && !self.steps.contains_key(&AttemptStep::new(of, StepNo(step)))
                    && let Some(process) = self.processes.get_mut(&pid)
                    && process.ended.is_none()
                {
                    process.kind = Kind::Stepd(of, Some(StepNo(step)));
                    self.count_step(of, StepNo(step));
                    if is_reported {
                        let step = StepNo(step);
                        self.command(LauncherCommand::StepAssigned {
                            attempt: of,
                            step,
                            pid,
                        });
                    } else {
                        self.deliver(Event::AgentLost);
                        self.attach();
                        assert!(self.launcher.state.jobs[&of].had_step(StepNo(step)));
                    }
                }
            }
            Incident::Release(which) => {
                if let Some((attempt, pid)) = choose(&self.spares(), which) {
                    self.command(LauncherCommand::ReleaseStepd { attempt, pid });
                }
            }
            Incident::Timer => drop(self.fire_timer()),
            Incident::Crash => self.crash(),
            Incident::Attach => {
                self.deliver(Event::AgentLost);
                self.attach();
            }
            Incident::Lack(lacks) => self.lacks = lacks,
            Incident::Full(is_full) => self.is_full = is_full,
            Incident::Forget(job) => {
                if self.is_released(attempt_of(job)) {
                    self.forgotten.insert(attempt_of(job));
                }
                self.command(LauncherCommand::Forget(attempt_of(job)));
            }
            Incident::ForgetStep { job, step } => {
                self.command(LauncherCommand::ForgetStep(attempt_of(job), StepNo(step)));
            }
        }
    }

    /// All is ended and forgotten.
    fn finish(&mut self) {
        (self.lacks, self.is_full) = (false, false);
        self.answer_look_ups();
        for job in 1..4 {
            self.terminate(attempt_of(job), true);
        }
        for _ in 0..200 {
            self.reap();
            self.answer_look_ups();
            for pid in self.pids(|kind| matches!(kind, Kind::Programs(..) | Kind::Helper)) {
                self.end(pid, 0);
            }
            self.reap();
            if !self.fire_timer() && self.processes.is_empty() {
                break;
            }
        }
        for job in 1..4 {
            assert!(
                matches!(
                    self.phase(attempt_of(job)),
                    NodeJobPhase::Released | NodeJobPhase::Gone
                ),
                "job {job} stays {:?}",
                self.phase(attempt_of(job))
            );
            self.command(LauncherCommand::Forget(attempt_of(job)));
        }
    }

    fn assert_nothing_is_held(&self) {
        assert!(self.launcher.state.jobs.is_empty());
        assert!(self.processes.is_empty(), "{:?}", self.processes);
        assert!(self.stepds.is_empty(), "{:?}", self.stepds);
        assert!(self.timers.is_empty(), "{:?}", self.timers);
        assert!(self.watched.is_empty(), "{:?}", self.watched);
        assert!(
            self.launcher.state.roles.is_empty(),
            "{:?}",
            self.launcher.state.roles
        );
        assert!(self.launcher.state.sessions.is_empty());
        assert!(self.launcher.launches.daemons.stepds.is_empty());
        let (_, old, _) = LauncherRecords::read(&self.records, "boot");
        assert!(old.is_empty(), "{old:?}");
    }
}

proptest! {
    #[test]
    fn nothing_starts_twice_and_nothing_is_held_at_the_end(
        steps in vec(incident(), 0..120),
        has_prolog in any::<bool>(),
        has_epilog in any::<bool>(),
        has_containers in any::<bool>(),
        is_serial in any::<bool>(),
    ) {
        let mut world = World::new();
        if has_prolog {
            world.prolog = vec!["/prolog".to_owned()];
        }
        world.has_containers = has_containers;
        world.is_serial = is_serial;
        if has_epilog {
            world.epilog = vec!["/epilog".to_owned()];
        }
        world.attach();
        for step in steps {
            world.happen(step);
        }
        world.finish();
        world.assert_nothing_is_held();
    }
}
