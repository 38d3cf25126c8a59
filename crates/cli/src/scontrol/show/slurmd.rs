//! `scontrol show slurmd`: the node agent of this host, as the controller knows it. The agent itself is not asked.

use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::listing::text::put;
use crate::listing::{Failure, failed_call, own_step, print, query};
use crate::process;
use muster_model::hostlist;
use muster_model::job::Job;
use muster_model::node::Node;
use muster_proto::client::{ConfigAnswer, JobFilter};

/// Shows the agent of the node in whose job this runs, or of this host's only node; or of a node that is named.
pub(super) fn show(which: Option<&str>) -> Result<(), Failure> {
    let failed = failed_call("slurm_load_slurmd_status");
    let mut client = Client::connect().map_err(&failed)?;
    // The step in which this runs is one of those that are shown.
    own_step::wait(&mut client).map_err(&failed)?;
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    query::cluster(&mut client, &mut ctx).map_err(&failed)?;
    let config = query::config(&mut client).map_err(&failed)?;
    ctx.now = config.now;
    let node = chosen(&ctx.nodes, which)
        .ok_or_else(|| Failure::new("slurm_load_slurmd_status: Connection refused".to_owned()))?;
    let jobs = match node.jobs.as_slice() {
        [] => Vec::new(),
        ids => {
            let filter = JobFilter {
                ids: ids.to_vec(),
                active: true,
                ..JobFilter::default()
            };
            client.query_jobs(filter).map_err(&failed)?
        }
    };
    print(&text(node, &jobs, &config, &ctx));
    Ok(())
}

fn chosen<'n>(nodes: &'n [Node], which: Option<&str>) -> Option<&'n Node> {
    let named = which.or_else(|| process::variable("SLURMD_NODENAME"));
    let with_agent = || nodes.iter().filter(|node| node.report.is_some());
    if let Some(name) = named {
        return with_agent().find(|node| node.config.name == name);
    }
    let host = nix::unistd::gethostname().ok()?;
    let host = host.to_str()?;
    let is_here = |node: &&Node| node.report.as_ref().is_some_and(|r| r.hostname == host);
    let mut here = with_agent().filter(is_here);
    here.next().filter(|_| here.next().is_none())
}

fn text(node: &Node, jobs: &[Job], config: &ConfigAnswer, ctx: &Ctx) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: &str| put!(out, "{key:<24} = {value}\n");
    let (own, report) = (&node.config, node.report.clone().unwrap_or_default());
    let setting = |key: &str| {
        let found = config.pairs.iter().find(|(own, _)| own == key);
        let value = found.map_or("(null)", |(_, value)| value.as_str());
        let host = report.hostname.split('.').next().unwrap_or_default();
        value.replace("%n", &own.name).replace("%h", host)
    };
    let time = |at| {
        let mut out = String::new();
        ctx.time(&mut out, at);
        out
    };
    line("Active Steps", &steps_on(&own.name, jobs));
    line("Actual CPUs", &report.cpus.to_string());
    line("Actual Boards", &own.boards.to_string());
    line("Actual sockets", &own.sockets.to_string());
    line("Actual cores", &own.cores_per_socket.to_string());
    line("Actual threads per core", &own.threads_per_core.to_string());
    line("Actual real memory", &format!("{} MB", report.memory_mib));
    line(
        "Actual temp disk space",
        &format!("{} MB", own.tmp_disk_mib),
    );
    line("Boot time", &time(report.agent_start));
    line("Hostname", &own.name);
    line("Last slurmctld msg time", &time(config.now));
    let pid = std::fs::read_to_string(setting("SlurmdPidFile")).unwrap_or_default();
    line(
        "Slurmd PID",
        Some(pid.trim()).filter(|p| !p.is_empty()).unwrap_or("N/A"),
    );
    line("Slurmd Debug", &setting("SlurmdDebug"));
    line("Slurmd Logfile", &setting("SlurmdLogFile"));
    line("Version", crate::SLURM_VERSION);
    out
}

/// Steps of these jobs that run on a node.
fn steps_on(node: &str, jobs: &[Job]) -> String {
    let mut names = Vec::new();
    for job in jobs {
        for step in &job.steps {
            let nodes = hostlist::parse(&step.hostlist).unwrap_or_default();
            if nodes.iter().any(|name| name == node) {
                names.push(format!("{}.{}", job.id, step.step));
            }
        }
    }
    match names.is_empty() {
        true => "NONE".to_owned(),
        false => names.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;

    #[test]
    fn an_agent_is_shown_with_its_steps() {
        let ctx = fixture::ctx();
        let node = ctx.nodes.iter().find(|n| n.report.is_some()).unwrap();
        let jobs: Vec<Job> = fixture::jobs().jobs.iter().cloned().collect();
        let config = ConfigAnswer {
            pairs: vec![
                ("SlurmdLogFile".to_owned(), "/log/%n.log".to_owned()),
                ("SlurmdDebug".to_owned(), "info".to_owned()),
            ],
            now: ctx.now,
            ..ConfigAnswer::default()
        };
        let text = text(node, &jobs, &config, &ctx);
        let log = format!("Slurmd Logfile           = /log/{}.log\n", node.config.name);
        assert!(text.contains(&log), "{text}");
        assert!(
            text.contains("\nSlurmd PID               = N/A\nSlurmd Debug             = info\n")
        );
        assert!(text.starts_with("Active Steps             = "), "{text}");
        assert_eq!(text.lines().count(), 15);
        assert_eq!(steps_on("nowhere", &jobs), "NONE");
    }
}
