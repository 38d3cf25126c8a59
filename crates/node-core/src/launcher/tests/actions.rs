//! What the model does about the launcher's actions.

use super::*;
use crate::launcher::interface::Leftovers;
use muster_model::ids::AttemptStep;

impl World {
    fn failure(&self) -> Failure {
        Failure {
            error: "it is full".to_owned(),
            is_temporary: true,
        }
    }

    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Log(line) => assert!(!line.contains("unexpected event"), "{line}"),
            Action::SetTimer(key, at) => drop(self.timers.insert(key, at)),
            Action::StopTimer(key) => drop(self.timers.remove(&key)),
            Action::AppendRecords(lines) => {
                let written = match self.is_full {
                    true => Err(self.failure()),
                    false => Ok(()),
                };
                if written.is_ok() {
                    self.records.push_str(std::str::from_utf8(&lines).unwrap());
                }
                self.events.push_back(Event::RecordsAppended(written));
            }
            Action::RewriteRecords(all) => {
                self.records = String::from_utf8(all).unwrap();
                self.events.push_back(Event::RecordsRewritten(Ok(())));
            }
            Action::SendAgent(event) => self.send(event),
            Action::CheckControllerKey { .. } => {
                self.events.push_back(Event::ControllerKeyChecked(Ok(())));
            }
            Action::PrepareLaunch {
                attempt, script, ..
            } => {
                let files = LaunchFiles {
                    script: script.map(|_| "/spool/script".to_owned()),
                    prolog: self.prolog.clone(),
                    epilog: self.epilog.clone(),
                };
                let files = match self.is_full {
                    true => Err(self.failure()),
                    false => Ok(files),
                };
                self.events.push_back(Event::LaunchPrepared(attempt, files));
            }
            Action::StartScript(launch) => {
                self.check_namespace(launch.attempt, launch.namespace.is_some());
                if let Some(dir) = launch.tmp_dir {
                    self.tmp_dirs.insert(launch.attempt, dir);
                }
                self.start_script(launch.attempt);
            }
            Action::MakeContainer(attempt, _) => {
                self.check_recorded(attempt);
                let started = self.spawn(Kind::Programs(attempt, JobProgramKind::Container));
                if started.is_ok() {
                    self.containers.insert(attempt);
                }
                let event = Event::ProgramsStarted(attempt, JobProgramKind::Container, started);
                self.events.push_back(event);
            }
            Action::RemoveTmpDir(dir) => self.removed_tmp_dirs.push(dir),
            Action::RemoveContainer(attempt, _) => {
                assert!(self.pids(|kind| *kind == Kind::Script(attempt)).is_empty());
                let kind = JobProgramKind::ContainerRemoval;
                let started = self.spawn(Kind::Programs(attempt, kind));
                if started.is_ok() {
                    self.containers.remove(&attempt);
                }
                self.events
                    .push_back(Event::ProgramsStarted(attempt, kind, started));
            }
            Action::SweepContainers { kept, .. } => {
                let name = |attempt: &JobAttempt| format!("{}.{}", attempt.job, attempt.attempt.0);
                self.containers
                    .retain(|attempt| kept.contains(&name(attempt)));
            }
            Action::StartPrograms { attempt, kind, .. } => {
                self.check_recorded(attempt);
                let is_of_site = |kind: &Kind| {
                    matches!(
                        kind,
                        Kind::Programs(_, JobProgramKind::Prolog | JobProgramKind::Epilog(_))
                    )
                };
                let others = self.pids(is_of_site);
                assert!(!self.is_serial || self.has_crashed || others.is_empty());
                let started = self.spawn(Kind::Programs(attempt, kind));
                match kind {
                    JobProgramKind::Prolog if started.is_ok() => self.prologs += 1,
                    JobProgramKind::Epilog(_) if started.is_ok() => self.epilogs += 1,
                    _ => {}
                }
                self.events
                    .push_back(Event::ProgramsStarted(attempt, kind, started));
            }
            Action::StartMessage {
                attempt,
                kind,
                line,
                ..
            } => {
                self.messages.push(line.lines().count());
                let started = self.spawn(Kind::Helper).map_err(|e| e.error);
                self.events
                    .push_back(Event::MessageStarted(attempt, kind, started));
            }
            Action::ReadLastLines { attempt, path, .. } => {
                self.read.push((attempt, path));
            }
            Action::StopLastLines(attempt) => self.read.retain(|(of, _)| *of != attempt),
            Action::RemoveDirs { attempt, .. } => {
                let started = self.spawn(Kind::Helper);
                let started = started.map(|pid| Event::RemovalStarted(attempt, pid));
                self.events.extend(started.ok());
            }
            Action::LookUpGroups(account) => drop(self.look_ups.insert(account)),
            Action::StopLookUp(account) => drop(self.look_ups.remove(&account)),
            other => self.serve_stepds(other),
        }
    }

    fn start_script(&mut self, attempt: JobAttempt) {
        self.check_recorded(attempt);
        let started = self.spawn(Kind::Script(attempt));
        if started.is_ok() {
            *self.scripts.entry(attempt).or_default() += 1;
            assert_eq!(self.scripts[&attempt], 1, "{attempt:?} is started twice");
        }
        let started = started.map_err(ScriptNotStarted::Failed);
        self.events
            .push_back(Event::ScriptStarted(attempt, started));
    }

    /// What runs of a job is in its namespace, once that is there.
    fn check_namespace(&self, attempt: JobAttempt, joins: bool) {
        let is_making = |kind: &Kind| *kind == Kind::Programs(attempt, JobProgramKind::Container);
        assert!(
            self.pids(is_making).is_empty(),
            "{attempt:?} begins too early"
        );
        assert_eq!(joins, self.containers.contains(&attempt), "{attempt:?}");
    }

    fn check_recorded(&self, attempt: JobAttempt) {
        let line = format!("L {} {} ", attempt.job, attempt.attempt.0);
        let is_it = |found: &str| found.starts_with(&line);
        assert!(self.records.lines().any(is_it), "{attempt:?} is on no file");
    }

    pub(super) fn count_step(&mut self, attempt: JobAttempt, step: StepNo) {
        self.new_steps.insert(AttemptStep::new(attempt, step));
        let count = self
            .steps
            .entry(AttemptStep::new(attempt, step))
            .or_default();
        *count += 1;
        assert_eq!(*count, 1, "step {step} of {attempt:?} is started twice");
    }

    fn serve_stepds(&mut self, action: Action) {
        match action {
            Action::StartStepd {
                order, namespace, ..
            } => {
                let (attempt, step) = (order.step.order.attempt, order.step.order.launch.step);
                self.check_namespace(attempt, namespace.is_some());
                let started = self.spawn(Kind::Stepd(attempt, Some(step)));
                let started = started.map_err(|e| e.error).map(|pid| {
                    self.count_step(attempt, step);
                    let stepd = StepdConnId(self.next_id());
                    let connection = Connection {
                        pid,
                        ..Connection::default()
                    };
                    self.stepds.insert(stepd, connection);
                    self.owned.insert(stepd);
                    StartedStepd {
                        stepd,
                        pid,
                        mesh_address: None,
                    }
                });
                self.events
                    .push_back(Event::StepdStarted(attempt, step, started));
            }
            Action::GiveStep {
                attempt,
                step,
                stepd,
                ..
            } => {
                let pid = self.stepds[&stepd].pid;
                let process = self.processes.get_mut(&pid);
                let is_sent = process.is_some_and(|p| {
                    let is_live = p.ended.is_none();
                    assert!(!is_live || p.kind == Kind::Stepd(attempt, None));
                    p.kind = Kind::Stepd(attempt, Some(step));
                    is_live
                });
                if is_sent {
                    self.owned.insert(stepd);
                    self.count_step(attempt, step);
                }
                self.events
                    .push_back(Event::StepGiven(attempt, step, is_sent));
            }
            Action::SendStepd(stepd, command) => self.send_stepd(stepd, command),
            Action::ListenTo(stepd) => {
                self.stepds.get_mut(&stepd).unwrap().is_listening = true;
            }
            Action::StopListening(stepd) => {
                self.stepds.get_mut(&stepd).unwrap().is_listening = false;
            }
            Action::CloseStepd(stepd) => {
                let closed = self.stepds.remove(&stepd);
                self.lose_launcher(closed.expect("it is closed once"));
            }
            Action::AskStepds(sockets) => self.ask_stepds(sockets.is_some()),
            Action::ReadResult(attempt, step, purpose) => self.read_result(attempt, step, purpose),
            Action::RemoveResult(attempt, step) => {
                self.results.remove(&AttemptStep::new(attempt, step));
            }
            Action::ListResults => {
                let results = self.results.iter().copied().collect();
                self.events.push_back(Event::ResultsListed(results));
            }
            Action::WatchStepd(attempt, step, pid) => {
                let process = self.processes.get(&pid).filter(|p| p.ended.is_none());
                let belongs = process.map(|p| match p.kind {
                    Kind::Stepd(of, _) => ProcessOwner::To(of),
                    _ => ProcessOwner::Unknown,
                });
                if belongs.is_some() {
                    self.watched.insert(pid);
                }
                self.events
                    .push_back(Event::StepdWatched(attempt, step, pid, belongs));
            }
            Action::Unwatch(pid) => drop(self.watched.remove(&pid)),
            other => self.signal(other),
        }
    }

    /// A daemon's connection is closed: it leaves what was not received, and ends if it has no step.
    fn lose_launcher(&mut self, connection: Connection) {
        let pid = connection.pid;
        let Some(process) = self.processes.get(&pid).filter(|p| p.ended.is_none()) else {
            return;
        };
        if let Kind::Stepd(attempt, current) = process.kind {
            let left = connection
                .unread
                .into_iter()
                .map(|step| AttemptStep::new(attempt, step));
            self.results.extend(left);
            if current.is_none() {
                self.end(pid, 0);
            }
        }
    }

    /// Daemons with a step say which; `unconnected`: those to which there is no connection.
    fn ask_stepds(&mut self, unconnected: bool) {
        for pid in self.pids(|kind| matches!(kind, Kind::Stepd(_, Some(_)))) {
            let Kind::Stepd(attempt, Some(step)) = self.processes[&pid].kind else {
                continue;
            };
            if unconnected && self.stepds.values().any(|c| c.pid == pid) {
                continue;
            }
            let stepd = StepdConnId(self.next_id());
            let connection = Connection {
                pid,
                ..Connection::default()
            };
            self.stepds.insert(stepd, connection);
            let running = RunningStep {
                attempt,
                step,
                pid,
                dirs: Vec::new(),
                kept: Vec::new(),
                greeting: self.stepd_greeting.clone(),
            };
            let socket = "/spool/socket".into();
            self.events
                .push_back(Event::StepdRunning(stepd, socket, Box::new(running)));
        }
        self.events.push_back(Event::StepdsAsked);
    }

    fn read_result(&mut self, attempt: JobAttempt, step: StepNo, purpose: ResultPurpose) {
        let is_there = self.results.contains(&AttemptStep::new(attempt, step));
        self.events.push_back(Event::ResultRead {
            attempt,
            step,
            purpose,
            result: is_there.then(|| StepResult {
                end: end_of_step(),
                kept: Vec::new(),
            }),
        });
    }

    fn send_stepd(&mut self, stepd: StepdConnId, command: StepdCommand) {
        let pid = self.stepds[&stepd].pid;
        let is_live = |p: &&Process| p.ended.is_none();
        if self.processes.get(&pid).filter(is_live).is_none() {
            return self.events.push_back(Event::NotSent(stepd, command));
        }
        match command {
            StepdCommand::EndStep(_) => self.end_tasks(pid),
            // A daemon that has a step does not follow it.
            StepdCommand::Exit if matches!(self.processes[&pid].kind, Kind::Stepd(_, None)) => {
                self.end(pid, 0);
            }
            StepdCommand::SetTimeLimit(seconds, _) => self.limits.push((pid, seconds)),
            StepdCommand::SignalLater(signal, _) => self.later_signals.push(signal),
            _ => {}
        }
    }

    fn signal(&mut self, action: Action) {
        match action {
            Action::Signal(pid, signal) => {
                assert!(
                    self.processes.contains_key(&pid),
                    "{pid} was collected and is signalled"
                );
                self.signals.push((pid, signal));
                match (signal, self.processes.get(&pid).map(|p| p.kind)) {
                    (SIGKILL, _) => self.end(pid, SIGKILL),
                    (SIGTERM, Some(Kind::Stepd(..))) => self.end_tasks(pid),
                    _ => {}
                }
            }
            Action::SignalGroup(pid, signal) => self.end(pid, signal),
            Action::SignalScript {
                of,
                script,
                signal,
                steps_too,
            } => {
                self.signals_for_steps_too
                    .extend(steps_too.then_some(signal));
                self.signals.extend(script.map(|pid| (pid, signal)));
                if signal == SIGKILL {
                    let orphans = self.pids(|kind| *kind == Kind::Orphan(of.attempt));
                    let all = script.into_iter().chain(orphans);
                    all.for_each(|pid| self.end(pid, SIGKILL));
                }
            }
            Action::SignalBelow { roots, signal, .. } => {
                assert_eq!(signal, SIGKILL);
                roots.into_iter().for_each(|pid| self.end_tasks(pid));
            }
            Action::SignalStep { pid, signal, .. } => {
                self.signals.push((pid, signal));
                if signal == SIGKILL {
                    self.end_tasks(pid);
                }
            }
            Action::SignalFound { found, .. } => {
                found.into_iter().for_each(|pid| self.end(pid, SIGKILL));
            }
            Action::FindLeftovers(jobs) => {
                let left = jobs.iter().map(|of| Leftovers {
                    attempt: of.attempt,
                    pids: self.pids(|kind| *kind == Kind::Orphan(of.attempt)),
                });
                let left = left.collect();
                self.events.push_back(Event::LeftoversFound {
                    left,
                    is_unclear: false,
                    since_ms: 0,
                });
            }
            Action::KeepSettings(_)
            | Action::KeepScripts(_)
            | Action::DropScript(_)
            | Action::RemoveSocket(_)
            | Action::RemoveFilesOfOthers(_)
            | Action::KillOrphans
            | Action::KillRemnants(..)
            | Action::RetireMember(..)
            | Action::ForgetScript(_)
            | Action::FreezeGroups(..)
            | Action::RemoveGroups(_)
            | Action::ForgetMembers(_) => {}
            other => panic!("{other:?} is not modelled"),
        }
    }
}
