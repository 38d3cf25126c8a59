//! Data of every field beside its record: the time, the zone, the cluster's settings, names of users.

use crate::people;
use jiff::Timestamp as Instant;
use jiff::Zoned;
use jiff::tz::TimeZone;
use muster_model::accounts::NORMAL;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::explain::ExpectedStart;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::node::Node;
use muster_model::private_data::PrivateData;
use muster_model::spec::MemoryAsk;
use muster_model::time::Timestamp;
use muster_proto::client::StartsProgress;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};

/// `SLURM_TIME_FORMAT`.
#[derive(Clone, Debug, Default)]
pub(crate) enum TimeStyle {
    /// `2026-11-21T20:23:38`.
    #[default]
    Standard,
    /// Shorter the nearer.
    Relative,
    /// strftime(3).
    Custom(String),
}

/// Surroundings of a listing.
#[derive(Debug)]
pub(crate) struct Ctx {
    /// The controller's time.
    pub(crate) now: Timestamp,
    /// Name of the cluster.
    pub(crate) cluster: String,
    /// Settings, when they were asked for.
    pub(crate) config: Option<ClusterConfig>,
    /// Partitions, when they were asked for.
    pub(crate) partitions: Vec<PartitionConfig>,
    /// CPUs of the largest node of each of them.
    pub(crate) largest_node_cpus: Vec<u32>,
    /// Which lists are empty because of `PrivateData`.
    pub(crate) withheld: PrivateData,
    /// Nodes, when they were asked for.
    pub(crate) nodes: Vec<Node>,
    /// Nodes that a reservation has now, and whether for maintenance.
    pub(crate) reserved: HashMap<NodeIdx, bool>,
    /// Expected starts, when they were asked for.
    pub(crate) starts: HashMap<JobId, ExpectedStart>,
    /// Their progress; none where they were not asked for.
    pub(crate) starts_progress: Option<StartsProgress>,
    /// Numbers of QOS by name, when they were asked for.
    pub(crate) qos_ids: BTreeMap<String, u32>,
    /// `--noconvert`.
    pub(crate) keep_units: bool,
    /// `MailDomain`, when it matters.
    pub(crate) mail_domain: Option<String>,
    /// `SLURM_BITSTR_LEN`: longest expression of array indices; 0 is no limit.
    pub(crate) index_text_max: usize,
    /// Local time, looked up when a time is shown.
    zone: OnceCell<TimeZone>,
    /// Users' groups that matter to the output; nothing for a user who sees all.
    groups: OnceCell<Option<Vec<String>>>,
    style: TimeStyle,
    users: RefCell<HashMap<u32, String>>,
}

impl Ctx {
    /// From the environment.
    pub(crate) fn new(cluster: &str) -> Ctx {
        let style = match std::env::var("SLURM_TIME_FORMAT").as_deref() {
            Ok("" | "standard") | Err(_) => TimeStyle::Standard,
            Ok("relative") => TimeStyle::Relative,
            Ok(custom) => TimeStyle::Custom(custom.to_owned()),
        };
        let index_text_max = std::env::var("SLURM_BITSTR_LEN")
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(64);
        let mut ctx = Ctx {
            zone: OnceCell::new(),
            ..Ctx::bare(cluster, TimeZone::UTC)
        };
        ctx.style = style;
        ctx.index_text_max = index_text_max;
        ctx
    }

    /// Without the options of the environment.
    pub(crate) fn bare(cluster: &str, zone: TimeZone) -> Ctx {
        Ctx {
            now: Timestamp::default(),
            cluster: cluster.to_owned(),
            config: None,
            partitions: Vec::new(),
            largest_node_cpus: Vec::new(),
            withheld: PrivateData::default(),
            nodes: Vec::new(),
            reserved: HashMap::new(),
            starts: HashMap::new(),
            starts_progress: None,
            qos_ids: BTreeMap::new(),
            keep_units: false,
            mail_domain: None,
            index_text_max: 64,
            zone: OnceCell::from(zone),
            groups: OnceCell::new(),
            style: TimeStyle::Standard,
            users: RefCell::default(),
        }
    }

    /// Number of a QOS. Jobs without one have that of `normal`, which there always is.
    pub(crate) fn qos_id(&self, name: &str) -> u32 {
        match name {
            "" | NORMAL => 1,
            name => self.qos_ids.get(name).copied().unwrap_or(0),
        }
    }

    /// A point in time, in the style that the user wants.
    pub(crate) fn time(&self, out: &mut String, at: Timestamp) {
        let zoned = self.zoned(at);
        match &self.style {
            TimeStyle::Standard => iso(out, &zoned),
            TimeStyle::Relative => relative(out, &zoned, &self.zoned(self.now)),
            TimeStyle::Custom(format) => {
                match jiff::fmt::strtime::format(format.as_str(), &zoned) {
                    Ok(text) => out.push_str(&text),
                    Err(_) => iso(out, &zoned),
                }
            }
        }
    }

    /// A point in time or `none`'s text.
    pub(crate) fn time_or(&self, out: &mut String, at: Option<Timestamp>, none: &str) {
        match at {
            Some(at) => self.time(out, at),
            None => out.push_str(none),
        }
    }

    /// The line above a long listing: `Sat Nov 21 20:23:45 2026`.
    pub(crate) fn stamp(&self) -> String {
        self.zoned(self.now)
            .strftime("%a %b %d %H:%M:%S %Y")
            .to_string()
    }

    /// A point in time in the local zone.
    pub(crate) fn zoned(&self, at: Timestamp) -> Zoned {
        Instant::from_millisecond(at.0)
            .unwrap_or(Instant::UNIX_EPOCH)
            .to_zoned(self.zone.get_or_init(muster_conf::zone::local).clone())
    }

    /// A user's name; the number when there is none.
    pub(crate) fn user_name(&self, uid: u32) -> String {
        self.users
            .borrow_mut()
            .entry(uid)
            .or_insert_with(|| name_of(uid))
            .clone()
    }

    /// CPUs of the largest node of a partition; zero if that is not known.
    pub(crate) fn largest_node_cpus(&self, partition: &str) -> u32 {
        let all = self.partitions.iter().zip(&self.largest_node_cpus);
        let mut named = all.filter(|(known, _)| known.name == partition);
        named.next().map_or(0, |(_, cpus)| *cpus)
    }

    /// The partition of that name.
    /// Whether a listing has a partition without being asked for all: root sees every one, others those that are not
    /// hidden and whose groups they are in.
    pub(crate) fn shows(&self, partition: &PartitionConfig) -> bool {
        match self.groups.get_or_init(own_groups) {
            None => true,
            Some(_) if partition.hidden => false,
            Some(own) => {
                let allowed = &partition.allow_groups;
                allowed.is_empty() || allowed.iter().any(|group| own.contains(group))
            }
        }
    }

    /// The partition of that name.
    pub(crate) fn partition(&self, name: &str) -> Option<&PartitionConfig> {
        self.partitions.iter().find(|p| p.name == name)
    }

    /// Memory that a job asks for after defaults were applied; `Default` when there is none.
    pub(crate) fn memory_ask(&self, ask: MemoryAsk, partition: &str) -> MemoryAsk {
        if ask != MemoryAsk::Default {
            return ask;
        }
        let of_partition = self
            .partition(partition)
            .map_or(MemoryAsk::Default, |p| p.default_memory);
        if of_partition != MemoryAsk::Default {
            return of_partition;
        }
        self.config
            .as_ref()
            .map_or(MemoryAsk::Default, |c| c.default_memory)
    }
}

fn name_of(uid: u32) -> String {
    people::user_of_uid(uid).map_or_else(|| uid.to_string(), |user| user.name)
}

/// A user by name or number.
pub(crate) fn uid_of(text: &str) -> Option<u32> {
    let named = people::user_named(text).map(|user| user.uid.as_raw());
    named.or_else(|| text.parse().ok())
}

/// A group by name or number.
pub(crate) fn gid_of(text: &str) -> Option<u32> {
    let named = people::group_named(text).map(|group| group.gid.as_raw());
    named.or_else(|| text.parse().ok())
}

/// A group's name; the number when there is none.
pub(crate) fn group_name(gid: u32) -> String {
    people::group_of_gid(gid).map_or_else(|| gid.to_string(), |group| group.name)
}

fn iso(out: &mut String, at: &Zoned) {
    super::text::put!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    );
}

/// As `SLURM_TIME_FORMAT=relative` is described in squeue(1).
fn relative(out: &mut String, at: &Zoned, now: &Zoned) {
    let days = at
        .date()
        .since(now.date())
        .map_or(i32::MAX, |span| span.get_days());
    let format = match days {
        0 => "%H:%M:%S",
        1 => "Tomorr %H:%M",
        -1 => "Ystday %H:%M",
        2..=6 => "%a %H:%M",
        _ if at.year() == now.year() => "%-d %b %H:%M",
        _ => "%-d %b %Y",
    };
    super::text::put!(out, "{}", at.strftime(format));
}

/// The caller's groups by name; nothing for root.
fn own_groups() -> Option<Vec<String>> {
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let mut gids = nix::unistd::getgroups().unwrap_or_default();
    gids.push(nix::unistd::getegid());
    let groups = gids
        .iter()
        .filter_map(|gid| crate::people::group_of_gid(gid.as_raw()));
    Some(groups.map(|group| group.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let mut ctx = Ctx::bare("c", TimeZone::UTC);
        let at = Timestamp::from_unix_s(1_795_292_618);
        let show = |ctx: &Ctx| crate::listing::text::collect(|o| ctx.time(o, at));
        assert_eq!(show(&ctx), "2026-11-21T20:23:38");
        ctx.now = Timestamp::from_unix_s(1_795_292_618 - 3600);
        assert_eq!(ctx.stamp(), "Sat Nov 21 19:23:38 2026");
        ctx.style = TimeStyle::Relative;
        assert_eq!(show(&ctx), "20:23:38");
        ctx.now = Timestamp::from_unix_s(1_795_292_618 - 86_400);
        assert_eq!(show(&ctx), "Tomorr 20:23");
        ctx.now = Timestamp::from_unix_s(1_795_292_618 + 9 * 86_400);
        assert_eq!(show(&ctx), "21 Nov 20:23");
        ctx.style = TimeStyle::Custom("%a %T".to_owned());
        assert_eq!(show(&ctx), "Sat 20:23:38");
    }
}
