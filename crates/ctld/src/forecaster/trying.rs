//! Trials of jobs that are not submitted (`--test-only`), each in slices.

use crate::audit::Entry;
use crate::clock::now;
use crate::failure::{Panicked, caught};
use crate::fault;
use crate::forecaster::bounds::{SLICE, TURN_WAIT_MAX, WORK_MAX, busy_refusal, fault_refusal};
use crate::peer::RequestOrigin;
use log::error;
use muster_core::state::State;
use muster_model::command::{Identity, Reply};
use muster_model::explain::ExpectedStart;
use muster_model::ids::JobId;
use muster_model::spec::JobSpec;
use muster_sched::forecast::{SubmitTrial, TrialEnd, would_start_together};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A question when a job would start, or the components of a heterogeneous one.
pub(super) struct TryQuestion {
    pub(super) identity: Identity,
    pub(super) specs: Vec<JobSpec>,
    pub(super) place: RequestOrigin,
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) asked: Instant,
}

impl TryQuestion {
    /// Nobody waits for the answer any more.
    pub(super) fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    /// It has waited for too long to be begun.
    pub(super) fn is_late(&self, time: Instant) -> bool {
        time >= self.asked + TURN_WAIT_MAX
    }

    /// Answers that the controller is busy.
    pub(super) fn refuse(self) {
        let _ = self.reply.send(Reply::Refused(busy_refusal()));
    }
}

/// A trial under way.
pub(super) struct TryRun {
    question: TryQuestion,
    state: Box<State>,
    run: SubmitTrial,
    took: Duration,
}

impl TryRun {
    /// The user who asks.
    pub(super) fn uid(&self) -> u32 {
        self.question.identity.uid
    }
}

/// Begins a trial with the first slice; that of a heterogeneous job takes no simulation and is answered at once. Returns the rest if
/// it is not answered.
pub(super) fn begin(question: TryQuestion, state: Box<State>) -> Option<Box<TryRun>> {
    let TryQuestion {
        identity, specs, ..
    } = &question;
    let [spec] = specs.as_slice() else {
        let tried = caught(|| would_start_together(&state, identity, specs, now()));
        let tried = tried.map(|tried| match tried {
            Ok((job, start)) => start_reply(job, start),
            Err(refusal) => Reply::Refused(refusal),
        });
        answer(question, &state, tried);
        return None;
    };
    let begun = caught(|| {
        fault::on_spec("forecast", spec);
        SubmitTrial::new(&state, identity, spec, now())
    });
    let refused = match begun {
        Ok(Ok(run)) => {
            return advance(Box::new(TryRun {
                question,
                state,
                run,
                took: Duration::ZERO,
            }));
        }
        Ok(Err(refusal)) => Ok(Reply::Refused(refusal)),
        Err(panicked) => Err(panicked),
    };
    answer(question, &state, refused);
    None
}

/// Works on a trial for the time of a slice; answers if it is over or has used its time, else returns the rest.
pub(super) fn advance(mut trying: Box<TryRun>) -> Option<Box<TryRun>> {
    let begun = Instant::now();
    let slice = caught(|| {
        loop {
            if trying.run.advance() || trying.took + begun.elapsed() >= WORK_MAX {
                return true;
            }
            if begun.elapsed() >= SLICE {
                return false;
            }
        }
    });
    trying.took += begun.elapsed();
    if let Ok(false) = slice {
        return Some(trying);
    }
    let TryRun {
        question,
        state,
        run,
        took,
    } = *trying;
    let ended = match slice {
        Ok(_) => caught(|| run.finish(&state)),
        Err(panicked) => Err(panicked),
    };
    let tried = match ended {
        Ok(TrialEnd::Again(run)) => {
            return Some(Box::new(TryRun {
                question,
                state,
                run: *run,
                took,
            }));
        }
        Ok(TrialEnd::Start { job, start }) => Ok(start_reply(job, start)),
        Ok(TrialEnd::Refused(refusal)) => Ok(Reply::Refused(refusal)),
        Err(panicked) => Err(panicked),
    };
    answer(question, &state, tried);
    None
}

fn start_reply(id: JobId, start: ExpectedStart) -> Reply {
    Reply::WouldStart {
        at: start.at,
        cpus: start.cpus,
        nodes: start.nodes,
        partition: start.partition,
        id,
    }
}

fn answer(question: TryQuestion, state: &State, tried: Result<Reply, Panicked>) {
    let TryQuestion {
        identity,
        specs,
        place,
        reply,
        asked: _,
    } = question;
    if let Err(Panicked(why)) = &tried {
        let (user, uid) = (&identity.user, identity.uid);
        error!("a trial of user {user} (uid {uid}) is refused: {why}");
    }
    let answer = tried.unwrap_or_else(|_| Reply::Refused(fault_refusal()));
    if let Some(first) = specs.first() {
        Entry::of_trial(state, &identity, first, place).replied(&answer);
    }
    let _ = reply.send(answer);
}
