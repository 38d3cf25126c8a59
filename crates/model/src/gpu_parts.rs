//! GPUs that jobs share by parts, `mps` and `shard`: which parts are of which GPU, and which of a node's GPUs and parts
//! cannot be had because of others in use. A GPU is given out whole or in parts, not both at once.

use crate::cpuset::CpuSet;
use crate::spec::GPU;
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::borrow::Cow;
use std::ops::Range;

/// Parts of GPUs under CUDA's Multi-Process Service; programs get their percentage.
pub const MPS: &str = "mps";
/// Parts of GPUs that are only counted.
pub const SHARD: &str = "shard";

/// Whether devices of this name are parts of GPUs.
pub fn is_part(name: &str) -> bool {
    name == MPS || name == SHARD
}

/// Distribution of the parts of an entry of a node's devices over the node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct PartsOfGpus {
    /// Parts that each GPU has, in the order of the GPUs' numbers.
    #[n(0)]
    pub of: Vec<u32>,
    /// Parts of one GPU at a time are given out (`one_sharing`).
    #[n(1)]
    pub one_gpu: bool,
}

impl PartsOfGpus {
    /// The GPUs, each with the instances that are parts of it.
    pub fn gpus(&self) -> impl Iterator<Item = (u32, Range<u32>)> + '_ {
        let mut first = 0u32;
        self.of.iter().zip(0u32..).map(move |(count, gpu)| {
            let range = first..first.saturating_add(*count);
            first = range.end;
            (gpu, range)
        })
    }

    /// Parts of the GPU that has most.
    pub fn most(&self) -> u32 {
        self.of.iter().copied().max().unwrap_or(0)
    }
}

/// The parts of one GPU that a share is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct PartedGpu {
    /// The GPU's number on its node.
    #[n(0)]
    pub gpu: u32,
    /// The first instance that is a part of it.
    #[n(1)]
    pub first: u32,
    /// Number of parts.
    #[n(2)]
    pub count: u32,
}

/// One entry of a node's devices.
#[derive(Clone, Copy, Debug)]
pub struct GresEntry<'a> {
    /// The name of the devices.
    pub name: &'a str,
    /// Number of devices.
    pub count: u64,
    /// Set if they are parts of GPUs.
    pub parts: Option<&'a PartsOfGpus>,
}

/// Instances of each entry that nobody can have, `used` being what jobs have: these, and for the sake of GPUs that are
/// shared those that are in use in the other way.
pub fn unavailable<'u>(entries: &[GresEntry<'_>], used: &'u [CpuSet]) -> Cow<'u, [CpuSet]> {
    if entries.iter().all(|entry| entry.parts.is_none()) || used.iter().all(CpuSet::is_empty) {
        return Cow::Borrowed(used);
    }
    let used_of = |at: usize| used.get(at).cloned().unwrap_or_default();
    let mut out: Vec<CpuSet> = (0..entries.len()).map(used_of).collect();
    let whole = whole_gpus(entries, used);
    let parted: Vec<CpuSet> = (entries.iter().enumerate())
        .map(|(at, entry)| match entry.parts {
            Some(parts) => gpus_with(parts, &used_of(at)),
            None => CpuSet::default(),
        })
        .collect();
    let mut first = 0u32;
    for (at, entry) in entries.iter().enumerate() {
        if entry.name == GPU {
            let count = u32::try_from(entry.count).unwrap_or(u32::MAX);
            let shared = parted.iter().flat_map(CpuSet::iter);
            let own = first..first.saturating_add(count);
            shared
                .filter(|gpu| own.contains(gpu))
                .for_each(|gpu| out[at].insert(gpu - first));
            first = own.end;
        }
        let Some(parts) = entry.parts else { continue };
        let others = |gpu: u32| {
            let mut all = parted.iter().enumerate();
            all.any(|(other, gpus)| other != at && gpus.contains(gpu))
        };
        let mine = &parted[at];
        for (gpu, range) in parts.gpus() {
            let closed = parts.one_gpu && !mine.is_empty() && !mine.contains(gpu);
            if closed || whole.contains(gpu) || others(gpu) {
                range.for_each(|part| out[at].insert(part));
            }
        }
    }
    Cow::Owned(out)
}

/// Numbers of the GPUs that jobs have as a whole.
fn whole_gpus(entries: &[GresEntry<'_>], used: &[CpuSet]) -> CpuSet {
    let (mut whole, mut first) = (CpuSet::default(), 0u32);
    for (at, entry) in entries.iter().enumerate().filter(|(_, e)| e.name == GPU) {
        let ids = used.get(at).into_iter().flat_map(CpuSet::iter);
        ids.for_each(|id| whole.insert(first.saturating_add(id)));
        first = first.saturating_add(u32::try_from(entry.count).unwrap_or(u32::MAX));
    }
    whole
}

/// Numbers of the GPUs of which some parts are in use.
fn gpus_with(parts: &PartsOfGpus, used: &CpuSet) -> CpuSet {
    let gpus = parts.gpus();
    gpus.filter(|(_, range)| range.clone().any(|part| used.contains(part)))
        .map(|(gpu, _)| gpu)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u32]) -> CpuSet {
        ids.iter().copied().collect()
    }

    /// Unavailable parts of two GPUs, one a model of its own, with four parts each.
    fn blocked(one_gpu: bool, used: [&[u32]; 3]) -> Vec<Vec<u32>> {
        let parts = PartsOfGpus {
            of: vec![4, 4],
            one_gpu,
        };
        let entry = |name, count, parts| GresEntry { name, count, parts };
        let entries = [
            entry(GPU, 1, None),
            entry(GPU, 1, None),
            entry(SHARD, 8, Some(&parts)),
        ];
        let used = used.map(set);
        let out = unavailable(&entries, &used);
        out.iter().map(|s| s.iter().collect()).collect()
    }

    #[test]
    fn a_gpu_is_given_out_whole_or_in_parts() {
        assert_eq!(blocked(false, [&[], &[], &[]]), [[0u32; 0]; 3]);
        assert_eq!(
            blocked(false, [&[], &[0], &[]]),
            [vec![], vec![0], vec![4, 5, 6, 7]]
        );
        assert_eq!(blocked(false, [&[], &[], &[1]]), [vec![0], vec![], vec![1]]);
        assert_eq!(
            blocked(true, [&[], &[], &[5]]),
            [vec![], vec![0], vec![0, 1, 2, 3, 5]]
        );
    }
}
