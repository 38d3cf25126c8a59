//! Requests of sacctmgr.

use crate::account_limits::LimitAsk;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// What sacctmgr asks for: an edit of the entities of these names.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct AccountsEdit {
    /// Accounts, users or QOS.
    #[n(0)]
    pub names: Vec<String>,
    /// The change.
    #[n(1)]
    pub ask: AccountsAsk,
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
    },
    /// `modify user`.
    #[n(4)]
    ModifyUsers {
        /// Associations in these accounts only.
        #[n(0)]
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
    },
    /// `delete user`.
    #[n(5)]
    DeleteUsers {
        /// From these accounts only.
        #[n(0)]
        accounts: Vec<String>,
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
        accounts: Vec<String>,
    },
    /// `delete user wckeys=`: these keys of the users named, of all if none is.
    #[n(10)]
    DeleteWckeys(#[n(0)] Vec<String>),
    /// `add coordinator`: the users named, of these accounts.
    #[n(11)]
    AddCoordinators {
        /// The accounts.
        #[n(0)]
        accounts: Vec<String>,
    },
    /// `delete coordinator`: the users named, or all, of these accounts, or of all.
    #[n(12)]
    DeleteCoordinators {
        /// The accounts.
        #[n(0)]
        accounts: Vec<String>,
    },
}

/// Workload characterization keys that a user is to have.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct WckeysAsk {
    /// `DefaultWCKey`; empty clears.
    #[n(0)]
    pub default: Option<String>,
    /// `WCKeys`, with `+` or `-` in front of the equal sign.
    #[n(1)]
    pub keys: Option<(Option<char>, Vec<String>)>,
}

/// New settings of an association; `Some(None)` clears.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct TermsAsk {
    /// `Fairshare`.
    #[n(0)]
    pub shares: Option<Option<u32>>,
    /// `Priority`.
    #[n(1)]
    pub priority: Option<Option<u32>>,
    /// `DefaultQOS`; empty clears.
    #[n(2)]
    pub default_qos: Option<String>,
    /// `QosLevel`, with `+` or `-` in front of the equal sign.
    #[n(3)]
    pub qos: Option<(Option<char>, Vec<String>)>,
    /// Limits, in order.
    #[n(4)]
    #[cbor(default)]
    pub limits: Vec<LimitAsk>,
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
    pub preempt: Option<(Option<char>, Vec<String>)>,
    /// `PreemptMode`.
    #[n(3)]
    pub preempt_mode: Option<String>,
    /// `PreemptExemptTime`, seconds; `Some(None)` clears.
    #[n(4)]
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
    pub limits: Vec<LimitAsk>,
    /// `Flags`, with `+` or `-` in front of the equal sign.
    #[n(8)]
    pub flags: Option<(Option<char>, Vec<String>)>,
}
