//! Which word of a command line means which command of sacctmgr.

use super::session::{Invocation, Verb};
use super::{
    SPEC, account, archive, begins, cluster, coordinator, events, federation, flat_file, job, qos,
    resource, service, show, shutdown, user,
};
use crate::SLURM_VERSION;
use crate::listing::Failure;

/// Texts for words that name no entity.
const LIST: &str = "No valid entity in list command\n\
    Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",\n\
    \"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",\n\
    \"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"";
const ADD: &str = "No valid entity in add command\n\
    Input line must include \"Account\", \"Cluster\", \"Coordinator\", \"Federation\", \"QOS\", \"Resource\", or \"User\"";
const DELETE: &str = "No valid entity in delete command\n\
    Input line must include \"Account\", \"Cluster\", \"Coordinator\", \"Federation\", \"QOS\", \"Resource\", or \"User\"";
const MODIFY: &str = "No valid entity in modify command\n\
    Input line must include \"Account\", \"Cluster\", \"Federation\", \"Job\", \"QOS\", \"Resource\" or \"User\"";

/// Carries out a command line.
pub(super) fn execute(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let Some((verb, rest)) = words.split_first() else {
        return Ok(());
    };
    let is = |name: &str, least: usize| verb.len() >= least && begins(name, verb);
    match () {
        () if is("show", 3) || is("list", 3) => show_records(session, rest),
        () if is("add", 3) || is("create", 3) => change(session, Verb::Add, rest),
        () if is("modify", 3) || is("update", 3) => change(session, Verb::Modify, rest),
        () if is("delete", 3) || is("remove", 3) => change(session, Verb::Delete, rest),
        () if is("dump", 3) => flat_file::dump(session, rest),
        () if is("load", 3) => {
            session.check_writable()?;
            flat_file::load(session, rest)
        }
        () if is("archive", 3) => {
            session.check_writable()?;
            archive::run(session, rest)
        }
        () if is("rollup", 4) => Err(Failure::new(
            "sacctmgr: error: sums are written with the rows that they are of: there is nothing to roll up",
        )),
        () if is("clear", 3) => service::clear(session, rest),
        () if is("reconfigure", 3) => service::reconfigure(session),
        () if is("shutdown", 8) => shutdown::run(),
        () if is("associations", 3) => {
            session.associations = true;
            Ok(())
        }
        () if is("readonly", 4) => {
            session.readonly = true;
            Ok(())
        }
        () if is("quiet", 4) || is("verbose", 4) || is("oneliner", 1) => Ok(()),
        () if is("exit", 1) || is("quit", 4) => {
            session.is_over = true;
            Ok(())
        }
        () if is("help", 2) => {
            if !rest.is_empty() {
                return Err(Failure::new(format!(
                    "too many arguments for keyword:{verb}"
                )));
            }
            session.console.say(&SPEC.help());
            Ok(())
        }
        () if is("version", 4) => {
            session.console.say(&format!("slurm {SLURM_VERSION}\n"));
            Ok(())
        }
        () => Err(Failure::new(format!("invalid keyword: {verb}"))),
    }
}

fn show_records(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let Some((what, rest)) = words.split_first() else {
        return Err(Failure::new(LIST));
    };
    let what = what.as_str();
    let is = |name: &str, least: usize| {
        let bare = what
            .strip_suffix(['s', 'S'])
            .filter(|bare| bare.len() >= least);
        what.len() >= least && begins(name, what) || bare.is_some_and(|bare| begins(name, bare))
    };
    match () {
        () if is("accounts", 2) && !is("associations", 2) || is("acct", 4) => {
            show::accounts(session, rest)
        }
        () if is("associations", 2) => show::associations(session, rest),
        () if is("clusters", 2) => cluster::show(session, rest),
        () if is("configuration", 2) => service::configuration(session),
        () if is("events", 1) => events::show(session, rest),
        () if is("federations", 1) => federation::show(session, rest),
        () if is("problems", 1) => events::problems(session, rest),
        () if is("qos", 1) => show::qos(session, rest),
        () if is("reservations", 4) => service::reservations(session, rest),
        () if is("resources", 4) => resource::show(session, rest),
        () if is("runawayjobs", 2) => service::runaways(session),
        () if is("stats", 2) => service::stats(session),
        () if is("transactions", 1) && !is("tres", 3) => service::transactions(session, rest),
        () if is("tres", 3) => show::tres(session, rest),
        () if is("users", 1) => show::users(session, rest),
        () if is("wckeys", 1) => show::wckeys(session, rest),
        () => Err(Failure::new(LIST)),
    }
}

fn change(session: &mut Invocation<'_>, verb: Verb, words: &[String]) -> Result<(), Failure> {
    session.check_writable()?;
    let unknown = match verb {
        Verb::Add => ADD,
        Verb::Modify => MODIFY,
        Verb::Delete => DELETE,
    };
    let Some((what, rest)) = words.split_first() else {
        return Err(Failure::new(unknown));
    };
    let is = |name: &str, least: usize| what.len() >= least && begins(name, what);
    match verb {
        _ if is("accounts", 2) || is("acct", 4) => account::edit(session, verb, rest),
        _ if is("clusters", 2) => cluster::edit(session, verb, rest),
        Verb::Add | Verb::Delete if is("coordinators", 2) => coordinator::edit(session, verb, rest),
        Verb::Modify if is("jobs", 1) => job::modify(session, rest),
        _ if is("qos", 1) => qos::edit(session, verb, rest),
        _ if is("users", 1) => user::edit(session, verb, rest),
        _ if is("federations", 1) => federation::edit(session, verb, rest),
        _ if is("resources", 1) => resource::edit(session, verb, rest),
        _ => Err(Failure::new(unknown)),
    }
}
