//! Devices of nodes as the core knows them, from `Gres` of slurm.conf and the lines of gres.conf: their files, the CPUs
//! next to them, and which parts are of which GPU (`mps`, `shard`).

use crate::files::GresLine;
use crate::model::{GresCount, NodeDef};
use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::{MPS, PartsOfGpus, is_part};
use muster_model::job::GpuEnv;
use muster_model::node::GresConfig;
use muster_model::spec::GPU;

/// CPUs of a core: its threads, or one where CPUs count cores.
fn cpus_of(node: &NodeDef, core: u32) -> std::ops::Range<u32> {
    let all = node.sockets.saturating_mul(node.cores_per_socket).max(1);
    let threads = (node.cpus / all).max(1);
    core * threads..(core + 1) * threads
}

/// A kind of devices of a node: how many there are by slurm.conf, and what gres.conf says of them.
pub(crate) fn gres_config(node: &NodeDef, gres: &GresCount, lines: &[GresLine]) -> GresConfig {
    let on_node = |line: &&GresLine| line.nodes.is_empty() || line.nodes.contains(&node.name);
    let same = |line: &&GresLine| {
        let model = gres.model.is_none() || line.model.is_none() || gres.model == line.model;
        line.name == gres.name && model
    };
    let (mut files, mut near, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let mut labels = Vec::new();
    for line in lines.iter().filter(on_node).filter(same) {
        let cores = line.cores.iter().flat_map(|core| cpus_of(node, *core));
        let cpus: CpuSet = cores.filter(|cpu| *cpu < node.cpus).collect();
        // A line without cores is near all of them.
        let cpus = if cpus.is_empty() {
            CpuSet::first(node.cpus)
        } else {
            cpus
        };
        let instances = usize::try_from(line.count.min(1024)).unwrap_or(0);
        near.extend(std::iter::repeat_n(cpus, instances));
        links.extend(std::iter::repeat_n(line.links.clone(), instances));
        labels.extend(line.labels.iter().cloned());
        match line.one_device {
            // Files of one device stay together, as one entry for one instance.
            true => files.push(line.files.join(",")),
            false => files.extend(line.files.iter().cloned()),
        }
    }
    files.truncate(usize::try_from(gres.count).unwrap_or(usize::MAX));
    near.truncate(usize::try_from(gres.count).unwrap_or(usize::MAX));
    links.truncate(usize::try_from(gres.count).unwrap_or(usize::MAX));
    // Where a line names none, those that others name would not be by instance.
    if u64::try_from(labels.len()).unwrap_or(0) != gres.count {
        labels.clear();
    }
    if lines.iter().all(|line| line.cores.is_empty()) {
        near.clear();
    }
    if links.iter().all(Vec::is_empty) {
        links.clear();
    }
    let of_node = lines.iter().filter(on_node).filter(same);
    let flags = of_node.flat_map(|line| line.flags.iter().map(String::as_str));
    if is_part(&gres.name) && gpus_of(node) > 0 {
        return parts_config(node, gres, lines);
    }
    GresConfig {
        parts: None,
        no_consume: gres.no_consume,
        env: GpuEnv::from_flags(flags),
        name: gres.name.clone(),
        kind: gres.model.clone(),
        count: gres.count,
        files,
        near,
        links,
        labels,
    }
}

fn gpus_of(node: &NodeDef) -> usize {
    let gpus = node.gres.iter().filter(|gres| gres.name == GPU);
    gpus.map(|gres| usize::try_from(gres.count.min(1024)).unwrap_or(0))
        .sum()
}

/// Parts of GPUs: as many of each as gres.conf says for its device file, else the same number of all. Cores, and the
/// variables that tell programs of them, are those of the GPUs.
fn parts_config(node: &NodeDef, gres: &GresCount, lines: &[GresLine]) -> GresConfig {
    let whole: Vec<GresConfig> = (node.gres.iter())
        .filter(|other| other.name == GPU)
        .map(|other| gres_config(node, other, lines))
        .collect();
    let files: Vec<&String> = whole.iter().flat_map(|gpus| &gpus.files).collect();
    let on_node = |line: &&GresLine| line.nodes.is_empty() || line.nodes.contains(&node.name);
    let own = || {
        let named = lines.iter().filter(|line| line.name == gres.name);
        named.filter(on_node)
    };
    let mut of = vec![0u32; gpus_of(node)];
    if own().any(|line| !line.files.is_empty()) {
        for line in own() {
            let count = u32::try_from(line.count).unwrap_or(u32::MAX);
            for file in &line.files {
                if let Some(at) = files.iter().position(|known| *known == file) {
                    of[at] = of[at].saturating_add(count);
                }
            }
        }
    } else {
        let all = u64::try_from(of.len()).unwrap_or(u64::MAX).max(1);
        let (each, more) = (gres.count / all, gres.count % all);
        for (at, n) in of.iter_mut().enumerate() {
            let one_more = u64::from((at as u64) < more);
            *n = u32::try_from(each + one_more).unwrap_or(u32::MAX);
        }
    }
    // A flag on one line is meant for all of the name.
    let named = lines.iter().filter(|line| line.name == gres.name);
    let flags: Vec<&String> = named.flat_map(|line| &line.flags).collect();
    let flag = |word: &str| flags.iter().any(|flag| flag.eq_ignore_ascii_case(word));
    let near_of_gpu = whole.iter().flat_map(|gpus| {
        let known = gpus.near.iter().cloned().map(Some);
        let count = usize::try_from(gpus.count.min(1024)).unwrap_or(0);
        known.chain(std::iter::repeat(None)).take(count)
    });
    let near: Option<Vec<CpuSet>> = (near_of_gpu.zip(&of))
        .flat_map(|(near, parts)| std::iter::repeat_n(near, *parts as usize))
        .collect();
    GresConfig {
        name: gres.name.clone(),
        kind: gres.model.clone(),
        count: of.iter().copied().map(u64::from).sum(),
        links: Vec::new(),
        labels: Vec::new(),
        files: Vec::new(),
        near: near.unwrap_or_default(),
        env: whole.first().map_or(GpuEnv::default(), |gpus| gpus.env),
        parts: Some(PartsOfGpus {
            of,
            one_gpu: flag("one_sharing") || (gres.name == MPS && !flag("all_sharing")),
        }),
        no_consume: gres.no_consume,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;
    use std::path::Path;

    fn parts(gres: &str, gres_conf: &str) -> GresConfig {
        let text = format!(
            "ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu,mps,shard,lustre\n\
             NodeName=n CPUs=8 Gres={gres}\nPartitionName=p Nodes=n Default=YES\n"
        );
        let (config, findings) = load_text(Path::new("slurm.conf"), &text);
        assert!(findings.is_empty(), "{findings:?}");
        let read = |_: &Path| Ok(gres_conf.as_bytes().to_vec());
        let (lines, findings) = crate::files::load_gres_with(Path::new("gres.conf"), &read);
        assert!(findings.is_empty(), "{findings:?}");
        let cluster = config.cluster(&lines, &|_| None);
        cluster.nodes[0].gres.last().cloned().unwrap()
    }

    fn of(gres: &GresConfig) -> (Vec<u32>, bool) {
        let parts = gres.parts.clone().unwrap();
        (parts.of, parts.one_gpu)
    }

    #[test]
    fn instances_have_the_identifiers_of_a_resource_map() {
        let labels = |gres_conf: &str| parts("gpu:4", gres_conf).labels;
        assert_eq!(
            labels("Name=gpu ResourceMap=\"4(0-2 7)\"\n"),
            ["0", "1", "2", "7"]
        );
        assert_eq!(
            labels("Name=gpu ResourceMap=\"gpu=4(g0 g0 g1 g1)\"\n"),
            ["g0", "g0", "g1", "g1"]
        );
        let two = "NodeName=n Name=gpu ResourceMap=2(A B) File=/dev/a[0-1]\nName=gpu ResourceMap=\"2(C D)\"\n";
        let two = two.replace("2(A B)", "\"2(A B)\"");
        assert_eq!(labels(&two), ["A", "B", "C", "D"]);
        // Not all of them are named.
        assert_eq!(
            labels("Name=gpu ResourceMap=\"2(A B)\"\nName=gpu Count=2\n"),
            [""; 0]
        );
        let complaint = |gres_conf: &str| {
            let read = |_: &Path| Ok(gres_conf.as_bytes().to_vec());
            let (_, found) = crate::files::load_gres_with(Path::new("gres.conf"), &read);
            found.first().map(|f| f.message.clone()).unwrap_or_default()
        };
        for (map, wanted) in [
            ("3(0 1)", "it says 3, and names 2"),
            ("2(1-0 4)", "not a valid range"),
            ("2(0:SCC 1:Scc)", "masks and characteristics"),
            ("0 1", "is not AMOUNT(IDS)"),
            ("0()", "it names 0"),
            ("1(0-99999)", "not a valid range"),
        ] {
            let text = format!("Name=gpu ResourceMap=\"{map}\"\n");
            assert!(
                complaint(&text).contains(wanted),
                "{map}: {}",
                complaint(&text)
            );
        }
        let counted = complaint("Name=gpu Count=3 ResourceMap=\"2(0 1)\"\n");
        assert!(
            counted.contains("Count=3, but ResourceMap names 2"),
            "{counted}"
        );
    }

    #[test]
    fn parts_are_spread_over_gpus_or_counted_by_file() {
        assert_eq!(of(&parts("gpu:2,mps:200", "")), (vec![100, 100], true));
        let shards = parts("gpu:a:1,gpu:b:2,shard:8", "Name=shard Count=8\n");
        assert_eq!(of(&shards), (vec![3, 3, 2], false));
        let by_file = "Name=gpu Type=a File=/dev/nvidia0 Cores=0-3\n\
                       Name=gpu Type=b File=/dev/nvidia1 Cores=4-7 Flags=nvidia_gpu_env\n\
                       Name=mps Count=300 File=/dev/nvidia1 Flags=all_sharing\n\
                       Name=mps Count=200 File=/dev/nvidia0\n";
        let mps = parts("gpu:a:1,gpu:b:1,mps:500", by_file);
        assert_eq!(of(&mps), (vec![200, 300], false));
        assert_eq!((mps.count, mps.near.len()), (500, 500));
        assert!(mps.near[199].contains(3) && mps.near[200].contains(4));
        assert!(parts("gpu:1,lustre:no_consume:4", "").no_consume);
    }
}
