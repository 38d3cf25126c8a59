//! Requests of sacctmgr.

use crate::account_limits::LimitAsk;
use crate::accounts::{ClusterFeatures, Federation, JobNote, SharedResource};
use crate::ids::JobId;
use crate::limits::EDIT_ITEMS_MAX;
use crate::storage::StorageScan;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Request of sacctmgr: an edit of the entities of these names.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct AccountsEdit {
    /// Accounts, users or QOS.
    #[n(0)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub names: Vec<String>,
    /// The change.
    #[n(1)]
    pub ask: AccountsAsk,
    /// The cluster whose records of accounts and users are changed; the controller's own if empty.
    #[n(2)]
    #[cbor(default)]
    pub cluster: String,
}

/// Edits of accounting. Empty texts and lists change nothing, or stand for all.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum AccountsAsk {
    /// `add account`.
    #[n(0)]
    AddAccounts {
        /// `Parent`; `root` if empty.
        #[n(0)]
        parent: String,
        /// `Description`; the name if empty.
        #[n(1)]
        description: String,
        /// `Organization`; the name if empty.
        #[n(2)]
        organization: String,
        /// Settings of its association.
        #[n(3)]
        terms: TermsAsk,
    },
    /// `modify account`.
    #[n(1)]
    ModifyAccounts {
        /// As above.
        #[n(0)]
        parent: String,
        /// As above.
        #[n(1)]
        description: String,
        /// As above.
        #[n(2)]
        organization: String,
        /// As above.
        #[n(3)]
        terms: TermsAsk,
    },
    /// `delete account`.
    #[n(2)]
    DeleteAccounts,
    /// `add user`.
    #[n(3)]
    AddUsers {
        /// Accounts that they are in.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
        /// `DefaultAccount`.
        #[n(1)]
        default_account: String,
        /// `AdminLevel`.
        #[n(2)]
        admin_level: String,
        /// Settings of their associations.
        #[n(3)]
        terms: TermsAsk,
        /// Their workload characterization keys.
        #[n(4)]
        #[cbor(default)]
        wckeys: WckeysAsk,
        /// Partitions: associations that hold there only, in place of one for all.
        #[n(5)]
        #[cbor(default)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        partitions: Vec<String>,
    },
    /// `modify user`.
    #[n(4)]
    ModifyUsers {
        /// Associations in these accounts only.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
        /// `DefaultAccount`.
        #[n(1)]
        default_account: String,
        /// `AdminLevel`.
        #[n(2)]
        admin_level: String,
        /// Settings of their associations.
        #[n(3)]
        terms: TermsAsk,
        /// Their workload characterization keys.
        #[n(4)]
        #[cbor(default)]
        wckeys: WckeysAsk,
        /// Associations for these partitions only.
        #[n(5)]
        #[cbor(default)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        partitions: Vec<String>,
    },
    /// `delete user`.
    #[n(5)]
    DeleteUsers {
        /// From these accounts only.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
        /// Associations for these partitions only.
        #[n(1)]
        #[cbor(default)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        partitions: Vec<String>,
    },
    /// `add qos`.
    #[n(6)]
    AddQos(#[n(0)] QosAsk),
    /// `modify qos`.
    #[n(7)]
    ModifyQos(#[n(0)] QosAsk),
    /// `delete qos`.
    #[n(8)]
    DeleteQos,
    /// `modify user set RawUsage=0`.
    #[n(9)]
    ResetUsage {
        /// In these accounts only.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
    },
    /// `delete user wckeys=`: these keys of the users named, of all if none is.
    #[n(10)]
    DeleteWckeys(
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        Vec<String>,
    ),
    /// `add coordinator`: the users named, of these accounts.
    #[n(11)]
    AddCoordinators {
        /// The accounts.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
    },
    /// `delete coordinator`: the users named, or all, of these accounts, or of all.
    #[n(12)]
    DeleteCoordinators {
        /// The accounts.
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        accounts: Vec<String>,
    },
    /// `modify user set NewName=`: the one user named gets this name.
    #[n(13)]
    RenameUser {
        /// Its new name.
        #[n(0)]
        to: String,
    },
    /// `add cluster`: records of clusters that another controller serves.
    #[n(14)]
    AddClusters(#[n(0)] ClusterAsk),
    /// `modify cluster`: the terms of `root` of the controller's own cluster.
    #[n(15)]
    ModifyClusters(#[n(0)] ClusterAsk),
    /// `delete cluster`.
    #[n(16)]
    DeleteClusters,
    /// `modify account set RawUsage=0`: of the accounts named and all below them.
    #[n(17)]
    ResetAccountUsage,
    /// `modify qos set RawUsage=0`.
    #[n(18)]
    ResetQosUsage,
    /// `modify job`: texts of jobs that are over, whose numbers are the names.
    #[n(19)]
    NoteJobs(#[n(0)] JobNote),
    /// No new job gets a number up to this one: jobs that were brought from another cluster have them.
    #[n(20)]
    ReserveJobIds(#[n(0)] JobId),
    /// Use of users in accounts as known to another cluster, in place of the use known here.
    #[n(21)]
    SetUsage(
        #[n(0)]
        #[valid(max_items = EDIT_ITEMS_MAX)]
        Vec<UsageAsk>,
    ),
    /// `add` and `modify resource`: this record, in place of the one of its name and server.
    #[n(22)]
    SetResource(#[n(0)] SharedResource),
    /// `delete resource`: those of these names, as `ansys@flex1`.
    #[n(23)]
    DeleteResources,
    /// `add` and `modify federation`, and of its clusters: this record, in place of the one of its name.
    #[n(24)]
    SetFederation(#[n(0)] Federation),
    /// `delete federation`.
    #[n(25)]
    DeleteFederations,
    /// `add` and `modify cluster set Features=`: all that the cluster has.
    #[n(26)]
    SetFeatures(#[n(0)] ClusterFeatures),
    /// `muster storage scan`: use of the named file system by users.
    #[n(30)]
    RecordStorage(#[n(0)] StorageScan),
}

/// The use of a user in an account, for fair share.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct UsageAsk {
    /// The account.
    #[n(0)]
    pub account: String,
    /// The user.
    #[n(1)]
    pub user: String,
    /// Billing units times seconds, decayed to now.
    #[n(2)]
    pub raw: u64,
}

/// New settings of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ClusterAsk {
    /// `Classification`.
    #[n(0)]
    pub classification: Option<String>,
    /// Terms of its associations that set nothing themselves.
    #[n(1)]
    pub terms: TermsAsk,
}

/// Edit of a list of names: it is replaced, made longer (`+=`) or shorter (`-=`).
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct ListEdit {
    /// `+` or `-` in front of the equal sign; any other adds.
    #[n(0)]
    pub sign: Option<char>,
    /// The names.
    #[n(1)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub names: Vec<String>,
}

/// Workload characterization keys that a user is to have.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct WckeysAsk {
    /// `DefaultWCKey`; empty clears.
    #[n(0)]
    pub default: Option<String>,
    /// `WCKeys`, with `+` or `-` in front of the equal sign.
    #[n(1)]
    pub keys: Option<ListEdit>,
}

/// New settings of an association; `Some(None)` clears.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct TermsAsk {
    /// `Fairshare`.
    #[n(0)]
    #[cbor(with = "crate::cbor::clearable")]
    #[cbor(default)]
    pub shares: Option<Option<u32>>,
    /// `Priority`.
    #[n(1)]
    #[cbor(with = "crate::cbor::clearable")]
    #[cbor(default)]
    pub priority: Option<Option<u32>>,
    /// `DefaultQOS`; empty clears.
    #[n(2)]
    pub default_qos: Option<String>,
    /// `QosLevel`, with `+` or `-` in front of the equal sign.
    #[n(3)]
    pub qos: Option<ListEdit>,
    /// Limits, in order.
    #[n(4)]
    #[cbor(default)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub limits: Vec<LimitAsk>,
    /// QOS that are taken away after what `qos` adds.
    #[n(5)]
    #[cbor(default)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub qos_less: Vec<String>,
}

/// New settings of a QOS.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct QosAsk {
    /// `Description`.
    #[n(0)]
    pub description: Option<String>,
    /// `Priority`.
    #[n(1)]
    pub priority: Option<u32>,
    /// `Preempt`, with `+` or `-` in front of the equal sign.
    #[n(2)]
    pub preempt: Option<ListEdit>,
    /// `PreemptMode`.
    #[n(3)]
    pub preempt_mode: Option<String>,
    /// `PreemptExemptTime`, seconds; `Some(None)` clears.
    #[n(4)]
    #[cbor(with = "crate::cbor::clearable")]
    #[cbor(default)]
    pub preempt_exempt_s: Option<Option<u32>>,
    /// `GraceTime`, seconds.
    #[n(5)]
    pub grace_time_s: Option<u32>,
    /// `UsageFactor` in millionths.
    #[n(6)]
    pub usage_factor_millionths: Option<u64>,
    /// Limits, in order.
    #[n(7)]
    #[cbor(default)]
    #[valid(max_items = EDIT_ITEMS_MAX)]
    pub limits: Vec<LimitAsk>,
    /// `Flags`, with `+` or `-` in front of the equal sign.
    #[n(8)]
    pub flags: Option<ListEdit>,
    /// `UsageThreshold` in millionths; `Some(None)` clears.
    #[n(9)]
    #[cbor(with = "crate::cbor::clearable")]
    #[cbor(default)]
    pub usage_threshold_millionths: Option<Option<u64>>,
    /// `LimitFactor` in millionths; `Some(None)` clears.
    #[n(10)]
    #[cbor(with = "crate::cbor::clearable")]
    #[cbor(default)]
    pub limit_factor_millionths: Option<Option<u64>>,
}
