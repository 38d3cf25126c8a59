//! The records of accounting as sacctmgr shows them: associations as a tree, with settings inherited from accounts
//! above.

use muster_model::account_limits::Limits;
use muster_model::accounts::{Account, Accounts, AssociationTerms, Cluster, NORMAL, ROOT, User};
use muster_model::known_cluster::KnownCluster;
use muster_proto::client::AccountsAnswer;
use std::collections::BTreeMap;

/// Facts about the cluster beside the records of accounting.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterFacts {
    /// TRES that the cluster counts beside those that all clusters have: `gres/gpu`, `license/matlab`.
    pub(super) tres: Vec<String>,
    /// Where the controller listens.
    pub(super) host: String,
    /// Its port.
    pub(super) port: u16,
    /// All nodes, as a list of hosts.
    pub(super) nodes: String,
    /// Number of nodes.
    pub(super) node_count: usize,
    /// TRES of all nodes: `cpu=16,mem=...`.
    pub(super) total: String,
    /// Other clusters whose accounting is copied to the same database.
    pub(super) others: Vec<KnownCluster>,
}

/// The records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    /// The cluster whose records these are.
    pub(crate) cluster: String,
    /// Whether another controller serves it.
    pub(crate) is_other: bool,
    /// The records, with the user root, who is in the account root even where nobody added it.
    pub(crate) all: Accounts,
    /// Generic resources and licenses that may have limits; none where that was not asked for.
    pub(super) tres: Option<Vec<String>>,
}

/// An association.
#[derive(Clone, Debug)]
pub(crate) struct Association<'a> {
    pub(crate) account: &'a str,
    /// Empty for an account's own association.
    pub(crate) user: &'a str,
    /// Empty unless it holds in one partition only.
    pub(crate) partition: &'a str,
    /// The account above an account.
    pub(crate) parent: &'a str,
    /// Its own settings.
    pub(crate) own: &'a AssociationTerms,
    /// Its place in the tree, from the left and from the right.
    pub(crate) span: (u32, u32),
    /// Levels below `root`.
    pub(super) depth: usize,
}

impl Book {
    pub(crate) fn new(answer: AccountsAnswer) -> Book {
        let mut all = answer.accounts;
        all.root.id = 1;
        if answer.users_withheld && !all.users.contains_key(ROOT) {
            return Book {
                cluster: answer.cluster,
                is_other: false,
                all,
                tres: None,
            };
        }
        Book::with_root(answer.cluster, false, all)
    }

    /// Whether nobody has added users or accounts. A list that is withheld, which is the one without root, may have any.
    pub(super) fn is_without_records(&self) -> bool {
        self.all.accounts.is_empty()
            && self.all.users.len() == 1
            && self.all.users.contains_key(ROOT)
    }

    /// The records of another cluster that this one knows.
    pub(super) fn other(&self, cluster: &Cluster) -> Book {
        let mut all = cluster.records(&self.all.qos);
        all.root.id = 1;
        Book::with_root(cluster.name.clone(), true, all)
    }

    /// The records with the user root, who is in the account root of each cluster.
    fn with_root(cluster: String, is_other: bool, mut all: Accounts) -> Book {
        let root = all.users.entry(ROOT.to_owned()).or_insert_with(|| User {
            name: ROOT.to_owned(),
            default_account: ROOT.to_owned(),
            accounts: [(ROOT.to_owned(), AssociationTerms::default())].into(),
            ..User::default()
        });
        "Administrator".clone_into(&mut root.admin_level);
        if let Some(terms) = root.accounts.get_mut(ROOT) {
            terms.id = 2;
        }
        Book {
            cluster,
            is_other,
            all,
            tres: None,
        }
    }

    /// Whether there may be a resource of this name in a limit.
    pub(super) fn may_have_tres(&self, name: &str) -> bool {
        let is_own = ["gres/", "license/"].iter().any(|kind| {
            let begin = name.get(..kind.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(kind))
        });
        let has = |known: &Vec<String>| known.iter().any(|own| own.eq_ignore_ascii_case(name));
        !is_own || self.tres.as_ref().is_none_or(has)
    }

    /// The records of all clusters, by their names: these, which are the controller's own, and those of others.
    pub(super) fn of_all_clusters(self) -> Vec<Book> {
        let others = self.all.clusters.values();
        let mut books: Vec<Book> = others.map(|cluster| self.other(cluster)).collect();
        books.push(self);
        books.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        books
    }

    /// The account that an account is under; `root` where that is gone.
    fn parent_of(&self, account: &Account) -> &str {
        match self.all.accounts.get_key_value(&account.parent) {
            Some((name, _)) => name,
            None => ROOT,
        }
    }

    pub(super) fn has_account(&self, name: &str) -> bool {
        name == ROOT || self.all.accounts.contains_key(name)
    }

    /// All associations, in the order of the tree: the latest addition comes first.
    pub(super) fn tree(&self) -> Vec<Association<'_>> {
        let mut below: BTreeMap<&str, Vec<Association<'_>>> = BTreeMap::new();
        for account in self.all.accounts.values() {
            let parent = self.parent_of(account);
            below.entry(parent).or_default().push(Association {
                account: &account.name,
                user: "",
                partition: "",
                parent,
                own: &account.terms,
                span: (0, 0),
                depth: 0,
            });
        }
        for user in self.all.users.values() {
            for (account, partition, own) in user.associations() {
                below.entry(account).or_default().push(Association {
                    account,
                    user: &user.name,
                    partition,
                    parent: "",
                    own,
                    span: (0, 0),
                    depth: 0,
                });
            }
        }
        for list in below.values_mut() {
            list.sort_by_key(|a| std::cmp::Reverse(a.own.id));
        }
        let root = Association {
            account: ROOT,
            user: "",
            partition: "",
            parent: "",
            own: &self.all.root,
            span: (0, 0),
            depth: 0,
        };
        let mut out = Vec::new();
        let mut next = 1;
        walk(root, &mut below, &mut next, &mut out);
        out
    }

    /// All associations, as lists show them: each account, its users by name, the accounts below it by name.
    pub(crate) fn sorted(&self) -> Vec<Association<'_>> {
        let tree = self.tree();
        let mut below: BTreeMap<&str, Vec<Association<'_>>> = BTreeMap::new();
        let mut root = None;
        for association in tree {
            let above = match (association.user, association.account) {
                ("", ROOT) => {
                    root = Some(association);
                    continue;
                }
                ("", _) => association.parent,
                (_, account) => account,
            };
            below.entry(above).or_default().push(association);
        }
        for list in below.values_mut() {
            list.sort_by_key(|a| match a.user {
                "" => (true, a.account, ""),
                user => (false, user, a.partition),
            });
        }
        let mut out = Vec::new();
        let mut waiting: Vec<Association<'_>> = root.into_iter().collect();
        while let Some(association) = waiting.pop() {
            let children = match association.user {
                "" => below.remove(association.account).unwrap_or_default(),
                _ => Vec::new(),
            };
            out.push(association);
            waiting.extend(children.into_iter().rev());
        }
        out
    }

    /// Settings from an association up the tree, the nearest first.
    pub(crate) fn chain<'a>(&'a self, of: &Association<'a>) -> Vec<&'a AssociationTerms> {
        let mut chain = vec![of.own];
        if !of.user.is_empty() {
            chain.extend(self.all.terms_of_account(of.account));
        } else if of.account != ROOT {
            chain.extend(self.all.terms_of_account(of.account).skip(1));
        }
        chain
    }

    /// The limits that hold for an association, or only its own.
    pub(crate) fn limits(&self, of: &Association<'_>, inherited: bool) -> Limits {
        let mut limits = of.own.limits.clone();
        if inherited {
            for above in self.chain(of).into_iter().skip(1) {
                limits.inherit(&above.limits);
            }
        }
        limits
    }

    /// The QOS of an association, by name.
    pub(super) fn qos(&self, of: &Association<'_>) -> Vec<String> {
        let list = match of.user {
            "" => self.all.qos_list_of_account(of.account),
            user => self.all.qos_list(of.account, user, of.partition),
        };
        let mut list = list.unwrap_or_else(|| vec![NORMAL.to_owned()]);
        list.sort_unstable();
        list
    }

    /// Coordinators of an account, or of one above it.
    pub(super) fn coordinators(&self, account: &str) -> String {
        let users = self.all.users.keys().map(String::as_str);
        let own = users.filter(|user| muster_model::rights::coordinates(&self.all, user, account));
        own.collect::<Vec<_>>().join(",")
    }

    /// The accounts that a user coordinates, with those under them.
    pub(super) fn coordinated(&self, user: &User) -> String {
        if user.coordinates.is_empty() {
            return String::new();
        }
        let mut names: Vec<&str> = self.all.accounts.keys().map(String::as_str).collect();
        names.push(ROOT);
        names.sort_unstable();
        names.retain(|name| muster_model::rights::coordinates(&self.all, &user.name, name));
        names.join(",")
    }

    /// QOS with their numbers, `normal` first.
    pub(crate) fn qos_records(&self) -> Vec<muster_model::accounts::Qos> {
        let normal = self.all.qos(NORMAL).into_iter();
        let others = self.all.qos.values().filter(|q| q.name != NORMAL).cloned();
        let mut list: Vec<_> = normal.chain(others).collect();
        list.sort_by_key(|qos| match (qos.name.as_str(), qos.id) {
            (NORMAL, _) => 1,
            (_, 0) => u32::MAX,
            (_, id) => id,
        });
        list
    }
}

fn walk<'a>(
    mut at: Association<'a>,
    below: &mut BTreeMap<&str, Vec<Association<'a>>>,
    next: &mut u32,
    out: &mut Vec<Association<'a>>,
) {
    at.span.0 = *next;
    *next += 1;
    let (place, depth) = (out.len(), at.depth);
    let children = match at.user {
        "" => below.remove(at.account).unwrap_or_default(),
        _ => Vec::new(),
    };
    out.push(at);
    for mut child in children {
        child.depth = depth + 1;
        walk(child, below, next, out);
    }
    out[place].span.1 = *next;
    *next += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists that others may not see counted as empty, and sacctmgr showed records that nobody has made.
    #[test]
    fn records_that_are_withheld_are_not_missing() {
        let answer = |users_withheld| AccountsAnswer {
            users_withheld,
            ..AccountsAnswer::default()
        };
        assert!(Book::new(answer(false)).is_without_records());
        assert!(!Book::new(answer(true)).is_without_records());
    }
}
