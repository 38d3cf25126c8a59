//! Settings of directories that jobs have to themselves, for nodes, from the job_container.conf beside slurm.conf.

use log::warn;
use muster_conf::Config;
use muster_conf::job_container::{self, ContainerLine};
use muster_model::hostlist;
use muster_proto::job_container::ContainerSettings;

/// The settings, by node; none where slurm.conf does not ask for such directories.
pub(super) fn settings(config: &Config) -> Vec<ContainerSettings> {
    let path = config.path.with_file_name(job_container::FILE);
    if !config.has_job_containers() || !path.is_file() {
        return Vec::new();
    }
    let (lines, found) = job_container::load(&path);
    found.iter().for_each(|finding| warn!("{finding}"));
    lines.into_iter().map(settings_of).collect()
}

fn settings_of(line: ContainerLine) -> ContainerSettings {
    ContainerSettings {
        nodes: line.nodes,
        base: line.base.unwrap_or_default(),
        auto_base: line.auto_base,
        dirs: line.dirs,
        shared: line.shared,
        init_script: line.init_script,
        clone_script: line.clone_script.0,
        clone_script_wait_s: line.clone_script.1,
        clone_epilog: line.clone_epilog.0,
        clone_epilog_wait_s: line.clone_epilog.1,
    }
}

/// The settings of one node: its own line if there is one, else the line for all others. A line without a directory means that
/// it has none.
pub(crate) fn of_node(all: &[ContainerSettings], node: &str) -> Option<ContainerSettings> {
    let names = |line: &ContainerSettings| {
        let nodes = hostlist::parse(&line.nodes).unwrap_or_default();
        nodes.iter().any(|name| name == node)
    };
    let mut own = all.iter().filter(|line| !line.nodes.is_empty());
    let own = own.rfind(|line| names(line));
    let line = own.or_else(|| all.iter().find(|line| line.nodes.is_empty()))?;
    if line.base.is_empty() {
        return None;
    }
    Some(ContainerSettings {
        nodes: String::new(),
        base: line.base.replacen("%n", node, 1),
        ..line.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_own_line_or_that_of_all() {
        let line = |nodes: &str, base: &str| ContainerSettings {
            nodes: nodes.to_owned(),
            base: base.to_owned(),
            ..ContainerSettings::default()
        };
        let all = [
            line("n[1-3]", "/a/%n"),
            line("n3", "/b"),
            line("login", ""),
            line("", "/c/%n/%n"),
        ];
        let base = |node: &str| of_node(&all, node).map(|found| found.base);
        assert_eq!(base("n2").as_deref(), Some("/a/n2"));
        assert_eq!(base("n3").as_deref(), Some("/b"));
        assert_eq!(base("login"), None);
        assert_eq!(base("x").as_deref(), Some("/c/x/%n"));
        assert_eq!(of_node(&all, "n1").unwrap().nodes, "");
        assert_eq!(of_node(&all[..1], "x"), None);
    }
}
