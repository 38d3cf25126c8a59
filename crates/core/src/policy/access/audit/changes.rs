//! Changed keys with their values, as a line of the audit log has them: `Weight=3 Reason=disk`. Keys are those of the
//! commands, times are seconds since the epoch, and lines have an end.

use muster_model::account_limits::LimitAsk;
use muster_model::audit::text;
use muster_model::command::ListEdit;
use muster_model::command::{
    JobUpdate, NameList, NodeUpdate, QosAsk, ReservationAsk, TermsAsk, WckeysAsk,
};
use muster_model::reservation::Flags;
use muster_model::spec::{ResourceAsk, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::fmt::{Debug, Display, Write as _};

/// Bytes of a subject after which no key is added.
const SUBJECT_MAX: usize = 600;
/// Names of a list in a line.
const LIST_MAX: usize = 8;

/// A subject that is being written: an object, then keys.
#[derive(Debug, Default)]
pub(super) struct Subject {
    words: String,
    is_cut: bool,
}

impl Subject {
    /// Subject with an object whose words are escaped and cut.
    pub(super) fn new(object: impl Into<String>) -> Subject {
        Subject {
            words: object.into(),
            is_cut: false,
        }
    }

    /// The words.
    pub(super) fn finish(self) -> String {
        self.words
    }

    /// Adds a word of our own.
    pub(super) fn word(mut self, word: &str) -> Subject {
        if !word.is_empty() {
            self.push(word);
        }
        self
    }

    /// Adds a key that was given.
    pub(super) fn key(self, key: &str, value: Option<impl Display>) -> Subject {
        match value {
            Some(value) => self.pair(key, &value.to_string()),
            None => self,
        }
    }

    /// Adds a key whose empty value stands for none.
    pub(super) fn name(self, key: &str, value: &str) -> Subject {
        self.key(key, Some(value).filter(|value| !value.is_empty()))
    }

    /// Adds a list, if it has an item.
    pub(super) fn list(self, key: &str, names: &[String]) -> Subject {
        match names {
            [] => self,
            names => self.listed(key, names),
        }
    }

    fn listed(mut self, key: &str, names: &[String]) -> Subject {
        self.push(&format!("{key}={}", list(names.iter())));
        self
    }

    /// Adds pairs as the client wrote them.
    pub(super) fn pairs(self, pairs: &[(String, String)]) -> Subject {
        pairs.iter().fold(self, |subject, (key, value)| {
            subject.pair(&text(key), value)
        })
    }

    /// Adds limits likewise.
    fn limits(self, limits: &[LimitAsk]) -> Subject {
        let add = |subject: Subject, ask: &LimitAsk| subject.pair(&text(&ask.name), &ask.value);
        limits.iter().fold(self, add)
    }

    fn pair(mut self, key: &str, value: &str) -> Subject {
        self.push(&format!("{key}={}", text(value)));
        self
    }

    /// Adds a list that is set, made longer or shorter.
    fn edit(self, key: &str, edit: Option<&ListEdit>) -> Subject {
        match edit {
            Some(ListEdit { sign, names }) => {
                let sign = sign.map(String::from).unwrap_or_default();
                self.listed(&format!("{key}{}", text(&sign)), names)
            }
            None => self,
        }
    }

    fn names(self, key: &str, names: Option<&NameList>) -> Subject {
        match names {
            Some(NameList::Only(names)) => self.listed(key, names),
            Some(NameList::AllBut(names)) => self.listed(&format!("{key}=-"), names),
            Some(NameList::Add(names)) => self.listed(&format!("{key}+"), names),
            Some(NameList::Remove(names)) => self.listed(&format!("{key}-"), names),
            None => self,
        }
    }

    fn push(&mut self, word: &str) {
        if self.is_cut {
            return;
        }
        let end = if self.words.len() + word.len() > SUBJECT_MAX {
            self.is_cut = true;
            "..."
        } else {
            word
        };
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        self.words.push_str(end);
    }
}

/// Names of a list, the first of many.
pub(super) fn list(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut out = String::new();
    for (n, name) in names.enumerate() {
        if n == LIST_MAX {
            out.push_str(",...");
            break;
        }
        if n > 0 {
            out.push(',');
        }
        let _ = write!(out, "{}", text(name.as_ref()));
    }
    out
}

/// A limit as commands have it.
pub(super) fn limit(limit: TimeLimit) -> String {
    match limit {
        TimeLimit::Unlimited => "UNLIMITED".to_owned(),
        TimeLimit::Minutes(minutes) => minutes.to_string(),
    }
}

fn seconds(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::unix_s)
}

/// A number that may be taken back.
fn number<T: ToString>(number: Option<Option<T>>) -> Option<String> {
    number.map(|number| number.map_or_else(|| "-1".to_owned(), |number| number.to_string()))
}

/// `scontrol update job`; `present` is what the job asks for so far.
pub(super) fn job(subject: Subject, update: &JobUpdate, present: Option<&ResourceAsk>) -> Subject {
    let JobUpdate {
        time_limit,
        time_delta_min,
        priority,
        nice,
        partitions,
        name,
        comment,
        account,
        qos,
        dependency,
        begin,
        deadline,
        ask,
        array_throttle,
        requeue,
        stdio,
        work_dir,
        wckey,
        reservation,
        shown,
        time_min,
        site_factor,
        nodelist,
        licenses,
    } = update;
    let delta = time_delta_min.map(|minutes| format!("{minutes:+}"));
    let dependency = dependency
        .as_ref()
        .map(|dependency| plain(&dependency.terms));
    let mut subject = subject
        .key("TimeLimit", time_limit.map(limit).or(delta))
        .key("Priority", *priority)
        .key("Nice", *nice);
    if let Some(partitions) = partitions {
        subject = subject.listed("Partition", partitions);
    }
    subject = subject
        .key("JobName", name.as_ref())
        .key("Comment", comment.as_ref())
        .key("Account", account.as_ref())
        .key("QOS", qos.as_ref())
        .key("Dependency", dependency)
        .key("StartTime", seconds(*begin))
        .key("Deadline", seconds(*deadline));
    if let Some(ask) = ask {
        subject = resources(subject, ask, present);
    }
    subject = subject
        .key("ArrayTaskThrottle", *array_throttle)
        .key("Requeue", requeue.map(u8::from));
    if let Some(StdioSpec {
        stdin,
        stdout,
        stderr,
        append,
    }) = stdio
    {
        subject = subject
            .key("StdIn", stdin.as_ref())
            .key("StdOut", stdout.as_ref())
            .key("StdErr", stderr.as_ref())
            .key("Append", *append);
    }
    subject
        .key("WorkDir", work_dir.as_ref())
        .key("WCKey", wckey.as_ref())
        .key("ReservationName", reservation.as_ref())
        .pairs(shown)
        .key("TimeMin", time_min.map(limit))
        .key("SiteFactor", *site_factor)
        .key("NodeList", nodelist.as_ref())
        .key("Licenses", licenses.as_ref())
}

/// A value as it is written in the code, without what only the code needs.
fn plain(value: &impl Debug) -> String {
    let whole = format!("{value:?}");
    let inner = whole
        .strip_prefix("Some(")
        .and_then(|rest| rest.strip_suffix(')'));
    inner.unwrap_or(&whole).trim_matches('"').to_owned()
}

/// Adds those of the fields that differ; without wildcard, so that none is forgotten.
macro_rules! differing {
    ($subject:expr, $new:expr, $old:expr, $($field:ident $key:literal),* $(,)?) => {{
        let ResourceAsk { $($field),* } = $new;
        let mut subject = $subject;
        $(if $old.is_none_or(|old| old.$field != *$field) {
            subject = subject.key($key, Some(plain($field)));
        })*
        subject
    }};
}

/// The client sends the whole new ask: what differs from the present one.
fn resources(subject: Subject, ask: &ResourceAsk, present: Option<&ResourceAsk>) -> Subject {
    let default = ResourceAsk::default();
    let old = Some(present.unwrap_or(&default));
    differing!(
        subject, ask, old,
        min_nodes "MinNodes",
        max_nodes "MaxNodes",
        ntasks "NumTasks",
        cpus_per_task "CPUsPerTask",
        ntasks_per_node "TasksPerNode",
        ntasks_per_socket "TasksPerSocket",
        ntasks_per_core "TasksPerCore",
        min_cpus_per_node "MinCPUsNode",
        memory "Memory",
        tmp_disk_mib "MinTmpDiskNode",
        gres "Gres",
        constraint "Features",
        nodelist "ReqNodeList",
        exclude "ExcNodeList",
        sharing "OverSubscribe",
        contiguous "Contiguous",
        sockets_per_node "SocketsPerNode",
        cores_per_socket "CoresPerSocket",
        threads_per_core "ThreadsPerCore",
        core_spec "CoreSpec",
        overcommit "Overcommit",
        distribution "Distribution",
        switches "Switches",
        spread "SpreadJob",
        use_min_nodes "UseMinNodes",
        nodes_set "NodesGiven",
        prefer "Prefer",
        devices "Devices",
        segment "Segment",
        segments "Segments",
        thread_spec "ThreadSpec",
        batch "BatchFeatures",
        task_range "TaskRange",
    )
}

/// `scontrol update node`.
pub(super) fn nodes(subject: Subject, update: &NodeUpdate) -> Subject {
    let NodeUpdate {
        state,
        reason,
        weight,
        features,
        comment,
        cpu_bind,
    } = update;
    let subject = subject
        .key("State", state.as_ref())
        .key("Reason", reason.as_ref())
        .key("Weight", *weight);
    let subject = match features {
        Some(features) => subject.listed("Features", features),
        None => subject,
    };
    subject
        .key("Comment", comment.as_ref())
        .key("CpuBind", cpu_bind.as_ref())
}

/// `scontrol create` and `update reservation`.
pub(super) fn reservation(ask: &ReservationAsk) -> Subject {
    let ReservationAsk {
        name,
        start,
        end,
        duration,
        nodes,
        node_count,
        core_counts,
        partition,
        features,
        users,
        accounts,
        groups,
        licenses,
        flags,
        flags_removed,
        max_start_delay_s,
        purge_s,
        comment,
        utc_offset_s: _,
        skip,
        duration_sign,
    } = ask;
    let sign = duration_sign.map(|c| text(&c.to_string()));
    let mut subject = Subject::new(text(name.as_deref().unwrap_or_default()))
        .key("StartTime", seconds(*start))
        .key("EndTime", seconds(*end))
        .key(
            &format!("Duration{}", sign.unwrap_or_default()),
            duration.map(limit),
        )
        .key("Nodes", nodes.as_ref())
        .key("NodeCnt", *node_count);
    if !core_counts.is_empty() {
        let counts: Vec<String> = core_counts.iter().map(u32::to_string).collect();
        subject = subject.listed("CoreCnt", &counts);
    }
    for (key, set) in [("Flags", *flags), ("Flags-", *flags_removed)] {
        if set != Flags::default() {
            let named = Flags::ALL.iter().filter(|(flag, _)| set.has(*flag));
            let names: Vec<String> = named.map(|(_, name)| (*name).to_owned()).collect();
            subject = subject.listed(key, &names);
        }
    }
    subject
        .key("PartitionName", partition.as_ref())
        .key("Features", features.as_ref())
        .names("Users", users.as_ref())
        .names("Accounts", accounts.as_ref())
        .names("Groups", groups.as_ref())
        .key("Licenses", licenses.as_ref())
        .key("MaxStartDelay", *max_start_delay_s)
        .key("PurgeComp", *purge_s)
        .key("Comment", comment.as_ref())
        .word(if *skip { "Skip" } else { "" })
}

/// Settings of associations.
pub(super) fn terms(subject: Subject, terms: &TermsAsk) -> Subject {
    let TermsAsk {
        shares,
        priority,
        default_qos,
        qos,
        limits,
        qos_less,
    } = terms;
    subject
        .key("Fairshare", number(*shares))
        .key("Priority", number(*priority))
        .key("DefaultQOS", default_qos.as_ref())
        .edit("QosLevel", qos.as_ref())
        .list("QosLevel-", qos_less)
        .limits(limits)
}

/// Workload characterization keys of users.
pub(super) fn wckeys(subject: Subject, ask: &WckeysAsk) -> Subject {
    let WckeysAsk { default, keys } = ask;
    subject
        .key("DefaultWCKey", default.as_ref())
        .edit("WCKeys", keys.as_ref())
}

/// Settings of a QOS.
pub(super) fn qos(subject: Subject, ask: &QosAsk) -> Subject {
    let QosAsk {
        description,
        priority,
        preempt,
        preempt_mode,
        preempt_exempt_s,
        grace_time_s,
        usage_factor_millionths,
        limits,
        flags,
        usage_threshold_millionths,
        limit_factor_millionths,
    } = ask;
    let decimal = |millionths: u64| {
        let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
        format!("{whole}.{part:06}")
    };
    let or_none = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), decimal);
    let factor = usage_factor_millionths.map(decimal);
    subject
        .key("Description", description.as_ref())
        .key("Priority", *priority)
        .edit("Preempt", preempt.as_ref())
        .key("PreemptMode", preempt_mode.as_ref())
        .key("PreemptExemptTime", number(*preempt_exempt_s))
        .key("GraceTime", *grace_time_s)
        .key("UsageFactor", factor)
        .key("UsageThreshold", usage_threshold_millionths.map(or_none))
        .key("LimitFactor", limit_factor_millionths.map(or_none))
        .limits(limits)
        .edit("Flags", flags.as_ref())
}
