//! The controller's place among the processes of a machine that it shares with users: its event loop, writer and replica
//! run at a better nice value than what users start, so that a command waits for other users' programs only where it runs
//! itself. Threads that nobody waits for, and programs of the site, run at the usual one.

use crate::sys;
use log::{debug, warn};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{getpid, getsid};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The nice value of threads that users wait for.
const URGENT: i32 = -10;
/// Where the kernel shares processors between sessions first, it is the session that has a nice value.
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Set where the administrator has chosen a nice value for all.
static IS_CHOSEN: AtomicBool = AtomicBool::new(false);

/// Sets the nice value of the whole process. To be called before it has threads.
///
/// # Errors
/// The system refuses it: a negative value needs root or `RLIMIT_NICE`.
pub fn set(nice: i32) -> io::Result<()> {
    sys::set_nice(nice)?;
    IS_CHOSEN.store(true, Relaxed);
    share_of_session(nice);
    Ok(())
}

/// Sees to it that threads may run at the better nice value once the process is not root's any more. Without root there
/// is what `RLIMIT_NICE` allows already.
pub fn prepare() {
    if IS_CHOSEN.load(Relaxed) {
        return;
    }
    share_of_session(URGENT);
    // The limit counts from 20 downwards.
    let wanted = u64::from((20 - URGENT).unsigned_abs());
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NICE)
        && soft < wanted
    {
        let raised = setrlimit(Resource::RLIMIT_NICE, wanted, hard.max(wanted));
        let _ = raised.or_else(|_| setrlimit(Resource::RLIMIT_NICE, hard.min(wanted), hard));
    }
}

/// The calling thread is one that users wait for.
pub(crate) fn urgent() {
    if !IS_CHOSEN.load(Relaxed)
        && let Err(e) = sys::set_nice(URGENT)
    {
        debug!("a thread stays at the usual nice value: {e}");
    }
}

/// The calling thread, started by an urgent one, is one that nobody waits for.
pub(crate) fn usual() {
    if !IS_CHOSEN.load(Relaxed)
        && let Err(e) = sys::set_nice(0)
    {
        warn!("a thread keeps its nice value: {e}");
    }
}

/// Where sessions share processors, sets the share of this one. A session that others began has other processes too.
fn share_of_session(nice: i32) {
    if getsid(None) == Ok(getpid())
        && let Err(e) = fs::write(AUTOGROUP, nice.to_string())
    {
        debug!("{AUTOGROUP}: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_nobody_waits_for_has_the_usual_value() {
        let of_thread = || {
            let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let urgent_thread = std::thread::spawn(move || {
            let before = of_thread();
            prepare();
            urgent();
            let inherited = std::thread::spawn(move || {
                let inherited = of_thread();
                usual();
                (inherited, of_thread())
            });
            (before, of_thread(), inherited.join().unwrap())
        });
        let (before, urgent, (inherited, usual)) = urgent_thread.join().unwrap();
        if urgent == before {
            eprintln!("not root: nice values cannot be lowered; this test looked at nothing");
            return;
        }
        assert_eq!((urgent, inherited, usual), (URGENT, URGENT, 0));
    }
}
