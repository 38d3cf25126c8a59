//! `scontrol create`, `update` and `delete` of partitions. What becomes of such changes when the configuration is read
//! again is decided in `configure`.

use super::draft::Draft;
use super::texts;
use super::{target, update_nodes};
use crate::event::Event;
use crate::state::State;
use muster_model::calendar::{Calendar, PartitionCalendar};
use muster_model::command::Reply;
use muster_model::config::{JobDefaults, OverSubscribe, PartitionConfig, PartitionState};
use muster_model::hostlist;
use muster_model::job::JobState;
use muster_model::limits::{NAME_BYTES_MAX, TEXT_BYTES_MAX};
use muster_model::preemption::parse_mode;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;

/// Jobs that share a resource when `OverSubscribe` gives no number.
const SHARES: u32 = 4;

/// Hosts that `AllocNodes` names, as in slurm.conf.
const HOSTS_MAX: usize = 100_000;

/// Highest priority tier and job factor.
const PRIORITY_MAX: u32 = 65_533;

/// Changes a partition by `Key=Value` pairs, all or none. `read` has values that the change was made of: where one is another by now,
/// somebody else has changed it, and that change would be lost.
pub(super) fn update(
    draft: &mut Draft<'_>,
    name: &str,
    pairs: &[(String, String)],
    read: &[(String, String)],
) -> Result<Option<Reply>, Refusal> {
    let state = draft.state;
    let known = state.partition(name).ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidPartition,
            format!("there is no partition {name}; scontrol create makes one"),
        )
    })?;
    for (key, value) in read {
        texts::too_long(key, value, TEXT_BYTES_MAX)?;
        if !has_value(state, known, key, value) {
            return Err(Refusal::new(
                RefusalCode::Busy,
                format!(
                    "{key} of partition {name} was changed meanwhile; look at it again, and repeat what is still to be changed"
                ),
            ));
        }
    }
    change(draft, known.clone(), pairs)
}

/// Whether a key has a value: setting it would change nothing but how it was written.
fn has_value(state: &State, partition: &PartitionConfig, key: &str, value: &str) -> bool {
    if key.eq_ignore_ascii_case("Nodes") && value.is_empty() {
        return partition.nodes.is_empty();
    }
    let mut same = partition.clone();
    // A value that names a node that is not there any more, for example.
    if set(state, &mut same, key, value).is_err() {
        return false;
    }
    let sorted = |nodes: &[String]| {
        let mut nodes: Vec<String> = nodes.to_vec();
        nodes.sort_unstable();
        nodes
    };
    if sorted(&same.nodes) != sorted(&partition.nodes) {
        return false;
    }
    same.nodes.clone_from(&partition.nodes);
    same.nodes_text.clone_from(&partition.nodes_text);
    same.takes_all = partition.takes_all;
    same.takes_features.clone_from(&partition.takes_features);
    let hosts = |list: &[String]| sorted(&each_host(list));
    if hosts(&same.alloc_nodes) != hosts(&partition.alloc_nodes) {
        return false;
    }
    same.alloc_nodes.clone_from(&partition.alloc_nodes);
    same == *partition
}

/// Makes a partition; what `pairs` does not say is as on a `PartitionName` line that does not say it.
pub(super) fn create(
    draft: &mut Draft<'_>,
    name: &str,
    pairs: &[(String, String)],
) -> Result<Option<Reply>, Refusal> {
    let state = draft.state;
    texts::too_long("PartitionName", name, NAME_BYTES_MAX)?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ',' | '=' | '"' | '\'');
    if name.is_empty() || name.contains(odd) || name.eq_ignore_ascii_case("DEFAULT") {
        return Err(Refusal::new(
            RefusalCode::InvalidPartition,
            format!("a partition cannot have the name \"{name}\""),
        ));
    }
    if state.partition(name).is_some() {
        return Err(Refusal::new(
            RefusalCode::InvalidPartition,
            format!("partition {name} exists already; scontrol update changes it"),
        ));
    }
    // As Slurm has it: partitions of slurm.conf have none, those that scontrol makes have one.
    let made = PartitionConfig {
        min_nodes: 1,
        ..PartitionConfig::named(name)
    };
    change(draft, made, pairs)
}

/// Removes a partition that no job is in.
pub(super) fn delete(draft: &mut Draft<'_>, name: &str) -> Result<Option<Reply>, Refusal> {
    let state = draft.state;
    if state.partition(name).is_none() {
        return Err(Refusal::new(
            RefusalCode::InvalidPartition,
            format!("there is no partition {name}"),
        ));
    }
    let queue = state.pending.iter().chain(&state.active);
    let mut jobs = queue.filter_map(|id| state.jobs.get(id));
    let user = jobs.find(|job| {
        let may_start_there =
            job.state == JobState::Pending && job.spec.partitions.iter().any(|p| p == name);
        job.partition == name || may_start_there
    });
    if let Some(job) = user {
        return Err(Refusal::new(
            RefusalCode::PartitionInUse,
            format!(
                "job {} is in partition {name}; cancel or move its jobs first (scontrol update State=DRAIN keeps new \
                 ones out)",
                job.id
            ),
        ));
    }
    draft.emit(Event::PartitionRemoved {
        name: name.to_owned(),
    });
    Ok(Some(Reply::Done {
        changed: 1,
        refused: Vec::new(),
    }))
}

fn change(
    draft: &mut Draft<'_>,
    mut partition: PartitionConfig,
    pairs: &[(String, String)],
) -> Result<Option<Reply>, Refusal> {
    let state = draft.state;
    let was_default = partition.default;
    for (key, value) in pairs {
        texts::too_long(key, value, TEXT_BYTES_MAX)?;
        set(state, &mut partition, key, value)?;
    }
    if partition.default && !was_default {
        let others = state
            .partitions
            .iter()
            .filter(|p| p.default && p.name != partition.name);
        for other in others {
            let mut other = other.clone();
            other.default = false;
            draft.emit(Event::PartitionChanged {
                partition: Box::new(other),
            });
        }
    }
    super::calendar::ask(draft, &mut partition);
    draft.emit(Event::PartitionChanged {
        partition: Box::new(partition.clone()),
    });
    super::calendar::follow(draft, &partition);
    Ok(Some(Reply::Done {
        changed: 1,
        refused: Vec::new(),
    }))
}

/// A partition's QOS by its name; empty for none.
fn known_qos(state: &State, name: &str) -> Result<Option<String>, Refusal> {
    if name.is_empty() || name.eq_ignore_ascii_case("N/A") {
        return Ok(None);
    }
    // Without accounting nobody says which there are.
    let accounts = &state.accounts;
    match accounts.qos.is_empty() || accounts.qos(name).is_some() {
        true => Ok(Some(name.to_owned())),
        false => Err(Refusal::new(
            RefusalCode::InvalidQos,
            format!("there is no QOS {name}"),
        )),
    }
}

/// The partition that takes jobs in place of another; empty or `NONE` for none.
fn known_alternate(state: &State, own: &str, name: &str) -> Result<Option<String>, Refusal> {
    if name.is_empty() || name.eq_ignore_ascii_case("NONE") {
        return Ok(None);
    }
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidPartition, why));
    if name == own {
        return refuse(format!("partition {own} cannot be its own Alternate"));
    }
    match state.partition(name) {
        Some(_) => Ok(Some(name.to_owned())),
        None => refuse(format!("Alternate: there is no partition {name}")),
    }
}

fn set(
    state: &State,
    partition: &mut PartitionConfig,
    key: &str,
    value: &str,
) -> Result<(), Refusal> {
    let pair = Pair { key, value };
    match key.to_ascii_lowercase().as_str() {
        "state" => partition.state = pair.state()?,
        "maxtime" => partition.max_time = pair.time()?,
        "defaulttime" => {
            partition.default_time = match pair.is("NONE") {
                true => None,
                false => Some(pair.time()?),
            };
        }
        "minnodes" => partition.min_nodes = pair.count()?.unwrap_or(0),
        "maxnodes" => partition.max_nodes = pair.count()?,
        "maxcpuspernode" => partition.max_cpus_per_node = pair.count()?,
        "maxcpuspersocket" => partition.max_cpus_per_socket = pair.count()?,
        "cpubind" => partition.cpu_bind = update_nodes::bind_default(value)?,
        "jobdefaults" => partition.job_defaults = pair.job_defaults()?,
        "tresbillingweights" => partition.billing_weights = pair.weights()?,
        "allowgroups" => partition.allow_groups = pair.list(),
        "allowaccounts" => partition.allow_accounts = pair.list(),
        "denyaccounts" => partition.deny_accounts = pair.denied(),
        "allowqos" => partition.allow_qos = pair.list(),
        "denyqos" => partition.deny_qos = pair.denied(),
        "allocnodes" => partition.alloc_nodes = pair.hosts()?,
        "prioritytier" => partition.priority_tier = pair.priority()?,
        "priorityjobfactor" => partition.priority_job_factor = pair.priority()?,
        "default" => partition.default = pair.yes()?,
        "hidden" => partition.hidden = pair.yes()?,
        "rootonly" => partition.root_only = pair.yes()?,
        "disablerootjobs" => partition.disable_root_jobs = pair.yes()?,
        "exclusiveuser" => partition.exclusive_user = pair.yes()?,
        "lln" => partition.lln = pair.yes()?,
        "reqresv" => partition.req_resv = pair.yes()?,
        "defmempernode" => partition.default_memory = pair.memory(MemoryAsk::PerNode)?,
        "defmempercpu" => partition.default_memory = pair.memory(MemoryAsk::PerCpu)?,
        "maxmempernode" => partition.max_memory = pair.memory(MemoryAsk::PerNode)?,
        "maxmempercpu" => partition.max_memory = pair.memory(MemoryAsk::PerCpu)?,
        "oversubscribe" | "shared" => partition.over_subscribe = pair.over_subscribe()?,
        "gracetime" => partition.grace_time_s = pair.number()?,
        "overtimelimit" => partition.over_time_limit_min = pair.count()?,
        "qos" => partition.qos = known_qos(state, value)?,
        "calendar" => partition.calendar = pair.calendar(partition.calendar.take())?,
        "alternate" => partition.alternate = known_alternate(state, &partition.name, value)?,
        "preemptmode" => partition.preempt_mode = pair.preempt_mode()?,
        "nodes" => {
            let names = if pair.is("ALL") {
                let nodes = state.nodes.iter().filter(|node| !node.removed);
                nodes.map(|node| node.config.name.clone()).collect()
            } else {
                target::listed_nodes(state, value)?
                    .map(|node| Ok(node?.config.name.clone()))
                    .collect::<Result<Vec<String>, Refusal>>()?
            };
            partition.nodes = names;
            partition.takes_all = pair.is("ALL");
            partition.takes_features = Vec::new();
            partition.nodes_text = value.to_owned();
        }
        _ => {
            return Err(Refusal::new(
                RefusalCode::NotSupported,
                format!("{key} of a partition cannot be changed at run time; use slurm.conf"),
            ));
        }
    }
    Ok(())
}

/// Hosts one by one: a partition that was changed at run time may have lists as they were written.
fn each_host(list: &[String]) -> Vec<String> {
    let of = |text: &String| {
        hostlist::parse_limited(text, HOSTS_MAX).unwrap_or_else(|_| vec![text.clone()])
    };
    list.iter().flat_map(of).collect()
}

/// One `Key=Value`.
struct Pair<'a> {
    key: &'a str,
    value: &'a str,
}

impl Pair<'_> {
    fn is(&self, word: &str) -> bool {
        self.value.eq_ignore_ascii_case(word)
    }

    fn wrong(&self, expected: &str) -> Refusal {
        Refusal::new(
            RefusalCode::InvalidValue,
            format!("{}={}: expected {expected}", self.key, self.value),
        )
    }

    fn state(&self) -> Result<PartitionState, Refusal> {
        match self.value.to_ascii_uppercase().as_str() {
            "UP" => Ok(PartitionState::Up),
            "DOWN" => Ok(PartitionState::Down),
            "DRAIN" => Ok(PartitionState::Drain),
            "INACTIVE" => Ok(PartitionState::Inactive),
            _ => Err(self.wrong("UP, DOWN, DRAIN or INACTIVE")),
        }
    }

    /// The calendar of the value; `known` if that is the same.
    fn calendar(
        &self,
        known: Option<PartitionCalendar>,
    ) -> Result<Option<PartitionCalendar>, Refusal> {
        if self.value.is_empty() || self.is("NONE") {
            return Ok(None);
        }
        let read = Calendar::parse(self.value);
        let read = read.map_err(|why| {
            Refusal::new(
                RefusalCode::InvalidValue,
                format!("{}={:.80}: {why}", self.key, self.value),
            )
        })?;
        let known = known.filter(|known| known.calendar == read);
        Ok(Some(known.unwrap_or_else(|| PartitionCalendar::new(read))))
    }

    fn time(&self) -> Result<TimeLimit, Refusal> {
        self.value
            .parse()
            .map_err(|_| self.wrong("minutes, [days-]hours:minutes:seconds or UNLIMITED"))
    }

    fn number(&self) -> Result<u32, Refusal> {
        self.value.parse().map_err(|_| self.wrong("a number"))
    }

    fn priority(&self) -> Result<u32, Refusal> {
        let number = self.number()?;
        if number > PRIORITY_MAX {
            return Err(self.wrong("at most 65533"));
        }
        Ok(number)
    }

    /// A number, or no limit.
    fn count(&self) -> Result<Option<u32>, Refusal> {
        if self.is("UNLIMITED") || self.is("INFINITE") {
            return Ok(None);
        }
        self.number().map(Some)
    }

    /// Weights of TRES, as text; absent where none are given.
    fn weights(&self) -> Result<Option<String>, Refusal> {
        if self.value.is_empty() {
            return Ok(None);
        }
        let is_weight = |entry: &str| {
            entry.split_once('=').is_some_and(|(tres, weight)| {
                let weight = weight.trim();
                let number =
                    weight.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g', 'T', 't', 'P', 'p']);
                let number = number.unwrap_or(weight).parse::<f64>();
                !tres.trim().is_empty() && number.is_ok_and(f64::is_finite)
            })
        };
        match self.value.split(',').all(is_weight) {
            true => Ok(Some(self.value.to_owned())),
            false => Err(self.wrong("weights such as CPU=1.0,Mem=0.25G")),
        }
    }

    /// `PreemptMode` as written; empty for that of the cluster. `WITHIN` is of QOS.
    fn preempt_mode(&self) -> Result<Option<String>, Refusal> {
        if self.value.is_empty() {
            return Ok(None);
        }
        match parse_mode(self.value) {
            Some((_, false)) if !self.is("CLUSTER") => Ok(Some(self.value.to_ascii_uppercase())),
            _ => Err(self.wrong("OFF, CANCEL, REQUEUE or SUSPEND, with or without GANG")),
        }
    }

    fn list(&self) -> Vec<String> {
        if self.is("ALL") || self.is("NONE") {
            return Vec::new();
        }
        let words = self.value.split(',').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    /// Hosts, of which a list may have ranges.
    fn hosts(&self) -> Result<Vec<String>, Refusal> {
        if self.value.is_empty() || self.is("ALL") || self.is("NONE") {
            return Ok(Vec::new());
        }
        hostlist::parse_limited(self.value, HOSTS_MAX)
            .map_err(|why| self.wrong(&format!("a list of hosts ({why})")))
    }

    /// The denied users. `none` stays as it is, as with Slurm, which shows it: no user has that name.
    fn denied(&self) -> Vec<String> {
        match self.is("NONE") {
            true => vec!["none".to_owned()],
            false => self.list(),
        }
    }

    fn yes(&self) -> Result<bool, Refusal> {
        if self.is("YES") || self.is("TRUE") {
            return Ok(true);
        }
        if self.is("NO") || self.is("FALSE") {
            return Ok(false);
        }
        Err(self.wrong("YES or NO"))
    }

    /// MiB; zero and UNLIMITED are no value.
    fn memory(&self, make: impl Fn(u64) -> MemoryAsk) -> Result<MemoryAsk, Refusal> {
        let mib = self.count()?.map_or(0, u64::from);
        Ok(match mib {
            0 => MemoryAsk::Default,
            _ => make(mib),
        })
    }

    fn job_defaults(&self) -> Result<JobDefaults, Refusal> {
        let mut defaults = JobDefaults::default();
        for word in self.value.split(',').filter(|word| !word.is_empty()) {
            let wrong = || self.wrong("DefCpuPerGPU=COUNT, DefMemPerGPU=MIB, or both");
            let (name, number) = word.split_once('=').ok_or_else(wrong)?;
            match name.to_ascii_lowercase().as_str() {
                "defcpupergpu" => {
                    defaults.cpus_per_gpu = Some(number.parse().map_err(|_| wrong())?);
                }
                "defmempergpu" => {
                    defaults.mib_per_gpu = Some(number.parse().map_err(|_| wrong())?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(defaults)
    }

    fn over_subscribe(&self) -> Result<OverSubscribe, Refusal> {
        let (word, shares) = match self.value.split_once(':') {
            Some((word, n)) => (
                word,
                n.parse().map_err(|_| self.wrong("a number after `:`"))?,
            ),
            None => (self.value, SHARES),
        };
        match word.to_ascii_uppercase().as_str() {
            "NO" => Ok(OverSubscribe::No),
            "YES" => Ok(OverSubscribe::Yes(shares)),
            "FORCE" => Ok(OverSubscribe::Force(shares)),
            "EXCLUSIVE" => Ok(OverSubscribe::Exclusive),
            _ => Err(self.wrong("NO, YES, FORCE or EXCLUSIVE")),
        }
    }
}
