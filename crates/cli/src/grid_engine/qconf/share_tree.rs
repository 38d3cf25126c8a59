//! The share tree: accounts and users with their shares, as Grid Engine writes it. A change sets shares of nodes that are there;
//! nodes are added and removed as accounts and users are.

use super::change::{CommandLine, account_of};
use muster_conf::grid_engine::Mapping;
use muster_model::accounts::Accounts;
use std::fmt::Write as _;

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShareNode {
    name: String,
    is_account: bool,
    shares: u32,
    /// Positions of the nodes below it.
    children: Vec<usize>,
    /// The node above it; that of the root is itself.
    parent: usize,
}

/// All nodes, the root first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShareTree(Vec<ShareNode>);

const ROOT: &str = "Root";

impl ShareTree {
    /// The tree of the accounts.
    pub(super) fn of(accounts: &Accounts) -> ShareTree {
        let root = ShareNode {
            name: ROOT.to_owned(),
            is_account: false,
            shares: 1,
            children: Vec::new(),
            parent: 0,
        };
        let mut tree = ShareTree(vec![root]);
        let mut left = vec![(0, "root".to_owned())];
        while let Some((at, account)) = left.pop() {
            let below = accounts
                .accounts
                .values()
                .filter(|own| own.parent == account);
            for own in below {
                let place = tree.add(at, &own.name, true, own.terms.shares);
                left.push((place, own.name.clone()));
            }
            for user in accounts.users.values() {
                if let Some(terms) = user.accounts.get(&account) {
                    tree.add(at, &user.name, false, terms.shares);
                }
            }
        }
        tree
    }

    fn add(&mut self, parent: usize, name: &str, is_account: bool, shares: Option<u32>) -> usize {
        let place = self.0.len();
        self.0.push(ShareNode {
            name: name.to_owned(),
            is_account,
            shares: shares.unwrap_or(1),
            children: Vec::new(),
            parent,
        });
        self.0[parent].children.push(place);
        place
    }

    /// `-sstree`; nothing where the root is alone.
    pub(super) fn linear(&self) -> Option<String> {
        let mut text = String::new();
        for (id, node) in self.0.iter().enumerate() {
            let children: Vec<String> = node.children.iter().map(usize::to_string).collect();
            let children = match children.is_empty() {
                true => "NONE".to_owned(),
                false => children.join(","),
            };
            let _ = writeln!(
                text,
                "id={id}\nname={}\ntype={}\nshares={}\nchildnodes={children}",
                node.name,
                u8::from(node.is_account),
                node.shares
            );
        }
        (self.0.len() > 1).then_some(text)
    }

    /// `-sst`: a line for each node, further in below the one that it belongs to.
    pub(super) fn indented(&self) -> Option<String> {
        let (mut text, mut left) = (String::new(), vec![(0, 0)]);
        while let Some((at, depth)) = left.pop() {
            let node = &self.0[at];
            let _ = writeln!(
                text,
                "{:indent$}{}={}",
                "",
                node.name,
                node.shares,
                indent = depth * 3
            );
            left.extend(node.children.iter().rev().map(|child| (*child, depth + 1)));
        }
        (self.0.len() > 1).then_some(text)
    }

    /// `-sstnode`: the node at the end of a path.
    pub(super) fn node(&self, path: &str) -> Result<String, String> {
        let missing = || format!("Unable to locate {path} in sharetree");
        let words = path
            .split(['/', '.'])
            .filter(|word| !word.is_empty() && *word != ROOT);
        let mut at = 0;
        for word in words {
            let mut below = self.0[at].children.iter();
            at = *below
                .find(|own| self.0[**own].name == word)
                .ok_or_else(missing)?;
        }
        Ok(format!("{}={}\n", self.path(at), self.0[at].shares))
    }

    /// `/physics/ada`; that of the root is `/`.
    fn path(&self, mut at: usize) -> String {
        let mut words = Vec::new();
        while at != 0 {
            words.push(self.0[at].name.as_str());
            at = self.0[at].parent;
        }
        words.reverse();
        format!("/{}", words.join("/"))
    }

    /// A tree as `-sstree` writes it.
    ///
    /// # Errors
    /// A line is wrong, or the nodes are no tree.
    fn parse(text: &str) -> Result<ShareTree, String> {
        let mut nodes: Vec<ParsedNode> = Vec::new();
        for line in text.replace("\\\n", " ").lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("error: \"{line:.80}\" is no line of a share tree");
            let (key, value) = line.split_once('=').ok_or_else(wrong)?;
            let (key, value) = (key.trim(), value.trim());
            if key == "id" {
                nodes.push(ParsedNode {
                    id: value.parse().map_err(|_| wrong())?,
                    ..ParsedNode::default()
                });
                continue;
            }
            let node = nodes.last_mut().ok_or_else(wrong)?;
            match key {
                "name" => node.name = value.to_owned(),
                "type" if matches!(value, "0" | "1") => node.is_account = value == "1",
                "shares" => node.shares = value.parse().map_err(|_| wrong())?,
                "childnodes" if value == "NONE" => {}
                "childnodes" => {
                    let ids = value.split(',').map(|id| id.trim().parse());
                    node.children = ids.collect::<Result<_, _>>().map_err(|_| wrong())?;
                }
                _ => return Err(wrong()),
            }
        }
        let first = nodes.first().filter(|own| own.name == ROOT);
        let first = first
            .ok_or("error: the first node of a share tree is Root")?
            .id;
        let mut tree = ShareTree(Vec::new());
        let mut left = vec![(first, 0)];
        while let Some((id, parent)) = left.pop() {
            let found = nodes.iter().position(|own| own.id == id);
            // Each node is taken out, so that a circle ends.
            let node =
                nodes.remove(found.ok_or_else(|| {
                    format!("error: there is no node {id}, or it is in two places")
                })?);
            let place = tree.0.len();
            if place > 0 {
                tree.0[parent].children.push(place);
            }
            tree.0.push(ShareNode {
                name: node.name,
                is_account: node.is_account,
                shares: node.shares,
                children: Vec::new(),
                parent,
            });
            left.extend(node.children.into_iter().map(|child| (child, place)));
        }
        match nodes.first() {
            Some(lost) => Err(format!("error: node {} is below no other", lost.id)),
            None => Ok(tree),
        }
    }

    /// The commands of sacctmgr that give nodes the shares of a text, and nodes that the text does not have.
    ///
    /// # Errors
    /// The text is wrong, or a node of it is neither an account nor a user of the account above it.
    pub(super) fn changes(
        &self,
        text: &str,
        mapping: &Mapping,
    ) -> Result<(Vec<CommandLine>, Vec<String>), String> {
        let mut wanted = ShareTree::parse(text)?;
        for node in &mut wanted.0 {
            node.name = account_of(mapping, &node.name).to_owned();
        }
        let paths: Vec<String> = (0..wanted.0.len()).map(|at| wanted.path(at)).collect();
        let (mut lines, mut lost) = (Vec::new(), Vec::new());
        for (at, node) in self.0.iter().enumerate().skip(1) {
            let path = self.path(at);
            match paths.iter().position(|own| *own == path) {
                None => lost.push(path),
                Some(place) if wanted.0[place].shares != node.shares => {
                    lines.push(self.set(at, wanted.0[place].shares));
                }
                Some(_) => {}
            }
        }
        let known: Vec<String> = (0..self.0.len()).map(|at| self.path(at)).collect();
        match paths.iter().find(|path| !known.contains(path)) {
            Some(path) => Err(format!(
                "denied: {path} is not there: an account is added by qconf -Aprj, a user to an account by qconf -au"
            )),
            None => Ok((lines, lost)),
        }
    }

    fn set(&self, at: usize, shares: u32) -> CommandLine {
        let node = &self.0[at];
        let words = match node.is_account {
            true => vec![
                "account".to_owned(),
                "where".to_owned(),
                format!("name={}", node.name),
            ],
            false => {
                let account = match node.parent {
                    0 => "root",
                    parent => &self.0[parent].name,
                };
                let account = format!("account={account}");
                vec![
                    "user".to_owned(),
                    "where".to_owned(),
                    format!("name={}", node.name),
                    account,
                ]
            }
        };
        let set = ["set".to_owned(), format!("fairshare={shares}")];
        ["modify".to_owned()]
            .into_iter()
            .chain(words)
            .chain(set)
            .collect()
    }
}

/// A node as a text has it.
#[derive(Default)]
struct ParsedNode {
    id: u64,
    name: String,
    is_account: bool,
    shares: u32,
    children: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::accounts::{Account, AssociationTerms, User};

    fn accounts() -> Accounts {
        let mut accounts = Accounts::default();
        for (name, parent, shares) in [("physics", "root", Some(30)), ("optics", "physics", None)] {
            let account = Account {
                name: name.to_owned(),
                parent: parent.to_owned(),
                terms: AssociationTerms {
                    shares,
                    ..AssociationTerms::default()
                },
                ..Account::default()
            };
            accounts.accounts.insert(name.to_owned(), account);
        }
        let mut user = User {
            name: "ada".to_owned(),
            ..User::default()
        };
        user.accounts
            .insert("optics".to_owned(), AssociationTerms::default());
        accounts.users.insert("ada".to_owned(), user);
        accounts
    }

    #[test]
    fn the_tree_is_shown_and_shares_of_it_are_changed() {
        let tree = ShareTree::of(&accounts());
        assert_eq!(
            tree.indented().unwrap(),
            "Root=1\n   physics=30\n      optics=1\n         ada=1\n"
        );
        let text = tree.linear().unwrap();
        assert!(text.starts_with("id=0\nname=Root\ntype=0\nshares=1\nchildnodes=1\nid=1\nname=physics\ntype=1\nshares=30\n"));
        assert_eq!(tree.node("/physics/optics").unwrap(), "/physics/optics=1\n");
        assert_eq!(
            tree.node("nosuch").unwrap_err(),
            "Unable to locate nosuch in sharetree"
        );
        assert_eq!(ShareTree::parse(&text), Ok(tree.clone()));
        let mapping = Mapping::parse("project p physics\n", "f").0;
        let changed = text
            .replace("name=physics", "name=p")
            .replace("shares=30", "shares=5");
        let changed = changed.replace("name=ada\ntype=0\nshares=1", "name=ada\ntype=0\nshares=7");
        let (lines, lost) = tree.changes(&changed, &mapping).unwrap();
        let lines: Vec<String> = lines.iter().map(|line| line.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "modify account where name=physics set fairshare=5",
                "modify user where name=ada account=optics set fairshare=7"
            ]
        );
        assert_eq!(lost, Vec::<String>::new());
        let short = "id=0\nname=Root\nchildnodes=1\nid=1\nname=physics\nshares=30\n";
        let (lines, lost) = tree.changes(short, &mapping).unwrap();
        assert_eq!(
            (lines.len(), lost.join(" ")),
            (0, "/physics/optics /physics/optics/ada".to_owned())
        );
    }

    #[test]
    fn texts_that_are_no_tree_are_refused() {
        for (text, why) in [
            ("", "error: the first node of a share tree is Root"),
            ("name=x\n", "error: \"name=x\" is no line of a share tree"),
            (
                "id=0\nname=Root\nshares=x\n",
                "error: \"shares=x\" is no line of a share tree",
            ),
            (
                "id=0\nname=Root\nchildnodes=0\n",
                "error: there is no node 0, or it is in two places",
            ),
            (
                "id=0\nname=Root\nid=1\nname=a\n",
                "error: node 1 is below no other",
            ),
        ] {
            assert_eq!(ShareTree::parse(text).unwrap_err(), why);
        }
        let mapping = Mapping::default();
        let text = "id=0\nname=Root\nchildnodes=1\nid=1\nname=new\nshares=1\n";
        let why = ShareTree::default_tree()
            .changes(text, &mapping)
            .unwrap_err();
        assert!(why.starts_with("denied: /new is not there"), "{why}");
    }

    impl ShareTree {
        fn default_tree() -> ShareTree {
            ShareTree::of(&Accounts::default())
        }
    }
}
