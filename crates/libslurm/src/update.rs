//! Changes of jobs, nodes, partitions and reservations, as scontrol makes them of its words, and what administrators do to the
//! cluster.

#![allow(unsafe_code)]

use crate::abi::cluster::{
    SlurmNodeUpdate, SlurmPartitionInfo, SlurmPartitionName, SlurmReservationDesc,
    SlurmReservationName,
};
use crate::abi::members::OwnedText;
use crate::abi::requests::{SlurmJobArrayAnswers, SlurmJobDesc};
use crate::connection::{change, job};
use crate::descriptions::NO_TIME;
use crate::error::{CallError, FAILED, INVALID_NODE, NOT_SUPPORTED};
use crate::jobs::mail_names;
use crate::memory;
use crate::names::{INFINITE, INFINITE_16, NO_VALUE, NO_VALUE_16, NO_VALUE_64};
use crate::numbers::{NICE_OFFSET, PER_CPU};
use crate::times::text_of;
use libc::c_char;
use muster_cli::library;
use muster_model::command::{JobTarget, UserCommand};
use muster_proto::client::RequestBody;
use std::ptr::null_mut;

/// Words of scontrol.
#[derive(Debug, Default)]
struct Words(Vec<String>);

impl Words {
    fn of(words: &[&str]) -> Words {
        Words(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn put(&mut self, key: &str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into() {
            self.0.push(format!("{key}={value}"));
        }
    }

    /// A string of the program's, which may be empty.
    ///
    /// # Safety
    /// It is null or a string.
    unsafe fn text(&mut self, key: &str, own: OwnedText) {
        // SAFETY: as the caller promises.
        self.put(key, unsafe { memory::text(own.0) });
    }

    fn number(&mut self, key: &str, number: u32) {
        if number != NO_VALUE {
            self.put(
                key,
                match number {
                    INFINITE => "UNLIMITED".to_owned(),
                    number => number.to_string(),
                },
            );
        }
    }

    fn short(&mut self, key: &str, number: u16) {
        match number {
            NO_VALUE_16 => {}
            INFINITE_16 => self.number(key, INFINITE),
            number => self.number(key, number.into()),
        }
    }

    fn time(&mut self, key: &str, at: i64) {
        if at > 0 && at != NO_TIME {
            self.put(key, text_of(at));
        }
    }

    fn memory(&mut self, node: &str, cpu: &str, number: u64) {
        match number {
            NO_VALUE_64 => {}
            number if number & PER_CPU != 0 => self.put(cpu, (number & !PER_CPU).to_string()),
            number => self.put(node, number.to_string()),
        }
    }

    /// Runs scontrol with them.
    fn run(self) -> Result<String, CallError> {
        run(&self.0)
    }
}

/// Runs scontrol, and gives its output.
///
/// # Errors
/// Its error, by Slurm's number.
pub fn run(words: &[String]) -> Result<String, CallError> {
    // A cluster that cannot be reached has a number of its own; scontrol has texts alone.
    crate::connection::connect()?;
    library::scontrol(words).map_err(|text| {
        let number = library::error_number_of(&text).unwrap_or(libc::EINVAL);
        CallError::new(number, text)
    })
}

/// The words for changes of a job.
///
/// # Safety
/// Pointers of the description are null or lead to what slurm.h says.
unsafe fn job_words(own: &SlurmJobDesc, name: &str) -> Words {
    let mut words = Words::of(&["update", &format!("JobId={name}")]);
    // SAFETY: as the caller promises.
    unsafe {
        for (key, member) in [
            ("Account", own.account),
            ("AdminComment", own.admin_comment),
            ("Comment", own.comment),
            ("Dependency", own.dependency),
            ("ExcNodeList", own.exc_nodes),
            ("Extra", own.extra),
            ("Features", own.features),
            ("Licenses", own.licenses),
            ("MailUser", own.mail_user),
            ("JobName", own.name),
            ("Partition", own.partition),
            ("Prefer", own.prefer),
            ("QOS", own.qos),
            ("ReqNodeList", own.req_nodes),
            ("ReservationName", own.reservation),
            ("StdErr", own.std_err),
            ("StdIn", own.std_in),
            ("StdOut", own.std_out),
            ("Gres", own.tres_per_node),
            ("WCKey", own.wckey),
            ("WorkDir", own.work_dir),
        ] {
            words.text(key, member);
        }
        if let Some(array) = memory::text(own.array_inx.0) {
            words.put(
                "ArrayTaskThrottle",
                array.trim_start_matches('%').to_owned(),
            );
        }
    }
    words.time("StartTime", own.begin_time);
    words.time("Deadline", own.deadline);
    words.time("EndTime", own.end_time);
    words.short("Contiguous", own.contiguous);
    words.short("CoreSpec", own.core_spec);
    words.short("CPUsPerTask", own.cpus_per_task);
    words.short("MinCPUsNode", own.pn_min_cpus);
    words.memory("MinMemoryNode", "MinMemoryCPU", own.pn_min_memory);
    words.number("MinTmpDiskNode", own.pn_min_tmp_disk);
    words.short("TasksPerNode", own.ntasks_per_node);
    words.short("ReqSockets", own.sockets_per_node);
    words.short("ReqCores", own.cores_per_socket);
    words.short("ReqThreads", own.threads_per_core);
    words.short("Requeue", own.requeue);
    words.number("NumTasks", own.num_tasks);
    words.number("NumCPUs", own.min_cpus);
    if own.min_nodes != NO_VALUE {
        words.put(
            "NumNodes",
            match own.max_nodes {
                NO_VALUE | INFINITE | 0 => own.min_nodes.to_string(),
                most => format!("{}-{most}", own.min_nodes),
            },
        );
    }
    if own.mail_type != NO_VALUE_16 {
        words.put("MailType", mail_names(own.mail_type));
    }
    if own.nice != NO_VALUE {
        words.put(
            "Nice",
            i64::from(own.nice)
                .wrapping_sub(NICE_OFFSET.into())
                .to_string(),
        );
    }
    if own.site_factor != NO_VALUE {
        words.put(
            "SiteFactor",
            i64::from(own.site_factor)
                .wrapping_sub(NICE_OFFSET.into())
                .to_string(),
        );
    }
    words.number("TimeLimit", own.time_limit);
    words.number("TimeMin", own.time_min);
    words.put(
        "OverSubscribe",
        match own.shared {
            0 => Some("NO".to_owned()),
            1 => Some("YES".to_owned()),
            _ => None,
        },
    );
    if ![NO_VALUE, INFINITE, 0].contains(&own.priority) {
        words.put("Priority", own.priority.to_string());
    }
    words
}

/// `ALLOC_SID_USER_HOLD`: the job is held for its owner.
const HOLD_FOR_USER: u32 = 2;

/// The job that a change names.
///
/// # Safety
/// As of [`job_words`].
unsafe fn target(own: &SlurmJobDesc) -> Result<(JobTarget, String), CallError> {
    // SAFETY: as the caller promises.
    let text = unsafe { memory::text(own.job_id_str.0) }.unwrap_or_else(|| own.job_id.to_string());
    let (base, tasks) = text
        .split_once('_')
        .map_or((text.as_str(), None), |(b, t)| (b, Some(t)));
    let wrong = || {
        CallError::new(
            crate::error::INVALID_JOB_ID,
            format!("\"{text:.80}\" is not a job"),
        )
    };
    let number: u32 = base.parse().map_err(|_| wrong())?;
    let tasks = tasks.map(|list| {
        let list = list.trim_start_matches('[').trim_end_matches(']');
        let all = muster_model::hostlist::parse_ranges(list, 1 << 20).map_err(|_| wrong())?;
        Ok::<_, CallError>(all.into_iter().collect())
    });
    let target = JobTarget {
        job: job(number),
        tasks: tasks.transpose()?,
        component: None,
    };
    Ok((target, text))
}

/// Changes a job: priority 0 holds it, and the highest number releases it.
///
/// # Safety
/// `at` is null or a description whose pointers are null or lead to what slurm.h says.
unsafe fn update_job(at: *const SlurmJobDesc) -> Result<(), CallError> {
    // SAFETY: as the caller promises.
    unsafe {
        let own = at
            .as_ref()
            .ok_or_else(|| CallError::argument("the description is null"))?;
        let (target, name) = target(own)?;
        let words = job_words(own, &name);
        if words.0.len() > 2 {
            words.run()?;
        }
        match own.priority {
            0 => change(UserCommand::Hold {
                target,
                user: own.alloc_sid == HOLD_FOR_USER || !nix::unistd::geteuid().is_root(),
            }),
            INFINITE => change(UserCommand::Release { target }),
            _ => Ok(()),
        }
    }
}

/// States that nodes are set to, by number: a base state, or a flag alone.
const NODE_STATES: [(u32, &str); 11] = [
    (1, "DOWN"),
    (2, "IDLE"),
    (6, "FUTURE"),
    (1 << 8, "RESUME"),
    (1 << 9, "DRAIN"),
    (1 << 9 | 1 << 4, "DRAIN"),
    (1 << 11, "NORESP"),
    (1 << 13, "FAIL"),
    (1 << 23, "POWER_DOWN"),
    (1 << 24, "POWER_UP"),
    (1 << 17, "CANCEL_REBOOT"),
];
/// `NODE_STATE_UNDRAIN`.
const UNDRAIN: u32 = 1 << 4;

fn node_words(own: &SlurmNodeUpdate, verb: &str) -> Result<Words, CallError> {
    let mut words = Words::of(&[verb]);
    // SAFETY: the caller was promised that members are null or strings.
    unsafe {
        let names = memory::text(own.node_names.0);
        words.put(
            "NodeName",
            names.ok_or_else(|| CallError::new(INVALID_NODE, "no node is named"))?,
        );
        if own.node_state != NO_VALUE {
            let known = NODE_STATES
                .iter()
                .find(|(number, _)| *number == own.node_state);
            let state = match own.node_state {
                UNDRAIN => "UNDRAIN",
                _ => known
                    .map(|(_, name)| *name)
                    .ok_or_else(|| CallError::new(2028, "no state for nodes"))?,
            };
            words.put("State", state.to_owned());
        }
        for (key, member) in [
            ("Reason", own.reason),
            ("Comment", own.comment),
            ("AvailableFeatures", own.features),
            ("ActiveFeatures", own.features_act),
            ("Extra", own.extra),
            ("Gres", own.gres),
            ("NodeAddr", own.node_addr),
            ("NodeHostName", own.node_hostname),
        ] {
            words.text(key, member);
        }
    }
    words.number("Weight", own.weight);
    Ok(words)
}

fn partition_words(own: &SlurmPartitionInfo, verb: &str) -> Words {
    let mut words = Words::of(&[verb]);
    // SAFETY: the caller was promised that members are null or strings.
    unsafe {
        for (key, member) in [
            ("PartitionName", own.name),
            ("AllocNodes", own.allow_alloc_nodes),
            ("AllowAccounts", own.allow_accounts),
            ("AllowGroups", own.allow_groups),
            ("AllowQos", own.allow_qos),
            ("Alternate", own.alternate),
            ("TRESBillingWeights", own.billing_weights_str),
            ("DenyAccounts", own.deny_accounts),
            ("DenyQos", own.deny_qos),
            ("JobDefaults", own.job_defaults_str),
            ("Nodes", own.nodes),
            ("QOS", own.qos_char),
        ] {
            words.text(key, member);
        }
    }
    for (bit, key) in [
        (0, "Default"),
        (1, "Hidden"),
        (2, "DisableRootJobs"),
        (3, "RootOnly"),
        (4, "ReqResv"),
        (5, "LLN"),
        (6, "ExclusiveUser"),
    ] {
        let (on, off) = (own.flags >> bit & 1 != 0, own.flags >> (bit + 8) & 1 != 0);
        if on || off {
            words.put(key, if on { "YES" } else { "NO" }.to_owned());
        }
    }
    words.memory("DefMemPerNode", "DefMemPerCPU", own.def_mem_per_cpu);
    words.memory("MaxMemPerNode", "MaxMemPerCPU", own.max_mem_per_cpu);
    words.number("DefaultTime", own.default_time);
    words.number("GraceTime", own.grace_time);
    words.number("MaxCPUsPerNode", own.max_cpus_per_node);
    words.number("MaxNodes", own.max_nodes);
    words.number("MaxTime", own.max_time);
    words.number("MinNodes", own.min_nodes);
    words.short("OverTimeLimit", own.over_time_limit);
    words.short("PriorityJobFactor", own.priority_job_factor);
    words.short("PriorityTier", own.priority_tier);
    words.put(
        "OverSubscribe",
        match own.max_share {
            NO_VALUE_16 => None,
            0 => Some("EXCLUSIVE".to_owned()),
            1 => Some("NO".to_owned()),
            count if count & 0x8000 != 0 => Some(format!("FORCE:{}", count & 0x7fff)),
            count => Some(format!("YES:{count}")),
        },
    );
    words.put(
        "State",
        match own.state_up {
            0 => Some("INACTIVE".to_owned()),
            1 => Some("DOWN".to_owned()),
            2 => Some("DRAIN".to_owned()),
            3 => Some("UP".to_owned()),
            _ => None,
        },
    );
    words
}

/// Numbers with a 0 behind the last.
///
/// # Safety
/// `at` is null or leads to such numbers.
unsafe fn counts(at: *const u32) -> Option<String> {
    if at.is_null() {
        return None;
    }
    let mut all = Vec::new();
    // SAFETY: as the caller promises.
    while let Some(number) = Some(unsafe { *at.add(all.len()) }).filter(|number| *number != 0) {
        all.push(number.to_string());
    }
    Some(all.join(","))
}

fn reservation_words(own: &SlurmReservationDesc, verb: &str) -> Words {
    let mut words = Words::of(&[verb]);
    if verb == "create" {
        words.0.push("reservation".to_owned());
    }
    // SAFETY: the caller was promised that members are null or lead to what slurm.h says.
    unsafe {
        for (key, member) in [
            ("ReservationName", own.name),
            ("Accounts", own.accounts),
            ("Features", own.features),
            ("Groups", own.groups),
            ("Licenses", own.licenses),
            ("Nodes", own.node_list),
            ("PartitionName", own.partition),
            ("TRES", own.tres_str),
            ("Users", own.users),
        ] {
            words.text(key, member);
        }
        words.put("CoreCnt", counts(own.core_cnt.0));
        words.put("NodeCnt", counts(own.node_cnt.0));
    }
    words.time("StartTime", own.start_time);
    words.time("EndTime", own.end_time);
    words.number("Duration", own.duration);
    if own.max_start_delay != NO_VALUE {
        words.put("MaxStartDelay", format!("0:{}", own.max_start_delay));
    }
    if own.flags != NO_VALUE_64 && own.flags != 0 {
        words.put("Flags", crate::partitions::reservation_flags(own.flags));
    }
    words
}

fn null(what: &str) -> CallError {
    CallError::argument(format!("the {what} is null"))
}

status_functions! {
    /// Changes a job: priority 0 holds it, and INFINITE releases it.
    fn slurm_update_job(at: *mut SlurmJobDesc) {
        update_job(at)
    }
    /// As above.
    fn slurm_update_job2(at: *mut SlurmJobDesc, answers: *mut *mut SlurmJobArrayAnswers) {
        memory::give(answers, null_mut());
        update_job(at)
    }
    /// Changes nodes.
    fn slurm_update_node(at: *mut SlurmNodeUpdate) {
        node_words(at.as_ref().ok_or_else(|| null("change"))?, "update")?.run().map(drop)
    }
    /// Makes a node.
    fn slurm_create_node(at: *mut SlurmNodeUpdate) {
        // The line of the node is in a member of another purpose, as Slurm has it.
        let line = memory::text(at.as_ref().ok_or_else(|| null("node"))?.extra.0).unwrap_or_default();
        let mut words = Words::of(&["create"]);
        words.0.extend(line.split_whitespace().map(str::to_owned));
        words.run().map(drop)
    }
    /// Takes a node out of the cluster.
    fn slurm_delete_node(at: *mut SlurmNodeUpdate) {
        let names = memory::text(at.as_ref().ok_or_else(|| null("node"))?.node_names.0);
        Words::of(&["delete", &format!("NodeName={}", names.unwrap_or_default())]).run().map(drop)
    }
    /// Makes a partition.
    fn slurm_create_partition(at: *mut SlurmPartitionInfo) {
        partition_words(at.as_ref().ok_or_else(|| null("partition"))?, "create").run().map(drop)
    }
    /// Changes a partition.
    fn slurm_update_partition(at: *mut SlurmPartitionInfo) {
        partition_words(at.as_ref().ok_or_else(|| null("change"))?, "update").run().map(drop)
    }
    /// Takes a partition out of the cluster.
    fn slurm_delete_partition(at: *mut SlurmPartitionName) {
        let name = memory::text(at.as_ref().ok_or_else(|| null("partition"))?.name.0);
        change(UserCommand::DeletePartition { name: name.unwrap_or_default() })
    }
    /// Changes a reservation.
    fn slurm_update_reservation(at: *mut SlurmReservationDesc) {
        reservation_words(at.as_ref().ok_or_else(|| null("change"))?, "update").run().map(drop)
    }
    /// Takes a reservation out of the cluster.
    fn slurm_delete_reservation(at: *mut SlurmReservationName) {
        let name = memory::text(at.as_ref().ok_or_else(|| null("reservation"))?.name.0);
        change(UserCommand::DeleteReservation { name: name.unwrap_or_default() })
    }
    /// Has the controller read its configuration anew.
    fn slurm_reconfigure() {
        Words::of(&["reconfigure"]).run().map(drop)
    }
    /// Ends the controller; 0 ends the nodes' daemons as well.
    fn slurm_shutdown(options: u16) {
        crate::connection::order(RequestBody::Shutdown { nodes: options == 0 })
    }
    /// Has another controller take over: not supported.
    fn slurm_takeover(_controller: libc::c_int) {
        Err(CallError::new(NOT_SUPPORTED, "a standby controller takes over by itself"))
    }
    /// Sets the log level of the controller.
    fn slurm_set_debug_level(level: u32) {
        crate::connection::order(RequestBody::SetDebug(level.to_string()))
    }
}

value_functions! {
    /// Makes a reservation, and gives its name, to be freed by free(3).
    fn slurm_create_reservation(at: *mut SlurmReservationDesc) -> *mut c_char, else null_mut(), {
        let out = reservation_words(at.as_ref().ok_or_else(|| null("reservation"))?, "create").run()?;
        // `Reservation created: NAME`
        let name = out.trim().rsplit(": ").next().unwrap_or_default().to_owned();
        match name.is_empty() {
            true => Err(CallError::new(FAILED, "the reservation has no name")),
            false => Ok(memory::string(&name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_words() {
        let mut own = crate::descriptions::job();
        (own.time_limit, own.nice) = (INFINITE, NICE_OFFSET + 7);
        own.pn_min_memory = 5 | PER_CPU;
        // SAFETY: all pointers are null.
        let words = unsafe { job_words(&own, "17_3") }.0;
        assert_eq!(
            words,
            [
                "update",
                "JobId=17_3",
                "MinMemoryCPU=5",
                "Nice=7",
                "TimeLimit=UNLIMITED"
            ]
        );
        let mut own = crate::descriptions::partition();
        (own.flags, own.max_share, own.state_up) = (1 | 1 << 9, 0x8004, 3);
        let words = partition_words(&own, "update").0;
        assert_eq!(
            words,
            [
                "update",
                "Default=YES",
                "Hidden=NO",
                "OverSubscribe=FORCE:4",
                "State=UP"
            ]
        );
        let own = SlurmNodeUpdate::empty();
        assert_eq!(node_words(&own, "update").unwrap_err().number, INVALID_NODE);
    }
}
