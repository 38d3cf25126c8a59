//! Listings and actions of sacctmgr beside the records: the configuration, counters, transactions, reservations,
//! runaway jobs, changes of jobs.

use super::begins;
use super::fields::columns;
use super::ledger::error;
use super::row::ListingRow;
use super::session::Invocation;
use super::show::USE_SET;
use super::words::Word;
use crate::listing::context::Ctx;
use crate::listing::{Failure, query, time_input};
use jiff::Zoned;
use muster_conf::endpoint;
use muster_model::reservation::Flags;
use muster_model::time::Timestamp;
use muster_proto::acct::ReservationTimesQuery;
use std::fmt::Write as _;

fn time(ctx: &Ctx, at: Timestamp) -> String {
    let mut out = String::new();
    ctx.time_or(&mut out, Some(at), "Unknown");
    out
}

/// Keys of slurm.conf that concern accounting.
const KEYS: [&str; 13] = [
    "AccountingStorageBackupHost",
    "AccountingStorageHost",
    "AccountingStorageParameters",
    "AccountingStoragePort",
    "AccountingStorageType",
    "AccountingStorageUser",
    "AuthType",
    "MessageTimeout",
    "PluginDir",
    "PrivateData",
    "SLURM_CONF",
    "TCPTimeout",
    "TrackWCKey",
];

/// The configuration of accounting, which is that of the controller.
pub(super) fn configuration(session: &mut Invocation<'_>) -> Result<(), Failure> {
    let client = session.ledger.client()?;
    let ctx = Ctx::new(&client.endpoint.cluster.clone());
    let answer = query::config(client).map_err(error)?;
    let mut out = format!("Configuration data as of {}\n", time(&ctx, answer.now));
    let pairs = |key: &str| answer.pairs.iter().find(|(own, _)| own == key).cloned();
    let mut line = |key: &str, value: &str| {
        // Slurm leaves two blanks behind two of the names.
        let key = match key {
            "AccountingStorageBackupHost" | "AccountingStorageHost" => format!("{key} "),
            _ => key.to_owned(),
        };
        let _ = writeln!(out, "{key:<22} = {value}");
    };
    for key in KEYS {
        if let Some((key, value)) = pairs(key) {
            line(&key, &value);
        }
    }
    line("SLURM_VERSION", crate::SLURM_VERSION);
    let private = pairs("PrivateData").map_or("none".to_owned(), |(_, value)| value);
    let tracks = pairs("TrackWCKey").map_or("No".to_owned(), |(_, value)| value);
    out.push_str("\nSlurmDBD configuration:\n");
    let host = answer.hosts.first().cloned().unwrap_or_default();
    let started = time(&ctx, answer.started);
    // Configuration of a slurmdbd beside this slurm.conf, if there is one.
    let dbd_conf = endpoint::conf_path().with_file_name("slurmdbd.conf");
    let dbd_conf = match dbd_conf.exists() {
        true => dbd_conf.display().to_string(),
        false => "(null)".to_owned(),
    };
    let own = [
        ("BOOT_TIME", started.as_str()),
        ("DbdHost", host.as_str()),
        ("PrivateData", private.as_str()),
        ("SLURMDBD_CONF", dbd_conf.as_str()),
        ("SLURMDBD_VERSION", crate::SLURM_VERSION),
        ("TrackWCKey", tracks.as_str()),
    ];
    for (key, value) in own {
        let _ = writeln!(out, "{key:<22} = {value}");
    }
    session.console.say(&out);
    Ok(())
}

const RULE: &str = "*******************************************************************";

/// The controller's counters of requests, in the lines that slurmdbd has for them.
pub(super) fn stats(session: &mut Invocation<'_>) -> Result<(), Failure> {
    let client = session.ledger.client()?;
    let ctx = Ctx::new(&client.endpoint.cluster.clone());
    let diag = query::diag(client, false).map_err(error)?;
    let when = |at: Timestamp| {
        let zoned = jiff::Timestamp::from_second(at.unix_s()).unwrap_or_default();
        let zoned = zoned.to_zoned(jiff::tz::TimeZone::system());
        format!(
            "{} ({})",
            zoned.strftime("%a %b %d %H:%M:%S %Y"),
            at.unix_s()
        )
    };
    let mut out = format!(
        "{RULE}\nsacctmgr show stats output at {}\nData since                    {}\n\
         All statistics are in microseconds\n{RULE}\n\n\
         Remote Procedure Call statistics by message type\n",
        when(diag.now),
        when(diag.since)
    );
    let mut requests = diag.requests;
    requests.sort_by_key(|of| std::cmp::Reverse(of.count));
    for of in requests {
        let (name, count) = (&of.kind, of.count);
        let (average, total) = (of.average_us(), of.total_us);
        let _ = writeln!(
            out,
            "\t{name:<25}(     ) count:{count:<6} ave_time:{average:<6} total_time:{total}"
        );
    }
    out.push_str("\nRemote Procedure Call statistics by user\n");
    let mut users = diag.users;
    users.sort_by_key(|of| std::cmp::Reverse(of.count));
    for of in users {
        let (name, uid, count) = (ctx.user_name(of.uid), of.uid, of.count);
        let (average, total) = (of.average_us(), of.total_us);
        let _ = writeln!(
            out,
            "\t{name:<20}({uid:>10}) count:{count:<6} ave_time:{average:<6} total_time:{total}"
        );
    }
    session.console.say(&out);
    Ok(())
}

/// Begins again with the counters.
pub(super) fn clear(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let is_stats = words
        .first()
        .is_some_and(|word| word.len() >= 2 && begins("stats", word));
    if !is_stats {
        return Err(Failure::new(
            "No valid entity in list command\nInput line must include \"Stats\"",
        ));
    }
    query::diag(session.ledger.client()?, true).map_err(error)?;
    Ok(())
}

/// There is no daemon of accounting with a configuration of its own, so nothing is to be read again.
pub(super) fn reconfigure(session: &mut Invocation<'_>) -> Result<(), Failure> {
    session.ledger.client()?;
    Ok(())
}

/// Accounting follows the controller's own events, so no job of it can run on there alone.
pub(super) fn runaways(session: &mut Invocation<'_>) -> Result<(), Failure> {
    let book = session.book()?;
    if !session.is_operator(&book) {
        return Err(error(
            "You must have an AdminLevel>=Operator to fix runaway jobs",
        ));
    }
    session.console.say(&format!(
        "Runaway Jobs: No runaway jobs found on cluster {}\n",
        book.cluster
    ));
    Ok(())
}

/// Times of reservations: those of today, unless another time is asked for.
pub(super) fn reservations(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (mut format, mut names, mut nodes) = (None, None, None);
    let (mut clusters, now) = (None, Zoned::now());
    let today = now.start_of_day().unwrap_or_else(|_| now.clone());
    let mut start = Some(Timestamp(today.timestamp().as_millisecond()));
    let mut end = Some(Timestamp(now.timestamp().as_millisecond()));
    for text in words {
        let word = Word::new(text);
        let at = || {
            let at = time_input::parse(&word.value, &now);
            at.map(Some).ok_or_else(|| {
                error(format!(
                    "Invalid time specification (pos=0): {}",
                    word.value
                ))
            })
        };
        match word.key.as_deref() {
            None if word.is("where", 3) => {}
            None => names = Some(word.list()),
            Some(key) if key.len() > 1 && begins("names", key) && !begins("nodes", key) => {
                names = Some(word.list());
            }
            Some(key) if begins("format", key) => format = Some(word.value.clone()),
            Some(key) if begins("clusters", key) => clusters = Some(word.list()),
            Some(key) if key.len() > 1 && begins("nodes", key) => nodes = Some(word.value.clone()),
            Some(key) if begins("start", key) => start = at()?,
            Some(key) if begins("end", key) => end = at()?,
            Some(key) if begins("ids", key) => {
                return Err(error(
                    "reservations have no numbers here: ask for them by name (Names=)",
                ));
            }
            Some(_) => return Err(Failure::new(format!(" Unknown condition: {text}{USE_SET}"))),
        }
    }
    let usual = "Cluster,Name%15,TRES%30,Start,End,UnusedWall";
    let columns = columns(format.as_deref().unwrap_or(usual), false)?;
    let client = session.ledger.client()?;
    let ctx = Ctx::new(&client.endpoint.cluster.clone());
    let times =
        query::reservation_times(client, ReservationTimesQuery { start, end }).map_err(error)?;
    let on = nodes.and_then(|nodes| muster_model::hostlist::parse(&nodes).ok());
    let fits = |list: &Option<Vec<String>>, name: &str| {
        list.as_ref()
            .is_none_or(|list| list.iter().any(|own| own == name))
    };
    let mut rows = Vec::new();
    for record in &times {
        let meets = on.as_ref().is_none_or(|on| {
            let held = muster_model::hostlist::parse(&record.nodes).unwrap_or_default();
            held.iter().any(|name| on.contains(name))
        });
        if !meets || !fits(&names, &record.name) || !fits(&clusters, &ctx.cluster) {
            continue;
        }
        let flags = Flags::ALL.iter();
        let flags = flags.filter(|(flag, _)| record.flags.has(*flag));
        let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
        let row = ListingRow::default()
            .with("Cluster", ctx.cluster.clone())
            .with("Name", record.name.clone())
            .with("TRES", format!("cpu={}", record.cpus))
            .with("TimeStart", time(&ctx, record.start))
            .with("TimeEnd", time(&ctx, record.end))
            .with("NodeName", record.nodes.clone())
            .with("Flags", flags.join(","))
            .with("Assocs", record.accounts.clone());
        rows.push(row.line(&columns));
    }
    session.print(&columns, &rows);
    Ok(())
}

/// Conditions of `show transactions`.
#[derive(Debug, Default)]
struct TransactionConditions {
    accounts: Option<Vec<String>>,
    actions: Option<Vec<String>>,
    actors: Option<Vec<String>>,
    clusters: Option<Vec<String>>,
    ids: Option<Vec<String>>,
    users: Option<Vec<String>>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    format: Option<String>,
    with_associations: bool,
}

impl TransactionConditions {
    fn read(words: &[String], now: &Zoned) -> Result<TransactionConditions, Failure> {
        let mut read = TransactionConditions::default();
        for text in words {
            let word = Word::new(text);
            let at = || {
                let at = time_input::parse(&word.value, now);
                at.map(Some).ok_or_else(|| {
                    error(format!(
                        "Invalid time specification (pos=0): {}",
                        word.value
                    ))
                })
            };
            let is = |name: &str, least: usize| {
                word.key
                    .as_deref()
                    .is_some_and(|key| key.len() >= least && begins(name, key))
            };
            match word.key.as_deref() {
                None if word.is("where", 3) => {}
                None if word.is("withassocinfo", 5) => read.with_associations = true,
                None => read.ids = Some(word.list()),
                Some(_) if is("accounts", 3) || is("accts", 4) => read.accounts = Some(word.list()),
                Some(_) if is("actions", 4) => read.actions = Some(actions(&word)?),
                Some(_) if is("actors", 4) => read.actors = Some(word.list()),
                Some(_) if is("clusters", 4) => read.clusters = Some(word.list()),
                Some(_) if is("endtime", 1) => read.end = at()?,
                Some(_) if is("format", 1) => read.format = Some(word.value.clone()),
                Some(_) if is("ids", 1) => read.ids = Some(word.list()),
                Some(_) if is("starttime", 1) => read.start = at()?,
                Some(_) if is("users", 1) => read.users = Some(word.list()),
                Some(_) => return Err(Failure::new(format!(" Unknown condition: {text}"))),
            }
        }
        Ok(read)
    }
}

/// Actions that are logged.
const ACTIONS: [&str; 15] = [
    "Add Account Coord",
    "Add Accounts",
    "Add Clusters",
    "Add QOS",
    "Add Users",
    "Modify Accounts",
    "Modify Associations",
    "Modify Clusters",
    "Modify Job",
    "Modify QOS",
    "Modify Users",
    "Remove Account Coord",
    "Remove Accounts",
    "Remove Associations",
    "Remove Clusters",
];
const MORE_ACTIONS: [&str; 6] = [
    "Remove QOS",
    "Remove Users",
    "Remove WCKeys",
    "Add Associations",
    "Add WCKeys",
    "Modify WCKeys",
];

fn actions(word: &Word) -> Result<Vec<String>, Failure> {
    let known = |name: &&String| {
        let mut all = ACTIONS.iter().chain(&MORE_ACTIONS);
        all.any(|action| action.eq_ignore_ascii_case(name))
    };
    let names = word.list();
    match names.iter().find(|name| !known(name)) {
        Some(name) => Err(error(format!("You gave a bad action '{name}'."))),
        None => Ok(names),
    }
}

/// Where there are more changes than an answer holds.
const OLDER_LEFT_OUT: &str = "warning: older transactions are left out, since one answer does not hold them all: ask for an earlier or shorter time (Start=, End=)";

/// Changes of accounting, with their users and times.
pub(super) fn transactions(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = TransactionConditions::read(words, &Zoned::now())?;
    let usual = match conditions.with_associations {
        true => "Time,Action,Actor,Where,Info,User,Account,Cluster",
        false => "Time,Action,Actor,Where,Info",
    };
    let columns = columns(conditions.format.as_deref().unwrap_or(usual), false)?;
    let client = session.ledger.client()?;
    let ctx = Ctx::new(&client.endpoint.cluster.clone());
    let window = (conditions.start, conditions.end);
    let (all, left_out) = query::transactions(client, window).map_err(error)?;
    let fits = |list: &Option<Vec<String>>, names: &[String]| {
        let among = |name: &String| {
            let list = list.iter().flatten();
            list.into_iter().any(|own| own.eq_ignore_ascii_case(name))
        };
        list.is_none() || names.iter().any(among)
    };
    let mut rows = Vec::new();
    for record in &all {
        let change = &record.transaction;
        let is_meant = fits(&conditions.accounts, &change.accounts)
            && fits(&conditions.users, &change.users)
            && fits(&conditions.actions, std::slice::from_ref(&change.action))
            && fits(&conditions.actors, std::slice::from_ref(&change.actor))
            && fits(&conditions.clusters, std::slice::from_ref(&ctx.cluster))
            && fits(&conditions.ids, &[record.id.to_string()]);
        if !is_meant {
            continue;
        }
        let row = ListingRow::default()
            .with("ID", record.id.to_string())
            .with("Time", time(&ctx, record.at))
            .with("Action", change.action.clone())
            .with("Actor", change.actor.clone())
            .with("Where", change.target.clone())
            .with("Info", change.info.clone())
            .with("User", change.users.join(","))
            .with("Account", change.accounts.join(","))
            .with("Cluster", ctx.cluster.clone());
        rows.push(row.line(&columns));
    }
    session.print(&columns, &rows);
    if left_out {
        // The output may be read by programs.
        eprintln!("sacctmgr: {OLDER_LEFT_OUT}");
    }
    Ok(())
}
