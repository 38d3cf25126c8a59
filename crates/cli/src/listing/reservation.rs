//! `scontrol show reservation` and `sinfo -T`.

use super::context::Ctx;
use super::document::{Dialect, Writer, print_document};
use super::text::put;
use super::{Failure, failed_call, print, query};
use crate::connect::Client;
use muster_model::cpuset::CpuSet;
use muster_model::reservation::{Flags, Reservation};
use muster_model::time::Timestamp;
use muster_proto::client::ReservationsAnswer;

fn load() -> Result<(Ctx, ReservationsAnswer), Failure> {
    let failed = failed_call("slurm_load_reservations");
    let mut client = Client::connect().map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let answer = query::reservations(&mut client).map_err(&failed)?;
    if answer.reservations.iter().any(|r| r.by_core) {
        // Nodes say how many CPUs a core has.
        query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    }
    ctx.now = answer.now;
    Ok((ctx, answer))
}

/// `scontrol show reservation [NAME]`.
pub(crate) fn show(which: Option<&str>, one_line: bool, quiet: bool) -> Result<(), Failure> {
    let (ctx, answer) = load()?;
    let mut out = String::new();
    let mut found = false;
    for (i, reservation) in answer.reservations.iter().enumerate() {
        if which.is_none_or(|name| name == reservation.name) {
            write(
                &mut out,
                reservation,
                (answer.cpus[i], answer.cores[i]),
                &ctx,
                one_line,
            );
            found = true;
        }
    }
    match which {
        Some(name) if !found => {
            print(&format!("Reservation {name} not found\n"));
            return Err(Failure::silent());
        }
        None if !found && !quiet => out.push_str("No reservations in the system\n"),
        _ => {}
    }
    print(&out);
    Ok(())
}

/// `scontrol show reservation --json`.
pub(crate) fn show_document(which: Option<&str>, dialect: Dialect) -> Result<(), Failure> {
    let (ctx, mut answer) = load()?;
    if let Some(name) = which {
        let Some(at) = answer.reservations.iter().position(|r| r.name == name) else {
            print(&format!("Reservation {name} not found\n"));
            return Err(Failure::silent());
        };
        answer.reservations = vec![answer.reservations.swap_remove(at)];
        answer.cpus = vec![answer.cpus[at]];
        answer.cores = vec![answer.cores[at]];
    }
    print_document(dialect, "scontrol", &ctx, |w| write_document(w, &answer));
    Ok(())
}

/// `sinfo -T`.
pub(crate) fn table(no_header: bool, long: bool) -> Result<(), Failure> {
    let (ctx, answer) = load()?;
    if long && !no_header {
        print(&format!("{}\n", ctx.stamp()));
    }
    print(&render_table(&answer, &ctx, no_header));
    Ok(())
}

fn render_table(answer: &ReservationsAnswer, ctx: &Ctx, no_header: bool) -> String {
    if answer.reservations.is_empty() {
        return "No reservations in the system\n".to_owned();
    }
    let wide = answer.reservations.iter().map(|r| r.name.len());
    let wide = wide.max().unwrap_or(0).max(9);
    let mut out = String::new();
    if !no_header {
        put!(
            out,
            "{:<wide$}  {:>8}  {:>19}  {:>19}  {:>11}  {}\n",
            "RESV_NAME",
            "STATE",
            "START_TIME",
            "END_TIME",
            "DURATION",
            "NODELIST"
        );
    }
    for reservation in &answer.reservations {
        let time = |at: Timestamp| super::text::collect(|out| ctx.time(out, at));
        put!(
            out,
            "{:<wide$}  {:>8}  {:>19}  {:>19}  {:>11}  {}\n",
            reservation.name,
            state(reservation, ctx.now),
            time(reservation.start),
            time(reservation.end),
            span(reservation.end.since_ms(reservation.start) / 1000),
            reservation.hostlist
        );
    }
    out
}

fn state(reservation: &Reservation, now: Timestamp) -> &'static str {
    if reservation.start <= now && now < reservation.end && reservation.float_s.is_none() {
        "ACTIVE"
    } else {
        "INACTIVE"
    }
}

/// `[days-]hours:minutes:seconds`.
fn span(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 {
        format!("{days}-{clock}")
    } else {
        clock
    }
}

fn write(out: &mut String, r: &Reservation, (cpus, cores): (u64, u64), ctx: &Ctx, one_line: bool) {
    let next = if one_line { " " } else { "\n   " };
    let time = |at: Timestamp| super::text::collect(|out| ctx.time(out, at));
    let or_null = |text: Option<&str>| {
        text.filter(|t| !t.is_empty())
            .unwrap_or("(null)")
            .to_owned()
    };
    let list = |names: &[String], denied: bool| {
        let sign = if denied { "-" } else { "" };
        let all: Vec<String> = names.iter().map(|n| format!("{sign}{n}")).collect();
        or_null(Some(&all.join(",")))
    };
    put!(
        out,
        "ReservationName={} StartTime={} EndTime={} Duration={}{next}",
        r.name,
        time(r.start),
        time(r.end),
        span(r.end.since_ms(r.start) / 1000)
    );
    put!(
        out,
        "Nodes={} NodeCnt={} CoreCnt={cores} Features={} PartitionName={} Flags={}{next}",
        or_null(Some(&r.hostlist)),
        r.nodes.len(),
        or_null(r.features.as_deref()),
        or_null(r.partition.as_deref()),
        flags(r)
    );
    if r.by_core {
        for entry in &r.nodes {
            if let Some(cpus) = &entry.cpus {
                let ids = ranges(cores_of(&entry.name, cpus, ctx).into_iter());
                put!(
                    out,
                    "  NodeName={} CoreIDs={}{next}",
                    entry.name,
                    ids.join(",")
                );
            }
        }
    }
    put!(out, "TRES=cpu={cpus}{next}");
    put!(
        out,
        "Users={} Groups={} Accounts={} Licenses={} State={} BurstBuffer=(null) Watts=n/a{next}",
        list(&r.users, r.users_denied),
        list(&r.groups, false),
        list(&r.accounts, r.accounts_denied),
        or_null(r.licenses.as_deref()),
        state(r, ctx.now)
    );
    let delay = r.max_start_delay_s.map(|s| span(u64::from(s)));
    put!(out, "MaxStartDelay={}", or_null(delay.as_deref()));
    if let Some(comment) = &r.comment {
        put!(out, " Comment={comment}");
    }
    out.push_str(if one_line { "\n" } else { "\n\n" });
}

/// `0-3`, `7`.
/// Numbers of the cores that CPUs of a node are threads of.
fn cores_of(node: &str, cpus: &CpuSet, ctx: &Ctx) -> Vec<u32> {
    let node = ctx.nodes.iter().find(|known| known.config.name == node);
    let threads = node.map_or(1, |node| node.config.threads_per_core.max(1));
    let mut cores: Vec<u32> = cpus.iter().map(|cpu| cpu / threads).collect();
    cores.dedup();
    cores
}

fn ranges(ids: impl Iterator<Item = u32>) -> Vec<String> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match out.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => out.push((id, id)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    out.iter().map(one).collect()
}

fn flags(r: &Reservation) -> String {
    let names: Vec<String> = flag_names(r)
        .map(|(flag, name)| match r.purge_s {
            Some(s) if flag == Flags::PURGE_COMP => format!("{name}={}", span(u64::from(s))),
            _ => name.to_owned(),
        })
        .collect();
    names.join(",")
}

fn flag_names(r: &Reservation) -> impl Iterator<Item = (Flags, &'static str)> {
    let all = Flags::ALL.iter();
    all.filter(|(flag, _)| r.flags.has(*flag)).copied()
}

/// Writes the main part of a document with the reservations.
pub(crate) fn write_document(w: &mut Writer<'_>, answer: &ReservationsAnswer) {
    w.list("reservations", |w| {
        let counts = answer.cpus.iter().zip(&answer.cores);
        for (reservation, (cpus, cores)) in answer.reservations.iter().zip(counts) {
            w.item(|w| write_record(w, reservation, *cpus, *cores));
        }
    });
    if !w.is_old() {
        w.time("last_update", Some(answer.now));
    }
}

fn write_record(w: &mut Writer<'_>, r: &Reservation, cpus: u64, cores: u64) {
    let list = |names: &[String], denied: bool| {
        let sign = if denied { "-" } else { "" };
        let all: Vec<String> = names.iter().map(|n| format!("{sign}{n}")).collect();
        all.join(",")
    };
    let old = w.is_old();
    if old {
        w.texts("flags", flag_names(r).map(|(_, name)| name));
    }
    w.text("accounts", &list(&r.accounts, r.accounts_denied));
    w.text("burst_buffer", "");
    w.raw("core_count", cores);
    if old {
        w.raw("core_spec_cnt", 0);
    } else {
        w.list("core_specializations", |w| {
            for entry in r.nodes.iter().filter(|_| r.by_core) {
                w.item(|w| {
                    w.text("node", &entry.name);
                    let ids = entry
                        .cpus
                        .as_ref()
                        .map(|cpus| ranges(cpus.iter()).join(","));
                    w.text_or_empty("core", ids.as_deref());
                });
            }
        });
    }
    w.time("end_time", Some(r.end));
    w.text_or_empty("features", r.features.as_deref());
    if !old {
        w.texts("flags", flag_names(r).map(|(_, name)| name));
    }
    w.text("groups", &list(&r.groups, false));
    w.text_or_empty("licenses", r.licenses.as_deref());
    w.raw("max_start_delay", r.max_start_delay_s.unwrap_or(0));
    w.text("name", &r.name);
    w.raw("node_count", r.nodes.len());
    w.text("node_list", &r.hostlist);
    w.text_or_empty("partition", r.partition.as_deref());
    if !old {
        w.map("purge_completed", |w| {
            w.limit("time", r.purge_s.map(u64::from), false);
        });
    }
    w.time("start_time", Some(r.start));
    if old {
        w.raw("watts", u32::MAX - 1);
    } else if w.version() < 45 {
        w.limit("watts", None, false);
    }
    w.text("tres", &format!("cpu={cpus}"));
    w.text("users", &list(&r.users, r.users_denied));
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use muster_model::ids::NodeIdx;
    use muster_model::reservation::ReservedNode;

    /// As Slurm 22.05.8 printed it on a cluster of four nodes.
    const CAPTURED: &str = "\
ReservationName=m1 StartTime=2026-11-22T00:33:51 EndTime=2026-11-22T02:33:51 Duration=02:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES
   TRES=cpu=32
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

";

    fn captured() -> (ReservationsAnswer, Ctx) {
        let start = Timestamp::from_unix_s(1_795_307_631);
        let node = |i: u32| ReservedNode {
            node: NodeIdx(i),
            name: format!("n{}", i + 1),
            cpus: None,
        };
        let reservation = Reservation {
            name: "m1".into(),
            start,
            end: start.plus_s(7200),
            nodes: vec![node(0), node(1)],
            hostlist: "n[1-2]".into(),
            flags: Flags::MAINT
                .with(Flags::IGNORE_JOBS)
                .with(Flags::SPEC_NODES),
            users: vec!["root".into()],
            ..Reservation::default()
        };
        let mut ctx = Ctx::bare("peer", TimeZone::UTC);
        ctx.now = start.plus_s(1);
        let answer = ReservationsAnswer {
            reservations: vec![reservation],
            now: ctx.now,
            cpus: vec![32],
            cores: vec![32],
        };
        (answer, ctx)
    }

    #[test]
    fn in_full() {
        let (answer, ctx) = captured();
        let mut out = String::new();
        write(&mut out, &answer.reservations[0], (32, 32), &ctx, false);
        assert_eq!(out, CAPTURED);
        out.clear();
        write(&mut out, &answer.reservations[0], (32, 32), &ctx, true);
        assert_eq!(out, CAPTURED.trim_end().replace("\n   ", " ") + "\n");
    }

    #[test]
    fn in_short() {
        let (answer, ctx) = captured();
        let expected = "\
RESV_NAME     STATE           START_TIME             END_TIME     DURATION  NODELIST
m1           ACTIVE  2026-11-22T00:33:51  2026-11-22T02:33:51     02:00:00  n[1-2]
";
        assert_eq!(render_table(&answer, &ctx, false), expected);
    }

    /// CPUs were shown as cores.
    #[test]
    fn cores_are_numbered_as_cores() {
        let (mut answer, mut ctx) = captured();
        let mut node = crate::listing::fixture::node(1, 0, 100, 0);
        (node.config.name, node.config.threads_per_core) = ("n1".to_owned(), 2);
        ctx.nodes = vec![node];
        let reservation = &mut answer.reservations[0];
        reservation.by_core = true;
        reservation.nodes[0].cpus = Some((0..4).chain(6..8).collect());
        let mut out = String::new();
        write(&mut out, reservation, (6, 3), &ctx, true);
        assert!(out.contains(" NodeName=n1 CoreIDs=0-1,3 "), "{out}");
    }

    #[test]
    fn spans_and_ranges() {
        assert_eq!(span(86_400 * 365), "365-00:00:00");
        assert_eq!(span(86_388), "23:59:48");
        assert_eq!(ranges([0, 1, 2, 5].into_iter()), ["0-2", "5"]);
    }
}
