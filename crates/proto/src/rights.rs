//! Which row of the table of rights ([`muster_model::rights`]) each message belongs to. The matches have no wildcard: a new
//! message needs a row before it compiles.

use crate::client::{Query, RequestBody};
use crate::step::AgentRequest;
use muster_model::rights::Request;

impl From<&RequestBody> for Request {
    fn from(body: &RequestBody) -> Request {
        match body {
            RequestBody::Command(command) => Request::from(&**command),
            RequestBody::Query(query) => Request::from(&**query),
            RequestBody::WaitStarted(_) => Request::WaitStarted,
            RequestBody::WaitEnded(_) => Request::WaitEnded,
            RequestBody::Hold(_) => Request::HoldAllocation,
            RequestBody::NodeHello(_) => Request::NodeHello,
            RequestBody::Shutdown { .. } => Request::Shutdown,
            RequestBody::WaitNodes(_) => Request::WaitNodes,
            RequestBody::SetDebug(_) => Request::SetDebug,
            RequestBody::ServeNode(_) => Request::ServeNode,
            RequestBody::Token { .. } => Request::Token,
            RequestBody::NodeToken { .. } => Request::NodeToken,
            RequestBody::ForgetNodeKeys(_) => Request::ForgetNodeKeys,
            RequestBody::NodeKeys => Request::NodeKeys,
        }
    }
}

impl From<&Query> for Request {
    fn from(query: &Query) -> Request {
        match query {
            Query::Ping => Request::Ping,
            Query::Jobs(_) => Request::Jobs,
            Query::Cluster => Request::Cluster,
            Query::Config | Query::JobClasses => Request::Config,
            Query::Script(_) => Request::Script,
            Query::Allocation(_) => Request::Allocation,
            Query::Accounting(_) => Request::Accounting,
            Query::Diag => Request::Diag,
            Query::Partitions => Request::Partitions,
            Query::ResetDiag => Request::ResetDiag,
            Query::Reservations => Request::Reservations,
            Query::NodeEvents(_) => Request::NodeEvents,
            Query::Transactions(_) => Request::Transactions,
            Query::Differences => Request::Differences,
            Query::Accounts | Query::AccountsOfClusters => Request::Accounts,
            Query::Priorities => Request::Priorities,
            Query::JobCounts => Request::JobCounts,
            Query::Usage(_) => Request::Usage,
            Query::Changes(_) => Request::Changes,
            Query::Licenses => Request::Licenses,
            Query::Listing(_) => Request::Listing,
            Query::Why(_) => Request::Why,
            Query::Crontab { .. } => Request::Crontab,
        }
    }
}

impl From<&AgentRequest> for Request {
    fn from(request: &AgentRequest) -> Request {
        match request {
            AgentRequest::Create(_) => Request::CreateStep,
            AgentRequest::StartStep(..) => Request::StartStep,
            AgentRequest::StepNodeEnded { .. } => Request::StepNodeEnded,
            AgentRequest::SignalStep { .. } => Request::SignalStep,
            AgentRequest::FindStep { .. } => Request::FindStep,
            AgentRequest::Inspect { .. } => Request::Inspect,
            AgentRequest::Measure { .. } => Request::Measure,
            AgentRequest::LocateStep { .. } => Request::LocateStep,
            AgentRequest::TakeStepNumber { .. } => Request::TakeStepNumber,
            AgentRequest::ServeNode(..) => Request::ServeNode,
            AgentRequest::Greeting(_) => Request::Greeting,
        }
    }
}
