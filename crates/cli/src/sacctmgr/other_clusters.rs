//! Records of the other clusters of the database, which their own controllers keep: each is asked, and is given the changes of
//! its records. Each checks by itself who may see and change them.

use crate::clusters;
use crate::connect::{Client, ConnectError};
use crate::listing::{complain, query};
use muster_conf::endpoint::Endpoint;
use muster_model::accounts::{Accounts, Cluster};
use muster_model::command::{AccountsAsk, AccountsEdit, Reply, UserCommand};

/// Controllers of other clusters.
#[derive(Debug, Default)]
pub(super) struct OtherControllers {
    controllers: Vec<OtherController>,
}

#[derive(Debug)]
struct OtherController {
    endpoint: Endpoint,
    /// Connected when it is asked first.
    client: Option<Client>,
}

impl OtherControllers {
    /// Finds them by the own controller. A program that is linked statically may begin anew here, see
    /// [`clusters::live_others`].
    pub(super) fn find(own: &mut Client) -> OtherControllers {
        let controllers = clusters::live_others(own).into_iter();
        OtherControllers {
            controllers: controllers
                .map(|endpoint| OtherController {
                    endpoint,
                    client: None,
                })
                .collect(),
        }
    }

    /// Puts the records that the others keep in place of those that the own controller has of them. A cluster that cannot be
    /// asked is named on standard error and left out.
    pub(super) fn add_records(&mut self, records: &mut Accounts) {
        for other in &mut self.controllers {
            let name = other.endpoint.cluster.clone();
            match other.records() {
                Ok(own) => records.clusters.insert(name, own),
                Err(e) => {
                    complain(&format!("sacctmgr: error: cluster {name} is left out: {e}"));
                    records.clusters.remove(&name)
                }
            };
        }
    }

    /// The own cluster's part of an edit, if there is one.
    pub(super) fn own_part(&self, edit: AccountsEdit) -> Option<AccountsEdit> {
        let mut names = self.controllers.iter().map(|c| c.endpoint.cluster.as_str());
        names.try_fold(edit, own_part)
    }

    /// Makes the parts of an edit that concern others, and says of how many records it changed something.
    ///
    /// # Errors
    /// That of the first controller that fails, which is named on standard error. Those before it have made the change.
    pub(super) fn edit(&mut self, edit: &AccountsEdit) -> Result<u32, ConnectError> {
        let mut changed = 0;
        for other in &mut self.controllers {
            if let Some(theirs) = part_of(edit, &other.endpoint.cluster) {
                changed += other.edit(theirs)?;
            }
        }
        Ok(changed)
    }
}

impl OtherController {
    fn client(&mut self) -> Result<&mut Client, ConnectError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => Ok(none.insert(Client::connect_at(&self.endpoint)?)),
        }
    }

    fn records(&mut self) -> Result<Cluster, ConnectError> {
        let answer = query::accounts_of_clusters(self.client()?)?;
        Ok(Cluster::of_served(&self.endpoint.cluster, &answer.accounts))
    }

    fn edit(&mut self, edit: AccountsEdit) -> Result<u32, ConnectError> {
        let command = UserCommand::EditAccounts(Box::new(edit));
        let answer = self.client().and_then(|client| client.command(command));
        let name = &self.endpoint.cluster;
        match answer {
            Ok(Reply::Done { changed, .. }) => Ok(changed),
            Ok(_) => Ok(0),
            Err(e) => {
                complain(&format!("sacctmgr: error: cluster {name}: {e}"));
                Err(e)
            }
        }
    }
}

/// The part of an edit that another cluster gets. QOS are the same on all clusters of a database, as with Slurm; accounts and
/// users are each cluster's.
fn part_of(edit: &AccountsEdit, cluster: &str) -> Option<AccountsEdit> {
    let names = match &edit.ask {
        _ if edit.cluster == cluster => edit.names.clone(),
        _ if !edit.cluster.is_empty() => return None,
        AccountsAsk::AddQos(_) | AccountsAsk::ModifyQos(_) | AccountsAsk::DeleteQos => {
            edit.names.clone()
        }
        AccountsAsk::ModifyClusters(_) if edit.names.iter().any(|name| name == cluster) => {
            vec![cluster.to_owned()]
        }
        _ => return None,
    };
    Some(AccountsEdit {
        cluster: String::new(),
        names,
        ask: edit.ask.clone(),
    })
}

/// An edit without the part that another cluster gets alone.
fn own_part(mut edit: AccountsEdit, other: &str) -> Option<AccountsEdit> {
    if edit.cluster == other {
        return None;
    }
    if matches!(edit.ask, AccountsAsk::ModifyClusters(_)) {
        edit.names.retain(|name| name != other);
        return (!edit.names.is_empty()).then_some(edit);
    }
    Some(edit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::command::{ClusterAsk, QosAsk};

    fn edit(cluster: &str, names: &[&str], ask: AccountsAsk) -> AccountsEdit {
        AccountsEdit {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ask,
            cluster: cluster.to_owned(),
        }
    }

    #[test]
    fn another_clusters_records_are_changed_there_alone() {
        let edit_beta = edit("beta", &["chem"], AccountsAsk::DeleteAccounts);
        let theirs = edit("", &["chem"], AccountsAsk::DeleteAccounts);
        assert_eq!(part_of(&edit_beta, "beta"), Some(theirs));
        assert_eq!(part_of(&edit_beta, "gamma"), None);
        assert_eq!(own_part(edit_beta, "beta"), None);
    }

    #[test]
    fn accounts_of_the_own_cluster_concern_no_other() {
        let own = edit("", &["chem"], AccountsAsk::DeleteAccounts);
        assert_eq!(part_of(&own, "beta"), None);
        assert_eq!(own_part(own.clone(), "beta"), Some(own));
    }

    #[test]
    fn qos_are_changed_on_all() {
        let own = edit("", &["high"], AccountsAsk::AddQos(QosAsk::default()));
        assert_eq!(part_of(&own, "beta"), Some(own.clone()));
        assert_eq!(own_part(own.clone(), "beta"), Some(own));
    }

    #[test]
    fn settings_of_clusters_go_to_each() {
        let ask = AccountsAsk::ModifyClusters(ClusterAsk::default());
        let both = edit("", &["alpha", "beta"], ask.clone());
        let theirs = edit("", &["beta"], ask.clone());
        assert_eq!(part_of(&both, "beta"), Some(theirs.clone()));
        assert_eq!(own_part(both, "beta"), Some(edit("", &["alpha"], ask)));
        assert_eq!(own_part(theirs, "beta"), None);
    }
}
