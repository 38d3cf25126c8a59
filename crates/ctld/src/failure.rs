//! Panics and the end of the process. A panic is logged where it happens; whether it ends one command or the whole
//! process is decided by who catches it. A thread that the controller cannot do without ends the process when it ends.

use log::error;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Exit status of a process that ends because a part of it failed.
const EXIT_FAILED: i32 = 70;
/// Seconds after which a process that ends is killed by the kernel, whatever it still waits for.
const END_MAX_S: u32 = 5;

/// Set once the controller stops on purpose: threads may end from then on.
static STOPPING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Message and place of the last panic of this thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught: its message and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(pub String);

/// Logs every panic with its thread, message and place. Daemons have no standard error to print them to.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = describe(info);
        let thread = std::thread::current();
        error!("thread '{}' panicked: {text}", thread.name().unwrap_or("?"));
        LAST.with_borrow_mut(|last| *last = Some(text));
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = message_of(info.payload());
    match info.location() {
        Some(place) => format!("{message} (at {place})"),
        None => message.to_owned(),
    }
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// Runs `work`; a panic in it becomes an error. What `work` was changing must be thrown away, or be known to be whole.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let hooked = LAST.with_borrow_mut(Option::take);
        Panicked(hooked.unwrap_or_else(|| message_of(payload.as_ref()).to_owned()))
    })
}

/// From now on threads end because the controller stops.
pub(crate) fn stopping() {
    STOPPING.store(true, Ordering::SeqCst);
}

/// Whether the controller stops on purpose.
pub(crate) fn is_stopping() -> bool {
    STOPPING.load(Ordering::SeqCst)
}

/// Logs why, and ends the process with a status that says so. It waits for nothing: no thread is joined, and the
/// kernel ends a process that does not exit after some seconds.
pub fn end_process(why: &str) -> ! {
    kill_after(END_MAX_S);
    error!("fatal: {why}. The controller ends; its state is in the journal");
    std::process::exit(EXIT_FAILED)
}

/// Has the kernel end the process after this number of seconds.
pub(crate) fn kill_after(seconds: u32) {
    // The default action of SIGALRM ends the process, whatever its threads are doing.
    nix::unistd::alarm::set(seconds);
}

/// Starts a thread that the controller cannot do without: its end, unless the controller stops, and any panic in it end
/// the process. `work` gives the reason if it ends by an error.
///
/// # Errors
/// When there is no thread.
pub(crate) fn spawn_essential(
    name: &'static str,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || match caught(work) {
            Ok(Ok(())) if is_stopping() => {}
            Ok(Ok(())) => end_process(&format!("thread '{name}' ended")),
            Ok(Err(why)) => end_process(&why),
            Err(Panicked(text)) => end_process(&format!("thread '{name}' panicked: {text}")),
        })
}

/// Starts a thread that ends once its work is done. A panic in it ends the process: others wait for its result.
///
/// # Errors
/// When there is no thread.
pub(crate) fn spawn_worker(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            if let Err(Panicked(text)) = caught(work) {
                end_process(&format!("thread '{name}' panicked: {text}"));
            }
        })
}

/// As [`spawn_essential`], for a task of this thread's event loop, which catches its panics.
pub(crate) fn spawn_essential_task(name: &'static str, work: impl Future<Output = ()> + 'static) {
    let task = tokio::task::spawn_local(work);
    tokio::task::spawn_local(async move {
        match task.await {
            Ok(()) if is_stopping() => {}
            Ok(()) => end_process(&format!("task '{name}' ended")),
            // The event loop is gone.
            Err(e) if e.is_cancelled() => {}
            Err(_) => end_process(&format!("task '{name}' panicked")),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The part that fails in a process of its own.
    const PART: &str = "MUSTER_TEST_PART";

    fn fail(part: &str) {
        match part {
            "thread" => drop(spawn_essential("thread", || panic!("injected"))),
            "end" => drop(spawn_essential("end", || Ok(()))),
            "worker" => drop(spawn_worker("worker", || panic!("injected"))),
            _ => {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                tokio::task::LocalSet::new().block_on(&runtime.unwrap(), async {
                    let is_panic = part == "task";
                    spawn_essential_task("task", async move { assert!(!is_panic, "injected") });
                    std::future::pending::<()>().await;
                });
            }
        }
        loop {
            std::thread::park();
        }
    }

    /// Nothing waits for what has failed: ping would say that all is well.
    #[test]
    fn a_part_that_fails_ends_the_process() {
        if let Ok(part) = std::env::var(PART) {
            return fail(&part);
        }
        for part in ["thread", "end", "worker", "task", "end of task"] {
            let ran = Command::new(std::env::current_exe().unwrap())
                .args([
                    "failure::tests::a_part_that_fails_ends_the_process",
                    "--exact",
                ])
                .env(PART, part)
                .output()
                .unwrap();
            assert_eq!(ran.status.code(), Some(EXIT_FAILED), "{part}: {ran:?}");
        }
    }

    #[test]
    fn a_worker_may_end() {
        spawn_worker("worker", || {}).unwrap().join().unwrap();
    }

    #[test]
    fn a_caught_panic_is_an_error_with_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        let seven = std::hint::black_box(7);
        let Panicked(text) = caught(|| assert_ne!(seven, 7, "no {seven}")).unwrap_err();
        assert!(text.contains("no 7"), "{text}");
    }
}
