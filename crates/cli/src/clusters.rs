//! `--clusters`: the clusters that a command asks. Clusters whose accounting is copied to one database know each other; the own
//! controller says where the others' controllers are.

use crate::connect::{self, Client};
use crate::listing::Failure;
use crate::listing::query;
use crate::zone;
use muster_conf::endpoint::{self, Endpoint};
use muster_model::known_cluster::KnownCluster;
use std::collections::HashSet;
use std::path::PathBuf;

/// Age of an entry from which on `all` leaves the cluster out: its slurmdbd writes an entry each hour.
const STALE_AFTER_MS: i64 = 24 * 3_600_000;

/// Clusters to ask, one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterSelection {
    clusters: Vec<SelectedCluster>,
}

#[derive(Clone, Debug)]
struct SelectedCluster {
    endpoint: Endpoint,
    is_own: bool,
}

impl ClusterSelection {
    /// Finds the clusters of a list. `all` is the own one, then all others that have been seen lately.
    ///
    /// Where another is among them, a program that is linked statically ends here, and begins anew as one that can prove there
    /// who asks: so nothing must have been done before. `stdin` has the bytes that the process has read from its standard input.
    ///
    /// # Errors
    /// The configuration cannot be read, or the own controller not be asked; a name is unknown.
    pub(crate) fn find(
        command: &str,
        names: &str,
        stdin: Option<&[u8]>,
    ) -> Result<ClusterSelection, Failure> {
        let names = names.trim();
        if names.is_empty() {
            return Ok(ClusterSelection::default());
        }
        let failed = |text: String| Failure::new(format!("{command}: error: {text}"));
        let own = endpoint::read(&endpoint::conf_path()).map_err(|e| failed(e.to_string()))?;
        let mut known: Option<Vec<KnownCluster>> = None;
        let mut clusters = Vec::new();
        for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            if name == own.cluster {
                clusters.push(SelectedCluster::own(&own));
                continue;
            }
            let others = match &known {
                Some(others) => others,
                None => known.insert(others_of(&failed)?),
            };
            if name.eq_ignore_ascii_case("all") {
                let since = zone::now().0 - STALE_AFTER_MS;
                let live = others.iter().filter(|cluster| cluster.seen.0 >= since);
                clusters.push(SelectedCluster::own(&own));
                clusters.extend(live.map(|cluster| SelectedCluster::other(&own, cluster)));
                continue;
            }
            match others.iter().find(|cluster| cluster.name == name) {
                Some(cluster) => clusters.push(SelectedCluster::other(&own, cluster)),
                None => return Err(unknown(command, name)),
            }
        }
        // `all` may name one again.
        let mut seen = HashSet::new();
        clusters.retain(|cluster| seen.insert(cluster.endpoint.cluster.clone()));
        if clusters.iter().any(|cluster| !cluster.is_own) {
            connect::hand_over_with(stdin);
        }
        Ok(ClusterSelection { clusters })
    }

    /// The clusters of a listing.
    ///
    /// # Errors
    /// See [`ClusterSelection::find`]; a document is of one cluster.
    pub(crate) fn of_listing(
        command: &str,
        names: Option<&str>,
        is_document: bool,
    ) -> Result<ClusterSelection, Failure> {
        let selection = ClusterSelection::find(command, names.unwrap_or_default(), None)?;
        match is_document && selection.is_several() {
            true => Err(Failure::new(format!(
                "{command}: error: a document (--json, --yaml) is of one cluster; name one with --clusters"
            ))),
            false => Ok(selection),
        }
    }

    /// Has the process ask the one cluster of a list from now on.
    ///
    /// # Errors
    /// See [`ClusterSelection::find`]; there are several.
    pub(crate) fn choose_one(command: &str, names: &str) -> Result<(), Failure> {
        let selection = ClusterSelection::find(command, names, None)?;
        match selection.clusters.as_slice() {
            [] => {}
            [only] => only.choose(),
            _ => {
                return Err(Failure::new(format!(
                    "{command}: fatal: Only one cluster can be used at a time with {command}"
                )));
            }
        }
        Ok(())
    }

    /// Whether there are several.
    pub(crate) fn is_several(&self) -> bool {
        self.clusters.len() > 1
    }

    /// Runs a command on each cluster, or on the own one if none was named; `run` learns whether it is the first that may
    /// succeed, which has the heading. One that fails is reported, and does not keep the others from being asked.
    ///
    /// # Errors
    /// The failure of the only one; else one without text if any failed.
    pub(crate) fn each(
        &self,
        mut run: impl FnMut(bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.clusters.is_empty() {
            return run(true);
        }
        let (mut is_first, mut failure) = (true, None);
        for cluster in &self.clusters {
            cluster.choose();
            match run(is_first) {
                Ok(()) => is_first = false,
                Err(error) => {
                    if self.is_several() {
                        let name = &cluster.endpoint.cluster;
                        crate::listing::complain(&format!("cluster {name}: {error}"));
                    }
                    failure = Some(error);
                }
            }
        }
        match failure {
            None => Ok(()),
            Some(_) if self.is_several() => Err(Failure::silent()),
            Some(error) => Err(error),
        }
    }

    /// Has the process ask the cluster at which `rate` gives the least value, the first of equal ones. With one
    /// cluster nothing is rated.
    ///
    /// # Errors
    /// The last error of `rate` if it fails at all of them.
    pub(crate) fn choose_least<R: Ord, E>(
        &self,
        mut rate: impl FnMut() -> Result<R, E>,
    ) -> Result<(), E> {
        let mut best: Option<(R, &SelectedCluster)> = None;
        let mut failure = None;
        if !self.is_several() {
            self.clusters.iter().for_each(|cluster| cluster.choose());
            return Ok(());
        }
        for cluster in &self.clusters {
            cluster.choose();
            match rate() {
                Ok(rated) if best.as_ref().is_none_or(|(least, _)| rated < *least) => {
                    best = Some((rated, cluster));
                }
                Ok(_) => {}
                Err(e) => failure = Some(e),
            }
        }
        match (best, failure) {
            (Some((_, cluster)), _) => cluster.choose(),
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
        Ok(())
    }
}

impl SelectedCluster {
    fn own(own: &Endpoint) -> SelectedCluster {
        SelectedCluster {
            endpoint: own.clone(),
            is_own: true,
        }
    }

    fn other(own: &Endpoint, cluster: &KnownCluster) -> SelectedCluster {
        SelectedCluster {
            endpoint: at(own, &cluster.name, cluster.addresses.clone(), cluster.port),
            is_own: false,
        }
    }

    fn choose(&self) {
        connect::choose((!self.is_own).then(|| self.endpoint.clone()));
    }
}

/// The variable by which srun in an allocation of another cluster finds its controller: `NAME:ADDRESS:PORT`, and two numbers that
/// Slurm's programs read.
const WORKING_CLUSTER: &str = "SLURM_WORKING_CLUSTER";

/// The value of `SLURM_WORKING_CLUSTER` for programs in an allocation of the chosen cluster; none for the own one.
pub(crate) fn working_cluster() -> Option<(&'static str, String)> {
    let chosen = connect::chosen()?;
    let address = chosen.addresses.first()?;
    let port = chosen.port;
    let value = format!("{}:{address}:{port}:9728:109", chosen.cluster);
    Some((WORKING_CLUSTER, value))
}

/// Has the process ask the cluster of the allocation that it is in, where that is another.
pub(crate) fn choose_working_cluster() {
    let Some(value) = std::env::var(WORKING_CLUSTER).ok() else {
        return;
    };
    let Ok(own) = endpoint::read(&endpoint::conf_path()) else {
        return;
    };
    let Some(cluster) = parse_working_cluster(&value) else {
        return;
    };
    if cluster.name != own.cluster {
        connect::hand_over_with(None);
        SelectedCluster::other(&own, &cluster).choose();
    }
}

/// Addresses of IPv6 have colons themselves.
fn parse_working_cluster(value: &str) -> Option<KnownCluster> {
    let (name, rest) = value.split_once(':')?;
    let (rest, _plugin) = rest.rsplit_once(':')?;
    let (rest, _version) = rest.rsplit_once(':')?;
    let (address, port) = rest.rsplit_once(':')?;
    let cluster = KnownCluster {
        name: name.to_owned(),
        addresses: vec![address.to_owned()],
        port: port.parse().ok()?,
        ..KnownCluster::default()
    };
    cluster.is_plausible().then_some(cluster)
}

/// Another cluster's controller, reached and trusted as this one's. It is on no socket of this host.
fn at(own: &Endpoint, name: &str, addresses: Vec<String>, port: u16) -> Endpoint {
    Endpoint {
        cluster: name.to_owned(),
        socket: PathBuf::new(),
        hosts: addresses.clone(),
        addresses,
        port,
        ..own.clone()
    }
}

/// Controllers of the other clusters that have been seen lately, for a command that asks all of them. Nothing must have been
/// done before, see [`ClusterSelection::find`]. Without accounting in a database there are none.
pub(crate) fn live_others(own: &mut Client) -> Vec<Endpoint> {
    let since = zone::now().0 - STALE_AFTER_MS;
    let others = query::known_clusters(own).unwrap_or_default().into_iter();
    let live: Vec<Endpoint> = others
        .filter(|cluster| cluster.seen.0 >= since)
        .map(|cluster| {
            at(
                &own.endpoint,
                &cluster.name,
                cluster.addresses,
                cluster.port,
            )
        })
        .collect();
    if !live.is_empty() {
        connect::hand_over_with(None);
    }
    live
}

fn others_of(failed: &dyn Fn(String) -> Failure) -> Result<Vec<KnownCluster>, Failure> {
    let asked = Client::connect_own().and_then(|mut client| query::known_clusters(&mut client));
    asked.map_err(|e| failed(format!("The clusters cannot be asked for: {e}")))
}

fn unknown(command: &str, name: &str) -> Failure {
    Failure::new(format!(
        "{command}: error: No cluster '{name}' known by database.\n{command}: error: '{name}' can't be reached \
         now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_an_allocation_is_read() {
        let read = |text: &str| {
            parse_working_cluster(text).map(|c| (c.name.clone(), c.addresses[0].clone(), c.port))
        };
        let found = |name: &str, address: &str| Some((name.to_owned(), address.to_owned(), 6817));
        assert_eq!(read("beta:ctl2:6817:9728:109"), found("beta", "ctl2"));
        assert_eq!(read("beta:fd00::7:6817:9728:109"), found("beta", "fd00::7"));
        for wrong in [
            "",
            "beta",
            "beta:ctl2:6817",
            "beta:ctl2:x:1:1",
            "be ta:ctl2:6817:1:1",
            ":c:1:1:1",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
