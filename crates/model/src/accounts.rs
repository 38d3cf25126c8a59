//! Accounts, users, associations and qualities of service: the records of sacctmgr, their use by jobs, and the fair
//! share of the cluster for each user. Shares are computed when an event says so, so that all replicas of the same
//! events have equal shares.

mod exemptions;
mod lists;
mod own_cluster;
mod shared;
mod shares;

pub use exemptions::PartitionExemptions;
pub use shared::{
    ClusterFeatures, FEDERATION_CLUSTERS_MAX, Federation, FederationMember, RESOURCE_SERVER,
    ResourceShare, SharedResource,
};

use crate::account_limits::{Limits, Scope, TresUsage};
use crate::time::Timestamp;
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// The account that all others are under.
pub const ROOT: &str = "root";
/// The QOS that jobs have which ask for none.
pub const NORMAL: &str = "normal";
/// Shares of an association that has its account's (`fairshare=parent`).
pub const PARENT_SHARES: u32 = u32::MAX;

/// An account.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Account {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The account that it is under; empty for `root`.
    #[n(1)]
    pub parent: String,
    /// `Description`.
    #[n(2)]
    pub description: String,
    /// `Organization`.
    #[n(3)]
    pub organization: String,
    /// The settings of its association.
    #[n(4)]
    pub terms: AssociationTerms,
}

/// The settings of an association.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct AssociationTerms {
    /// `Fairshare`; 1 if absent.
    #[n(0)]
    pub shares: Option<u32>,
    /// `Priority`, the association factor.
    #[n(1)]
    pub priority: Option<u32>,
    /// `DefaultQOS`.
    #[n(2)]
    pub default_qos: Option<String>,
    /// `QosLevel`; those of the account above if absent.
    #[n(3)]
    pub qos: Option<Vec<String>>,
    /// Its limits.
    #[n(4)]
    #[cbor(default)]
    pub limits: Limits,
    /// The number of the association; 0 until a change of accounting gives it one.
    #[n(5)]
    #[cbor(default)]
    pub id: u32,
    /// QOS that it has beside those of the account above (`QOS+=`) or does not have of them (`QOS-=`), where `qos` says
    /// nothing.
    #[n(6)]
    #[cbor(default)]
    pub qos_delta: QosDelta,
}

/// Changes of an association's list of QOS to the list of the account above.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct QosDelta {
    /// Added QOS.
    #[n(0)]
    pub more: Vec<String>,
    /// Removed QOS.
    #[n(1)]
    pub less: Vec<String>,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct User {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// `DefaultAccount`.
    #[n(1)]
    pub default_account: String,
    /// `AdminLevel`: `None`, `Operator`, `Administrator`.
    #[n(2)]
    pub admin_level: String,
    /// Associations, by account.
    #[n(3)]
    pub accounts: BTreeMap<String, AssociationTerms>,
    /// `WCKeys`: workload characterization keys that its jobs may name.
    #[n(4)]
    #[cbor(default)]
    pub wckeys: Vec<String>,
    /// `DefaultWCKey`; empty for none.
    #[n(5)]
    #[cbor(default)]
    pub default_wckey: String,
    /// Accounts that it coordinates, with all that are under them.
    #[n(6)]
    #[cbor(default)]
    pub coordinates: Vec<String>,
    /// Associations that hold in one partition only, by account and partition.
    #[n(7)]
    #[cbor(default)]
    pub partitions: BTreeMap<String, BTreeMap<String, AssociationTerms>>,
}

impl User {
    /// Its associations: account, partition where it holds in one only, settings.
    pub fn associations(&self) -> impl Iterator<Item = (&str, &str, &AssociationTerms)> {
        let whole = self
            .accounts
            .iter()
            .map(|(a, terms)| (a.as_str(), "", terms));
        let parts = self.partitions.iter().flat_map(|(account, parts)| {
            let parts = parts.iter();
            parts.map(move |(partition, terms)| (account.as_str(), partition.as_str(), terms))
        });
        whole.chain(parts)
    }

    /// The settings of its associations, to be changed.
    pub fn associations_mut(
        &mut self,
    ) -> impl Iterator<Item = (&str, &str, &mut AssociationTerms)> {
        let whole = self
            .accounts
            .iter_mut()
            .map(|(a, terms)| (a.as_str(), "", terms));
        let parts = self.partitions.iter_mut().flat_map(|(account, parts)| {
            let parts = parts.iter_mut();
            parts.map(move |(partition, terms)| (account.as_str(), partition.as_str(), terms))
        });
        whole.chain(parts)
    }

    /// The association of a job in that partition: the one for the partition comes first.
    pub fn association(&self, account: &str, partition: &str) -> Option<&AssociationTerms> {
        let own = self
            .partitions
            .get(account)
            .and_then(|parts| parts.get(partition));
        own.or_else(|| self.accounts.get(account))
    }

    /// Whether it has any association in the account.
    pub fn is_in(&self, account: &str) -> bool {
        self.accounts.contains_key(account)
            || self
                .partitions
                .get(account)
                .is_some_and(|parts| !parts.is_empty())
    }

    /// Whether it has any association at all.
    pub fn has_associations(&self) -> bool {
        self.associations().next().is_some()
    }

    /// The accounts that it is in, by name.
    pub fn account_names(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.associations().map(|(account, ..)| account).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A cluster that `sacctmgr add cluster` named beside the one that the controller serves: records only, which no
/// decision of this controller looks at.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Cluster {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// `Classification`.
    #[n(1)]
    pub classification: String,
    /// Terms of its associations that set nothing themselves.
    #[n(2)]
    pub terms: AssociationTerms,
    /// Its accounts, by name.
    #[n(3)]
    #[cbor(default)]
    pub accounts: BTreeMap<String, Account>,
    /// Its users, by name.
    #[n(4)]
    #[cbor(default)]
    pub users: BTreeMap<String, User>,
    /// The highest number that an association of its has had.
    #[n(5)]
    #[cbor(default)]
    pub last_association: u32,
}

impl Cluster {
    /// The records of a cluster as its own controller has them, without what all clusters share.
    pub fn of_served(name: &str, served: &Accounts) -> Cluster {
        Cluster {
            name: name.to_owned(),
            classification: served.classification.clone(),
            terms: served.root.clone(),
            accounts: served.accounts.clone(),
            users: served.users.clone(),
            last_association: served.last_association,
        }
    }

    /// Its records as those of a cluster that a controller serves: with these QOS, which all clusters share.
    pub fn records(&self, qos: &BTreeMap<String, Qos>) -> Accounts {
        Accounts {
            accounts: self.accounts.clone(),
            users: self.users.clone(),
            qos: qos.clone(),
            root: self.terms.clone(),
            classification: self.classification.clone(),
            ..Accounts::default()
        }
    }

    /// Number of associations of its accounts and users.
    pub fn association_count(&self) -> usize {
        let of_users = self.users.values().map(|user| user.associations().count());
        self.accounts.len() + of_users.sum::<usize>()
    }
}

/// A quality of service.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Qos {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// `Description`.
    #[n(1)]
    pub description: String,
    /// `Priority`.
    #[n(2)]
    pub priority: u32,
    /// `Preempt`: QOS whose jobs its jobs may preempt.
    #[n(3)]
    pub preempt: Vec<String>,
    /// `PreemptMode`; the cluster's if absent.
    #[n(4)]
    pub preempt_mode: Option<String>,
    /// `PreemptExemptTime`, seconds.
    #[n(5)]
    pub preempt_exempt_s: Option<u32>,
    /// `GraceTime`, seconds.
    #[n(6)]
    pub grace_time_s: u32,
    /// `UsageFactor` in millionths; absent is 1.
    #[n(7)]
    pub usage_factor_millionths: Option<u64>,
    /// Its limits.
    #[n(8)]
    #[cbor(default)]
    pub limits: Limits,
    /// `Flags`, as in [`Qos::FLAGS`].
    #[n(9)]
    #[cbor(default)]
    pub flags: Vec<String>,
    /// Its number; 0 until a change of accounting gives it one.
    #[n(10)]
    #[cbor(default)]
    pub id: u32,
    /// `UsageThreshold` in millionths, which [`Qos::ENFORCE_USAGE_THRESHOLD`] enforces.
    #[n(11)]
    pub usage_threshold_millionths: Option<u64>,
    /// `LimitFactor` in millionths: by it limits of associations on resources are multiplied for its jobs.
    #[n(12)]
    pub limit_factor_millionths: Option<u64>,
}

impl Qos {
    /// Limits of a job's QOS come before those of its partition's.
    pub const OVER_PART_QOS: &'static str = "OverPartQOS";
    /// Its jobs must ask for a reservation.
    pub const REQUIRES_RESERVATION: &'static str = "RequiresReservation";
    /// Jobs wait while the fair share of their association is below `UsageThreshold`.
    pub const ENFORCE_USAGE_THRESHOLD: &'static str = "EnforceUsageThreshold";
    /// With `safe` limits jobs start if they can run to their ends with `UsageFactor` applied.
    pub const USAGE_FACTOR_SAFE: &'static str = "UsageFactorSafe";
    /// `MaxNodes` of partitions does not hold for its jobs.
    pub const PARTITION_MAX_NODES: &'static str = "PartitionMaxNodes";
    /// `MinNodes` of partitions does not hold for its jobs.
    pub const PARTITION_MIN_NODES: &'static str = "PartitionMinNodes";
    /// `MaxTime` of partitions does not hold for its jobs.
    pub const PARTITION_TIME_LIMIT: &'static str = "PartitionTimeLimit";
    /// All flags. Of those without a name of their own: jobs over a limit are refused at submission; use that counts
    /// towards limits is not forgotten; no nodes are kept for jobs that wait.
    pub const FLAGS: [&'static str; 10] = [
        "DenyOnLimit",
        Qos::ENFORCE_USAGE_THRESHOLD,
        "NoDecay",
        "NoReserve",
        Qos::OVER_PART_QOS,
        Qos::PARTITION_MAX_NODES,
        Qos::PARTITION_MIN_NODES,
        Qos::PARTITION_TIME_LIMIT,
        Qos::REQUIRES_RESERVATION,
        Qos::USAGE_FACTOR_SAFE,
    ];

    /// Whether it has a flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// A change that sacctmgr made, as `sacctmgr show transactions` lists it.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Transaction {
    /// The user who made it.
    #[n(0)]
    pub actor: String,
    /// `Add Users`, `Modify QOS` and the like.
    #[n(1)]
    pub action: String,
    /// The names of the entities.
    #[n(2)]
    pub target: String,
    /// The new settings.
    #[n(3)]
    pub info: String,
    /// Users that it concerns.
    #[n(4)]
    pub users: Vec<String>,
    /// Accounts that it concerns.
    #[n(5)]
    pub accounts: Vec<String>,
}

/// New texts of a job that accounting has (`sacctmgr modify job`); absent ones stay.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct JobNote {
    /// `Comment`.
    #[n(0)]
    pub comment: Option<String>,
    /// `AdminComment`.
    #[n(1)]
    pub admin_comment: Option<String>,
    /// `NewWCKey`.
    #[n(2)]
    pub wckey: Option<String>,
    /// `DerivedExitCode`.
    #[n(3)]
    pub derived_exit: Option<u32>,
}

/// The use of a user's jobs in an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct UserUsage {
    /// Billing units times seconds, decayed to `at`.
    #[n(0)]
    pub raw: f64,
    /// As of when.
    #[n(1)]
    pub at: Timestamp,
    /// Billing units of jobs that run, in thousandths.
    #[n(2)]
    pub rate_milli: u64,
}

impl UserUsage {
    /// The use as of a later time.
    pub fn at(self, now: Timestamp, half_life_s: u64) -> UserUsage {
        let seconds = now.since_ms(self.at) as f64 / 1000.0;
        let rate = self.rate_milli as f64 / 1000.0;
        let raw = if half_life_s == 0 {
            self.raw + rate * seconds
        } else {
            let life = half_life_s as f64;
            let left = (-seconds / life).exp2();
            self.raw * left + rate * life / std::f64::consts::LN_2 * (1.0 - left)
        };
        UserUsage {
            raw,
            at: now.max(self.at),
            ..self
        }
    }
}

/// One line of the tree of shares.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Share {
    /// The account.
    #[n(0)]
    pub account: String,
    /// The user; empty for the account itself.
    #[n(1)]
    pub user: String,
    /// Depth in the tree; `root` is 0.
    #[n(2)]
    pub depth: u32,
    /// Shares as they are set.
    #[n(3)]
    pub raw_shares: u32,
    /// Part of the siblings' shares.
    #[n(4)]
    pub norm_shares: f64,
    /// Use, in billing units times seconds.
    #[n(5)]
    pub raw_usage: f64,
    /// Part of all use.
    #[n(6)]
    pub norm_usage: f64,
    /// Part of the siblings' use (Fair Tree), or of all use with what the account used (classic).
    #[n(7)]
    pub effective_usage: f64,
    /// 0 to 1, for users.
    #[n(8)]
    pub fair_share: f64,
    /// `norm_shares / effective_usage`; infinite without use.
    #[n(9)]
    pub level_fs: f64,
}

/// All that sacctmgr keeps, and use.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Accounts {
    /// Accounts but `root`, by name.
    #[n(0)]
    pub accounts: BTreeMap<String, Account>,
    /// Users, by name.
    #[n(1)]
    pub users: BTreeMap<String, User>,
    /// QOS but an unchanged `normal`, by name.
    #[n(2)]
    pub qos: BTreeMap<String, Qos>,
    /// Use, by account and user.
    #[n(3)]
    pub usage: BTreeMap<(String, String), UserUsage>,
    /// Shares as of `calculated_at`, the tree from `root` down.
    #[n(4)]
    pub shares: Vec<Share>,
    /// When priorities were worked out last.
    #[n(5)]
    pub calculated_at: Timestamp,
    /// When use was forgotten last.
    #[n(6)]
    pub reset_at: Timestamp,
    /// Fair share by account and user; made from `shares`.
    #[n(7)]
    pub fair: BTreeMap<String, BTreeMap<String, f64>>,
    /// The use over time that limits compare with.
    #[n(8)]
    #[cbor(default)]
    pub tres_usage: BTreeMap<Scope, TresUsage>,
    /// Terms of `root`, so of all associations that set nothing themselves.
    #[n(9)]
    #[cbor(default)]
    pub root: AssociationTerms,
    /// Clusters that were added beside the controller's own, by name.
    #[n(10)]
    #[cbor(default)]
    pub clusters: BTreeMap<String, Cluster>,
    /// The highest number that an association has had.
    #[n(11)]
    #[cbor(default)]
    pub last_association: u32,
    /// The highest number that a QOS has had.
    #[n(12)]
    #[cbor(default)]
    pub last_qos: u32,
    /// `Classification` of the controller's own cluster.
    #[n(13)]
    #[cbor(default)]
    pub classification: String,
    /// Licenses of servers that clusters share, by name and server (`ansys@flex1`).
    #[n(14)]
    #[cbor(default)]
    pub resources: BTreeMap<String, SharedResource>,
    /// The highest number that a resource has had.
    #[n(15)]
    #[cbor(default)]
    pub last_resource: u32,
    /// Federations, by name.
    #[n(16)]
    #[cbor(default)]
    pub federations: BTreeMap<String, Federation>,
    /// Features of clusters, by cluster.
    #[n(17)]
    #[cbor(default)]
    pub cluster_features: BTreeMap<String, Vec<String>>,
}

impl Accounts {
    /// The QOS of that name; `normal` is always there.
    pub fn qos(&self, name: &str) -> Option<Qos> {
        match self.qos.get(name) {
            Some(qos) => Some(qos.clone()),
            None if name == NORMAL => Some(Qos {
                name: NORMAL.to_owned(),
                description: "Normal QOS default".to_owned(),
                id: 1,
                ..Qos::default()
            }),
            None => None,
        }
    }

    /// The user of that name; users that were added have names in lower case.
    pub fn user(&self, name: &str) -> Option<&User> {
        let exact = self.users.get(name);
        let may_fold = |byte: u8| byte.is_ascii_uppercase() || !byte.is_ascii();
        match exact {
            None if name.bytes().any(may_fold) => self.users.get(&name.to_lowercase()),
            exact => exact,
        }
    }

    /// The name as it is kept: as it is written if there is an account of that name, else in lower case.
    pub fn account_key(&self, name: &str) -> String {
        key(name, self.accounts.contains_key(name))
    }

    /// Key of a user.
    pub fn user_key(&self, name: &str) -> String {
        key(name, self.users.contains_key(name))
    }

    /// Key of a QOS.
    pub fn qos_key(&self, name: &str) -> String {
        key(name, self.qos.contains_key(name))
    }

    /// An account and those that it is under, up to `root`.
    pub fn upwards<'a>(&'a self, account: &'a str) -> impl Iterator<Item = &'a str> {
        let mut next = Some(account);
        let up = std::iter::from_fn(move || {
            let name = next?;
            next = match self.accounts.get(name) {
                Some(above) if !above.parent.is_empty() => Some(&above.parent),
                _ => (name != ROOT).then_some(ROOT),
            };
            Some(name)
        });
        // A tree is never deeper than it has accounts, `root` and one that nobody added.
        up.take(self.accounts.len() + 2)
    }

    /// Terms of a user in an account, in that partition if one is named, and up the tree from there to `root`.
    pub fn terms<'a>(
        &'a self,
        account: &str,
        user: &str,
        partition: &str,
    ) -> impl Iterator<Item = &'a AssociationTerms> + use<'a> {
        let known = self.user(user);
        let own = known.and_then(|u| u.association(account, partition));
        let above = self.terms_of_account(account);
        own.into_iter().chain(above)
    }

    /// Terms of an account, and up the tree from there to `root`.
    pub fn terms_of_account<'a>(
        &'a self,
        account: &str,
    ) -> impl Iterator<Item = &'a AssociationTerms> + use<'a> {
        let mut next = self.accounts.get(account);
        let up = std::iter::from_fn(move || {
            let account = next?;
            next = self.accounts.get(&account.parent);
            Some(&account.terms)
        });
        // A tree is never deeper than it has accounts.
        up.take(self.accounts.len()).chain([&self.root])
    }

    /// Whether the user has an association in the account, for all partitions or for any.
    pub fn has_association(&self, account: &str, user: &str) -> bool {
        // That of root is there without being made, as sacctmgr shows it.
        let known = self.user(user);
        (account, user) == (ROOT, ROOT) || known.is_some_and(|user| user.is_in(account))
    }

    /// Whether the user has an association in the account that holds in the partition.
    pub fn has_association_in(&self, account: &str, user: &str, partition: &str) -> bool {
        let known = self.user(user);
        (account, user) == (ROOT, ROOT)
            || known.is_some_and(|user| user.association(account, partition).is_some())
    }

    /// QOS that jobs of a user in an account may have; nothing if none is set.
    pub fn qos_list(&self, account: &str, user: &str, partition: &str) -> Option<Vec<String>> {
        resolve_qos(self.terms(account, user, partition))
    }

    /// QOS that jobs in an account may have; nothing if none is set.
    pub fn qos_list_of_account(&self, account: &str) -> Option<Vec<String>> {
        resolve_qos(self.terms_of_account(account))
    }

    /// Whether jobs of a user in an account may have the QOS; `normal` alone if nothing is set.
    pub fn allows_qos(&self, account: &str, user: &str, partition: &str, qos: &str) -> bool {
        // As `qos_list` has it, without making the list: the nearest word about the QOS counts.
        for terms in self.terms(account, user, partition) {
            let named = |list: &[String]| list.iter().any(|name| name == qos);
            if let Some(list) = &terms.qos {
                return named(list);
            }
            let delta = &terms.qos_delta;
            match (named(&delta.more), named(&delta.less)) {
                (true, _) => return true,
                (_, true) => return false,
                _ => {}
            }
        }
        qos == NORMAL
    }

    /// The QOS of a job that asks for none: the default one, else the only one that it may have.
    pub fn default_qos<'a>(&'a self, account: &str, user: &str, partition: &str) -> &'a str {
        let mut terms = self.terms(account, user, partition);
        if let Some(default) = terms.find_map(|t| t.default_qos.as_deref()) {
            return default;
        }
        let is_set = |t: &&AssociationTerms| t.qos.is_some() || t.qos_delta != QosDelta::default();
        let nearest = self.terms(account, user, partition).find(is_set);
        let only = match nearest.map(|terms| terms.qos.as_deref()) {
            None => None,
            Some(Some([only])) => self.qos.get(only),
            Some(Some(_)) => None,
            Some(None) => {
                let list = self.qos_list(account, user, partition);
                let only = list.as_deref().and_then(|list| match list {
                    [only] => Some(only),
                    _ => None,
                });
                only.and_then(|name| self.qos.get(name))
            }
        };
        only.map_or(NORMAL, |qos| qos.name.as_str())
    }

    /// The association factor.
    pub fn association_priority(&self, account: &str, user: &str, partition: &str) -> u32 {
        self.terms(account, user, partition)
            .find_map(|t| t.priority)
            .unwrap_or(0)
    }

    /// The highest priority that any association has.
    pub fn association_priority_max(&self) -> u32 {
        let accounts = self.accounts.values().map(|a| &a.terms);
        let users = self.users.values();
        let users = users.flat_map(|u| u.associations().map(|(.., terms)| terms));
        accounts
            .chain(users)
            .chain([&self.root])
            .filter_map(|t| t.priority)
            .max()
            .unwrap_or(0)
    }

    /// The highest priority that any QOS has.
    pub fn qos_priority_max(&self) -> u32 {
        self.qos.values().map(|q| q.priority).max().unwrap_or(0)
    }
}

fn key(name: &str, is_known: bool) -> String {
    match is_known {
        true => name.to_owned(),
        false => name.to_lowercase(),
    }
}

/// The list of QOS that the nearest full list and the additions and removals below it give.
fn resolve_qos<'a>(terms: impl Iterator<Item = &'a AssociationTerms>) -> Option<Vec<String>> {
    let mut deltas = Vec::new();
    let mut list = None;
    for terms in terms {
        if let Some(full) = &terms.qos {
            list = Some(full.clone());
            break;
        }
        if terms.qos_delta != QosDelta::default() {
            deltas.push(&terms.qos_delta);
        }
    }
    if list.is_none() && deltas.is_empty() {
        return None;
    }
    let mut list = list.unwrap_or_else(|| vec![NORMAL.to_owned()]);
    for delta in deltas.iter().rev() {
        list.retain(|name| !delta.less.contains(name));
        for name in &delta.more {
            if !list.contains(name) {
                list.push(name.clone());
            }
        }
    }
    Some(list)
}

#[cfg(test)]
mod tests;
