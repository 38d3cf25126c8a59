//! `sacctmgr archive dump` and `load`: the words of the command become a request to the controller, on whose host it is carried out.

use super::ledger::error;
use super::session::Invocation;
use super::words::Word;
use super::{begins, console};
use crate::connect::{ConnectError, unexpected};
use crate::errno;
use crate::listing::Failure;
use muster_model::refusal::RefusalCode;
use muster_proto::archive::{AgeUnit, ArchiveDump, ArchiveRequest, ArchivedKind, PurgeAge};
use muster_proto::client::{RequestBody, Response};
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const ENTITIES: &str =
    "No valid entity in archive command\nInput line must include, \"Dump\", or \"load\"";
const LOSS: &str = "This may result in loss of accounting database records (if Purge* options enabled).\n\
    Are you sure you want to continue?";

/// Archived records, by Slurm's word for them.
const KINDS: [(&str, ArchivedKind); 7] = [
    ("events", ArchivedKind::Events),
    ("jobs", ArchivedKind::Jobs),
    ("steps", ArchivedKind::Steps),
    ("suspend", ArchivedKind::Suspensions),
    ("txn", ArchivedKind::Transactions),
    ("usage", ArchivedKind::Usage),
    ("reservations", ArchivedKind::Reservations),
];

/// Purged records, with the beginning of their key; `After` or `Months` follows.
const PURGES: [(&str, ArchivedKind); 7] = [
    ("PurgeEvent", ArchivedKind::Events),
    ("PurgeJob", ArchivedKind::Jobs),
    ("PurgeStep", ArchivedKind::Steps),
    ("PurgeSuspend", ArchivedKind::Suspensions),
    ("PurgeTXN", ArchivedKind::Transactions),
    ("PurgeUsage", ArchivedKind::Usage),
    ("PurgeResv", ArchivedKind::Reservations),
];

/// Conditions on jobs that Slurm knows here.
const JOB_CONDITIONS: [&str; 10] = [
    "accounts",
    "associations",
    "endtime",
    "gid",
    "nodes",
    "partitions",
    "qos",
    "starttime",
    "users",
    "wckeys",
];

/// Carries it out.
pub(super) fn run(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let Some((verb, rest)) = words.split_first() else {
        return Err(Failure::new(ENTITIES));
    };
    match () {
        () if begins("dump", verb) => dump(session, rest),
        () if begins("load", verb) => load(session, rest),
        () => Err(Failure::new(ENTITIES)),
    }
}

fn dump(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let (request, clusters) = read(words)?;
    if let Some(dir) = &request.dir {
        check_dir(dir)?;
    }
    if let Some(script) = &request.script {
        check_script(script)?;
    }
    if !session.immediate && !console::agreed(session.console, LOSS) {
        return Ok(());
    }
    if !clusters.is_empty() {
        let own = &session.ledger.client()?.endpoint.cluster;
        if let Some(other) = clusters.iter().find(|name| *name != own) {
            let text = format!(
                " Cluster '{other}' is not the controller's: its records are not archived here"
            );
            return Err(Failure::new(text));
        }
    }
    ask(
        session,
        ArchiveRequest::Dump(Box::new(request)),
        "dumping archive",
    )?;
    session
        .console
        .complain("sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive: SUCCESS");
    Ok(())
}

fn load(session: &mut Invocation<'_>, words: &[String]) -> Result<(), Failure> {
    let mut file = None;
    for text in words {
        let word = Word::new(text);
        match word.key.as_deref() {
            None => file = Some(word.value),
            Some(key) if begins("file", key) => file = Some(word.value),
            Some(key) if begins("insert", key) => {
                return Err(Failure::new(
                    " Insert= is not implemented: archives are files of Muster's, not SQL",
                ));
            }
            Some(_) => return Err(Failure::new(format!(" Unknown option: {text}"))),
        }
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        return Err(Failure::new(
            "sacctmgr: error: No archive file given to recover.\n Problem loading archive file: Unspecified error",
        ));
    };
    // It is relative to where the command runs, if that is the same host.
    let path = std::path::absolute(&file).map_err(error)?;
    let file = path
        .to_str()
        .ok_or_else(|| error("the name of the file is no text"))?;
    let request = ArchiveRequest::Load {
        file: file.to_owned(),
    };
    ask(session, request, "loading archive file")?;
    session
        .console
        .complain("sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive_load: SUCCESS");
    Ok(())
}

/// Request in the words, and the clusters that they name.
fn read(words: &[String]) -> Result<(ArchiveDump, Vec<String>), Failure> {
    let (mut dump, mut clusters) = (ArchiveDump::default(), Vec::new());
    for text in words {
        let word = Word::new(text);
        let Some(key) = word.key.as_deref() else {
            match KINDS.iter().find(|(name, _)| word.is(name, 2)) {
                Some((_, kind)) => dump.kept.push(*kind),
                None if word.is("where", 5) => {}
                None => return Err(Failure::new(format!(" Unknown condition: {text}"))),
            }
            continue;
        };
        let purge = PURGES.iter().find_map(|(name, kind)| {
            let rest = key.get(name.len()..).filter(|_| begins_with(key, name))?;
            let is_after = begins("After", rest);
            (is_after || begins("Months", rest)).then_some((*kind, is_after))
        });
        match purge {
            Some((kind, is_after)) => {
                let age = age(&word.value, kind, is_after)?;
                dump.ages.retain(|own| own.kind != kind);
                dump.ages.push(age);
            }
            None if begins("directory", key) => dump.dir = Some(word.value),
            None if key.len() > 1 && begins("script", key) => dump.script = Some(word.value),
            None if begins("clusters", key) => clusters.extend(word.list()),
            None if JOB_CONDITIONS.iter().any(|name| begins(name, key)) => {
                return Err(Failure::new(format!(
                    " Condition {text} is not implemented: what is old is archived of all jobs"
                )));
            }
            None => return Err(Failure::new(format!(" Unknown condition: {text}"))),
        }
    }
    Ok((dump, clusters))
}

fn begins_with(key: &str, name: &str) -> bool {
    let start = key.get(..name.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// `12hours`, `50days`, `12` or `12months`; a number alone for the old keys.
fn age(text: &str, kind: ArchivedKind, is_after: bool) -> Result<PurgeAge, Failure> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, word) = text.split_at(end.unwrap_or(text.len()));
    let word_of = if is_after { word } else { "" };
    let unit = AgeUnit::named(word_of).ok_or_else(|| {
        error(format!(
            "Invalid purge unit '{word}', valid options are hours, days, or months"
        ))
    })?;
    let count = number.parse().ok().filter(|count| *count > 0);
    let count = count.filter(|_| is_after || word.is_empty());
    let count = count.ok_or_else(|| {
        error(format!(
            "Invalid purge time '{text}': a number above 0 is expected, since 0 would purge all that is over"
        ))
    })?;
    Ok(PurgeAge { kind, count, unit })
}

fn check_dir(dir: &str) -> Result<(), Failure> {
    let here = "\n Note: For archive dump, the directory must be on the calling host.";
    let found = fs::metadata(dir).map_err(|e| {
        Failure::new(format!(
            " dump: Failed to stat {dir}: {}{here}",
            errno::system_text(&e)
        ))
    })?;
    match () {
        () if !found.is_dir() => Err(Failure::new(format!(
            " dump: archive dir {dir} isn't a directory"
        ))),
        () if access(dir, AccessFlags::W_OK).is_err() => Err(Failure::new(format!(
            " dump: archive dir {dir} is not writable"
        ))),
        () if !Path::new(dir).is_absolute() => Err(Failure::new(format!(
            " dump: archive dir {dir} is no absolute path"
        ))),
        () => Ok(()),
    }
}

fn check_script(script: &str) -> Result<(), Failure> {
    let here = "\n Note: For archive dump, the script must be on the calling host.";
    let found = fs::metadata(script).map_err(|e| {
        Failure::new(format!(
            " dump: Failed to stat {script}: {}{here}",
            errno::system_text(&e)
        ))
    })?;
    match () {
        () if !found.is_file() => Err(Failure::new(format!(
            " dump: archive script {script} isn't a regular file"
        ))),
        () if found.permissions().mode() & 0o111 == 0 => Err(Failure::new(format!(
            " dump: archive script {script} is not executable"
        ))),
        () => Ok(()),
    }
}

/// Asks the controller, which answers once it is done.
fn ask(session: &mut Invocation<'_>, request: ArchiveRequest, what: &str) -> Result<(), Failure> {
    let problem = |e: ConnectError| match e {
        ConnectError::Refused(refusal) if refusal.code == RefusalCode::AccessDenied => {
            Failure::new(format!(
                "sacctmgr: error: Your user doesn't have privilege to perform this action\n Problem {what}: {}",
                refusal.code.text()
            ))
        }
        ConnectError::Refused(refusal) => Failure::new(format!(
            "sacctmgr: error: {}\n Problem {what}: {}",
            refusal.detail,
            refusal.code.text()
        )),
        other => error(other),
    };
    let client = session.ledger.client()?;
    match client
        .call(RequestBody::Archive(request))
        .map_err(problem)?
    {
        Response::Archived(lines) => {
            for line in lines {
                session.console.say(&format!(" {line}\n"));
            }
            Ok(())
        }
        other => Err(error(unexpected(&other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_say_what_is_archived_and_purged() {
        let line = "Directory=/old Jobs events PurgeJobAfter=12hours purgestepafter=50days PurgeTXNAfter=2 \
            PurgeEventMonths=3 Clusters=peer PurgeJobAfter=1months";
        let (dump, clusters) = read(&words(line)).unwrap();
        let age = |kind, count, unit| PurgeAge { kind, count, unit };
        assert_eq!(
            dump,
            ArchiveDump {
                dir: Some("/old".to_owned()),
                script: None,
                kept: vec![ArchivedKind::Jobs, ArchivedKind::Events],
                ages: vec![
                    age(ArchivedKind::Steps, 50, AgeUnit::Days),
                    age(ArchivedKind::Transactions, 2, AgeUnit::Months),
                    age(ArchivedKind::Events, 3, AgeUnit::Months),
                    age(ArchivedKind::Jobs, 1, AgeUnit::Months),
                ],
            }
        );
        assert_eq!(clusters, ["peer"]);
    }

    #[test]
    fn what_is_no_word_of_it_is_refused_by_name() {
        let refused = |line: &str| read(&words(line)).unwrap_err().to_string();
        for (line, text) in [
            (
                "PurgeJobAfter=1week",
                "sacctmgr: error: Invalid purge unit 'week', valid options are hours, days, or months",
            ),
            ("bogus=1", " Unknown condition: bogus=1"),
            ("bogus", " Unknown condition: bogus"),
        ] {
            assert_eq!(refused(line), text);
        }
        assert!(refused("PurgeJobAfter=0").contains("'0'"));
        assert!(refused("Users=amy").contains("Condition Users=amy is not implemented"));
        assert!(refused("PurgeEventMonths=3days").contains("'3days'"));
    }
}
