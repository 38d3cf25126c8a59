//! The words of sacctmgr with their effects here, for the compatibility page and the man page.

use super::settings::{ASSOCIATION, QOS};
use crate::options::OptionStatus;

const WORKS: OptionStatus = OptionStatus::Works;
const RECORDS_ONLY: OptionStatus =
    OptionStatus::Partly("kept and shown: no job is sent to another cluster of a federation");

/// Commands.
const COMMANDS: &[(&str, OptionStatus)] = &[
    (
        "add, create account, cluster, coordinator, qos, resource, user",
        WORKS,
    ),
    (
        "modify, update account, cluster, job, qos, resource, user",
        WORKS,
    ),
    (
        "delete, remove account, cluster, coordinator, qos, resource, user",
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
        OptionStatus::Partly(
            "begins again with the counters of the controller, which sdiag shows as well",
        ),
    ),
    (
        "reconfigure",
        OptionStatus::Partly("there is no daemon of accounting with a configuration of its own"),
    ),
    ("add, modify, delete federation", RECORDS_ONLY),
    (
        "archive dump",
        OptionStatus::Partly("not by accounts, users, partitions or other conditions on jobs"),
    ),
    ("archive load", OptionStatus::Partly("File=, not Insert=")),
    (
        "rollup",
        OptionStatus::Refused(
            "sums are written with the rows that they are of: there is nothing to roll up",
        ),
    ),
    (
        "shutdown",
        OptionStatus::Refused("accounting is a part of the controller; see scontrol shutdown"),
    ),
];

/// Entities of `show`.
const SHOWN: &[(&str, OptionStatus)] = &[
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
        OptionStatus::Partly("of slurmdbd what the controller has: not the Archive and Purge keys"),
    ),
    (
        "event",
        OptionStatus::Partly("of nodes; changes of the cluster as a whole are not kept"),
    ),
    (
        "stats",
        OptionStatus::Partly(
            "requests to the controller, without the numbers of their types and without rollups",
        ),
    ),
    (
        "reservation",
        OptionStatus::Partly("by name, node and time; without UnusedWall and numbers"),
    ),
    (
        "runawayjobs",
        OptionStatus::Partly("accounting follows the controller's own events, so there are none"),
    ),
    ("federation", RECORDS_ONLY),
    ("resource", WORKS),
];

/// Words beside the settings of associations and QOS.
const WORDS: &[(&str, OptionStatus)] = &[
    (
        "WithDeleted",
        OptionStatus::Partly("what was deleted is not kept, as with Slurm in the first day"),
    ),
    (
        "Clusters=",
        OptionStatus::Partly(
            "the controller's own; of others a name and defaults are kept, no associations",
        ),
    ),
    (
        "Partitions=",
        OptionStatus::Partly(
            "limits are counted for each; for fair share a user has one association in an account",
        ),
    ),
    (
        "SystemComment=",
        OptionStatus::Refused("use Comment= or AdminComment="),
    ),
    ("Federation=, FedState=, Features=", RECORDS_ONLY),
    (
        "Flags= of a resource, LastConsumed=",
        OptionStatus::Refused("as by Slurm 22.05, which has none of them"),
    ),
    (
        "LimitFactor=",
        OptionStatus::Partly("of a QOS: kept and shown, not obeyed"),
    ),
    (
        "energy, fs/disk, vmem, pages",
        OptionStatus::Partly("as TRES of limits: kept and shown, no job is counted by them"),
    ),
];

/// A list: its title, and each name with its effect.
pub(crate) type Surface = (&'static str, Vec<(String, OptionStatus)>);

/// All lists.
pub(crate) fn surfaces() -> Vec<Surface> {
    let named = |rows: &[(&str, OptionStatus)]| -> Vec<(String, OptionStatus)> {
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
