//! `SuspendProgram`, `ResumeProgram` and `ResumeFailProgram`: run once for all nodes that the events of a turn power
//! down or up. When the controller starts they are run again for nodes that are on their way.

use super::{Invocation, variable};
use crate::program_settings::ProgramSettings;
use muster_core::event::NodeChange;
use muster_core::state::State;
use muster_model::hostlist;
use muster_model::ids::NodeIdx;
use muster_model::job::Job;
use muster_model::power::Power;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Bytes of a resume file beyond which it has no `extra` of further jobs, which is up to their users.
const EXTRA_BYTES_MAX: usize = 16 << 20;

/// Nodes that events were about.
#[derive(Debug, Default)]
pub(super) struct Moves {
    down: Vec<NodeIdx>,
    up: Vec<NodeIdx>,
    failed: Vec<NodeIdx>,
    /// Files made so far.
    files: u64,
}

impl Moves {
    /// Power changes that were under way when the controller stopped.
    pub(super) fn under_way(state: &State) -> Moves {
        let mut moves = Moves::default();
        for node in state.nodes.iter().filter(|n| !n.removed) {
            moves.on_event(node.idx, &NodeChange::Power(node.power));
        }
        moves
    }

    /// Something about a node changed.
    pub(super) fn on_event(&mut self, node: NodeIdx, change: &NodeChange) {
        match change {
            NodeChange::Power(Some(Power::GoingDown { .. })) => self.down.push(node),
            NodeChange::Power(Some(Power::GoingUp { .. })) => self.up.push(node),
            NodeChange::ResumeFailed => self.failed.push(node),
            _ => {}
        }
    }

    /// The programs to run now.
    pub(super) fn take(&mut self, state: &State, settings: &ProgramSettings) -> Vec<Invocation> {
        let programs = &settings.power;
        let (down, up, failed) = (
            std::mem::take(&mut self.down),
            std::mem::take(&mut self.up),
            std::mem::take(&mut self.failed),
        );
        let mut out = Vec::new();
        for (what, program, nodes) in [
            ("SuspendProgram", &programs.suspend, &down),
            ("ResumeProgram", &programs.resume, &up),
            ("ResumeFailProgram", &programs.resume_failed, &failed),
        ] {
            let Some(program) = program.clone().filter(|_| !nodes.is_empty()) else {
                continue;
            };
            let hosts = names(state, nodes);
            log::info!("{what} is run for {hosts}");
            let mut env = vec![
                variable("SLURM_CONF", &settings.conf_path),
                variable("SLURM_CLUSTER_NAME", &settings.cluster),
            ];
            let file = (what == "ResumeProgram").then(|| {
                self.files += 1;
                let path = programs.dir.join(format!("resume_file.{}", self.files));
                (path, resume_file(state, &hosts, nodes))
            });
            if let Some((path, _)) = &file {
                env.push(variable("SLURM_RESUME_FILE", path.display()));
            }
            out.push(Invocation {
                what,
                program,
                args: vec![hosts],
                env,
                input: None,
                file,
                time_limit: None,
                owner: None,
            });
        }
        out
    }
}

fn names(state: &State, nodes: &[NodeIdx]) -> String {
    let known = nodes.iter().filter_map(|idx| state.node(*idx));
    let names: Vec<String> = known.map(|n| n.config.name.clone()).collect();
    hostlist::compress(&names)
}

/// Which jobs the nodes are powered up for, as JSON.
fn resume_file(state: &State, hosts: &str, nodes: &[NodeIdx]) -> String {
    let jobs = nodes
        .iter()
        .filter_map(|idx| state.node(*idx))
        .flat_map(|n| &n.jobs);
    let mut jobs: Vec<&Job> = jobs.filter_map(|id| state.jobs.get(id)).collect();
    jobs.sort_by_key(|job| job.id);
    jobs.dedup_by_key(|job| job.id);
    let set: HashSet<NodeIdx> = nodes.iter().copied().collect();
    let mut text = format!("{{\"all_nodes_resume\":{},\"jobs\":[", quoted(hosts));
    for (at, job) in jobs.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let alloc = job.alloc.as_deref();
        let own = alloc.iter().flat_map(|a| &a.nodes).map(|s| s.node);
        let resumed: Vec<NodeIdx> = own.filter(|idx| set.contains(idx)).collect();
        let shown = |key: &str| {
            let mut shown = job.spec.shown.iter();
            let pair = shown.find(|(k, v)| k == key && text.len() + v.len() <= EXTRA_BYTES_MAX);
            pair.map_or_else(|| "null".to_owned(), |(_, v)| quoted(v))
        };
        let _ = write!(
            text,
            "{comma}{{\"extra\":{},\"job_id\":{},\"features\":{},\"nodes_alloc\":{},\"nodes_resume\":{},\
             \"oversubscribe\":{},\"partition\":{},\"reservation\":{}}}",
            shown("extra"),
            job.id,
            job.spec
                .ask
                .constraint
                .as_deref()
                .map_or_else(|| "null".to_owned(), quoted),
            quoted(alloc.map_or("", |a| &a.hostlist)),
            quoted(&names(state, &resumed)),
            quoted(if alloc.is_some_and(|a| a.exclusive) {
                "NO"
            } else {
                "OK"
            }),
            quoted(&job.partition),
            job.spec
                .reservation
                .as_deref()
                .map_or_else(|| "null".to_owned(), quoted),
        );
    }
    text.push_str("]}\n");
    text
}

/// A text of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::JobId;
    use muster_model::node::{Node, NodeConfig};
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};
    use std::sync::Arc;

    /// A user's jobs had 64 KiB each in the file, for each run of `ResumeProgram`.
    #[test]
    fn texts_of_users_in_a_resume_file_are_bounded() {
        let extra = vec![("extra".to_owned(), "x".repeat(64 << 10))];
        let spec = Arc::new(JobSpec {
            shown: extra,
            ..JobSpec::default()
        });
        let mut state = State::default();
        let config = NodeConfig::default();
        let mut node = Node::new(NodeIdx(0), &config, Timestamp(0));
        for id in (1..=1000).map(JobId) {
            let (spec, at) = (Arc::clone(&spec), Timestamp(0));
            state
                .jobs
                .insert(id, Job::new(id, spec, TimeLimit::Unlimited, at));
            node.jobs.push(id);
        }
        state.nodes.push(node);
        let text = resume_file(&state, "n0", &[NodeIdx(0)]);
        assert!(text.len() < EXTRA_BYTES_MAX + (1 << 20), "{}", text.len());
        assert_eq!(text.matches("\"job_id\"").count(), 1000);
        assert!(text.matches("\"extra\":null").count() > 700);
    }

    #[test]
    fn texts_of_json() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
