//! The query for the reason why a job waits, on the connection on which its holder waits for the start.

use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::refusal::Refusal;
use muster_proto::client::{JobFilter, JobsPage, Query, RequestBody};

/// State of the query. The controller answers the requests of a connection in order, except for waits: the answer to
/// one comes when the job starts, or at once if the user has too many of them. A refusal that says so may therefore be
/// that of the wait or of the query; since a query is always answered, it was the wait's if an answer to the query
/// follows.
#[derive(Debug, Default, PartialEq)]
pub(super) enum ReasonQuery {
    /// It has not been sent.
    #[default]
    NotSent,
    /// It has been sent after the wait, of which nothing is known yet.
    Sent,
    /// The wait was granted; the next answer is that to the query.
    Next,
    /// The wait or the query was refused.
    Refused(Refusal),
    /// It was answered, or the answer does not come any more.
    Over,
}

impl ReasonQuery {
    /// The query for a job.
    pub(super) fn request(job: JobId) -> RequestBody {
        let filter = JobFilter {
            ids: vec![job],
            active: true,
            ..JobFilter::default()
        };
        RequestBody::Query(Box::new(Query::Jobs(filter)))
    }

    /// Whether a reason may still come.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, ReasonQuery::Sent | ReasonQuery::Next)
    }

    /// Takes a part of an answer, and gives the reason if it is there.
    ///
    /// # Errors
    /// The wait was refused before.
    pub(super) fn on_jobs(&mut self, id: JobId, part: JobsPage) -> Result<Option<Reason>, Refusal> {
        match std::mem::replace(self, ReasonQuery::Over) {
            ReasonQuery::Refused(of_wait) => return Err(of_wait),
            state @ (ReasonQuery::NotSent | ReasonQuery::Over) => {
                *self = state;
                return Ok(None);
            }
            ReasonQuery::Sent | ReasonQuery::Next => {}
        }
        if part.more {
            *self = ReasonQuery::Next;
        }
        let mut jobs = part.jobs.into_jobs().into_iter();
        Ok(jobs.find(|job| job.id == id).map(|job| job.reason))
    }

    /// Takes a refusal because the user asks too much.
    ///
    /// # Errors
    /// It is that of the wait.
    pub(super) fn on_busy(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        match std::mem::replace(self, ReasonQuery::Over) {
            ReasonQuery::Refused(of_wait) => Err(of_wait),
            ReasonQuery::NotSent | ReasonQuery::Over => Err(refusal),
            ReasonQuery::Sent => {
                *self = ReasonQuery::Refused(refusal);
                Ok(())
            }
            ReasonQuery::Next => Ok(()),
        }
    }

    /// The wait was answered: a refusal is that of the query.
    pub(super) fn on_started(&mut self) {
        match self {
            ReasonQuery::Sent => *self = ReasonQuery::Next,
            ReasonQuery::Refused(_) => *self = ReasonQuery::Over,
            ReasonQuery::NotSent | ReasonQuery::Next | ReasonQuery::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::refusal::RefusalCode;

    fn busy(text: &str) -> Refusal {
        Refusal::new(RefusalCode::Busy, text)
    }

    #[test]
    fn a_refusal_is_that_of_the_query_unless_the_query_is_answered() {
        // The query was refused, and the job starts.
        let mut query = ReasonQuery::Sent;
        assert_eq!(query.on_busy(busy("query")), Ok(()));
        assert!(!query.is_awaited());
        query.on_started();
        assert_eq!(query, ReasonQuery::Over);
        // The wait was refused, and then the query was answered or refused too.
        let mut query = ReasonQuery::Sent;
        assert_eq!(query.on_busy(busy("wait")), Ok(()));
        let answered = query.on_jobs(JobId(1), JobsPage::default());
        assert_eq!(answered, Err(busy("wait")));
        let mut query = ReasonQuery::Refused(busy("wait"));
        assert_eq!(query.on_busy(busy("query")), Err(busy("wait")));
        // Nothing else than the wait can have been refused.
        for mut query in [ReasonQuery::NotSent, ReasonQuery::Over] {
            assert_eq!(query.on_busy(busy("wait")), Err(busy("wait")));
        }
        // The job has started: nothing else than the query can have been refused.
        let mut query = ReasonQuery::Sent;
        query.on_started();
        assert_eq!(query.on_busy(busy("query")), Ok(()));
        assert_eq!(query, ReasonQuery::Over);
    }

    #[test]
    fn an_answer_that_nothing_awaits_is_ignored() {
        for state in [ReasonQuery::NotSent, ReasonQuery::Over] {
            let mut query = state;
            assert_eq!(query.on_jobs(JobId(1), JobsPage::default()), Ok(None));
        }
    }
}
