//! `muster storage`: use of file systems by users, by scans at night (`muster storage scan`).

mod scan;

use crate::connect::{Client, unexpected};
use crate::listing::{Failure, failed_call, print};
use crate::options::{HelpForm, Spec, flag, opt};
use crate::people::user_of_uid;
use crate::report::Format;
use crate::zone;
use muster_model::command::{AccountsAsk, AccountsEdit, UserCommand};
use muster_model::limits::EDIT_ITEMS_MAX;
use muster_model::storage::{ScannedFilesystem, StorageAnswer, StorageScan, StorageUse};
use muster_model::time::Timestamp;
use muster_proto::client::{Query, Response};
use scan::ScannedTree;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

/// muster storage.
pub(crate) static SPEC: Spec = Spec {
    name: "muster-storage",
    about: "Shows what users have on file systems, by the latest scan of each.",
    operands: "[scan NAME DIRECTORY]",
    form: HelpForm::Options,
    options: &[
        flag("dry-run", "with scan: print what was found, and record nothing"),
        opt("format", "FORM", "table, csv or json (default: table)").short('f'),
        flag("help", "print this help").short('h'),
        flag("usage", "print a short summary"),
    ],
    variables: &[],
    notes: "\
'muster storage scan NAME DIRECTORY' looks through the directory, as far as it is on one file system, and has the controller record \
what each user has there, as the file system NAME. An administrator of accounting runs it, as a user who may read all directories: a line of \
root's crontab for each file system, on a host that has it: 17 1 * * * nice ionice -c3 timeout 8h muster storage scan home /home

Bytes are those that are allocated. A file with several names counts once. Growth is counted from the first scan of the last 30 days; scans are \
kept for 400 days.",
};

/// Interval of notes of progress.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Runs it.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    let (mut format, mut dry_run) = (Format::Table, false);
    for (name, value) in &parsed.options {
        match (*name, value.as_deref()) {
            ("help", _) => return shown(&SPEC.help()),
            ("usage", _) => return shown(&SPEC.usage()),
            ("dry-run", _) => dry_run = true,
            ("format", Some("table")) => format = Format::Table,
            ("format", Some("csv")) => format = Format::Csv,
            ("format", Some("json")) => format = Format::Json,
            (_, value) => {
                let word = value.unwrap_or_default();
                return Err(Failure::new(format!(
                    "muster storage: --format={word}: expected table, csv or json"
                )));
            }
        }
    }
    let operands: Vec<&str> = parsed.operands.iter().map(String::as_str).collect();
    match operands[..] {
        [] if dry_run => Err(Failure::new(
            "muster storage: --dry-run belongs to 'muster storage scan'",
        )),
        [] => show(&ask()?, format),
        ["scan", name, directory] => record(name, directory, dry_run, format),
        _ => Err(Failure::new(format!(
            "muster storage: expected nothing, or scan with a name and a directory\n{}",
            SPEC.usage().trim_end()
        ))),
    }
}

fn shown(text: &str) -> Result<(), Failure> {
    print(text);
    Ok(())
}

/// Asks for the latest scans.
fn ask() -> Result<StorageAnswer, Failure> {
    let failed = failed_call("muster storage");
    let mut client = Client::connect().map_err(&failed)?;
    read(&mut client).map_err(&failed)
}

/// The latest scans.
///
/// # Errors
/// The controller does not answer, or has no accounting.
pub(crate) fn read(client: &mut Client) -> Result<StorageAnswer, crate::connect::ConnectError> {
    match client.query(Query::Storage)? {
        Response::Storage(answer) => Ok(*answer),
        other => Err(unexpected(&other)),
    }
}

/// Scans a directory, and has the result recorded, or shows it.
fn record(name: &str, directory: &str, dry_run: bool, format: Format) -> Result<(), Failure> {
    let at = zone::now();
    let mut noted = Instant::now();
    let found = scan::scan(Path::new(directory), |found| {
        if stderr().is_terminal() && noted.elapsed() >= NOTE_EVERY {
            noted = Instant::now();
            eprint!("\r{} files, {} users ", found.files, found.owners.len());
        }
    });
    if stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    let found = found.map_err(|e| Failure::new(format!("muster storage: {directory}: {e}")))?;
    if found.left_out > 0 {
        crate::listing::complain(&format!(
            "muster storage: {} directories of {directory} were left out: they could not be read, or are too deep",
            found.left_out
        ));
    }
    let scan = scanned(&found, directory, at);
    if dry_run {
        return show(&answer_of(name, scan), format);
    }
    send(name, &scan)
}

/// The scan, with names of users, the largest first.
fn scanned(found: &ScannedTree, directory: &str, at: Timestamp) -> StorageScan {
    let named = |uid: u32| user_of_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    let mut users: Vec<StorageUse> = found
        .owners
        .iter()
        .map(|(uid, owned)| StorageUse {
            user: named(*uid),
            bytes: owned.bytes,
            files: owned.files,
        })
        .collect();
    users.sort_by(|a, b| (b.bytes, &a.user).cmp(&(a.bytes, &b.user)));
    StorageScan {
        at,
        path: directory.to_owned(),
        size_bytes: found.size_bytes,
        used_bytes: found.used_bytes,
        users,
    }
}

/// The answer if this scan were the only one.
fn answer_of(name: &str, scan: StorageScan) -> StorageAnswer {
    let users = scan.users.into_iter();
    let users = users.map(|now| muster_model::storage::UserStorage {
        now,
        bytes_before: None,
    });
    StorageAnswer {
        filesystems: vec![ScannedFilesystem {
            name: name.to_owned(),
            path: scan.path,
            at: scan.at,
            size_bytes: scan.size_bytes,
            used_bytes: scan.used_bytes,
            since: None,
            users: users.collect(),
        }],
        ..StorageAnswer::default()
    }
}

/// Sends it, in parts that a request has room for.
fn send(name: &str, scan: &StorageScan) -> Result<(), Failure> {
    let failed = failed_call("muster storage");
    let mut client = Client::connect().map_err(&failed)?;
    for users in scan.users.chunks(EDIT_ITEMS_MAX) {
        let part = StorageScan {
            users: users.to_vec(),
            ..scan.clone()
        };
        let edit = AccountsEdit {
            names: vec![name.to_owned()],
            ask: AccountsAsk::RecordStorage(part),
            cluster: String::new(),
        };
        client
            .command(UserCommand::EditAccounts(Box::new(edit)))
            .map_err(&failed)?;
    }
    Ok(())
}

fn show(answer: &StorageAnswer, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => shown(&format!("{:#}\n", document(answer))),
        Format::Csv => shown(&csv(answer)),
        Format::Table | Format::Svg => shown(&table(answer)),
    }
}

/// As a document, for --json and slurmrestd.
pub(crate) fn document(answer: &StorageAnswer) -> Value {
    let filesystems = answer.filesystems.iter().map(|filesystem| {
        let users = filesystem.users.iter().map(|user| {
            json!({"user": user.now.user, "bytes": user.now.bytes, "files": user.now.files, "bytes_before": user.bytes_before})
        });
        json!({
            "name": filesystem.name, "path": filesystem.path, "time": filesystem.at.unix_s(),
            "size_bytes": filesystem.size_bytes, "used_bytes": filesystem.used_bytes,
            "since": filesystem.since.map(Timestamp::unix_s), "users": users.collect::<Vec<_>>(),
        })
    });
    json!({"filesystems": filesystems.collect::<Vec<_>>(), "own_only": answer.own_only, "left_out": answer.left_out})
}

/// A field of CSV by RFC 4180.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn csv(answer: &StorageAnswer) -> String {
    let mut out = String::from("filesystem,time,user,bytes,files,bytes_before\n");
    for filesystem in &answer.filesystems {
        let head = format!("{},{}", field(&filesystem.name), zone::show(filesystem.at));
        for user in &filesystem.users {
            let before = user
                .bytes_before
                .map_or_else(String::new, |b| b.to_string());
            out.push_str(&format!(
                "{head},{},{},{},{before}\n",
                field(&user.now.user),
                user.now.bytes,
                user.now.files
            ));
        }
    }
    out
}

fn table(answer: &StorageAnswer) -> String {
    if answer.filesystems.is_empty() {
        return "No file system has been looked through: see 'muster storage --help'.\n".to_owned();
    }
    let mut out = String::new();
    for filesystem in &answer.filesystems {
        let percent = filesystem.used_bytes * 100 / filesystem.size_bytes.max(1);
        out.push_str(&format!(
            "{} ({}), {}: {} of {} in use ({percent} %)\n",
            filesystem.name,
            filesystem.path,
            zone::show(filesystem.at),
            size(filesystem.used_bytes),
            size(filesystem.size_bytes)
        ));
        out.push_str(&format!(
            "{:<20} {:>10} {:>12} {:>10}\n",
            "USER", "SIZE", "FILES", "GROWTH"
        ));
        for user in &filesystem.users {
            let growth = user.bytes_before.map_or_else(String::new, |before| {
                let sign = if user.now.bytes < before { '-' } else { '+' };
                format!("{sign}{}", size(user.now.bytes.abs_diff(before)))
            });
            let line = format!(
                "{:<20} {:>10} {:>12} {growth:>10}",
                user.now.user,
                size(user.now.bytes),
                user.now.files
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out.push('\n');
    }
    if answer.left_out > 0 {
        out.push_str(&format!(
            "{} users with less are not shown\n",
            answer.left_out
        ));
    }
    out.trim_end().to_owned() + "\n"
}

/// Bytes with a unit of 1024s.
fn size(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match unit {
        0 => format!("{bytes}"),
        _ => format!("{value:.1}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::storage::UserStorage;

    fn answer() -> StorageAnswer {
        let user = |name: &str, bytes, before| UserStorage {
            now: StorageUse {
                user: name.to_owned(),
                bytes,
                files: 3,
            },
            bytes_before: before,
        };
        StorageAnswer {
            filesystems: vec![ScannedFilesystem {
                name: "home".to_owned(),
                path: "/home".to_owned(),
                size_bytes: 4 << 30,
                used_bytes: 1 << 30,
                users: vec![user("ada", 3 << 20, Some(1 << 20)), user("b,b", 700, None)],
                ..ScannedFilesystem::default()
            }],
            ..StorageAnswer::default()
        }
    }

    #[test]
    fn tables_and_csv_have_each_user() {
        let text = table(&answer());
        assert!(text.contains("1.0G of 4.0G in use (25 %)"), "{text}");
        assert!(
            text.contains("ada                        3.0M            3      +2.0M"),
            "{text}"
        );
        let text = csv(&answer());
        assert!(
            text.contains(",ada,3145728,3,1048576\n") && text.contains(",\"b,b\",700,3,\n"),
            "{text}"
        );
        assert!(table(&StorageAnswer::default()).contains("--help"));
    }
}
