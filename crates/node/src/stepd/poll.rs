//! Descriptors that the daemon waits for, and the order in which their events are handled.

use super::executor::StepdExecutor;
use crate::step_links::StepClient;
use crate::sys;
use muster_node_core::stepd::Event;
use muster_node_core::stepd::tree::OUTPUT_MAX;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Interval between checks whether the launcher has read the results of earlier steps.
const READ_WAIT: Duration = Duration::from_secs(1);
/// Positions in the poll list: signals, listener, launcher, barrier of the tasks, client, MPI host,
/// agent, and then the rest.
const SIGNALS: usize = 0;
const LISTENER: usize = 1;
const LAUNCHER: usize = 2;
const READY: usize = 3;
const CLIENT: usize = 4;
const HOST: usize = 5;
const AGENT: usize = 6;
const REST: usize = 7;

/// Waits for events and handles them.
pub(super) fn wait(executor: &mut StepdExecutor) -> io::Result<()> {
    match executor.stepd.is_idle() {
        true => wait_for_step(executor),
        false => wait_in_step(executor),
    }
}

fn entry(fd: Option<RawFd>, events: i16) -> libc::pollfd {
    libc::pollfd {
        // A negative descriptor is skipped by poll(2).
        fd: fd.unwrap_or(-1),
        events,
        revents: 0,
    }
}

/// Handles events between two steps.
fn wait_for_step(executor: &mut StepdExecutor) -> io::Result<()> {
    let launcher = executor.launcher.as_ref().map(|l| l.stream.as_raw_fd());
    let agent = executor.agent.as_ref().map(|a| a.stream.as_raw_fd());
    let mut fds = [
        entry(Some(executor.signals.as_fd().as_raw_fd()), libc::POLLIN),
        entry(
            Some(executor.connections.listener.as_raw_fd()),
            libc::POLLIN,
        ),
        entry(launcher, libc::POLLIN),
        entry(agent, libc::POLLIN),
    ];
    sys::poll(&mut fds, -1)?;
    // No process that knows the purpose of this one signals it now.
    if fds[0].revents != 0 {
        while let Ok(Some(_)) = executor.signals.read_signal() {}
    }
    // A client of the next step connects only after the order for the step was sent, and the order
    // is read after this. Looking for a connection in vain costs as much as a connection.
    if fds[1].revents != 0 {
        let now_ms = executor.now_ms();
        executor.connections.accept(now_ms);
    }
    if fds[2].revents != 0 {
        executor.read_launcher();
    }
    // Steps given by the agent count, even if the launcher is gone.
    if fds[2..].iter().any(|fd| fd.revents != 0) && executor.stepd.is_idle() {
        executor.read_agent();
    }
    if executor.stepd.is_idle() {
        // These clients arrive too late.
        executor.connections.strangers.clear();
    }
    Ok(())
}

/// Handles events while a step runs.
fn wait_in_step(executor: &mut StepdExecutor) -> io::Result<()> {
    let (mut fds, below) = entries(executor);
    let timeout = timeout_ms(executor);
    sys::poll(&mut fds, timeout)?;
    let seen = |at: usize| fds[at].revents;
    let strangers = executor.connections.strangers.len();
    let streams = REST + strangers + below;
    let readers = fds.len() - executor.connections.readers.len();

    for at in streams..readers {
        if seen(at) != 0
            && let Some(tasks) = &mut executor.tasks
            && let Some(output) = tasks.serve_stream(at - streams)
        {
            executor.deliver(Event::Output {
                task: output.task,
                is_error: output.is_error,
                bytes: output.bytes,
            });
        }
    }
    if let Some(tasks) = &mut executor.tasks {
        tasks.streams.retain(|stream| stream.is_open());
    }
    if (REST + strangers..streams).any(|at| seen(at) != 0) {
        let seen: Vec<bool> = (REST + strangers..streams)
            .map(|at| seen(at) != 0)
            .collect();
        executor.read_below(&seen);
    }
    if seen(READY) != 0
        && let Some(tasks) = &mut executor.tasks
        && let Ok(count) = tasks.read_ready()
    {
        executor.deliver(Event::TasksPrepared(count));
    }
    if seen(HOST) != 0 {
        executor.read_host();
    }
    if seen(CLIENT) & !libc::POLLOUT != 0 {
        executor.read_client();
    }
    for at in readers..fds.len() {
        if seen(at) & !libc::POLLOUT != 0 {
            executor.read_reader(at - readers);
        }
    }
    executor.write_readers();
    for at in (0..strangers).rev() {
        if seen(REST + at) != 0 {
            executor.read_stranger(at);
        }
    }
    let now_ms = executor.now_ms();
    executor.connections.close_late(now_ms);
    if seen(LAUNCHER) != 0 {
        executor.read_launcher();
    }
    if seen(AGENT) != 0 {
        executor.read_agent();
    }
    if seen(SIGNALS) != 0 || executor.may_have_ended {
        executor.read_signals();
    }
    if seen(LISTENER) != 0 {
        let now_ms = executor.now_ms();
        executor.connections.accept(now_ms);
    }
    Ok(())
}

/// The poll list, and the number of nodes below in it.
fn entries(executor: &StepdExecutor) -> (Vec<libc::pollfd>, usize) {
    let tasks = executor.tasks.as_ref();
    let client = executor.connections.client();
    let is_choked = client.is_some_and(|c| c.wire.output.len() > OUTPUT_MAX);
    let is_full = is_choked || executor.stepd.is_full();
    let streams = tasks.map_or(0, |t| t.streams.len());
    let mut fds = Vec::with_capacity(REST + 1 + executor.connections.strangers.len() + streams);
    let input = |fd: Option<RawFd>| entry(fd, libc::POLLIN);
    fds.push(input(Some(executor.signals.as_fd().as_raw_fd())));
    fds.push(input(Some(executor.connections.listener.as_raw_fd())));
    let launcher = executor.launcher.as_ref().map(|l| l.stream.as_raw_fd());
    fds.push(input(launcher));
    let ready = tasks.and_then(|t| t.ready.as_ref());
    fds.push(input(ready.map(AsRawFd::as_raw_fd)));
    let reading = match tasks.is_some_and(|t| t.is_stuffed()) {
        true => 0,
        false => libc::POLLIN,
    };
    let writing = match client.is_some_and(StepClient::has_output) {
        true => libc::POLLOUT,
        false => 0,
    };
    let client = client.map(|c| c.wire.number());
    fds.push(entry(client, reading | writing));
    let pmix = tasks.and_then(|t| t.pmix.as_ref());
    let (host, events) = pmix.map_or((-1, 0), |p| p.interest(is_full));
    fds.push(entry(Some(host), events));
    let agent = executor.agent.as_ref().map(|a| a.stream.as_raw_fd());
    fds.push(input(agent));
    for stranger in &executor.connections.strangers {
        fds.push(input(Some(stranger.client.wire.number())));
    }
    let before = fds.len();
    let below = tasks.into_iter().flat_map(|t| t.below.interests(is_choked));
    fds.extend(below.map(|(fd, events)| entry(Some(fd), events)));
    let below = fds.len() - before;
    let streams = tasks.into_iter().flat_map(|t| &t.streams);
    fds.extend(streams.map(|stream| {
        let (fd, events) = stream.interest(is_full);
        entry(Some(fd), events)
    }));
    for (_, reader) in &executor.connections.readers {
        let writing = match reader.has_output() {
            true => libc::POLLOUT,
            false => 0,
        };
        fds.push(entry(Some(reader.wire.number()), reading | writing));
    }
    (fds, below)
}

/// Maximum time to wait.
fn timeout_ms(executor: &mut StepdExecutor) -> i32 {
    if executor.may_have_ended {
        return 0;
    }
    if executor.stepd.has_unread() && executor.has_launcher_read() {
        executor.deliver(Event::LauncherHasRead);
    }
    let client = executor.connections.client();
    let company = client.and_then(StepClient::waits_until);
    let company = company.map(|until| until.saturating_duration_since(Instant::now()));
    let reading = executor.stepd.has_unread().then_some(READ_WAIT);
    let late = executor.connections.next_late_ms();
    let deadline = executor.stepd.deadline().into_iter().chain(late).min();
    let deadline = deadline.map(|at| Duration::from_millis(at.saturating_sub(executor.now_ms())));
    let first = [company, reading, deadline].into_iter().flatten().min();
    first.map_or(-1, |wait| {
        i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX)
    })
}
