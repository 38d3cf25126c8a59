//! An allocation that this process holds for as long as it lives: salloc's, and srun's when it is called outside
//! one. The connection to the controller is the hold; when the controller restarts, it is taken up again.

use super::incoming::Incoming;
use super::line::{self, SubmitLine};
use super::reason::ReasonQuery;
use super::signals::Signals;
use crate::connect::{Client, ConnectError, unexpected};
use crate::say::Say;
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, JobState, Reason};
use muster_model::job_env::{self, JobView, Variables};
use muster_model::refusal::RefusalCode;
use muster_model::shared_spec::SpecTable;
use muster_model::spec::JobSpec;
use muster_proto::client::{AllocationInfo, RequestBody, Response};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time a job has to start before its user is informed that it waits.
const SOON: Duration = Duration::from_millis(250);
/// Time that the announcement of a waiting job waits for the reason.
const REASON_PATIENCE: Duration = Duration::from_secs(10);
/// Time that a holder keeps trying to find a controller that went away, before it lets its command go on alone.
const RECONNECT: Duration = Duration::from_millis(500);

/// End of an allocation by others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationEnd {
    /// Its state.
    pub(crate) state: JobState,
}

/// Progress in announcing that the job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announcement {
    /// Not at all: until then the job may start at once.
    Due(Instant),
    /// When the reason is known, or then.
    AwaitsReason(Instant),
    /// The user is informed.
    Made,
}

impl Announcement {
    /// When there is something to do for it.
    fn next(self) -> Option<Instant> {
        match self {
            Announcement::Due(at) | Announcement::AwaitsReason(at) => Some(at),
            Announcement::Made => None,
        }
    }
}

/// A held allocation.
pub(crate) struct Holder {
    client: Client,
    incoming: Incoming,
    /// Specifications of the answer that is being read.
    specs: SpecTable,
    /// The connection broke; when to try again.
    retry: Option<Instant>,
    /// The hold was asked for and is not answered yet.
    awaits_hold: bool,
    reason_query: ReasonQuery,
    /// Why the job waits, as far as it is known.
    reason: Option<Reason>,
    /// The job.
    pub(crate) job: JobId,
    /// Its allocation; set when it has started.
    pub(crate) info: Option<Box<AllocationInfo>>,
    /// Its end, once it is known.
    pub(crate) ended: Option<AllocationEnd>,
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
        line: &SubmitLine,
        mut specs: Vec<JobSpec>,
        prefix: &str,
    ) -> Result<Holder, NotGranted> {
        let say = line.say;
        let immediate = specs.iter().any(|spec| spec.immediate_s.is_some());
        let patience = take_patience(&mut specs);
        let is_het = specs.len() > 1;
        let hold = specs.first().is_some_and(|spec| spec.interactive);
        let test_only = line.chosen.command == muster_conf::options::OptionCommand::Srun
            && line.chosen.has("test-only");
        if say.verbose > 1 {
            // Scripts wait for this line of Slurm's, after which an allocation can be waited for.
            say.verbose("debug:  Entering _msg_thr_internal");
        }
        let command = if specs.len() > 1 {
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
        };
        let mut client = line::connect(line, prefix, &command).map_err(NotGranted)?;
        let reply = client.command(command);
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
            specs: SpecTable::default(),
            retry: None,
            awaits_hold: false,
            reason_query: ReasonQuery::default(),
            reason: None,
            job,
            info: None,
            ended: None,
            say,
        };
        holder
            .ask(hold)
            .map_err(|e| NotGranted(say.connect_error(prefix, &e)))?;
        let give_up_at = patience.map(|patience| Instant::now() + patience);
        holder.wait_for_start(prefix, is_het, give_up_at)?;
        Ok(holder)
    }

    fn ask(&mut self, hold: bool) -> Result<(), ConnectError> {
        if hold {
            self.client.send(RequestBody::Hold(self.job))?;
            self.awaits_hold = true;
        }
        if self.info.is_none() {
            self.client.send(RequestBody::WaitStarted(self.job))?;
        }
        Ok(())
    }

    /// A heterogeneous job is always said to wait, as with Slurm, which never starts one at once. `give_up_at` is when
    /// the user does not want to wait any longer (`--immediate=SECONDS`).
    fn wait_for_start(
        &mut self,
        prefix: &str,
        is_het: bool,
        give_up_at: Option<Instant>,
    ) -> Result<(), NotGranted> {
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
        let mut announcement = Announcement::Due(match is_het {
            true => Instant::now(),
            false => Instant::now() + SOON,
        });
        while (self.info.is_none() || is_het && announcement != Announcement::Made)
            && self.ended.is_none()
        {
            let until = [self.retry, announcement.next(), give_up_at]
                .into_iter()
                .flatten()
                .min();
            let readable = self.poll_with(signals.fd(), until);
            if readable && let Some(signal) = signals.take() {
                return Err(self.give_up(signal));
            }
            if give_up_at.is_some_and(|at| Instant::now() >= at) {
                return Err(self.time_out());
            }
            self.read()
                .map_err(|e| NotGranted(say.connect_error(prefix, &e)))?;
            announcement = self.proceed(announcement);
        }
        if announcement == Announcement::Made && self.info.is_some() {
            say.info(&format!("job {} has been allocated resources", self.job));
        }
        if self.info.is_none() {
            say.error(&format!("Job allocation {} has been revoked", self.job));
            return Err(NotGranted(say.failed()));
        }
        Ok(())
    }

    /// Asks for the reason when it is time, and announces the wait when the reason is known or does not come.
    fn proceed(&mut self, announcement: Announcement) -> Announcement {
        let now = Instant::now();
        match announcement {
            Announcement::Due(at) if now >= at => {
                self.query_reason();
                self.proceed(Announcement::AwaitsReason(now + REASON_PATIENCE))
            }
            Announcement::AwaitsReason(until)
                if now >= until
                    || !self.reason_query.is_awaited()
                    || self.info.is_some()
                    || self.ended.is_some() =>
            {
                self.announce_wait();
                Announcement::Made
            }
            other => other,
        }
    }

    /// Informs the user that the job waits, and why, if it may wait until somebody changes something.
    fn announce_wait(&self) {
        let say = self.say;
        if let Some(text) = self.reason.and_then(lasting_reason) {
            say.info(text);
        }
        if say.name == "salloc" {
            say.info(&format!("Pending job allocation {}", self.job));
        }
        say.info(&format!(
            "job {} queued and waiting for resources",
            self.job
        ));
    }

    /// Asks why the job waits, unless the controller cannot be asked now. The answer comes among the others.
    fn query_reason(&mut self) {
        if self.retry.is_some() || self.info.is_some() {
            return;
        }
        if self.client.send(ReasonQuery::request(self.job)).is_ok() {
            self.reason_query = ReasonQuery::Sent;
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

    /// The job has not started as soon as `--immediate` wants.
    fn time_out(&mut self) -> NotGranted {
        self.cancel();
        let why = match self.say.name {
            "salloc" => "Connection timed out",
            _ => RefusalCode::NodesBusy.text(),
        };
        self.say
            .error(&format!("Unable to allocate resources: {why}"));
        if self.say.name == "salloc" {
            self.say
                .info(&format!("Job allocation {} has been revoked.", self.job));
        }
        NotGranted(immediate_exit().unwrap_or_else(|| self.say.failed()))
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
            let response = match self.incoming.next_answer(&mut self.specs) {
                Ok(Some(response)) => response,
                Ok(None) => break,
                Err(e) => return Err(ConnectError::Broken(e)),
            };
            let goes_on = matches!(&response, Response::Jobs(part) if part.more);
            if !goes_on {
                self.specs = SpecTable::default();
            }
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
            Response::JobStarted(info) => {
                self.reason_query.on_started();
                self.info = Some(info);
            }
            Response::JobEnded { state, .. } => self.ended = Some(AllocationEnd { state }),
            Response::Notice(text) => self.say.info(&text),
            Response::Held => self.awaits_hold = false,
            Response::Jobs(part) => {
                let found = self.reason_query.on_jobs(self.job, *part)?;
                self.reason = self.reason.or(found);
            }
            Response::Reply(_) => {}
            Response::Refused(refusal) if refusal.code == RefusalCode::AlreadyDone => {
                self.awaits_hold = false;
            }
            // The hold is answered first.
            Response::Refused(refusal)
                if refusal.code == RefusalCode::Busy && !self.awaits_hold =>
            {
                self.reason_query.on_busy(refusal)?;
            }
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
                self.specs = SpecTable::default();
                if self.reason_query != ReasonQuery::NotSent {
                    self.reason_query = ReasonQuery::Over;
                }
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
        match self.incoming.next_answer(&mut self.specs) {
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

/// Slurm's text for a reason that does not pass when other jobs end.
fn lasting_reason(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::PartitionConfig | Reason::PartitionNodeLimit | Reason::PartitionTimeLimit => {
            Some("Requested partition configuration not available now")
        }
        Reason::PartitionDown => Some("Partition in DOWN state"),
        Reason::Reservation => Some("Requested reservation not usable now"),
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
    immediate_exit()
        .filter(|_| immediate && refused_now)
        .unwrap_or(code)
}

/// The exit status that the user wants where `--immediate` does not get resources.
fn immediate_exit() -> Option<ExitCode> {
    crate::say::exit_variable("SLURM_EXIT_IMMEDIATE").map(ExitCode::from)
}

/// Time for which `--immediate` lets the job wait. One that starts at once or not at all is the controller's affair;
/// the client waits for another.
fn take_patience(specs: &mut [JobSpec]) -> Option<Duration> {
    let seconds = specs.iter().filter_map(|spec| spec.immediate_s).max();
    let seconds = seconds.filter(|seconds| *seconds > 1)?;
    for spec in specs {
        spec.immediate_s = None;
    }
    Some(Duration::from_secs(u64::from(seconds)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::Job;
    use muster_model::refusal::Refusal;
    use muster_model::time::{TimeLimit, Timestamp};
    use muster_proto::client::{JobsResponse, Request, WrittenJobsPage};
    use muster_proto::frame;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    /// A holder, and the controller's end of its connection.
    fn holder(test: &str) -> (Holder, UnixStream) {
        let name = format!("muster-holder-{test}-{}", std::process::id());
        let conf = std::env::temp_dir().join(name);
        std::fs::write(&conf, "ClusterName=c\nSlurmctldHost=localhost\n").unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let client = Client::over(near, &conf).unwrap();
        std::fs::remove_file(&conf).unwrap();
        let say = Say {
            quiet: true,
            ..Say::new("srun")
        };
        let mut holder = Holder {
            client,
            incoming: Incoming::default(),
            specs: SpecTable::default(),
            retry: None,
            awaits_hold: false,
            reason_query: ReasonQuery::default(),
            reason: None,
            job: JobId(1),
            info: None,
            ended: None,
            say,
        };
        holder.ask(true).unwrap();
        (holder, far)
    }

    #[test]
    fn a_reservation_that_has_not_begun_is_named() {
        let of = |reason| lasting_reason(reason).unwrap_or("");
        let text = "Requested reservation not usable now";
        assert_eq!((of(Reason::Reservation), of(Reason::Resources)), (text, ""));
    }

    fn started() -> Response {
        let (limit, at) = (TimeLimit::Unlimited, Timestamp(0));
        Response::JobStarted(Box::new(AllocationInfo {
            job: Job::new(JobId(1), Arc::new(JobSpec::default()), limit, at),
            array: None,
            addresses: Vec::new(),
            key: Vec::new().into(),
            cluster: "c".to_owned(),
            components: Vec::new(),
        }))
    }

    fn busy() -> Response {
        Response::Refused(Refusal::new(RefusalCode::Busy, "too much"))
    }

    fn requests(stream: &mut UnixStream, count: usize) {
        for _ in 0..count {
            let _: Request = frame::read(stream).unwrap();
        }
    }

    /// The answer that came after the command had stopped waiting for it ended the command, and the allocation with it.
    #[test]
    fn a_late_answer_about_the_reason_does_not_end_the_wait() {
        let (mut holder, mut controller) = holder("late");
        let server = std::thread::spawn(move || {
            requests(&mut controller, 2);
            frame::write(&mut controller, &Response::Held).unwrap();
            // The query.
            requests(&mut controller, 1);
            frame::write(&mut controller, &started()).unwrap();
            controller
        });
        assert!(holder.wait_for_start("srun", false, None).is_ok());
        let mut controller = server.join().unwrap();
        let late = JobsResponse::Jobs(WrittenJobsPage::default());
        frame::write(&mut controller, &late).unwrap();
        assert!(holder.read().is_ok() && holder.info.is_some());
        assert_eq!(holder.reason_query, ReasonQuery::Over);
    }

    /// A refusal of the query left the job alone, and so did one of the hold, which the job cannot be without.
    #[test]
    fn a_refusal_belongs_to_the_request_that_is_next() {
        let (mut holder, _controller) = self::holder("hold");
        holder.query_reason();
        assert!(holder.on_response(busy()).is_err(), "that of the hold");
        let (mut holder, _controller) = self::holder("query");
        holder.on_response(Response::Held).unwrap();
        holder.query_reason();
        assert!(holder.on_response(busy()).is_ok(), "that of the query");
        assert!(holder.on_response(started()).is_ok());
        let (mut holder, _controller) = self::holder("wait");
        holder.on_response(Response::Held).unwrap();
        holder.query_reason();
        holder.on_response(busy()).unwrap();
        let answer = Response::Jobs(Box::default());
        assert!(holder.on_response(answer).is_err(), "that of the wait");
    }
}
