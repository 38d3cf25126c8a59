//! What the model does about the daemon's actions.

use super::*;

impl World {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Log(line) => {
                assert!(!line.contains("unexpected event"), "{line}");
                self.log.push(line);
            }
            Action::BeginStep(order, srun) => self.begin_step(order, srun),
            Action::StartHost(_) => {
                let started = self.spawn(Role::Host, false);
                let started = started.ok_or_else(|| "no processes".to_owned());
                self.events.push_back(Event::HostStarted(started));
            }
            Action::StartTasks => {
                self.start_tasks();
                if self.plant == Some(Plant::TasksStartedTwice) {
                    self.start_tasks();
                }
            }
            Action::ReleaseTasks => self.release_tasks(),
            Action::StartEpilog { task, .. } => {
                let pid = self.spawn(Role::Epilog(task), false);
                self.events.push_back(Event::EpilogStarted(task, pid));
            }
            Action::SignalTasks(signal) | Action::SignalAsked(signal) => {
                self.signals.push(signal);
                self.signal(signal);
            }
            Action::SignalTask(pid, signal) => {
                assert!(self.processes.contains_key(&pid), "another process");
                self.signals.push(signal);
            }
            Action::KillRemnants => self.signal(SIGKILL),
            Action::KillHost => {
                for pid in self.pids(|p| p.role == Role::Host) {
                    self.end(pid, SIGKILL);
                }
            }
            Action::EndStep => self.end_step(),
            Action::ReportEnd(frame) => self.report_end(&frame),
            Action::SendAgent(frame) => {
                let step = ended(&frame).0;
                assert!(self.reported.contains(&step), "the agent knows first");
                assert!(self.sent.insert(step), "the agent is sent an end twice");
            }
            Action::CheckLauncher => {
                let has_read = self.launcher.as_ref().is_some_and(Vec::is_empty);
                self.events.push_back(Event::LauncherChecked(has_read));
            }
            Action::LeaveResult(path, end, _) => {
                let is_last = self.begun.last().map(|s| result_file(*s)) == Some(path.clone());
                if is_last && !self.is_broken {
                    assert_eq!(end.usage.user_us, self.started as u64, "tasks and ends");
                }
                if self.plant != Some(Plant::ResultNotLeft) {
                    self.last_end = Some((*end).clone());
                    let before = self.files.insert(path, *end);
                    assert!(before.is_none(), "a result is left twice");
                }
            }
            Action::AdoptLauncher(client, running) => {
                let order = self.order.as_ref().unwrap();
                assert_eq!((running.attempt, running.step), (RUN, order.launch.step));
                let srun = self.srun.as_ref();
                assert!(
                    srun.is_none_or(|s| s.id != client),
                    "srun is not a launcher"
                );
                self.launcher = Some(Vec::new());
                self.is_launcher_loss_known = false;
            }
            Action::Exit => {
                self.is_over = true;
                // Nothing outlives the daemon.
                self.processes.clear();
            }
            Action::RemoveLeftovers { .. }
            | Action::EndInput
            | Action::SetWindow(..)
            | Action::RemoveDirs { .. } => {}
            action => self.serve_connections(action),
        }
    }

    fn serve_connections(&mut self, action: Action) {
        match action {
            Action::Send(message, _) => {
                assert!(self.srun.is_some(), "to nobody: {message:?}");
                self.receive(message);
            }
            Action::SendFrame(frame, _) => {
                self.frames_sent += 1;
                let mut frames = Frames::default();
                frames.push(&frame);
                while let Some(message) = frames.take().unwrap() {
                    self.receive_by_tree(message);
                }
            }
            Action::AwaitFlush => {
                if let Some(srun) = &mut self.srun {
                    srun.is_flush_awaited = true;
                }
            }
            Action::Refuse(client, _) => {
                self.refused.push(client);
                self.close(client);
            }
            Action::TakeClient(client) => {
                let srun = self.srun.as_mut().filter(|s| s.id == client);
                let srun = srun.expect("a client that is not there is taken");
                srun.is_greeted = true;
            }
            Action::TakeReader(client, frames) => {
                self.readers.push(client);
                self.reread = frames.to_vec();
            }
            Action::SendReaders(frame) => {
                let mut frames = Frames::default();
                frames.push(&frame);
                self.read.push(frames.take().unwrap().unwrap());
            }
            Action::Feed(task, bytes) => self.fed.push((task, bytes.to_vec())),
            Action::CloseClient(client) => self.close(client),
            Action::ConnectBelow(branches) => {
                assert_eq!(branches.len(), 1);
                assert!(!self.has_below, "the node below has two above it");
                self.has_below = !self.lacks;
                let lost = branches.into_iter().map(|b| b.position);
                let lost = lost.filter(|_| !self.has_below).collect();
                self.events.push_back(Event::BelowConnected(lost));
            }
            Action::SendBelow(position, _) => {
                assert_eq!((position, self.has_below), (1, true));
            }
            Action::SendHost(HostCommand::Stop) => {
                assert!(self.tasks().is_empty(), "the host ends before the tasks");
            }
            Action::SendHost(_) => {}
            Action::ReadHost => self.events.push_back(Event::HostRead),
            other => panic!("{other:?}"),
        }
    }

    fn close(&mut self, client: ClientId) {
        self.closed.push(client);
        if let Some(srun) = self.srun.take_if(|s| s.id == client) {
            let is_numbered = |m: &&ToStepd| matches!(m, ToStepd::ForwardDown(..));
            self.said -= srun.queue.iter().filter(is_numbered).count() as u64;
        }
    }

    fn begin_step(&mut self, order: Rc<StepOrder>, srun: Option<ClientId>) {
        assert!(self.order.is_none(), "two steps at the same time");
        let step = order.launch.step;
        assert!(self.begun.insert(step), "step {step} begins twice");
        self.order = Some(order);
        (self.started, self.prepared) = (0, 0);
        self.is_broken = false;
        (self.seen, self.said) = (0, 0);
        self.exits.clear();
        self.was_started_sent = false;
        self.closed_sent = 0;
        self.is_host_ready = false;
        self.srun = srun.map(|id| Srun {
            id,
            is_greeted: true,
            is_srun: true,
            queue: VecDeque::new(),
            is_gone: false,
            is_flush_awaited: false,
        });
    }

    fn start_tasks(&mut self) {
        let order = Rc::clone(self.order.as_ref().expect("a step"));
        assert_eq!(self.started, 0, "tasks are started twice");
        let tasks = &order.launch.tasks[0];
        let are_held = tasks.len() > 1 || order.pmix.is_some();
        let mut started = StartedTasks {
            are_held,
            ..StartedTasks::default()
        };
        for task in tasks {
            let Some(pid) = self.spawn(Role::Task(*task), are_held) else {
                started.error = Some("no processes".to_owned());
                break;
            };
            started.pids.push(pid);
            if !order.direct {
                let outputs = [false, true].map(|is_error| OutputStream {
                    task: *task,
                    is_error,
                    holders: BTreeSet::from([pid]),
                });
                self.outputs.extend(outputs);
                started.outputs += 2;
            }
        }
        self.started = started.pids.len();
        self.is_barrier_open = are_held;
        self.events.push_back(Event::TasksStarted(started));
        if self.plant == Some(Plant::TasksReleasedEarly) {
            self.events.push_back(Event::TasksPrepared(None));
        }
    }

    fn release_tasks(&mut self) {
        let has_host = self.order.as_ref().is_some_and(|o| o.pmix.is_some());
        let has_host = has_host && !self.pids(|p| p.role == Role::Host).is_empty();
        assert!(!has_host || self.is_host_ready, "the host is not ready");
        let unprepared = self.pids(|p| p.is_held && !p.is_prepared);
        assert!(unprepared.is_empty(), "tasks are let go too early");
        self.is_barrier_open = false;
        for process in self.processes.values_mut().filter(|p| p.is_held) {
            process.is_held = false;
        }
    }

    /// Signals all but the host.
    fn signal(&mut self, signal: i32) {
        if self.plant == Some(Plant::NothingKilled) {
            return;
        }
        for pid in self.pids(|p| p.role != Role::Host) {
            let ignores = self.processes[&pid].ignores_term;
            if signal == SIGKILL || (signal == SIGTERM && !ignores) {
                self.end(pid, signal);
            }
        }
    }

    fn receive_by_tree(&mut self, message: FromStepd) {
        match message {
            FromStepd::ForwardUp {
                position,
                number,
                message,
                ..
            } => {
                assert_eq!(position, 0);
                assert!(number <= self.seen, "message {} is missing", self.seen);
                if number == self.seen {
                    self.seen += 1;
                    self.receive(*message);
                }
            }
            FromStepd::ConnectionFinished => assert!(!self.has_below, "the node below is not over"),
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, message: FromStepd) {
        self.received.push(message.clone());
        match message {
            FromStepd::Started(pids) => {
                assert_eq!(pids.len(), self.started);
                assert!(!std::mem::replace(&mut self.was_started_sent, true));
            }
            FromStepd::Exited { .. } if self.plant == Some(Plant::ExitNotSent) => {}
            FromStepd::Exited { task, .. } => {
                let has_ended = |p: &Process| p.role == Role::Task(task) && p.ended.is_none();
                assert!(self.pids(has_ended).is_empty(), "task {task} runs");
                *self.exits.entry(task).or_default() += 1;
                assert_eq!(self.exits[&task], 1, "task {task} has ended twice");
            }
            FromStepd::NodeTasksEnded => {
                self.closed_sent += 1;
                assert_eq!(self.closed_sent, 1);
            }
            FromStepd::ForwardUp { .. } | FromStepd::ConnectionFinished | FromStepd::Refused(_) => {
                panic!("{message:?}")
            }
            FromStepd::Stdout { .. } | FromStepd::Stderr { .. } => {
                assert_eq!(self.closed_sent, 0, "after the last: {message:?}");
            }
            // Lines of the launcher's come at any time.
            _ => {}
        }
    }

    /// The step is over.
    fn end_step(&mut self) {
        let order = self.order.take().expect("a step");
        let is_of_step = |p: &Process| matches!(p.role, Role::Task(_) | Role::Epilog(_));
        if !self.is_broken {
            assert!(self.pids(is_of_step).is_empty(), "tasks outlive the step");
            let has_srun = self.srun.as_ref().is_some_and(|s| s.is_greeted);
            let is_complete = self.closed_sent > 0 || (order.direct && has_srun);
            if is_complete {
                let ends: Vec<u32> = self.exits.keys().copied().collect();
                // Tasks of a step that was ended before its srun connected are reported, and never started.
                let of_srun = order.launch.tasks[0].len();
                let is_unstarted = self.started == 0 && ends.len() == of_srun;
                assert!(
                    is_unstarted || ends.len() == self.started,
                    "ends are missing: {ends:?}"
                );
            }
        }
        self.outputs.clear();
        self.has_below = false;
        self.is_barrier_open = false;
    }

    fn report_end(&mut self, frame: &[u8]) {
        let (step, end) = ended(frame);
        assert!(self.begun.contains(&step));
        assert_eq!(self.processes.len(), 0, "another step meets what is left");
        assert_eq!(end.usage.user_us, self.started as u64, "tasks and ends");
        self.last_end = Some(end);
        let had_read = self.launcher.as_ref().is_some_and(Vec::is_empty);
        let is_sent = self.launcher.is_some();
        if let Some(unread) = &mut self.launcher {
            unread.push(step);
            if self.plant == Some(Plant::EndReportedTwice) {
                unread.push(step);
            }
            assert!(self.reported.insert(step), "step {step} is reported twice");
            assert_eq!(unread.iter().filter(|s| **s == step).count(), 1);
        } else {
            self.is_launcher_loss_known = true;
        }
        self.events
            .push_back(Event::EndReported { is_sent, had_read });
    }
}

fn ended(frame: &[u8]) -> (StepNo, StepEnd) {
    let mut frames = Frames::default();
    frames.push(frame);
    match frames.take().unwrap() {
        Some(StepdEvent::StepEnded(step, end)) => (step, *end),
        other => panic!("{other:?}"),
    }
}
