//! Which runs a query's times and states select, as sacct(1) has it for -S, -E and -s. The client sets defaults
//! of the times; an absent one is no bound here.

use muster_model::job::JobState;
use muster_model::time::Timestamp;
use muster_proto::acct::AcctQuery;

/// A span of time, both ends included, milliseconds. sacct knows whole seconds: one that is named counts wholly, or
/// a job of the current second would be missed by `-E now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// The parameters of the choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTimes {
    pub(crate) state: JobState,
    pub(crate) submit: i64,
    pub(crate) eligible: Option<i64>,
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
}

impl Window {
    /// The window of a query. States without an end are asked for at the moment of the start.
    pub(crate) fn of(query: &AcctQuery) -> Window {
        let end = match (query.end, query.start) {
            (None, Some(start)) if !query.states.is_empty() => Some(start),
            (end, _) => end,
        };
        Window {
            from: query.start.map_or(i64::MIN, second),
            to: end.map_or(i64::MAX, |end| second(end).saturating_add(999)),
        }
    }

    /// Whether something that lasted from `start` to `end` touches the window.
    fn meets(self, start: Option<i64>, end: Option<i64>) -> bool {
        start.is_some_and(|start| start <= self.to) && end.is_none_or(|end| end >= self.from)
    }

    /// Whether the run is selected; `was_suspended` says whether it was suspended during the window.
    pub(crate) fn selects(
        self,
        query: &AcctQuery,
        life: JobTimes,
        mut was_suspended: impl FnMut(Window) -> bool,
    ) -> bool {
        if query.states.is_empty() {
            // A job that is named counts from its submission, others from when they were eligible.
            let since = match query.jobs.is_empty() {
                true => life.eligible,
                false => Some(life.submit),
            };
            return self.meets(since, life.end);
        }
        if query.start.is_none() && query.end.is_none() {
            let waited = life.state == JobState::Pending && life.end.is_some();
            return query.states.contains(&life.state) && !waited;
        }
        query.states.iter().any(|state| match state {
            JobState::Pending => self.meets(life.eligible, life.start.or(life.end).map(before)),
            JobState::Running => self.meets(life.start, life.end),
            JobState::Suspended => was_suspended(self),
            ended => *ended == life.state && life.end.is_some() && self.meets(life.end, life.end),
        })
    }
}

/// The last moment before a second: a job does not wait any more in the one in which it starts.
fn before(time: i64) -> i64 {
    second(Timestamp(time)).saturating_sub(1)
}

fn second(time: Timestamp) -> i64 {
    Timestamp::from_unix_s(time.unix_s()).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;

    const fn life(state: JobState, times: [Option<i64>; 3]) -> JobTimes {
        JobTimes {
            state,
            submit: 1_000_000,
            eligible: times[0],
            start: times[1],
            end: times[2],
        }
    }

    #[test]
    fn times_and_states_select_as_sacct_says() {
        use JobState::{Completed, Failed, Pending, Running, Suspended};
        let done = life(
            Completed,
            [Some(1_000_000), Some(2_000_000), Some(3_000_000)],
        );
        let runs = life(Running, [Some(1_000_000), Some(2_000_000), None]);
        let waits = life(Pending, [Some(1_000_000), None, None]);
        let held = life(Pending, [None, None, None]);
        // start and end of the window in seconds, states, run, selected
        type Case<'a> = (Option<i64>, Option<i64>, &'a [JobState], JobTimes, bool);
        let table: &[Case<'_>] = &[
            (None, None, &[], done, true),
            (None, None, &[], held, false),
            (Some(0), Some(999), &[], done, false),
            (Some(0), Some(1000), &[], done, true),
            (Some(3000), Some(9000), &[], done, true),
            (Some(3001), None, &[], done, false),
            (Some(3001), None, &[], runs, true),
            (None, Some(500), &[], waits, false),
            // A state without an end: at the moment of the start.
            (Some(0), None, &[Completed], done, false),
            (Some(3000), None, &[Completed], done, true),
            (Some(0), Some(9000), &[Completed], done, true),
            (Some(0), Some(9000), &[Failed], done, false),
            (Some(0), Some(2999), &[Completed], done, false),
            (None, Some(9000), &[Completed], done, true),
            // Its state during the window, not a later one.
            (Some(2500), Some(2600), &[Running], done, true),
            (Some(1500), Some(1600), &[Running], done, false),
            (Some(1500), Some(1600), &[Pending], done, true),
            (Some(2500), Some(2600), &[Pending], done, false),
            (Some(1999), Some(2600), &[Pending], done, true),
            (Some(2000), Some(2600), &[Pending], done, false),
            (Some(2000), None, &[Pending], done, false),
            (Some(2500), None, &[Running], runs, true),
            (Some(1500), None, &[Running], runs, false),
            (Some(9000), Some(9000), &[Pending], waits, true),
            (Some(9000), Some(9000), &[Pending], held, false),
            (Some(9000), Some(9000), &[Suspended], runs, false),
            // No times at all: the present state.
            (None, None, &[Running], runs, true),
            (None, None, &[Running], done, false),
            (None, None, &[Failed, Completed], done, true),
        ];
        for (start, end, states, life, selected) in table {
            let query = AcctQuery {
                start: start.map(Timestamp::from_unix_s),
                end: end.map(Timestamp::from_unix_s),
                states: states.to_vec(),
                ..AcctQuery::default()
            };
            let got = Window::of(&query).selects(&query, *life, |_| false);
            assert_eq!(got, *selected, "{start:?}..{end:?} {states:?} {life:?}");
        }
    }

    #[test]
    fn a_second_that_is_named_counts_wholly() {
        let query = AcctQuery {
            start: Some(Timestamp(5_900)),
            end: Some(Timestamp(7_000)),
            ..AcctQuery::default()
        };
        assert_eq!(
            Window::of(&query),
            Window {
                from: 5_000,
                to: 7_999
            }
        );
    }

    #[test]
    fn a_job_that_was_never_eligible_is_shown_when_named() {
        let query = AcctQuery {
            jobs: vec![(JobId(1), None)],
            ..AcctQuery::default()
        };
        let held = life(JobState::Pending, [None, None, None]);
        assert!(Window::of(&query).selects(&query, held, |_| false));
    }

    #[test]
    fn a_job_that_is_named_counts_from_its_submission() {
        let waits = life(JobState::Pending, [Some(5_000_000), None, None]);
        let until = |end_s, jobs: &[JobId]| {
            let query = AcctQuery {
                jobs: jobs.iter().map(|id| (*id, None)).collect(),
                end: Some(Timestamp::from_unix_s(end_s)),
                ..AcctQuery::default()
            };
            Window::of(&query).selects(&query, waits, |_| false)
        };
        assert!(until(2000, &[JobId(1)]));
        assert!(!until(999, &[JobId(1)]));
        assert!(!until(2000, &[]));
    }
}
