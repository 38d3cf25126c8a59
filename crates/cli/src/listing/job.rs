//! A job as listings see it: the rules that turn the controller's record into what Slurm's commands say of a job.
//! Tables, `scontrol show job` and JSON all take their values from here.

use super::context::Ctx;
use super::text::{self, put};
use muster_model::account_limits::TresAmount;
use muster_model::config::OverSubscribe;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{ArrayInfo, ArrayRole, ExitStatus, Job, JobState, NodeShare, Reason};
use muster_model::licenses;
use muster_model::limits::PATH_BYTES_MAX;
use muster_model::spec::{DependencyKind, DependencyTerm, GresAsk, JobKind, MemoryAsk, Sharing};
use muster_model::time::{TimeLimit, Timestamp};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A job, or with `-r` and for `J_1` one task of an array's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRow<'a> {
    /// The record.
    pub(crate) job: &'a Job,
    /// The array that the record is of.
    pub(crate) array: Option<&'a ArrayInfo>,
    /// One task of the array's record, shown alone.
    pub(crate) task: Option<u32>,
    /// One of several partitions that it waits in, shown alone.
    pub(crate) partition: Option<&'a str>,
}

/// Begin of the detail of a job that the system holds because it could not be launched.
const REQUEUED_HELD: &str = "launch failed requeued held";

/// Nodes that a job holds, or an estimate of those that it will: as many as its CPUs take, where the largest of its
/// partition are free.
pub(crate) fn node_estimate(row: &JobRow<'_>, ctx: &Ctx) -> u32 {
    let least = row.node_count();
    if row.shown_alloc().is_some() {
        return least;
    }
    let ask = &row.job.spec.ask;
    let by_cpus = match ctx.largest_node_cpus(&row.job.partition) {
        0 => 0,
        cpus => ask.min_cpus().div_ceil(cpus),
    };
    let most = ask.max_nodes.unwrap_or(u32::MAX).max(least);
    least.max(by_cpus).min(most)
}

/// Whether a job is held since it could not be launched, as after a failed prolog. People and programs search for the text
/// of that, which is shown in place of the reason's name.
pub(crate) fn is_requeued_held(job: &Job) -> bool {
    let detail = job.reason_detail.as_deref();
    job.reason == Reason::JobHeldAdmin
        && detail.is_some_and(|detail| detail.starts_with(REQUEUED_HELD))
}

impl<'a> JobRow<'a> {
    /// A record.
    pub(crate) fn new(job: &'a Job, array: Option<&'a ArrayInfo>) -> JobRow<'a> {
        JobRow {
            job,
            array,
            task: None,
            partition: None,
        }
    }

    /// The array's number, or the job's own.
    pub(crate) fn base_id(&self) -> JobId {
        match self.job.array {
            ArrayRole::Task { base, .. } => base,
            _ => self.job.id,
        }
    }

    /// Whether it is in an array.
    pub(crate) fn in_array(&self) -> bool {
        self.job.array != ArrayRole::None
    }

    /// Its index in the array.
    pub(crate) fn index(&self) -> Option<u32> {
        match self.job.array {
            ArrayRole::Task { index, .. } => Some(index),
            _ => self.task,
        }
    }

    /// Tasks of the array's record, unless one of them is shown alone.
    pub(crate) fn pending_indices(&self) -> Option<&'a IndexSet> {
        match &self.job.array {
            ArrayRole::Pending { indices } if self.task.is_none() => Some(indices),
            _ => None,
        }
    }

    /// `%limit` of the array.
    pub(crate) fn throttle(&self) -> Option<u32> {
        match self.array {
            Some(array) => array.throttle,
            None => self.job.spec.array.as_ref().and_then(|a| a.throttle),
        }
    }

    /// `17`, `11_0`, `11_[4,6,8%2]`, `12+1`.
    pub(crate) fn write_id(&self, out: &mut String, ctx: &Ctx) {
        if let Some(part) = self.job.het {
            put!(out, "{}+{}", part.leader, part.offset);
            return;
        }
        text::number(out, self.base_id().0);
        if let Some(index) = self.index() {
            out.push('_');
            text::number(out, u64::from(index));
        } else if self.pending_indices().is_some() {
            out.push_str("_[");
            self.write_indices(out, ctx);
            out.push(']');
        }
    }

    /// `%K`: `N/A`, `0`, `4,6,8%2`.
    pub(crate) fn write_indices(&self, out: &mut String, ctx: &Ctx) {
        if let Some(index) = self.index() {
            put!(out, "{index}");
        } else if let Some(indices) = self.pending_indices() {
            index_text(out, indices, ctx.index_text_max);
            if let Some(limit) = self.throttle() {
                put!(out, "%{limit}");
            }
        } else {
            out.push_str("N/A");
        }
    }

    /// The state with the flags that stand for one.
    pub(crate) fn state_name(&self) -> &'static str {
        self.job.shown_state()
    }

    /// Its short form.
    pub(crate) fn state_code(&self) -> &'static str {
        if self.job.completing {
            "CG"
        } else if self.is_configuring() {
            "CF"
        } else if self.is_special() {
            "SE"
        } else {
            self.job.state.code()
        }
    }

    /// It has its nodes, and `PrologSlurmctld` runs.
    pub(crate) fn is_configuring(&self) -> bool {
        self.job.configuring && self.job.state == JobState::Running
    }

    /// Requeued with `State=SpecialExit`.
    pub(crate) fn is_special(&self) -> bool {
        self.job.special_exit && self.job.state == JobState::Pending
    }

    /// Whether it waits.
    pub(crate) fn is_pending(&self) -> bool {
        self.job.state == JobState::Pending && !self.job.completing
    }

    /// The reason as one text.
    pub(crate) fn reason(&self) -> Cow<'static, str> {
        match (&self.job.reason_detail, self.job.reason) {
            (Some(detail), Reason::ReqNodeNotAvail) if !detail.is_empty() => {
                format!("{}, {detail}", self.job.reason.name()).into()
            }
            _ if is_requeued_held(self.job) => REQUEUED_HELD.into(),
            (_, Reason::RaisedSignal) => raised_signal_reason(self.job.exit.signal),
            (_, reason) => reason.name().into(),
        }
    }

    /// `%R`: where it runs, or in parentheses why it does not.
    pub(crate) fn write_reason_list(&self, out: &mut String) {
        match self.job.state {
            JobState::Pending
            | JobState::Failed
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::Deadline
                if !(self.job.completing && self.job.state == JobState::Pending) =>
            {
                out.push('(');
                out.push_str(&self.reason());
                out.push(')');
            }
            _ => out.push_str(&self.nodes()),
        }
    }

    /// Nodes that it holds, or held when it ran last.
    pub(crate) fn nodes(&self) -> Cow<'a, str> {
        let Some(alloc) = self.shown_alloc() else {
            return Cow::Borrowed("");
        };
        if self.is_partly_released() {
            let names: Vec<&str> = self.shares().map(|s| s.name.as_str()).collect();
            return hostlist::compress(&names).into();
        }
        Cow::Borrowed(&alloc.hostlist)
    }

    /// The node that leads its allocation, or where the holder of an interactive one is.
    pub(crate) fn batch_host(&self) -> Option<&'a str> {
        let first = self.shown_alloc()?.nodes.first()?;
        Some(match self.job.spec.kind {
            JobKind::Batch => &first.name,
            JobKind::Allocation => &self.job.spec.submit_host,
        })
    }

    /// The allocation, unless it is of an earlier run.
    fn shown_alloc(&self) -> Option<&'a muster_model::job::Allocation> {
        if self.is_pending() {
            return None;
        }
        self.job.alloc.as_deref()
    }

    fn is_partly_released(&self) -> bool {
        let held = self.job.nodes_held.len() as usize;
        let all = self.job.alloc.as_ref().map_or(0, |a| a.nodes.len());
        self.job.completing && held > 0 && held < all
    }

    /// Its shares of nodes; of all nodes once it has ended.
    pub(crate) fn shares(&self) -> impl Iterator<Item = &'a NodeShare> + use<'a> {
        let nodes: &'a [NodeShare] = self.shown_alloc().map_or(&[], |a| &a.nodes);
        let held = self.is_partly_released().then_some(&self.job.nodes_held);
        nodes
            .iter()
            .enumerate()
            .filter(move |(i, _)| {
                held.is_none_or(|h| u32::try_from(*i).is_ok_and(|i| h.contains(i)))
            })
            .map(|(_, share)| share)
    }

    /// Nodes it holds, or needs at least.
    pub(crate) fn node_count(&self) -> u32 {
        let ask = &self.job.spec.ask;
        if self.shown_alloc().is_some() {
            return u32::try_from(self.shares().count()).unwrap_or(u32::MAX);
        }
        let by_tasks = ask
            .ntasks_per_node
            .filter(|n| *n > 0)
            .map_or(1, |n| ask.task_count().div_ceil(n));
        ask.min_nodes.max(by_tasks).max(1)
    }

    /// CPUs it holds, or asks for.
    pub(crate) fn cpus(&self) -> u64 {
        if self.shown_alloc().is_some() {
            return self.shares().map(|s| u64::from(s.cpus.len())).sum();
        }
        u64::from(self.job.spec.ask.min_cpus())
    }

    /// Tasks it has, or asks for.
    pub(crate) fn tasks(&self) -> u32 {
        self.shown_alloc()
            .map(|a| a.ntasks)
            .filter(|n| *n > 0)
            .unwrap_or_else(|| self.job.spec.ask.task_count())
    }

    /// CPUs of a node that it needs at least (`%c`).
    pub(crate) fn min_cpus_per_node(&self) -> u32 {
        let ask = &self.job.spec.ask;
        let of_tasks = ask.cpus_of_task() * ask.ntasks_per_node.unwrap_or(1).max(1);
        ask.min_cpus_per_node.unwrap_or(1).max(of_tasks)
    }

    /// Partitions: the one it runs in, else all that it asked for.
    pub(crate) fn write_partition(&self, out: &mut String) {
        if let Some(partition) = self.partition {
            out.push_str(partition);
        } else if self.is_pending() && self.job.spec.partitions.len() > 1 {
            text::join(out, ',', &self.job.spec.partitions);
        } else {
            out.push_str(&self.job.partition);
        }
    }

    /// Memory asked for, with defaults applied.
    pub(crate) fn memory(&self, ctx: &Ctx) -> MemoryAsk {
        ctx.memory_ask(self.job.spec.ask.memory, &self.job.partition)
    }

    /// `%m`.
    pub(crate) fn write_min_memory(&self, out: &mut String, ctx: &Ctx) {
        let mib = match self.memory(ctx) {
            MemoryAsk::Default => 0,
            MemoryAsk::PerNode(mib) | MemoryAsk::PerCpu(mib) => mib,
        };
        text::memory(out, mib, ctx.keep_units);
    }

    /// Memory over all nodes that it asks for, MiB; none when that is all of nodes that are not known here.
    fn memory_asked(&self, ctx: &Ctx) -> Option<u64> {
        let nodes = u64::from(self.node_count());
        match self.memory(ctx) {
            MemoryAsk::PerCpu(mib) => Some(mib * self.cpus()),
            MemoryAsk::PerNode(mib) if mib > 0 => Some(mib * nodes),
            _ => {
                let partition = ctx.partition(&self.job.partition)?;
                let first = partition.nodes.first()?;
                let node = ctx.nodes.iter().find(|n| n.config.name == *first)?;
                Some(node.config.memory_mib * nodes)
            }
        }
    }

    /// Whether [`JobRow::write_tres`] cannot tell the memory without the nodes.
    pub(crate) fn needs_nodes(&self, ctx: &Ctx) -> bool {
        self.shown_alloc().is_none()
            && matches!(self.memory(ctx), MemoryAsk::Default | MemoryAsk::PerNode(0))
    }

    /// Trackable resources that it has (`cpu=4,node=2,billing=4`), or asks for while it waits.
    pub(crate) fn write_tres(&self, out: &mut String, ctx: &Ctx) {
        if self.shown_alloc().is_none() {
            return self.write_tres_asked(out, ctx);
        }
        put!(out, "cpu={}", self.cpus());
        let mib: u64 = self.shares().map(|s| s.memory_mib).sum();
        if mib > 0 {
            out.push_str(",mem=");
            text::memory(out, mib, ctx.keep_units);
        }
        put!(out, ",node={},billing={}", self.node_count(), self.cpus());
        let mut gres: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
        for share in self.shares().flat_map(|s| &s.gres) {
            let count = u64::from(share.ids.len());
            *gres.entry((&share.name, None)).or_default() += count;
            if share.kind.is_some() {
                *gres
                    .entry((&share.name, share.kind.as_deref()))
                    .or_default() += count;
            }
        }
        for ((name, kind), count) in gres {
            write_gres_tres(out, name, kind, count);
        }
        if let (Some(config), Some(alloc)) = (&ctx.config, self.shown_alloc()) {
            write_license_tres(out, &config.license_tres(&alloc.licenses));
        }
    }

    /// Trackable resources that it asks for.
    pub(crate) fn write_tres_asked(&self, out: &mut String, ctx: &Ctx) {
        let ask = &self.job.spec.ask;
        put!(out, "cpu={}", ask.min_cpus());
        if let Some(mib) = self.memory_asked(ctx) {
            out.push_str(",mem=");
            text::memory(out, mib, ctx.keep_units);
        }
        let nodes = self.node_count();
        put!(out, ",node={nodes},billing={}", ask.min_cpus());
        for gres in ask.gres_of_job(nodes) {
            write_gres_tres(out, &gres.name, None, gres.count);
            if gres.kind.is_some() {
                write_gres_tres(out, &gres.name, gres.kind.as_deref(), gres.count);
            }
        }
        let asked = self.job.spec.licenses.as_deref();
        let asked = asked.and_then(licenses::parse_ask);
        // It is not known which of alternatives it gets.
        if let (Some(config), Some([asked])) = (&ctx.config, asked.as_deref()) {
            write_license_tres(out, &config.license_tres(asked));
        }
    }

    /// When it started, or is expected to.
    pub(crate) fn start(&self, ctx: &Ctx) -> Option<Timestamp> {
        if self.is_pending() {
            return self.job.expected_start.or(self.begin(ctx));
        }
        self.job.start_time.or(self.job.end_time)
    }

    /// When the scheduler looked at it last: a start is such a look.
    pub(crate) fn last_sched_eval(&self) -> Option<Timestamp> {
        // A submission is looked at when it comes.
        self.job
            .last_sched_eval
            .or(self.job.start_time.filter(|_| !self.is_pending()))
            .or(Some(self.job.submit_time))
    }

    /// The nodes that it is expected to start on.
    pub(crate) fn sched_nodes<'c>(&self, ctx: &'c Ctx) -> Option<&'c str> {
        let start = ctx.starts.get(&self.job.id).filter(|_| self.is_pending())?;
        (!start.nodes.is_empty()).then_some(start.nodes.as_str())
    }

    /// Before when it does not start, while that lies ahead.
    pub(crate) fn begin(&self, ctx: &Ctx) -> Option<Timestamp> {
        self.job.begin_at.filter(|begin| *begin > ctx.now)
    }

    /// When it ended, or is expected to; none for no end in sight.
    pub(crate) fn end(&self, ctx: &Ctx) -> Option<Timestamp> {
        if self.job.end_time.is_some() && !self.is_pending() {
            return self.job.end_time;
        }
        let deadline = self.job.spec.deadline;
        let by_limit = self.job.time_limit.seconds().and_then(|limit| {
            let start = self.start(ctx)?;
            Some(start.plus_s(limit).plus_ms(self.job.suspended_ms))
        });
        // Before it starts its limit has not been cut to the deadline.
        by_limit.into_iter().chain(deadline).min()
    }

    /// Seconds it has run, without suspensions.
    pub(crate) fn run_time_s(&self, ctx: &Ctx) -> i64 {
        let Some(start) = self.job.start_time.filter(|_| !self.is_pending()) else {
            return 0;
        };
        let until = match self.job.state {
            JobState::Suspended => self.job.suspend_time.unwrap_or(ctx.now),
            _ => self.job.end_time.unwrap_or(ctx.now),
        };
        let suspended = i64::try_from(self.job.suspended_ms / 1000).unwrap_or(0);
        (until.unix_s() - start.unix_s() - suspended).max(0)
    }

    /// `%S`-like `none` apart: the value of `%l`.
    pub(crate) fn write_limit(&self, out: &mut String) {
        match self.job.time_limit {
            TimeLimit::Minutes(m) => text::short_duration(out, i64::from(m) * 60),
            TimeLimit::Unlimited => out.push_str("UNLIMITED"),
        }
    }

    /// `%h`.
    pub(crate) fn over_subscribe(&self, ctx: &Ctx) -> &'static str {
        match self.job.spec.ask.sharing {
            Sharing::Exclusive => "NO",
            Sharing::ExclusiveUser => "USER",
            Sharing::ExclusiveMcs => "MCS",
            Sharing::Oversubscribe => "YES",
            Sharing::Default
                if ctx
                    .partition(&self.job.partition)
                    .is_some_and(|p| p.exclusive_user) =>
            {
                "USER"
            }
            // Whole nodes are nobody else's, as with select/linear.
            Sharing::Default if self.job.alloc.as_ref().is_some_and(|a| a.exclusive) => "NO",
            Sharing::Default => {
                match ctx.partition(&self.job.partition).map(|p| p.over_subscribe) {
                    Some(OverSubscribe::Exclusive) => "NO",
                    Some(OverSubscribe::Force(_)) => "YES",
                    _ => "OK",
                }
            }
        }
    }

    /// Its program: the script with its arguments, or the program that holds the allocation.
    pub(crate) fn write_command(&self, out: &mut String) {
        let spec = &self.job.spec;
        match spec.kind {
            JobKind::Batch if spec.command.is_empty() => out.push_str("(null)"),
            JobKind::Batch => {
                out.push_str(&spec.command);
                for arg in &spec.argv {
                    out.push(' ');
                    out.push_str(arg);
                }
            }
            JobKind::Allocation => {
                let program = Some(&spec.command)
                    .filter(|c| !c.is_empty())
                    .or(spec.argv.first());
                out.push_str(text::or_null(program.map(String::as_str)));
            }
        }
    }

    /// `%E`: conditions that do not hold yet.
    pub(crate) fn write_dependency(&self, out: &mut String) {
        if self.job.waiting_on.is_empty() || !self.is_pending() {
            out.push_str("(null)");
            return;
        }
        let separator = if self.job.spec.dependency.any {
            '?'
        } else {
            ','
        };
        let hopeless = self.job.reason == Reason::DependencyNeverSatisfied;
        for (i, term) in self.job.waiting_on.iter().enumerate() {
            if i > 0 {
                out.push(separator);
            }
            write_term(out, term, hopeless);
        }
    }

    /// Requests by devices, and devices by other units, as `scontrol show job` names them; only existing ones.
    pub(crate) fn by_devices(&self) -> Vec<(&'static str, String)> {
        let (ask, devices) = (&self.job.spec.ask, self.job.spec.ask.devices());
        let list = |list: &[GresAsk]| {
            let text = |gres: &GresAsk| {
                let mut out = String::new();
                write_gres(&mut out, gres);
                out
            };
            list.iter().map(text).collect::<Vec<_>>().join(",")
        };
        let of_gpu = |n: u64| match n {
            0 => String::new(),
            n => format!("gres/gpu:{n}"),
        };
        let bind = self.shown("tres-bind").map(str::to_owned);
        let gpu_bind = self.shown("gpu-bind").map(|b| format!("gres/gpu:{b}"));
        let all = [
            (
                "CpusPerTres",
                of_gpu(devices.cpus_per_gpu.map_or(0, u64::from)),
            ),
            ("MemPerTres", of_gpu(devices.mib_per_gpu.unwrap_or(0))),
            ("TresBind", bind.or(gpu_bind).unwrap_or_default()),
            ("TresPerJob", list(&devices.per_job)),
            ("TresPerNode", list(&ask.gres)),
            ("TresPerSocket", list(&devices.per_socket)),
            ("TresPerTask", list(&devices.per_task)),
        ];
        { all }
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }

    /// One of [`JobRow::by_devices`].
    pub(crate) fn by_device(&self, key: &str) -> Option<String> {
        let mut all = self.by_devices().into_iter();
        all.find(|(name, _)| *name == key).map(|(_, text)| text)
    }

    /// A value of an option that is only kept and shown.
    pub(crate) fn shown(&self, name: &str) -> Option<&'a str> {
        self.job
            .spec
            .shown
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The state of `--requeue` and friends.
    pub(crate) fn requeue(&self) -> u8 {
        u8::from(self.job.requeueable)
    }

    /// The exit status as wait(2) gives it.
    pub(crate) fn wait_status(exit: ExitStatus) -> u32 {
        (exit.code << 8) | exit.signal
    }

    /// Priority as a share of the highest there is (`%p`).
    pub(crate) fn write_priority_share(&self, out: &mut String) {
        put!(
            out,
            "{:16.14}",
            f64::from(self.job.priority) / f64::from(u32::MAX)
        );
    }

    /// The batch script's standard output, input or error, with what can be known of its pattern filled in. None for
    /// allocations, whose steps have files of their own.
    pub(crate) fn stdio_path(&self, which: Stdio) -> Option<String> {
        let spec = &self.job.spec;
        if spec.kind != JobKind::Batch {
            return None;
        }
        let default = if self.in_array() {
            "slurm-%A_%a.out"
        } else {
            "slurm-%j.out"
        };
        let out = spec.stdio.stdout.as_deref().unwrap_or(default);
        let pattern = match which {
            Stdio::In => spec.stdio.stdin.as_deref().unwrap_or("/dev/null"),
            Stdio::Out => out,
            Stdio::Err => spec.stdio.stderr.as_deref().unwrap_or(out),
        };
        let name = self.expand(pattern);
        if name.starts_with('/') {
            return Some(name);
        }
        Some(format!("{}/{name}", spec.work_dir.trim_end_matches('/')))
    }

    /// Fills in a filename pattern of sbatch(1). What only a task knows (`%n`, `%t`, `%a` of tasks that have not
    /// left the array) stays. What is longer than a path ends there: a pattern of `%x` grows 512 times, for all who list
    /// the job.
    fn expand(&self, pattern: &str) -> String {
        let mut name = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            if name.len() > PATH_BYTES_MAX {
                return name;
            }
            name.push_str(&rest[..at]);
            let spec = &rest[at + 1..];
            let digits = spec.bytes().take_while(u8::is_ascii_digit).count();
            let width: usize = spec[..digits].parse().unwrap_or(0).min(10);
            let letter = spec[digits..].chars().next();
            let value = match letter {
                Some('A') => Some(format!("{:0width$}", self.base_id().0)),
                Some('j') => Some(format!("{:0width$}", self.job.id.0)),
                Some('J') => Some(format!("{:0width$}", self.job.id.0)),
                Some('a') => pattern_index(self).map(|i| format!("{i:0width$}")),
                Some('x') => Some(self.job.spec.name.clone()),
                Some('u') => Some(self.job.spec.owner.user.clone()),
                Some('N') => self.shares().next().map(|s| s.name.clone()),
                Some('b') => pattern_index(self).map(|i| format!("{:0width$}", i % 10)),
                Some('%') => Some("%".to_owned()),
                _ => None,
            };
            let used = 1 + digits + letter.map_or(0, char::len_utf8);
            match value {
                Some(value) => name.push_str(&value),
                None => name.push_str(&rest[at..at + used]),
            }
            rest = &rest[at + used..];
        }
        name.push_str(rest);
        name
    }
}

/// Which file of a batch script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdio {
    /// `--input`.
    In,
    /// `--output`.
    Out,
    /// `--error`.
    Err,
}

/// The index that patterns have: Slurm's NO_VAL for a job outside an array.
fn pattern_index(row: &JobRow<'_>) -> Option<u32> {
    match row.in_array() {
        true => row.index(),
        false => Some(u32::MAX - 1),
    }
}

fn write_gres_tres(out: &mut String, name: &str, kind: Option<&str>, count: u64) {
    match kind {
        Some(kind) => put!(out, ",gres/{name}:{kind}={count}"),
        None => put!(out, ",gres/{name}={count}"),
    }
}

fn write_license_tres(out: &mut String, licenses: &[TresAmount]) {
    for TresAmount { name, amount } in licenses {
        put!(out, ",{name}={amount}");
    }
}

/// `gres/gpu:a100:2`.
pub(crate) fn write_gres(out: &mut String, gres: &GresAsk) {
    put!(out, "gres/{}", gres.name);
    if let Some(kind) = &gres.kind {
        put!(out, ":{kind}");
    }
    put!(out, ":{}", gres.count);
}

fn write_term(out: &mut String, term: &DependencyTerm, hopeless: bool) {
    put!(out, "{term}");
    let DependencyTerm::Job { kind, .. } = term else {
        return out.push_str("(unfulfilled)");
    };
    let can_fail = matches!(
        kind,
        DependencyKind::AfterOk | DependencyKind::AfterNotOk | DependencyKind::AfterCorr
    );
    out.push_str(if hopeless && can_fail {
        "(failed)"
    } else {
        "(unfulfilled)"
    });
}

/// `RaisedSignal:9(Killed)`.
fn raised_signal_reason(number: u32) -> Cow<'static, str> {
    let name = Reason::RaisedSignal.name();
    let text = muster_node_core::signals::signal_text(number).replace(' ', "_");
    format!("{name}:{number}({text})").into()
}

/// Array indices: `0-3,7`, and `1-199:3` where they are evenly spaced over more than ten. Beyond `max` bytes they end
/// in dots; 0 is no limit.
pub(crate) fn index_text(out: &mut String, indices: &IndexSet, max: usize) {
    let start = out.len();
    if let Some((first, last, step)) = spacing(indices) {
        put!(out, "{first}-{last}:{step}");
        return;
    }
    for (i, (first, last)) in indices.ranges().enumerate() {
        if i > 0 {
            out.push(',');
        }
        put!(out, "{first}");
        if last > first {
            put!(out, "-{last}");
        }
        // Slurm's buffer has C's end of string, too, and its last bytes are the dots once it is full.
        if max > 0 && out.len() - start >= max.saturating_sub(1) {
            out.truncate(start + max.saturating_sub(4));
            out.push_str("...");
            return;
        }
    }
}

fn spacing(indices: &IndexSet) -> Option<(u32, u32, u32)> {
    let (first, last) = (indices.first()?, indices.last()?);
    if last - first <= 10 {
        return None;
    }
    let mut before = None;
    let mut step = None;
    for (index, end) in indices.ranges() {
        if end > index {
            return None;
        }
        if let Some(before) = before
            && *step.get_or_insert(index - before) != index - before
        {
            return None;
        }
        before = Some(index);
    }
    step.filter(|s| *s > 1).map(|s| (first, last, s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;

    #[test]
    fn a_pattern_that_grows_ends_where_a_path_does() {
        let mut job = fixture::job(7, &"n".repeat(1024));
        fixture::ask(&mut job, |spec| {
            spec.stdio.stdout = Some("/%x".repeat(20_000));
            spec.stdio.stdin = Some("/%x/%j".to_owned());
        });
        let row = JobRow::new(&job, None);
        let long = row.stdio_path(Stdio::Out).unwrap();
        assert!(long.len() <= PATH_BYTES_MAX + 1025, "{}", long.len());
        let usual = row.stdio_path(Stdio::In).unwrap();
        assert_eq!(usual, format!("/{}/7", "n".repeat(1024)));
    }

    /// The listing named a file that the node did not write.
    #[test]
    fn a_job_outside_an_array_has_the_index_that_its_node_writes() {
        let mut job = fixture::job(7, "x");
        fixture::ask(&mut job, |spec| {
            spec.stdio.stdout = Some("/%x-%A_%a.%b".to_owned());
        });
        let row = JobRow::new(&job, None);
        assert_eq!(row.stdio_path(Stdio::Out).unwrap(), "/x-7_4294967294.4");
    }
}
