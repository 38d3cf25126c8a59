//! Slurm's names of requests, as sdiag prints them.

use muster_model::command::UserCommand;
use muster_model::trigger::TriggerAsk;
use muster_proto::archive::ArchiveRequest;
use muster_proto::client::{Query, RequestBody};

/// The name of a request.
pub(super) fn kind(body: &RequestBody) -> &'static str {
    match body {
        RequestBody::Command(command) => match **command {
            UserCommand::Submit { .. } => "REQUEST_SUBMIT_BATCH_JOB",
            UserCommand::SubmitHet { .. } => "REQUEST_SUBMIT_BATCH_HET_JOB",
            UserCommand::Cancel { .. } | UserCommand::Signal { .. } => "REQUEST_KILL_JOB",
            UserCommand::UpdateJob { .. } => "REQUEST_UPDATE_JOB",
            UserCommand::UpdateNodes { .. } => "REQUEST_UPDATE_NODE",
            UserCommand::UpdatePartition { .. } => "REQUEST_UPDATE_PARTITION",
            UserCommand::CreatePartition { .. } => "REQUEST_CREATE_PARTITION",
            UserCommand::DeletePartition { .. } => "REQUEST_DELETE_PARTITION",
            UserCommand::CreateNodes { .. } => "REQUEST_CREATE_NODE",
            UserCommand::DeleteNodes { .. } => "REQUEST_DELETE_NODE",
            UserCommand::TakeNode(_) => "REQUEST_TAKE_NODE",
            UserCommand::Reboot { .. } | UserCommand::CancelReboot { .. } => "REQUEST_REBOOT_NODES",
            UserCommand::EditAccounts(_) => "DBD_MODIFY_ASSOCS",
            UserCommand::CreateReservation(_) => "REQUEST_CREATE_RESERVATION",
            UserCommand::UpdateReservation(_) => "REQUEST_UPDATE_RESERVATION",
            UserCommand::DeleteReservation { .. } => "REQUEST_DELETE_RESERVATION",
            UserCommand::UpdateStep { .. } => "REQUEST_UPDATE_JOB_STEP",
            UserCommand::SetCrontab(_) => "REQUEST_UPDATE_CRONTAB",
            UserCommand::Trigger(ref ask) => match **ask {
                TriggerAsk::Set { .. } => "REQUEST_TRIGGER_SET",
                TriggerAsk::Clear { .. } => "REQUEST_TRIGGER_CLEAR",
            },
            UserCommand::Notify { .. } => "REQUEST_JOB_NOTIFY",
            UserCommand::Reconfigure => "REQUEST_RECONFIGURE",
            UserCommand::EndAllocation { .. } => "REQUEST_COMPLETE_JOB_ALLOCATION",
            UserCommand::Requeue { .. } => "REQUEST_JOB_REQUEUE",
            UserCommand::Suspend { .. } | UserCommand::Resume { .. } => "REQUEST_SUSPEND",
            UserCommand::Hold { .. } | UserCommand::Release { .. } | UserCommand::Top { .. } => {
                "REQUEST_UPDATE_JOB"
            }
        },
        RequestBody::Query(query) => match **query {
            Query::Ping => "REQUEST_PING",
            Query::Jobs(_) | Query::Listing(_) => "REQUEST_JOB_INFO",
            Query::Cluster => "REQUEST_NODE_INFO",
            Query::Partitions => "REQUEST_PARTITION_INFO",
            Query::Config | Query::JobClasses => "REQUEST_BUILD_INFO",
            Query::Script(_) => "REQUEST_BATCH_SCRIPT",
            Query::Environment(_) => "REQUEST_JOB_ENVIRONMENT",
            Query::Allocation(_) => "REQUEST_JOB_ALLOCATION_INFO",
            Query::Accounting(_) => "DBD_GET_JOBS_COND",
            Query::ReservationTimes(_) => "DBD_GET_RESVS",
            Query::JobText(_) => "DBD_GET_JOBS_COND",
            Query::Usage(_) => "DBD_GET_ASSOC_USAGE",
            Query::NodeEvents(_) => "DBD_GET_EVENTS",
            Query::Transactions(_) => "DBD_GET_TXN",
            Query::Storage => "DBD_GET_STORAGE",
            Query::KnownClusters => "DBD_GET_CLUSTERS",
            Query::Diag => "REQUEST_STATS_INFO",
            Query::ResetDiag => "REQUEST_STATS_RESET",
            Query::Reservations => "REQUEST_RESERVATION_INFO",
            Query::Licenses => "REQUEST_LICENSE_INFO",
            Query::Differences => "REQUEST_RECONFIGURE",
            Query::Accounts | Query::AccountsOfClusters => "REQUEST_SHARE_INFO",
            Query::AccountsInUse => "REQUEST_ASSOC_MGR_INFO",
            Query::JobCounts => "REQUEST_JOB_STATE",
            Query::Changes(_) => "MUSTER_CHANGES",
            Query::Priorities => "REQUEST_PRIORITY_FACTORS",
            Query::Why { .. } => "REQUEST_JOB_INFO_SINGLE",
            Query::Crontab { .. } => "REQUEST_CRONTAB",
            Query::Triggers => "REQUEST_TRIGGER_GET",
        },
        RequestBody::WaitStarted(_) | RequestBody::WaitEnded(_) => "REQUEST_JOB_READY",
        RequestBody::WaitNodes(_) => "REQUEST_NODE_INFO",
        RequestBody::Token { .. } => "REQUEST_AUTH_TOKEN",
        RequestBody::NodeToken { .. } | RequestBody::ForgetNodeKeys(_) | RequestBody::NodeKeys => {
            "MUSTER_NODE_KEYS"
        }
        RequestBody::Archive(ArchiveRequest::Dump(_)) => "DBD_ARCHIVE_DUMP",
        RequestBody::Archive(ArchiveRequest::Load { .. }) => "DBD_ARCHIVE_LOAD",
        RequestBody::SetDebug(_) => "REQUEST_SET_DEBUG_LEVEL",
        RequestBody::Hold(_) => "REQUEST_RESOURCE_ALLOCATION",
        RequestBody::NodeHello(_) | RequestBody::ServeNode(_) => "MESSAGE_NODE_REGISTRATION_STATUS",
        RequestBody::Shutdown { .. } => "REQUEST_SHUTDOWN",
    }
}
