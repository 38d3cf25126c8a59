//! The paths that there are, as one table: what serves them, since which version, and what the description of the API says of them.

use super::call::Handler;
use super::http::{HttpStatus, Method, RestReply};
use super::operation::{Area, RestOperation, Target};
use super::{
    account_change, accounting, accounting_config, accounts, allocation, cancel, cluster, clusters,
    config_change, configuration, job_change, job_note, jobs, layout, metrics, node_change,
    nodes_in_short, partition_change, queue, report, reservation_change, statistics, submission,
    topology,
};
use percent_encoding::percent_decode_str;

/// One row: an operation, and what carries it out.
pub(super) struct Route {
    pub(super) operation: RestOperation,
    pub(super) handler: Handler,
}

impl Route {
    const fn with(mut self, parameters: &'static [&'static str]) -> Route {
        self.operation.parameters = parameters;
        self
    }

    const fn takes(mut self, body: &'static str) -> Route {
        self.operation.body = Some(body);
        self
    }

    const fn gives(mut self, response: &'static str) -> Route {
        self.operation.response = response;
        self
    }
}

const fn slurm(
    method: Method,
    path: &'static str,
    since: u32,
    handler: Handler,
    (call, summary): (&'static str, &'static str),
) -> Route {
    let operation = RestOperation {
        method,
        area: Area::Slurm,
        path,
        since,
        call,
        summary,
        parameters: &[],
        body: None,
        response: "openapi_resp",
    };
    Route { operation, handler }
}

const fn slurmdb(
    method: Method,
    path: &'static str,
    since: u32,
    handler: Handler,
    texts: (&'static str, &'static str),
) -> Route {
    let mut route = slurm(method, path, since, handler, texts);
    route.operation.area = Area::Slurmdb;
    route
}

use Method::{Delete, Get, Post};

/// Parameters that choose associations.
const ASSOCIATION: &[&str] = &[
    "account",
    "cluster",
    "id",
    "parent_account",
    "partition",
    "user",
];
/// Parameters that choose jobs of accounting.
const ACCOUNTING: &[&str] = &[
    "account",
    "cluster",
    "constraints",
    "cpus_max",
    "cpus_min",
    "end_time",
    "groups",
    "job_name",
    "node",
    "nodes_max",
    "nodes_min",
    "partition",
    "qos",
    "reason",
    "show_duplicates",
    "skip_steps",
    "start_time",
    "state",
    "step",
    "submit_time",
    "timelimit_max",
    "timelimit_min",
    "users",
    "wckey",
];

/// All of them.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    slurm(Get, "ping", 38, cluster::ping, ("ping_all_controllers()", "whether the controller answers")).gives("openapi_ping_array_resp"),
    slurm(Get, "diag", 38, statistics::diag, ("slurm_get_statistics()", "counters of the controller")).gives("openapi_diag_resp"),
    slurm(Get, "jobs", 38, jobs::list, ("slurm_load_jobs()", "all jobs of the queue")).with(&["update_time", "flags"]).gives("openapi_job_info_resp"),
    slurm(Delete, "jobs", 40, cancel::many, ("slurm_kill_jobs()", "ends or signals jobs that conditions choose")).takes("kill_jobs_msg").gives("openapi_kill_jobs_resp"),
    slurm(Get, "jobs/state", 40, jobs::states, ("slurm_load_job_state()", "states of jobs")).with(&["job_id"]).gives("openapi_job_state_resp"),
    slurm(Post, "job/submit", 38, submission::submit, ("slurm_submit_batch_job()", "submits a batch job")).takes("job_submit_req").gives("openapi_job_submit_response"),
    slurm(Post, "job/allocate", 41, allocation::allocate, ("slurm_allocate_resources()", "makes an allocation, which no connection holds: it ends with its time limit or when it is cancelled")).takes("job_alloc_req").gives("openapi_job_alloc_resp"),
    slurm(Get, "job/{job_id}", 38, jobs::one, ("slurm_load_job()", "a job, all records of an array, all components")).with(&["update_time", "flags"]).gives("openapi_job_info_resp"),
    slurm(Post, "job/{job_id}", 38, job_change::update, ("slurm_update_job2()", "changes a job")).takes("job_desc_msg").gives("openapi_job_post_response"),
    slurm(Delete, "job/{job_id}", 38, cancel::one, ("slurm_kill_job2()", "ends or signals a job")).with(&["signal", "flags"]),
    slurm(Get, "job/{job_id}/requeue", 45, job_change::requeue, ("slurm_requeue2()", "puts a job back into the queue")),
    slurm(Post, "jobs/requeue", 45, job_change::requeue_many, ("slurm_requeue2()", "puts jobs back into the queue")).takes("openapi_jobs_requeue_query").gives("openapi_jobs_requeue_resp"),
    slurm(Get, "nodes", 38, cluster::nodes, ("slurm_load_node()", "all nodes")).with(&["update_time", "flags"]).gives("openapi_nodes_resp"),
    slurm(Post, "nodes", 42, node_change::many, ("slurm_update_node()", "changes nodes")).takes("update_node_msg"),
    slurm(Get, "node/{node_name}", 38, cluster::node, ("slurm_load_node()", "a node")).with(&["update_time", "flags"]).gives("openapi_nodes_resp"),
    slurm(Post, "node/{node_name}", 39, node_change::one, ("slurm_update_node()", "changes a node")).takes("update_node_msg"),
    slurm(Delete, "node/{node_name}", 39, node_change::delete, ("slurm_delete_node()", "takes a dynamic node away")),
    slurm(Post, "new/node", 44, node_change::make, ("slurm_create_node()", "makes nodes that no file names, of a line as slurm.conf has it")).takes("openapi_create_node_req"),
    slurm(Get, "partitions", 38, cluster::partitions, ("slurm_load_partitions()", "all partitions")).with(&["update_time", "flags"]).gives("openapi_partition_resp"),
    slurm(Get, "partition/{partition_name}", 38, cluster::partition, ("slurm_load_partitions()", "a partition")).with(&["update_time", "flags"]).gives("openapi_partition_resp"),
    slurm(Post, "partitions", 45, partition_change::many, ("slurm_update_partition()", "makes or changes partitions")).takes("openapi_partition_resp"),
    slurm(Delete, "partition/{partition_name}", 45, partition_change::delete, ("slurm_delete_partition()", "takes a partition away")),
    slurm(Get, "reservations", 38, cluster::reservations, ("slurm_load_reservations()", "all reservations")).with(&["update_time"]).gives("openapi_reservation_resp"),
    slurm(Get, "reservation/{reservation_name}", 38, cluster::reservation, ("slurm_load_reservations()", "a reservation")).with(&["update_time"]).gives("openapi_reservation_resp"),
    slurm(Delete, "reservation/{reservation_name}", 43, cluster::delete_reservation, ("slurm_delete_reservation()", "takes a reservation away")),
    slurm(Post, "reservations", 43, reservation_change::many, ("slurm_create_reservation()", "makes or changes reservations")).takes("reservation_mod_req").gives("openapi_reservation_mod_resp"),
    slurm(Post, "reservation", 43, reservation_change::one, ("slurm_create_reservation()", "makes or changes a reservation")).takes("reservation_desc_msg").gives("openapi_reservation_mod_resp"),
    slurm(Get, "resources/{job_id}", 44, layout::resources, ("slurm_get_resource_layout()", "what a job has on each node")).gives("openapi_resource_layout_resp"),
    slurm(Get, "licenses", 38, cluster::licenses, ("slurm_load_licenses()", "all licenses")).gives("openapi_licenses_resp"),
    slurm(Get, "shares", 40, statistics::shares, ("slurm_associations_get_shares()", "fair share")).with(&["accounts", "users"]).gives("openapi_shares_resp"),
    slurm(Get, "reconfigure", 40, cluster::reconfigure, ("slurm_reconfigure()", "has the controller read its configuration again")),
    slurm(Get, "conf", 45, configuration::show, ("slurm_load_ctl_conf()", "the configuration in force")).with(&["update_time"]).gives("openapi_conf_resp"),
    slurmdb(Get, "jobs", 38, accounting::jobs, ("slurmdb_jobs_get()", "jobs of accounting")).with(ACCOUNTING).gives("openapi_slurmdbd_jobs_resp"),
    slurmdb(Get, "job/{job_id}", 38, accounting::job, ("slurmdb_jobs_get()", "a job of accounting, with every run")).gives("openapi_slurmdbd_jobs_resp"),
    slurmdb(Post, "jobs", 44, job_note::many, ("slurmdb_job_modify()", "changes texts of jobs that accounting has")).takes("openapi_job_modify_req").gives("openapi_job_modify_resp"),
    slurmdb(Post, "job/{job_id}", 44, job_note::one, ("slurmdb_job_modify()", "changes texts of a job that accounting has")).takes("job_modify").gives("openapi_job_modify_resp"),
    slurmdb(Get, "instances", 40, layout::instances, ("slurmdb_instances_get()", "nodes of clouds by instance, of which none are kept")).gives("openapi_instances_resp"),
    slurmdb(Get, "instance", 40, layout::instances, ("slurmdb_instances_get()", "nodes of clouds by instance, of which none are kept")).gives("openapi_instances_resp"),
    slurmdb(Get, "diag", 38, statistics::of_accounting, ("slurmdb_get_stats()", "counters of the controller, which keeps accounting")).gives("openapi_slurmdbd_stats_resp"),
    slurmdb(Get, "ping", 42, cluster::ping, ("slurmdb_ping()", "whether accounting answers")).gives("openapi_ping_array_resp"),
    slurmdb(Get, "config", 38, accounting_config::show, ("slurmdb_config_get()", "all records of accounting but jobs")).gives("openapi_slurmdbd_config_resp"),
    slurmdb(Get, "tres", 38, clusters::tres, ("slurmdb_tres_get()", "what is counted")).gives("openapi_tres_resp"),
    slurmdb(Post, "config", 38, config_change::config, ("slurmdb_config_set()", "makes or changes records of several kinds")).takes("openapi_slurmdbd_config_resp"),
    slurmdb(Post, "tres", 38, config_change::tres, ("slurmdb_tres_add()", "refused, since what is counted follows from the nodes")).takes("openapi_tres_resp"),
    slurmdb(Get, "accounts", 38, accounts::accounts, ("slurmdb_accounts_get()", "all accounts")).with(&["description"]).gives("openapi_accounts_resp"),
    slurmdb(Post, "accounts", 38, account_change::accounts, ("slurmdb_accounts_add()", "makes or changes accounts")).takes("openapi_accounts_resp"),
    slurmdb(Get, "account/{account_name}", 38, accounts::account, ("slurmdb_accounts_get()", "an account")).gives("openapi_accounts_resp"),
    slurmdb(Delete, "account/{account_name}", 38, account_change::delete_account, ("slurmdb_accounts_remove()", "takes an account away")),
    slurmdb(Post, "accounts_association", 40, account_change::accounts_association, ("slurmdb_accounts_add_cond()", "makes accounts with their associations")).takes("accounts_add_cond"),
    slurmdb(Get, "users", 38, accounts::users, ("slurmdb_users_get()", "all users")).with(&["admin_level", "default_account"]).gives("openapi_users_resp"),
    slurmdb(Post, "users", 38, account_change::users, ("slurmdb_users_add()", "makes or changes users")).takes("openapi_users_resp"),
    slurmdb(Get, "user/{name}", 38, accounts::user, ("slurmdb_users_get()", "a user")).gives("openapi_users_resp"),
    slurmdb(Delete, "user/{name}", 38, account_change::delete_user, ("slurmdb_users_remove()", "takes a user away")),
    slurmdb(Post, "users_association", 40, account_change::users_association, ("slurmdb_users_add_cond()", "makes users with their associations")).takes("users_add_cond"),
    slurmdb(Get, "associations", 38, accounts::associations, ("slurmdb_associations_get()", "all associations")).with(ASSOCIATION).gives("openapi_assocs_resp"),
    slurmdb(Post, "associations", 38, account_change::associations, ("slurmdb_associations_add()", "makes or changes associations")).takes("openapi_assocs_resp"),
    slurmdb(Delete, "associations", 38, account_change::delete_associations, ("slurmdb_associations_remove()", "takes associations away")).with(ASSOCIATION),
    slurmdb(Get, "association", 38, accounts::association, ("slurmdb_associations_get()", "an association")).with(ASSOCIATION).gives("openapi_assocs_resp"),
    slurmdb(Delete, "association", 38, account_change::delete_associations, ("slurmdb_associations_remove()", "takes an association away")).with(ASSOCIATION),
    slurmdb(Get, "qos", 38, accounts::all_qos, ("slurmdb_qos_get()", "all QOS")).with(&["name", "id"]).gives("openapi_slurmdbd_qos_resp"),
    slurmdb(Post, "qos", 38, account_change::qos, ("slurmdb_qos_add()", "makes or changes QOS")).takes("openapi_slurmdbd_qos_resp"),
    slurmdb(Get, "qos/{qos}", 38, accounts::qos, ("slurmdb_qos_get()", "a QOS")).gives("openapi_slurmdbd_qos_resp"),
    slurmdb(Delete, "qos/{qos}", 38, account_change::delete_qos, ("slurmdb_qos_remove()", "takes a QOS away")),
    slurmdb(Get, "wckeys", 38, accounts::wckeys, ("slurmdb_wckeys_get()", "all workload keys")).with(&["name", "user"]).gives("openapi_wckey_resp"),
    slurmdb(Post, "wckeys", 38, account_change::wckeys, ("slurmdb_wckeys_add()", "gives users workload keys")).takes("openapi_wckey_resp"),
    slurmdb(Get, "wckey/{id}", 38, accounts::one_wckey, ("slurmdb_wckeys_get()", "a workload key, by its name")).gives("openapi_wckey_resp"),
    slurmdb(Delete, "wckey/{id}", 38, account_change::delete_wckey, ("slurmdb_wckeys_remove()", "takes a workload key away, by its name")),
    slurmdb(Get, "clusters", 38, clusters::clusters, ("slurmdb_clusters_get()", "all clusters")).gives("openapi_clusters_resp"),
    slurmdb(Post, "clusters", 38, account_change::clusters, ("slurmdb_clusters_add()", "makes records of clusters")).takes("openapi_clusters_resp"),
    slurmdb(Get, "cluster/{cluster_name}", 38, clusters::cluster, ("slurmdb_clusters_get()", "a cluster")).gives("openapi_clusters_resp"),
    slurmdb(Delete, "cluster/{cluster_name}", 38, account_change::delete_cluster, ("slurmdb_clusters_remove()", "takes a record of a cluster away")),
];

/// Paths of `/util/`.
#[rustfmt::skip]
pub(super) const UTIL: &[Route] = &[
    util("hostnames", layout::hostnames, "the hosts of a list").takes("openapi_hostlist_req_resp").gives("openapi_hostnames_req_resp"),
    util("hostlist", layout::hostlist, "hosts as a list in short").takes("openapi_hostnames_req_resp").gives("openapi_hostlist_req_resp"),
];

const fn util(path: &'static str, handler: Handler, summary: &'static str) -> Route {
    let mut route = slurm(Method::Post, path, 44, handler, ("hostlist", summary));
    route.operation.area = Area::Util;
    route
}

/// The pages of metrics, which have no version.
#[rustfmt::skip]
pub(super) const METRICS: &[Route] = &[
    metrics("", metrics::index),
    metrics("jobs", metrics::jobs),
    metrics("jobs-users-accts", metrics::users),
    metrics("nodes", metrics::nodes),
    metrics("partitions", metrics::partitions),
    metrics("scheduler", metrics::scheduler),
];

const fn metrics(path: &'static str, handler: Handler) -> Route {
    let mut route = slurm(Method::Get, path, 0, handler, ("metrics", ""));
    route.operation.area = Area::Metrics;
    route
}

/// Routes of Muster alone. Their documents have the layout of [`OWN_VERSION`].
#[rustfmt::skip]
pub(super) const OWN: &[Route] = &[
    own("storage", report::storage, ("storage", "what users have on file systems, by the latest scan of each")).gives("muster_storage"),
    own("report", report::report, ("report", "what was used, in rows of the kind that the parameters choose")).gives("muster_report"),
    own("queue", queue::queue, ("queue", "the queue in short, and how many jobs there are of each kind")).with(queue::PARAMETERS).gives("muster_queue"),
    own("nodes", nodes_in_short::nodes, ("nodes", "the nodes in short, with those that are the same together")).gives("muster_nodes"),
    own("why/{job_id}", queue::explain, ("why", "what a job waits for, and what would start it sooner")).gives("muster_why"),
    own("topology", topology::topology, ("topology", "switches or blocks of the network, with the nodes at each")).gives("muster_topology"),
];

/// The version of Slurm's documents whose layout those of [`OWN`] have.
pub(super) const OWN_VERSION: u32 = 45;

const fn own(path: &'static str, handler: Handler, texts: (&'static str, &'static str)) -> Route {
    let mut route = slurm(Method::Get, path, OWN_VERSION, handler, texts);
    route.operation.area = Area::Muster;
    route
}

/// A path that is known.
pub(super) struct FoundRoute {
    pub(super) target: Target,
    pub(super) handler: Handler,
}

impl FoundRoute {
    fn new(route: &'static Route, version: u32, names: Vec<String>) -> FoundRoute {
        let operation = &route.operation;
        FoundRoute {
            target: Target {
                operation,
                version,
                names,
            },
            handler: route.handler,
        }
    }
}

/// The parts of a path; empty ones, of slashes that follow each other or end it, do not count.
pub(super) fn read_path(path: &str) -> Result<Vec<String>, RestReply> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let decoded: Option<Vec<String>> = parts
        .map(|part| {
            let text = percent_decode_str(part).decode_utf8().ok()?;
            let is_escape_left = part.split('%').skip(1).any(|after| {
                let digits = after.as_bytes().get(..2);
                !digits.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
            });
            let is_text = !text.chars().any(char::is_control);
            (is_text && !is_escape_left).then(|| text.into_owned())
        })
        .collect();
    decoded.ok_or_else(|| RestReply::text(HttpStatus::BAD_REQUEST, "Unable to parse URL path."))
}

/// Finds the row that a path and a method stand for.
pub(super) fn find(path: &[String], method: Method) -> Result<FoundRoute, RestReply> {
    let unknown = || {
        let text = "Unable find requested URL. Please view /openapi/v3 for API reference.";
        RestReply::text(HttpStatus::NOT_FOUND, text)
    };
    let unversioned = match path {
        [first, rest @ ..] if first == "metrics" => Some((METRICS, rest)),
        [first, version, rest @ ..] if first == "muster" && version == "v1" => Some((OWN, rest)),
        _ => None,
    };
    if let Some((table, rest)) = unversioned {
        // The area itself has an empty path.
        let words = if rest.is_empty() {
            &[String::new()]
        } else {
            rest
        };
        let (route, names) = table
            .iter()
            .find_map(|route| Some((route, captured(route.operation.path, words)?)))
            .ok_or_else(unknown)?;
        return match method {
            Method::Get => Ok(FoundRoute::new(route, OWN_VERSION, names)),
            _ => Err(not_allowed()),
        };
    }
    let [area, version, rest @ ..] = path else {
        return Err(unknown());
    };
    let area = match area.as_str() {
        "slurm" => Area::Slurm,
        "slurmdb" => Area::Slurmdb,
        "util" => Area::Util,
        _ => return Err(unknown()),
    };
    let version: Option<u32> = version.strip_prefix("v0.0.").and_then(|n| n.parse().ok());
    let version = version.filter(|n| crate::listing::document::VERSIONS.contains(n));
    let version = version.ok_or_else(unknown)?;
    let here = ROUTES
        .iter()
        .chain(UTIL)
        .filter(|r| r.operation.area == area && r.operation.since <= version);
    let mut is_known = false;
    // Whole words come before those that stand for any.
    let mut rows: Vec<(&'static Route, Vec<String>)> = here
        .filter_map(|route| Some((route, captured(route.operation.path, rest)?)))
        .collect();
    rows.sort_by_key(|(_, names)| names.len());
    let fewest = rows.first().map_or(0, |(_, names)| names.len());
    for (route, names) in rows {
        if names.len() > fewest {
            break;
        }
        is_known = true;
        if route.operation.method == method {
            return Ok(FoundRoute::new(route, version, names));
        }
    }
    match is_known {
        true => Err(not_allowed()),
        false => Err(unknown()),
    }
}

fn not_allowed() -> RestReply {
    let text =
        "This HTTP method is not there at this path. Please view /openapi/v3 for API reference.";
    RestReply::text(HttpStatus::NOT_ALLOWED, text)
}

/// Words in place of the names in braces, if the parts fit.
fn captured(template: &str, parts: &[String]) -> Option<Vec<String>> {
    let wanted: Vec<&str> = template.split('/').collect();
    if wanted.len() != parts.len() {
        return None;
    }
    let mut names = Vec::new();
    for (wanted, part) in wanted.iter().zip(parts) {
        if wanted.starts_with('{') {
            names.push(part.clone());
        } else if wanted != part {
            return None;
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, method: Method) -> Result<(&'static str, u32, Vec<String>), RestReply> {
        let found = find(&read_path(path)?, method)?;
        let target = found.target;
        Ok((target.operation.path, target.version, target.names))
    }

    #[test]
    fn paths_have_a_version_and_names() {
        assert_eq!(found("/slurm/v0.0.38/jobs", Get), Ok(("jobs", 38, vec![])));
        let one = Ok(("job/{job_id}", 43, vec!["6_[1-2]".to_owned()]));
        assert_eq!(found("//slurm/v0.0.43//job/6_%5B1-2%5D/", Get), one);
        let why = Ok(("why/{job_id}", OWN_VERSION, vec!["7_2".to_owned()]));
        assert_eq!(found("/muster/v1/why/7_2", Get), why);
        assert_eq!(found("/metrics/", Get), Ok(("", OWN_VERSION, vec![])));
        // A word that a template has is no name.
        let submit = found("/slurm/v0.0.43/job/submit", Post);
        assert_eq!(submit, Ok(("job/submit", 43, vec![])));
    }

    #[test]
    fn an_unknown_path_differs_from_a_method_that_is_not_there() {
        let status = |path: &str, method| found(path, method).unwrap_err().status;
        for path in [
            "/",
            "/slurm",
            "/slurm/jobs",
            "/slurm/v0.0.1/jobs",
            "/slurm/v0.0.38/shares",
            "/slurm/v0.0.43/nosuch",
            "/nosuch/v0.0.43/jobs",
            "/muster/v1",
            "/muster/v1/why",
            "/muster/v1/topology/x",
            "/metrics/jobs/x",
        ] {
            assert_eq!(status(path, Get), HttpStatus::NOT_FOUND, "{path}");
        }
        assert_eq!(
            status("/slurm/v0.0.38/jobs", Delete),
            HttpStatus::NOT_ALLOWED
        );
        assert_eq!(status("/muster/v1/queue", Post), HttpStatus::NOT_ALLOWED);
        assert_eq!(
            status("/slurm/v0.0.43/job/submit", Get),
            HttpStatus::NOT_ALLOWED
        );
        for path in ["/slurm/v0.0.43/job/%zz", "/slurm/v0.0.43/job/%00", "/%ff"] {
            assert_eq!(status(path, Get), HttpStatus::BAD_REQUEST, "{path}");
        }
    }
}
