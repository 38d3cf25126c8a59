//! Queries of reports to accounting: its sums, or jobs where a report is on each of them or on a choice of them.

use super::ReportRequest;
use super::measure::Period;
use crate::connect::{Client, ConnectError};
use crate::listing::query;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::time::Timestamp;
use muster_proto::acct::{
    AcctJob, AcctQuery, NodeEvent, NodeEventQuery, NodeOutage, UsagePage, UsageQuery, UsageRow,
};

/// Answer of accounting.
pub(super) struct UsageAnswer {
    pub(super) part: UsagePage,
    pub(super) jobs: Vec<AcctJob>,
}

impl UsageAnswer {
    /// The sums that are kept.
    pub(super) fn ask(client: &mut Client, period: Period) -> Result<UsageAnswer, ConnectError> {
        let query = UsageQuery {
            start: period.start,
            end: period.end,
        };
        Ok(UsageAnswer {
            part: query::usage(client, query)?,
            jobs: Vec::new(),
        })
    }

    /// Jobs, where a report is about each of them or on a choice of them, and what sums of these are.
    pub(super) fn ask_rows(
        client: &mut Client,
        request: &ReportRequest,
        period: Period,
    ) -> Result<UsageAnswer, ConnectError> {
        let asked = NodeEventQuery {
            nodes: Vec::new(),
            start: Some(period.start),
            end: Some(period.end),
        };
        let events = match query::node_events(client, asked) {
            Ok(events) => Some(events),
            // Only the cluster's use as a whole depends on them.
            Err(ConnectError::Refused(r)) if r.code == RefusalCode::AccessDenied => None,
            Err(e) => return Err(e),
        };
        let asked = AcctQuery {
            jobs: request.jobs.iter().map(|id| (JobId(*id), None)).collect(),
            nodes: request.nodes.clone(),
            partitions: request.partitions.clone(),
            gids: request.gids.clone(),
            start: Some(period.start),
            end: Some(period.end),
            duplicates: true,
            allocations_only: true,
            usage: true,
            ..AcctQuery::default()
        };
        let (jobs, now, withheld) = query::accounting(client, asked)?;
        let rows = jobs
            .iter()
            .map(|job| UsageRow::of(job, period.start, period.end, now));
        let part = UsagePage {
            rows: rows.collect(),
            outages: events.map(|events| outages(&events, period, now)),
            more: false,
            now,
            withheld,
            since: None,
        };
        Ok(UsageAnswer { part, jobs })
    }
}

/// Time that nodes were out of service in a period.
fn outages(events: &[NodeEvent], period: Period, now: Timestamp) -> Vec<NodeOutage> {
    let out = events.iter().filter(|e| !e.service().is_in_service());
    let times = out.map(|event| {
        let end = event.end.unwrap_or(now).min(period.end);
        NodeOutage {
            node: event.node.clone(),
            out_ms: end.since_ms(event.start.max(period.start)),
        }
    });
    times.collect()
}
