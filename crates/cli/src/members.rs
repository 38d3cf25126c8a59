//! Columns of listings and members of documents, side by side.
//!
//! They are not one table. A column is a text in one layout, with a width, a letter and units that options choose; a member is a
//! number, text or list at a place in a tree that differs between eight versions. Many columns show one member (`JobID`, `JobIDRaw`),
//! many members are one column (`SystemCPU`), and members have no order that a user chooses. What both have in common is the value,
//! and that is in one place already: both read the row ([`crate::listing::job::JobRow`], [`crate::listing::account::AcctRow`],
//! [`crate::listing::node_fields::NodeGroup`]). A merged table would have a row with two functions and seven attributes, half of them empty.
//! These lists make sure instead that nothing is in one alone without a reason.

use serde_json::Value;
use std::collections::BTreeSet;

/// Columns of a listing, and the members of its document.
pub(crate) struct Correspondence {
    /// A line for each column: its name, and its members.
    pub(crate) columns: &'static str,
    /// Columns without a member: a reason, then their names.
    pub(crate) without_member: &'static [(&'static str, &'static str)],
    /// Members without a column: a reason, then their names.
    pub(crate) without_column: &'static [(&'static str, &'static str)],
}

impl Correspondence {
    /// Columns and members that the lists leave out, and those that they name and that are not there.
    pub(crate) fn findings(&self, columns: &[&str], members: &BTreeSet<String>) -> Vec<String> {
        let mut findings = Vec::new();
        let mut known: Vec<&str> = Vec::new();
        let mut said: Vec<&str> = Vec::new();
        for line in self.columns.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            known.extend(words.next());
            let of_column: Vec<&str> = words.collect();
            if of_column.is_empty() {
                findings.push(format!("column {line} has no member"));
            }
            said.extend(of_column);
        }
        let words = |lists: &[(&str, &'static str)]| -> Vec<&'static str> {
            lists
                .iter()
                .flat_map(|(_, names)| names.split_whitespace())
                .collect()
        };
        let excused = words(self.without_member);
        for column in columns {
            if !known.contains(column) && !excused.contains(column) {
                findings.push(format!("column {column} has no member and no reason"));
            }
        }
        for column in known.iter().chain(&excused) {
            if !columns.contains(column) {
                findings.push(format!("there is no column {column}"));
            }
        }
        said.extend(words(self.without_column));
        // Rows of steps have the columns of jobs.
        let is = |member: &str, name: &str| {
            let of_job = member.strip_prefix("steps.").unwrap_or(member);
            [member, of_job].iter().any(|member| {
                let rest = member.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        for member in members {
            if !said.iter().any(|name| is(member, name)) {
                findings.push(format!("member {member} has no column and no reason"));
            }
        }
        for name in said {
            if !members.iter().any(|member| is(member, name)) {
                findings.push(format!("there is no member {name}"));
            }
        }
        findings
    }
}

/// Names of the members of a schema, with points between those that are in each other.
fn of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let schema = match schema["items"]["properties"].is_object() {
        true => &schema["items"],
        false => schema,
    };
    match schema["properties"].as_object() {
        Some(members) if !members.contains_key("infinite") => {
            for (name, schema) in members {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                of_schema(schema, &path, found);
            }
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

/// Names of the members of a document, likewise.
pub(crate) fn of_document(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(members) if !members.contains_key("infinite") => {
            for (name, value) in members {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                of_document(value, &path, found);
            }
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

/// Members of a job in the answers of a kind, as they are kept for the description of the API.
fn job_members(answer: &str) -> BTreeSet<String> {
    let schemas = crate::rest::schemas_of_version(43);
    let schema = &schemas[answer]["properties"]["jobs"];
    let mut found = BTreeSet::new();
    of_schema(schema, "", &mut found);
    found
}

const SQUEUE: Correspondence = Correspondence {
    columns: "
        account account\n tres-per-node tres_per_node\n mincpus minimum_cpus_per_node
        mintmpdisk minimum_tmp_disk_per_node\n endtime end_time\n feature features\n groupname group_name
        oversubscribe shared\n jobarrayid array_job_id array_task_string\n name name\n comment comment
        timelimit time_limit\n minmemory memory_per_node memory_per_cpu\n reqnodes required_nodes
        command command\n priority priority\n qos qos\n reason state_reason state_description
        statecompact job_state\n username user_name\n reservation resv_name\n wckey wckey
        excnodes excluded_nodes\n nice nice\n sct sockets_per_node cores_per_socket threads_per_core
        jobid job_id\n batchhost batch_host\n numcpus cpus\n numnodes node_count\n dependency dependency
        arrayjobid array_job_id\n groupid group_id\n sockets sockets_per_node\n cores cores_per_socket
        threads threads_per_core\n arraytaskid array_task_id array_task_string\n timeleft end_time
        timeused start_time suspend_time pre_sus_time\n nodelist nodes\n contiguous contiguous
        partition partition\n prioritylong priority\n reasonlist state_reason nodes\n starttime start_time
        state job_state\n userid user_id\n submittime submit_time\n licenses licenses licenses_allocated\n corespec core_spec
        schednodes scheduled_nodes\n workdir current_working_directory\n accruetime accrue_time
        admin_comment admin_comment\n allocnodes allocating_node\n associd association_id\n batchflag batch_flag
        burstbuffer burst_buffer\n burstbufferstate burst_buffer_state\n cluster cluster
        clusterfeature cluster_features\n container container\n cpus-per-task cpus_per_task
        cpus-per-tres cpus_per_tres\n deadline deadline\n delayboot delay_boot\n derivedec derived_exit_code
        eligibletime eligible_time\n exit_code exit_code\n hetjobid het_job_id\n hetjobidset het_job_id_set
        hetjoboffset het_job_offset\n lastschedeval last_sched_evaluation\n maxcpus max_cpus\n maxnodes max_nodes
        mcslabel mcs_label\n mem-per-tres memory_per_tres\n mintime time_minimum\n ntperboard tasks_per_board
        ntpercore tasks_per_core\n ntpernode tasks_per_node\n ntpersocket tasks_per_socket\n network network
        numtasks tasks\n origin federation_origin\n originraw federation_origin
        pendingtime submit_time start_time\n preempttime preempt_time preemptable_time\n prefer prefer
        profile profile\n reboot reboot\n reqswitch required_switches\n requeue requeue\n resizetime resize_time
        restartcnt restart_cnt\n siblingsactive federation_siblings_active
        siblingsactiveraw federation_siblings_active\n siblingsviable federation_siblings_viable
        siblingsviableraw federation_siblings_viable\n sperboard sockets_per_board\n stderr standard_error stderr_expanded
        stdin standard_input stdin_expanded\n stdout standard_output stdout_expanded\n system_comment system_comment\n tres-alloc tres_alloc_str
        tres-bind tres_bind\n tres-freq tres_freq\n tres-per-job tres_per_job\n tres-per-socket tres_per_socket
        tres-per-task tres_per_task\n wait4switch maximum_switch_wait_time",
    without_member: &[
        ("nodes have no data of a select plugin", "selectjobinfo"),
        ("sessions of submit hosts are not recorded", "allocsid"),
        ("each node is one board", "boardspernode"),
    ],
    without_column: &[(
        "Slurm's squeue has no column of it",
        "array_max_tasks batch_features billable_tres container_id cpu_frequency_governor cpu_frequency_maximum \
         cpu_frequency_minimum cron extra failed_node flags gres_detail hold job_resources job_size_str mail_type mail_user \
         power priority_by_partition selinux_context tasks_per_tres thread_spec tres_req_str",
    )],
};

const SACCT: Correspondence = Correspondence {
    columns: "
        Account account\n AdminComment comment.administrator\n AllocCPUS tres.allocated\n AllocNodes allocation_nodes nodes.count
        AllocTRES tres.allocated\n AssocID association\n AveCPU steps.tres.requested.average
        AveCPUFreq steps.statistics.CPU\n AveRSS steps.tres.requested.average\n BlockID block\n Cluster cluster
        Comment comment.job\n Constraints constraints\n ConsumedEnergy steps.statistics.energy
        ConsumedEnergyRaw steps.statistics.energy\n Container container\n CPUTime time.elapsed tres.allocated
        CPUTimeRAW time.elapsed tres.allocated\n DBIndex job_id\n DerivedExitCode derived_exit_code
        Elapsed time.elapsed\n ElapsedRaw time.elapsed\n Eligible time.eligible\n End time.end\n ExitCode exit_code
        Flags flags\n GID group\n Group group\n JobID job_id array.job_id array.task array.task_id het steps.step.id
        JobIDRaw job_id\n JobName name steps.step.name\n Layout steps.task.distribution
        MaxRSS steps.tres.requested.max\n MaxRSSNode steps.tres.requested.max\n MaxRSSTask steps.tres.requested.max
        McsLabel mcs.label\n MinCPU steps.tres.requested.min\n MinCPUNode steps.tres.requested.min
        MinCPUTask steps.tres.requested.min\n NCPUS tres.allocated\n NNodes allocation_nodes\n NodeList nodes
        NTasks steps.tasks.count\n Partition partition\n Priority priority\n QOS qos\n QOSRAW qos\n Reason state.reason
        ReqCPUFreq steps.CPU\n ReqCPUFreqGov steps.CPU\n ReqCPUFreqMax steps.CPU\n ReqCPUFreqMin steps.CPU
        ReqCPUS required.CPUs\n ReqMem required.memory_per_cpu required.memory_per_node\n ReqNodes tres.requested
        ReqTRES tres.requested\n Reservation reservation.name\n ReservationId reservation.id\n Reserved time.planned
        ResvCPU time.planned\n ResvCPURAW time.planned\n Start time.start\n State state kill_request_user
        Submit time.submission\n SubmitLine submit_line\n Suspended time.suspended\n SystemComment comment.system
        SystemCPU time.system\n Timelimit time.limit\n TimelimitRaw time.limit\n TotalCPU time.total
        TRESUsageInAve steps.tres.requested.average\n TRESUsageInMax steps.tres.requested.max
        TRESUsageInMaxNode steps.tres.requested.max\n TRESUsageInMaxTask steps.tres.requested.max
        TRESUsageInMin steps.tres.requested.min\n TRESUsageInMinNode steps.tres.requested.min
        TRESUsageInMinTask steps.tres.requested.min\n TRESUsageInTot steps.tres.requested.total\n UID user association.user
        User user\n UserCPU time.user\n WCKey wckey\n WorkDir working_directory\n Planned time.planned
        PlannedCPU time.planned\n PlannedCPURAW time.planned\n Restarts restart_cnt\n StdErr stderr_expanded
        AveDiskRead steps.tres.requested.average
        AveDiskWrite steps.tres.consumed.average\n AvePages steps.tres.requested.average\n AveVMSize steps.tres.requested.average
        MaxDiskRead steps.tres.requested.max\n MaxDiskReadNode steps.tres.requested.max
        MaxDiskReadTask steps.tres.requested.max\n MaxDiskWrite steps.tres.consumed.max
        MaxDiskWriteNode steps.tres.consumed.max\n MaxDiskWriteTask steps.tres.consumed.max
        MaxPages steps.tres.requested.max\n MaxPagesNode steps.tres.requested.max\n MaxPagesTask steps.tres.requested.max
        MaxVMSize steps.tres.requested.max\n MaxVMSizeNode steps.tres.requested.max
        MaxVMSizeTask steps.tres.requested.max\n TRESUsageOutAve steps.tres.consumed.average
        TRESUsageOutMax steps.tres.consumed.max\n TRESUsageOutMaxNode steps.tres.consumed.max
        TRESUsageOutMaxTask steps.tres.consumed.max\n TRESUsageOutMin steps.tres.consumed.min
        TRESUsageOutMinNode steps.tres.consumed.min\n TRESUsageOutMinTask steps.tres.consumed.min
        TRESUsageOutTot steps.tres.consumed.total
        StdIn stdin_expanded\n StdOut stdout_expanded\n Extra extra\n FailedNode failed_node\n Licenses licenses",
    without_member: &[
        ("keys have no numbers", "WCKeyID"),
        ("it is Muster's own, and the document is Slurm's", "JobClass"),
        ("Slurm's document has none of it in these versions", "QOSREQ"),
    ],
    without_column: &[(
        "Slurm's sacct has no column of it",
        "array.limits script used_gres steps.pid",
    )],
};

#[test]
fn columns_of_squeue_have_members_and_members_columns() {
    let fields = crate::listing::job_fields::FIELDS.iter();
    let columns: Vec<&str> = fields.map(|field| field.names[0]).collect();
    let findings = SQUEUE.findings(&columns, &job_members("openapi_job_info_resp"));
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn columns_of_sacct_have_members_and_members_columns() {
    use crate::sacct::fields;
    let fields = fields::FIELDS.iter().chain(fields::LATER_FIELDS);
    let columns: Vec<&str> = fields.map(|field| field.name).collect();
    let findings = SACCT.findings(&columns, &job_members("openapi_slurmdbd_jobs_resp"));
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn what_is_left_out_is_found() {
    const SOME: Correspondence = Correspondence {
        columns: "a x.y\n b z",
        without_member: &[("why", "c")],
        without_column: &[("why", "w")],
    };
    let members = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let all = members(&["x.y.0", "z", "w"]);
    assert!(SOME.findings(&["a", "b", "c"], &all).is_empty());
    assert_eq!(
        SOME.findings(&["a", "c", "d"], &members(&["x.y", "w", "v"])),
        [
            "column d has no member and no reason",
            "there is no column b",
            "member v has no column and no reason",
            "there is no member z"
        ]
    );
}
