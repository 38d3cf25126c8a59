//! `sacctmgr show`: users, accounts, associations, QOS, clusters, TRES, workload characterization keys.

use super::book::{Association, Book};
use super::conditions::{
    Conditions, Key, OF_ACCOUNTS, OF_ASSOCIATIONS, OF_QOS, OF_TRES, OF_USERS, OF_WCKEYS,
    accounts_that_fit,
};
use super::console::agreed;
use super::fields::{ListingColumn, columns};
use super::row::{ListingRow, ShownAssociation, user_cells};
use super::session::Invocation;
use super::settings::known_qos;
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::{Qos, ROOT, User};
use std::collections::BTreeMap;

const OF_ASSOCIATION: &str = "Cluster,Account,User,Partition";
const LIMITS: &str = ",Share,Priority,GrpJobs,GrpTRES,GrpSubmit,GrpWall,GrpTRESMins,MaxJobs,MaxTRES,\
     MaxTRESPerNode,MaxSubmit,MaxWall,MaxTRESMins,QOS,DefaultQOS,GrpTRESRunMins";
const USER_LIMITS: &str = ",Cluster,Account,Partition,Share,Priority,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,\
     MaxCPUMins,QOS,DefaultQOS";
const ACCOUNT_LIMITS: &str = ",Cluster,ParentName,User,Share,Priority,GrpJobs,GrpNodes,GrpCPUs,GrpMem,GrpSubmit,GrpWall,\
     GrpCPUMins,MaxJobs,MaxNodes,MaxCPUs,MaxSubmit,MaxWall,MaxCPUMins,QOS,DefaultQOS";
const QOS: &str = "Name,Priority,GraceTime,Preempt,PreemptExemptTime,PreemptMode,Flags%40,UsageThres,UsageFactor,\
     GrpTRES,GrpTRESMins,GrpTRESRunMin,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,MaxTRESMins,MaxWall,MaxTRESPU,\
     MaxJobsPU,MaxSubmitPU,MaxTRESPA,MaxJobsPA,MaxSubmitPA,MinTRES";

const ASKS_ASSOCIATIONS: &str = "You requested options that are only valid when querying with the withassoc option.\n\
     Are you sure you want to continue?";

/// Text after an unknown condition.
pub(super) const USE_SET: &str = "\n Use keyword 'set' to modify value";
const USE_SET_QOS: &str = "\n Use keyword 'set' to modify SLURM_PRINT_VALUE";

/// Reads conditions; a word that is none is refused with Slurm's text.
pub(super) fn read(
    words: &[String],
    known: &'static [(&'static str, usize, Key)],
    hint: &str,
) -> Result<Conditions, Failure> {
    let mut conditions = Conditions::default();
    for text in words {
        let word = Word::new(text);
        if !conditions.take(&word, known)? {
            return Err(Failure::new(format!(" Unknown condition: {text}{hint}")));
        }
    }
    Ok(conditions)
}

/// The columns that are asked for, or the usual ones.
pub(super) fn layout(conditions: &Conditions, usual: &str) -> Result<Vec<ListingColumn>, Failure> {
    columns(conditions.format.as_deref().unwrap_or(usual), false)
}

/// Refuses a condition on a QOS that is not there.
fn check_qos(conditions: &Conditions, book: &Book) -> Result<(), Failure> {
    let mut asked = conditions.of(Key::Qos).unwrap_or_default().iter();
    let checked = asked.try_for_each(|name| known_qos(name.trim_start_matches(['+', '-']), book));
    checked.map_err(Failure::new)
}

/// Whether to go on with conditions of associations, without showing them.
fn goes_on(session: &mut Invocation<'_>, conditions: &Conditions, shown: bool) -> bool {
    if shown || !conditions.concerns_associations() && conditions.of(Key::Accounts).is_none() {
        return true;
    }
    if agreed(session.console, ASKS_ASSOCIATIONS) {
        return true;
    }
    session.console.say("Aborted\n");
    false
}

/// Users, with their associations if those are asked for.
pub(super) fn users(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_USERS, USE_SET)?;
    let shown = session.associations || conditions.has(Key::WithAssociations);
    let tracks = conditions.format.is_none() && session.ledger.tracks_wckeys()?;
    let mut usual = match tracks {
        true => "User,DefaultAccount,DefaultWCKey,AdminLevel".to_owned(),
        false => "User,DefaultAccount,AdminLevel".to_owned(),
    };
    if conditions.has(Key::WithCoordinators) {
        usual.push_str(",Coordinators");
    }
    if shown {
        usual.push_str(USER_LIMITS);
    }
    let columns = layout(&conditions, &usual)?;
    if !goes_on(session, &conditions, shown) {
        return Ok(());
    }
    let book = session.book()?;
    check_qos(&conditions, &book)?;
    let book = with_unknown(book, session, &conditions);
    let books = book.of_all_clusters();
    let coordinators = columns
        .iter()
        .any(|column| column.header == "Coord Accounts");
    let without = !conditions.concerns_associations() && conditions.of(Key::Accounts).is_none();
    let trees: Vec<BTreeMap<&str, Vec<Association<'_>>>> = books
        .iter()
        .map(|book| by_name(book, &conditions, |at| at.user))
        .collect();
    let mut rows = Vec::new();
    for (name, record) in users_of(&books, &conditions) {
        let before = rows.len();
        let mut has_any = false;
        for (book, tree) in books.iter().zip(&trees) {
            let own = tree.get(name).map_or(&[][..], Vec::as_slice);
            has_any |= !own.is_empty();
            let Some(user) = book.all.users.get(name).filter(|_| shown) else {
                continue;
            };
            rows.extend(own.iter().map(|at| {
                let mut row = user_cells(ListingRow::default(), book, user, coordinators);
                // As in Slurm, with all that is inherited, whatever words say.
                row.association = Some(ShownAssociation::new(book, at, &Conditions::default()));
                row.line(&columns)
            }));
        }
        if rows.len() == before && (without || has_any && !shown) {
            let row = user_cells(
                ListingRow::default(),
                record.book,
                record.user,
                coordinators,
            );
            rows.push(row.line(&columns));
        }
    }
    session.print(&columns, &rows);
    Ok(())
}

/// A user with the cluster whose record of it is shown.
struct UserRecord<'a> {
    book: &'a Book,
    user: &'a User,
}

/// The users of all clusters that fit, by name, with the controller's own cluster's record where there is one.
fn users_of<'a>(books: &'a [Book], conditions: &Conditions) -> BTreeMap<&'a str, UserRecord<'a>> {
    let mut all: BTreeMap<&str, UserRecord<'_>> = BTreeMap::new();
    let own_first = books.iter().filter(|book| !book.is_other);
    let own_first = own_first.chain(books.iter().filter(|book| book.is_other));
    for book in own_first {
        for user in book.all.users.values() {
            let record = UserRecord { book, user };
            all.entry(&user.name).or_insert(record);
        }
    }
    all.retain(|name, _| {
        let records = books.iter().filter_map(|book| book.all.users.get(*name));
        records.into_iter().any(|user| conditions.fits_user(user))
    });
    all
}

/// The associations of a cluster that fit, in the order of the tree, by the name of their user or account.
fn by_name<'a>(
    book: &'a Book,
    conditions: &Conditions,
    name: impl Fn(&Association<'a>) -> &'a str,
) -> BTreeMap<&'a str, Vec<Association<'a>>> {
    let mut all: BTreeMap<&str, Vec<Association<'_>>> = BTreeMap::new();
    if !conditions.fits_cluster(book, Key::Clusters) {
        return all;
    }
    let fitting = book.tree().into_iter();
    for at in fitting.filter(|at| conditions.fits_association(book, at)) {
        all.entry(name(&at)).or_default().push(at);
    }
    all
}

/// Where nobody has added users, those that are named, or the one who asks, are in an account of their own name, as jobs
/// of theirs are booked; clients look for it.
fn with_unknown(mut book: Book, session: &Invocation<'_>, conditions: &Conditions) -> Book {
    if !book.is_without_records() {
        return book;
    }
    let named = conditions
        .of(Key::Names)
        .or(conditions.of(Key::Users))
        .or(conditions.of(Key::Accounts));
    let own = || crate::people::user_of_uid(nix::unistd::getuid().as_raw()).map(|user| user.name);
    let names: Vec<String> = match named {
        Some(names) => names
            .iter()
            .filter(|name| session.ledger.is_user(name))
            .cloned()
            .collect(),
        None => own().into_iter().collect(),
    };
    for name in names.into_iter().filter(|name| name != ROOT) {
        let user = User {
            name: name.clone(),
            default_account: name.clone(),
            admin_level: "None".to_owned(),
            accounts: [(name.clone(), Default::default())].into(),
            ..User::default()
        };
        let account = muster_model::accounts::Account {
            name: name.clone(),
            parent: ROOT.to_owned(),
            ..Default::default()
        };
        book.all.users.insert(name.clone(), user);
        book.all.accounts.insert(name, account);
    }
    book
}

/// Accounts, with their associations and their users' if those are asked for.
pub(super) fn accounts(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_ACCOUNTS, USE_SET)?;
    let shown = session.associations || conditions.has(Key::WithAssociations);
    let mut usual = "Account,Description,Organization".to_owned();
    if shown {
        usual.push_str(ACCOUNT_LIMITS);
    }
    if conditions.has(Key::WithCoordinators) {
        usual.push_str(",Coordinators");
    }
    let columns = layout(&conditions, &usual)?;
    if !goes_on(session, &conditions, shown) {
        return Ok(());
    }
    let book = session.book()?;
    check_qos(&conditions, &book)?;
    let books = book.of_all_clusters();
    let coordinators = columns
        .iter()
        .any(|column| column.header == "Coord Accounts");
    let mut names: Vec<String> = books
        .iter()
        .flat_map(|book| accounts_that_fit(&conditions, book))
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut rows = Vec::new();
    for name in &names {
        let row = || account_cells(name, &books, coordinators);
        if !shown {
            rows.push(row().line(&columns));
            continue;
        }
        let before = rows.len();
        for book in &books {
            let own = associations_in(book, name, &conditions);
            rows.extend(own.iter().map(|at| {
                let mut row = row();
                row.association = Some(ShownAssociation::new(book, at, &conditions));
                row.line(&columns)
            }));
        }
        if rows.len() == before && !conditions.concerns_associations() {
            rows.push(row().line(&columns));
        }
    }
    session.print(&columns, &rows);
    Ok(())
}

/// The record of an account: that of the controller's own cluster where it has one.
fn account_cells<'a>(name: &str, books: &[Book], coordinators: bool) -> ListingRow<'a> {
    let own_first = books.iter().filter(|book| !book.is_other);
    let mut own_first = own_first.chain(books.iter().filter(|book| book.is_other));
    let account = own_first.find_map(|book| book.all.accounts.get(name));
    let (description, organization) = match account {
        Some(account) => (account.description.clone(), account.organization.clone()),
        None => ("default root account".to_owned(), ROOT.to_owned()),
    };
    let row = ListingRow::default()
        .with("Account", name)
        .with("Name", name)
        .with("Descr", description)
        .with("Org", organization);
    if !coordinators {
        return row;
    }
    let all = books.iter().map(|book| book.coordinators(name));
    let mut all: Vec<String> = all
        .flat_map(|names| names.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| !name.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    row.with("Coord Accounts", all.join(","))
}

/// The associations in an account of a cluster that are meant.
fn associations_in<'a>(
    book: &'a Book,
    account: &str,
    conditions: &Conditions,
) -> Vec<Association<'a>> {
    let tree = book.tree().into_iter();
    let own = tree.filter(|at| {
        at.account == account
            && conditions.fits_cluster(book, Key::Clusters)
            && conditions.fits(Key::Users, at.user)
            && (conditions.of(Key::Qos).is_none()
                || conditions.fits_any(Key::Qos, book.qos(at).iter().map(String::as_str)))
    });
    own.collect()
}

/// Associations.
pub(super) fn associations(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_ASSOCIATIONS, "")?;
    let mut usual = OF_ASSOCIATION.to_owned();
    // Slurm leaves limits out as well where those of accounts above are not wanted.
    if !conditions.has(Key::NoLimits) && !conditions.has(Key::NoParentLimits) {
        usual.push_str(LIMITS);
    }
    let mut columns = layout(&conditions, &usual)?;
    let mut indents = conditions.has(Key::Tree);
    if conditions.has(Key::Tree) {
        // A width that is given for the usual alignment makes the column a usual one.
        for column in columns
            .iter_mut()
            .filter(|column| column.header == "Account")
        {
            indents &= column.left || !column.has_width;
            if !column.has_width {
                (column.left, column.width) = (true, 20);
            }
        }
    }
    let book = session.book()?;
    check_qos(&conditions, &book)?;
    let book = with_unknown(book, session, &conditions);
    let books = book.of_all_clusters();
    let mut rows = Vec::new();
    for book in &books {
        let all = associations_of(book, &conditions);
        let top = all.iter().map(|at| at.depth).min().unwrap_or(0);
        rows.extend(all.iter().map(|at| {
            let mut row = ListingRow::default();
            if indents {
                let blanks = " ".repeat(at.depth - top);
                row = row.with("Account", format!("{blanks}{}", at.account));
            }
            row.association = Some(ShownAssociation::new(book, at, &conditions));
            row.line(&columns)
        }));
    }
    session.print(&columns, &rows);
    Ok(())
}

/// The associations of a cluster that meet the conditions, in the order of the listing.
fn associations_of<'a>(book: &'a Book, conditions: &Conditions) -> Vec<Association<'a>> {
    if !conditions.fits_cluster(book, Key::Clusters) {
        return Vec::new();
    }
    // Without the accounts that they are in, users' stand in the order in which they are kept.
    let alone = [Key::Users, Key::Partitions, Key::Ids].iter().any(|key| {
        let given = conditions.of(*key);
        given.is_some_and(|list| !list.is_empty())
    });
    let mut all = match conditions.has(Key::NoParentInfo) || alone {
        true => book.tree(),
        false => book.sorted(),
    };
    if conditions.has(Key::NoParentInfo) {
        // As they are stored: those of users first.
        all.sort_by_key(|at| (at.user.is_empty(), at.span.0));
    }
    if conditions.has(Key::OnlyDefaults) {
        all.retain(|at| !at.user.is_empty());
        all.sort_by_key(|at| (at.user, at.span.0));
    }
    all.retain(|at| conditions.fits_association(book, at));
    all
}

/// QOS.
pub(super) fn qos(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_QOS, USE_SET_QOS)?;
    let columns = layout(&conditions, QOS)?;
    let book = session.book()?;
    let rows: Vec<Vec<String>> = book
        .qos_records()
        .into_iter()
        .filter(|qos| fits_qos(&conditions, qos))
        .map(|qos| {
            let row = ListingRow {
                qos: Some(qos),
                ..ListingRow::default()
            };
            row.line(&columns)
        })
        .collect();
    session.print(&columns, &rows);
    Ok(())
}

/// Whether a QOS is one of those that are meant.
pub(super) fn fits_qos(conditions: &Conditions, qos: &Qos) -> bool {
    let mode = qos.preempt_mode.as_deref().unwrap_or("cluster");
    conditions.fits(Key::Names, &qos.name)
        && conditions.fits(Key::Descriptions, &qos.description)
        && conditions.fits(Key::Ids, &qos.id.to_string())
        && conditions.fits(Key::PreemptMode, mode)
}

/// TRES: those that all clusters have, and those of this one.
pub(super) fn tres(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_TRES, USE_SET)?;
    let columns = layout(&conditions, "Type,Name%15,ID")?;
    let facts = session.facts()?;
    let all = [
        ("cpu", "", 1),
        ("mem", "", 2),
        ("energy", "", 3),
        ("node", "", 4),
        ("billing", "", 5),
        ("fs", "disk", 6),
        ("vmem", "", 7),
        ("pages", "", 8),
    ];
    let deleted = conditions
        .has(Key::WithDeleted)
        .then_some(("dynamic_offset", "", 1000));
    let own = facts.tres.iter().zip(1001..).filter_map(|(name, id)| {
        let (kind, name) = name.split_once('/')?;
        Some((kind, name, id))
    });
    // A name alone may be a type with its name.
    let fits = |(kind, name, id): &(&str, &str, u32)| {
        let whole = format!("{kind}/{name}");
        conditions.fits(Key::Types, kind)
            && (conditions.fits(Key::Names, name)
                || conditions.fits(Key::Names, &whole)
                || name.is_empty() && conditions.fits(Key::Names, kind))
            && (conditions.of(Key::Ids).is_none() || conditions.fits(Key::Ids, &id.to_string()))
    };
    let rows: Vec<Vec<String>> = all
        .into_iter()
        .chain(deleted)
        .chain(own)
        .filter(fits)
        .map(|(kind, name, id)| {
            let row = ListingRow::default().with("Type", kind).with("Name", name);
            row.with("ID", id.to_string()).line(&columns)
        })
        .collect();
    session.print(&columns, &rows);
    Ok(())
}

/// Workload characterization keys of all users; the default one of each once more with a star, as its jobs have it.
pub(super) fn wckeys(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_WCKEYS, "")?;
    let format = conditions.format.as_deref().unwrap_or("WCKey,Cluster,User");
    let columns = columns(format, true)?;
    let books = session.book()?.of_all_clusters();
    let mut rows = Vec::new();
    let meant = books
        .iter()
        .filter(|book| conditions.fits_cluster(book, Key::Clusters));
    for book in meant {
        let users = book.all.users.values();
        let mut all: Vec<(&str, &str, bool)> = users
            .flat_map(|user| {
                let keys = user.wckeys.iter();
                keys.map(move |key| (key.as_str(), user.name.as_str(), *key == user.default_wckey))
            })
            .collect();
        all.sort_unstable();
        let numbered = all
            .into_iter()
            .zip(1..)
            .filter(|((key, user, is_default), id)| {
                conditions.fits(Key::Names, key)
                    && conditions.fits(Key::Users, user)
                    && (conditions.of(Key::Ids).is_none()
                        || conditions.fits(Key::Ids, &id.to_string()))
                    && (!conditions.has(Key::OnlyDefaults) || *is_default)
            });
        rows.extend(numbered.map(|((key, user, _), id): (_, i32)| {
            let row = ListingRow::default().with("WCKey", key).with("User", user);
            let row = row.with("Cluster", book.cluster.clone());
            row.with("ID", id.to_string()).line(&columns)
        }));
    }
    session.print(&columns, &rows);
    Ok(())
}
