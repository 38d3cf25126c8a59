//! Where the records are: the controller, or in tests a table.

use super::book::ClusterFacts;
use super::other_clusters::OtherControllers;
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::{Failure, query};
use muster_conf::endpoint;
use muster_model::command::{AccountsEdit, Reply, UserCommand};
use muster_proto::client::AccountsAnswer;
use std::collections::{BTreeMap, BTreeSet};

/// The records of accounting, and who changes them.
pub(super) trait Ledger {
    /// The records as they are now.
    fn accounts(&mut self) -> Result<AccountsAnswer, Failure>;
    /// Makes an edit and says of how many records it changed something.
    fn edit(&mut self, edit: AccountsEdit) -> Result<u32, ConnectError>;
    /// Whether keys are tracked (`TrackWCKey`).
    fn tracks_wckeys(&mut self) -> Result<bool, Failure>;
    /// Facts about the cluster beside.
    fn facts(&mut self) -> Result<ClusterFacts, Failure>;
    /// The controller, for what only it can answer.
    fn client(&mut self) -> Result<&mut Client, Failure>;
    /// The cluster's name, where its controller cannot be reached and slurmdbd runs beside it. As Slurm's slurmdbd does
    /// then, sacctmgr knows the cluster, and no controller of it.
    fn cluster_without_controller(&mut self) -> Option<String> {
        None
    }
    /// The user who asks.
    fn user(&self) -> String;
    /// Whether the machine knows a user of that name.
    fn is_user(&self, name: &str) -> bool;
}

/// The controller.
#[derive(Debug, Default)]
pub(super) struct Controller {
    client: Option<Client>,
    others: OtherControllers,
}

impl Controller {
    /// The own controller and those of the other clusters of the database. Where it cannot be reached, it is tried again by the
    /// command that needs it.
    pub(super) fn find() -> Controller {
        let mut client = Client::connect().ok();
        let others = client.as_mut().map(OtherControllers::find);
        Controller {
            client,
            others: others.unwrap_or_default(),
        }
    }
}

/// TRES that a cluster counts beside those that all clusters have.
pub(crate) fn tres_names(ctx: &Ctx) -> Vec<String> {
    let mut tres = BTreeSet::new();
    for gres in ctx.nodes.iter().flat_map(|node| &node.config.gres) {
        tres.insert(format!("gres/{}", gres.name));
        if let Some(kind) = gres.kind.as_deref().filter(|kind| !kind.is_empty()) {
            tres.insert(format!("gres/{}:{kind}", gres.name));
        }
    }
    let config = ctx.config.as_ref();
    let licenses = config.map_or(&[][..], |config| &config.licenses[..]);
    let mut all: Vec<String> = tres.into_iter().collect();
    all.extend(licenses.iter().map(|of| format!("license/{}", of.name)));
    all
}

/// Amounts of all TRES that a cluster has, in the order of their names. Of what nobody measures there is none.
fn total_tres(ctx: &Ctx, cpus: u64, mib: u64) -> String {
    let mut all: BTreeMap<String, String> = ["energy", "fs/disk", "pages", "vmem"]
        .map(|name| (name.to_owned(), "0".to_owned()))
        .into();
    all.insert("billing".to_owned(), cpus.to_string());
    all.insert("cpu".to_owned(), cpus.to_string());
    all.insert("mem".to_owned(), format!("{mib}M"));
    all.insert("node".to_owned(), ctx.nodes.len().to_string());
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for gres in ctx.nodes.iter().flat_map(|node| &node.config.gres) {
        let name = format!("gres/{}", gres.name);
        if let Some(kind) = gres.kind.as_deref().filter(|kind| !kind.is_empty()) {
            *counts.entry(format!("{name}:{kind}")).or_default() += gres.count;
        }
        *counts.entry(name).or_default() += gres.count;
    }
    all.extend(
        counts
            .into_iter()
            .map(|(name, count)| (name, count.to_string())),
    );
    let config = ctx.config.as_ref();
    let licenses = config.map_or(&[][..], |config| &config.licenses[..]);
    all.extend(
        licenses
            .iter()
            .map(|of| (format!("license/{}", of.name), of.count.to_string())),
    );
    let all: Vec<String> = all
        .iter()
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    all.join(",")
}

pub(super) fn error(text: impl std::fmt::Display) -> Failure {
    Failure::new(format!("sacctmgr: error: {text}"))
}

impl Ledger for Controller {
    fn accounts(&mut self) -> Result<AccountsAnswer, Failure> {
        let mut answer = query::accounts_of_clusters(self.client()?).map_err(error)?;
        self.others.add_records(&mut answer.accounts);
        Ok(answer)
    }

    /// The own controller makes its part first.
    fn edit(&mut self, edit: AccountsEdit) -> Result<u32, ConnectError> {
        let mut changed = 0;
        if let Some(own) = self.others.own_part(edit.clone()) {
            let client = match &mut self.client {
                Some(client) => client,
                none => none.insert(Client::connect()?),
            };
            let command = UserCommand::EditAccounts(Box::new(own));
            if let Reply::Done { changed: here, .. } = client.command(command)? {
                changed = here;
            }
        }
        Ok(changed.max(self.others.edit(&edit)?))
    }

    fn tracks_wckeys(&mut self) -> Result<bool, Failure> {
        // Without the nodes, of which there may be many.
        let config = query::settings(self.client()?).map_err(error)?;
        Ok(config.order.track_wckeys)
    }

    fn facts(&mut self) -> Result<ClusterFacts, Failure> {
        let client = self.client()?;
        let endpoint = client.endpoint.clone();
        let mut ctx = Ctx::new(&endpoint.cluster);
        query::cluster(client, &mut ctx).map_err(error)?;
        // Without accounting there are none.
        let others = query::known_clusters(client).unwrap_or_default();
        let cpus: u64 = ctx.nodes.iter().map(|n| u64::from(n.config.cpus)).sum();
        let mib: u64 = ctx.nodes.iter().map(|n| n.config.memory_mib).sum();
        let names: Vec<String> = ctx.nodes.iter().map(|n| n.config.name.clone()).collect();
        Ok(ClusterFacts {
            tres: tres_names(&ctx),
            host: endpoint.hosts.first().cloned().unwrap_or_default(),
            port: endpoint.port,
            nodes: muster_model::hostlist::compress(&names),
            node_count: names.len(),
            total: total_tres(&ctx, cpus, mib),
            others,
        })
    }

    fn client(&mut self) -> Result<&mut Client, Failure> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(Client::connect().map_err(error)?)),
        }
    }

    fn cluster_without_controller(&mut self) -> Option<String> {
        if self.client.is_some() {
            return None;
        }
        match Client::connect() {
            Ok(client) => {
                self.client = Some(client);
                None
            }
            Err(ConnectError::Unreachable { .. }) => {
                let endpoint = endpoint::read(&endpoint::conf_path()).ok()?;
                runs_slurmdbd(&endpoint.slurm_user).then_some(endpoint.cluster)
            }
            Err(_) => None,
        }
    }

    fn user(&self) -> String {
        let known = crate::people::user_of_uid(nix::unistd::geteuid().as_raw());
        known.map(|user| user.name).unwrap_or_default()
    }

    fn is_user(&self, name: &str) -> bool {
        crate::people::user_named(name).is_some()
    }
}

/// Whether a process of that name and user runs on this host, which is the controller's.
fn runs_slurmdbd(slurm_user: &str) -> bool {
    let Some(user) = crate::people::user_named(slurm_user) else {
        return false;
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut statuses =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("status")).ok());
    statuses.any(|status| super::slurmdbd_process::is_slurmdbd(&status, user.uid.as_raw()))
}
