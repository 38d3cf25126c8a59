//! Host groups as qconf shows them.

use super::ClusterData;
use muster_conf::grid_engine::{ALL_HOSTS, HostGroup};
use std::fmt::Write as _;

/// The answer about a group that is not there.
pub(super) fn missing(name: &str) -> String {
    format!("Host group \"{name}\" does not exist")
}

impl ClusterData {
    /// A host group as `-shgrp` shows it.
    pub(super) fn host_group(&self, name: &str) -> Result<String, String> {
        let groups = &self.mapping.host_groups;
        let members = match groups.iter().find(|own| own.name == name) {
            Some(group) => group.members.clone(),
            None if name == ALL_HOSTS => self.host_names(),
            None => return Err(missing(name)),
        };
        Ok(format!(
            "group_name {name}\nhostlist {}\n",
            members.join(" ")
        ))
    }

    /// A host group with the groups in it below it, each once.
    pub(super) fn host_group_tree(&self, name: &str) -> Result<String, String> {
        self.host_group(name)?;
        let groups = &self.mapping.host_groups;
        let find = |name: &str| groups.iter().find(|own: &&HostGroup| own.name == name);
        let (mut text, mut shown) = (String::new(), Vec::new());
        let mut left = vec![(name.to_owned(), 0)];
        while let Some((own, depth)) = left.pop() {
            let _ = writeln!(text, "{:indent$}{own}", "", indent = depth * 3);
            if shown.contains(&own) {
                continue;
            }
            let members = match find(&own) {
                Some(group) => group.members.clone(),
                None if own == ALL_HOSTS => self.host_names(),
                None => continue,
            };
            shown.push(own);
            left.extend(members.into_iter().rev().map(|member| (member, depth + 1)));
        }
        Ok(text)
    }
}
