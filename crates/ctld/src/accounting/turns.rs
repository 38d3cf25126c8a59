//! The order in which questions to the accounting store are answered. Each reader answers one at a time, and each user has one
//! answered at a time, so that a long question occupies one reader and not all. Where no reader is free for others that wait
//! long, the question that has run longest is ended once it is over its time limit. The next one of its user may take longer.

use super::AcctQuestion;
use crate::outbox::Outbox;
use muster_acct::Interrupter;
use muster_channel::admission::FairQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a question may take while others wait for a reader, who have waited as long.
pub(super) const LONGEST: Duration = Duration::from_secs(10);
/// The same of one whose user has had the last one ended: what takes longer than [`LONGEST`] would never be answered under load.
const LONGEST_AGAIN: Duration = Duration::from_secs(60);
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
    /// Whether it may be ended for others.
    yields: bool,
    /// How long it may take while others wait.
    longest: Duration,
    /// `None` while it waits for the store to catch up.
    begun: Option<Instant>,
    answer: Outbox,
    ended: Option<QuestionEnd>,
}

impl RunningQuestion {
    fn took(&self, now: Instant) -> Duration {
        self.begun
            .map_or(Duration::ZERO, |begun| now.duration_since(begun))
    }
}

/// A thread that answers questions.
struct ReaderPlace {
    interrupter: Interrupter,
    running: Option<RunningQuestion>,
}

/// Questions that wait or are being answered.
#[derive(Default)]
struct QuestionTurns {
    waiting: FairQueue<AcctQuestion>,
    /// Since when each user has waited for any free reader.
    waits_since: BTreeMap<u32, Instant>,
    /// Users whose last long question was ended after [`LONGEST`].
    cut_short: BTreeSet<u32>,
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
            if let Some(question) = turns.begin(place) {
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

    /// The store has caught up with the question that a reader answers: its time begins.
    pub(super) fn start_clock(&self, place: usize) {
        self.lock().start_clock(place, Instant::now());
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
    fn begin(&mut self, place: usize) -> Option<AcctQuestion> {
        loop {
            let places = &self.places;
            let (uid, question) = self.waiting.pop_of(|uid| !is_served(places, *uid))?;
            if question.answer.is_gone() {
                continue;
            }
            let place = self.places.get_mut(place)?;
            place.running = Some(RunningQuestion {
                uid,
                yields: !question.is_admin,
                longest: match self.cut_short.contains(&uid) {
                    true => LONGEST_AGAIN,
                    false => LONGEST,
                },
                begun: None,
                answer: question.answer.clone(),
                ended: None,
            });
            return Some(question);
        }
    }

    fn start_clock(&mut self, place: usize, now: Instant) {
        let running = self.places.get_mut(place).and_then(|p| p.running.as_mut());
        if let Some(question) = running {
            question.begun = Some(now);
        }
    }

    fn finish(&mut self, place: usize, now: Instant) -> Option<QuestionEnd> {
        let done = self.places.get_mut(place)?.running.take()?;
        let took = done.took(now);
        if done.ended == Some(QuestionEnd::TooLong) && done.longest == LONGEST {
            self.cut_short.insert(done.uid);
        } else if took >= LONGEST {
            self.cut_short.remove(&done.uid);
        }
        let cost = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.waiting.charge(done.uid, cost);
        done.ended
    }

    /// Whether somebody has waited long for a reader. Those whose own question is being answered would not be served by another,
    /// and clients that are gone wait for nothing.
    fn have_waited(&mut self, now: Instant) -> bool {
        let places = &self.places;
        let waits = |(uid, question): (&u32, &AcctQuestion)| {
            let waits = !is_served(places, *uid) && !question.answer.is_gone();
            waits.then_some(*uid)
        };
        let waiting: BTreeSet<u32> = self.waiting.waiting().filter_map(waits).collect();
        self.waits_since.retain(|uid, _| waiting.contains(uid));
        for uid in waiting {
            self.waits_since.entry(uid).or_insert(now);
        }
        let mut since = self.waits_since.values();
        let is_long = since.any(|since| now.duration_since(*since) >= LONGEST);
        is_long && places.iter().all(|place| place.running.is_some())
    }

    /// Ends what nobody reads, and one that keeps others waiting too long. An interruption concerns only what the database does at
    /// that moment, so it is repeated until the question is done.
    fn end_some(&mut self, now: Instant) {
        let waits = self.have_waited(now);
        let running = self.places.iter_mut().filter_map(|p| p.running.as_mut());
        let mut longest: Option<&mut RunningQuestion> = None;
        let mut is_ending = false;
        for question in running {
            if question.answer.is_gone() {
                question.ended.get_or_insert(QuestionEnd::Gone);
            }
            is_ending |= question.ended.is_some();
            let may_end = question.yields && question.took(now) >= question.longest;
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

/// Whether a question of the user is being answered.
fn is_served(places: &[ReaderPlace], uid: u32) -> bool {
    let mut running = places.iter().filter_map(|place| place.running.as_ref());
    running.any(|question| question.uid == uid)
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
            is_admin: uid == 0,
            query,
            position: 0,
            answer,
        };
        turns.waiting.push(uid, question);
        inbox
    }

    /// A reader begins with a question, for which nobody has to wait; whose that is.
    fn begin(turns: &mut QuestionTurns, place: usize, now: Instant) -> Option<u32> {
        let question = turns.begin(place)?;
        turns.start_clock(place, now);
        Some(question.uid)
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
        let begin = |turns: &mut QuestionTurns, place| begin(turns, place, now);
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
        assert!(begin(&mut turns, 0, start).is_some() && begin(&mut turns, 1, after(1)).is_some());
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
        assert_eq!(begin(&mut turns, 0, after(20)), Some(3));
        turns.end_some(after(21));
        assert_eq!(interrupted(&counts), [3, 0], "nobody waits any more");
        assert_eq!(turns.finish(1, after(21)), None);
    }

    #[test]
    fn a_question_of_roots_is_not_ended_for_others() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let _answers = [0, 2, 3].map(|uid| ask(&mut turns, uid));
        assert!(begin(&mut turns, 0, start).is_some() && begin(&mut turns, 1, start).is_some());
        turns.end_some(start + LONGEST);
        turns.end_some(start + 2 * LONGEST);
        assert_eq!(interrupted(&counts), [0, 1]);
    }

    /// Questions were ended for users whose own were being answered, for clients that were gone, and for those who had just come.
    #[test]
    fn a_question_is_ended_only_for_those_who_wait_long_for_a_reader() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let _answers = [1, 2, 1, 2].map(|uid| ask(&mut turns, uid));
        assert!(begin(&mut turns, 0, start).is_some() && begin(&mut turns, 1, start).is_some());
        drop(ask(&mut turns, 3));
        turns.end_some(after(1));
        turns.end_some(after(30));
        assert_eq!(interrupted(&counts), [0, 0]);
        let _answer = ask(&mut turns, 4);
        turns.end_some(after(31));
        turns.end_some(after(40));
        assert_eq!(interrupted(&counts), [0, 0]);
        turns.end_some(after(41));
        assert_eq!(interrupted(&counts), [1, 0]);
    }

    /// A query that takes longer than others have to wait was ended each time that it was asked.
    #[test]
    fn a_question_that_was_ended_may_take_longer_the_next_time() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let _answers = [0, 1, 2, 1].map(|uid| ask(&mut turns, uid));
        assert!(begin(&mut turns, 0, start).is_some() && begin(&mut turns, 1, start).is_some());
        let end_at = |turns: &mut QuestionTurns, s| turns.end_some(after(s));
        end_at(&mut turns, 1);
        end_at(&mut turns, 11);
        assert_eq!(turns.finish(1, after(11)), Some(QuestionEnd::TooLong));
        assert_eq!(begin(&mut turns, 1, after(11)), Some(2));
        assert_eq!(turns.finish(1, after(12)), None);
        assert_eq!(begin(&mut turns, 1, after(12)), Some(1));
        let _answer = ask(&mut turns, 3);
        end_at(&mut turns, 13);
        end_at(&mut turns, 71);
        assert_eq!(interrupted(&counts), [0, 1]);
        end_at(&mut turns, 72);
        assert_eq!(turns.finish(1, after(72)), Some(QuestionEnd::TooLong));
        // Not each time.
        let _answer = ask(&mut turns, 1);
        assert_eq!(begin(&mut turns, 1, after(72)), Some(3));
        assert_eq!(turns.finish(1, after(73)), None);
        assert_eq!(begin(&mut turns, 1, after(73)), Some(1));
        let _answer = ask(&mut turns, 4);
        end_at(&mut turns, 73);
        end_at(&mut turns, 83);
        assert_eq!(turns.finish(1, after(83)), Some(QuestionEnd::TooLong));
    }

    /// The time until the store had caught up was the question's.
    #[test]
    fn the_time_of_a_question_begins_when_the_store_has_caught_up() {
        let (mut turns, counts) = turns();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let _answers = [0, 1, 2].map(|uid| ask(&mut turns, uid));
        assert!(begin(&mut turns, 0, start).is_some() && turns.begin(1).is_some());
        turns.end_some(start);
        turns.end_some(after(15));
        turns.start_clock(1, after(15));
        turns.end_some(after(24));
        assert_eq!(interrupted(&counts), [0, 0]);
        turns.end_some(after(25));
        assert_eq!(interrupted(&counts), [0, 1]);
    }

    /// A question that selected nothing sent nothing, and went on to its end whether or not anybody waited for the answer.
    #[test]
    fn what_nobody_waits_for_is_ended() {
        let (mut turns, counts) = turns();
        let now = Instant::now();
        let answer = ask(&mut turns, 1);
        drop(ask(&mut turns, 2));
        assert!(begin(&mut turns, 0, now).is_some());
        assert!(begin(&mut turns, 1, now).is_none(), "its client is gone");
        turns.end_some(now);
        assert_eq!(interrupted(&counts), [0, 0]);
        drop(answer);
        turns.end_some(now);
        assert_eq!(interrupted(&counts), [1, 0]);
        assert_eq!(turns.finish(0, now), Some(QuestionEnd::Gone));
    }
}
