//! The commands of sacctmgr: which word means which, and what surrounds them.

use super::book::{Book, Facts};
use super::console::{self, Console};
use super::fields::{Column, Style, table};
use super::ledger::Ledger;
use super::{
    SPEC, account, begins, cluster, coordinator, events, flat_file, job, qos, service, show, user,
};
use crate::SLURM_VERSION;
use crate::connect::ConnectError;
use crate::listing::Failure;
use muster_model::command::{AccountsAsk, AccountsEdit};
use muster_model::refusal::RefusalCode;

/// One run of sacctmgr: the records, the console, and what was asked of the output.
pub(super) struct Invocation<'a> {
    pub(super) ledger: &'a mut dyn Ledger,
    pub(super) console: &'a mut dyn Console,
    pub(super) style: Style,
    pub(super) immediate: bool,
    pub(super) readonly: bool,
    pub(super) associations: bool,
    /// Whether commands come from the prompt, and it is to end.
    pub(super) is_over: bool,
}

/// A part of a change, with what is said of it.
pub(super) struct Part {
    pub(super) text: String,
    pub(super) edits: Vec<AccountsEdit>,
}

/// What an edit does to records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Modify,
    Delete,
}

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

pub(super) const COMMIT: &str = "Would you like to commit changes?";

impl<'a> Invocation<'a> {
    pub(super) fn new(ledger: &'a mut dyn Ledger, console: &'a mut dyn Console) -> Invocation<'a> {
        Invocation {
            ledger,
            console,
            style: Style::default(),
            immediate: false,
            readonly: false,
            associations: false,
            is_over: false,
        }
    }

    /// Carries out a command line.
    pub(super) fn execute(&mut self, words: &[String]) -> Result<(), Failure> {
        let Some((verb, rest)) = words.split_first() else {
            return Ok(());
        };
        let is = |name: &str, least: usize| verb.len() >= least && begins(name, verb);
        match () {
            () if is("show", 3) || is("list", 3) => self.show(rest),
            () if is("add", 3) || is("create", 3) => self.change(Verb::Add, rest),
            () if is("modify", 3) || is("update", 3) => self.change(Verb::Modify, rest),
            () if is("delete", 3) || is("remove", 3) => self.change(Verb::Delete, rest),
            () if is("dump", 3) => flat_file::dump(self, rest),
            () if is("load", 3) => {
                self.check_writable()?;
                flat_file::load(self, rest)
            }
            () if is("archive", 3) => Err(Failure::new(
                "sacctmgr: error: slurmdbd archives what it purges, as slurmdbd.conf says; 'muster import archive FILE' on the controller's host takes that back",
            )),
            () if is("clear", 3) => service::clear(self, rest),
            () if is("reconfigure", 3) => service::reconfigure(self),
            () if is("shutdown", 8) => Err(Failure::new(
                "sacctmgr: error: accounting is a part of the controller; 'scontrol shutdown' stops it",
            )),
            () if is("associations", 3) => {
                self.associations = true;
                Ok(())
            }
            () if is("readonly", 4) => {
                self.readonly = true;
                Ok(())
            }
            () if is("quiet", 4) || is("verbose", 4) || is("oneliner", 1) => Ok(()),
            () if is("exit", 1) || is("quit", 4) => {
                self.is_over = true;
                Ok(())
            }
            () if is("help", 2) => {
                if !rest.is_empty() {
                    return Err(Failure::new(format!(
                        "too many arguments for keyword:{verb}"
                    )));
                }
                self.console.say(&SPEC.help());
                Ok(())
            }
            () if is("version", 4) => {
                self.console.say(&format!("slurm {SLURM_VERSION}\n"));
                Ok(())
            }
            () => Err(Failure::new(format!("invalid keyword: {verb}"))),
        }
    }

    fn show(&mut self, words: &[String]) -> Result<(), Failure> {
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
                show::accounts(self, rest)
            }
            () if is("associations", 2) => show::associations(self, rest),
            () if is("clusters", 2) => show::clusters(self, rest),
            () if is("configuration", 2) => service::configuration(self),
            () if is("events", 1) => events::show(self, rest),
            () if is("federations", 1) => show::federations(self, rest),
            () if is("problems", 1) => events::problems(self, rest),
            () if is("qos", 1) => show::qos(self, rest),
            () if is("reservations", 4) => service::reservations(self, rest),
            () if is("resources", 4) => show::resources(self, rest),
            () if is("runawayjobs", 2) => service::runaways(self),
            () if is("stats", 2) => service::stats(self),
            () if is("transactions", 1) && !is("tres", 3) => service::transactions(self, rest),
            () if is("tres", 3) => show::tres(self, rest),
            () if is("users", 1) => show::users(self, rest),
            () if is("wckeys", 1) => show::wckeys(self, rest),
            () => Err(Failure::new(LIST)),
        }
    }

    fn change(&mut self, verb: Verb, words: &[String]) -> Result<(), Failure> {
        self.check_writable()?;
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
            _ if is("accounts", 2) || is("acct", 4) => account::edit(self, verb, rest),
            _ if is("clusters", 2) => cluster::edit(self, verb, rest),
            Verb::Add | Verb::Delete if is("coordinators", 2) => {
                coordinator::edit(self, verb, rest)
            }
            Verb::Modify if is("jobs", 1) => job::modify(self, rest),
            _ if is("qos", 1) => qos::edit(self, verb, rest),
            _ if is("users", 1) => user::edit(self, verb, rest),
            _ if is("federations", 1) => Err(Failure::new(
                "sacctmgr: error: there are no federations: accounting is that of one cluster",
            )),
            _ if is("resources", 1) => Err(Failure::new(
                "sacctmgr: error: resources of several clusters are not kept; Licenses= of slurm.conf counts those of this one",
            )),
            _ => Err(Failure::new(unknown)),
        }
    }

    fn check_writable(&self) -> Result<(), Failure> {
        match self.readonly {
            true => Err(Failure::new("Can't run this command in readonly mode.")),
            false => Ok(()),
        }
    }

    /// The records as they are now.
    pub(super) fn book(&mut self) -> Result<Book, Failure> {
        Ok(Book::new(self.ledger.accounts()?))
    }

    /// The records of all clusters that a change may concern, by the clusters' names, and the controller's own ones. Who
    /// only coordinates accounts, or changes what is his, changes those of the controller's own cluster, unless clusters
    /// are named.
    pub(super) fn books(&mut self, clusters: Option<&[String]>) -> Result<Vec<Book>, Failure> {
        let book = self.book()?;
        let all = clusters.is_some_and(|named| !named.is_empty()) || self.is_operator(&book);
        Ok(match all {
            true => book.of_all_clusters(),
            false => vec![book],
        })
    }

    pub(super) fn facts(&mut self) -> Result<Facts, Failure> {
        self.ledger.facts()
    }

    /// Whether the user who asks is root, an operator or an administrator of accounting.
    pub(super) fn is_operator(&self, book: &Book) -> bool {
        let user = self.ledger.user();
        let known = book.all.users.get(&user);
        user == muster_model::accounts::ROOT
            || known.is_some_and(|user| !["", "None"].contains(&user.admin_level.as_str()))
    }

    /// Prints a listing.
    pub(super) fn print(&mut self, columns: &[Column], rows: &[Vec<String>]) {
        self.console.say(&table(columns, rows, self.style));
    }

    /// Whether the changes shall be made: asks, unless they are to be made at once.
    pub(super) fn commits(&mut self) -> bool {
        if self.immediate || console::agreed(self.console, COMMIT) {
            return true;
        }
        self.console.say(" Changes Discarded\n");
        false
    }

    /// Makes an addition: says what it will be, asks, and makes it. `entities` are what Slurm calls them in its errors.
    pub(super) fn add(
        &mut self,
        text: &str,
        entities: &str,
        edits: Vec<AccountsEdit>,
    ) -> Result<(), Failure> {
        self.console.say(text);
        if !self.commits() {
            return Ok(());
        }
        for edit in edits {
            let problem = |e: ConnectError| match e {
                ConnectError::Refused(refusal) if refusal.code == RefusalCode::AccessDenied => {
                    Failure::new(format!(
                        " Problem adding {entities}: {}",
                        refusal.code.text()
                    ))
                }
                ConnectError::Refused(refusal) => {
                    Failure::new(format!(" Problem adding {entities}: {refusal}"))
                }
                other => super::ledger::error(other),
            };
            self.ledger.edit(edit).map_err(problem)?;
        }
        Ok(())
    }

    /// Makes changes and says what they were. Without `-i` it says so first and asks.
    pub(super) fn make(
        &mut self,
        text: &str,
        nothing: &str,
        edits: Vec<AccountsEdit>,
    ) -> Result<(), Failure> {
        if !self.immediate {
            self.console.say(text);
            if !self.commits() {
                return Ok(());
            }
        }
        let mut changed = 0;
        for edit in edits {
            changed += self.ledger.edit(edit).map_err(refused)?;
        }
        if changed == 0 {
            self.console.say(nothing);
            return Err(Failure::silent());
        }
        if self.immediate {
            self.console.say(text);
        }
        Ok(())
    }

    /// Makes changes in several parts, each with its text, which is said once the part is made. Without `-i` all is
    /// said first, and asked once.
    pub(super) fn make_parts(&mut self, nothing: &str, parts: Vec<Part>) -> Result<(), Failure> {
        if !self.immediate {
            let text: String = parts.iter().map(|part| part.text.as_str()).collect();
            let edits = parts.into_iter().flat_map(|part| part.edits);
            return self.make(&text, nothing, edits.collect());
        }
        for part in parts.into_iter().filter(|part| !part.edits.is_empty()) {
            self.make(&part.text, nothing, part.edits)?;
        }
        Ok(())
    }

    /// An edit of these names in the records of a cluster.
    pub(super) fn edit_in(book: &Book, names: &[String], ask: AccountsAsk) -> AccountsEdit {
        let cluster = match book.is_other {
            true => book.cluster.clone(),
            false => String::new(),
        };
        AccountsEdit {
            cluster,
            ..Invocation::edit_of(names, ask)
        }
    }

    /// An edit of these names in the records of the controller's own cluster.
    pub(super) fn edit_of(names: &[String], ask: AccountsAsk) -> AccountsEdit {
        AccountsEdit {
            cluster: String::new(),
            names: names.to_vec(),
            ask,
        }
    }
}

/// The failure of a change that was refused.
pub(super) fn refused(e: ConnectError) -> Failure {
    match e {
        ConnectError::Refused(refusal) if refusal.code == RefusalCode::AccessDenied => {
            Failure::new(format!(
                "sacctmgr: error: Your user doesn't have privilege to perform this action\n Error with request: {}",
                refusal.code.text()
            ))
        }
        ConnectError::Refused(refusal) => Failure::new(format!(" Error with request: {refusal}")),
        other => super::ledger::error(other),
    }
}
