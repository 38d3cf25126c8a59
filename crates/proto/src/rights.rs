//! Which row of the table of rights ([`muster_model::rights`]) each message belongs to. The matches have no wildcard: a new
//! message needs a row before it compiles.

use crate::client::{Query, RequestBody};
use crate::step::AgentRequest;
use muster_model::rights::AccessRequest;

impl From<&RequestBody> for AccessRequest {
    fn from(body: &RequestBody) -> AccessRequest {
        match body {
            RequestBody::Command(command) => AccessRequest::from(&**command),
            RequestBody::Query(query) => AccessRequest::from(&**query),
            RequestBody::WaitStarted(_) => AccessRequest::WaitStarted,
            RequestBody::WaitEnded(_) => AccessRequest::WaitEnded,
            RequestBody::Hold(_) => AccessRequest::HoldAllocation,
            RequestBody::NodeHello(_) => AccessRequest::NodeHello,
            RequestBody::Shutdown { .. } => AccessRequest::Shutdown,
            RequestBody::WaitNodes(_) => AccessRequest::WaitNodes,
            RequestBody::SetDebug(_) => AccessRequest::SetDebug,
            RequestBody::ServeNode(_) => AccessRequest::ServeNode,
            RequestBody::Token { .. } => AccessRequest::Token,
            RequestBody::NodeToken { .. } => AccessRequest::NodeToken,
            RequestBody::ForgetNodeKeys(_) => AccessRequest::ForgetNodeKeys,
            RequestBody::NodeKeys => AccessRequest::NodeKeys,
            RequestBody::Archive(request) => match request.names_places() {
                true => AccessRequest::ArchiveToOther,
                false => AccessRequest::Archive,
            },
        }
    }
}

impl From<&Query> for AccessRequest {
    fn from(query: &Query) -> AccessRequest {
        match query {
            Query::Ping => AccessRequest::Ping,
            Query::Jobs(_) => AccessRequest::Jobs,
            Query::Cluster => AccessRequest::Cluster,
            Query::Config | Query::JobClasses => AccessRequest::Config,
            Query::Script(_) => AccessRequest::Script,
            Query::JobText(_) => AccessRequest::JobText,
            Query::ReservationTimes(_) => AccessRequest::ReservationTimes,
            Query::Environment(_) => AccessRequest::Environment,
            Query::Allocation(_) => AccessRequest::Allocation,
            Query::Accounting(_) => AccessRequest::Accounting,
            Query::Diag => AccessRequest::Diag,
            Query::Partitions => AccessRequest::Partitions,
            Query::ResetDiag => AccessRequest::ResetDiag,
            Query::Reservations => AccessRequest::Reservations,
            Query::NodeEvents(_) => AccessRequest::NodeEvents,
            Query::Transactions(_) => AccessRequest::Transactions,
            Query::Differences => AccessRequest::Differences,
            Query::Accounts | Query::AccountsOfClusters | Query::AccountsInUse => {
                AccessRequest::Accounts
            }
            Query::Priorities => AccessRequest::Priorities,
            Query::JobCounts => AccessRequest::JobCounts,
            Query::Storage => AccessRequest::Storage,
            Query::KnownClusters => AccessRequest::KnownClusters,
            Query::Usage(_) => AccessRequest::Usage,
            Query::Changes(_) => AccessRequest::Changes,
            Query::Licenses => AccessRequest::Licenses,
            Query::Listing(_) => AccessRequest::Listing,
            Query::Why { .. } => AccessRequest::Why,
            Query::Crontab { .. } => AccessRequest::Crontab,
            Query::Triggers => AccessRequest::Triggers,
        }
    }
}

impl From<&AgentRequest> for AccessRequest {
    fn from(request: &AgentRequest) -> AccessRequest {
        match request {
            AgentRequest::Create(_) => AccessRequest::CreateStep,
            AgentRequest::StartStep(..) => AccessRequest::StartStep,
            AgentRequest::StepNodeEnded { .. } => AccessRequest::StepNodeEnded,
            AgentRequest::SignalStep { .. } => AccessRequest::SignalStep,
            AgentRequest::FindStep { .. } => AccessRequest::FindStep,
            AgentRequest::Inspect { .. } => AccessRequest::Inspect,
            AgentRequest::Measure { .. } => AccessRequest::Measure,
            AgentRequest::LocateStep { .. } => AccessRequest::LocateStep,
            AgentRequest::TakeStepNumber { .. } => AccessRequest::TakeStepNumber,
            AgentRequest::ServeNode(..) => AccessRequest::ServeNode,
            AgentRequest::Greeting(_) => AccessRequest::Greeting,
        }
    }
}
