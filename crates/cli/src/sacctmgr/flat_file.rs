//! `sacctmgr dump` and `load`: accounts and users with what their associations set, as lines of a file that Slurm
//! writes and reads, too. QOS are in neither's file.

use super::amounts_text;
mod plan;
mod tables;

use self::plan::{Loading, plan};
use self::tables::sections;
use super::book::{Association, Book};
use super::session::{Invocation, refused};
use crate::errno;
use crate::listing::Failure;
use muster_model::account_limits::Limits;
use muster_model::accounts::{AssociationTerms, Cluster, NORMAL, PARENT_SHARES, ROOT, User};
use muster_model::command::{AccountsAsk, AccountsEdit, ClusterAsk};
use std::fmt::Write as _;
use std::time::Instant;

const HEAD: &str = "\
# Accounts and users of a cluster, for 'sacctmgr load'. A line is a title, a dash, a name, and options after colons:
#   Cluster - 'name':Fairshare=1:QOS='normal'
#   Parent - 'account'                        the lines that follow are below this account, which a line above made
#   Account - 'name':Description='...':Organization='...':Fairshare=1:MaxJobs=4:MaxTRESPerJob=node=5
#   User - 'name':DefaultAccount='account':AdminLevel='None':Fairshare=1:MaxWallDurationPerJob=60
# The account root is there without a line of its own.
";

/// `file=NAME` or a bare name, and the other words.
fn file_of(words: &[String]) -> (Option<String>, Vec<&String>) {
    let named = |word: &&String| {
        let (key, _) = word.split_once('=').unwrap_or(("", ""));
        super::begins("file", key)
    };
    let file = words
        .iter()
        .find(named)
        .and_then(|word| word.split_once('='));
    let rest = words.iter().filter(|word| !named(word)).collect();
    (
        file.map(|(_, value)| value.trim_matches(['"', '\'']).to_owned()),
        rest,
    )
}

/// Writes the file.
pub(super) fn dump(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (file, rest) = file_of(words);
    let cluster = rest
        .first()
        .map(|word| word.split_once('=').map_or(word.as_str(), |(_, v)| v));
    let Some(cluster) = cluster else {
        return Err(Failure::new(" We need a cluster to dump."));
    };
    let own = session.book()?;
    let may = session.is_operator(&own);
    let mut books = own.of_all_clusters().into_iter();
    let Some(book) = books.find(|book| cluster.eq_ignore_ascii_case(&book.cluster)) else {
        return Err(Failure::new(format!(" Cluster {cluster} doesn't exist.")));
    };
    if !may {
        return Err(Failure::new(
            " Your user does not have sufficient privileges to dump clusters.",
        ));
    }
    let path = file.unwrap_or_else(|| {
        let path = format!("./{cluster}.cfg");
        session
            .console
            .say(&format!(" No filename given, using {path}.\n"));
        path
    });
    let text = written(&book);
    if let Err(e) = std::fs::write(&path, format!("{HEAD}{text}")) {
        return Err(Failure::new(format!(
            "Can't open file {path}, {}",
            errno::system_text(&e)
        )));
    }
    for line in text.lines() {
        session.console.complain(&format!("sacctmgr: {line}"));
    }
    Ok(())
}

fn written(book: &Book) -> String {
    let mut out = String::new();
    let sorted = book.sorted();
    let Some(root) = sorted.first() else {
        return out;
    };
    let cluster = &book.cluster;
    let _ = write!(out, "Cluster - '{cluster}'");
    if !book.all.classification.is_empty() {
        let _ = write!(out, ":Classification='{}'", book.all.classification);
    }
    terms_text(&mut out, root.own, true);
    for parent in sorted.iter().filter(|at| at.user.is_empty()) {
        let is_below = |at: &&Association<'_>| match at.user {
            "" => at.account != ROOT && at.parent == parent.account,
            _ => at.account == parent.account,
        };
        let below: Vec<&Association<'_>> = sorted.iter().filter(is_below).collect();
        if below.is_empty() {
            continue;
        }
        let _ = writeln!(out, "Parent - '{}'", parent.account);
        for at in below {
            match (
                book.all.users.get(at.user),
                book.all.accounts.get(at.account),
            ) {
                (Some(user), _) => user_line(&mut out, user, at),
                (None, Some(account)) => {
                    let _ = write!(
                        out,
                        "Account - '{}':Description='{}':Organization='{}'",
                        account.name, account.description, account.organization
                    );
                    terms_text(&mut out, at.own, false);
                }
                (None, None) => {}
            }
        }
    }
    out
}

fn user_line(out: &mut String, user: &User, at: &Association<'_>) {
    let _ = write!(out, "User - '{}'", user.name);
    if !at.partition.is_empty() {
        let _ = write!(out, ":Partition='{}'", at.partition);
    }
    let _ = write!(out, ":DefaultAccount='{}'", user.default_account);
    if !user.default_wckey.is_empty() {
        let _ = write!(out, ":DefaultWCKey='{}'", user.default_wckey);
    }
    if !["", "None"].contains(&user.admin_level.as_str()) {
        let _ = write!(out, ":AdminLevel='{}'", user.admin_level);
    }
    if !user.coordinates.is_empty() {
        let _ = write!(out, ":Coordinator='{}'", user.coordinates.join(","));
    }
    if !user.wckeys.is_empty() {
        let mut keys = user.wckeys.clone();
        keys.sort_unstable();
        let _ = write!(out, ":WCKeys='{}'", keys.join(","));
    }
    terms_text(out, at.own, false);
}

/// Settings of an association, and the end of the line.
fn terms_text(out: &mut String, terms: &AssociationTerms, is_cluster: bool) {
    if let Some(qos) = &terms.default_qos {
        let _ = write!(out, ":DefaultQOS='{qos}'");
    }
    let shares = match terms.shares {
        Some(PARENT_SHARES) => "parent".to_owned(),
        shares => shares.unwrap_or(1).to_string(),
    };
    let _ = write!(out, ":Fairshare={shares}");
    for (name, value) in limit_texts(&terms.limits) {
        let _ = write!(out, ":{name}={value}");
    }
    if let Some(priority) = terms.priority {
        let _ = write!(out, ":Priority={priority}");
    }
    let qos = match super::row::own_raw_qos(terms) {
        text if text.is_empty() && is_cluster => NORMAL.to_owned(),
        text => text,
    };
    if !qos.is_empty() {
        let _ = write!(out, ":QOS='{qos}'");
    }
    out.push('\n');
}

/// Limits by the names that the file has for them, in its order.
fn limit_texts(limits: &Limits) -> Vec<(&'static str, String)> {
    let Limits {
        grp_jobs,
        grp_submit,
        grp_tres,
        max_jobs,
        max_submit,
        max_tres,
        max_wall_min,
        grp_wall_min,
        grp_tres_mins,
        grp_tres_run_mins,
        max_tres_mins,
        max_tres_node,
        // Limits of a QOS alone.
        max_tres_user: _,
        max_jobs_account: _,
        max_submit_account: _,
        max_tres_account: _,
        min_tres: _,
        max_jobs_accrue_account: _,
        max_tres_run_mins_user: _,
        max_tres_run_mins_account: _,
        min_priority,
        grp_jobs_accrue,
        max_jobs_accrue,
    } = limits;
    let count = |value: &Option<u32>| value.map_or(String::new(), |n| n.to_string());
    let all = vec![
        ("GrpTRESMins", amounts_text(grp_tres_mins)),
        ("GrpTRESRunMins", amounts_text(grp_tres_run_mins)),
        ("GrpTRES", amounts_text(grp_tres)),
        ("GrpJobs", count(grp_jobs)),
        ("GrpJobsAccrue", count(grp_jobs_accrue)),
        ("GrpSubmitJobs", count(grp_submit)),
        (
            "GrpWall",
            grp_wall_min.map_or(String::new(), |minutes| minutes.to_string()),
        ),
        ("MaxTRESMinsPerJob", amounts_text(max_tres_mins)),
        ("MaxTRESPerJob", amounts_text(max_tres)),
        ("MaxTRESPerNode", amounts_text(max_tres_node)),
        ("MaxJobs", count(max_jobs)),
        ("MaxJobsAccrue", count(max_jobs_accrue)),
        ("MaxSubmitJobs", count(max_submit)),
        ("MaxWallDurationPerJob", count(max_wall_min)),
        ("MinPrioThreshold", count(min_priority)),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// A line of the file.
#[derive(Debug, PartialEq)]
struct FileLine {
    number: usize,
    title: String,
    name: String,
    options: Vec<String>,
}

impl FileLine {
    /// Reads a line; nothing for comments and empty ones.
    fn read(number: usize, line: &str) -> Result<Option<FileLine>, Failure> {
        let line = uncommented(line).trim();
        if line.is_empty() {
            return Ok(None);
        }
        let misread = || Failure::new(format!(" error: Misformatted line({number}): {line}"));
        let (title, rest) = line.split_once('-').ok_or_else(misread)?;
        let mut parts = split(rest.trim());
        let name = parts.remove(0);
        if name.is_empty() {
            return Err(misread());
        }
        Ok(Some(FileLine {
            number,
            title: title.trim().to_ascii_lowercase(),
            name: name.to_lowercase(),
            options: parts
                .into_iter()
                .filter(|option| !option.is_empty())
                .collect(),
        }))
    }

    fn wrong(&self, option: &str, why: &str) -> Failure {
        Failure::new(format!(
            "{why}\n Unknown option: {option}\n error: Problem with line({})\n \
             Problem with requests: Unspecified error",
            self.number
        ))
    }
}

/// A line without its comment, which quotes keep from being one.
fn uncommented(line: &str) -> &str {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Parts between colons; quotes keep colons in and are taken off.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ':') => parts.push(String::new()),
            (_, c) => parts
                .last_mut()
                .expect("there is one from the start")
                .push(c),
        }
    }
    parts
}

/// Adds what a file says; with `clean`, to nothing.
pub(super) fn load(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let begun = Instant::now();
    let (file, rest) = file_of(words);
    let clean = rest.iter().any(|w| w.eq_ignore_ascii_case("clean"));
    let other = rest.iter().find_map(|w| w.split_once('='));
    let other = other
        .filter(|(key, _)| super::begins("cluster", key))
        .map(|(_, name)| name);
    let bare = rest
        .iter()
        .find(|w| !w.contains('=') && !w.eq_ignore_ascii_case("clean"));
    let Some(path) = file.or_else(|| bare.map(|w| (*w).clone())) else {
        return Err(Failure::new(" No filename given, specify one with file=''"));
    };
    let text = std::fs::read_to_string(&path).map_err(|e| {
        Failure::new(format!(
            " Unable to read \"{path}\": {}",
            errno::system_text(&e)
        ))
    })?;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        entries.extend(FileLine::read(number, line)?);
    }
    let own = session.book()?;
    let named = entries.iter().find(|entry| entry.title == "cluster");
    let name = other
        .or(named.map(|entry| entry.name.as_str()))
        .unwrap_or_default();
    if name.is_empty() {
        session.console.say(" Nothing new added.\n");
        return Err(Failure::new(
            " You need to specify a cluster name first with 'Cluster - $NAME' in your file",
        ));
    }
    let mut loading = Loading::default();
    let mut book = cluster_book(own, name, &mut loading);
    session
        .console
        .say(&format!("For cluster {}\n", book.cluster));
    if clean {
        loading.is_new = true;
        let users = book.all.users.values();
        let administrators =
            users.filter(|user| !["", "None"].contains(&user.admin_level.as_str()));
        loading.levels = administrators
            .map(|user| (user.name.clone(), user.admin_level.clone()))
            .collect();
        // An administrator who removed itself could neither finish nor add anything.
        let own = session.ledger.user().to_lowercase();
        let is_kept = |user: &User| {
            user.name == ROOT || user.name == own && loading.levels.contains_key(&user.name)
        };
        loading.edits.extend(removals(&book, is_kept));
        book.all.accounts.clear();
        book.all.users.retain(|_, user| is_kept(user));
        // A user who is kept loses its associations in other accounts with these.
        for kept in book.all.users.values_mut() {
            kept.accounts.retain(|account, _| account == ROOT);
            kept.partitions.clear();
            kept.coordinates.clear();
        }
    }
    plan(&entries, &mut book, &mut loading)?;
    if loading.is_empty() {
        session.console.say(" Nothing new added.\n");
        return Ok(());
    }
    let texts = sections(&loading, &book)?;
    session.console.say(&format!("{}{texts}", loading.changed));
    let commits = session.commits();
    let edits = loading.edits.into_iter().chain(loading.last);
    let edits = edits.map(|edit| in_cluster(&book, edit));
    for edit in edits.filter(|_| commits) {
        session.ledger.edit(edit).map_err(refused)?;
    }
    session.console.complain(&format!(
        "sacctmgr: Done adding cluster in usec={}",
        begun.elapsed().as_micros()
    ));
    Ok(())
}

/// The records of the cluster that a file is of; one that is not known is added.
fn cluster_book(own: Book, name: &str, loading: &mut Loading) -> Book {
    let name = name.to_lowercase();
    let new = own.other(&Cluster {
        name: name.clone(),
        ..Cluster::default()
    });
    let known = own.of_all_clusters().into_iter();
    let mut known = known.filter(|book| book.cluster.eq_ignore_ascii_case(&name));
    known.next().unwrap_or_else(|| {
        loading.is_new = true;
        let ask = AccountsAsk::AddClusters(ClusterAsk::default());
        loading.edits.push(Invocation::edit_of(&[name], ask));
        new
    })
}

/// The edit in the records of a cluster; one of the cluster itself names it.
fn in_cluster(book: &Book, edit: AccountsEdit) -> AccountsEdit {
    match &edit.ask {
        AccountsAsk::AddClusters(_) | AccountsAsk::ModifyClusters(_) => edit,
        _ => Invocation::edit_in(book, &edit.names, edit.ask),
    }
}

/// Removes all that is there but users who are kept.
fn removals(book: &Book, is_kept: impl Fn(&User) -> bool) -> Vec<AccountsEdit> {
    let mut out = Vec::new();
    let users = book.all.users.values().filter(|user| !is_kept(user));
    let users: Vec<String> = users.map(|user| user.name.clone()).collect();
    if !users.is_empty() {
        let ask = AccountsAsk::DeleteUsers {
            accounts: Vec::new(),
            partitions: Vec::new(),
        };
        out.push(Invocation::edit_of(&users, ask));
    }
    let accounts: Vec<String> = book.all.accounts.keys().cloned().collect();
    if !accounts.is_empty() {
        out.push(Invocation::edit_of(&accounts, AccountsAsk::DeleteAccounts));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "Account - 'a b':Description='x: y # z':MaxTRESPerJob=node=5:MaxJobs=4 # more";
        let entry = FileLine::read(1, line).unwrap().unwrap();
        assert_eq!(
            (entry.title.as_str(), entry.name.as_str()),
            ("account", "a b")
        );
        assert_eq!(
            entry.options,
            ["Description=x: y # z", "MaxTRESPerJob=node=5", "MaxJobs=4"]
        );
        assert_eq!(FileLine::read(2, "  # only this").unwrap(), None);
        assert!(FileLine::read(3, "Account").is_err());
        assert!(FileLine::read(4, "Account - ").is_err());
    }
}
