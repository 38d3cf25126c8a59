//! From the loaded files to the configuration that the core decides by: names for positions,
//! minutes for seconds, and the device files of gres.conf on the nodes they are on.

use crate::devices;
use crate::files::GresLine;
use crate::model::{Config, MemPer, NodeDef, PartitionDef, SchedulerType, SelectType, SelectUnit};
use crate::value::DurationLimit;
use muster_model::binding::BindDefault;
use muster_model::config::{ClusterConfig, ExitCodeRange, PREDICT_RUN_TIMES, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::cron::CrontabConfig;
use muster_model::mcs::{McsConfig, McsKind};
use muster_model::node::{NodeConfig, last_cpus};
use muster_model::private_data::PrivateData;
use muster_model::spec::MemoryAsk;
use muster_model::time;
use muster_model::usage::task_interval_s;

impl Config {
    /// Names of licenses in `AccountingStorageTRES`.
    fn accounted_licenses(&self) -> Vec<String> {
        let words = self.text("AccountingStorageTRES").unwrap_or("").split(',');
        let names = words.filter_map(|word| {
            let (kind, name) = word.trim().split_once('/')?;
            kind.eq_ignore_ascii_case("license")
                .then(|| name.to_owned())
        });
        names.filter(|name| !name.is_empty()).collect()
    }

    /// The core's part of this configuration, but for the network, which [`crate::topology`] reads. `gres` is
    /// gres.conf, `uid_of` finds the number of a user by name.
    pub fn cluster(
        &self,
        gres: &[GresLine],
        uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> ClusterConfig {
        let slurm_user = self
            .slurm_user
            .parse()
            .ok()
            .or_else(|| uid_of(&self.slurm_user));
        let dependencies = self.text("DependencyParameters").unwrap_or("");
        let stays_up = self.nodes_that_stay_up();
        let controller = self.text("SlurmctldParameters").unwrap_or("");
        ClusterConfig {
            cluster_name: self.cluster_name.clone(),
            nodes: self
                .nodes
                .iter()
                .map(|node| node_config(node, gres, stays_up.contains(&node.name)))
                .collect(),
            partitions: self
                .partitions
                .iter()
                .map(|p| self.partition_config(p))
                .collect(),
            first_job_id: self.limits.first_job_id.into(),
            max_job_count: self.limits.max_job_count,
            max_array_size: self.limits.max_array_size,
            min_job_age_s: clamp(self.timeouts.min_job_age_s),
            kill_wait_s: clamp(self.timeouts.kill_wait_s),
            node_timeout_s: clamp(self.timeouts.slurmd_s),
            return_to_service: self.return_to_service.into(),
            job_requeue: self.job_requeue,
            accounted_licenses: self.accounted_licenses(),
            requeue_wait_s: self.authentication().cred_expire_s.unwrap_or(0),
            default_memory: memory(self.limits.def_mem),
            max_memory: memory(self.limits.max_mem),
            enforce_part_limits: self.enforce_part_limits,
            memory_is_consumable: self.select_parameters.memory,
            whole_nodes: self.select == SelectType::Linear,
            backfill: self.scheduler == SchedulerType::Backfill,
            over_time_limit_min: self.limits.over_time_limit_min.map(clamp),
            kill_invalid_depend: has_word(dependencies, "kill_invalid_depend"),
            inactive_limit_s: clamp(self.timeouts.inactive_s),
            admin_uids: slurm_user.into_iter().filter(|&uid| uid != 0).collect(),
            whole_cores: self.select_parameters.unit != SelectUnit::Cpu,
            select_parameters: self.select_words(),
            scheduler_parameters: self.scheduler_words(),
            requeue_exit: exit_codes(self.text("RequeueExit")),
            requeue_exit_hold: exit_codes(self.text("RequeueExitHold")),
            prolog_slurmctld: self.names_program("PrologSlurmctld"),
            can_reboot: self.names_program("RebootProgram"),
            order: self.order_config(),
            topologies: Vec::new(),
            licenses: self
                .text("Licenses")
                .and_then(muster_model::licenses::parse)
                .unwrap_or_default(),
            power: self.power_config(),
            max_batch_requeue: self.text("MaxBatchRequeue").and_then(|n| n.parse().ok()),
            spec_by_job: self
                .text("AllowSpecResourcesUsage")
                .is_some_and(|word| crate::value::parse_bool(word) == Ok(true)),
            job_defaults: self.limits.job_defaults,
            private: self
                .text("PrivateData")
                .map_or_else(PrivateData::default, PrivateData::parse),
            max_node_count: self.limits.max_node_count,
            crontabs: self.crontab_config(),
            extern_steps: self.has_prolog_flag("Contain"),
            requeue_on_prolog_failure: self.has_prolog_flag("ForceRequeueOnFail"),
            // sge.conf has them, not slurm.conf: the controller reads it.
            reservation_users: Vec::new(),
            user_triggers: slurm_user == Some(0) && has_word(controller, "allow_user_triggers"),
            expedited_requeue: has_word(controller, "enable_expedited_requeue"),
            sample_s: self.sample_s(),
            mcs: self.mcs_config(),
        }
    }

    /// Seconds between samples of tasks; zero if there are none.
    fn sample_s(&self) -> u32 {
        let kind = self.text("JobAcctGatherType").unwrap_or("");
        match kind.rsplit('/').next() {
            None | Some("" | "none") => 0,
            Some(_) => self
                .text("JobAcctGatherFrequency")
                .and_then(task_interval_s)
                .unwrap_or(30),
        }
    }

    /// Whether `PrologFlags` has this word.
    pub fn has_prolog_flag(&self, word: &str) -> bool {
        has_word(self.text("PrologFlags").unwrap_or(""), word)
    }

    /// Labels of jobs; those of a plugin that is not known are none.
    fn mcs_config(&self) -> Option<McsConfig> {
        let kind = self.mcs_kind()?;
        let text = self.text("MCSParameters").unwrap_or("");
        Some(McsConfig::parse(kind, text).unwrap_or_else(|_| McsConfig::new(kind)))
    }

    /// `MCSPlugin`.
    pub(crate) fn mcs_kind(&self) -> Option<McsKind> {
        let word = crate::keys::plugin_word("mcs", self.text("MCSPlugin")?);
        match word.to_ascii_lowercase().as_str() {
            "account" => Some(McsKind::Account),
            "group" => Some(McsKind::Group),
            "user" => Some(McsKind::User),
            _ => None,
        }
    }

    /// `ScronParameters`; whose zone it is, the controller knows.
    fn crontab_config(&self) -> CrontabConfig {
        let words = self.text("ScronParameters").unwrap_or("");
        CrontabConfig {
            enabled: has_word(words, "enable"),
            explicit_cancel: has_word(words, "explicit_scancel"),
            zone: String::new(),
        }
    }

    /// Words of `SelectTypeParameters` used by the scheduler, beside the unit that is counted.
    fn select_words(&self) -> Vec<String> {
        let mut words = self.select_parameters.others.clone();
        if self.select_parameters.unit == SelectUnit::Socket {
            words.push("CR_Socket".to_owned());
        }
        words
    }

    pub(crate) fn names_program(&self, key: &str) -> bool {
        let text = self.text(key);
        text.is_some_and(|program| !program.is_empty() && program != "(null)")
    }

    /// `SchedulerParameters`. Where the file leaves the order of jobs open (no `PriorityType`) and lets later jobs pass
    /// (`sched/backfill`), run times are predicted, unless it says `no_predict_run_times`.
    fn scheduler_words(&self) -> Vec<String> {
        const NO: &str = "no_predict_run_times";
        let mut words = self.scheduler_parameters.clone();
        let open =
            !self.raw.contains_key("PriorityType") && self.scheduler == SchedulerType::Backfill;
        let said = words
            .iter()
            .any(|word| word == PREDICT_RUN_TIMES || word == NO);
        if open && !said {
            words.push(PREDICT_RUN_TIMES.to_owned());
        }
        words.retain(|word| word != NO);
        words
    }

    fn partition_config(&self, partition: &PartitionDef) -> PartitionConfig {
        let open = |allowed: &Option<Vec<String>>| allowed.clone().unwrap_or_default();
        let is_all = |word: &str| word.trim().eq_ignore_ascii_case("ALL");
        let sets = || {
            let sets = self.node_sets.iter();
            sets.filter(|set| partition.node_sets.contains(&set.name))
        };
        PartitionConfig {
            name: partition.name.clone(),
            nodes: partition
                .nodes
                .iter()
                .map(|&i| self.nodes[i].name.clone())
                .collect(),
            nodes_text: partition.nodes_text.clone(),
            default: partition.default,
            state: partition.state,
            max_time: minutes(partition.max_time),
            default_time: partition.default_time.map(minutes),
            min_nodes: partition.min_nodes,
            max_nodes: partition.max_nodes,
            max_cpus_per_node: partition.max_cpus_per_node,
            allow_groups: open(&partition.allow_groups),
            allow_accounts: open(&partition.allow_accounts),
            deny_accounts: partition.deny_accounts.clone(),
            allow_qos: open(&partition.allow_qos),
            deny_qos: partition.deny_qos.clone(),
            alloc_nodes: open(&partition.alloc_nodes),
            priority_tier: partition.priority_tier.into(),
            priority_job_factor: partition.priority_job_factor.into(),
            over_subscribe: partition.over_subscribe,
            default_memory: memory(partition.def_mem),
            max_memory: memory(partition.max_mem),
            hidden: partition.hidden,
            root_only: partition.root_only,
            disable_root_jobs: partition.disable_root_jobs,
            exclusive_user: partition.exclusive_user,
            lln: partition.least_loaded_nodes,
            req_resv: partition.requires_reservation,
            qos: partition.qos.clone(),
            grace_time_s: partition.grace_time_s,
            preempt_mode: partition.preempt_mode.clone(),
            alternate: partition.alternate.clone(),
            calendar: None,
            over_time_limit_min: partition.over_time_limit.map(|limit| match limit {
                DurationLimit::Seconds(seconds) => clamp(seconds / 60),
                DurationLimit::Unlimited => u32::MAX,
            }),
            billing_weights: partition.billing_weights_text.clone(),
            topology: partition.topology.clone(),
            job_defaults: partition.job_defaults,
            max_cpus_per_socket: partition.max_cpus_per_socket,
            cpu_bind: bind_default(partition.cpu_bind.as_deref()),
            takes_all: partition.nodes_text.split(',').any(is_all) || sets().any(|set| set.all),
            takes_features: sets().filter_map(|set| set.feature.clone()).collect(),
            // Where single CPUs are counted, the partition's word has no effect.
            whole_sockets: partition
                .select_unit
                .filter(|_| self.select_parameters.unit != SelectUnit::Cpu)
                .map(|unit| unit == SelectUnit::Socket),
        }
    }
}

pub(crate) fn node_config(node: &NodeDef, lines: &[GresLine], stays_up: bool) -> NodeConfig {
    NodeConfig {
        name: node.name.clone(),
        hostname: node.hostname.clone(),
        addr: node.addr.clone(),
        port: node.port.into(),
        cpus: node.cpus,
        boards: node.boards,
        sockets: node.sockets,
        cores_per_socket: node.cores_per_socket,
        threads_per_core: node.threads_per_core,
        memory_mib: node.real_memory_mib,
        tmp_disk_mib: node.tmp_disk_mib,
        features: node.features.clone(),
        gres: node
            .gres
            .iter()
            .map(|gres| devices::gres_config(node, gres, lines))
            .collect(),
        weight: node.weight,
        state: node.state,
        reason: node.reason.clone(),
        spec_cpus: spec_cpus(node),
        spec_mib: node.mem_spec_limit_mib,
        stays_up: stays_up.then_some(true),
        cpu_bind: bind_default(node.cpu_bind.as_deref()),
        dynamic: false,
    }
}

/// `CpuBind`, which the table of keys has checked.
fn bind_default(word: Option<&str>) -> Option<BindDefault> {
    word.and_then(|word| BindDefault::parse(word).ok().flatten())
}

/// CPUs that the system keeps: those listed, else the cores of `CoreSpecCount`.
fn spec_cpus(node: &NodeDef) -> CpuSet {
    if !node.cpu_spec.is_empty() {
        let listed = node.cpu_spec.iter().copied();
        return listed.filter(|cpu| *cpu < node.cpus).collect();
    }
    let shape = (node.cpus, node.sockets, node.cores_per_socket);
    last_cpus(shape, node.core_spec_count, false)
}

/// Ranges of `1-9,18`; other words are left out.
fn exit_codes(text: Option<&str>) -> Vec<ExitCodeRange> {
    let words = text.unwrap_or_default().split(',').map(str::trim);
    words
        .filter_map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(ExitCodeRange {
                first: first.trim().parse().ok()?,
                last: last.trim().parse().ok()?,
            })
        })
        .collect()
}

fn memory(per: Option<MemPer>) -> MemoryAsk {
    match per {
        None => MemoryAsk::Default,
        Some(MemPer::Cpu(mib)) => MemoryAsk::PerCpu(mib),
        Some(MemPer::Node(mib)) => MemoryAsk::PerNode(mib),
    }
}

fn minutes(limit: DurationLimit) -> time::TimeLimit {
    match limit.minutes() {
        Some(minutes) => time::TimeLimit::Minutes(clamp(minutes)),
        None => time::TimeLimit::Unlimited,
    }
}

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn has_word(list: &str, word: &str) -> bool {
    list.split(',')
        .any(|entry| entry.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;
    use std::path::Path;

    #[test]
    fn whole_nodes_come_without_their_memory_unless_it_is_counted() {
        let consumed = |lines: &str| {
            let text = format!("ClusterName=c\nSlurmctldHost=h\n{lines}NodeName=n CPUs=2\n");
            let (config, _) = load_text(Path::new("slurm.conf"), &text);
            config.select_parameters.memory
        };
        assert!(!consumed("SelectType=select/linear\n"));
        assert!(consumed(
            "SelectType=select/linear\nSelectTypeParameters=CR_Memory\n"
        ));
    }

    #[test]
    fn the_core_gets_names_minutes_and_device_files() {
        let text = "ClusterName=C\nSlurmctldHost=h\nSlurmUser=alice\nMinJobAge=2\n\
                    GresTypes=gpu\nDefMemPerCPU=2G\nSelectTypeParameters=CR_CPU\n\
                    RequeueExit=1-9,18\nNodeName=n[1-2] CPUs=4 Gres=gpu:a100:2\nDownNodes=n2 Reason=broken\n\
                    PartitionName=p Nodes=n2,n1 MaxTime=0:90 Default=YES AllowGroups=x\n";
        let (config, findings) = load_text(Path::new("slurm.conf"), text);
        assert!(findings.is_empty(), "{findings:?}");
        let gres_text = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]\n";
        let read = |_: &Path| Ok(gres_text.as_bytes().to_vec());
        let (gres, _) = crate::files::load_gres_with(Path::new("gres.conf"), &read);
        let cluster = config.cluster(&gres, &|user| (user == "alice").then_some(1000));
        assert_eq!(cluster.cluster_name, "c");
        assert_eq!(cluster.admin_uids, [1000]);
        assert_eq!(
            cluster.requeue_exit,
            [(1, 9), (18, 18)].map(|(first, last)| ExitCodeRange { first, last })
        );
        assert_eq!(cluster.default_memory, MemoryAsk::PerCpu(2048));
        assert!(!cluster.whole_cores && !cluster.memory_is_consumable);
        assert_eq!(
            cluster.nodes[0].gres[0].files,
            ["/dev/nvidia0", "/dev/nvidia1"]
        );
        assert!(cluster.nodes[1].gres[0].files.is_empty());
        assert_eq!(
            cluster.nodes[1].state,
            muster_model::node_state::InitialState::Down
        );
        assert_eq!(cluster.nodes[1].reason.as_deref(), Some("broken"));
        assert_eq!(cluster.partitions[0].nodes, ["n1", "n2"]);
        assert_eq!(cluster.partitions[0].max_time, time::TimeLimit::Minutes(2));
        assert_eq!(cluster.partitions[0].allow_groups, ["x"]);
        assert_eq!(cluster.partitions[0].allow_qos, Vec::<String>::new());
    }
}
