//! Changes of accounting's records.

use minicbor::{Decode, Encode};
use muster_model::account_limits::Scope;
use muster_model::accounts::{
    Account, AssociationTerms, Cluster, ClusterFeatures, Federation, JobNote, Qos, SharedResource,
    User,
};
use muster_model::ids::JobId;
use muster_model::storage::StorageScan;

/// One change of the records of a cluster that another controller serves.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum RecordChange {
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
    /// The settings for `root`.
    #[n(4)]
    Root(#[n(0)] AssociationTerms),
    /// A user has another name.
    #[n(5)]
    UserRenamed {
        /// The name that it had.
        #[n(0)]
        from: String,
        /// The name that it has.
        #[n(1)]
        to: String,
    },
}

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
    /// A user has another name.
    #[n(7)]
    UserRenamed {
        /// The name that it had.
        #[n(0)]
        from: String,
        /// The name that it has.
        #[n(1)]
        to: String,
    },
    /// The settings for `root`.
    #[n(8)]
    Root(#[n(0)] AssociationTerms),
    /// Another cluster's record as it is now; its accounts and users stay as they are.
    #[n(9)]
    Cluster(#[n(0)] Cluster),
    /// Another cluster's record is gone.
    #[n(10)]
    ClusterGone(#[n(0)] String),
    /// `Classification` of the controller's own cluster.
    #[n(11)]
    Classified(#[n(0)] String),
    /// The counts towards the limits of a scope are forgotten.
    #[n(12)]
    ScopeReset(#[n(0)] Scope),
    /// Texts of a job that is over, for accounting.
    #[n(13)]
    JobNoted {
        /// The job.
        #[n(0)]
        job: JobId,
        /// The only user whose job is changed.
        #[n(1)]
        owner: Option<u32>,
        /// The texts.
        #[n(2)]
        note: JobNote,
    },
    /// New jobs have higher numbers than this.
    #[n(14)]
    JobIdsReserved(#[n(0)] JobId),
    /// The use of a user's jobs in an account, from another cluster.
    #[n(15)]
    UsageSet {
        /// The account.
        #[n(0)]
        account: String,
        /// The user.
        #[n(1)]
        user: String,
        /// Billing units times seconds.
        #[n(2)]
        raw: u64,
    },
    /// Use of a file system by users, for accounting.
    #[n(30)]
    StorageRecorded {
        /// The file system.
        #[n(0)]
        name: String,
        /// The scan.
        #[n(1)]
        scan: StorageScan,
    },
    /// A record of another cluster's changed.
    #[n(16)]
    OfCluster {
        /// The cluster.
        #[n(0)]
        cluster: String,
        /// The change.
        #[n(1)]
        change: RecordChange,
    },
    /// A resource as it is now.
    #[n(17)]
    Resource(#[n(0)] SharedResource),
    /// A resource is gone, by name and server.
    #[n(18)]
    ResourceGone(#[n(0)] String),
    /// A federation as it is now.
    #[n(19)]
    Federation(#[n(0)] Federation),
    /// A federation is gone.
    #[n(20)]
    FederationGone(#[n(0)] String),
    /// Features of a cluster as they are now.
    #[n(21)]
    Features(#[n(0)] ClusterFeatures),
}
