//! Faults that tests ask for. In builds with debug assertions, and only where `MUSTER_FAULTS` is set or a test arms
//! them, a job with a certain name panics where its name says. Release builds contain nothing of this.

#[cfg(debug_assertions)]
mod armed {
    use muster_core::event::Event;
    use muster_core::state::State;
    use muster_model::command::{Command, UserCommand};
    use muster_model::spec::JobSpec;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ARMED: AtomicBool = AtomicBool::new(false);

    /// Faults happen from now on.
    pub fn arm() {
        ARMED.store(true, Ordering::Relaxed);
    }

    /// Faults happen if the environment says so.
    pub(crate) fn arm_by_environment() {
        if std::env::var_os("MUSTER_FAULTS").is_some() {
            arm();
        }
    }

    fn trip(place: &str, spec: &JobSpec) {
        if ARMED.load(Ordering::Relaxed) && spec.name.strip_prefix("panic-in-") == Some(place) {
            panic!("a fault was injected in {place}");
        }
    }

    /// A command is being worked on.
    pub(crate) fn on_command(place: &str, command: &Command) {
        if let Command::User(_, UserCommand::Submit { spec, .. }) = command {
            trip(place, spec);
        }
    }

    /// A job is being tried.
    pub(crate) fn on_spec(place: &str, spec: &JobSpec) {
        trip(place, spec);
    }

    /// An event is being applied.
    pub(crate) fn on_event(place: &str, event: &Event) {
        if let Event::JobSubmitted { spec, .. } = event {
            trip(place, spec);
        }
    }

    /// Something is done with all of the state.
    pub(crate) fn on_state(place: &str, state: &State) {
        if ARMED.load(Ordering::Relaxed) {
            state.jobs.values().for_each(|job| trip(place, &job.spec));
        }
    }

    /// Whether an injected panic stands for one of an event that was being applied.
    pub(crate) fn is_of_event(why: &str) -> bool {
        why.contains("injected in schedule")
    }

    /// A plan was committed that starts jobs.
    pub(crate) fn on_start(place: &str, state: &State, events: &[Event]) {
        for event in events {
            if let Event::JobStarted { id, .. } = event
                && let Some(job) = state.jobs.get(id)
            {
                trip(place, &job.spec);
            }
        }
    }
}

#[cfg(debug_assertions)]
pub use armed::arm;
#[cfg(debug_assertions)]
pub(crate) use armed::{
    arm_by_environment, is_of_event, on_command, on_event, on_spec, on_start, on_state,
};

#[cfg(not(debug_assertions))]
mod unarmed {
    use muster_core::event::Event;
    use muster_core::state::State;
    use muster_model::command::Command;
    use muster_model::spec::JobSpec;

    #[inline(always)]
    pub(crate) fn arm_by_environment() {}
    #[inline(always)]
    pub(crate) fn on_command(_: &str, _: &Command) {}
    #[inline(always)]
    pub(crate) fn on_spec(_: &str, _: &JobSpec) {}
    #[inline(always)]
    pub(crate) fn on_event(_: &str, _: &Event) {}
    #[inline(always)]
    pub(crate) fn on_state(_: &str, _: &State) {}
    #[inline(always)]
    pub(crate) fn is_of_event(_: &str) -> bool {
        false
    }
    #[inline(always)]
    pub(crate) fn on_start(_: &str, _: &State, _: &[Event]) {}
}

#[cfg(not(debug_assertions))]
pub(crate) use unarmed::{
    arm_by_environment, is_of_event, on_command, on_event, on_spec, on_start, on_state,
};
