//! Power saving settings of slurm.conf, for the core.

use crate::model::Config;
use muster_model::hostlist;
use muster_model::power::{PowerConfig, SuspendException};
use std::collections::BTreeSet;

impl Config {
    /// Power saving; none unless both `SuspendProgram` and `ResumeProgram` are named.
    pub(crate) fn power_config(&self) -> Option<PowerConfig> {
        if !(self.names_program("SuspendProgram") && self.names_program("ResumeProgram")) {
            return None;
        }
        let number = |key: &str| {
            self.text(key)
                .and_then(|text| text.trim().parse::<u32>().ok())
        };
        let states = self.text("SuspendExcStates").unwrap_or_default();
        let words = states.split(',').map(|w| w.trim().to_ascii_uppercase());
        Some(PowerConfig {
            // INFINITE and -1 are no such number.
            suspend_time_s: number("SuspendTime"),
            suspend_timeout_s: number("SuspendTimeout").unwrap_or(30),
            resume_timeout_s: number("ResumeTimeout").unwrap_or(60),
            suspend_rate: number("SuspendRate").unwrap_or(60),
            resume_rate: number("ResumeRate").unwrap_or(300),
            keep: self.kept().1,
            except_states: words.filter(|w| !w.is_empty()).collect(),
        })
    }

    /// Nodes that are never powered down because they idle: `SuspendExcParts`, and `SuspendExcNodes` without counts.
    pub(crate) fn nodes_that_stay_up(&self) -> BTreeSet<String> {
        let mut nodes = self.kept().0;
        let parts = self.text("SuspendExcParts").unwrap_or_default();
        for name in parts.split(',').map(str::trim) {
            let partition = self.partitions.iter().find(|p| p.name == name);
            let of_partition = partition.iter().flat_map(|p| &p.nodes);
            nodes.extend(of_partition.map(|&i| self.nodes[i].name.clone()));
        }
        nodes
    }

    /// `SuspendExcNodes`: nodes without a count, and sets with one. A count stands behind the last of its set's names;
    /// names that follow the last count have none.
    fn kept(&self) -> (BTreeSet<String>, Vec<SuspendException>) {
        let text = self.text("SuspendExcNodes").unwrap_or_default();
        let (mut kept, mut names) = (Vec::new(), Vec::new());
        for part in split(text) {
            let (hosts, count) = match part.rsplit_once(':') {
                Some((hosts, count)) => (hosts, count.parse::<u32>().ok()),
                None => (part, None),
            };
            names.extend(hostlist::parse(hosts).unwrap_or_default());
            if let Some(count) = count {
                let nodes = std::mem::take(&mut names);
                kept.push(SuspendException { nodes, count });
            }
        }
        (names.into_iter().collect(), kept)
    }
}

/// Splits at commas outside brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && c == ','
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::load_text;
    use muster_model::power::{PowerConfig, SuspendException};
    use std::path::Path;

    fn cluster(lines: &str) -> muster_model::config::ClusterConfig {
        let text = format!(
            "ClusterName=c\nSlurmctldHost=h\n{lines}\nNodeName=n[1-9] CPUs=4\nPartitionName=a Nodes=n[1-9] Default=YES\n\
             PartitionName=b Nodes=n[8-9]\n"
        );
        let (config, findings) = load_text(Path::new("slurm.conf"), &text);
        assert!(findings.is_empty(), "{findings:?}");
        config.cluster(&[], &|_| None)
    }

    #[test]
    fn programs_turn_it_on() {
        assert_eq!(cluster("SuspendTime=60\nSuspendProgram=/bin/s").power, None);
        let power = cluster("SuspendProgram=/bin/s\nResumeProgram=/bin/r").power;
        let expected = PowerConfig {
            suspend_time_s: None,
            suspend_timeout_s: 30,
            resume_timeout_s: 60,
            suspend_rate: 60,
            resume_rate: 300,
            keep: Vec::new(),
            except_states: Vec::new(),
        };
        assert_eq!(power, Some(expected));
        let power = cluster(
            "SuspendProgram=/bin/s\nResumeProgram=/bin/r\nSuspendTime=5\nSuspendExcStates=down,DRAIN\nResumeRate=0",
        )
        .power
        .unwrap();
        assert_eq!((power.suspend_time_s, power.resume_rate), (Some(5), 0));
        assert_eq!(power.except_states, ["DOWN", "DRAIN"]);
    }

    #[test]
    fn some_nodes_stay_up() {
        let c = cluster(
            "SuspendProgram=/bin/s\nResumeProgram=/bin/r\nSuspendExcNodes=n[1-2],n3:2,n[4-5]\nSuspendExcParts=b",
        );
        let up = c.nodes.iter().filter(|n| n.stays_up == Some(true));
        let up: Vec<&str> = up.map(|n| n.name.as_str()).collect();
        assert_eq!(up, ["n4", "n5", "n8", "n9"]);
        let nodes = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        assert_eq!(
            c.power.unwrap().keep,
            [SuspendException { nodes, count: 2 }]
        );
    }
}
