//! Accounts, users, associations and qualities of service: what sacctmgr keeps, what jobs have used of it, and what
//! is a fair share of the cluster for each user. Shares are worked out when an event says so, so that everyone who
//! applied the same events has the same.

mod share_tree;

use self::share_tree::Tree;
use crate::account_limits::{Limits, Scope, TresUsage};
use crate::order_config::Multifactor;
use crate::time::Timestamp;
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
    pub terms: Terms,
}

/// The settings of an association.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Terms {
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
    pub accounts: BTreeMap<String, Terms>,
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
}

impl Qos {
    /// Limits of a job's QOS come before those of its partition's.
    pub(crate) const OVER_PART_QOS: &'static str = "OverPartQOS";
    /// Its jobs must ask for a reservation.
    pub(crate) const REQUIRES_RESERVATION: &'static str = "RequiresReservation";
    /// Flags that are kept: jobs over a limit are refused at submission; use that counts towards limits is not
    /// forgotten; no nodes are kept for jobs that wait; the QOS of the job comes before that of the partition; jobs must
    /// ask for a reservation.
    pub const FLAGS: [&'static str; 5] = [
        "DenyOnLimit",
        "NoDecay",
        "NoReserve",
        Qos::OVER_PART_QOS,
        Qos::REQUIRES_RESERVATION,
    ];

    /// Whether it has a flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// The use of a user's jobs in an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct Usage {
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

impl Usage {
    /// The use as of a later time.
    pub fn at(self, now: Timestamp, half_life_s: u64) -> Usage {
        let seconds = now.since_ms(self.at) as f64 / 1000.0;
        let rate = self.rate_milli as f64 / 1000.0;
        let raw = if half_life_s == 0 {
            self.raw + rate * seconds
        } else {
            let life = half_life_s as f64;
            let left = (-seconds / life).exp2();
            self.raw * left + rate * life / std::f64::consts::LN_2 * (1.0 - left)
        };
        Usage {
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
    pub usage: BTreeMap<(String, String), Usage>,
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
}

/// One change of it.
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

impl Accounts {
    /// Applies a change.
    pub(crate) fn change(&mut self, change: &AccountsChange, at: Timestamp) {
        match change {
            AccountsChange::Account(account) => {
                self.accounts.insert(account.name.clone(), account.clone());
            }
            AccountsChange::AccountGone(name) => {
                self.accounts.remove(name);
                for user in self.users.values_mut() {
                    user.accounts.remove(name);
                    user.coordinates.retain(|account| account != name);
                }
            }
            AccountsChange::User(user) => {
                self.users.insert(user.name.clone(), user.clone());
            }
            AccountsChange::UserGone(name) => {
                self.users.remove(name);
            }
            AccountsChange::Qos(qos) => {
                self.qos.insert(qos.name.clone(), qos.clone());
            }
            AccountsChange::QosGone(name) => {
                self.qos.remove(name);
            }
            AccountsChange::UsageReset(which) => {
                for (key, usage) in &mut self.usage {
                    if which.as_ref().is_none_or(|w| w == key) {
                        (usage.raw, usage.at) = (0.0, at);
                    }
                }
                let concerns = |scope: &Scope| match (which, scope) {
                    (None, _) => true,
                    (Some((account, user)), Scope::Association(a, u)) => (account, user) == (a, u),
                    (Some(_), _) => false,
                };
                let all = self.tres_usage.iter_mut();
                for (_, usage) in all.filter(|(scope, _)| concerns(scope)) {
                    usage.raw.clear();
                    usage.at = at;
                }
                if which.is_none() {
                    self.reset_at = at;
                }
            }
        }
    }

    /// A user has a job: from now on the user has a share.
    pub(crate) fn ensure_association(&mut self, account: &str, user: &str, at: Timestamp) {
        if self
            .fair
            .get(account)
            .is_some_and(|users| users.contains_key(user))
        {
            return;
        }
        let key = (account.to_owned(), user.to_owned());
        self.usage.entry(key).or_insert(Usage {
            at,
            ..Usage::default()
        });
    }

    /// A job of the user begins (or goes on) or ends (or stops): its billing units are added or taken away.
    pub(crate) fn charge(
        &mut self,
        account: &str,
        user: &str,
        (more, less): (u64, u64),
        at: Timestamp,
        half_life_s: u64,
    ) {
        let key = (account.to_owned(), user.to_owned());
        let usage = self.usage.entry(key).or_insert(Usage {
            at,
            ..Usage::default()
        });
        *usage = usage.at(at, half_life_s);
        usage.rate_milli = usage.rate_milli.saturating_add(more).saturating_sub(less);
    }

    /// The QOS of that name; `normal` is always there.
    pub fn qos(&self, name: &str) -> Option<Qos> {
        match self.qos.get(name) {
            Some(qos) => Some(qos.clone()),
            None if name == NORMAL => Some(Qos {
                name: NORMAL.to_owned(),
                description: "Normal QOS default".to_owned(),
                ..Qos::default()
            }),
            None => None,
        }
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

    /// What is set for a user in an account, and up the tree from there.
    fn terms<'a>(&'a self, account: &str, user: &str) -> impl Iterator<Item = &'a Terms> + use<'a> {
        let own = self.users.get(user).and_then(|u| u.accounts.get(account));
        let mut next = self.accounts.get(account);
        let up = std::iter::from_fn(move || {
            let account = next?;
            next = self.accounts.get(&account.parent);
            Some(&account.terms)
        });
        // A tree is never deeper than it has accounts.
        own.into_iter().chain(up.take(self.accounts.len()))
    }

    /// Whether the user has an association in the account.
    pub fn has_association(&self, account: &str, user: &str) -> bool {
        let known = self.users.get(user);
        known.is_some_and(|user| user.accounts.contains_key(account))
    }

    /// QOS that jobs of a user in an account may have; all if nothing is set.
    pub fn allows_qos(&self, account: &str, user: &str, qos: &str) -> bool {
        match self.terms(account, user).find_map(|t| t.qos.as_ref()) {
            Some(list) => list.iter().any(|q| q == qos),
            None => self.qos(qos).is_some(),
        }
    }

    /// The QOS of a job that asks for none.
    pub fn default_qos<'a>(&'a self, account: &str, user: &str) -> &'a str {
        self.terms(account, user)
            .find_map(|t| t.default_qos.as_deref())
            .unwrap_or(NORMAL)
    }

    /// The association factor.
    pub fn association_priority(&self, account: &str, user: &str) -> u32 {
        self.terms(account, user)
            .find_map(|t| t.priority)
            .unwrap_or(0)
    }

    /// The highest priority that any association has.
    pub fn association_priority_max(&self) -> u32 {
        let accounts = self.accounts.values().map(|a| &a.terms);
        let users = self.users.values().flat_map(|u| u.accounts.values());
        accounts
            .chain(users)
            .filter_map(|t| t.priority)
            .max()
            .unwrap_or(0)
    }

    /// The highest priority that any QOS has.
    pub fn qos_priority_max(&self) -> u32 {
        self.qos.values().map(|q| q.priority).max().unwrap_or(0)
    }

    /// Fair share of a user in an account, 0 to 1.
    pub fn fair_share(&self, account: &str, user: &str) -> f64 {
        let known = self.fair.get(account).and_then(|users| users.get(user));
        // Who has never run anything and is in no list has used nothing.
        known.copied().unwrap_or(1.0)
    }

    /// Works out shares anew. Users without an association are their own account's only user, beside the others.
    pub(crate) fn calculate(&mut self, now: Timestamp, settings: &Multifactor) {
        self.calculated_at = now;
        if self.reset_at == Timestamp::default() {
            self.reset_at = now;
        }
        let mut tree = Tree::new(self, now, settings.half_life_s);
        tree.sum(0);
        if settings.fair_tree {
            tree.levels(0);
            tree.rank();
        } else {
            tree.classic(0, 1.0, f64::from(settings.dampening.max(1)));
            if settings.depth_oblivious {
                tree.depth_oblivious(0, 1.0);
            }
        }
        self.shares = tree.list();
        self.fair = BTreeMap::new();
        for share in self.shares.iter().filter(|s| !s.user.is_empty()) {
            let users = self.fair.entry(share.account.clone()).or_default();
            users.insert(share.user.clone(), share.fair_share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(parts: &[(&str, &str, u32)], users: &[(&str, &str, u32, f64)]) -> Accounts {
        let mut all = Accounts::default();
        for (name, parent, shares) in parts {
            let terms = Terms {
                shares: Some(*shares),
                ..Terms::default()
            };
            let account = Account {
                name: (*name).into(),
                parent: (*parent).into(),
                terms,
                ..Account::default()
            };
            all.change(&AccountsChange::Account(account), Timestamp(0));
        }
        for (user, account, shares, used) in users {
            let entry = all.users.entry((*user).into()).or_default();
            entry.name = (*user).into();
            let terms = Terms {
                shares: Some(*shares),
                ..Terms::default()
            };
            entry.accounts.insert((*account).into(), terms);
            let usage = Usage {
                raw: *used,
                ..Usage::default()
            };
            all.usage.insert(((*account).into(), (*user).into()), usage);
        }
        all
    }

    fn fair(all: &mut Accounts, fair_tree: bool) -> Vec<(String, f64)> {
        let settings = Multifactor {
            fair_tree,
            dampening: 1,
            ..Multifactor::default()
        };
        all.calculate(Timestamp(0), &settings);
        let users = all.shares.iter().filter(|s| !s.user.is_empty());
        users.map(|s| (s.user.clone(), s.fair_share)).collect()
    }

    /// The account that used less than its share comes first with all its users, however much one of them used.
    #[test]
    fn fair_tree_ranks_by_level() {
        let mut all = with(
            &[("a", "root", 1), ("b", "root", 1)],
            &[
                ("a1", "a", 1, 10.0),
                ("a2", "a", 1, 0.0),
                ("b1", "b", 1, 60.0),
                ("b2", "b", 3, 30.0),
            ],
        );
        let got = fair(&mut all, true);
        let expected = [("a1", 0.75), ("a2", 1.0), ("b1", 0.25), ("b2", 0.5)];
        let expected: Vec<(String, f64)> = expected
            .iter()
            .map(|(n, f)| ((*n).to_owned(), *f))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn equals_have_the_same() {
        let mut all = with(
            &[("a", "root", 1), ("b", "root", 1)],
            &[
                ("a1", "a", 1, 0.0),
                ("b1", "b", 1, 0.0),
                ("b2", "b", 1, 0.0),
            ],
        );
        assert!(fair(&mut all, true).iter().all(|(_, f)| *f == 1.0));
    }

    #[test]
    fn a_user_beside_an_account_is_equal_to_the_first_below_it() {
        // Nobody has used anything: root in the account root, and u in an account beside root.
        let mut all = with(
            &[("a", "root", 1)],
            &[("root", "root", 1, 0.0), ("u", "a", 1, 0.0)],
        );
        assert_eq!(
            fair(&mut all, true),
            [("root".to_owned(), 1.0), ("u".to_owned(), 1.0)]
        );
    }

    #[test]
    fn classic_halves_at_the_share() {
        let mut all = with(
            &[("a", "root", 1), ("b", "root", 1)],
            &[("a1", "a", 1, 50.0), ("b1", "b", 1, 50.0)],
        );
        assert!(fair(&mut all, false).iter().all(|(_, f)| *f == 0.5));
        let mut all = with(
            &[("a", "root", 1), ("b", "root", 1)],
            &[("a1", "a", 1, 100.0), ("b1", "b", 1, 0.0)],
        );
        let got = fair(&mut all, false);
        assert!(got[0].1 == 0.25 && got[1].1 == 1.0, "{got:?}");
    }

    /// Two levels further down the same use against the same share gives the same; a user who is off in another direction
    /// than the account comes nearer to it.
    #[test]
    fn depth_does_not_count_against_users() {
        let depth_oblivious = |all: &mut Accounts| {
            let settings = Multifactor {
                dampening: 1,
                depth_oblivious: true,
                ..Multifactor::default()
            };
            all.calculate(Timestamp(0), &settings);
            let of = |(name, user): (&str, &str)| {
                let same = |s: &&Share| s.account == name && s.user == user;
                all.shares.iter().find(same).map(|s| s.fair_share).unwrap()
            };
            [("a", ""), ("c", ""), ("c", "c1"), ("c", "c2"), ("b", "b1")].map(of)
        };
        let tree = &[("a", "root", 1), ("c", "a", 1), ("b", "root", 1)];
        let mut even = with(
            tree,
            &[
                ("c1", "c", 1, 25.0),
                ("c2", "c", 1, 25.0),
                ("b1", "b", 1, 50.0),
            ],
        );
        // All on target: half everywhere, at each depth.
        assert!(
            depth_oblivious(&mut even)
                .iter()
                .all(|f| (f - 0.5).abs() < 1e-12)
        );
        let mut uneven = with(
            tree,
            &[
                ("c1", "c", 1, 40.0),
                ("c2", "c", 1, 10.0),
                ("b1", "b", 1, 50.0),
            ],
        );
        let [a, c, c1, c2, b1] = depth_oblivious(&mut uneven);
        assert_eq!((a, c, b1), (0.5, 0.5, 0.5));
        // The account is on target: what counts is the user's own use, 1.6 and 0.4 times the share.
        assert!((c1 - (-1.6f64).exp2()).abs() < 1e-12 && (c2 - (-0.4f64).exp2()).abs() < 1e-12);
        let mut over = with(
            tree,
            &[
                ("c1", "c", 1, 40.0),
                ("c2", "c", 1, 40.0),
                ("b1", "b", 1, 20.0),
            ],
        );
        let [a, c, c1, c2, _] = depth_oblivious(&mut over);
        // The account used 1.6 times its share, and each level below it, and each user, the same.
        assert!(
            [c, c1, c2].iter().all(|f| (f - a).abs() < 1e-12)
                && (a - (-1.6f64).exp2()).abs() < 1e-12
        );
        let mut mixed = with(
            tree,
            &[
                ("c1", "c", 1, 79.0),
                ("c2", "c", 1, 1.0),
                ("b1", "b", 1, 20.0),
            ],
        );
        let [a, _, c1, c2, _] = depth_oblivious(&mut mixed);
        // Who used little of too much stays near the account's fair share, who used most is below it.
        assert!(c1 < a && a < c2 && c2 < 1.0, "{c1} {a} {c2}");
    }

    #[test]
    fn use_decays_and_grows_the_same_however_often_it_is_looked_at() {
        let start = Usage {
            raw: 1000.0,
            at: Timestamp(0),
            rate_milli: 2000,
        };
        let later = |s: u64| Timestamp(0).plus_s(s);
        let once = start.at(later(7200), 3600);
        let mut often = start;
        (1..=720).for_each(|i| often = often.at(later(i * 10), 3600));
        assert!(
            (once.raw - often.raw).abs() < 1e-6,
            "{} {}",
            once.raw,
            often.raw
        );
        let idle = Usage {
            rate_milli: 0,
            ..start
        };
        assert!((idle.at(later(3600), 3600).raw - 500.0).abs() < 1e-9);
        assert_eq!(start.at(later(10), 0).raw, 1020.0);
    }

    #[test]
    fn what_is_not_set_is_the_accounts() {
        let mut all = with(&[("a", "root", 1), ("b", "a", 1)], &[("u", "b", 1, 0.0)]);
        let a = all.accounts.get_mut("a").unwrap();
        a.terms.qos = Some(vec!["high".into()]);
        a.terms.default_qos = Some("high".into());
        a.terms.priority = Some(7);
        assert_eq!(all.default_qos("b", "u"), "high");
        assert_eq!(all.association_priority("b", "u"), 7);
        assert!(all.allows_qos("b", "u", "high") && !all.allows_qos("b", "u", "normal"));
        assert_eq!(all.default_qos("x", "y"), "normal");
    }
}
