//! `PrivateData`: records of others that are not shown to ordinary users. Operators and above see everything,
//! coordinators the jobs and users of their accounts, owners their own. The controller's answers are filtered with
//! these, before they are written; commands filter nothing.

use super::role_of;
use crate::policy::mcs;
use crate::state::State;
use muster_model::account_limits::{Scope, ScopeUse};
use muster_model::accounts::{Accounts, ROOT};
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::node::Node;
use muster_model::node_state::InitialState;
use muster_model::power::Power;
use muster_model::private_data::PrivateData;
use muster_model::reservation::Reservation;
use muster_model::rights::{Role, coordinates};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that someone may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobScope {
    /// All.
    All,
    /// One's own, and those of accounts that one coordinates.
    Of {
        /// The owner.
        uid: u32,
        /// The accounts, those under them included.
        accounts: BTreeSet<String>,
        /// Labels of jobs that one sees, where labels decide that for jobs that have one.
        labels: Option<BTreeSet<String>>,
    },
}

impl JobScope {
    /// Jobs in listings: restricted by `PrivateData=jobs`.
    pub fn of(state: &State, identity: &Identity) -> JobScope {
        JobScope::under(state, identity, PrivateData::JOBS)
    }

    /// Jobs in reports of use: restricted by `PrivateData=usage` as well.
    pub fn of_usage(state: &State, identity: &Identity) -> JobScope {
        let words = PrivateData::JOBS.with(PrivateData::USAGE);
        JobScope::under(state, identity, words)
    }

    fn under(state: &State, identity: &Identity, words: PrivateData) -> JobScope {
        if !hides(state, identity, words) {
            return JobScope::All;
        }
        JobScope::Of {
            uid: identity.uid,
            accounts: coordinated(&state.accounts, &identity.user),
            labels: mcs::labels_seen(state, identity),
        }
    }

    /// Whether a job of that owner and account is among them.
    pub fn contains(&self, owner: u32, account: &str) -> bool {
        match self {
            JobScope::All => true,
            JobScope::Of { uid, accounts, .. } => *uid == owner || accounts.contains(account),
        }
    }

    /// Whether this job is among them.
    pub fn has(&self, job: &Job) -> bool {
        let (owner, account) = (job.spec.owner.uid, job.spec.account_name());
        self.has_labelled(owner, account, job.spec.mcs_label())
    }

    /// Whether a job of that owner, account and label is among them.
    pub fn has_labelled(&self, owner: u32, account: &str, label: Option<&str>) -> bool {
        let by_label = match self {
            JobScope::Of { uid, labels, .. } if *uid != owner => labels.as_ref(),
            JobScope::All | JobScope::Of { .. } => None,
        };
        match (by_label, label) {
            (Some(labels), Some(label)) => labels.contains(label),
            _ => self.contains(owner, account),
        }
    }

    /// Whether a record of this number, or one of the array of this number, is among them. What is not known is not.
    pub fn shows(&self, state: &State, id: JobId) -> bool {
        let tasks = state.arrays.get(&id).into_iter();
        let ids = [&id]
            .into_iter()
            .chain(tasks.flat_map(|info| info.tasks.values()));
        let mut known = ids.filter_map(|id| state.jobs.get(id));
        known.any(|job| self.has(job))
    }

    /// The only owner whose jobs are among them, if there is one.
    pub fn only_owner(&self) -> Option<u32> {
        match self {
            JobScope::Of {
                uid,
                accounts,
                labels,
            } if accounts.is_empty() && labels.is_none() => Some(*uid),
            JobScope::All | JobScope::Of { .. } => None,
        }
    }

    /// The fields of a node that reveal jobs are left out for users that may not see these jobs.
    pub fn redact_node(&self, state: &State, node: &mut Node) {
        let JobScope::Of { uid, .. } = self else {
            return;
        };
        (node.jobs).retain(|id| state.jobs.get(id).is_some_and(|job| self.has(job)));
        node.only_user = node.only_user.filter(|user| user == uid);
        if node.jobs.is_empty() {
            node.mcs_label = None;
        }
    }
}

/// The parts of a state that a user may see, for texts that are made of many of them.
#[derive(Clone, Debug)]
pub struct View<'v> {
    state: &'v State,
    /// Absent: everything is seen.
    identity: Option<&'v Identity>,
    jobs: JobScope,
}

impl<'v> View<'v> {
    /// That of a user.
    pub fn of(state: &'v State, identity: &'v Identity) -> View<'v> {
        View {
            state,
            identity: Some(identity),
            jobs: JobScope::of(state, identity),
        }
    }

    /// Everything.
    pub fn all(state: &'v State) -> View<'v> {
        View {
            state,
            identity: None,
            jobs: JobScope::All,
        }
    }

    /// Whether a job of this number is seen.
    pub fn sees_job(&self, id: JobId) -> bool {
        let job = self.state.jobs.get(&id);
        self.jobs == JobScope::All || job.is_some_and(|job| self.jobs.has(job))
    }

    /// Whether nodes are, beyond those of one's own jobs.
    pub fn sees_nodes(&self) -> bool {
        let identity = self.identity;
        identity.is_none_or(|identity| !hides(self.state, identity, PrivateData::NODES))
    }

    /// Whether it is seen what others use.
    pub fn sees_use(&self) -> bool {
        let words = PrivateData::JOBS.with(PrivateData::USAGE);
        let identity = self.identity;
        identity.is_none_or(|identity| !hides(self.state, identity, words))
    }

    /// Whether a reservation is.
    pub fn sees_reservation(&self, reservation: &Reservation) -> bool {
        let identity = self.identity;
        identity.is_none_or(|identity| sees_reservation(self.state, identity, reservation))
    }
}

/// Whether `PrivateData` has one of these words and the user who asks is below an operator.
pub fn hides(state: &State, identity: &Identity, words: PrivateData) -> bool {
    let config = state.config.as_ref();
    config.is_some_and(|config| config.private.has(words))
        && role_of(state, identity) < Role::Operator
}

/// Whether a node is in listings: those of a cloud that are powered down are not, to nobody, unless
/// `PrivateData=cloud`.
pub fn shows_node(state: &State, node: &Node) -> bool {
    let asleep = || matches!(node.power, Some(Power::Down | Power::GoingDown { .. }));
    node.config.state != InitialState::Cloud
        || !asleep()
        || (state.config.as_ref()).is_none_or(|config| config.private.has(PrivateData::CLOUD))
}

/// Whether someone may see a reservation: with `PrivateData=reservations`, who may use it.
pub fn sees_reservation(state: &State, identity: &Identity, reservation: &Reservation) -> bool {
    if !hides(state, identity, PrivateData::RESERVATIONS) {
        return true;
    }
    let mut groups: Vec<&str> = identity.groups.iter().map(String::as_str).collect();
    groups.push(&identity.group);
    let known = state.accounts.users.get(&identity.user);
    let associated = known.into_iter().flat_map(|user| user.account_names());
    // Without an association one's jobs are in the account of one's own name.
    let mut accounts = associated.chain([identity.user.as_str()]);
    accounts.any(|account| reservation.admits(&state.accounts, &identity.user, &groups, account))
}

/// The part of accounting that a user may see.
pub fn accounts(state: &State, identity: &Identity, mut all: Accounts) -> Accounts {
    let private = |words| hides(state, identity, words);
    let (accounts, users) = (private(PrivateData::ACCOUNTS), private(PrivateData::USERS));
    let usage = private(PrivateData::USAGE) || users;
    if !(accounts || usage) {
        return all;
    }
    let me = all.user(&identity.user).map(|user| user.name.clone());
    let me = me.as_deref().unwrap_or(&identity.user);
    for cluster in all.clusters.values_mut() {
        if users {
            cluster.users.retain(|name, _| name == me);
        }
        if accounts {
            cluster.accounts.clear();
        }
    }
    let mine = coordinated(&all, me);
    if usage || users {
        // An account of a user's name that is no account holds the use of this user, who has no association.
        let known = &all.accounts;
        let is_own = |name: &str| name == ROOT || known.contains_key(name) || name == me;
        all.shares.retain(|share| is_own(&share.account));
    }
    let sees = |account: &str, user: &str| user == me || mine.contains(account);
    if usage {
        all.usage.retain(|(account, user), _| sees(account, user));
        all.fair = hidden_from(std::mem::take(&mut all.fair), sees);
        all.tres_usage.retain(|scope, _| is_of(scope, me, &mine));
        // Lines of others, and of accounts whose use is private.
        let usage = private(PrivateData::USAGE);
        all.shares.retain(|share| match share.user.as_str() {
            "" => !usage || mine.contains(&share.account),
            user => sees(&share.account, user),
        });
    }
    if users {
        all.users.retain(|name, user| {
            if name != me {
                user.accounts.retain(|account, _| mine.contains(account));
                user.partitions.retain(|account, _| mine.contains(account));
            }
            name == me || user.has_associations()
        });
    }
    if accounts {
        all.accounts.retain(|name, _| mine.contains(name));
        let own = |share: &muster_model::accounts::Share| {
            !share.user.is_empty() || share.account == ROOT || mine.contains(&share.account)
        };
        all.shares.retain(own);
    }
    all
}

/// Whether the use of a scope is that of a user, or of accounts that the user coordinates.
fn is_of(scope: &Scope, me: &str, mine: &BTreeSet<String>) -> bool {
    match scope {
        Scope::Account(account) | Scope::QosAccount(_, account) => mine.contains(account),
        Scope::Association(account, user) | Scope::PartitionAssociation(account, user, _) => {
            user == me || mine.contains(account)
        }
        Scope::Qos(_) => false,
        Scope::QosUser(_, user) => user == me,
    }
}

/// The use that a user may see: with `PrivateData=jobs`, `usage` or `users`, the own one and that of coordinated accounts; with
/// `PrivateData=accounts`, of accounts as such that of coordinated ones.
pub fn uses(state: &State, identity: &Identity, mut all: Vec<ScopeUse>) -> Vec<ScopeUse> {
    let words = PrivateData::JOBS
        .with(PrivateData::USAGE)
        .with(PrivateData::USERS);
    if hides(state, identity, words) {
        let known = state.accounts.user(&identity.user);
        let me = known.map_or(identity.user.as_str(), |user| user.name.as_str());
        let mine = coordinated(&state.accounts, me);
        all.retain(|used| is_of(&used.scope, me, &mine));
    }
    if hides(state, identity, PrivateData::ACCOUNTS) {
        let known = state.accounts.user(&identity.user);
        let me = known.map_or(identity.user.as_str(), |user| user.name.as_str());
        let mine = coordinated(&state.accounts, me);
        all.retain(|used| match &used.scope {
            Scope::Account(account) | Scope::QosAccount(_, account) => mine.contains(account),
            _ => true,
        });
    }
    all
}

/// The accounts that a user coordinates, those under them included.
fn coordinated(all: &Accounts, user: &str) -> BTreeSet<String> {
    if (all.users.get(user)).is_none_or(|user| user.coordinates.is_empty()) {
        return BTreeSet::new();
    }
    let names = all.accounts.keys().map(String::as_str).chain([ROOT]);
    let own = names.filter(|name| coordinates(all, user, name));
    own.map(str::to_owned).collect()
}

fn hidden_from(
    all: BTreeMap<String, BTreeMap<String, f64>>,
    sees: impl Fn(&str, &str) -> bool,
) -> BTreeMap<String, BTreeMap<String, f64>> {
    let of_account = |(account, mut users): (String, BTreeMap<String, f64>)| {
        users.retain(|user, _| sees(&account, user));
        (!users.is_empty()).then_some((account, users))
    };
    all.into_iter().filter_map(of_account).collect()
}
