//! `--gpu-bind` and `--tres-bind` of srun(1): which GPUs of a step each of its tasks sees. Jobs and steps keep the
//! text; this is its parsed form.

use crate::cpuset::CpuSet;
use crate::job::GresShare;
use crate::spec::GPU;

/// A binding that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuBind {
    /// Tasks print their binding.
    pub verbose: bool,
    /// To what.
    pub kind: GpuBindKind,
}

/// The GPUs that tasks are bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GpuBindKind {
    /// Every task sees all GPUs of the step.
    #[default]
    None,
    /// The GPUs next to the task's CPUs.
    Closest,
    /// One GPU, shared by this many tasks.
    Single(u32),
    /// A number of GPUs for each task alone.
    PerTask(u32),
    /// By number, for each task in turn.
    Map(Vec<u32>),
    /// Sets of numbers, for each task in turn.
    Mask(Vec<CpuSet>),
}

/// A GPU of a step on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number on the node.
    pub number: u32,
    /// CPUs next to it; absent if that is not known.
    pub near: Option<CpuSet>,
}

impl GpuBind {
    /// Reads the text of the option.
    ///
    /// # Errors
    /// The word that is not understood.
    pub fn parse(text: &str) -> Result<GpuBind, String> {
        let (mut bind, mut rest) = (GpuBind::default(), text);
        let lower = text.to_ascii_lowercase();
        for word in ["verbose,", "v,"] {
            if lower.starts_with(word) {
                bind.verbose = true;
                rest = &text[word.len()..];
            }
        }
        let (kind, list) = rest.split_once(':').unwrap_or((rest, ""));
        let bad = || rest.to_owned();
        let number = || list.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(bad);
        bind.kind = match kind.to_ascii_lowercase().as_str() {
            "none" => GpuBindKind::None,
            "closest" => GpuBindKind::Closest,
            "single" => GpuBindKind::Single(number()?),
            "per_task" => GpuBindKind::PerTask(number()?),
            "map_gpu" | "map" => {
                let one = |item: &str| parse_number(item);
                GpuBindKind::Map(repeated(list, one).ok_or_else(bad)?)
            }
            "mask_gpu" | "mask" => GpuBindKind::Mask(repeated(list, parse_mask).ok_or_else(bad)?),
            _ => return Err(bad()),
        };
        Ok(bind)
    }

    /// Parses the part of `--tres-bind` about GPUs.
    ///
    /// # Errors
    /// A value that is not understood, or is about another TRES.
    pub fn parse_tres(text: &str) -> Result<String, String> {
        let mut found = None;
        for item in text.split('+') {
            let name = item.strip_prefix("gres/").or(item.strip_prefix("gres:"));
            let Some((GPU, bind)) = name.unwrap_or(item).split_once(':') else {
                return Err(item.to_owned());
            };
            GpuBind::parse(bind)?;
            found = Some(bind.to_owned());
        }
        found.ok_or_else(|| text.to_owned())
    }

    /// GPU numbers by task of a node, given the CPUs that each task may use, where that is known. Empty if tasks are
    /// not bound.
    pub fn tasks(
        &self,
        gpus: &[Gpu],
        tasks: u32,
        cpus: impl Fn(u32) -> Option<CpuSet>,
    ) -> Vec<CpuSet> {
        let all: CpuSet = gpus.iter().map(|gpu| gpu.number).collect();
        if gpus.is_empty() {
            return Vec::new();
        }
        let nth = |n: u64| gpus[(n % gpus.len() as u64) as usize].number;
        let closest = |task: u32| -> CpuSet {
            let Some(cpus) = cpus(task) else {
                return all.clone();
            };
            let near = |gpu: &&Gpu| gpu.near.as_ref().is_none_or(|near| near.intersects(&cpus));
            let near: CpuSet = gpus.iter().filter(near).map(|gpu| gpu.number).collect();
            if near.is_empty() { all.clone() } else { near }
        };
        let each: Box<dyn Fn(u32) -> CpuSet> = match &self.kind {
            GpuBindKind::None => return Vec::new(),
            GpuBindKind::Closest => Box::new(closest),
            GpuBindKind::Single(sharing) => Box::new(move |task| {
                let own = closest(task);
                // Which of those who have the same GPUs near them it is.
                let before = (0..task).filter(|other| closest(*other) == own).count();
                let all: Vec<u32> = own.iter().collect();
                let turn = before / (*sharing).max(1) as usize;
                [all[turn % all.len()]].into_iter().collect()
            }),
            GpuBindKind::PerTask(each) => Box::new(move |task| {
                // After all of them they begin again.
                let first = u64::from(task) * u64::from(*each);
                let count = u64::from(*each).min(gpus.len() as u64);
                (first..first + count).map(nth).collect()
            }),
            GpuBindKind::Map(list) => {
                Box::new(|task| [list[task as usize % list.len()]].into_iter().collect())
            }
            GpuBindKind::Mask(list) => Box::new(|task| list[task as usize % list.len()].clone()),
        };
        (0..tasks).map(each).collect()
    }
}

/// The GPUs of a share.
pub fn gpus_of(shares: &[GresShare]) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = (shares.iter().filter(|share| share.name == GPU))
        .flat_map(|share| {
            let near = share.near.iter().cloned().map(Some);
            let near = near.chain(std::iter::repeat(None));
            share
                .numbers()
                .zip(near)
                .map(|(number, near)| Gpu { number, near })
        })
        .collect();
    gpus.sort_by_key(|gpu| gpu.number);
    gpus
}

/// Entries of which each may be followed by `*TIMES`.
fn repeated<T: Clone>(list: &str, one: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    /// Longest list that repetition may make.
    const LONGEST: usize = 65_536;
    let mut out = Vec::new();
    for item in list.split(',') {
        let (item, times) = item.split_once('*').unwrap_or((item, "1"));
        let times: usize = times
            .parse()
            .ok()
            .filter(|n| *n > 0 && *n <= LONGEST - out.len())?;
        out.extend(std::iter::repeat_n(one(item)?, times));
    }
    Some(out)
}

fn parse_number(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number < 1024).then_some(number)
}

fn parse_mask(text: &str) -> Option<CpuSet> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let mask = u128::from_str_radix(digits, 16).ok()?;
    let set: CpuSet = (0..128).filter(|bit| mask & (1 << bit) != 0).collect();
    (!set.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four GPUs, two next to each half of eight CPUs.
    fn gpus() -> Vec<Gpu> {
        let near = |number: u32| (number / 2 * 4..number / 2 * 4 + 4).collect::<CpuSet>();
        (0..4)
            .map(|number| Gpu {
                number,
                near: Some(near(number)),
            })
            .collect()
    }

    /// Tasks on CPUs 0, 4, 1, 5, ...
    fn cpus(task: u32) -> Option<CpuSet> {
        Some([task % 2 * 4 + task / 2].into_iter().collect())
    }

    fn bound(text: &str, tasks: u32) -> Vec<Vec<u32>> {
        let bind = GpuBind::parse(text).unwrap();
        let sets = bind.tasks(&gpus(), tasks, cpus);
        sets.iter().map(|set| set.iter().collect()).collect()
    }

    /// The agent counts them, for a client that may ask for any number.
    #[test]
    fn more_gpus_for_a_task_than_there_are_cost_no_more() {
        assert_eq!(bound("per_task:3", 2), [[0, 1, 2], [0, 1, 3]]);
        for each in [5, u32::MAX] {
            assert_eq!(bound(&format!("per_task:{each}"), 2), [[0, 1, 2, 3]; 2]);
        }
        let most = "18446744073709551615";
        for list in [
            format!("map_gpu:1,1*{most}"),
            format!("mask_gpu:1,1*{most}"),
        ] {
            assert!(GpuBind::parse(&list).is_err(), "{list}");
        }
    }

    #[test]
    fn tasks_see_what_they_are_bound_to() {
        assert_eq!(bound("none", 2), Vec::<Vec<u32>>::new());
        assert_eq!(bound("closest", 2), [[0, 1], [2, 3]]);
        assert_eq!(bound("single:1", 4), [[0], [2], [1], [3]]);
        assert_eq!(bound("single:2", 4), [[0], [2], [0], [2]]);
        assert_eq!(bound("per_task:2", 2), [[0, 1], [2, 3]]);
        assert_eq!(bound("verbose,map_gpu:0*2,0x3", 4), [[0], [0], [3], [0]]);
        assert_eq!(bound("mask_gpu:0x3,c", 2), [[0, 1], [2, 3]]);
        let unknown = GpuBind::parse("closest")
            .unwrap()
            .tasks(&gpus(), 1, |_| None);
        assert_eq!(unknown[0].len(), 4);
        assert!(GpuBind::parse("v,none").unwrap().verbose);
    }

    #[test]
    fn what_is_not_understood() {
        for text in [
            "",
            "foo",
            "single",
            "single:0",
            "map_gpu:",
            "map_gpu:a",
            "mask_gpu:0",
            "map_gpu:1*0",
        ] {
            assert!(GpuBind::parse(text).is_err(), "{text}");
        }
        let tres = |text: &str| GpuBind::parse_tres(text);
        assert_eq!(tres("gres/gpu:single:2"), Ok("single:2".to_owned()));
        assert_eq!(tres("gpu:closest"), Ok("closest".to_owned()));
        assert!(tres("gres/nic:closest").is_err() && tres("gres/gpu:foo").is_err());
    }
}
