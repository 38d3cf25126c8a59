//! Notification of events: a thread that looks at the jobs of sessions that this process has open, and calls the program's function
//! for each change. Nothing is locked while it is called.

use crate::error::DrmaaError;
use crate::jobs;
use crate::records::{DrmaaState, JobRecord};
use crate::values::{AttributeMap, AttributeValue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// Kinds of events, by the numbers of `drmaa2_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum EventKind {
    /// The job has another state.
    NewState = 0,
    /// It was restarted, and runs on other machines.
    Migrated = 1,
}

/// Function that gets the members of a `drmaa2_notification`.
pub type Listener = fn(at: usize, notification: &AttributeMap);

/// Watched sessions, and the function for their events.
#[derive(Debug)]
struct EventWatch {
    /// The program's function, as the address that the listener gets.
    callback: Option<usize>,
    is_running: bool,
    sessions: BTreeMap<String, usize>,
}

static WATCH: Mutex<EventWatch> = Mutex::new(EventWatch {
    callback: None,
    is_running: false,
    sessions: BTreeMap::new(),
});
static CHANGED: Condvar = Condvar::new();

fn watch() -> MutexGuard<'static, EventWatch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session of jobs was opened.
pub fn opened(session: &str) {
    *watch().sessions.entry(session.to_owned()).or_default() += 1;
}

/// A session of jobs was closed.
pub fn closed(session: &str) {
    let mut own = watch();
    if let Some(count) = own.sessions.get_mut(session) {
        *count -= 1;
        if *count == 0 {
            own.sessions.remove(session);
        }
    }
}

/// Whether a session is open in this process.
pub fn is_open(session: &str) -> bool {
    watch().sessions.contains_key(session)
}

/// Registers a function, in the place of another one, or none.
///
/// # Errors
/// There can be no thread.
pub fn register(callback: Option<usize>, listener: Listener) -> Result<(), DrmaaError> {
    let mut own = watch();
    own.callback = callback;
    CHANGED.notify_all();
    if callback.is_none() || own.is_running {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name("drmaa2-events".to_owned());
    let made = thread.spawn(move || run(listener));
    own.is_running = made.is_ok();
    made.map(|_| ()).map_err(|e| {
        own.callback = None;
        DrmaaError::new(
            crate::error::DrmaaCode::OutOfResource,
            format!("cannot make a thread: {e}"),
        )
    })
}

/// Looks each second as long as there is a function.
fn run(listener: Listener) {
    let mut known: BTreeMap<String, JobSight> = BTreeMap::new();
    loop {
        let sessions: Vec<String> = {
            let mut own = watch();
            if own.callback.is_none() {
                own.is_running = false;
                return;
            }
            own.sessions.keys().cloned().collect()
        };
        let mut there = BTreeSet::new();
        for session in sessions {
            // While the controller restarts, nothing is known: what changed meanwhile is seen at the next look.
            let Ok(records) = jobs::of_session(&session, &AttributeMap::default()) else {
                there.extend(known.keys().cloned());
                continue;
            };
            for record in records {
                let id = record.job.to_string();
                there.insert(id.clone());
                let now = JobSight::of(&record);
                let event = now.event(known.get(&id));
                known.insert(id, now);
                if let Some(event) = event {
                    call(listener, &notification(event, &record, &session));
                }
            }
        }
        known.retain(|id, _| there.contains(id));
        let own = watch();
        if own.callback.is_some() {
            let waited = CHANGED.wait_timeout(own, LOOK_EACH);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn call(listener: Listener, notification: &AttributeMap) {
    let callback = watch().callback;
    if let Some(callback) = callback {
        listener(callback, notification);
    }
}

/// State of a job as seen.
#[derive(Clone, Debug, PartialEq)]
struct JobSight {
    state: DrmaaState,
    restarts: u32,
    machines: Option<AttributeValue>,
}

impl JobSight {
    fn of(record: &JobRecord) -> JobSight {
        let machines = record.info.get("allocatedMachines");
        JobSight {
            state: record.state,
            restarts: record.restarts,
            machines: machines.filter(|_| record.state.is_started()).cloned(),
        }
    }

    /// Event since a look before, if there was one. The first look is at a job as it is.
    fn event(&self, before: Option<&JobSight>) -> Option<EventKind> {
        let Some(before) = before else {
            return Some(EventKind::NewState);
        };
        let was_moved = self.restarts > before.restarts
            && self.state == DrmaaState::Running
            && before.state == DrmaaState::Running
            && self.machines != before.machines;
        match () {
            () if was_moved => Some(EventKind::Migrated),
            () if self.state != before.state => Some(EventKind::NewState),
            () => None,
        }
    }
}

fn notification(event: EventKind, record: &JobRecord, session: &str) -> AttributeMap {
    let mut all = AttributeMap::default();
    all.put("event", AttributeValue::Number(i64::from(event as i32)));
    all.put_text("jobId", record.job.to_string());
    all.put_text("sessionName", session);
    let state = i64::from(record.state.number());
    all.put("jobState", AttributeValue::Number(state));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_events() {
        let seen = |state, restarts, machine: Option<&str>| JobSight {
            state,
            restarts,
            machines: machine.map(|name| AttributeValue::Text(name.to_owned())),
        };
        let queued = seen(DrmaaState::Queued, 0, None);
        let running = seen(DrmaaState::Running, 0, Some("n1"));
        let moved = seen(DrmaaState::Running, 1, Some("n2"));
        let again = seen(DrmaaState::Running, 1, Some("n1"));
        assert_eq!(queued.event(None), Some(EventKind::NewState));
        assert_eq!(queued.event(Some(&queued)), None);
        assert_eq!(running.event(Some(&queued)), Some(EventKind::NewState));
        assert_eq!(moved.event(Some(&running)), Some(EventKind::Migrated));
        assert_eq!(again.event(Some(&running)), None);
    }

    #[test]
    fn sessions_are_open_as_often_as_they_were_opened() {
        for _ in 0..2 {
            opened("events-test");
        }
        closed("events-test");
        assert!(is_open("events-test"));
        closed("events-test");
        closed("events-test");
        assert!(!is_open("events-test"));
    }
}
