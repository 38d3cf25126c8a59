//! Explanations why jobs wait, each in slices and answered when it is due with the known part.

use crate::clock::now;
use crate::failure::caught;
use crate::forecaster::bounds::{SLICE, TURN_WAIT_MAX, busy_refusal, fault_refusal};
use crate::outbox::Outbox;
use muster_core::policy::access::privacy::{JobScope, View};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_proto::client::Response;
use muster_proto::frame;
use muster_sched::forecast::Forecast;
use muster_sched::{ExplainRun, ExplanationDepth};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time from the question for an explanation until it is answered with the known part; an operation that takes longer delays it.
pub(super) const EXPLAIN_MAX: Duration = Duration::from_millis(1500);

/// A question why a job waits.
pub(super) struct WhyQuestion {
    pub(super) job: JobId,
    pub(super) depth: ExplanationDepth,
    pub(super) identity: Identity,
    pub(super) out: Outbox,
    /// When the answer is due.
    pub(super) due: Instant,
    /// Expected starts when the question came.
    pub(super) known: Option<ForecastStarts>,
}

impl WhyQuestion {
    /// Nobody waits for the answer any more.
    pub(super) fn is_gone(&self) -> bool {
        self.out.is_gone()
    }

    /// It has waited for too long to be begun.
    pub(super) fn is_late(&self, time: Instant) -> bool {
        time >= self.due + (TURN_WAIT_MAX - EXPLAIN_MAX)
    }

    /// Answers that the controller is busy.
    pub(super) fn refuse(&self) {
        respond(&self.out, &Response::Refused(busy_refusal()));
    }
}

/// Expected starts that an explanation may use.
pub(super) struct ForecastStarts {
    pub(super) forecast: Arc<Forecast>,
    /// The state had this position when they were worked out, and no other time counts for them.
    pub(super) position: Position,
    /// Nothing is added to them, and they are not old.
    pub(super) is_current: bool,
}

/// An explanation under way.
pub(super) struct WhyRun {
    question: WhyQuestion,
    state: Box<State>,
    run: ExplainRun,
}

impl WhyRun {
    /// The user who asks.
    pub(super) fn uid(&self) -> u32 {
        self.question.identity.uid
    }
}

/// Begins an explanation with the first slice, if there is such a job for this user. Returns the rest if it is not answered.
pub(super) fn begin(
    question: WhyQuestion,
    state: Box<State>,
    position: Position,
) -> Option<Box<WhyRun>> {
    let begun = caught(|| {
        let scope = JobScope::of(&state, &question.identity);
        let id = Some(question.job).filter(|id| scope.shows(&state, *id))?;
        let view = View::of(&state, &question.identity);
        let mut run = ExplainRun::new(&state, id, now(), &view, question.depth)?;
        let known = question.known.as_ref();
        if let Some(known) = known.filter(|known| known.is_current && known.position == position) {
            run.take_known(&state, &view, &known.forecast);
        }
        Some(run)
    });
    let refusal = match begun {
        Ok(Some(run)) => {
            return advance(Box::new(WhyRun {
                question,
                state,
                run,
            }));
        }
        Ok(None) => RefusalCode::InvalidJobId.into(),
        Err(_) => fault_refusal(),
    };
    respond(&question.out, &Response::Refused(refusal));
    None
}

/// Works on an explanation for the time of a slice; answers if it is over or due, else returns the rest.
pub(super) fn advance(mut explaining: Box<WhyRun>) -> Option<Box<WhyRun>> {
    let until = Instant::now() + SLICE;
    let WhyRun {
        question,
        state,
        run,
    } = &mut *explaining;
    let slice = caught(|| {
        let view = View::of(state, &question.identity);
        loop {
            let time = Instant::now();
            if time >= question.due || run.advance(state, &view) {
                return true;
            }
            if time >= until {
                return false;
            }
        }
    });
    match slice {
        Ok(false) => return Some(explaining),
        Ok(true) => answer(*explaining),
        Err(_) => respond(&question.out, &Response::Refused(fault_refusal())),
    }
    None
}

fn answer(explaining: WhyRun) {
    let WhyRun {
        question,
        state,
        run,
    } = explaining;
    let explained = caught(|| {
        let view = View::of(&state, &question.identity);
        let earlier = question.known.as_ref().map(|known| &*known.forecast);
        run.finish(&state, &view, earlier)
    });
    let response = match explained {
        Ok(explanation) => Response::Why(Box::new(explanation)),
        Err(_) => Response::Refused(fault_refusal()),
    };
    respond(&question.out, &response);
}

fn respond(out: &Outbox, response: &Response) {
    let _ = out.send(frame::encode(response));
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::Job;
    use muster_model::time::{TimeLimit, Timestamp};

    /// A state with a job that waits, and no nodes.
    fn waiting() -> Box<State> {
        let mut state = State::default();
        let (id, at) = (JobId(50), Timestamp(1_000_000));
        let mut job = Job::new(id, Arc::default(), TimeLimit::Minutes(60), at);
        (job.priority, job.eligible_time) = (1, Some(at));
        state.pending.insert(id);
        state.jobs.insert(id, job);
        Box::new(state)
    }

    /// Trials of one question kept the thread for more than a minute.
    #[test]
    fn an_explanation_is_answered_when_it_is_due() {
        let (out, mut inbox) = crate::outbox::channel(None);
        let question = |due| WhyQuestion {
            job: JobId(50),
            depth: ExplanationDepth::WithChanges,
            identity: Identity::default(),
            out: out.clone(),
            due,
            known: None,
        };
        let mut answer = |due| {
            let rest = begin(question(due), waiting(), 3);
            assert!(rest.is_none(), "a slice follows");
            let frame = inbox.try_recv().expect("it is not answered");
            match frame::decode(&frame[4..]) {
                Ok(Response::Why(explanation)) => explanation.not_worked_out,
                other => panic!("{other:?}"),
            }
        };
        let time = Instant::now();
        assert_eq!(answer(time).len(), 2, "its time is over");
        assert_eq!(answer(time + EXPLAIN_MAX), Vec::<String>::new());
    }
}
