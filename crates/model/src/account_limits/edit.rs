//! Text forms of limits, as sacctmgr takes them.

use super::{Limits, TresAmount, TresAmounts};
use crate::time::TimeLimit;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// The refusal for limits that cannot be set.
pub const NOT_KEPT: &str = "is not kept here";

/// One edit of limits.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct LimitAsk {
    /// The limit's name in lower case.
    #[n(0)]
    pub name: String,
    /// Its value; -1 clears.
    #[n(1)]
    pub value: String,
}

impl LimitAsk {
    /// Sets a limit to this.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> LimitAsk {
        let (name, value) = (name.into(), value.into());
        LimitAsk { name, value }
    }
}

/// Limits of one resource as they were written before there were others, and how they are written now.
const OLD_NAMES: [(&str, &str, &str); 13] = [
    ("grpcpus", "grptres", "cpu"),
    ("grpmem", "grptres", "mem"),
    ("grpmemory", "grptres", "mem"),
    ("grpnodes", "grptres", "node"),
    ("grpcpumins", "grptresmins", "cpu"),
    ("grpcpurunmins", "grptresrunmins", "cpu"),
    ("maxcpus", "maxtres", "cpu"),
    ("maxnodes", "maxtres", "node"),
    ("maxcpumins", "maxtresmins", "cpu"),
    ("maxcpusperuser", "maxtresperuser", "cpu"),
    ("maxnodesperuser", "maxtresperuser", "node"),
    ("maxcpurunminsperuser", "maxtresrunminsperuser", "cpu"),
    ("maxcpurunminspu", "maxtresrunminsperuser", "cpu"),
];

impl Limits {
    /// The first limit of a job or a user that these set above what the associations above have, of which the nearest
    /// comes first. Limits of groups hold at each level anyway.
    pub fn exceeds(&self, above: &[&Limits]) -> Option<&'static str> {
        type Count = fn(&Limits) -> Option<u32>;
        type OfTres = fn(&Limits) -> &TresAmounts;
        let counts: [(&str, Count); 4] = [
            ("MaxJobs", |l| l.max_jobs),
            ("MaxSubmitJobs", |l| l.max_submit),
            ("MaxJobsAccrue", |l| l.max_jobs_accrue),
            ("MaxWall", |l| l.max_wall_min),
        ];
        for (name, of) in counts {
            let most = above.iter().find_map(|limits| of(limits));
            if of(self).is_some_and(|own| most.is_some_and(|most| own > most)) {
                return Some(name);
            }
        }
        let amounts: [(&str, OfTres); 3] = [
            ("MaxTRES", |l| &l.max_tres),
            ("MaxTRESPerNode", |l| &l.max_tres_node),
            ("MaxTRESMins", |l| &l.max_tres_mins),
        ];
        for (name, of) in amounts {
            let over = |own: &TresAmount| {
                let most = above.iter().find_map(|limits| of(limits).get(&own.name));
                most.is_some_and(|most| own.amount > most)
            };
            if of(self).iter().any(over) {
                return Some(name);
            }
        }
        None
    }

    /// Sets a limit; refuses a wrong one.
    ///
    /// # Errors
    /// A reason that names the limit.
    pub fn set(&mut self, ask: &LimitAsk, qos: bool) -> Result<(), String> {
        let LimitAsk { name: key, value } = ask;
        let number = || match value.as_str() {
            "-1" => Ok(None),
            _ => (value.parse().map(Some))
                .map_err(|_| format!("{key}={value}: expected a number, or -1 for none")),
        };
        if let Some((_, key, tres)) = OLD_NAMES.iter().find(|(old, ..)| *old == key.as_str()) {
            return self.set(&LimitAsk::new(*key, format!("{tres}={value}")), qos);
        }
        match key.as_str() {
            "grpjobs" => self.grp_jobs = number()?,
            "grpsubmit" | "grpsubmitjobs" => self.grp_submit = number()?,
            "grptres" => set_amounts(&mut self.grp_tres, key, value)?,
            "grptresmins" => set_amounts(&mut self.grp_tres_mins, key, value)?,
            "grptresrunmins" | "grptresrunmin" => {
                set_amounts(&mut self.grp_tres_run_mins, key, value)?;
            }
            "grpwall" => self.grp_wall_min = minutes(key, value)?.map(u64::from),
            "maxtresmins" | "maxtresminsperjob" | "maxtresminspj" => {
                set_amounts(&mut self.max_tres_mins, key, value)?;
            }
            "grpjobsaccrue" => self.grp_jobs_accrue = number()?,
            "maxjobsaccrue" if !qos => self.max_jobs_accrue = number()?,
            "maxjobsaccrueperuser" | "maxjobsaccruepu" if qos => self.max_jobs_accrue = number()?,
            "maxjobsaccrueperaccount" | "maxjobsaccrueperacct" | "maxjobsaccruepa" if qos => {
                self.max_jobs_accrue_account = number()?;
            }
            "maxtresrunminsperuser" | "maxtresrunminspu" if qos => {
                set_amounts(&mut self.max_tres_run_mins_user, key, value)?;
            }
            "maxtresrunminsperaccount" | "maxtresrunminsperacct" | "maxtresrunminspa" if qos => {
                set_amounts(&mut self.max_tres_run_mins_account, key, value)?;
            }
            "maxtrespernode" | "maxtrespn" => set_amounts(&mut self.max_tres_node, key, value)?,
            "maxjobsperaccount" | "maxjobsperacct" | "maxjobspa" if qos => {
                self.max_jobs_account = number()?
            }
            "maxsubmitjobsperaccount"
            | "maxsubmitjobsperacct"
            | "maxsubmitpa"
            | "maxsubmitjobspa"
                if qos =>
            {
                self.max_submit_account = number()?;
            }
            "maxtresperaccount" | "maxtresperacct" | "maxtrespa" if qos => {
                set_amounts(&mut self.max_tres_account, key, value)?;
            }
            "mintres" | "mintresperjob" | "mintrespj" if qos => {
                set_amounts(&mut self.min_tres, key, value)?;
            }
            "maxjobs" if !qos => self.max_jobs = number()?,
            "maxsubmit" | "maxsubmitjobs" if !qos => self.max_submit = number()?,
            "maxjobsperuser" | "maxjobspu" | "maxjobs" => self.max_jobs = number()?,
            "maxsubmitjobsperuser"
            | "maxsubmitpu"
            | "maxsubmitjobspu"
            | "maxsubmit"
            | "maxsubmitjobs" => self.max_submit = number()?,
            "maxtres" | "maxtresperjob" | "maxtrespj" => {
                set_amounts(&mut self.max_tres, key, value)?;
            }
            "minpriothreshold" | "minpriothresh" | "minprio" => {
                self.min_priority = number()?;
            }
            "maxtresperuser" | "maxtrespu" if qos => {
                set_amounts(&mut self.max_tres_user, key, value)?;
            }
            "maxwall" | "maxwalldurationperjob" => self.max_wall_min = minutes(key, value)?,
            _ => return Err(format!("{key} {NOT_KEPT}")),
        }
        Ok(())
    }

    /// Takes over limits of each job and of users that are not set here from an account above.
    pub fn inherit(&mut self, above: &Limits) {
        self.max_jobs = self.max_jobs.or(above.max_jobs);
        self.max_submit = self.max_submit.or(above.max_submit);
        self.max_jobs_accrue = self.max_jobs_accrue.or(above.max_jobs_accrue);
        self.max_wall_min = self.max_wall_min.or(above.max_wall_min);
        for (own, above) in [
            (&mut self.max_tres, &above.max_tres),
            (&mut self.max_tres_mins, &above.max_tres_mins),
            (&mut self.max_tres_node, &above.max_tres_node),
        ] {
            own.inherit(above);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

fn minutes(key: &str, value: &str) -> Result<Option<u32>, String> {
    match (value, value.parse()) {
        ("-1", _) | (_, Ok(TimeLimit::Unlimited)) => Ok(None),
        (_, Ok(TimeLimit::Minutes(minutes))) => Ok(Some(minutes)),
        (_, Err(_)) => Err(format!("{key}={value}: expected a time")),
    }
}

/// Resources that one limit names.
const LIMIT_TRES_MAX: usize = 256;

/// Bytes of the name of a resource.
const TRES_BYTES_MAX: usize = 255;

fn set_amounts(amounts: &mut TresAmounts, key: &str, value: &str) -> Result<(), String> {
    let mut changes = Vec::new();
    for word in value.split(',').filter(|w| !w.is_empty()) {
        let wrong = |why: &str| format!("{key}={word}: {why}");
        let (name, count) = word
            .split_once('=')
            .ok_or_else(|| wrong("expected name=number, as in cpu=4"))?;
        let name = name.to_ascii_lowercase();
        if name.len() > TRES_BYTES_MAX {
            let bytes = name.len();
            return Err(format!(
                "{key}: the name of a TRES has {bytes} bytes, the limit is {TRES_BYTES_MAX}"
            ));
        }
        // Older records may have limits of others, which can be removed.
        if count != "-1" && !is_tres(&name) {
            return Err(wrong(
                "there is no such TRES; see sacctmgr show tres, gres/NAME and license/NAME",
            ));
        }
        if count == "-1" {
            changes.push((name, None));
            continue;
        }
        let number = amount(&name, count).ok_or_else(|| wrong("expected a number"))?;
        changes.push((name, Some(number)));
    }
    // Older records may have more, of which some can be taken away.
    let most = amounts.len().max(LIMIT_TRES_MAX);
    amounts.set_each(changes);
    match amounts.len() <= most {
        true => Ok(()),
        false => Err(format!("{key}: more than {LIMIT_TRES_MAX} TRES")),
    }
}

/// Whether a limit can be set for a TRES of that name. No job is counted by energy, virtual memory, pages and disks, whose limits
/// have no effect, as in Slurm.
pub fn is_tres(name: &str) -> bool {
    let whole = [
        "cpu", "mem", "energy", "node", "billing", "vmem", "pages", "fs/disk",
    ];
    let typed = ["gres/", "license/"];
    whole.contains(&name)
        || typed
            .iter()
            .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}

/// A number with a unit; memory is MiB without one.
fn amount(name: &str, text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let units = "KMGTP";
    let unit = upper.chars().next_back().and_then(|c| units.find(c));
    let digits = unit.map_or(upper.as_str(), |_| &upper[..upper.len() - 1]);
    let number: u64 = digits.parse().ok()?;
    let power = match (unit, name) {
        (None, _) => return Some(number),
        (Some(0), "mem") => return Some(number.div_ceil(1024)),
        (Some(unit), "mem") => unit - 1,
        (Some(unit), _) => unit + 1,
    };
    let factor = 1u64.checked_shl(u32::try_from(power * 10).ok()?)?;
    Some(number.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(limits: &mut Limits, key: &str, value: &str) -> Result<(), String> {
        limits.set(&LimitAsk::new(key, value), false)
    }

    #[test]
    fn every_tres_has_limits() {
        let mut limits = Limits::default();
        let all = "billing=10,license/MATLAB=2,gres/gpu:A100=1,mem=2G,cpu=1K";
        set(&mut limits, "grptres", all).unwrap();
        let of = |name: &str| limits.grp_tres.get(name);
        assert_eq!(
            (of("mem"), of("cpu"), of("license/matlab")),
            (Some(2048), Some(1024), Some(2))
        );
        let uncounted = "energy=5,vmem=4,pages=0,fs/disk=4";
        set(&mut limits, "grptres", uncounted).unwrap();
        let of = |name: &str| limits.grp_tres.get(name);
        assert_eq!((of("fs/disk"), of("pages")), (Some(4), Some(0)));
        // Older records have limits of others.
        limits.grp_tres = [("energy", 5), ("vmem", 4), ("ic/ofed", 1)]
            .into_iter()
            .collect();
        set(
            &mut limits,
            "grptres",
            "energy=-1,ENERGY=-1,billing=-1,ic/ofed=-1",
        )
        .unwrap();
        let named = |limits: &Limits, name: &str| limits.grp_tres.get(name).is_some();
        assert!(!named(&limits, "energy") && !named(&limits, "ic/ofed") && named(&limits, "vmem"));
        for (value, why) in [
            ("nosuch=1", "no such TRES"),
            ("ic/ofed=1", "no such TRES"),
            ("gres/=1", "no such TRES"),
            ("cpu", "expected name=number"),
            ("cpu=abc", "expected a number"),
            ("cpu=99999999999999999999", "expected a number"),
        ] {
            let error = set(&mut limits, "grptres", value).unwrap_err();
            assert!(error.contains(why), "{value}: {error}");
        }
    }

    #[test]
    fn what_is_not_set_is_inherited_by_tres() {
        let (mut own, mut above) = (Limits::default(), Limits::default());
        set(&mut own, "maxtres", "cpu=2").unwrap();
        set(&mut above, "maxtres", "cpu=9,node=4").unwrap();
        set(&mut above, "grpjobs", "3").unwrap();
        own.inherit(&above);
        let expected = TresAmounts::from_iter([("cpu", 2), ("node", 4)]);
        assert_eq!(own.max_tres, expected);
        assert_eq!(own.grp_jobs, None, "that of a group holds there");
    }
}
