//! sprio: what it can honestly say while priority is the order of submission.

use super::{Failure, SLURM_VERSION, print};
use crate::options::{Arg, Spec, also, flag, opt};

const NO_FACTORS: &str = "priority has no factors here; squeue -o %Q shows it";

/// sprio.
pub(crate) static SPRIO: Spec = Spec {
    name: "sprio",
    about: "Would show the factors of priorities; there are none here: squeue -o %Q shows priorities.",
    operands: "",
    options: &[
        opt("clusters", "NAME", "cluster to ask")
            .short('M')
            .refused(NO_FACTORS),
        flag("federation", "jobs of a federation").refused(NO_FACTORS),
        opt("format", "FORMAT", "columns")
            .short('o')
            .refused(NO_FACTORS),
        flag("help", "print this help"),
        opt("jobs", "LIST", "these jobs")
            .short('j')
            .refused(NO_FACTORS),
        flag("local", "jobs of this cluster").refused(NO_FACTORS),
        flag("long", "more columns").short('l').refused(NO_FACTORS),
        flag("noheader", "no line above the columns")
            .short('h')
            .refused(NO_FACTORS),
        flag("norm", "factors from 0 to 1")
            .short('n')
            .refused(NO_FACTORS),
        opt("partition", "LIST", "jobs in these partitions")
            .short('p')
            .refused(NO_FACTORS),
        flag("sibling", "jobs of a federation's other clusters").refused(NO_FACTORS),
        opt("sort", "KEYS", "order").short('S').refused(NO_FACTORS),
        flag("usage", "print a short summary"),
        opt("user", "LIST", "jobs of these users")
            .short('u')
            .refused(NO_FACTORS),
        also("user", "users", Arg::Required),
        flag("verbose", "say more").short('v').refused(NO_FACTORS),
        flag("version", "print the version").short('V'),
        flag("weights", "weights of the factors")
            .short('w')
            .refused(NO_FACTORS),
    ],
    variables: &[],
    notes: "",
};

/// Answers `--version` and `--help`; anything else is refused by name.
fn information(spec: &'static Spec, args: &[String]) -> Result<bool, Failure> {
    let parsed = spec.parse(args).map_err(Failure::new)?;
    match parsed.options.first().map(|(name, _)| *name) {
        Some("version") => print(&format!("slurm {SLURM_VERSION}\n")),
        Some("usage") => print(&spec.usage()),
        Some(_) => print(&spec.help()),
        None => return Ok(false),
    }
    Ok(true)
}

/// Runs sprio. Slurm says the same when its priority plugin keeps no factors, whatever columns are asked for.
pub(crate) fn sprio(args: &[String]) -> Result<(), Failure> {
    match information(&SPRIO, args) {
        Ok(true) => return Ok(()),
        Err(failure) if !failure.text.ends_with(NO_FACTORS) => return Err(failure),
        _ => {}
    }
    print(
        "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.\n",
    );
    Ok(())
}
