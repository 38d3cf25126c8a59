//! Pages of the agent about itself for anybody who asks at `SlurmdPort`: whether it is connected, and metrics. Users
//! and jobs are counted, not named.

use crate::info;
use crate::messages::agent_relay::AgentPage;
use muster_model::time::Timestamp;
use muster_node_core::agent::view::AgentCounts;
use std::fmt::Write as _;

/// Data of pages.
pub(super) struct AboutAgent<'a> {
    pub(super) node: &'a str,
    pub(super) started: Timestamp,
    pub(super) counts: AgentCounts,
}

/// Status of HTTP and text of a page.
pub(super) fn text(page: AgentPage, about: &AboutAgent<'_>) -> (u16, String) {
    let counts = about.counts;
    match page {
        AgentPage::Ready => match (counts.is_controller_up, counts.is_launcher_up) {
            (true, true) => (200, "ok\n".to_owned()),
            (false, _) => (503, "the controller is not connected\n".to_owned()),
            (true, false) => (503, "the launcher is not connected\n".to_owned()),
        },
        AgentPage::Metrics if !counts.has_metrics => {
            let off = "metrics are off here: MetricsType=metrics/openmetrics without PrivateData in slurm.conf turns them on\n";
            (404, off.to_owned())
        }
        AgentPage::Metrics => (200, metrics(about)),
    }
}

fn metrics(about: &AboutAgent<'_>) -> String {
    let counts = about.counts;
    let (load_centi, _) = info::health();
    let load = f64::from(load_centi) / 100.0;
    let (memory_mib, available_mib) = info::memory();
    let number = |value: usize| value.to_string();
    let truth = |value: bool| u8::from(value).to_string();
    let rows: [(&str, &str, String); 9] = [
        (
            "muster_agent_controller_connected",
            "whether the controller is connected",
            truth(counts.is_controller_up),
        ),
        (
            "muster_agent_launcher_connected",
            "whether the launcher is connected",
            truth(counts.is_launcher_up),
        ),
        ("muster_agent_jobs", "jobs on the node", number(counts.jobs)),
        (
            "muster_agent_steps",
            "parts of steps on the node",
            number(counts.steps),
        ),
        (
            "muster_agent_reports_waiting",
            "reports that the controller has not acknowledged",
            number(counts.reports),
        ),
        (
            "muster_agent_start_time_seconds",
            "when the agent started, since 1970",
            about.started.unix_s().to_string(),
        ),
        (
            "muster_agent_load",
            "load of the machine over a minute",
            load.to_string(),
        ),
        (
            "muster_agent_memory_bytes",
            "memory of the machine",
            (memory_mib << 20).to_string(),
        ),
        (
            "muster_agent_memory_available_bytes",
            "memory that programs could have",
            (available_mib << 20).to_string(),
        ),
    ];
    // A name of slurm.conf has no character that would end a label.
    let node: String = about
        .node
        .chars()
        .filter(|c| !matches!(c, '"' | '\\' | '\n'))
        .collect();
    let mut text = String::new();
    for (name, help, value) in rows {
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{node=\"{node}\"}} {value}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_given_where_the_site_wants_them() {
        let mut about = AboutAgent {
            node: "n1",
            started: Timestamp::from_unix_s(7),
            counts: AgentCounts {
                is_controller_up: true,
                jobs: 3,
                ..AgentCounts::default()
            },
        };
        assert_eq!(text(AgentPage::Metrics, &about).0, 404);
        assert_eq!(
            text(AgentPage::Ready, &about),
            (503, "the launcher is not connected\n".to_owned())
        );
        (about.counts.has_metrics, about.counts.is_launcher_up) = (true, true);
        assert_eq!(text(AgentPage::Ready, &about).0, 200);
        let (status, page) = text(AgentPage::Metrics, &about);
        assert_eq!(status, 200);
        assert!(
            page.contains("# TYPE muster_agent_jobs gauge\nmuster_agent_jobs{node=\"n1\"} 3\n"),
            "{page}"
        );
        assert!(
            page.contains("muster_agent_start_time_seconds{node=\"n1\"} 7\n"),
            "{page}"
        );
        // It fits into one message to the relay.
        assert!(page.len() < 8 << 10);
    }
}
