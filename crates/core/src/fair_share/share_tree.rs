//! Working out fair shares: the tree of accounts and users, by Fair Tree and the classic way.

use muster_model::accounts::{Account, Accounts, PARENT_SHARES, ROOT, Share};
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The tree while shares are worked out.
pub(super) struct Tree {
    nodes: Vec<TreeNode>,
}

#[derive(Default)]
struct TreeNode {
    share: Share,
    children: Vec<usize>,
}

impl Tree {
    pub(super) fn new(accounts: &Accounts, now: Timestamp, half_life_s: u64) -> Tree {
        let mut tree = Tree { nodes: Vec::new() };
        tree.add(None, ROOT, "", 0);
        let mut places: BTreeMap<&str, usize> = BTreeMap::from([(ROOT, 0)]);
        // Parents first; an account whose parent is gone is under the root.
        let mut rest: Vec<&Account> = accounts.accounts.values().collect();
        while !rest.is_empty() {
            let before = rest.len();
            rest.retain(|account| {
                let parent = Some(account.parent.as_str()).filter(|p| !p.is_empty());
                let known = |p: &str| p == ROOT || accounts.accounts.contains_key(p);
                let parent = parent.filter(|p| known(p)).unwrap_or(ROOT);
                let Some(&place) = places.get(parent) else {
                    return true;
                };
                let shares = account.terms.shares.unwrap_or(1);
                let at = tree.add(Some(place), &account.name, "", shares);
                places.insert(&account.name, at);
                false
            });
            if rest.len() == before {
                break;
            }
        }
        for user in accounts.users.values() {
            let mut seen = BTreeSet::new();
            for (account, _, terms) in user.associations() {
                // The first of associations by partition counts for fair share.
                if !seen.insert(account) {
                    continue;
                }
                if let Some(&place) = places.get(account) {
                    tree.add(Some(place), account, &user.name, terms.shares.unwrap_or(1));
                }
            }
        }
        tree.add_root_user(accounts);
        let mut by_key: BTreeMap<(String, String), f64> = BTreeMap::new();
        let mut of_users: BTreeMap<String, f64> = BTreeMap::new();
        for ((account, user), usage) in &accounts.usage {
            let raw = usage.at(now, half_life_s).raw;
            let (account, user) = accounts.share_key(account, user);
            match accounts.has_share(&account, &user) {
                true => *by_key.entry((account, user)).or_default() += raw,
                false => *of_users.entry(user).or_default() += raw,
            }
        }
        for node in &mut tree.nodes {
            let key = (node.share.account.clone(), node.share.user.clone());
            if !node.share.user.is_empty() {
                node.share.raw_usage = by_key.get(&key).copied().unwrap_or(0.0);
            }
        }
        tree.add_users_of_jobs(&of_users);
        tree
    }

    /// The user root in the account `root`, who has an association there without being added. Without any records that user has a
    /// share like others: from the first job on.
    fn add_root_user(&mut self, accounts: &Accounts) {
        let has_records = !accounts.accounts.is_empty() || !accounts.users.is_empty();
        let used = |(_, user): &(String, String)| user == ROOT;
        let is_listed = accounts.user(ROOT).is_some_and(|root| root.is_in(ROOT));
        if !is_listed && (has_records || accounts.usage.keys().any(used)) {
            self.add(Some(0), ROOT, ROOT, 1);
        }
    }

    /// Users who have run jobs without an association: each has one share beside the accounts, in an account of the own name,
    /// whatever accounts the jobs named. With one for each name a user could have as many shares as names.
    fn add_users_of_jobs(&mut self, of_users: &BTreeMap<String, f64>) {
        for (user, raw_usage) in of_users {
            let place = self.add(Some(0), user, "", 1);
            let at = self.add(Some(place), user, user, 1);
            self.nodes[at].share.raw_usage = *raw_usage;
        }
    }

    fn add(&mut self, parent: Option<usize>, account: &str, user: &str, shares: u32) -> usize {
        let at = self.nodes.len();
        let depth = parent.map_or(0, |p| self.nodes[p].share.depth + 1);
        self.nodes.push(TreeNode {
            share: Share {
                account: account.to_owned(),
                user: user.to_owned(),
                depth,
                raw_shares: shares,
                ..Share::default()
            },
            children: Vec::new(),
        });
        if let Some(parent) = parent {
            self.nodes[parent].children.push(at);
        }
        at
    }

    fn children(&self, at: usize) -> Vec<usize> {
        self.nodes[at].children.clone()
    }

    /// Use of an account is that of all below it; parts of siblings' shares and of all use.
    pub(super) fn sum(&mut self, at: usize) -> f64 {
        let children = self.children(at);
        if self.nodes[at].share.user.is_empty() {
            // The sum of no numbers is -0.0, which would be shown with its sign.
            let used = (children.iter()).fold(0.0, |sum, child| sum + self.sum(*child));
            self.nodes[at].share.raw_usage = used;
        }
        let shares = |tree: &Tree, c: usize| match tree.nodes[c].share.raw_shares {
            PARENT_SHARES => 0.0,
            n => f64::from(n),
        };
        let all: f64 = children.iter().map(|c| shares(self, *c)).sum();
        for child in children {
            let part = shares(self, child);
            self.nodes[child].share.norm_shares = if all > 0.0 { part / all } else { 0.0 };
        }
        if at == 0 {
            let total = self.nodes[0].share.raw_usage;
            for node in &mut self.nodes {
                let used = node.share.raw_usage;
                node.share.norm_usage = if total > 0.0 { used / total } else { 0.0 };
            }
            self.nodes[0].share.effective_usage = 1.0;
        }
        self.nodes[at].share.raw_usage
    }

    /// Fair Tree: at each level, shares against use among siblings.
    pub(super) fn levels(&mut self, at: usize) {
        let used = self.nodes[at].share.raw_usage;
        for child in self.children(at) {
            let share = &mut self.nodes[child].share;
            share.effective_usage = if used > 0.0 {
                share.raw_usage / used
            } else {
                0.0
            };
            share.level_fs = if share.raw_shares == PARENT_SHARES {
                f64::INFINITY
            } else if share.norm_shares == 0.0 {
                0.0
            } else if share.effective_usage > 0.0 {
                share.norm_shares / share.effective_usage
            } else {
                f64::INFINITY
            };
            self.levels(child);
        }
    }

    /// Fair Tree: users in order of their level, that of their account, and so on up; the first has 1. Equals have the
    /// same.
    pub(super) fn rank(&mut self) {
        let total = self
            .nodes
            .iter()
            .filter(|n| !n.share.user.is_empty())
            .count();
        let mut left = total;
        let mut groups = vec![(vec![0usize], None)];
        // Depth first: a group of equals is taken apart into its children's groups, in order. Users who are equal to
        // an account are equal to the first below it, too.
        while let Some((group, tied)) = groups.pop() {
            let users: Vec<usize> = group
                .iter()
                .copied()
                .filter(|n| !self.nodes[*n].share.user.is_empty())
                .collect();
            let value = tied.unwrap_or(left as f64 / total.max(1) as f64);
            let tied = if users.is_empty() { tied } else { Some(value) };
            for user in &users {
                self.nodes[*user].share.fair_share = value;
            }
            left -= users.len();
            let mut below: Vec<usize> = group.iter().flat_map(|n| self.children(*n)).collect();
            below.sort_by(|a, b| {
                let level = |n: &usize| self.nodes[*n].share.level_fs;
                level(b).total_cmp(&level(a)).then(a.cmp(b))
            });
            let same = |a: &usize, b: &usize| {
                self.nodes[*a].share.level_fs == self.nodes[*b].share.level_fs
            };
            let parts = below.chunk_by(same).map(<[usize]>::to_vec);
            let ties = std::iter::once(tied).chain(std::iter::repeat(None));
            let parts: Vec<(Vec<usize>, Option<f64>)> = parts.zip(ties).collect();
            groups.extend(parts.into_iter().rev());
        }
    }

    /// The classic formula: `2^(-use/shares/dampening)`, with the part of the account's use that is the user's share.
    pub(super) fn classic(&mut self, at: usize, shares_above: f64, dampening: f64) {
        let above = self.nodes[at].share.effective_usage;
        for child in self.children(at) {
            let share = &mut self.nodes[child].share;
            let among = share.norm_shares;
            share.norm_shares = among * shares_above;
            // The use of siblings counts as far as the user shares it.
            let above = if at == 0 { 0.0 } else { above };
            share.effective_usage = share.norm_usage + (above - share.norm_usage) * among;
            if at == 0 {
                share.effective_usage = share.norm_usage;
            }
            share.fair_share = if share.norm_shares > 0.0 {
                (-share.effective_usage / share.norm_shares / dampening).exp2()
            } else {
                0.0
            };
            let shares = share.norm_shares;
            self.classic(child, shares, dampening);
        }
    }

    /// Fair share that does not suffer from depth: `2^-R`, where `R` is that of the account above times the `k`-th power
    /// of the child's own use against shares, in proportion to that of all its siblings. `k` is 1 unless child and
    /// account are off in different directions: then the further the account is off, the less the child's own use counts.
    pub(super) fn depth_oblivious(&mut self, at: usize, above: f64) {
        let children = self.children(at);
        let sum = |of: fn(&Share) -> f64| -> f64 {
            children.iter().map(|c| of(&self.nodes[*c].share)).sum()
        };
        let (used, shares) = (sum(|s| s.norm_usage), sum(|s| s.norm_shares));
        for child in children {
            let share = &self.nodes[child].share;
            let ratio = if share.raw_shares == PARENT_SHARES {
                above
            } else if share.norm_shares <= 0.0 {
                f64::INFINITY
            } else if at == 0 {
                share.norm_usage / share.norm_shares
            } else if used <= 0.0 || share.norm_usage <= 0.0 || above <= 0.0 {
                0.0
            } else {
                let own = share.norm_usage / share.norm_shares / (used / shares);
                let (above_ln, own_ln) = (above.ln(), own.ln());
                let k = match above_ln * own_ln < 0.0 {
                    true => 1.0 / (1.0 + (5.0 * above_ln).powi(2)),
                    false => 1.0,
                };
                above * own.powf(k)
            };
            let share = &mut self.nodes[child].share;
            share.fair_share = (-ratio).exp2();
            self.depth_oblivious(child, ratio);
        }
    }

    /// Depth first: an account, its users, the accounts below it.
    pub(super) fn list(self) -> Vec<Share> {
        let mut out = Vec::with_capacity(self.nodes.len());
        let mut stack = vec![0usize];
        while let Some(at) = stack.pop() {
            let node = &self.nodes[at];
            out.push(node.share.clone());
            let mut below = node.children.clone();
            // Users first, each by name; the last one pushed is taken first.
            below.sort_by(|a, b| {
                let key = |n: &usize| {
                    let s = &self.nodes[*n].share;
                    (s.user.is_empty(), s.user.clone(), s.account.clone())
                };
                key(b).cmp(&key(a))
            });
            stack.extend(below);
        }
        out
    }
}
