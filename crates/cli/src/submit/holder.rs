//! An allocation that this process holds for as long as it lives: salloc's, and srun's when it is called outside
//! one. The connection to the controller is the hold; when the controller restarts, it is taken up again.

use super::incoming::Incoming;
use super::line::{self, Line};
use super::signals::Signals;
use crate::connect::{Client, ConnectError, unexpected};
use crate::say::Say;
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, JobState, Reason};
use muster_model::job_env::{self, JobView, Variables};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_proto::client::{AllocationInfo, JobFilter, Query, RequestBody, Response};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a job may take to start before its user is informed that it waits.
const SOON: Duration = Duration::from_millis(250);
/// How long a holder keeps trying to find a controller that went away, before it lets its command go on alone.
const RECONNECT: Duration = Duration::from_millis(500);

/// How an allocation ended without us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its state.
    pub(crate) state: JobState,
}

/// A held allocation.
pub(crate) struct Holder {
    client: Client,
    incoming: Incoming,
    /// The connection broke; when to try again.
    retry: Option<Instant>,
    /// The job.
    pub(crate) job: JobId,
    /// Its allocation; set when it has started.
    pub(crate) info: Option<Box<AllocationInfo>>,
    /// Its end, once it is known.
    pub(crate) ended: Option<Ended>,
    say: Say,
}

/// An error on the way to an allocation.
pub(crate) struct NotGranted(pub(crate) ExitCode);

impl Holder {
    /// Submits an allocation, of several components if there are several specifications, and waits until it is granted.
    ///
    /// # Errors
    /// The exit code, after the user was informed.
    pub(crate) fn obtain(
        line: &Line,
        mut specs: Vec<JobSpec>,
        prefix: &str,
    ) -> Result<Holder, NotGranted> {
        let say = line.say;
        let immediate = specs.iter().any(|spec| spec.immediate_s.is_some());
        let is_het = specs.len() > 1;
        let hold = specs.first().is_some_and(|spec| spec.interactive);
        let test_only = line.chosen.command == muster_conf::options::Command::Srun
            && line.chosen.has("test-only");
        let mut client = line::connect(line, prefix).map_err(NotGranted)?;
        let reply = client.command(if specs.len() > 1 {
            UserCommand::SubmitHet {
                specs,
                blobs: Vec::new(),
                test_only,
            }
        } else {
            UserCommand::Submit {
                spec: Box::new(specs.pop().unwrap_or_default()),
                blobs: Vec::new(),
                test_only,
            }
        });
        let job = match reply {
            Ok(Reply::Submitted {
                id,
                warnings,
                lines,
                ..
            }) => {
                lines.iter().for_each(|line| say.info(line));
                warnings.iter().for_each(|w| say.warning(w));
                id
            }
            Ok(Reply::WouldStart {
                at,
                cpus,
                nodes,
                partition,
                id,
            }) => {
                crate::say::stderr(&format!(
                    "{}: Job {id} to start at {} using {cpus} processors on nodes {nodes} in partition {partition}\n",
                    say.name,
                    crate::zone::show(at)
                ));
                return Err(NotGranted(ExitCode::SUCCESS));
            }
            Ok(other) => {
                let error = unexpected(&Response::Reply(Box::new(other)));
                return Err(NotGranted(say.connect_error(prefix, &error)));
            }
            Err(error) if test_only => return Err(NotGranted(test_failed(&say, prefix, &error))),
            Err(error) => return Err(NotGranted(submit_error(&say, prefix, &error, immediate))),
        };
        let mut holder = Holder {
            client,
            incoming: Incoming::default(),
            retry: None,
            job,
            info: None,
            ended: None,
            say,
        };
        holder
            .ask(hold)
            .map_err(|e| NotGranted(say.connect_error(prefix, &e)))?;
        holder.wait_for_start(prefix, is_het)?;
        Ok(holder)
    }

    fn ask(&mut self, hold: bool) -> Result<(), ConnectError> {
        if hold {
            self.client.send(RequestBody::Hold(self.job))?;
        }
        if self.info.is_none() {
            self.client.send(RequestBody::WaitStarted(self.job))?;
        }
        Ok(())
    }

    /// A heterogeneous job is always said to wait, as with Slurm, which never starts one at once.
    fn wait_for_start(&mut self, prefix: &str, is_het: bool) -> Result<(), NotGranted> {
        let say = self.say;
        let signals = Signals::catch(&[
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
            Signal::SIGALRM,
        ])
        .map_err(|e| NotGranted(say.fatal(&format!("signalfd: {e}"))))?;
        let announce = match is_het {
            true => Instant::now(),
            false => Instant::now() + SOON,
        };
        let mut announced = false;
        while (self.info.is_none() || is_het && !announced) && self.ended.is_none() {
            let mut until = self.retry;
            if !announced {
                until = Some(until.map_or(announce, |u| u.min(announce)));
            }
            let readable = self.poll_with(signals.fd(), until);
            if !announced && Instant::now() >= announce {
                announced = true;
                self.announce_wait()
                    .map_err(|e| NotGranted(say.connect_error(prefix, &e)))?;
            }
            if readable && let Some(signal) = signals.take() {
                return Err(self.give_up(signal));
            }
            self.read()
                .map_err(|e| NotGranted(say.connect_error(prefix, &e)))?;
        }
        if announced && self.info.is_some() {
            say.info(&format!("job {} has been allocated resources", self.job));
        }
        if self.info.is_none() {
            say.error(&format!("Job allocation {} has been revoked", self.job));
            return Err(NotGranted(say.failed()));
        }
        Ok(())
    }

    /// Informs the user that the job waits, and why, if it may wait until somebody changes something.
    fn announce_wait(&mut self) -> Result<(), ConnectError> {
        let say = self.say;
        if let Some(text) = self.find_reason()?.and_then(lasting_reason) {
            say.info(text);
        }
        if say.name == "salloc" {
            say.info(&format!("Pending job allocation {}", self.job));
        }
        say.info(&format!(
            "job {} queued and waiting for resources",
            self.job
        ));
        Ok(())
    }

    /// Why the job waits; nothing where the controller cannot be asked now.
    fn find_reason(&mut self) -> Result<Option<Reason>, ConnectError> {
        let filter = JobFilter {
            ids: vec![self.job],
            active: true,
            ..JobFilter::default()
        };
        let query = RequestBody::Query(Box::new(Query::Jobs(filter)));
        if self.retry.is_some() || self.client.send(query).is_err() {
            return Ok(None);
        }
        let mut reason = None;
        loop {
            match self.next_blocking() {
                Ok(Response::Jobs(part)) => {
                    let is_last = !part.more;
                    let mut waiting = part.jobs.into_jobs().into_iter();
                    let found = waiting.find(|job| job.id == self.job);
                    reason = reason.or(found.map(|job| job.reason));
                    if is_last {
                        return Ok(reason);
                    }
                }
                // The user has asked too much of late.
                Ok(Response::Refused(refusal)) if refusal.code == RefusalCode::Busy => {
                    return Ok(None);
                }
                Ok(other) => self.on_response(other)?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// The user does not want to wait any longer.
    fn give_up(&mut self, signal: Signal) -> NotGranted {
        if self.say.name == "salloc" {
            self.say.info("Job aborted due to signal");
        }
        self.cancel();
        self.say
            .info(&format!("Job allocation {} has been revoked", self.job));
        NotGranted(match signal {
            Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP => self.say.failed(),
            other => ExitCode::from(128_u8.saturating_add(u8::try_from(other as i32).unwrap_or(0))),
        })
    }

    /// Polls the controller and one more descriptor until a moment; whether the other one is readable.
    fn poll_with(&self, other: BorrowedFd<'_>, until: Option<Instant>) -> bool {
        let mut fds = vec![PollFd::new(other, PollFlags::POLLIN)];
        if self.retry.is_none() {
            fds.push(PollFd::new(self.client.stream().as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut fds, timeout(until));
        fds[0].any().unwrap_or(false)
    }

    /// The connection, to poll it beside others; absent while there is none.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.retry.is_none().then(|| self.client.stream().as_fd())
    }

    /// When [`Holder::read`] wants to be called even though nothing came.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.retry
    }

    /// Takes what the controller has said, or finds it again.
    ///
    /// # Errors
    /// A refusal, such as of a job that no longer exists.
    pub(crate) fn read(&mut self) -> Result<(), ConnectError> {
        if let Some(at) = self.retry {
            if Instant::now() >= at {
                self.reconnect()?;
            }
            return Ok(());
        }
        let open = self.incoming.fill(self.client.stream());
        loop {
            let response = match self.incoming.next::<Response>() {
                Ok(Some(response)) => response,
                Ok(None) => break,
                Err(e) => return Err(ConnectError::Broken(e)),
            };
            self.on_response(response)?;
        }
        if !matches!(open, Ok(true)) && self.ended.is_none() {
            self.say
                .verbose("connection to the controller lost, trying again");
            self.retry = Some(Instant::now());
        }
        Ok(())
    }

    fn on_response(&mut self, response: Response) -> Result<(), ConnectError> {
        match response {
            Response::JobStarted(info) => self.info = Some(info),
            Response::JobEnded { state, .. } => self.ended = Some(Ended { state }),
            Response::Notice(text) => self.say.info(&text),
            Response::Held | Response::Reply(_) => {}
            Response::Refused(refusal) if refusal.code == RefusalCode::AlreadyDone => {}
            Response::Refused(refusal) => return Err(refusal.into()),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Result<(), ConnectError> {
        match Client::connect() {
            Ok(client) => {
                self.client = client;
                self.incoming = Incoming::default();
                self.retry = None;
                if self.ask(true).is_err() {
                    self.retry = Some(Instant::now() + RECONNECT);
                }
                Ok(())
            }
            Err(ConnectError::Unreachable { .. } | ConnectError::Broken(_)) => {
                self.retry = Some(Instant::now() + RECONNECT);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the allocation back with the status that it ended with.
    pub(crate) fn finish(mut self, exit: ExitStatus) {
        if self.ended.is_some() {
            return;
        }
        let command = UserCommand::EndAllocation {
            job: self.job,
            exit,
        };
        if self.retry.is_some() {
            match Client::connect_patiently(line::PATIENCE) {
                Ok(client) => self.client = client,
                Err(error) => {
                    let text = format!(
                        "could not report the end of job {} to the controller: {error}",
                        self.job
                    );
                    self.say.error(&text);
                    return;
                }
            }
        }
        let sent = self.client.send(RequestBody::Command(Box::new(command)));
        // Other answers may be on their way; the reply is the one that says it is done.
        let mut done = sent.is_err();
        while !done {
            done = match self.next_blocking() {
                Ok(Response::Reply(_)) | Err(_) => true,
                Ok(_) => false,
            };
        }
    }

    /// Ends the job at once.
    pub(crate) fn cancel(&mut self) {
        let selection = muster_model::command::JobSelection {
            targets: vec![muster_model::command::JobTarget {
                job: self.job,
                tasks: None,
                component: None,
            }],
            ..Default::default()
        };
        let command = Box::new(UserCommand::Cancel { selection });
        if self.client.send(RequestBody::Command(command)).is_ok() {
            while let Ok(response) = self.next_blocking() {
                if matches!(response, Response::Reply(_)) {
                    break;
                }
            }
        }
    }

    fn next_blocking(&mut self) -> Result<Response, ConnectError> {
        match self.incoming.next() {
            Ok(Some(response)) => Ok(response),
            Ok(None) => {
                let mut fds = [PollFd::new(self.client.stream().as_fd(), PollFlags::POLLIN)];
                let patience = PollTimeout::try_from(line::PATIENCE).unwrap_or(PollTimeout::MAX);
                let ready = poll(&mut fds, patience).unwrap_or(0);
                let open = ready > 0 && self.incoming.fill(self.client.stream()).unwrap_or(false);
                if open {
                    self.next_blocking()
                } else {
                    let gone = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                    Err(ConnectError::Broken(gone))
                }
            }
            Err(e) => Err(ConnectError::Broken(e)),
        }
    }

    /// Variables for what runs in the allocation.
    pub(crate) fn variables(&self) -> Variables {
        let conf = self.client.endpoint.conf.to_string_lossy();
        self.info
            .as_deref()
            .map_or_else(Vec::new, |info| variables(info, &conf))
    }
}

/// What Slurm says of a reason that does not pass when other jobs end.
fn lasting_reason(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::PartitionConfig | Reason::PartitionNodeLimit | Reason::PartitionTimeLimit => {
            Some("Requested partition configuration not available now")
        }
        Reason::JobHeldUser | Reason::JobHeldAdmin => {
            Some("Job is in held state, pending scheduler release")
        }
        Reason::ReqNodeNotAvail | Reason::NodesUnavailable => {
            Some("Required node not available (down, drained or reserved)")
        }
        _ => None,
    }
}

/// Variables that describe an allocation.
pub(crate) fn variables(info: &AllocationInfo, conf: &str) -> Variables {
    let job = &info.job;
    let Some(alloc) = job.alloc.as_deref() else {
        return Vec::new();
    };
    job_env::allocation_env(&JobView {
        job: job.id,
        spec: &job.spec,
        alloc,
        array: &job.array,
        array_info: info.array.as_ref(),
        start_time: job.start_time.unwrap_or_default(),
        time_limit: job.time_limit,
        restarts: job.restarts,
        // Without associations the user's own name stands in, as it does in listings.
        account: job.spec.account_name(),
        qos: job.spec.qos_name(),
        cluster: &info.cluster,
        conf_path: conf,
        working_cluster: "",
        lead_address: info.addresses.first().map_or("", String::as_str),
        topology: ("", ""),
        components: &info.components,
    })
}

/// Says, as Slurm does, that a job of `--test-only` would not start.
pub(crate) fn test_failed(say: &Say, prefix: &str, error: &ConnectError) -> ExitCode {
    let ConnectError::Refused(refusal) = error else {
        return say.connect_error(prefix, error);
    };
    if !refusal.detail.is_empty() {
        say.info(&refusal.detail);
    }
    crate::say::stderr(&format!("allocation failure: {}\n", refusal.code.text()));
    say.failed()
}

fn submit_error(say: &Say, prefix: &str, error: &ConnectError, immediate: bool) -> ExitCode {
    let code = say.connect_error(prefix, error);
    let refused_now = matches!(
        error,
        ConnectError::Refused(r) if matches!(r.code, RefusalCode::NotImmediate | RefusalCode::Busy)
    );
    match crate::say::exit_variable("SLURM_EXIT_IMMEDIATE") {
        Some(own) if immediate && refused_now => ExitCode::from(own),
        _ => code,
    }
}

/// A moment as a timeout of poll(2), rounded up so that it has passed when poll returns.
pub(crate) fn timeout(until: Option<Instant>) -> PollTimeout {
    match until {
        None => PollTimeout::NONE,
        Some(until) => {
            let left = until.saturating_duration_since(Instant::now());
            let ms = left.as_micros().div_ceil(1000);
            PollTimeout::try_from(i32::try_from(ms).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
        }
    }
}
