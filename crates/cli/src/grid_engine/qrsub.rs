//! qrsub, qrdel and qrstat: advance reservations, which are Slurm's reservations. Who may make and delete them is the controller's to
//! say, as for scontrol.

use super::arguments::{OptionArgument, Parsed};
use super::qstat::lines::date;
use super::request::{Refused, date_time};
use super::submission::in_this_year;
use super::{fail, run_command, site, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::scontrol::reservation;
use crate::submit::line;
use muster_model::command::{Reply, ReservationAsk, UserCommand};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::Reservation;
use std::fmt::Write as _;
use std::process::ExitCode;

const UNUSED: &str = "reservations are of slots of a queue here";

/// qrsub.
pub(crate) static QRSUB: Spec = Spec {
    name: "qrsub",
    about: "Makes an advance reservation, as Grid Engine's qrsub does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: SUBMIT,
    variables: &[],
    notes: "Reservations are made by operators (sacctmgr modify user NAME set adminlevel=Operator), and by users \
            whom sge.conf lets (arusers) of cores for themselves. A reservation's \
            number is its name among Slurm's. Jobs run in it by -ar NUMBER.\n",
};

static SUBMIT: &[Opt] = &[
    opt("a", "date_time", "when it begins; now without it"),
    opt("d", "time", "how long it lasts").partly("in whole minutes, rounded up"),
    opt("e", "date_time", "when it ends"),
    opt("A", "account", "only jobs of this account"),
    opt("N", "name", "its name; the comment among Slurm's"),
    opt(
        "pe",
        "name slots",
        "slots, one for each core; the name has no effect on where",
    )
    .partly("one number of slots; which hosts have them is the controller's to choose"),
    opt("q", "queue", "of this queue").partly("one queue"),
    opt("u", "users", "who may use it; you alone without it").partly("names, no lists"),
    opt("l", "resources", "resources of each slot").refused(UNUSED),
    opt("ckpt", "name", "checkpointing").refused("there is none"),
    opt("cal_week", "weeks", "when it is repeated")
        .refused("scontrol create reservation has Flags=DAILY and others"),
    opt("he", "y|n", "whether nodes that fail end it").refused("a node that fails stays reserved"),
    opt("m", "when", "mails").refused("no mails are sent of reservations"),
    opt("M", "address", "addresses").refused("no mails are sent of reservations"),
    opt("masterq", "queue", "queue of the master task").refused(UNUSED),
    opt("now", "y|n", "whether it must be had at once").refused("it is had at once, or refused"),
    opt("w", "e|v", "whether it is only checked")
        .refused("it cannot be checked without being made"),
    flag("help", "print this help"),
];

/// qrdel.
pub(crate) static QRDEL: Spec = Spec {
    name: "qrdel",
    about: "Deletes advance reservations, as Grid Engine's qrdel does.",
    operands: "ar_id,...",
    form: HelpForm::GridEngine,
    options: &[
        flag("f", "also while jobs run in them")
            .refused("jobs in a reservation must have ended: qdel"),
        opt("u", "users", "reservations of these users").refused("name them"),
        flag("help", "print this help"),
    ],
    variables: &[],
    notes: "",
};

/// qrstat.
pub(crate) static QRSTAT: Spec = Spec {
    name: "qrstat",
    about: "Shows advance reservations, as Grid Engine's qrstat does.",
    operands: "",
    form: HelpForm::GridEngine,
    options: &[
        opt("ar", "ar_id,...", "all of these reservations"),
        opt("u", "users", "reservations of these users; * are all")
            .partly("users that may use them"),
        flag("explain", "why they are in error").refused("there is no such state"),
        flag("xml", "as XML").refused("scontrol show reservation --json"),
        flag("help", "print this help"),
    ],
    variables: &[],
    notes: "",
};

/// Runs qrsub.
pub(crate) fn submit_main(args: &[String]) -> ExitCode {
    run_command(&QRSUB, args, false, submit)
}

/// Runs qrdel.
pub(crate) fn delete_main(args: &[String]) -> ExitCode {
    run_command(&QRDEL, args, true, delete)
}

/// Runs qrstat.
pub(crate) fn show_main(args: &[String]) -> ExitCode {
    run_command(&QRSTAT, args, false, show)
}

fn own_user() -> String {
    let uid = nix::unistd::getuid().to_string();
    line::user(&uid).map_or(uid, |user| user.name)
}

/// Seconds of `[[h:]m:]s`.
fn seconds(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 || text.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    for part in parts {
        let is_plain = part.bytes().all(|b| b.is_ascii_digit());
        let number = match part {
            "" => 0,
            part => part.parse::<u64>().ok().filter(|_| is_plain)?,
        };
        sum = sum.checked_mul(60)?.checked_add(number)?;
    }
    Some(sum)
}

/// The words for scontrol, without the name.
fn words(parsed: &Parsed, partition: Option<&str>) -> Result<Vec<String>, String> {
    let time = |given: &OptionArgument| {
        let text = date_time(given.value()).map_err(|why| match why {
            Refused::Line(text, _) | Refused::Job(text) => text.replacen("qsub: ", "", 1),
        })?;
        Ok::<String, String>(in_this_year(&text))
    };
    let mut words = Vec::new();
    let (mut start, mut cores) = ("now".to_owned(), "1".to_owned());
    let mut users = own_user();
    let (mut account, mut are_users_given) = (None, false);
    for given in &parsed.options {
        match given.name {
            "a" => start = time(given)?,
            "e" => words.push(format!("EndTime={}", time(given)?)),
            "d" => {
                let text = given.value();
                let length = seconds(text).filter(|length| *length > 0);
                let length = length.ok_or_else(|| format!("invalid time \"{text}\""))?;
                words.push(format!("Duration={}", length.div_ceil(60)));
            }
            "pe" => {
                let slots = given.values.get(1).map_or("", String::as_str);
                let count = slots.parse().ok().filter(|count: &u32| *count > 0);
                let count = count.ok_or_else(|| format!("invalid number of slots \"{slots}\""))?;
                cores = count.to_string();
            }
            "u" => {
                given.value().clone_into(&mut users);
                are_users_given = true;
            }
            "A" => account = Some(given.value().to_owned()),
            _ => {}
        }
    }
    words.push(format!("StartTime={start}"));
    words.push(format!("CoreCnt={cores}"));
    // Named users may use it; otherwise the account, or oneself.
    match (account, are_users_given) {
        (Some(account), false) => words.push(format!("Accounts={account}")),
        (Some(account), true) => {
            words.push(format!("Accounts={account}"));
            words.push(format!("Users={users}"));
        }
        (None, _) => words.push(format!("Users={users}")),
    }
    words.extend(partition.map(|partition| format!("PartitionName={partition}")));
    Ok(words)
}

/// The next free number.
fn next_number(all: &[Reservation]) -> u32 {
    let numbers = all.iter().filter_map(|own| own.name.parse::<u32>().ok());
    numbers.max().unwrap_or(0).saturating_add(1)
}

fn reservations(client: &mut Client) -> Result<Vec<Reservation>, ExitCode> {
    let answer = query::reservations(client).map_err(|e| unreachable(&e))?;
    Ok(answer.reservations)
}

/// A refusal, in Grid Engine's words where it is about rights.
fn denied(error: &ConnectError, name: &str) -> String {
    match error {
        ConnectError::Refused(Refusal { detail, .. }) if detail.contains("(arusers)") => {
            format!("denied: {detail}")
        }
        ConnectError::Refused(Refusal { code, .. }) if *code == RefusalCode::AccessDenied => {
            format!(
                "denied: user \"{}\" may not change advance reservations: operators may (sacctmgr modify user NAME set adminlevel=Operator), and whom sge.conf lets (arusers)",
                own_user()
            )
        }
        ConnectError::Refused(refusal) if refusal.code == RefusalCode::InvalidReservation => {
            format!("denied: advance_reservation \"{name}\" does not exist")
        }
        other => format!("advance_reservation: {other}"),
    }
}

fn submit(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let wrong = |why: String| fail(&format!("qrsub: {why}"), 1);
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let partition = match parsed.last("q") {
        None => None,
        Some(queue) => {
            let mapping = site::mapping()?;
            let ctx = site::cluster(&mut client).map_err(|e| unreachable(&e))?;
            let found = ctx.partitions.iter().find(|partition| {
                let queues = site::queues(&mapping, partition);
                partition.name == queue || queues.contains(&queue)
            });
            let found = found.ok_or_else(|| wrong(format!("invalid queue \"{queue}\"")))?;
            Some(found.name.clone())
        }
    };
    let words = words(parsed, partition.as_deref()).map_err(wrong)?;
    let mut ask = reservation::of_words(&words).map_err(wrong)?;
    ask.comment = parsed.last("N").map(str::to_owned);
    match create_numbered(&mut client, ask) {
        Ok(name) => {
            say::stdout(&format!(
                "Your advance reservation {name} has been granted\n"
            ));
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ ConnectError::Refused(_)) => Err(fail(&denied(&error, ""), 1)),
        Err(error) => Err(unreachable(&error)),
    }
}

/// Numbers that are tried where others have them.
const TRIES: u32 = 64;

/// Makes a reservation whose name is the next free number, and gives the name.
///
/// # Errors
/// The controller cannot be asked, or refuses it.
pub(crate) fn create_numbered(
    client: &mut Client,
    mut ask: ReservationAsk,
) -> Result<String, ConnectError> {
    let first = next_number(&query::reservations(client)?.reservations);
    let mut create = |number: u32| {
        ask.name = Some(number.to_string());
        client.command(UserCommand::CreateReservation(Box::new(ask.clone())))
    };
    let mut answer = create(first);
    // Somebody else may have taken the number, or have reservations that are not shown.
    for more in 1..TRIES {
        if !answer.as_ref().is_err_and(is_taken) {
            break;
        }
        answer = create(first.saturating_add(more));
    }
    match answer? {
        Reply::Reserved { name } => Ok(name),
        other => {
            let why = format!("unexpected answer {other:.60?}");
            Err(ConnectError::Broken(std::io::Error::other(why)))
        }
    }
}

fn is_taken(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Refused(refusal) if refusal.code == RefusalCode::Duplicate)
}

fn delete(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    if parsed.operands.is_empty() {
        return Err(fail("qrdel: no advance reservation is named", 1));
    }
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let mut status = ExitCode::SUCCESS;
    let names = parsed.operands.iter().flat_map(|word| word.split(','));
    for name in names.filter(|name| !name.is_empty()) {
        let command = UserCommand::DeleteReservation {
            name: name.to_owned(),
        };
        match client.command(command) {
            Ok(_) => say::stdout(&format!(
                "{} has deleted advance reservation \"{name}\"\n",
                own_user()
            )),
            Err(error) => status = fail(&denied(&error, name), 1),
        }
    }
    Ok(status)
}

fn show(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let all = reservations(&mut client)?;
    let ctx = site::cluster(&mut client).map_err(|e| unreachable(&e))?;
    let users: Vec<&str> = parsed.all("u").flat_map(|list| list.split(',')).collect();
    let is_meant = |own: &&Reservation| {
        users.is_empty()
            || users
                .iter()
                .any(|user| *user == "*" || own.users.iter().any(|name| name == user))
    };
    let named: Vec<&str> = parsed.all("ar").flat_map(|list| list.split(',')).collect();
    if named.is_empty() {
        let meant: Vec<&Reservation> = all.iter().filter(is_meant).collect();
        crate::listing::print(&table(&ctx, &meant));
        return Ok(ExitCode::SUCCESS);
    }
    let find = |name: &&str| all.iter().find(|own| own.name == **name);
    let missing: Vec<&str> = named
        .iter()
        .copied()
        .filter(|n| find(n).is_none())
        .collect();
    if !missing.is_empty() {
        let names = missing.join("\n");
        return Err(fail(
            &format!("Following advance reservations do not exist:\n{names}"),
            1,
        ));
    }
    let found: Vec<String> = named
        .iter()
        .filter_map(find)
        .map(|own| detail(&ctx, own))
        .collect();
    crate::listing::print(&found.concat());
    Ok(ExitCode::SUCCESS)
}

/// `r` while it is there, `w` before.
fn state(own: &Reservation) -> &'static str {
    match own.active {
        true => "r",
        false => "w",
    }
}

fn length(own: &Reservation) -> String {
    let all = own.end.since_ms(own.start) / 1000;
    format!("{:02}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60)
}

fn owner(own: &Reservation) -> &str {
    own.users
        .first()
        .or_else(|| own.accounts.first())
        .map_or("", String::as_str)
}

fn table(ctx: &Ctx, all: &[&Reservation]) -> String {
    let mut text = String::new();
    if all.is_empty() {
        return text;
    }
    let head =
        "ar-id   name       owner        state start at             end at               duration";
    let _ = writeln!(text, "{head}\n{}", "-".repeat(head.len() + 1));
    for own in all {
        let _ = writeln!(
            text,
            "{:>7} {:<10.10} {:<12.12} {:<5} {:<20} {:<20} {}",
            own.name,
            own.comment.as_deref().unwrap_or_default(),
            owner(own),
            state(own),
            date(ctx, own.start),
            date(ctx, own.end),
            length(own)
        );
    }
    text
}

fn detail(ctx: &Ctx, own: &Reservation) -> String {
    let rule = "-".repeat(80);
    let mut text = format!("{rule}\n");
    let mut put = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:<30} {value}");
        }
    };
    put("id", &own.name);
    put("name", own.comment.as_deref().unwrap_or_default());
    put("owner", owner(own));
    put("state", state(own));
    put("start_time", &date(ctx, own.start));
    put("end_time", &date(ctx, own.end));
    put("duration", &length(own));
    put("acl_list", &own.users.join(","));
    put("account", &own.accounts.join(","));
    put("granted_hosts", &own.hostlist);
    text
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{OperandPosition, parse};
    use super::*;

    #[test]
    fn what_is_asked_for_is_a_reservation_of_cores() {
        let line = "-a 203001021530 -d 1:30:10 -pe smp 4 -u ann,bob";
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let parsed = parse(&QRSUB, &args, OperandPosition::Mixed).unwrap();
        assert_eq!(
            words(&parsed, Some("long")).unwrap(),
            [
                "Duration=91",
                "StartTime=2030-01-02T15:30:00",
                "CoreCnt=4",
                "Users=ann,bob",
                "PartitionName=long"
            ]
        );
        for line in ["-d x", "-d 0", "-d 1:2:3:4", "-a 1", "-pe smp x"] {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let parsed = parse(&QRSUB, &args, OperandPosition::Mixed).unwrap();
            assert!(words(&parsed, None).is_err(), "{line}");
        }
    }

    #[test]
    fn times_are_seconds() {
        for (text, want) in [
            ("90", Some(90)),
            ("1:30", Some(90)),
            (":10:", Some(600)),
            ("00:05:00", Some(300)),
            ("", None),
            ("+1", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }
}
