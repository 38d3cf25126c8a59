//! sdiag: the controller's counters, in the lines that monitors of Slurm read.

use crate::clusters::ClusterSelection;
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::document::{self, Dialect};
use crate::listing::text::put;
use crate::listing::{Failure, failed_call, print, query};
use crate::options::{Arg, HelpForm, Opt, Spec, also, env, flag, opt};
use crate::rest::CommandDocument;
use muster_model::time::Timestamp;
use muster_proto::client::{Diag, KindRequests, ThrottledUser};

/// sdiag.
pub(crate) static SPEC: Spec = Spec {
    name: "sdiag",
    about: "Shows what the controller counted since it started.",
    operands: "",
    form: HelpForm::Options,
    options: OPTIONS,
    variables: &[("SLURM_CLUSTERS", "cluster")],
    notes: "",
};

static OPTIONS: &[Opt] = &[
    flag("all", "all counters (the default)").short('a'),
    flag("help", "print this help").short('h'),
    opt("cluster", "NAME", "this cluster's name").short('M'),
    also("cluster", "clusters", Arg::Required),
    flag("reset", "count from zero again").short('r'),
    flag("sort-by-id", "requests by name").short('i'),
    flag("sort-by-time", "requests by the time that all of them took").short('t'),
    flag("sort-by-time2", "requests by the time that each took").short('T'),
    flag("usage", "print a short summary"),
    flag("version", "print the version").short('V'),
    opt(
        "json",
        "VERSION",
        "as JSON, in this version; list: versions there are",
    )
    .optional(),
    opt("yaml", "VERSION", "as YAML, in this version").optional(),
];

/// Order of the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestOrder {
    Count,
    Name,
    Total,
    Average,
}

/// Runs sdiag.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let parsed = SPEC.parse(args).map_err(Failure::new)?;
    if let Some(text) = document::information(&SPEC, &parsed) {
        print(&text);
        return Ok(());
    }
    let (mut order, mut reset) = (RequestOrder::Count, false);
    let mut dialect = None;
    if let Some(name) = env("SLURM_CLUSTERS") {
        ClusterSelection::choose_one("sdiag", &name)?;
    }
    for (name, value) in parsed.options {
        match name {
            "json" | "yaml" => {
                let value = value.unwrap_or_default();
                dialect = Some(Dialect::parse("sdiag", name == "yaml", &value)?);
            }
            "all" => order = RequestOrder::Count,
            "reset" => reset = true,
            "cluster" => ClusterSelection::choose_one("sdiag", &value.unwrap_or_default())?,
            "sort-by-id" => order = RequestOrder::Name,
            "sort-by-time" => order = RequestOrder::Total,
            "sort-by-time2" => order = RequestOrder::Average,
            other => {
                return Err(Failure::new(format!(
                    "sdiag: error: option --{other} is not implemented"
                )));
            }
        }
    }
    if let Some(operand) = parsed.operands.first() {
        return Err(Failure::new(format!(
            "sdiag: error: Unrecognized option: {operand}\n{}",
            SPEC.usage().trim_end()
        )));
    }
    let failed = |error: ConnectError| match (reset, error) {
        (true, ConnectError::Refused(refusal)) => Failure::new(format!(
            "sdiag: error: {}\nslurm_reset_statistics: {}",
            refusal.detail,
            refusal.code.text()
        )),
        (_, error) => failed_call("slurm_get_statistics")(error),
    };
    let mut client = Client::connect().map_err(&failed)?;
    if let Some(dialect) = dialect.filter(|_| !reset) {
        let document = CommandDocument {
            command: "sdiag",
            area: "slurm",
            path: "diag".to_owned(),
            query: Vec::new(),
        };
        return document.print(client, dialect);
    }
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let diag = query::diag(&mut client, reset).map_err(&failed)?;
    if reset {
        print("Reset scheduling statistics\n");
        return Ok(());
    }
    ctx.now = diag.now;
    print(&render(&diag, &ctx, order));
    Ok(())
}

fn when(ctx: &Ctx, at: Timestamp) -> String {
    format!(
        "{} ({})",
        ctx.zoned(at).strftime("%a %b %d %H:%M:%S %Y"),
        at.unix_s()
    )
}

fn render(diag: &Diag, ctx: &Ctx, order: RequestOrder) -> String {
    let mut out = String::new();
    let stars = "*".repeat(55);
    let (now, since) = (when(ctx, diag.now), when(ctx, diag.since));
    put!(
        out,
        "{stars}\nsdiag output at {now}\nData since      {since}\n{stars}\n"
    );
    put!(out, "Server thread count:  {}\n", diag.connections);
    put!(
        out,
        "Agent queue size:     0\nAgent count:          0\nAgent thread count:   0\n"
    );
    put!(out, "DBD Agent queue size: {}\n\n", diag.accounting_lag);
    put!(out, "Jobs submitted: {}\n", diag.submitted);
    put!(out, "Jobs started:   {}\n", diag.started);
    put!(out, "Jobs completed: {}\n", diag.completed);
    put!(out, "Jobs canceled:  {}\n", diag.cancelled);
    put!(out, "Jobs failed:    {}\n\n", diag.failed);
    put!(out, "Job states ts:  {now}\n");
    put!(out, "Jobs pending:   {}\n", diag.pending);
    put!(out, "Jobs running:   {}\n\n", diag.running);
    schedule(&mut out, diag, ctx);
    requests(&mut out, diag, ctx, order);
    out
}

fn schedule(out: &mut String, diag: &Diag, ctx: &Ctx) {
    let passes = diag.passes.max(1);
    let minutes = (diag.now.since_ms(diag.since) / 60_000).max(1);
    out.push_str("Main schedule statistics (microseconds):\n");
    put!(out, "\tLast cycle:   {}\n", diag.pass_last_us);
    put!(out, "\tMax cycle:    {}\n", diag.pass_max_us);
    put!(out, "\tTotal cycles: {}\n", diag.passes);
    put!(out, "\tMean cycle:   {}\n", diag.pass_total_us / passes);
    put!(out, "\tMean depth cycle:  {}\n", diag.depth_last);
    if diag.now.since_ms(diag.since) >= 60_000 {
        put!(out, "\tCycles per minute: {}\n", diag.passes / minutes);
    }
    put!(out, "\tLast queue length: {}\n\n", diag.pending);
    // Backfill is part of every pass here, so what Slurm counts apart is the same pass.
    out.push_str("Backfilling stats\n");
    let backfilled = [
        ("jobs (since last slurm start)", diag.backfilled_ever),
        ("jobs (since last stats cycle start)", diag.backfilled),
        ("heterogeneous job components", diag.backfilled_components),
    ];
    for (what, count) in backfilled {
        put!(out, "\tTotal backfilled {what}: {count}\n");
    }
    out.push_str("\tTotal cycles: 0\n\tLast cycle when: N/A\n\tLast cycle: 0\n\tMax cycle:  0\n");
    out.push_str("\tLast depth cycle: 0\n\tLast depth cycle (try sched): 0\n");
    out.push_str("\tLast queue length: 0\n\tLast table size: 0\n\n");
    put!(
        out,
        "Journal: {} commits, {} events\n",
        diag.commits,
        diag.events
    );
    if let Some(since) = diag.snapshots_failing_since {
        put!(
            out,
            "Snapshots of the state fail since {}: {} so far; see the log of slurmctld\n",
            when(ctx, since),
            diag.snapshots_failed
        );
    }
    put!(
        out,
        "Agents: {} messages from them, {} to them\n\n",
        diag.from_nodes,
        diag.to_nodes
    );
}

fn requests(out: &mut String, diag: &Diag, ctx: &Ctx, order: RequestOrder) {
    let mut rows: Vec<(usize, &KindRequests)> = diag.requests.iter().enumerate().collect();
    rows.sort_by(|(_, a), (_, b)| match order {
        RequestOrder::Count => b.count.cmp(&a.count),
        RequestOrder::Name => a.kind.cmp(&b.kind),
        RequestOrder::Total => b.total_us.cmp(&a.total_us),
        RequestOrder::Average => b.average_us().cmp(&a.average_us()),
    });
    out.push_str("Remote Procedure Call statistics by message type\n");
    for (id, of) in rows {
        let (name, count) = (&of.kind, of.count);
        let (average, total) = (of.average_us(), of.total_us);
        put!(
            out,
            "\t{name:<40}({id:5}) count:{count:<6} ave_time:{average:<6} total_time:{total}\n"
        );
    }
    out.push_str("\nRemote Procedure Call statistics by user\n");
    let mut users: Vec<_> = diag.users.iter().collect();
    users.sort_by_key(|of| std::cmp::Reverse(of.count));
    for of in users {
        let (name, uid, count) = (ctx.user_name(of.uid), of.uid, of.count);
        let (average, total) = (of.average_us(), of.total_us);
        put!(
            out,
            "\t{name:<16}({uid:8}) count:{count:<6} ave_time:{average:<6} total_time:{total}\n"
        );
    }
    if !diag.held_back.is_empty() {
        out.push_str("\nUsers held back by rate limits and quotas\n");
        for ThrottledUser { uid, count } in &diag.held_back {
            let name = ctx.user_name(*uid);
            put!(out, "\t{name:<16}({uid:8}) count:{count}\n");
        }
    }
    out.push_str("\nPending RPC statistics\n\tNo pending RPCs\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use muster_proto::client::UserRequests;

    #[test]
    fn lines_that_monitors_read() {
        let mut ctx = fixture::ctx();
        ctx.now = fixture::at(46);
        let diag = Diag {
            now: ctx.now,
            since: fixture::at(9),
            submitted: 20,
            passes: 5,
            pass_total_us: 3300,
            pass_last_us: 157,
            connections: 3,
            pending: 2,
            requests: vec![KindRequests {
                kind: "REQUEST_PARTITION_INFO".to_owned(),
                count: 32,
                total_us: 8281,
            }],
            users: vec![UserRequests {
                uid: 0,
                count: 134,
                total_us: 62_894,
            }],
            ..Diag::default()
        };
        let text = render(&diag, &ctx, RequestOrder::Count);
        // As sdiag 22.05.8 printed them, but for the number of the request.
        for line in [
            "sdiag output at Sat Nov 21 20:23:46 2026 (1795292626)",
            "Data since      Sat Nov 21 20:23:09 2026 (1795292589)",
            "Server thread count:  3",
            "DBD Agent queue size: 0",
            "Jobs submitted: 20",
            "\tLast cycle:   157",
            "\tMean cycle:   660",
            "\tLast queue length: 2",
            "\tREQUEST_PARTITION_INFO                  (    0) count:32     ave_time:258    total_time:8281",
            "\troot            (       0) count:134    ave_time:469    total_time:62894",
            "\tNo pending RPCs",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
        }
    }
}
