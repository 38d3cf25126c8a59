//! The words of sacctmgr with what they do here, for the compatibility page and the man page.

use super::settings::{ASSOCIATION, QOS};
use crate::options::Status;

const WORKS: Status = Status::Works;
const ONE_CLUSTER: Status = Status::Refused("accounting is that of one cluster");

/// Commands.
const COMMANDS: &[(&str, Status)] = &[
    (
        "add, create account, cluster, coordinator, qos, user",
        WORKS,
    ),
    ("modify, update account, cluster, job, qos, user", WORKS),
    (
        "delete, remove account, cluster, coordinator, qos, user",
        WORKS,
    ),
    ("show, list", WORKS),
    ("dump", WORKS),
    ("load", WORKS),
    ("associations", WORKS),
    ("readonly", WORKS),
    ("help", WORKS),
    ("version", WORKS),
    ("exit, quit", WORKS),
    ("!!", WORKS),
    (
        "clear stats",
        Status::Partly(
            "begins again with the counters of the controller, which sdiag shows as well",
        ),
    ),
    (
        "reconfigure",
        Status::Partly("there is no daemon of accounting with a configuration of its own"),
    ),
    ("add, modify, delete federation", ONE_CLUSTER),
    ("add, modify, delete resource", ONE_CLUSTER),
    (
        "archive dump",
        Status::Partly("not by accounts, users, partitions or other conditions on jobs"),
    ),
    ("archive load", Status::Partly("File=, not Insert=")),
    (
        "rollup",
        Status::Refused(
            "sums are written with the rows that they are of: there is nothing to roll up",
        ),
    ),
    (
        "shutdown",
        Status::Refused("accounting is a part of the controller; see scontrol shutdown"),
    ),
];

/// What `show` shows.
const SHOWN: &[(&str, Status)] = &[
    ("account", WORKS),
    ("association", WORKS),
    ("cluster", WORKS),
    ("qos", WORKS),
    ("transaction", WORKS),
    ("tres", WORKS),
    ("user", WORKS),
    ("wckey", WORKS),
    ("problem", WORKS),
    (
        "configuration",
        Status::Partly("of slurmdbd what the controller has: not the Archive and Purge keys"),
    ),
    (
        "event",
        Status::Partly("of nodes; changes of the cluster as a whole are not kept"),
    ),
    (
        "stats",
        Status::Partly(
            "requests to the controller, without the numbers of their types and without rollups",
        ),
    ),
    (
        "reservation",
        Status::Partly("by name, node and time; without UnusedWall and numbers"),
    ),
    (
        "runawayjobs",
        Status::Partly("accounting follows the controller's own events, so there are none"),
    ),
    ("federation", Status::Partly("there are none")),
    ("resource", Status::Partly("there are none")),
];

/// Words beside the settings of associations and QOS.
const WORDS: &[(&str, Status)] = &[
    (
        "WithDeleted",
        Status::Partly("what was deleted is not kept, as with Slurm in the first day"),
    ),
    (
        "Clusters=",
        Status::Partly(
            "the controller's own; of others a name and defaults are kept, no associations",
        ),
    ),
    (
        "Partitions=",
        Status::Partly(
            "limits are counted for each; for fair share a user has one association in an account",
        ),
    ),
    (
        "SystemComment=",
        Status::Refused("use Comment= or AdminComment="),
    ),
    ("Federation=, FedState=, Features=", ONE_CLUSTER),
    (
        "Flags=EnforceUsageThreshold, PartitionMaxNodes, PartitionMinNodes, PartitionTimeLimit, UsageFactorSafe",
        Status::Refused("of a QOS: not kept, since not obeyed"),
    ),
    (
        "UsageThreshold=, LimitFactor=",
        Status::Partly("of a QOS: kept and shown, not obeyed"),
    ),
    (
        "energy, fs/disk, vmem, pages",
        Status::Refused("as TRES of limits: no job is counted by them"),
    ),
];

/// A list: its title, and each name with what it does.
pub(crate) type Surface = (&'static str, Vec<(String, Status)>);

/// All lists.
pub(crate) fn surfaces() -> Vec<Surface> {
    let named = |rows: &[(&str, Status)]| -> Vec<(String, Status)> {
        let rows = rows.iter();
        rows.map(|(name, status)| ((*name).to_owned(), *status))
            .collect()
    };
    let association = ASSOCIATION
        .iter()
        .map(|(name, ..)| ((*name).to_owned(), WORKS));
    let qos = QOS.iter().map(|(name, ..)| ((*name).to_owned(), WORKS));
    vec![
        ("Commands", named(COMMANDS)),
        ("What 'show' shows", named(SHOWN)),
        ("Settings of associations", association.collect()),
        ("Settings of QOS", qos.collect()),
        ("Other words", named(WORDS)),
    ]
}
