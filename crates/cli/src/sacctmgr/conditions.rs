//! Conditions of a command: users, accounts, associations, QOS and clusters, and words that control the output.

use super::book::{Association, Book};
use super::words::{Word, list};
use crate::listing::Failure;
use muster_model::accounts::{ROOT, User};

/// A condition, or a word that controls the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Names,
    Users,
    Accounts,
    Clusters,
    Partitions,
    DefaultAccounts,
    DefaultWckeys,
    AdminLevel,
    Wckeys,
    Qos,
    DefaultQos,
    Parents,
    Descriptions,
    Organizations,
    Ids,
    Format,
    PreemptMode,
    Priority,
    Classification,
    Federations,
    Flags,
    Types,
    /// Known, and nothing here differs in it.
    Ignored,
    WithAssociations,
    WithCoordinators,
    WithDeleted,
    WithRawQos,
    WithSubAccounts,
    NoParentInfo,
    NoParentLimits,
    NoLimits,
    OnlyDefaults,
    Tree,
}

type KnownWords = &'static [(&'static str, usize, Key)];

pub(super) const OF_USERS: KnownWords = &[
    ("AdminLevel", 2, Key::AdminLevel),
    ("Accounts", 2, Key::Accounts),
    ("Acct", 4, Key::Accounts),
    ("Clusters", 1, Key::Clusters),
    ("DefaultAccount", 8, Key::DefaultAccounts),
    ("DefaultWCKey", 8, Key::DefaultWckeys),
    ("DefaultQOS", 8, Key::DefaultQos),
    ("Format", 1, Key::Format),
    ("Names", 1, Key::Names),
    ("Users", 1, Key::Names),
    ("Partitions", 3, Key::Partitions),
    ("Priority", 3, Key::Priority),
    ("QOSLevels", 1, Key::Qos),
    ("WCKeys", 1, Key::Wckeys),
];

pub(super) const OF_ACCOUNTS: KnownWords = &[
    ("Accounts", 1, Key::Names),
    ("Acct", 4, Key::Names),
    ("Names", 1, Key::Names),
    ("Clusters", 1, Key::Clusters),
    ("Descriptions", 1, Key::Descriptions),
    ("DefaultQOS", 8, Key::DefaultQos),
    ("Format", 1, Key::Format),
    ("Organizations", 1, Key::Organizations),
    ("Parents", 1, Key::Parents),
    ("Priority", 3, Key::Priority),
    ("QOSLevels", 1, Key::Qos),
    ("Users", 1, Key::Users),
];

pub(super) const OF_ASSOCIATIONS: KnownWords = &[
    ("Accounts", 2, Key::Accounts),
    ("Acct", 4, Key::Accounts),
    ("Clusters", 1, Key::Clusters),
    ("DefaultQOS", 8, Key::DefaultQos),
    ("Format", 1, Key::Format),
    ("IDs", 1, Key::Ids),
    ("Associations", 2, Key::Ids),
    ("Partitions", 4, Key::Partitions),
    ("Parents", 4, Key::Parents),
    ("QOSLevels", 1, Key::Qos),
    ("Users", 1, Key::Users),
];

pub(super) const OF_QOS: KnownWords = &[
    ("Descriptions", 1, Key::Descriptions),
    ("Format", 1, Key::Format),
    ("IDs", 1, Key::Ids),
    ("Names", 1, Key::Names),
    ("QOSLevels", 1, Key::Names),
    ("PreemptMode", 1, Key::PreemptMode),
];

/// Conditions on QOS where usage is reset, which each cluster counts for itself.
pub(super) const OF_RESET_QOS: KnownWords = &[
    ("Clusters", 1, Key::Clusters),
    ("Descriptions", 1, Key::Descriptions),
    ("IDs", 1, Key::Ids),
    ("Names", 1, Key::Names),
    ("QOSLevels", 1, Key::Names),
];

pub(super) const OF_CLUSTERS: KnownWords = &[
    ("Classification", 3, Key::Classification),
    ("Clusters", 1, Key::Names),
    ("Names", 1, Key::Names),
    ("DefaultQOS", 8, Key::DefaultQos),
    ("Federations", 3, Key::Federations),
    ("Flags", 2, Key::Flags),
    ("Format", 2, Key::Format),
    ("PluginIDSelect", 1, Key::Ignored),
    ("RPCVersions", 1, Key::Ignored),
];

pub(super) const OF_TRES: KnownWords = &[
    ("Format", 1, Key::Format),
    ("IDs", 1, Key::Ids),
    ("Names", 1, Key::Names),
    ("Types", 2, Key::Types),
];

pub(super) const OF_WCKEYS: KnownWords = &[
    ("Clusters", 3, Key::Clusters),
    ("Endtime", 1, Key::Ignored),
    ("Format", 1, Key::Format),
    ("IDs", 1, Key::Ids),
    ("Names", 3, Key::Names),
    ("WCKeys", 3, Key::Names),
    ("Starttime", 2, Key::Ignored),
    ("Users", 1, Key::Users),
];

/// Words without a value.
const WORDS: KnownWords = &[
    ("WithAssociations", 5, Key::WithAssociations),
    ("WithCoordinators", 5, Key::WithCoordinators),
    ("WithDeleted", 5, Key::WithDeleted),
    ("WithRawQOSLevel", 5, Key::WithRawQos),
    ("WithSubAccounts", 5, Key::WithSubAccounts),
    ("WithFederations", 5, Key::Ignored),
    ("WithClusters", 5, Key::Ignored),
    ("WOPInfo", 4, Key::NoParentInfo),
    ("WOPLimits", 4, Key::NoParentLimits),
    ("WOLimits", 3, Key::NoLimits),
    ("OnlyDefaults", 4, Key::OnlyDefaults),
    ("Tree", 4, Key::Tree),
];

/// Conditions, each a list of which one must fit. An empty list of a key that was given fits what has nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    given: Vec<(Key, Vec<String>)>,
    flags: Vec<Key>,
    /// Columns.
    pub(super) format: Option<String>,
}

impl Conditions {
    /// Conditions under which an association shows only its own settings.
    pub(super) fn alone() -> Conditions {
        let mut conditions = Conditions::default();
        conditions.flag(Key::NoParentInfo);
        conditions
    }

    /// Takes a word; whether it is one.
    pub(super) fn take(&mut self, word: &Word, known: KnownWords) -> Result<bool, Failure> {
        if word.is("where", 3) && word.key.is_none() || word.is("and", 3) && word.key.is_none() {
            return Ok(true);
        }
        if word.key.is_none() {
            let flag = super::words::key_named(&word.value, WORDS);
            match flag {
                Some(flag) => self.flags.push(flag),
                None if !known.iter().any(|(.., key)| *key == Key::Names) => return Ok(false),
                None => self.add(Key::Names, word.list()),
            }
            return Ok(true);
        }
        let Some(key) = word.key_of(known) else {
            return Ok(false);
        };
        match key {
            Key::Format => {
                let more = word.value.clone();
                self.format = Some(match self.format.take() {
                    Some(format) => format!("{format},{more}"),
                    None => more,
                });
            }
            key => self.add(key, list(&word.value)),
        }
        Ok(true)
    }

    /// Adds names to a condition.
    pub(super) fn add(&mut self, key: Key, names: Vec<String>) {
        match self.given.iter_mut().find(|(own, _)| *own == key) {
            Some((_, list)) => list.extend(names),
            None => self.given.push((key, names)),
        }
    }

    /// A word that is said.
    pub(super) fn flag(&mut self, key: Key) {
        self.flags.push(key);
    }

    pub(super) fn has(&self, flag: Key) -> bool {
        self.flags.contains(&flag)
    }

    pub(super) fn of(&self, key: Key) -> Option<&[String]> {
        let found = self.given.iter().find(|(own, _)| *own == key);
        found.map(|(_, list)| list.as_slice())
    }

    pub(super) fn names(&self, key: Key) -> Vec<String> {
        self.of(key).map(<[String]>::to_vec).unwrap_or_default()
    }

    /// Whether any condition was given.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Whether a value is among those of a condition, in any case.
    pub(super) fn fits(&self, key: Key, value: &str) -> bool {
        match self.of(key) {
            None => true,
            Some([]) => value.is_empty(),
            Some(list) => list.iter().any(|own| own.eq_ignore_ascii_case(value)),
        }
    }

    /// Whether any of several values is.
    pub(super) fn fits_any<'a>(&self, key: Key, values: impl IntoIterator<Item = &'a str>) -> bool {
        let mut values = values.into_iter();
        self.of(key).is_none() || values.any(|value| self.fits(key, value))
    }

    /// Whether the controller's own cluster is meant.
    pub(super) fn fits_cluster(&self, book: &Book, key: Key) -> bool {
        self.fits(key, &book.cluster)
    }

    /// Whether a user's record fits; `names` is the key of its name.
    pub(super) fn fits_user(&self, user: &User) -> bool {
        let level = |wanted: &String| super::begins(&user.admin_level, wanted);
        let levels = self.of(Key::AdminLevel);
        self.fits(Key::Names, &user.name)
            && self.fits(Key::DefaultAccounts, &user.default_account)
            && self.fits(Key::DefaultWckeys, &user.default_wckey)
            && levels.is_none_or(|list| list.iter().any(level))
            && self.fits_any(Key::Wckeys, user.wckeys.iter().map(String::as_str))
    }

    /// Whether an association fits the conditions on associations.
    pub(super) fn fits_association(&self, book: &Book, at: &Association<'_>) -> bool {
        let has_qos = || {
            let own = book.qos(at);
            self.fits_any(Key::Qos, own.iter().map(String::as_str))
        };
        let default = || {
            let chain = book.chain(at);
            let found = chain.iter().find_map(|terms| terms.default_qos.as_deref());
            self.fits(Key::DefaultQos, found.unwrap_or(""))
        };
        let id = at.own.id.to_string();
        let in_account = || match self.of(Key::Accounts) {
            Some(list) if self.has(Key::WithSubAccounts) => {
                let mut above = book.all.upwards(at.account);
                above.any(|name| list.iter().any(|own| own.eq_ignore_ascii_case(name)))
            }
            _ => self.fits(Key::Accounts, at.account),
        };
        let is_default = || {
            let user = book.all.users.get(at.user);
            user.is_some_and(|user| user.default_account == at.account)
        };
        let has_priority = || {
            let chain = book.chain(at);
            let found = chain.iter().find_map(|terms| terms.priority);
            self.fits(Key::Priority, &found.unwrap_or(0).to_string())
        };
        in_account()
            && (self.of(Key::Priority).is_none() || has_priority())
            && self.fits(Key::Users, at.user)
            && self.fits(Key::Partitions, at.partition)
            && (self.of(Key::Parents).is_none() || self.fits(Key::Parents, at.parent))
            && (self.of(Key::Ids).is_none() || self.fits(Key::Ids, &id))
            && (self.of(Key::Qos).is_none() || has_qos())
            && (self.of(Key::DefaultQos).is_none() || default())
            && (!self.has(Key::OnlyDefaults) || is_default())
    }

    /// Whether something is said that only associations have.
    pub(super) fn concerns_associations(&self) -> bool {
        let keys = [
            Key::Partitions,
            Key::Parents,
            Key::Qos,
            Key::DefaultQos,
            Key::Priority,
            Key::Users,
        ];
        keys.iter().any(|key| self.of(*key).is_some())
    }
}

/// The accounts that fit, `root` included where it does.
pub(super) fn accounts_that_fit(conditions: &Conditions, book: &Book) -> Vec<String> {
    let parent = |name: &str| {
        let account = book.all.accounts.get(name);
        account.map_or("", |account| match account.parent.as_str() {
            "" => ROOT,
            parent => parent,
        })
    };
    let text = |name: &str| match book.all.accounts.get(name) {
        Some(account) => (account.description.as_str(), account.organization.as_str()),
        None => ("default root account", ROOT),
    };
    let names = book.all.accounts.keys().map(String::as_str).chain([ROOT]);
    let mut fitting: Vec<String> = names
        .filter(|name| {
            let (description, organization) = text(name);
            conditions.fits(Key::Names, name)
                && conditions.fits(Key::Descriptions, description)
                && conditions.fits(Key::Organizations, organization)
                && (conditions.of(Key::Parents).is_none()
                    || conditions.fits(Key::Parents, parent(name)))
        })
        .map(str::to_owned)
        .collect();
    fitting.sort_unstable();
    fitting
}
