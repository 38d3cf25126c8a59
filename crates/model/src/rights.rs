//! Rights of users. Every request that a daemon answers is a row of one table ([`AccessRequest`]); the checks that
//! decisions and answers make look there, and docs/security.md prints it.

mod table;

pub use table::{AccessRequest, Group};

use crate::accounts::Accounts;
use crate::refusal::{Refusal, RefusalCode};
use std::fmt;

/// The role of a user in the cluster, from the lowest to the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An ordinary user. May be the owner of a job, or the coordinator of an account.
    #[default]
    User,
    /// `AdminLevel=Operator`.
    Operator,
    /// `AdminLevel=Administrator`.
    Administrator,
    /// `SlurmUser`, and the user that the controller runs as.
    SlurmUser,
    /// Uid 0.
    Root,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::User => "user",
            Role::Operator => "operator",
            Role::Administrator => "administrator",
            Role::SlurmUser => "SlurmUser",
            Role::Root => "root",
        })
    }
}

/// The least that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinimumRole {
    /// Every user.
    Anyone,
    /// The owner of the job. An operator.
    Owner,
    /// The owner of the job, or a coordinator of its account. An operator.
    Manager,
    /// The owner of the job. `SlurmUser`: the answer lets its bearer run programs as the owner.
    OwnerAlone,
    /// The user that it is about. An operator.
    Oneself,
    /// A coordinator of the account. An operator.
    Coordinator,
    /// An operator.
    Operator,
    /// An administrator.
    Administrator,
    /// `SlurmUser`.
    SlurmUser,
    /// A bearer of a token for the node.
    TokenBearer,
    /// At a node's agent: the owner of the job, or root.
    NodeOwner,
    /// At a node's agent: the owner of the job, root, or a bearer of the job's key.
    NodeOwnerOrKey,
    /// At a node's agent: a bearer of the job's key.
    NodeKey,
}

impl MinimumRole {
    /// The role that suffices whatever the request is about; none where no role does.
    pub fn role(self) -> Option<Role> {
        match self {
            MinimumRole::Anyone => Some(Role::User),
            MinimumRole::Owner
            | MinimumRole::Manager
            | MinimumRole::Oneself
            | MinimumRole::Coordinator
            | MinimumRole::Operator => Some(Role::Operator),
            MinimumRole::Administrator => Some(Role::Administrator),
            MinimumRole::OwnerAlone | MinimumRole::SlurmUser => Some(Role::SlurmUser),
            MinimumRole::NodeOwner | MinimumRole::NodeOwnerOrKey => Some(Role::Root),
            MinimumRole::TokenBearer | MinimumRole::NodeKey => None,
        }
    }

    /// As docs/security.md has it.
    pub fn text(self) -> &'static str {
        match self {
            MinimumRole::Anyone => "every user",
            MinimumRole::Owner => "owner of the job, operator",
            MinimumRole::Manager => "owner of the job, coordinator of its account, operator",
            MinimumRole::OwnerAlone => "owner of the job, SlurmUser",
            MinimumRole::Oneself => "the user itself, operator",
            MinimumRole::Coordinator => "coordinator of the account, operator",
            MinimumRole::Operator => "operator",
            MinimumRole::Administrator => "administrator",
            MinimumRole::SlurmUser => "SlurmUser",
            MinimumRole::TokenBearer => "bearer of a token for the node",
            MinimumRole::NodeOwner => "owner of the job, root",
            MinimumRole::NodeOwnerOrKey => "owner of the job, root, bearer of the job's key",
            MinimumRole::NodeKey => "bearer of the job's key",
        }
    }

    /// Whether it depends on what the request is about, so that a role alone does not decide it.
    pub fn needs_object(self) -> bool {
        match self {
            MinimumRole::Owner
            | MinimumRole::Manager
            | MinimumRole::OwnerAlone
            | MinimumRole::Oneself
            | MinimumRole::Coordinator
            | MinimumRole::TokenBearer
            | MinimumRole::NodeOwner
            | MinimumRole::NodeOwnerOrKey
            | MinimumRole::NodeKey => true,
            MinimumRole::Anyone
            | MinimumRole::Operator
            | MinimumRole::Administrator
            | MinimumRole::SlurmUser => false,
        }
    }
}

/// Whether the user of that uid may make a request to a node's agent. The agent knows neither accounts nor roles.
pub fn may_on_node(request: AccessRequest, uid: u32, owner: u32, has_key: bool) -> bool {
    match request.least() {
        MinimumRole::NodeOwner => uid == 0 || uid == owner,
        MinimumRole::NodeOwnerOrKey => uid == 0 || uid == owner || has_key,
        MinimumRole::NodeKey => has_key,
        MinimumRole::Anyone
        | MinimumRole::Owner
        | MinimumRole::Manager
        | MinimumRole::OwnerAlone
        | MinimumRole::Oneself
        | MinimumRole::Coordinator
        | MinimumRole::Operator
        | MinimumRole::Administrator
        | MinimumRole::SlurmUser
        | MinimumRole::TokenBearer => false,
    }
}

/// Whether a role suffices for a request, whatever that is about.
pub fn suffices(role: Role, request: AccessRequest) -> bool {
    request.least().role().is_some_and(|least| role >= least)
}

/// Whether a request may be made by who has shown a token for the node, or has not.
pub fn may_by_token(request: AccessRequest, has_token: bool) -> bool {
    request.least() == MinimumRole::TokenBearer && has_token
}

/// The refusal where the role does not suffice.
pub fn denied(request: AccessRequest) -> Refusal {
    let (text, least) = (request.text(), request.least().text());
    let detail = format!("{text}: allowed to {least} only");
    Refusal::new(RefusalCode::AccessDenied, detail)
}

/// Whether a user is a coordinator of an account, or of one that it is under.
pub fn coordinates(accounts: &Accounts, user: &str, account: &str) -> bool {
    let Some(user) = accounts.users.get(user) else {
        return false;
    };
    !user.coordinates.is_empty()
        && (accounts.upwards(account)).any(|name| user.coordinates.iter().any(|own| own == name))
}
