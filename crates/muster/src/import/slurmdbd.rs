//! `muster import slurmdbd`: brings the accounting of a Slurm to this cluster. It becomes `SlurmUser`, asks the controller for accounts
//! as an administrator, and writes history into the controller's store beside it.

use crate::conf_owner;
use crate::sackd::{drop_root, user};
use crate::slurmdbd::{address_of, check_file};
use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use muster_acct::{Importer, UseSum};
use muster_cli::connect::{Client, ConnectError};
use muster_conf::Severity;
use muster_conf::endpoint::conf_path;
use muster_conf::files::{PlainFile, load_flat};
use muster_dbd::import::{
    Entities, ImportProgress, Names, Source, Summary, UsageComparison, import_history, plan,
};
use muster_dbd::{DatabaseAddress, Kind};
use muster_model::accounts::Accounts;
use muster_model::command::{AccountsAsk, AccountsEdit, UserCommand};
use muster_model::ids::JobId;
use muster_model::visible_text::visible;
use muster_proto::client::{Query, Response};
use nix::sys::prctl;
use nix::unistd::{Gid, Group, Uid, User, geteuid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
Usage: muster import slurmdbd (--conf FILE | --from URL) [OPTIONS]
Brings what a Slurm's accounting has (slurmdbd 20.11 and later, in MariaDB or MySQL) to this cluster: accounts, users, associations, QOS
and coordinators with limits and shares, jobs with steps, arrays, components and suspensions, times of nodes out of service, and who
changed what. The controller of this cluster runs meanwhile; this is run on its host, by root or SlurmUser. Nothing is changed there.

  --conf FILE       the slurmdbd.conf of that Slurm: StorageHost, StoragePort, StorageUser, StoragePass, StorageLoc
  --from URL        (others see a password in it while this runs) or mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE, or mysql://USER@/path/of/the.sock/DATABASE;
                    without a password, that of the variable MYSQL_PWD
  --cluster NAME    this cluster of the database, if it has several
  --history-only    jobs alone: accounts, users and QOS stay as they are
  --spare-ids N     the next job of this cluster is numbered so many above those of that Slurm (0), which may still run
  --fair-share      what was used there, decayed to now, counts for fair share, in place of what was used here; give it when
                    the site switches over, and not later
  --sums            print the sums of each account and user in each month, not of months alone
  -h, --help        print this help

It can be interrupted, and run again: it goes on, and later brings only what is new. Each night until a site switches over is fine.
Jobs that are not over yet are left for a later run. At the end sums of jobs and CPU time by month, account and user are compared
with those of the source; the exit status is 1 if any differ.
";

/// Interval of progress messages where no terminal shows a bar.
const SAY_INTERVAL: Duration = Duration::from_secs(10);
/// Most comparisons of accounts: edits follow from others.
const ROUNDS_MAX: usize = 6;
/// Associations whose use one request sets.
const USES_MAX: usize = 500;

#[derive(Default)]
struct Args {
    conf: Option<PathBuf>,
    from: Option<String>,
    cluster: Option<String>,
    history_only: bool,
    spare_ids: u64,
    fair_share: bool,
    sums: bool,
}

impl Args {
    fn parse(args: &[String]) -> Result<Option<Args>> {
        let mut args = args.iter().map(String::as_str);
        match args.next() {
            Some("slurmdbd") => {}
            Some("-h" | "--help") => return Ok(None),
            Some(other) => {
                bail!("'{other}' cannot be imported; 'muster import slurmdbd' can ('--help')")
            }
            None => bail!("what is to be imported? 'muster import slurmdbd --help'"),
        }
        let mut parsed = Args::default();
        while let Some(word) = args.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let mut value = || {
                let value = value.or_else(|| args.next());
                value.with_context(|| format!("{name} takes a value"))
            };
            match name {
                "-h" | "--help" => return Ok(None),
                "--conf" => parsed.conf = Some(value()?.into()),
                "--from" => parsed.from = Some(value()?.to_owned()),
                "--cluster" => parsed.cluster = Some(value()?.to_owned()),
                "--history-only" => parsed.history_only = true,
                "--spare-ids" => {
                    parsed.spare_ids = value()?.parse().context("--spare-ids takes a number")?;
                }
                "--fair-share" => parsed.fair_share = true,
                "--sums" => parsed.sums = true,
                other => bail!("there is no option '{other}'; 'muster import slurmdbd --help'"),
            }
        }
        ensure!(
            parsed.conf.is_some() != parsed.from.is_some(),
            "where is it? --conf with that Slurm's slurmdbd.conf, or --from with a URL"
        );
        Ok(Some(parsed))
    }

    /// Where the database is.
    fn address(&self, slurm_user: &User) -> Result<DatabaseAddress> {
        if let Some(url) = &self.from {
            return address_of_url(url);
        }
        let path = self.conf.as_deref().unwrap_or(Path::new("slurmdbd.conf"));
        check_file(path, slurm_user)?;
        let (dbd, findings) = load_flat(PlainFile::Slurmdbd, path);
        if let Some(error) = findings.iter().find(|f| f.severity == Severity::Error) {
            bail!("{error}");
        }
        let address = address_of(&dbd, &slurm_user.name)?;
        address.with_context(|| format!("{} names no database (StorageType)", path.display()))
    }
}

/// `mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE`; a host that begins with a slash is a socket.
fn address_of_url(url: &str) -> Result<DatabaseAddress> {
    let form = "--from takes mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE";
    let rest = url
        .strip_prefix("mysql://")
        .or_else(|| url.strip_prefix("mariadb://"));
    let (login, place) = rest.and_then(|rest| rest.rsplit_once('@')).context(form)?;
    let (host, database) = place.rsplit_once('/').context(form)?;
    ensure!(!host.is_empty() && !database.is_empty(), "{form}");
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(decoded(password)?)),
        None => (login, std::env::var("MYSQL_PWD").ok()),
    };
    let (host, port) = match host.rsplit_once(':') {
        Some((name, port)) if !host.starts_with('/') => (name, port.parse().context(form)?),
        _ => (host, 3306),
    };
    Ok(DatabaseAddress {
        kind: Kind::MariaDb,
        host: host.to_owned(),
        port,
        user: decoded(user)?,
        password,
        database: database.to_owned(),
        tls: None,
    })
}

/// A part of a URL without its `%40` and the like.
fn decoded(text: &str) -> Result<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let code = digit().zip(digit()).map(|(high, low)| high * 16 + low);
        let code = code.and_then(|code| u8::try_from(code).ok());
        out.push(code.context("--from has a '%' without two hexadecimal digits")?);
    }
    String::from_utf8(out).context("--from is not valid UTF-8")
}

/// Names of this host's users.
struct HostNames;

impl Names for HostNames {
    fn user(&self, uid: u32) -> Option<String> {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        user.map(|user| user.name)
    }

    fn group(&self, gid: u32) -> Option<String> {
        let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
        group.map(|group| group.name)
    }
}

/// Runs it.
pub(super) fn main(args: &[String]) -> Result<ExitCode> {
    let Some(args) = Args::parse(args)? else {
        say!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let conf = fs::canonicalize(conf_path())
        .with_context(|| format!("cannot read {}", conf_path().display()))?;
    let (config, _) = conf_owner::load(&conf)?;
    ensure!(
        config.accounting,
        "{} has AccountingStorageType=accounting_storage/none: nothing is kept here",
        conf.display()
    );
    let slurm_user = user(&config.slurm_user)?;
    ensure!(
        geteuid().is_root() || geteuid() == slurm_user.uid,
        "accounting is kept by SlurmUser ({}): run this as that user, or as root",
        slurm_user.name
    );
    // The file may name a program that prints the password, and is SlurmUser's: nothing of it is root's to read or to run.
    drop_root(&slurm_user)?;
    prctl::set_dumpable(false).context("this process cannot be protected from others")?;
    let address = args.address(&slurm_user)?;
    let mut source = Source::connect(&address, args.cluster.as_deref())?;
    let mut client = Client::connect().context("the controller of this cluster has to run")?;
    let store = config.paths.state_save_location.join("accounting.db");
    let mut store = Importer::open(&store, source.key())?;
    say!(
        "from cluster {} of {address} to cluster {}\n",
        visible(source.cluster()),
        config.cluster_name
    );
    if !args.history_only {
        import_entities(&source.entities()?, &mut client)?;
    }
    reserve_ids(&mut source, &mut client, args.spare_ids)?;
    if args.fair_share {
        import_use(&mut source, &mut client)?;
    }
    let summary = with_progress(&mut source, &mut store)?;
    reserve_ids(&mut source, &mut client, args.spare_ids)?;
    Ok(report(&summary, args.sums))
}

fn edit(client: &mut Client, edit: AccountsEdit) -> Result<(), ConnectError> {
    client.command(UserCommand::EditAccounts(Box::new(edit)))?;
    Ok(())
}

fn accounts_of(client: &mut Client) -> Result<Accounts> {
    match client.query(Query::Accounts)? {
        Response::Accounts(answer) => Ok(answer.accounts),
        other => Err(muster_cli::connect::unexpected(&other).into()),
    }
}

/// Asks for accounts, users and QOS until the controller has all of them.
fn import_entities(wanted: &Entities, client: &mut Client) -> Result<()> {
    let mut refused = BTreeSet::new();
    let mut made = 0;
    for _ in 0..ROUNDS_MAX {
        let plan = plan(wanted, &accounts_of(client)?);
        let before = made;
        for one in plan.edits {
            let names = one.names.join(",");
            match edit(client, one) {
                Ok(()) => made += 1,
                Err(ConnectError::Refused(refusal)) => {
                    refused.insert(format!("{names}: {refusal}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if made == before {
            break;
        }
    }
    say!(
        "accounts {}, users {}, QOS {}: {made} requests to the controller\n",
        wanted.accounts.len() + 1,
        wanted.users.len(),
        wanted.qos.len()
    );
    for text in &wanted.not_kept {
        complain!("muster: not kept here: {}", visible(text));
    }
    for text in refused {
        complain!("muster: refused: {}", visible(&text));
    }
    Ok(())
}

/// Counts earlier use there here.
fn import_use(source: &mut Source, client: &mut Client) -> Result<()> {
    let config = match client.query(Query::Partitions)? {
        Response::Cluster(part) => part.config,
        other => return Err(muster_cli::connect::unexpected(&other).into()),
    };
    let multifactor = config.and_then(|config| config.order.multifactor);
    let half_life_s = multifactor
        .context("--fair-share: slurm.conf has no PriorityType=priority/multifactor here")?
        .half_life_s;
    let used = source.decayed_use(half_life_s)?;
    for part in used.chunks(USES_MAX) {
        let names = part.iter().map(|one| one.user.clone()).collect();
        let ask = AccountsAsk::SetUsage(part.to_vec());
        edit(
            client,
            AccountsEdit {
                names,
                ask,
                cluster: String::new(),
            },
        )
        .context("--fair-share")?;
    }
    say!("use of {} associations counts for fair share\n", used.len());
    Ok(())
}

/// New jobs are numbered above those of the source.
fn reserve_ids(source: &mut Source, client: &mut Client, spare: u64) -> Result<()> {
    let highest = source.highest_job_id()?;
    let ask = AccountsAsk::ReserveJobIds(JobId(highest.saturating_add(spare)));
    let names = Vec::new();
    edit(
        client,
        AccountsEdit {
            names,
            ask,
            cluster: String::new(),
        },
    )
    .context("the next job's number")
}

fn with_progress(source: &mut Source, store: &mut Importer) -> Result<Summary> {
    let is_shown = std::io::stderr().is_terminal();
    let style = ProgressStyle::with_template("{bar:40} {percent}%  {msg}  about {eta} left")?;
    let bar = match is_shown {
        true => ProgressBar::new(1).with_style(style),
        false => ProgressBar::hidden(),
    };
    let (begun, mut said) = (Instant::now(), Instant::now());
    let mut first = None;
    let summary = import_history(
        source,
        store,
        &HostNames,
        &mut |progress: ImportProgress| {
            let from = *first.get_or_insert(progress.done);
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            bar.set_message(format!("{} jobs added", progress.added));
            if !is_shown && said.elapsed() > SAY_INTERVAL {
                said = Instant::now();
                let (past, left) = (
                    progress.done.saturating_sub(from),
                    progress.total.saturating_sub(progress.done),
                );
                let left = begun.elapsed().as_secs_f64() * left as f64 / past.max(1) as f64;
                complain!(
                    "{} of {} looked at, {} jobs added, about {left:.0} s left",
                    progress.done,
                    progress.total,
                    progress.added
                );
            }
        },
    )?;
    bar.finish_and_clear();
    let seconds = begun.elapsed().as_secs_f64();
    say!(
        "jobs {} added, {} written again, {} not over yet; node events {}, changes of accounting {}; {seconds:.1} s\n",
        summary.added,
        summary.again,
        summary.unfinished,
        summary.events,
        summary.transactions
    );
    Ok(summary)
}

/// Prints sums here and there, and whether they are the same.
fn report(summary: &Summary, each: bool) -> ExitCode {
    let mut months: BTreeMap<&str, [UseSum; 2]> = BTreeMap::new();
    for one in &summary.sums {
        let [source, here] = months.entry(&one.key.month).or_default();
        for (to, of) in [(source, one.source), (here, one.here)] {
            // They are what that database says.
            to.jobs = to.jobs.saturating_add(of.jobs);
            to.cpu_s = to.cpu_s.saturating_add(of.cpu_s);
        }
    }
    let hours = |sum: UseSum| sum.cpu_s as f64 / 3600.0;
    say!(
        "{:<32} {:>10} {:>10} {:>14} {:>14}\n",
        "MONTH",
        "JOBS",
        "HERE",
        "CPU-HOURS",
        "HERE"
    );
    let line = |name: &str, source: UseSum, here: UseSum, note: &str| {
        let (source_h, here_h) = (hours(source), hours(here));
        say!(
            "{name:<32} {:>10} {:>10} {source_h:>14.2} {here_h:>14.2}{note}\n",
            source.jobs,
            here.jobs
        );
    };
    for (month, [source, here]) in months {
        line(&visible(month), source, here, "");
        let of_month = summary.sums.iter().filter(|one| one.key.month == month);
        for one in of_month.filter(|one| each || !one.is_complete()) {
            let user = HostNames
                .user(one.key.uid)
                .unwrap_or_else(|| one.key.uid.to_string());
            let name = format!("  {} {}", visible(&one.key.account), visible(&user));
            let note = match one {
                one if !one.is_complete() => "  differs",
                one if one.source != one.here => "  purged there",
                _ => "",
            };
            line(&name, one.source, one.here, note);
        }
    }
    let differing = summary
        .sums
        .iter()
        .filter(|one| !UsageComparison::is_complete(one))
        .count();
    match differing {
        0 => {
            say!(
                "all {} sums by month, account and user are those of the source\n",
                summary.sums.len()
            );
            ExitCode::SUCCESS
        }
        count => {
            complain!(
                "muster: {count} of {} sums differ from those of the source",
                summary.sums.len()
            );
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_the_database_is() {
        let address =
            address_of_url("mysql://slurm:p%40ss:w/rd@db.site:3307/slurm_acct_db").unwrap();
        assert_eq!(
            address.to_string(),
            "mysql://slurm@db.site:3307/slurm_acct_db"
        );
        assert_eq!(address.password.as_deref(), Some("p@ss:w/rd"));
        let address = address_of_url("mysql://slurm:x@/run/mysqld/mysqld.sock/acct").unwrap();
        assert_eq!(
            (address.host.as_str(), address.database.as_str()),
            ("/run/mysqld/mysqld.sock", "acct")
        );
        for wrong in [
            "postgresql://a@b/c",
            "mysql://host/db",
            "mysql://a@host",
            "mysql://a:%4@h/d",
        ] {
            assert!(address_of_url(wrong).is_err(), "{wrong}");
        }
    }

    /// Sums are those of a database that may say anything.
    #[test]
    fn sums_beyond_all_numbers_are_reported() {
        let of = |account: &str| {
            let (month, account) = ("2020-01".to_owned(), account.to_owned());
            let sum = UseSum {
                jobs: u64::MAX,
                cpu_s: u64::MAX,
            };
            UsageComparison {
                key: muster_acct::UseKey {
                    month,
                    account,
                    uid: 7,
                },
                source: sum,
                here: sum,
                is_purged: false,
                is_purged_here: false,
            }
        };
        let summary = Summary {
            sums: vec![of("a"), of("b")],
            ..Summary::default()
        };
        assert_eq!(report(&summary, true), ExitCode::SUCCESS);
    }

    #[test]
    fn one_of_conf_and_from_is_given() {
        let parse = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            Args::parse(&words)
        };
        assert!(parse("slurmdbd").is_err() && parse("slurmdbd --from a --conf b").is_err());
        assert!(parse("lsf --from a").is_err() && parse("slurmdbd --nosuch").is_err());
        let args = parse("slurmdbd --conf=/x --cluster c --spare-ids 7")
            .unwrap()
            .unwrap();
        assert_eq!((args.cluster.as_deref(), args.spare_ids), (Some("c"), 7));
    }
}
