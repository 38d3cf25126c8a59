//! Counters of the controller, and shares of the cluster.

use super::call::{Call, Outcome};
use crate::listing::context::Ctx;
use crate::listing::document::Writer;
use crate::listing::query;
use muster_model::accounts::{PARENT_SHARES, Share};
use muster_model::time::Timestamp;
use muster_proto::client::Diag;

/// `GET diag`.
pub(super) fn diag(call: &mut Call<'_>) -> Outcome {
    let diag = call.ask(|client| query::diag(client, false))?;
    let mut ctx = call.context();
    ctx.now = diag.now;
    Ok(call.document(&ctx, |w| {
        w.map("statistics", |w| statistics(w, &diag, &ctx))
    }))
}

/// Members that count missing features: a thread for each request, a pass of its own for backfilling.
const NOTHING: &[&str] = &[
    "bf_cycle_mean",
    "bf_depth_mean",
    "bf_depth_mean_try",
    "bf_cycle_sum",
    "bf_cycle_last",
    "bf_cycle_max",
    "bf_last_depth",
    "bf_last_depth_try",
    "bf_depth_sum",
    "bf_depth_try_sum",
    "bf_queue_len",
    "bf_queue_len_mean",
    "bf_queue_len_sum",
    "bf_table_size",
    "bf_table_size_sum",
    "bf_table_size_mean",
];

fn at(w: &mut Writer<'_>, key: &str, at: Timestamp) {
    w.time(key, Some(at));
}

fn statistics(w: &mut Writer<'_>, diag: &Diag, ctx: &Ctx) {
    let passes = diag.passes.max(1);
    let minutes = (diag.now.since_ms(diag.since) / 60_000).max(1);
    if w.is_old() {
        requests(w, diag, ctx);
    }
    if w.version() < 45 {
        w.raw("parts_packed", 1);
    }
    at(w, "req_time", diag.now);
    at(w, "req_time_start", diag.since);
    w.raw("server_thread_count", diag.connections);
    for key in ["agent_queue_size", "agent_count", "agent_thread_count"] {
        w.raw(key, 0);
    }
    w.raw("dbd_agent_queue_size", diag.accounting_lag);
    w.raw("gettimeofday_latency", 0);
    w.raw("schedule_cycle_max", diag.pass_max_us);
    w.raw("schedule_cycle_last", diag.pass_last_us);
    if !w.is_old() {
        w.raw("schedule_cycle_sum", diag.pass_total_us);
    }
    w.raw("schedule_cycle_total", diag.passes);
    w.raw("schedule_cycle_mean", diag.pass_total_us / passes);
    w.raw("schedule_cycle_mean_depth", diag.depth_last);
    w.raw("schedule_cycle_per_minute", diag.passes / minutes);
    if !w.is_old() {
        w.raw("schedule_cycle_depth", diag.depth_last);
        w.map("schedule_exit", |w| {
            w.raw("end_job_queue", diag.passes);
            for key in [
                "default_queue_depth",
                "max_job_start",
                "max_rpc_cnt",
                "max_sched_time",
                "licenses",
            ] {
                w.raw(key, 0);
            }
        });
    }
    w.raw("schedule_queue_length", diag.pending);
    w.raw("jobs_submitted", diag.submitted);
    w.raw("jobs_started", diag.started);
    w.raw("jobs_completed", diag.completed);
    w.raw("jobs_canceled", diag.cancelled);
    w.raw("jobs_failed", diag.failed);
    w.raw("jobs_pending", diag.pending);
    w.raw("jobs_running", diag.running);
    at(w, "job_states_ts", diag.now);
    w.raw("bf_backfilled_jobs", diag.backfilled_ever);
    w.raw("bf_last_backfilled_jobs", diag.backfilled);
    w.raw("bf_backfilled_het_jobs", diag.backfilled_components);
    w.raw("bf_cycle_counter", 0);
    for key in NOTHING {
        w.raw(key, 0);
    }
    w.time("bf_when_last_cycle", None);
    w.raw("bf_active", false);
    if !w.is_old() {
        w.map("bf_exit", |w| {
            for key in [
                "end_job_queue",
                "bf_max_job_start",
                "bf_max_job_test",
                "bf_max_time",
                "bf_node_space_size",
                "state_changed",
            ] {
                w.raw(key, 0);
            }
        });
        requests(w, diag, ctx);
        w.list("pending_rpcs", |_| {});
        w.list("pending_rpcs_by_hostlist", |_| {});
    }
}

fn requests(w: &mut Writer<'_>, diag: &Diag, ctx: &Ctx) {
    let times = |w: &mut Writer<'_>, average_us: u64, total_us: u64| {
        match w.is_old() {
            true => w.raw("average_time", average_us),
            false => w.limit("average_time", Some(average_us), false),
        }
        w.raw("total_time", total_us);
    };
    w.list("rpcs_by_message_type", |w| {
        for (id, of) in diag.requests.iter().enumerate() {
            w.item(|w| {
                w.text("message_type", &of.kind);
                w.raw("type_id", id);
                w.raw("count", of.count);
                if !w.is_old() {
                    for key in ["queued", "dropped", "cycle_last", "cycle_max"] {
                        w.raw(key, 0);
                    }
                }
                times(w, of.average_us(), of.total_us);
            });
        }
    });
    w.list("rpcs_by_user", |w| {
        for of in &diag.users {
            w.item(|w| {
                w.text("user", &ctx.user_name(of.uid));
                w.raw("user_id", of.uid);
                w.raw("count", of.count);
                times(w, of.average_us(), of.total_us);
            });
        }
    });
}

/// `GET slurmdb/diag`: requests to the controller, which keeps accounting. Nothing is rolled up: use is summed where it is asked
/// for.
pub(super) fn of_accounting(call: &mut Call<'_>) -> Outcome {
    let diag = call.ask(|client| query::diag(client, false))?;
    let ctx = call.context();
    Ok(call.document(&ctx, |w| {
        w.map("statistics", |w| accounting_statistics(w, &diag, &ctx));
    }))
}

fn accounting_statistics(w: &mut Writer<'_>, diag: &Diag, ctx: &Ctx) {
    w.raw("time_start", diag.since.unix_s());
    if w.version() < 41 {
        w.list("rollups", |_| {});
    } else {
        w.map("rollups", |w| {
            for period in ["hourly", "daily", "monthly"] {
                w.map(period, |w| {
                    w.raw("count", 0);
                    w.raw("last_run", 0);
                    w.map("duration", |w| {
                        for key in ["last", "max", "time"] {
                            w.raw(key, 0);
                        }
                    });
                });
            }
        });
    }
    let of = |w: &mut Writer<'_>, name: [&str; 2], count: u64, average_us: u64, total_us: u64| {
        w.item(|w| {
            w.text(name[0], name[1]);
            w.raw("count", count);
            w.map("time", |w| {
                w.raw("average", average_us);
                w.raw("total", total_us);
            });
        });
    };
    w.list("RPCs", |w| {
        for kind in &diag.requests {
            let name = ["rpc", kind.kind.as_str()];
            of(w, name, kind.count, kind.average_us(), kind.total_us);
        }
    });
    w.list("users", |w| {
        for user in &diag.users {
            let name = ctx.user_name(user.uid);
            let name = ["user", &*name];
            of(w, name, user.count, user.average_us(), user.total_us);
        }
    });
}

/// `GET shares`.
pub(super) fn shares(call: &mut Call<'_>) -> Outcome {
    let answer = call.ask(query::accounts)?;
    let listed = |parameter: &str, name: &str| {
        call.parameter(parameter)
            .is_none_or(|list| list.split(',').any(|word| word == name))
    };
    let shown: Vec<&Share> = answer
        .accounts
        .shares
        .iter()
        .filter(|share| listed("accounts", &share.account))
        .filter(|share| share.user.is_empty() || listed("users", &share.user))
        .collect();
    Ok(call.document(&call.context(), |w| {
        w.map("shares", |w| {
            w.list("shares", |w| {
                for share in &shown {
                    let parent = match (share.user.is_empty(), share.account.as_str()) {
                        (false, account) => account,
                        (true, account) => {
                            let found = answer.accounts.accounts.get(account);
                            found.map_or("", |account| account.parent.as_str())
                        }
                    };
                    w.item(|w| one_share(w, share, parent, &answer.cluster));
                }
            });
            w.raw("total_shares", shown.len());
        });
    }))
}

/// A share of a whole, as an object that says whether it is one.
fn fraction(w: &mut Writer<'_>, key: &str, value: f64) {
    w.map(key, |w| {
        let is_finite = value.is_finite();
        w.raw("set", is_finite);
        w.raw("infinite", value.is_infinite());
        w.raw("number", if is_finite { value } else { 0.0 });
    });
}

fn one_share(w: &mut Writer<'_>, share: &Share, parent: &str, cluster: &str) {
    let is_user = !share.user.is_empty();
    w.raw("id", 0);
    w.text("cluster", cluster);
    w.text("name", if is_user { &share.user } else { &share.account });
    w.text("parent", parent);
    w.text("partition", "");
    fraction(w, "shares_normalized", share.norm_shares);
    let is_parent = share.raw_shares == PARENT_SHARES;
    w.limit(
        "shares",
        Some(u64::from(share.raw_shares)).filter(|_| !is_parent),
        is_parent,
    );
    w.map("tres", |w| {
        for key in ["run_seconds", "group_minutes", "usage"] {
            w.list(key, |_| {});
        }
    });
    let effective = if share.effective_usage.is_finite() {
        share.effective_usage
    } else {
        0.0
    };
    if w.version() < 42 {
        w.raw("effective_usage", effective);
    } else {
        fraction(w, "effective_usage", effective);
    }
    fraction(w, "usage_normalized", share.norm_usage);
    w.raw("usage", share.raw_usage.max(0.0).round());
    w.map("fairshare", |w| {
        let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
        if w.version() < 42 {
            w.raw("factor", finite(share.fair_share));
            w.raw("level", finite(share.level_fs));
        } else {
            fraction(w, "factor", share.fair_share);
            fraction(w, "level", share.level_fs);
        }
    });
    w.texts("type", [if is_user { "USER" } else { "ASSOCIATION" }]);
}
