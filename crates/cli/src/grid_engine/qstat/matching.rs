//! Queues that options choose: `-l` by resources, `-pe`, `-U` by the users who may use them. As in Grid Engine the resources of a host
//! count, not those that are free now, and no load does.

use super::queues::Instance;
use crate::connect::Client;
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{fail, fits, is_pattern, unreachable};
use crate::listing::query;
use crate::people;
use muster_conf::grid_engine::resources::{self, memory, usual_name};
use muster_conf::grid_engine::{ARCH, ComplexTarget, Mapping};
use muster_model::accounts::Accounts;
use muster_model::config::PartitionConfig;
use muster_model::licenses::License;
use std::ffi::CString;
use std::process::ExitCode;

/// Requests of all `-l`, which a queue must satisfy together.
///
/// # Errors
/// One has no name.
fn requests<'a>(
    lists: impl Iterator<Item = &'a str>,
) -> Result<Vec<(String, Option<String>)>, String> {
    let mut all = Vec::new();
    for list in lists {
        all.extend(resources::split(list)?);
    }
    Ok(all)
}

/// The resources of the cluster beside those of a host.
#[derive(Debug)]
struct ClusterResources<'a> {
    mapping: &'a Mapping,
    /// Names in `GresTypes`.
    gres: &'a [String],
    licenses: Vec<License>,
}

/// Whether a queue on a host can ever satisfy a request.
///
/// # Errors
/// There is no such resource, or the value is none of its type.
fn offers(
    own: &Instance,
    name: &str,
    value: Option<&str>,
    cluster: &ClusterResources<'_>,
) -> Result<bool, String> {
    let wrong = || format!("attribute \"{name}\" is not a number");
    let count = || value.unwrap_or("1").parse::<u64>().map_err(|_| wrong());
    let text = value.unwrap_or("");
    let of_host = |gres: &str| -> u64 {
        let (gres, kind) = match gres.split_once(':') {
            Some((gres, kind)) => (gres, Some(kind)),
            None => (gres, None),
        };
        let all = own.has.gres.iter();
        let those = all.filter(|own| {
            own.name == gres && kind.is_none_or(|kind| own.kind.as_deref() == Some(kind))
        });
        those.map(|own| own.count).sum()
    };
    match cluster.mapping.complex(name) {
        Some(ComplexTarget::Gres(gres, _)) => return Ok(of_host(gres) >= count()?),
        Some(ComplexTarget::License(license)) => {
            let found = cluster.licenses.iter().find(|own| own.name == *license);
            let count = count()?;
            return Ok(found.is_some_and(|own| u64::from(own.total) >= count));
        }
        Some(ComplexTarget::Feature(feature)) => {
            let wanted = !matches!(
                text.to_ascii_lowercase().as_str(),
                "0" | "f" | "false" | "n" | "no"
            );
            return Ok(own.has.features.contains(feature) == wanted);
        }
        Some(ComplexTarget::Memory) => return Ok(memory(name, value)? <= own.has.memory_bytes),
        None => {}
    }
    match usual_name(name) {
        "hostname" => Ok(fits(text, &own.host)),
        "qname" => Ok(fits(text, &own.queue)),
        "arch" => Ok(fits(text, ARCH)),
        "slots" => Ok(own.total >= count()?),
        "num_proc" | "m_thread" => Ok(own.has.cpus >= count()?),
        "m_core" => Ok(own.has.cores >= count()?),
        "m_socket" => Ok(own.has.sockets >= count()?),
        "mem_total" | "h_vmem" | "h_rss" | "mem" => {
            Ok(memory(name, value)? <= own.has.memory_bytes)
        }
        "h_rt" | "s_rt" => {
            let asked = resources::time(name, value)?;
            Ok(own
                .limit_s
                .is_none_or(|limit| asked.is_some_and(|asked| asked <= limit)))
        }
        // Load values, and requests that any host satisfies in time.
        "mem_free" | "virtual_free" | "mem_used" | "load_avg" | "np_load_avg" | "exclusive" => {
            Ok(true)
        }
        usual if usual == "gpu" || cluster.gres.iter().any(|own| own == name) => {
            Ok(of_host(usual) >= count()?)
        }
        _ => Err(format!("unknown resource \"{name}\"")),
    }
}

/// Keeps queues that satisfy all requests.
///
/// # Errors
/// There is no such resource, or the value is none of its type.
fn retain(
    known: &mut Vec<Instance>,
    requests: &[(String, Option<String>)],
    cluster: &ClusterResources<'_>,
) -> Result<(), String> {
    for (name, value) in requests {
        let mut kept = Vec::new();
        for own in known.drain(..) {
            if offers(&own, name, value.as_deref(), cluster)? {
                kept.push(own);
            }
        }
        *known = kept;
    }
    Ok(())
}

/// Keeps queues that have the resources of `-l`.
pub(in crate::grid_engine) fn choose(
    known: &mut Vec<Instance>,
    parsed: &Parsed,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<(), ExitCode> {
    let wrong = |why: String| fail(&format!("error: {why}"), 1);
    let requests = requests(parsed.all("l")).map_err(wrong)?;
    if requests.is_empty() {
        return Ok(());
    }
    let cluster = ClusterResources {
        mapping,
        gres: &client.endpoint.gres_types.clone(),
        licenses: query::licenses(client).map_err(|e| unreachable(&e))?,
    };
    retain(known, &requests, &cluster).map_err(wrong)
}

/// Checks that `-pe` names an environment. All queues have all of them.
///
/// # Errors
/// It names none.
pub(in crate::grid_engine) fn check_environments(
    mapping: &Mapping,
    list: &str,
) -> Result<(), String> {
    let all = mapping.environments();
    match all
        .iter()
        .any(|(name, _)| list.split(',').any(|own| fits(own, name)))
    {
        true => Ok(()),
        false => Err("error: no such parallel environment".to_owned()),
    }
}

/// Keeps queues that at least one of the users may use.
pub(in crate::grid_engine) fn retain_of_users(
    known: &mut Vec<Instance>,
    users: &[&str],
    partitions: &[PartitionConfig],
    client: &mut Client,
) -> Result<(), ExitCode> {
    let answer = query::accounts(client).map_err(|e| unreachable(&e))?;
    let people: Vec<(&str, Vec<String>)> = users.iter().map(|user| (*user, groups(user))).collect();
    known.retain(|own| {
        let partition = partitions.iter().find(|one| one.name == own.partition);
        partition.is_some_and(|partition| {
            let mut each = people.iter();
            each.any(|(user, groups)| may_use(user, groups, partition, &answer.accounts))
        })
    });
    Ok(())
}

/// Whether a partition takes jobs of a user.
fn may_use(
    user: &str,
    groups: &[String],
    partition: &PartitionConfig,
    accounts: &Accounts,
) -> bool {
    if user == "root" || is_pattern(user) {
        return true;
    }
    let by_group = partition.allow_groups.is_empty()
        || partition
            .allow_groups
            .iter()
            .any(|own| groups.contains(own));
    let known = accounts.users.get(user);
    let own: Vec<&str> = known.map_or_else(Vec::new, |known| {
        known.associations().map(|(account, ..)| account).collect()
    });
    let names = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let allowed = partition.allow_accounts.is_empty()
        || own
            .iter()
            .any(|name| names(&partition.allow_accounts, name));
    let denied = !own.is_empty() && own.iter().all(|name| names(&partition.deny_accounts, name));
    by_group && allowed && !denied && !partition.root_only
}

/// Names of the groups of a user; none where the system does not know the user.
fn groups(user: &str) -> Vec<String> {
    let (Some(found), Ok(name)) = (people::user_named(user), CString::new(user)) else {
        return Vec::new();
    };
    let all = nix::unistd::getgrouplist(&name, found.gid).unwrap_or_default();
    let names = all
        .into_iter()
        .filter_map(|gid| people::group_of_gid(gid.as_raw()));
    names.map(|group| group.name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::queues::HostOffer;
    use super::*;
    use muster_model::node::GresConfig;

    #[test]
    fn queues_are_chosen_by_what_does_not_change() {
        let gpus = |kind: Option<&str>, count| GresConfig {
            name: "gpu".to_owned(),
            kind: kind.map(str::to_owned),
            count,
            ..GresConfig::default()
        };
        let own = Instance {
            queue: "all.q".to_owned(),
            host: "n1".to_owned(),
            total: 8,
            limit_s: Some(3600),
            has: HostOffer {
                gres: vec![gpus(Some("a100"), 2), gpus(None, 1)],
                features: vec!["big".to_owned()],
                memory_bytes: 4 << 30,
                cpus: 8,
                cores: 4,
                sockets: 1,
            },
            ..Instance::default()
        };
        let conf = "complex a100 gres:gpu:a100 slot\ncomplex lic license:matlab\ncomplex big feature:big\ncomplex m memory\n";
        let mapping = Mapping::parse(conf, "f").0;
        let cluster = ClusterResources {
            mapping: &mapping,
            gres: &["fpga".to_owned()],
            licenses: vec![License {
                name: "matlab".to_owned(),
                total: 3,
                ..License::default()
            }],
        };
        for (request, want) in [
            ("gpu=3", true),
            ("gpu=4", false),
            ("a100=2", true),
            ("a100=3", false),
            ("fpga=1", false),
            ("lic=3", true),
            ("lic=4", false),
            ("big", true),
            ("big=FALSE", false),
            ("m=4G", true),
            ("m=5G", false),
            ("h_vmem=4G", true),
            ("mem_free=500G", true),
            ("hostname=n*", true),
            ("h=n2", false),
            ("q=all.q", true),
            ("slots=8", true),
            ("slots=9", false),
            ("h_rt=1:0:0", true),
            ("h_rt=1:0:1", false),
            ("h_rt=INFINITY", false),
            ("num_proc=9", false),
            ("m_core=4", true),
            ("arch=lx-*", true),
            ("arch=sol*", false),
        ] {
            let (name, value) = request
                .split_once('=')
                .map_or((request, None), |(n, v)| (n, Some(v)));
            assert_eq!(offers(&own, name, value, &cluster), Ok(want), "{request}");
        }
        for ((name, value), why) in [
            (("nosuch", None), "unknown resource \"nosuch\""),
            (("gpu", Some("x")), "attribute \"gpu\" is not a number"),
            (
                ("h_rt", Some("x")),
                "attribute \"h_rt\" is not a time value",
            ),
        ] {
            assert_eq!(offers(&own, name, value, &cluster), Err(why.to_owned()));
        }
    }

    #[test]
    fn access_is_by_group_and_account() {
        let groups = ["staff".to_owned()];
        let accounts = Accounts::default();
        let partition = |groups: &[&str], accounts: &[&str]| PartitionConfig {
            allow_groups: groups.iter().map(|own| (*own).to_owned()).collect(),
            allow_accounts: accounts.iter().map(|own| (*own).to_owned()).collect(),
            ..PartitionConfig::named("p")
        };
        let may = |partition: &PartitionConfig| may_use("ada", &groups, partition, &accounts);
        assert!(may(&partition(&[], &[])) && may(&partition(&["staff"], &[])));
        assert!(!may(&partition(&["other"], &[])) && !may(&partition(&[], &["bio"])));
        assert!(may_use("root", &[], &partition(&["other"], &[]), &accounts));
    }
}
