//! Shared parts of all commands of sacctmgr: the records, the console, questions to the user, changes with their texts.

use super::book::{Book, ClusterFacts};
use super::console::{self, Console};
use super::fields::{ListingColumn, ListingStyle, table};
use super::ledger::Ledger;
use crate::connect::ConnectError;
use crate::listing::Failure;
use muster_model::command::{AccountsAsk, AccountsEdit};
use muster_model::refusal::RefusalCode;

/// One run of sacctmgr: the records, the console, and the options of the output.
pub(super) struct Invocation<'a> {
    pub(super) ledger: &'a mut dyn Ledger,
    pub(super) console: &'a mut dyn Console,
    pub(super) style: ListingStyle,
    pub(super) immediate: bool,
    pub(super) readonly: bool,
    pub(super) associations: bool,
    /// Whether commands come from the prompt, and it is to end.
    pub(super) is_over: bool,
}

/// A part of a change, with its text.
pub(super) struct ChangePart {
    pub(super) text: String,
    pub(super) edits: Vec<AccountsEdit>,
}

/// Kind of an edit of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Add,
    Modify,
    Delete,
}

pub(super) const COMMIT: &str = "Would you like to commit changes?";

impl<'a> Invocation<'a> {
    pub(super) fn new(ledger: &'a mut dyn Ledger, console: &'a mut dyn Console) -> Invocation<'a> {
        Invocation {
            ledger,
            console,
            style: ListingStyle::default(),
            immediate: false,
            readonly: false,
            associations: false,
            is_over: false,
        }
    }

    /// An error, if nothing may be changed.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        match self.readonly {
            true => Err(Failure::new("Can't run this command in readonly mode.")),
            false => Ok(()),
        }
    }

    /// The records as they are now.
    pub(super) fn book(&mut self) -> Result<Book, Failure> {
        Ok(Book::new(self.ledger.accounts()?))
    }

    /// The records for a change. Where it limits generic resources or licenses, those that there are come along, unless other
    /// clusters may have more.
    pub(super) fn book_of_change(&mut self, words: &[String]) -> Result<Book, Failure> {
        let mut book = self.book()?;
        let names_some = words.iter().any(|word| {
            let word = word.to_ascii_lowercase();
            word.contains("gres/") || word.contains("license/")
        });
        if names_some && book.all.clusters.is_empty() {
            let mut tres = self.facts()?.tres;
            let remote = book.all.resources.values();
            tres.extend(remote.flat_map(|own| {
                let name = format!("license/{}", own.name);
                [format!("{name}@{}", own.server), name]
            }));
            book.tres = Some(tres);
        }
        Ok(book)
    }

    /// The records of all clusters that a change may concern, by the clusters' names, and the controller's own ones.
    /// Coordinators, and users who change their own records, change those of the controller's own cluster, unless
    /// clusters are named.
    pub(super) fn books(&mut self, clusters: Option<&[String]>) -> Result<Vec<Book>, Failure> {
        let book = self.book()?;
        let all = clusters.is_some_and(|named| !named.is_empty()) || self.is_operator(&book);
        Ok(match all {
            true => book.of_all_clusters(),
            false => vec![book],
        })
    }

    pub(super) fn facts(&mut self) -> Result<ClusterFacts, Failure> {
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
    pub(super) fn print(&mut self, columns: &[ListingColumn], rows: &[Vec<String>]) {
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

    /// Makes an addition: prints it, asks, and makes it. `entities` is Slurm's name for them in its errors.
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

    /// Makes changes and prints them. Without `-i` it prints them first and asks.
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
    pub(super) fn make_parts(
        &mut self,
        nothing: &str,
        parts: Vec<ChangePart>,
    ) -> Result<(), Failure> {
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
