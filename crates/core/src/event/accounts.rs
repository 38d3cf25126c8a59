//! Changes of accounting's records.

use minicbor::{Decode, Encode};
use muster_model::accounts::{Account, Qos, User};

/// One change of accounting's records.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum AccountsChange {
    /// An account as it is now.
    #[n(0)]
    Account(#[n(0)] Account),
    /// An account is gone, and its users' associations with it.
    #[n(1)]
    AccountGone(#[n(0)] String),
    /// A user as it is now.
    #[n(2)]
    User(#[n(0)] User),
    /// A user is gone.
    #[n(3)]
    UserGone(#[n(0)] String),
    /// A QOS as it is now.
    #[n(4)]
    Qos(#[n(0)] Qos),
    /// A QOS is gone.
    #[n(5)]
    QosGone(#[n(0)] String),
    /// Use is forgotten, of one user or of all.
    #[n(6)]
    UsageReset(#[n(0)] Option<(String, String)>),
}
