//! Step daemons are read only while the launcher listens to them.

use super::*;
use muster_model::time::Timestamp;
use muster_node_core::messages::StepdEvent;
use muster_proto::frame;
use std::io::Write as _;

fn send_end(daemon: &mut UnixStream, step: StepNo) {
    let end = muster_model::job::StepEnd::never_ran(Timestamp(1));
    let event = StepdEvent::StepEnded(step, Box::new(end));
    daemon.write_all(&frame::encode(&event)).unwrap();
}

/// One poll reports a daemon and something else, which is handled first, and takes the end of the
/// daemon's step. The launcher read on, so that it received the end of the next step before it knew
/// of this step, and dropped it: this step and all others of the daemon counted as killed.
#[test]
fn the_end_of_a_step_waits_until_the_step_is_assigned() {
    let spool = std::env::temp_dir().join(format!("muster-ends.{}", std::process::id()));
    let _ = fs::remove_dir_all(&spool);
    fs::create_dir(&spool).unwrap();
    let mut executor = LauncherExecutor::open(&spool).unwrap();
    let (stream, mut daemon) = UnixStream::pair().unwrap();
    let id = executor.stepds.add_stream(stream);
    let next_end = |executor: &mut LauncherExecutor| match executor.stepds.next_event() {
        Some(Event::StepEnded(_, step, _)) => Some(step),
        _ => None,
    };

    executor.stepds.listen_to(id);
    send_end(&mut daemon, StepNo(1));
    let polled: Vec<_> = executor.polled().collect();
    executor.stepds.read_ready();
    assert_eq!(next_end(&mut executor), Some(StepNo(1)));
    executor.stepds.stop_listening(id);
    // The agent gives it the next step, and the launcher is not informed yet.
    send_end(&mut daemon, StepNo(2));
    for (fd, source) in polled {
        executor.take(fd, source);
    }
    executor.read_stepds();
    executor.stepds.listen_to(id);
    assert_eq!(next_end(&mut executor), Some(StepNo(2)));
    fs::remove_dir_all(&spool).unwrap();
}
