//! `sacctmgr add`, `modify` and `delete qos`.

use super::book::Book;
use super::conditions::{Conditions, Key, OF_QOS, OF_RESET_QOS};
use super::edit::{
    NO_CONDITIONS, NOTHING_ADDED, NOTHING_DELETED, NOTHING_MODIFIED, NOTHING_SET, USE_WHERE,
    default_qos_line, lines, parts,
};
use super::session::{Invocation, Verb};
use super::settings::{QOS, QosSettings};
use super::show::{fits_qos, read};
use super::words::Word;
use crate::listing::Failure;
use muster_model::accounts::Qos;
use muster_model::command::AccountsAsk;
use muster_model::command::ListEdit;

const USE_SET: &str = "\n Use keyword 'set' to modify SLURM_PRINT_VALUE";
const LOOP: &str = "sacctmgr: error: QOS Preemption loop detected\n Error with request: QOS Preemption loop detected";

pub(super) fn edit(
    session: &mut Invocation<'_>,
    verb: Verb,
    words: &[String],
) -> Result<(), Failure> {
    match verb {
        Verb::Add => add(session, words),
        Verb::Modify => modify(session, words),
        Verb::Delete => delete(session, words),
    }
}

/// Reads settings. All words that are none are reported before the command ends.
fn read_settings(
    session: &mut Invocation<'_>,
    book: &Book,
    words: &[String],
    names: &mut Vec<String>,
) -> Result<QosSettings, Failure> {
    let mut settings = QosSettings::default();
    let mut unknown = String::new();
    for text in words {
        let word = Word::new(text);
        let is_name = word.is("names", 1) || word.key.is_none();
        if text.eq_ignore_ascii_case("set") || text.eq_ignore_ascii_case("and") {
            continue;
        }
        if is_name {
            names.extend(word.list().iter().map(|name| book.all.qos_key(name)));
            continue;
        }
        let Some(key) = word.key_of(QOS) else {
            unknown += &format!(" Unknown option: {text}{USE_WHERE}\n");
            continue;
        };
        if let Err(why) = settings.take(key, &word, book) {
            let invalid = why.contains("Invalid value") && settings.is_empty();
            if why.contains("Unknown QOS flag") {
                session.console.say(&format!("{why}\n"));
                return Err(Failure::silent());
            }
            return Err(Failure::new(match invalid {
                true => format!("{why}\n{NOTHING_SET}"),
                false => why,
            }));
        }
    }
    if unknown.is_empty() {
        return Ok(settings);
    }
    session.console.say(&unknown);
    Err(Failure::silent())
}

fn add(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let mut names = Vec::new();
    let settings = read_settings(session, &book, words, &mut names)?;
    if names.is_empty() {
        return Err(Failure::new(" Need name of qos to add."));
    }
    let mut new: Vec<String> = Vec::new();
    for name in names {
        if book.all.qos(&name).is_none() && !new.contains(&name) {
            new.push(name);
        }
    }
    let Some(last) = new.last() else {
        session.console.say(NOTHING_ADDED);
        return Err(Failure::silent());
    };
    let description = settings
        .ask
        .description
        .clone()
        .unwrap_or_else(|| last.clone());
    let text = format!(
        " Adding QOS(s)\n{} Settings\n  Description    = {description}\n{}",
        lines(&new),
        settings.lines()
    );
    let edit = Invocation::edit_of(&new, AccountsAsk::AddQos(settings.ask));
    session.add(&text, "QOS", vec![edit])
}

fn meant(book: &Book, conditions: &Conditions) -> Vec<Qos> {
    let all = book.qos_records().into_iter();
    all.filter(|qos| fits_qos(conditions, qos)).collect()
}

fn modify(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let book = session.book_of_change(words)?;
    let (conditions, set) = parts(words);
    // A name that is set changes nothing.
    let settings = read_settings(session, &book, &set, &mut Vec::new())?;
    let known = match settings.resets_usage {
        true => OF_RESET_QOS,
        false => OF_QOS,
    };
    let conditions = read(&conditions, known, USE_SET)?;
    if settings.is_empty() {
        return Err(Failure::new(NOTHING_SET));
    }
    let names: Vec<String> = meant(&book, &conditions)
        .into_iter()
        .map(|qos| qos.name)
        .collect();
    if settings.resets_usage {
        return reset_usage(session, &book, &conditions, &names);
    }
    if names.is_empty() {
        session.console.say(NOTHING_MODIFIED);
        return Err(Failure::silent());
    }
    if let Some(ListEdit {
        sign,
        names: preempt,
    }) = &settings.ask.preempt
        && *sign != Some('-')
        && makes_loop(&book, &names, preempt)
    {
        return Err(Failure::new(LOOP));
    }
    let text = format!(" Modified qos...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::ModifyQos(settings.ask));
    session.make(&text, NOTHING_MODIFIED, vec![edit])
}

/// Whether a QOS may preempt one of the others and may be preempted by it, or by one that it may preempt.
fn makes_loop(book: &Book, names: &[String], preempt: &[String]) -> bool {
    let mut seen: Vec<String> = Vec::new();
    let mut next = preempt.to_vec();
    while let Some(name) = next.pop() {
        if names.contains(&name) {
            return true;
        }
        if !seen.contains(&name) {
            next.extend(
                book.all
                    .qos(&name)
                    .map(|qos| qos.preempt)
                    .unwrap_or_default(),
            );
            seen.push(name);
        }
    }
    false
}

fn reset_usage(
    session: &mut Invocation<'_>,
    book: &Book,
    conditions: &Conditions,
    names: &[String],
) -> Result<(), Failure> {
    if conditions.of(Key::Clusters).is_none() {
        let text = format!(
            "No cluster specified, resetting on local cluster {}\n",
            book.cluster
        );
        session.console.say(&text);
    } else if !conditions.fits_cluster(book, Key::Clusters) {
        let others = conditions.names(Key::Clusters).join(",");
        return Err(super::ledger::error(format!(
            "Usage on cluster {others} is reset there"
        )));
    }
    if names.is_empty() {
        let missing = conditions.names(Key::Names).join(",");
        return Err(super::ledger::error(format!(
            "Failed to find QOS {missing}"
        )));
    }
    if !session.commits() {
        return Ok(());
    }
    let edit = Invocation::edit_of(names, AccountsAsk::ResetQosUsage);
    session.ledger.edit(edit).map_err(super::session::refused)?;
    Ok(())
}

fn delete(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let conditions = read(words, OF_QOS, USE_SET)?;
    if conditions.is_empty() {
        return Err(Failure::new(NO_CONDITIONS));
    }
    let book = session.book()?;
    let mut names: Vec<String> = meant(&book, &conditions)
        .into_iter()
        .map(|qos| qos.name)
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        session.console.say(NOTHING_DELETED);
        return Err(Failure::silent());
    }
    let mut used = String::new();
    for at in book.tree() {
        if let Some(default) = at
            .own
            .default_qos
            .as_ref()
            .filter(|qos| names.contains(qos))
        {
            used += &default_qos_line(&book, &at, default);
        }
    }
    if !used.is_empty() {
        return Err(Failure::new(format!(
            " Associations listed below have these as their Default QOS.\n{used} \
             Please either remove the qos' listed above from list and resubmit,\n \
             or change the default qos to remove the qos.\n Changes Discarded"
        )));
    }
    let text = format!(" Deleting QOS(s)...\n{}", lines(&names));
    let edit = Invocation::edit_of(&names, AccountsAsk::DeleteQos);
    session.make(&text, NOTHING_DELETED, vec![edit])
}
