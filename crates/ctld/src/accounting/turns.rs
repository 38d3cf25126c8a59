//! Whose question to the accounting store is answered when. Each reader answers one at a time, and each user has one answered at
//! a time, so that a question about all that there is keeps one reader from others and not all. Where no reader is free for those
//! who wait, the question that has taken longest is ended once it has taken too long.

use super::AcctQuestion;
use crate::outbox::Outbox;
use muster_acct::Interrupter;
use muster_channel::admission::FairQueue;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a question may take while others wait for a reader.
pub(super) const LONGEST: Duration = Duration::from_secs(10);
/// Questions that are being answered are looked at this often.
const LOOK: Duration = Duration::from_millis(500);

/// Why a question was ended before its answer was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionEnd {
    /// Its client is gone, or does not read.
    Gone,
    /// Others waited.
    TooLong,
}

/// A question that is being answered.
struct RunningQuestion {
    uid: u32,
    begun: Instant,
    answer: Outbox,
    ended: Option<QuestionEnd>,
}

/// A thread that answers questions.
struct ReaderPlace {
    interrupter: Interrupter,
    running: Option<RunningQuestion>,
}

/// What waits and what is being answered.
#[derive(Default)]
struct QuestionTurns {
    waiting: FairQueue<AcctQuestion>,
    places: Vec<ReaderPlace>,
    closed: bool,
}

/// The same, shared by those who ask and those who answer.
#[derive(Default)]
pub(super) struct SharedQuestions {
    turns: Mutex<QuestionTurns>,
    changed: Condvar,
}

impl SharedQuestions {
    /// For so many readers.
    pub(super) fn new(interrupters: impl Iterator<Item = Interrupter>) -> SharedQuestions {
        let place = |interrupter| ReaderPlace {
            interrupter,
            running: None,
        };
        let turns = QuestionTurns {
            places: interrupters.map(place).collect(),
            ..QuestionTurns::default()
        };
        SharedQuestions {
            turns: Mutex::new(turns),
            ..SharedQuestions::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, QuestionTurns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user asks.
    pub(super) fn push(&self, question: AcctQuestion) {
        self.lock().waiting.push(question.uid, question);
        self.changed.notify_all();
    }

    /// Nobody will ask any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for the next question that this reader is to answer; none once nobody will ask.
    pub(super) fn next(&self, place: usize) -> Option<AcctQuestion> {
        let mut turns = self.lock();
        loop {
            if let Some(question) = turns.begin(place, Instant::now()) {
                // The watch looks at it from now on.
                self.changed.notify_all();
                return Some(question);
            }
            if turns.closed {
                return None;
            }
            turns = (self.changed.wait(turns)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The reader has done with its question; why that was ended, if it was.
    pub(super) fn finish(&self, place: usize) -> Option<QuestionEnd> {
        let ended = self.lock().finish(place, Instant::now());
        self.changed.notify_all();
        ended
    }

    /// Why the question that a reader answers was ended, if it was.
    pub(super) fn ended(&self, place: usize) -> Option<QuestionEnd> {
        let turns = self.lock();
        turns.places.get(place)?.running.as_ref()?.ended
    }

    /// Ends questions that are to be ended, until nobody will ask.
    pub(super) fn watch(&self) {
        let mut turns = self.lock();
        while !turns.closed {
            turns = match turns.places.iter().any(|place| place.running.is_some()) {
                true => {
                    turns.end_some(Instant::now());
                    let waited = self.changed.wait_timeout(turns, LOOK);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                false => (self.changed.wait(turns)).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl QuestionTurns {
    fn begin(&mut self, place: usize, now: Instant) -> Option<AcctQuestion> {
        loop {
            let places = &self.places;
            let running = |uid: u32| {
                places
                    .iter()
                    .any(|p| p.running.as_ref().is_some_and(|r| r.uid == uid))
            };
            let (uid, question) = self.waiting.pop_of(|uid| !running(*uid))?;
            if question.answer.is_gone() {
                continue;
            }
            let place = self.places.get_mut(place)?;
            place.running = Some(RunningQuestion {
                uid,
                begun: now,
                answer: question.answer.clone(),
                ended: None,
            });
            return Some(question);
        }
    }

    fn finish(&mut self, place: usize, now: Instant) -> Option<QuestionEnd> {
        let done = self.places.get_mut(place)?.running.take()?;
        let took = now.duration_since(done.begun).as_nanos();
        self.waiting
            .charge(done.uid, u64::try_from(took).unwrap_or(u64::MAX));
        done.ended
    }

    /// Ends what nobody reads, and one that keeps others waiting too long. An interruption concerns only what the database does at
    /// that moment, so it is repeated until the question is done.
    fn end_some(&mut self, now: Instant) {
        let waits = !self.waiting.is_empty() && self.places.iter().all(|p| p.running.is_some());
        let running = self.places.iter_mut().filter_map(|p| p.running.as_mut());
        let mut longest: Option<&mut RunningQuestion> = None;
        let mut is_ending = false;
        for question in running {
            if question.answer.is_gone() {
                question.ended.get_or_insert(QuestionEnd::Gone);
            }
            is_ending |= question.ended.is_some();
            let may_end = question.uid != 0 && now.duration_since(question.begun) >= LONGEST;
            if may_end
                && longest
                    .as_ref()
                    .is_none_or(|known| question.begun < known.begun)
            {
                longest = Some(question);
            }
        }
        // One at a time: the reader of one is free at once.
        if let Some(question) = longest.filter(|_| waits && !is_ending) {
            question.ended = Some(QuestionEnd::TooLong);
        }
        for place in &self.places {
            if place.running.as_ref().is_some_and(|q| q.ended.is_some()) {
                (place.interrupter.0)();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::AccountingQuery;
    use crate::outbox::{self, Inbox};
    use muster_proto::acct::NodeEventQuery;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// QuestionTurns of two readers, and how often each was interrupted.
    fn turns() -> (QuestionTurns, [Arc<AtomicU32>; 2]) {
        let counts = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let places = counts.each_ref().map(|count| {
            let count = Arc::clone(count);
            let interrupt = move || {
                count.fetch_add(1, Relaxed);
            };
            ReaderPlace {
                interrupter: Interrupter(Box::new(interrupt)),
                running: None,
            }
        });
        let turns = QuestionTurns {
            places: places.into(),
            ..QuestionTurns::default()
        };
        (turns, counts)
    }

    fn ask(turns: &mut QuestionTurns, uid: u32) -> Inbox {
        let (answer, inbox) = outbox::channel(None);
        let query = AccountingQuery::NodeEvents(NodeEventQuery::default());
        let question = AcctQuestion {
            uid,
            query,
            position: 0,
            answer,
        };
        turns.waiting.push(uid, question);
        inbox
    }

    fn interrupted(counts: &[Arc<AtomicU32>; 2]) -> [u32; 2] {
        counts.each_ref().map(|count| count.load(Relaxed))
    }

    /// All readers but one were idle, or there was one only, while a user's question about all jobs ever was answered.
    #[test]
    fn a_user_has_one_reader_at_a_time() {
        let (mut turns, _) = turns();
        let now = Instant::now();
        let _answers = [1, 1, 1, 2].map(|uid| ask(&mut turns, uid));
        let begin = |turns: &mut QuestionTurns, place| turns.begin(place, now).map(|q| q.uid);
        assert_eq!(begin(&mut turns, 0), Some(1));
        assert_eq!(begin(&mut turns, 1), Some(2), "not the first one's next");
        assert_eq!(turns.finish(1, now), None);
        assert_eq!(begin(&mut turns, 1), None);
        let _answer = ask(&mut turns, 3);
        assert_eq!(begin(&mut turns, 1), Some(3));
        turns.finish(0, now);
        assert_eq!(begin(&mut turns, 0), Some(1));
    }

    #[test]
    fn what_takes_long_is_ended_where_others_wait() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let _answers = [1, 2].map(|uid| ask(&mut turns, uid));
        assert!(turns.begin(0, start).is_some() && turns.begin(1, after(1)).is_some());
        turns.end_some(after(1000));
        assert_eq!(interrupted(&counts), [0, 0], "nobody waits");
        let _answer = ask(&mut turns, 3);
        turns.end_some(after(9));
        assert_eq!(interrupted(&counts), [0, 0]);
        // The one that has taken longest, until it is done.
        for times in 1..=3 {
            turns.end_some(after(20));
            assert_eq!(interrupted(&counts), [times, 0]);
        }
        assert_eq!(turns.finish(0, after(20)), Some(QuestionEnd::TooLong));
        assert_eq!(turns.begin(0, after(20)).map(|q| q.uid), Some(3));
        turns.end_some(after(21));
        assert_eq!(interrupted(&counts), [3, 0], "nobody waits any more");
        assert_eq!(turns.finish(1, after(21)), None);
    }

    #[test]
    fn a_question_of_roots_is_not_ended_for_others() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let _answers = [0, 2, 3].map(|uid| ask(&mut turns, uid));
        assert!(turns.begin(0, start).is_some() && turns.begin(1, start).is_some());
        turns.end_some(start + 2 * LONGEST);
        assert_eq!(interrupted(&counts), [0, 1]);
    }

    /// A question that selected nothing sent nothing, and went on to its end whether or not anybody waited for the answer.
    #[test]
    fn what_nobody_waits_for_is_ended() {
        let (mut turns, counts) = turns();
        let now = Instant::now();
        let answer = ask(&mut turns, 1);
        drop(ask(&mut turns, 2));
        assert!(turns.begin(0, now).is_some());
        assert!(turns.begin(1, now).is_none(), "its client is gone");
        turns.end_some(now);
        assert_eq!(interrupted(&counts), [0, 0]);
        drop(answer);
        turns.end_some(now);
        assert_eq!(interrupted(&counts), [1, 0]);
        assert_eq!(turns.finish(0, now), Some(QuestionEnd::Gone));
    }
}
