//! Accounting: jobs and their steps, kinds of resources, the cluster, QOS, users and accounts. They are read; changes are made by
//! sacctmgr.

#![allow(unsafe_code)]

use crate::abi::accounting::{
    SlurmdbAccount, SlurmdbAccountCond, SlurmdbAssoc, SlurmdbAssocCond, SlurmdbCluster,
    SlurmdbClusterCond, SlurmdbCoord, SlurmdbEvent, SlurmdbEventCond, SlurmdbJob, SlurmdbJobCond,
    SlurmdbQos, SlurmdbQosCond, SlurmdbReservation, SlurmdbReservationCond, SlurmdbStep,
    SlurmdbTres, SlurmdbTresCond, SlurmdbUser, SlurmdbUserCond,
};
use crate::abi::members::{Foreign, OwnedList, OwnedText};
use crate::abi::parts::SlurmStepId;
use crate::abi::release_placed;
use crate::abi::requests::SlurmSelectedStep;
use crate::connection::{connect, job, job_number};
use crate::error::CallError;
use crate::list::{self, SlurmList};
use crate::memory;
use crate::names::{self, INFINITE, NO_VALUE, NO_VALUE_16, NO_VALUE_64};
use crate::numbers::{minutes, seconds, wait_status};
use crate::steps;
use libc::{c_char, c_int, c_void, time_t};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctQuery, AcctStep};
use std::collections::BTreeSet;
use std::ptr::null_mut;

/// Kinds of resources that every cluster has, by number.
const KINDS: [(u32, &str, &str); 8] = [
    (1, "cpu", ""),
    (2, "mem", ""),
    (3, "energy", ""),
    (4, "node", ""),
    (5, "billing", ""),
    (6, "fs", "disk"),
    (7, "vmem", ""),
    (8, "pages", ""),
];
/// The first number of others.
const FIRST_OTHER: u32 = 1001;
const KIB: u64 = 1024;

/// Names of devices of the cluster (`gpu`, `gpu:a100`), in the order in which they are numbered.
fn devices(client: &mut Client) -> Result<Vec<String>, CallError> {
    let nodes = library::hardware(client)?.nodes;
    let mut names = BTreeSet::new();
    for gres in nodes.iter().flat_map(|node| &node.config.gres) {
        names.insert(gres.name.clone());
        names.extend(
            gres.kind
                .as_ref()
                .map(|kind| format!("{}:{kind}", gres.name)),
        );
    }
    Ok(names.into_iter().collect())
}

/// `1=4,2=1000,4=1,1001=2`.
fn resources(amounts: &[(u32, u64)], gres: &[(String, u64)], known: &[String]) -> OwnedText {
    let number = |name: &str| {
        let name = name.trim_start_matches("gres/");
        let place = known.iter().position(|own| own == name)?;
        Some(FIRST_OTHER + u32::try_from(place).ok()?)
    };
    let of_gres = gres
        .iter()
        .filter_map(|(name, count)| Some((number(name)?, *count)));
    let plain = amounts.iter().copied().filter(|(_, amount)| *amount > 0);
    let each = plain
        .chain(of_gres)
        .map(|(kind, amount)| format!("{kind}={amount}"));
    OwnedText::or_null(&each.collect::<Vec<_>>().join(","))
}

fn elapsed(start: Option<Timestamp>, end: Option<Timestamp>, suspended_ms: u64, now: i64) -> u32 {
    let Some(start) = start else { return 0 };
    let until = end.map_or(now, Timestamp::unix_s);
    let suspended = i64::try_from(suspended_ms / 1000).unwrap_or(0);
    u32::try_from((until - start.unix_s() - suspended).max(0)).unwrap_or(u32::MAX)
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}

unsafe extern "C" fn free_job(at: *mut c_void) {
    // SAFETY: entries of the list were made here.
    unsafe { slurmdb_destroy_job_rec(at) };
}

unsafe extern "C" fn free_step(at: *mut c_void) {
    // SAFETY: entries of the list were made here.
    unsafe { slurmdb_destroy_step_rec(at) };
}

fn step(job: &AcctJob, own: &AcctStep, now: i64) -> SlurmdbStep {
    let mut rec = SlurmdbStep::empty();
    rec.elapsed = elapsed(Some(own.start), own.end, 0, now);
    rec.end = seconds(own.end);
    rec.exitcode = wait_status(own.exit).cast_signed();
    rec.nnodes = own.nodes;
    rec.nodes = OwnedText::or_null(&own.nodelist);
    rec.ntasks = own.tasks;
    (
        rec.req_cpufreq_min,
        rec.req_cpufreq_max,
        rec.req_cpufreq_gov,
    ) = (0, 0, 0);
    rec.requid = own.cancelled_by.unwrap_or(INFINITE);
    rec.start = own.start.unix_s();
    rec.state = names::state_number(own.state);
    rec.step_id = SlurmStepId {
        job_id: job_number(job.id),
        step_het_comp: NO_VALUE,
        step_id: steps::number(own.step),
    };
    rec.stepname = OwnedText::of(&own.name);
    rec.submit_line = OwnedText::or_null(&own.submit_line);
    let memory = own.mem_mib;
    rec.tres_alloc_str = resources(
        &[(1, own.cpus.into()), (2, memory), (4, own.nodes.into())],
        &[],
        &[],
    );
    if let Some(used) = &own.usage {
        let cpu_us = used.user_us.saturating_add(used.system_us);
        (rec.user_cpu_sec, rec.user_cpu_usec) = split(used.user_us);
        (rec.sys_cpu_sec, rec.sys_cpu_usec) = split(used.system_us);
        (rec.tot_cpu_sec, rec.tot_cpu_usec) = split(cpu_us);
        let tasks = u64::from(own.tasks.max(1));
        let text = |cpu_us: u64, rss_kib: u64, disk: u64| {
            resources(
                &[
                    (1, cpu_us / 1000),
                    (2, rss_kib.saturating_mul(KIB)),
                    (6, disk),
                    (8, used.pages),
                ],
                &[],
                &[],
            )
        };
        rec.stats.tres_usage_in_max = text(cpu_us, used.max_rss_kib, used.disk_read_bytes);
        rec.stats.tres_usage_in_tot = text(cpu_us, used.total_rss_kib, used.disk_read_bytes);
        rec.stats.tres_usage_in_ave = text(
            cpu_us / tasks,
            used.total_rss_kib / tasks,
            used.disk_read_bytes / tasks,
        );
        rec.stats.tres_usage_in_min = text(used.min_cpu_us, 0, 0);
        rec.stats.tres_usage_out_tot = resources(&[(6, used.disk_write_bytes)], &[], &[]);
        rec.stats.tres_usage_in_max_taskid = resources(&[(2, used.max_rss_task.into())], &[], &[]);
    }
    rec
}

fn split(us: u64) -> (u64, u32) {
    (us / 1_000_000, u32::try_from(us % 1_000_000).unwrap_or(0))
}

fn record(own: &AcctJob, cluster: &str, known: &[String], now: i64) -> *mut SlurmdbJob {
    let mut rec = SlurmdbJob::empty();
    rec.account = OwnedText::or_null(&own.account);
    rec.admin_comment = OwnedText::or_null(&own.admin_comment);
    rec.alloc_nodes = own.alloc_nodes;
    rec.array_job_id = own.array.as_ref().map_or(0, |task| job_number(task.array));
    rec.array_task_id = own.array.as_ref().map_or(NO_VALUE, |task| task.index);
    rec.array_task_str = OwnedText::some(own.array_pending.as_deref());
    rec.cluster = OwnedText::of(cluster);
    rec.constraints = OwnedText::or_null(&own.constraint);
    rec.derived_ec = wait_status(own.derived_exit);
    rec.derived_es = OwnedText::or_null(&own.comment);
    rec.elapsed = elapsed(own.start, own.end, own.suspended_ms, now);
    (rec.eligible, rec.start, rec.end) =
        (seconds(own.eligible), seconds(own.start), seconds(own.end));
    rec.exitcode = wait_status(own.exit);
    rec.gid = own.gid;
    rec.het_job_id = own.het.map_or(0, |place| job_number(place.leader));
    rec.het_job_offset = own.het.map_or(NO_VALUE, |place| place.offset);
    rec.jobid = job_number(own.id);
    rec.jobname = OwnedText::of(&own.name);
    rec.nodes = OwnedText::or_null(&own.nodelist);
    rec.partition = OwnedText::of(&own.partition);
    rec.priority = own.priority;
    (rec.req_cpus, rec.req_mem) = (own.req_cpus, own.req_mem_mib);
    rec.requid = own.cancelled_by.unwrap_or(INFINITE);
    rec.resv_name = OwnedText::or_null(&own.reservation);
    rec.show_full = 1;
    rec.state = names::state_number(own.state);
    rec.submit = own.submit.unix_s();
    rec.submit_line = OwnedText::or_null(&own.submit_line);
    rec.suspended = u32::try_from(own.suspended_ms / 1000).unwrap_or(u32::MAX);
    rec.timelimit = minutes(own.time_limit);
    let amounts = |cpus: u32, mib: u64, nodes: u32| {
        [
            (1, cpus.into()),
            (2, mib),
            (4, nodes.into()),
            (5, cpus.into()),
        ]
    };
    rec.tres_alloc_str = resources(
        &amounts(own.alloc_cpus, own.alloc_mem_mib, own.alloc_nodes),
        &own.gres,
        known,
    );
    rec.tres_req_str = resources(
        &amounts(own.req_cpus, own.req_mem_mib, own.req_nodes),
        &own.req_gres,
        known,
    );
    (rec.uid, rec.user) = (own.uid, OwnedText::or_null(&own.user));
    rec.wckey = OwnedText::or_null(&own.wckey);
    rec.work_dir = OwnedText::or_null(&own.work_dir);
    let (mut user_us, mut system_us) = (0_u64, 0_u64);
    for used in own.steps.iter().filter_map(|step| step.usage.as_ref()) {
        user_us = user_us.saturating_add(used.user_us);
        system_us = system_us.saturating_add(used.system_us);
    }
    let wide = |us: u64| (us / 1_000_000, us % 1_000_000);
    (rec.user_cpu_sec, rec.user_cpu_usec) = wide(user_us);
    (rec.sys_cpu_sec, rec.sys_cpu_usec) = wide(system_us);
    (rec.tot_cpu_sec, rec.tot_cpu_usec) = wide(user_us.saturating_add(system_us));
    let at = memory::placed(rec);
    let items: Vec<*mut c_void> = (own.steps.iter())
        .map(|each| {
            let mut made = step(own, each, now);
            made.job_ptr = at;
            memory::placed(made).cast()
        })
        .collect();
    // SAFETY: both were made just now.
    unsafe {
        (*at).first_step_ptr = Foreign(items.first().copied().unwrap_or(null_mut()));
        (*at).steps = OwnedList(SlurmList::made(Some(free_step), items));
    }
    at
}

/// The strings of a list.
///
/// # Safety
/// It is null or a list of strings.
unsafe fn texts(own: OwnedList) -> Vec<String> {
    // SAFETY: as the caller promises.
    unsafe {
        list::entries(own.0)
            .iter()
            .filter_map(|item| memory::text(item.cast()))
            .collect()
    }
}

/// `JOBCOND_FLAG_DUP`, `JOBCOND_FLAG_NO_STEP`.
const DUPLICATES: u32 = 1;
const NO_STEPS: u32 = 1 << 1;

/// The query of a condition.
///
/// # Safety
/// Its members are null or what slurmdb.h says.
unsafe fn query(own: &SlurmdbJobCond) -> AcctQuery {
    // SAFETY: as the caller promises.
    unsafe {
        let numbers = |own: OwnedList| {
            texts(own)
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect::<Vec<u32>>()
        };
        let steps = list::entries(own.step_list.0);
        let chosen = steps.iter().map(|item| {
            let chosen = item.cast::<SlurmSelectedStep>().read();
            let task = Some(chosen.array_task_id).filter(|task| *task != NO_VALUE);
            (job(chosen.step_id.job_id), task)
        });
        let point = |at: time_t| (at > 0).then(|| Timestamp::from_unix_s(at));
        let states = numbers(own.state_list);
        let used: Option<String> = memory::text(own.used_nodes.0);
        AcctQuery {
            jobs: chosen.collect::<Vec<(JobId, Option<u32>)>>(),
            uids: numbers(own.userid_list),
            gids: numbers(own.groupid_list),
            names: texts(own.jobname_list),
            states: (JobState::ALL.into_iter())
                .filter(|state| states.contains(&names::state_number(*state)))
                .collect(),
            partitions: texts(own.partition_list),
            accounts: texts(own.acct_list),
            wckeys: texts(own.wckey_list),
            nodes: used.map_or_else(Vec::new, |text| {
                muster_model::hostlist::parse(&text).unwrap_or_default()
            }),
            start: point(own.usage_start),
            end: point(own.usage_end),
            duplicates: own.flags & DUPLICATES != 0,
            allocations_only: own.flags & NO_STEPS != 0,
            ..AcctQuery::default()
        }
    }
}

/// The amount of a kind in `1=4,2=1000`; nothing if it is not there.
fn amount(text: &str, kind: u32) -> Option<u64> {
    let pair = |own: &str| {
        let (number, amount) = own.split_once('=')?;
        (number.parse() == Ok(kind)).then(|| amount.parse().ok())?
    };
    text.split(',').find_map(pair)
}

fn tres(id: u32, kind: &str, name: &str) -> *mut c_void {
    let mut own = SlurmdbTres::empty();
    (own.id, own.r#type, own.name) = (id, OwnedText::of(kind), OwnedText::or_null(name));
    memory::placed(own).cast()
}

/// Functions that free a record or a condition.
macro_rules! destroy_functions {
    ($($name:ident $kind:ty;)*) => {
        quiet_functions! { $(
            /// Frees a record.
            fn $name(at: *mut c_void) {
                release_placed(at.cast::<$kind>());
            }
        )* }
    };
}

destroy_functions! {
    slurmdb_destroy_job_rec SlurmdbJob;
    slurmdb_destroy_step_rec SlurmdbStep;
    slurmdb_destroy_job_cond SlurmdbJobCond;
    slurm_destroy_selected_step SlurmSelectedStep;
    slurmdb_destroy_tres_rec SlurmdbTres;
    slurmdb_destroy_tres_cond SlurmdbTresCond;
    slurmdb_destroy_cluster_rec SlurmdbCluster;
    slurmdb_destroy_cluster_cond SlurmdbClusterCond;
    slurmdb_destroy_qos_rec SlurmdbQos;
    slurmdb_destroy_qos_cond SlurmdbQosCond;
    slurmdb_destroy_user_rec SlurmdbUser;
    slurmdb_destroy_user_cond SlurmdbUserCond;
    slurmdb_destroy_account_rec SlurmdbAccount;
    slurmdb_destroy_account_cond SlurmdbAccountCond;
    slurmdb_destroy_coord_rec SlurmdbCoord;
    slurmdb_destroy_assoc_rec SlurmdbAssoc;
    slurmdb_destroy_assoc_cond SlurmdbAssocCond;
    slurmdb_destroy_event_rec SlurmdbEvent;
    slurmdb_destroy_event_cond SlurmdbEventCond;
    slurmdb_destroy_reservation_rec SlurmdbReservation;
    slurmdb_destroy_reservation_cond SlurmdbReservationCond;
}

quiet_functions! {
    /// Sets the members of a condition to "not given".
    fn slurmdb_init_tres_cond(at: *mut SlurmdbTresCond, _free: bool) {
        let mut own = SlurmdbTresCond::empty();
        own.count = NO_VALUE_64;
        memory::give(at, own);
    }
    /// As above.
    fn slurmdb_init_cluster_cond(at: *mut SlurmdbClusterCond, _free: bool) {
        let mut own = SlurmdbClusterCond::empty();
        own.flags = NO_VALUE;
        memory::give(at, own);
    }
    /// As above, of an association.
    fn slurmdb_init_assoc_rec(at: *mut SlurmdbAssoc, _free: bool) {
        memory::give(at, SlurmdbAssoc::empty());
    }
    /// Sets times of a condition that are not given: since midnight, until now.
    fn slurmdb_job_cond_def_start_end(at: *mut SlurmdbJobCond) {
        if let Some(own) = at.as_mut().filter(|own| own.usage_start == 0 && list::entries(own.step_list.0).is_empty()) {
            let midnight = library::time_of_text("midnight").map(Timestamp::unix_s);
            own.usage_start = midnight.map_or(0, |at| if at > now() { at - 86_400 } else { at });
        }
    }
}

/// A connection to accounting, empty since each call makes one of its own.
static CONNECTION: u8 = 0;

value_functions! {
    /// A connection to accounting; null if there is no controller.
    fn slurmdb_connection_get(flags: *mut u16) -> *mut c_void, else null_mut(), {
        connect()?;
        memory::give(flags, 0);
        Ok((&raw const CONNECTION).cast_mut().cast())
    }
    /// Jobs that a condition finds, with their steps: a list that frees them.
    fn slurmdb_jobs_get(_connection: *mut c_void, at: *mut SlurmdbJobCond) -> *mut SlurmList, else null_mut(), {
        let asked = at.as_ref().map_or_else(AcctQuery::default, |own| query(own));
        let mut client = connect()?;
        let known = devices(&mut client)?;
        let cluster = client.endpoint.cluster.clone();
        let found = library::accounting_of(&mut client, asked)?;
        let now = now();
        let items = found.iter().map(|own| record(own, &cluster, &known, now).cast());
        Ok(SlurmList::made(Some(free_job), items.collect()))
    }
    /// Kinds of resources.
    fn slurmdb_tres_get(_connection: *mut c_void, _at: *mut SlurmdbTresCond) -> *mut SlurmList, else null_mut(), {
        let known = devices(&mut connect()?)?;
        let plain = KINDS.iter().map(|(id, kind, name)| tres(*id, kind, name));
        let others = known.iter().zip(FIRST_OTHER..).map(|(name, id)| tres(id, "gres", name));
        Ok(SlurmList::made(Some(slurmdb_destroy_tres_rec), plain.chain(others).collect()))
    }
    /// The cluster.
    fn slurmdb_clusters_get(_connection: *mut c_void, _at: *mut SlurmdbClusterCond) -> *mut SlurmList, else null_mut(), {
        let client = connect()?;
        let mut own = SlurmdbCluster::empty();
        own.name = OwnedText::of(&client.endpoint.cluster);
        own.control_host = OwnedText::some(client.endpoint.hosts.first().map(String::as_str));
        own.dimensions = 1;
        Ok(SlurmList::made(Some(slurmdb_destroy_cluster_rec), vec![memory::placed(own).cast()]))
    }
    /// QOS, with their names, priorities and descriptions. Limits are not in it.
    fn slurmdb_qos_get(_connection: *mut c_void, _at: *mut SlurmdbQosCond) -> *mut SlurmList, else null_mut(), {
        let all = library::accounts(&mut connect()?)?;
        let items = all.qos.values().map(|qos| {
            let mut own = SlurmdbQos::empty();
            (own.id, own.priority, own.grace_time) = (qos.id, qos.priority, qos.grace_time_s);
            own.name = OwnedText::of(&qos.name);
            own.description = OwnedText::or_null(&qos.description);
            own.preempt_mode = qos.preempt_mode.as_deref().map_or(0, |mode| match names::preempt_mode(mode) {
                NO_VALUE_16 => 0,
                mode => mode,
            });
            own.usage_factor = 1.0;
            memory::placed(own).cast()
        });
        Ok(SlurmList::made(Some(slurmdb_destroy_qos_rec), items.collect()))
    }
    /// Users, with their default accounts and levels. Associations are not in it.
    fn slurmdb_users_get(_connection: *mut c_void, _at: *mut SlurmdbUserCond) -> *mut SlurmList, else null_mut(), {
        let all = library::accounts(&mut connect()?)?;
        let items = all.users.values().map(|user| {
            let mut own = SlurmdbUser::empty();
            own.name = OwnedText::of(&user.name);
            own.default_acct = OwnedText::or_null(&user.default_account);
            own.default_wckey = OwnedText::or_null(&user.default_wckey);
            own.uid = nix::unistd::User::from_name(&user.name).ok().flatten().map_or(NO_VALUE, |own| own.uid.as_raw());
            own.admin_level = match user.admin_level.to_ascii_lowercase().as_str() {
                "operator" => 2,
                "administrator" | "admin" => 3,
                _ => 1,
            };
            let coordinated = user.coordinates.iter().map(|account| {
                memory::placed(SlurmdbCoord { name: OwnedText::of(account), direct: 1 }).cast()
            });
            own.coord_accts = OwnedList(SlurmList::made(Some(slurmdb_destroy_coord_rec), coordinated.collect()));
            memory::placed(own).cast()
        });
        Ok(SlurmList::made(Some(slurmdb_destroy_user_rec), items.collect()))
    }
    /// Accounts. Associations are not in it.
    fn slurmdb_accounts_get(_connection: *mut c_void, _at: *mut SlurmdbAccountCond) -> *mut SlurmList, else null_mut(), {
        let all = library::accounts(&mut connect()?)?;
        let items = all.accounts.values().map(|account| {
            let mut own = SlurmdbAccount::empty();
            own.name = OwnedText::of(&account.name);
            own.description = OwnedText::or_null(&account.description);
            own.organization = OwnedText::or_null(&account.organization);
            memory::placed(own).cast()
        });
        Ok(SlurmList::made(Some(slurmdb_destroy_account_rec), items.collect()))
    }
    /// An empty job.
    fn slurmdb_create_job_rec() -> *mut SlurmdbJob, else null_mut(), {
        Ok(memory::placed(SlurmdbJob::empty()))
    }
    /// An empty step.
    fn slurmdb_create_step_rec() -> *mut SlurmdbStep, else null_mut(), {
        Ok(memory::placed(SlurmdbStep::empty()))
    }
    /// The amount of a kind of resource in a text such as `1=4,2=1000`.
    fn slurmdb_find_tres_count_in_string(text: *const c_char, kind: c_int) -> u64, else u64::MAX, {
        let text = memory::text(text).unwrap_or_default();
        let kind = u32::try_from(kind).unwrap_or(0);
        Ok(amount(&text, kind).unwrap_or(u64::MAX))
    }
}

status_functions! {
    /// Ends a connection.
    fn slurmdb_connection_close(at: *mut *mut c_void) {
        memory::give(at, null_mut());
        Ok(())
    }
    /// Nothing: no changes are made by a connection.
    fn slurmdb_connection_commit(_connection: *mut c_void, _commit: bool) {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::members::CMember as _;

    #[test]
    fn resources_are_written_by_number() {
        let known = ["gpu".to_owned(), "gpu:a100".to_owned()];
        let gres = [
            ("gres/gpu:a100".to_owned(), 2),
            ("gres/other".to_owned(), 1),
        ];
        let own = resources(&[(1, 4), (2, 0)], &gres, &known);
        // SAFETY: the text was made just now.
        let text = unsafe { memory::text(own.0) }.unwrap();
        assert_eq!(text, "1=4,1002=2");
        assert_eq!((amount(&text, 1002), amount(&text, 2)), (Some(2), None));
        // SAFETY: nothing uses it any more.
        unsafe { own.release() };
    }
}
