//! Queries of listings to the controller: answers that come in parts are put together here.

use super::context::Ctx;
use crate::connect::{Client, ConnectError, unexpected};
use muster_model::config::ClusterConfig;
use muster_model::environment::Environment;
use muster_model::explain::ExpectedStart;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{ArrayInfo, ArrayRole, Job};
use muster_model::job_counts::JobCountGroup;
use muster_model::known_cluster::KnownCluster;
use muster_model::licenses::License;
use muster_model::listing_codec::CompactListing;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::ExecContext;
use muster_model::time::Timestamp;
use muster_proto::acct::{
    AcctJob, AcctQuery, JobTextKind, JobTextQuery, LoggedTransaction, NodeEvent, NodeEventQuery,
    ReservationRecord, ReservationTimesQuery, TransactionQuery, UsagePage, UsageQuery,
};
use muster_proto::client::{
    AccountsAnswer, ClusterPage, ConfigAnswer, Diag, JobFilter, PrioritiesAnswer, Query,
    RequestBody, ReservationsAnswer, Response,
};
use std::collections::HashMap;

/// Jobs of the queue.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The records, by number.
    pub(crate) jobs: Records,
    /// Arrays that they are of.
    pub(crate) arrays: HashMap<JobId, ArrayInfo>,
    /// Numbers asked for that name nothing.
    pub(crate) unknown: Vec<JobId>,
}

/// Job records as the parts of an answer brought them; to put ten thousand into one place takes longer than to read them.
#[derive(Debug, Default)]
pub(crate) struct Records(Vec<Vec<Job>>);

impl Records {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// In the order of the answer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.0.iter().flatten()
    }

    /// All in one place.
    pub(crate) fn into_vec(mut self) -> Vec<Job> {
        match self.0.len() {
            1 => self.0.pop().unwrap_or_default(),
            _ => self.0.into_iter().flatten().collect(),
        }
    }

    /// The records, to be changed.
    #[cfg(test)]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.0.iter_mut().flatten()
    }
}

impl From<Vec<Job>> for Records {
    fn from(jobs: Vec<Job>) -> Records {
        Records(vec![jobs])
    }
}

impl Jobs {
    /// The array that a record is of.
    pub(crate) fn array_of(&self, job: &Job) -> Option<&ArrayInfo> {
        match job.array {
            ArrayRole::None => None,
            ArrayRole::Pending { .. } => self.arrays.get(&job.id),
            ArrayRole::Task { base, .. } => self.arrays.get(&base),
        }
    }

    /// Whether a document of them is made with the nodes: it shows cores of a share by socket, which nodes know.
    pub(crate) fn needs_nodes_in_documents(&self) -> bool {
        self.jobs.iter().any(|job| job.alloc.is_some())
    }
}

/// Asks for jobs, and for partitions and settings in the same round trip.
pub(crate) fn jobs(
    client: &mut Client,
    ctx: &mut Ctx,
    filter: JobFilter,
) -> Result<Jobs, ConnectError> {
    let mut all = Jobs::default();
    let mut parts = Vec::new();
    jobs_in_parts(client, ctx, filter, &mut all, |part, _, _| {
        parts.push(part.into_jobs());
    })?;
    all.jobs.0 = parts;
    Ok(all)
}

/// As above, with a look at the records of each part when it has come; data about arrays and about numbers without a
/// job accumulates.
pub(crate) fn jobs_in_parts(
    client: &mut Client,
    ctx: &mut Ctx,
    filter: JobFilter,
    all: &mut Jobs,
    mut look: impl FnMut(CompactListing, &mut Jobs, &Ctx),
) -> Result<(), ConnectError> {
    client.read_ahead();
    send(client, Query::Listing(filter))?;
    receive_cluster(client, ctx, false)?;
    loop {
        let Response::Jobs(mut part) =
            expect(client.receive()?, |r| matches!(r, Response::Jobs(_)))?
        else {
            return Ok(());
        };
        if !part.starts.is_empty() {
            part.jobs = with_starts(part.jobs, part.starts, ctx);
        }
        all.arrays.extend(part.arrays);
        all.unknown.extend(part.unknown);
        ctx.now = part.now;
        ctx.starts_progress = part.progress.or(ctx.starts_progress);
        look(part.jobs, all, ctx);
        if !part.more {
            return Ok(());
        }
    }
}

/// The records, of which those at these places are expected to start.
fn with_starts(
    records: CompactListing,
    starts: Vec<(u32, ExpectedStart)>,
    ctx: &mut Ctx,
) -> CompactListing {
    let mut jobs = records.into_jobs();
    for (place, start) in starts {
        if let Some(job) = jobs.get_mut(place as usize) {
            job.expected_start = Some(start.at);
            ctx.starts.insert(job.id, start);
        }
    }
    jobs.into()
}

/// Asks for nodes, partitions and settings. Gives the nodes that completing jobs hold.
pub(crate) fn cluster(client: &mut Client, ctx: &mut Ctx) -> Result<Vec<NodeIdx>, ConnectError> {
    send(client, Query::Cluster)?;
    receive_cluster(client, ctx, true)
}

/// Receives what `ctx` is to know. Nodes that it knows already stay where the answer has none.
fn receive_cluster(
    client: &mut Client,
    ctx: &mut Ctx,
    has_nodes: bool,
) -> Result<Vec<NodeIdx>, ConnectError> {
    let mut all = ClusterPage::default();
    loop {
        let answer = expect(client.receive()?, |r| matches!(r, Response::Cluster(_)))?;
        let Response::Cluster(part) = answer else {
            break;
        };
        all.nodes.extend(part.nodes);
        all.partitions.extend(part.partitions);
        all.largest_node_cpus.extend(part.largest_node_cpus);
        all.completing.extend(part.completing);
        all.reserved.extend(part.reserved);
        all.config = all.config.or(part.config);
        all.withheld = all.withheld.with(part.withheld);
        all.now = part.now;
        if !part.more {
            break;
        }
    }
    ctx.now = all.now;
    if has_nodes {
        ctx.nodes = all.nodes;
        ctx.nodes.retain(|node| !node.removed);
        let reserved = all.reserved.into_iter();
        ctx.reserved = reserved.map(|of| (of.node, of.maintenance)).collect();
    }
    ctx.partitions = all.partitions;
    ctx.largest_node_cpus = all.largest_node_cpus;
    ctx.withheld = all.withheld;
    ctx.config = all.config.map(|c| *c);
    if let Some(config) = &ctx.config {
        ctx.cluster.clone_from(&config.cluster_name);
    }
    Ok(all.completing)
}

/// Refuses a listing of what `PrivateData` withholds from the user who asks, as Slurm does; else it would look empty.
pub(crate) fn not_withheld(ctx: &Ctx, what: PrivateData) -> Result<(), ConnectError> {
    match ctx.withheld.has(what) {
        true => Err(Refusal::from(RefusalCode::AccessDenied).into()),
        false => Ok(()),
    }
}

/// Asks for what decisions depend on, without nodes and partitions.
pub(crate) fn settings(client: &mut Client) -> Result<ClusterConfig, ConnectError> {
    match client.query(Query::Partitions)? {
        Response::Cluster(part) => part
            .config
            .map(|config| *config)
            .ok_or_else(|| Refusal::new(RefusalCode::Busy, "no configuration yet").into()),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the configuration.
pub(crate) fn config(client: &mut Client) -> Result<ConfigAnswer, ConnectError> {
    match client.query(Query::Config)? {
        Response::Config(answer) => Ok(*answer),
        other => Err(unexpected(&other)),
    }
}

/// Asks for reservations.
pub(crate) fn reservations(client: &mut Client) -> Result<ReservationsAnswer, ConnectError> {
    match client.query(Query::Reservations)? {
        Response::Reservations(answer) => Ok(*answer),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the times of reservations that touch a window. Where `PrivateData` hides them, those that are there now and that the
/// user may use are given.
pub(crate) fn reservation_times(
    client: &mut Client,
    asked: ReservationTimesQuery,
) -> Result<Vec<ReservationRecord>, ConnectError> {
    match client.query(Query::ReservationTimes(asked)) {
        Ok(Response::ReservationTimes(times)) => Ok(times),
        Ok(other) => Err(unexpected(&other)),
        Err(ConnectError::Refused(refusal)) if refusal.code == RefusalCode::AccessDenied => {
            let answer = reservations(client)?;
            let all = answer.reservations.into_iter().zip(answer.cpus);
            let records = all.map(|(of, cpus)| ReservationRecord {
                name: of.name,
                start: of.start,
                end: of.end,
                is_over: false,
                nodes: of.hostlist,
                cpus,
                flags: of.flags,
                users: of.users.join(","),
                accounts: of.accounts.join(","),
            });
            let touches = |record: &ReservationRecord| {
                asked.end.is_none_or(|end| record.start <= end)
                    && asked.start.is_none_or(|start| record.end >= start)
            };
            Ok(records.filter(touches).collect())
        }
        Err(e) => Err(e),
    }
}

/// Asks for a text that a job was submitted with, if accounting keeps it.
pub(crate) fn job_text(
    client: &mut Client,
    job: JobId,
    kind: JobTextKind,
) -> Result<Option<Vec<u8>>, ConnectError> {
    match client.query(Query::JobText(JobTextQuery { job, kind }))? {
        Response::JobText(text) => Ok(text.map(Into::into)),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the environment that a job was submitted with, if accounting keeps it.
pub(crate) fn kept_environment(
    client: &mut Client,
    job: JobId,
) -> Result<Option<Environment>, ConnectError> {
    let kept = job_text(client, job, JobTextKind::Environment)?;
    let decode = |bytes: Vec<u8>| {
        let context: ExecContext =
            minicbor::decode(&bytes).map_err(|e| ConnectError::Broken(std::io::Error::other(e)))?;
        Ok(context.environment)
    };
    kept.map(decode).transpose()
}

/// Asks for licenses.
pub(crate) fn licenses(client: &mut Client) -> Result<Vec<License>, ConnectError> {
    match client.query(Query::Licenses)? {
        Response::Licenses(all) => Ok(all),
        other => Err(unexpected(&other)),
    }
}

/// Asks for other clusters of the database that accounting is copied to.
pub(crate) fn known_clusters(client: &mut Client) -> Result<Vec<KnownCluster>, ConnectError> {
    match client.query(Query::KnownClusters)? {
        Response::KnownClusters(all) => Ok(all),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the text of the site's job classes.
pub(crate) fn job_classes(client: &mut Client) -> Result<String, ConnectError> {
    match client.query(Query::JobClasses)? {
        Response::JobClasses(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}

/// Asks for accounts, users, QOS and shares of the cluster.
pub(crate) fn accounts(client: &mut Client) -> Result<AccountsAnswer, ConnectError> {
    accounts_by(client, Query::Accounts)
}

/// Asks for the same, and the accounts and users of other clusters.
pub(crate) fn accounts_of_clusters(client: &mut Client) -> Result<AccountsAnswer, ConnectError> {
    accounts_by(client, Query::AccountsOfClusters)
}

/// Asks for the same of this cluster, and what counts towards limits.
pub(crate) fn accounts_in_use(client: &mut Client) -> Result<AccountsAnswer, ConnectError> {
    accounts_by(client, Query::AccountsInUse)
}

fn accounts_by(client: &mut Client, query: Query) -> Result<AccountsAnswer, ConnectError> {
    match client.query(query)? {
        Response::Accounts(answer) => Ok(*answer),
        other => Err(unexpected(&other)),
    }
}

/// Asks what priorities are made of.
pub(crate) fn priorities(client: &mut Client) -> Result<PrioritiesAnswer, ConnectError> {
    send(client, Query::Priorities)?;
    let mut all = PrioritiesAnswer::default();
    loop {
        let answer = expect(client.receive()?, |r| matches!(r, Response::Priorities(_)))?;
        let Response::Priorities(part) = answer else {
            return Ok(all);
        };
        all.settings = all.settings.or(part.settings);
        all.jobs.extend(part.jobs);
        if !part.more {
            return Ok(all);
        }
    }
}

/// Asks for a job's script.
pub(crate) fn script(client: &mut Client, job: JobId) -> Result<Vec<u8>, ConnectError> {
    match client.query(Query::Script(job))? {
        Response::Script(bytes) => Ok(bytes.into()),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the environment that a job was submitted with.
pub(crate) fn environment(client: &mut Client, job: JobId) -> Result<Environment, ConnectError> {
    match client.query(Query::Environment(job))? {
        Response::Environment(bytes) => {
            let context: ExecContext = minicbor::decode(&bytes)
                .map_err(|e| ConnectError::Broken(std::io::Error::other(e)))?;
            Ok(context.environment)
        }
        other => Err(unexpected(&other)),
    }
}

/// Records of the cluster that only some users see.
pub(crate) fn private_data(client: &mut Client) -> Result<PrivateData, ConnectError> {
    match client.query(Query::Partitions)? {
        Response::Cluster(part) => Ok(part.config.map_or_else(PrivateData::default, |c| c.private)),
        other => Err(unexpected(&other)),
    }
}

/// Numbers of jobs, by user, account and partition.
pub(crate) fn job_counts(client: &mut Client) -> Result<Vec<JobCountGroup>, ConnectError> {
    match client.query(Query::JobCounts)? {
        Response::JobCounts(groups) => Ok(groups),
        other => Err(unexpected(&other)),
    }
}

/// Asks for the counters, or to begin again with them.
pub(crate) fn diag(client: &mut Client, reset: bool) -> Result<Diag, ConnectError> {
    let query = if reset { Query::ResetDiag } else { Query::Diag };
    match client.query(query)? {
        Response::Diag(diag) => Ok(*diag),
        other => Err(unexpected(&other)),
    }
}

/// Asks accounting. Gives the jobs, the controller's time, and whether jobs of others were withheld.
pub(crate) fn accounting(
    client: &mut Client,
    query: AcctQuery,
) -> Result<(Vec<AcctJob>, Timestamp, bool), ConnectError> {
    let mut all = Vec::new();
    let (now, withheld) = accounting_in_parts(client, query, |jobs, _| all.extend(jobs))?;
    Ok((all, now, withheld))
}

/// Asks accounting, and gives jobs away as they come, with the controller's time. Gives that, and whether jobs of others were
/// withheld.
pub(crate) fn accounting_in_parts(
    client: &mut Client,
    query: AcctQuery,
    mut take: impl FnMut(Vec<AcctJob>, Timestamp),
) -> Result<(Timestamp, bool), ConnectError> {
    send(client, Query::Accounting(Box::new(query)))?;
    loop {
        match client.receive()? {
            Response::Accounting(part) => {
                take(part.jobs, part.now);
                if !part.more {
                    return Ok((part.now, part.withheld));
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Asks for the use in a period: all parts as one.
pub(crate) fn usage(client: &mut Client, query: UsageQuery) -> Result<UsagePage, ConnectError> {
    send(client, Query::Usage(query))?;
    let mut all: Option<UsagePage> = None;
    loop {
        match client.receive()? {
            Response::Usage(part) => {
                let more = part.more;
                let all = match &mut all {
                    None => all.insert(*part),
                    Some(all) => {
                        all.rows.extend(part.rows);
                        all
                    }
                };
                if !more {
                    return Ok(std::mem::take(all));
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Asks when nodes were out of service.
pub(crate) fn node_events(
    client: &mut Client,
    query: NodeEventQuery,
) -> Result<Vec<NodeEvent>, ConnectError> {
    match client.query(Query::NodeEvents(query))? {
        Response::NodeEvents(events) => Ok(events),
        other => Err(unexpected(&other)),
    }
}

/// Asks who changed what with sacctmgr, within a window, and whether older changes are left out.
pub(crate) fn transactions(
    client: &mut Client,
    (start, end): (Option<Timestamp>, Option<Timestamp>),
) -> Result<(Vec<LoggedTransaction>, bool), ConnectError> {
    let query = TransactionQuery { start, end };
    match client.query(Query::Transactions(query))? {
        Response::Transactions(all, left_out) => Ok((all, left_out)),
        other => Err(unexpected(&other)),
    }
}

fn send(client: &mut Client, query: Query) -> Result<(), ConnectError> {
    client.send(RequestBody::Query(Box::new(query)))
}

fn expect(response: Response, fits: fn(&Response) -> bool) -> Result<Response, ConnectError> {
    if fits(&response) {
        Ok(response)
    } else {
        Err(unexpected(&response))
    }
}
