//! Fair share: what users of accounts have used, and what follows for the order of their jobs.

mod share_tree;

use self::share_tree::Tree;
use muster_model::accounts::{Accounts, UserUsage};
use muster_model::order_config::Multifactor;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// A user has a job: from now on the user has a share.
pub(crate) fn ensure_association(
    accounts: &mut Accounts,
    account: &str,
    user: &str,
    at: Timestamp,
) {
    let key = accounts.share_key(account, user);
    let users = accounts.fair.get(&key.0);
    if users.is_some_and(|users| users.contains_key(&key.1)) {
        return;
    }
    accounts.usage.entry(key).or_insert(UserUsage {
        at,
        ..UserUsage::default()
    });
}

/// A job of the user begins (or goes on) or ends (or stops): its billing units are added or taken away. What was used in an
/// account in which the user has no share is moved to [`Accounts::share_key`] once no job runs there: names that users make up do
/// not stay.
pub(crate) fn charge(
    accounts: &mut Accounts,
    account: &str,
    user: &str,
    (more, less): (u64, u64),
    at: Timestamp,
    half_life_s: u64,
) {
    let key = (account.to_owned(), user.to_owned());
    let unused = UserUsage {
        at,
        ..UserUsage::default()
    };
    let usage = accounts.usage.entry(key).or_insert(unused);
    *usage = usage.at(at, half_life_s);
    usage.rate_milli = usage.rate_milli.saturating_add(more).saturating_sub(less);
    if usage.rate_milli > 0 {
        return;
    }
    let own = accounts.share_key(account, user);
    let key = (account.to_owned(), user.to_owned());
    if own == key {
        return;
    }
    let used = accounts.usage.remove(&key);
    let own = accounts.usage.entry(own).or_insert(unused);
    *own = own.at(at, half_life_s);
    own.raw += used.map_or(0.0, |used| used.raw);
}

/// Works out shares anew. Users without an association are their own account's only user, beside the others, with all of their use.
pub(crate) fn calculate(accounts: &mut Accounts, now: Timestamp, settings: &Multifactor) {
    accounts.calculated_at = now;
    if accounts.reset_at == Timestamp::default() {
        accounts.reset_at = now;
    }
    let mut tree = Tree::new(accounts, now, settings.half_life_s);
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
    accounts.shares = tree.list();
    accounts.fair = BTreeMap::new();
    for share in accounts.shares.iter().filter(|s| !s.user.is_empty()) {
        let users = accounts.fair.entry(share.account.clone()).or_default();
        users.insert(share.user.clone(), share.fair_share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::accounts::{Account, AssociationTerms, Share};

    fn with(parts: &[(&str, &str, u32)], users: &[(&str, &str, u32, f64)]) -> Accounts {
        let mut all = Accounts::default();
        for (name, parent, shares) in parts {
            let terms = AssociationTerms {
                shares: Some(*shares),
                ..AssociationTerms::default()
            };
            let account = Account {
                name: (*name).into(),
                parent: (*parent).into(),
                terms,
                ..Account::default()
            };
            all.accounts.insert(account.name.clone(), account);
        }
        for (user, account, shares, used) in users {
            let entry = all.users.entry((*user).into()).or_default();
            entry.name = (*user).into();
            let terms = AssociationTerms {
                shares: Some(*shares),
                ..AssociationTerms::default()
            };
            entry.accounts.insert((*account).into(), terms);
            let usage = UserUsage {
                raw: *used,
                ..UserUsage::default()
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
        calculate(all, Timestamp(0), &settings);
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
        let expected = [
            ("root", 1.0),
            ("a1", 0.6),
            ("a2", 0.8),
            ("b1", 0.2),
            ("b2", 0.4),
        ];
        let expected: Vec<(String, f64)> = expected
            .iter()
            .map(|(n, f)| ((*n).to_owned(), *f))
            .collect();
        assert_eq!(got, expected);
    }

    /// Each name that a job gave as its account had a share of its own, and had used nothing: who made up names had as many
    /// shares, first places in the queue, and made the state grow.
    #[test]
    fn a_user_without_an_association_has_one_share_whatever_accounts_jobs_name() {
        let mut all = with(&[("a", "root", 1)], &[("a1", "a", 1, 50.0)]);
        let user = "mallory";
        for number in 0..1000 {
            let account = format!("made-up-{number}");
            let (begin, end) = (Timestamp(1000 * number), Timestamp(1000 * (number + 1)));
            ensure_association(&mut all, &account, user, begin);
            charge(&mut all, &account, user, (1000, 0), begin, 0);
            charge(&mut all, &account, user, (0, 1000), end, 0);
        }
        // One job runs on in an account of another user's, one in an account that there is not.
        for account in ["a", "made-up"] {
            ensure_association(&mut all, account, user, Timestamp(1_000_000));
            charge(&mut all, account, user, (1000, 0), Timestamp(1_000_000), 0);
        }
        assert_eq!(all.usage.len(), 4, "{:?}", all.usage.keys());
        fair(&mut all, true);
        let of = |account: &str, name: &str| {
            let same = |s: &&Share| s.account == account && s.user == name;
            all.shares
                .iter()
                .filter(same)
                .map(|s| s.raw_usage)
                .collect::<Vec<_>>()
        };
        assert_eq!(all.shares.len(), 6, "{:?}", all.shares);
        let used = of(user, user);
        assert!(
            matches!(used[..], [used] if (used - 1000.0).abs() < 1.0),
            "{used:?}"
        );
        assert_eq!(of("a", "a1"), [50.0]);
        // The user with the most use comes last, by whatever name.
        let last = all.fair_share(user, user);
        assert!(last < all.fair_share("a", "a1"));
        assert_eq!(all.fair_share("never-named", user), last);
        assert_eq!(all.fair_share("a", user), last);
        assert_eq!(all.fair_share("a", "new"), 1.0);
    }

    /// A user with an association had a further share by each other name, and by one like the own name a better place
    /// in the own account.
    #[test]
    fn a_user_with_an_association_has_no_further_share_by_other_names() {
        let tree = &[("depts", "root", 1), ("zed", "depts", 1)];
        let users = &[("zed", "zed", 1, 500.0), ("b", "depts", 1, 1.0)];
        let mut all = with(tree, users);
        for account in ["made-up", "depts"] {
            ensure_association(&mut all, account, "zed", Timestamp(0));
            charge(&mut all, account, "zed", (1000, 0), Timestamp(0), 0);
        }
        fair(&mut all, true);
        let of_zed = all.shares.iter().filter(|s| s.user == "zed");
        let of_zed: Vec<_> = of_zed.map(|s| (s.account.as_str(), s.raw_usage)).collect();
        assert_eq!(of_zed, [("zed", 500.0)]);
        let own = all.fair_share("zed", "zed");
        assert!(own < all.fair_share("depts", "b"));
        assert_eq!(all.fair_share("made-up", "zed"), own);
        assert_eq!(all.fair_share("depts", "zed"), own);
        // The use there is the user's own afterwards.
        for account in ["made-up", "depts"] {
            charge(&mut all, account, "zed", (0, 1000), Timestamp(10_000), 0);
        }
        let key = |account: &str, user: &str| (account.to_owned(), user.to_owned());
        assert_eq!(
            all.usage.keys().cloned().collect::<Vec<_>>(),
            [key("depts", "b"), key("zed", "zed")]
        );
        assert_eq!(all.usage[&key("zed", "zed")].raw, 520.0);
    }

    /// Associations are kept in small letters: what a user used whose host has a capital in the name counted for nobody.
    #[test]
    fn a_user_with_capitals_has_the_share_of_the_name_that_is_kept() {
        let mut all = with(
            &[("a", "root", 1)],
            &[("alice", "a", 1, 0.0), ("b", "a", 1, 1.0)],
        );
        for account in ["a", "made-up"] {
            ensure_association(&mut all, account, "Alice", Timestamp(0));
            charge(&mut all, account, "Alice", (1000, 0), Timestamp(0), 0);
            charge(&mut all, account, "Alice", (0, 1000), Timestamp(10_000), 0);
        }
        fair(&mut all, true);
        let used = |name: &str| {
            all.shares
                .iter()
                .filter(|s| s.user == name)
                .map(|s| s.raw_usage)
                .collect::<Vec<_>>()
        };
        assert_eq!((used("alice"), used("Alice")), (vec![20.0], vec![]));
        assert!(all.fair_share("a", "Alice") < all.fair_share("a", "b"));
        assert_eq!(
            all.fair_share("made-up", "Alice"),
            all.fair_share("a", "alice")
        );
    }

    /// As Slurm 22.05.8 does: root has one share beside the accounts before it has run any job, and after.
    #[test]
    fn root_has_a_share_beside_the_accounts() {
        let mut all = with(
            &[("chem", "root", 1), ("phys", "root", 1)],
            &[("a", "phys", 1, 1.0)],
        );
        let listed = |all: &mut Accounts| {
            fair(all, true);
            let rows = all.shares.iter().map(|s| {
                let (depth, part) = (s.depth, s.norm_shares);
                format!(
                    "{depth} {} {} {part:.3} {:.0}",
                    s.account, s.user, s.raw_usage
                )
            });
            rows.collect::<Vec<String>>()
        };
        let expected = [
            "0 root  0.000 1",
            "1 root root 0.333 0",
            "1 chem  0.333 0",
            "1 phys  0.333 1",
            "2 phys a 1.000 1",
        ];
        assert_eq!(listed(&mut all), expected);
        ensure_association(&mut all, "root", "root", Timestamp(0));
        charge(&mut all, "root", "root", (1000, 0), Timestamp(0), 0);
        charge(&mut all, "root", "root", (0, 1000), Timestamp(3000), 0);
        let after = listed(&mut all);
        assert_eq!(after[..2], ["0 root  0.000 4", "1 root root 0.333 3"]);
        assert_eq!(after[2..], expected[2..]);
        assert_eq!(fair(&mut Accounts::default(), true), []);
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
            &[
                ("root", "root", 0, 0.0),
                ("a1", "a", 1, 50.0),
                ("b1", "b", 1, 50.0),
            ],
        );
        assert!(fair(&mut all, false)[1..].iter().all(|(_, f)| *f == 0.5));
        let mut all = with(
            &[("a", "root", 1), ("b", "root", 1)],
            &[
                ("root", "root", 0, 0.0),
                ("a1", "a", 1, 100.0),
                ("b1", "b", 1, 0.0),
            ],
        );
        let got = fair(&mut all, false);
        assert!(got[1].1 == 0.25 && got[2].1 == 1.0, "{got:?}");
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
            calculate(all, Timestamp(0), &settings);
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
                ("root", "root", 0, 0.0),
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
                ("root", "root", 0, 0.0),
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
                ("root", "root", 0, 0.0),
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
                ("root", "root", 0, 0.0),
                ("c1", "c", 1, 79.0),
                ("c2", "c", 1, 1.0),
                ("b1", "b", 1, 20.0),
            ],
        );
        let [a, _, c1, c2, _] = depth_oblivious(&mut mixed);
        // A user who used little of too much stays near the account's fair share, the one who used most is below it.
        assert!(c1 < a && a < c2 && c2 < 1.0, "{c1} {a} {c2}");
    }
}
