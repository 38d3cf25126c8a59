//! One turn of the controller, without I/O: commands are decided and applied, the scheduler plans, its plan is
//! committed. The resulting events must be durable before any answer or order leaves the process. The controller and the
//! simulator run this same code.

use crate::Scheduler;
use muster_core::decide::{decide, decide_plan};
use muster_core::event::Event;
use muster_core::state::{DisplayUpdate, State};
use muster_model::command::{Command, PlannedReason, Reply, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::effect::Effect;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::node::NodeLink;
use muster_model::refusal::Refusal;
use muster_model::time::Timestamp;

/// The `SchedulerParameters` word that puts job ends, and the starts that they allow, into separate
/// turns.
const NO_PULL: &str = "no_pull";

/// The state, and the scheduler that follows it.
pub struct Engine {
    state: State,
    scheduler: Scheduler,
    /// The last turn postponed planning.
    owes: bool,
    /// Events are being applied; stays set after a panic.
    applying: bool,
}

/// The result of a turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Changes in order, to be journalled.
    pub events: Vec<Event>,
    /// Orders for nodes; to be sent once the events are durable.
    pub effects: Vec<Effect>,
    /// Changes that listings show and that need not survive a restart.
    pub notes: Vec<DisplayUpdate>,
    /// Replies, each with the position of its command in the turn.
    pub replies: Vec<(usize, Reply)>,
    /// The scheduler reached its work limit; another turn should follow at once.
    pub more: bool,
}

impl Turn {
    /// Clears the results but keeps their memory for the next turn.
    pub fn clear(&mut self) {
        self.events.clear();
        self.effects.clear();
        self.notes.clear();
        self.replies.clear();
        self.more = false;
    }
}

impl Engine {
    /// Starts from a fresh or recovered state.
    pub fn new(state: State) -> Engine {
        let scheduler = Scheduler::new(&state);
        Engine {
            state,
            scheduler,
            owes: false,
            applying: false,
        }
    }

    /// The state after the last turn.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether applying events has panicked: the last event of the turn is then the one that
    /// failed.
    pub fn is_applying(&self) -> bool {
        self.applying
    }

    /// The scheduler, for `--test-only` and `--immediate`.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Decides and applies commands.
    pub fn decide(&mut self, position: usize, command: &Command, now: Timestamp, turn: &mut Turn) {
        self.decide_if(position, command, now, turn, |_| Ok(()));
    }

    /// Decides a command; applies it if `accepts` does not reject its events.
    pub fn decide_if(
        &mut self,
        position: usize,
        command: &Command,
        now: Timestamp,
        turn: &mut Turn,
        accepts: impl FnOnce(&[Event]) -> Result<(), Refusal>,
    ) {
        let decision = decide(&self.state, command, now);
        if let Command::User(_, UserCommand::Submit { .. } | UserCommand::SubmitHet { .. }) =
            command
            && let Some(refusal) = self
                .scheduler
                .reject_infeasible(&self.state, &decision.events)
        {
            turn.replies.push((position, Reply::Refused(refusal)));
            return;
        }
        if let Err(refusal) = accepts(&decision.events) {
            turn.replies.push((position, Reply::Refused(refusal)));
            return;
        }
        self.apply(decision.events, turn);
        turn.effects.extend(decision.effects);
        for note in decision.notes {
            self.take_note(note, turn);
        }
        if let Some(reply) = decision.reply {
            turn.replies.push((position, reply));
        }
    }

    /// Whether planning waits for the next turn, so that the changes of this turn are written to
    /// disk and answered first: `SchedulerParameters=no_pull`, which exists to measure the gain of
    /// not waiting.
    pub fn puts_off(&mut self, turn: &mut Turn) -> bool {
        let config = self.state.config.as_ref();
        let no_pull = |c: &ClusterConfig| c.scheduler_parameters.iter().any(|w| w == NO_PULL);
        self.owes = !self.owes && !turn.events.is_empty() && config.is_some_and(|c| no_pull(c));
        turn.more |= self.owes;
        self.owes
    }

    /// Lets the scheduler start jobs that fit.
    pub fn schedule(&mut self, now: Timestamp, turn: &mut Turn) {
        let plan = self.scheduler.plan(&self.state, now);
        turn.more = self.scheduler.needs_another_plan();
        let evaluated = self.scheduler.evaluated();
        if !evaluated.is_empty() {
            self.take_note(DisplayUpdate::Evaluated(evaluated.to_vec(), now), turn);
        }
        for &PlannedReason { job, reason } in &plan.reasons {
            self.take_note(DisplayUpdate::Reason(job, reason), turn);
            if reason == Reason::ReqNodeNotAvail
                && let Some(nodes) = unavailable(&self.state, job)
            {
                self.take_note(DisplayUpdate::Unavailable(job, nodes), turn);
            }
        }
        for planned in &plan.expected {
            self.take_note(
                DisplayUpdate::Expected(planned.job, Some(planned.start)),
                turn,
            );
        }
        let waits = !plan.switch_waits.is_empty() || !plan.preemptions.is_empty();
        if waits || !plan.starts.is_empty() {
            let decision = decide_plan(&self.state, plan, now);
            self.apply(decision.events, turn);
            turn.effects.extend(decision.effects);
        }
    }

    /// Applies a change that listings show and that is not journalled.
    pub fn take_note(&mut self, note: DisplayUpdate, turn: &mut Turn) {
        self.state.note(&note);
        turn.notes.push(note);
    }

    fn apply(&mut self, events: Vec<Event>, turn: &mut Turn) {
        self.applying = true;
        for event in events {
            // Must be recorded before the event is applied, see `is_applying`.
            turn.events.push(event);
            let Some(event) = turn.events.last() else {
                continue;
            };
            self.state.apply(event);
            self.scheduler.observe(&self.state, event);
            turn.effects.extend(self.state.effects_of(event));
        }
        self.applying = false;
    }
}

/// The nodes that a job requests by name and that accept no jobs.
fn unavailable(state: &State, job: JobId) -> Option<String> {
    let named = state.jobs.get(&job)?.spec.ask.nodelist.as_deref()?;
    let names = hostlist::parse(named).ok()?;
    let out = |name: &String| {
        let node = state.node_by_name.get(name);
        node.and_then(|idx| state.nodes.get(idx.0 as usize))
            .is_none_or(|n| n.down || n.drain || n.fail || n.link != NodeLink::Up)
    };
    let out: Vec<&str> = names
        .iter()
        .filter(|name| out(name))
        .map(String::as_str)
        .collect();
    (!out.is_empty()).then(|| hostlist::compress(&out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn turn() -> Turn {
        let over = Event::JobsPurged {
            ids: vec![JobId(7)],
        };
        Turn {
            events: vec![over],
            ..Turn::default()
        }
    }

    fn engine(words: &[&str]) -> Engine {
        let words = words.iter().map(|w| (*w).to_owned());
        let config = ClusterConfig {
            scheduler_parameters: words.collect(),
            ..ClusterConfig::default()
        };
        Engine::new(State {
            config: Some(Arc::new(config)),
            ..State::default()
        })
    }

    #[test]
    fn without_pull_the_plan_is_made_a_turn_later() {
        let mut engine = engine(&["no_pull"]);
        let mut first = turn();
        assert!(engine.puts_off(&mut first) && first.more);
        // Planning is postponed only once, whatever arrives meanwhile.
        let mut second = turn();
        assert!(!engine.puts_off(&mut second) && !second.more);
        assert!(engine.puts_off(&mut turn()));
    }

    #[test]
    fn a_turn_plans_unless_that_is_asked_for() {
        assert!(!engine(&[]).puts_off(&mut turn()));
        assert!(!engine(&["no_pull"]).puts_off(&mut Turn::default()));
    }
}
