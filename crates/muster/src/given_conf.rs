//! A site's slurm.conf as that of a private cluster (`muster up -f`): host, port, accounts and paths become the
//! cluster's own. Every other line stays on the line where it was, so that messages about lines of the copy hold for
//! the site's file. Starts nothing.

use anyhow::{Context, Result, bail};
use muster_conf::{Config, Origin, Setting, Severity};
use nix::unistd::{Uid, User, geteuid};
use std::fs;
use std::path::Path;

/// Keys that a private cluster sets itself, whatever a given file says of them.
const OWN_KEYS: [&str; 14] = [
    "slurmctldhost",
    "slurmctldaddr",
    "slurmctldpidfile",
    "slurmctldlogfile",
    "slurmdpidfile",
    "slurmdlogfile",
    "slurmdspooldir",
    "statesavelocation",
    "slurmuser",
    "slurmduser",
    "tmpfs",
    "slurmctldport",
    // All of it is on this host.
    "authtype",
    "authinfo",
];

/// Files that a controller and its nodes read from the directory of slurm.conf and that name nothing of a private
/// cluster's own.
const COMPANIONS: [&str; 13] = [
    "cgroup.conf",
    "cli_filter.lua",
    "gres.conf",
    "job_classes.conf",
    "job_container.conf",
    "job_submit.lua",
    "sge.conf",
    "site_options.conf",
    "topology.conf",
    "topology.yaml",
    "mpi.conf",
    "verifier.conf",
    // The addresses and keys are the site's: notices of this cluster go there too.
    muster_conf::webhooks::FILE,
];

/// A given file after its adaptation.
#[derive(Debug)]
pub(crate) struct Adapted {
    /// The private cluster's slurm.conf.
    pub(crate) text: String,
    /// Settings of the file that are dropped though they may matter, each with its place.
    pub(crate) warnings: Vec<String>,
}

/// Makes the slurm.conf of the cluster at `path` from a given one. `own` has its host, accounts and paths.
///
/// # Errors
/// A file that cannot be read, and errors in it or in those beside it: all of them, where the site has written them.
pub(crate) fn adapt(given: &Path, path: &Path, own: &str) -> Result<Adapted> {
    let text =
        fs::read_to_string(given).with_context(|| format!("cannot read {}", given.display()))?;
    let (site, _) = muster_conf::load(given);
    let (accounts, mut warnings) = accounts(&site);
    if site.has_job_containers() && !geteuid().is_root() {
        warnings.push(
            "JobContainerType: only root makes directories that jobs have to themselves; jobs of this cluster share those of the \
             machine"
                .to_owned(),
        );
    }
    let own = with_port(&with_accounts(own, &accounts), &site);
    let lines = replace_own_lines(&text, &own, |include| include.to_owned());
    check(given, path, text.lines().count(), &lines)?;
    let directory = given
        .canonicalize()
        .with_context(|| given.display().to_string())?
        .with_file_name("");
    let absolute = |include: &str| directory.join(include).display().to_string();
    Ok(Adapted {
        text: replace_own_lines(&text, &own, absolute),
        warnings,
    })
}

/// Checks what a given file has become, as if it stood where it was given. The lines after `count` are the copy's.
fn check(given: &Path, path: &Path, count: usize, text: &str) -> Result<()> {
    let report = muster_conf::check_with(given, &|wanted| match wanted == given {
        true => Ok(text.as_bytes().to_vec()),
        false => muster_conf::read_from_disk(wanted),
    });
    let given = given.to_string_lossy();
    let is_copys = |origin: &Origin| *origin.file == *given && origin.line as usize > count;
    let errors = report
        .diagnostics
        .into_iter()
        .filter(|finding| finding.severity == Severity::Error);
    let errors: Vec<String> = errors
        .map(|mut finding| {
            if is_copys(&finding.origin) {
                finding.origin.file = path.to_string_lossy().into();
            }
            finding.to_string()
        })
        .collect();
    if !errors.is_empty() {
        bail!("the configuration has errors:\n{}", errors.join("\n"));
    }
    Ok(())
}

/// Copies what lies beside the given slurm.conf to where this one is, and takes away what an earlier one had there.
pub(crate) fn bring_companions(given: &Path, own: &Path) -> Result<()> {
    let from =
        fs::canonicalize(given).with_context(|| format!("cannot read {}", given.display()))?;
    for name in COMPANIONS {
        let (from, to) = (from.with_file_name(name), own.with_file_name(name));
        if from == to {
            continue;
        }
        if from.exists() {
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        } else if to.exists() {
            fs::remove_file(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
    }
    Ok(())
}

/// Accounts of a site's file that the private cluster keeps: it must be root's, and this host must have them.
#[derive(Debug, Default)]
struct Accounts {
    slurm_user: Option<String>,
    slurmd_user: Option<String>,
}

/// The accounts that are kept, and warnings about the others.
fn accounts(site: &Config) -> (Accounts, Vec<String>) {
    let mut warnings = Vec::new();
    let mut account = |key: &str, instead: &str| {
        let Setting { value, origin } = site.raw.get(key)?;
        let user = find_account(value);
        let why = match &user {
            Some(user) if user.uid == geteuid() => return Some(user.name.clone()),
            None => "this host has no such account",
            Some(_) if !geteuid().is_root() => "only root can start daemons as others",
            Some(user) => return Some(user.name.clone()),
        };
        warnings.push(format!(
            "{origin}: {key}={value} is not kept: {why}; {instead}"
        ));
        None
    };
    let own = find_account(&geteuid().to_string())
        .map_or_else(|| geteuid().to_string(), |user| user.name);
    let kept = Accounts {
        slurm_user: account("SlurmUser", &format!("the controller runs as {own}")),
        slurmd_user: account("SlurmdUser", "agents run as if there were no such line"),
    };
    (kept, warnings)
}

/// The account of this name or number.
fn find_account(name: &str) -> Option<User> {
    let found = match name.parse() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    found.ok().flatten()
}

fn with_accounts(own: &str, accounts: &Accounts) -> String {
    let line = |line: &str| match &accounts.slurm_user {
        Some(user) if key(line) == "slurmuser" => format!("SlurmUser={user}\n"),
        _ => format!("{line}\n"),
    };
    let mut text: String = own.lines().map(line).collect();
    if let Some(user) = &accounts.slurmd_user {
        text += &format!("SlurmdUser={user}\n");
    }
    text
}

/// With the site's port where the controller listens: with tokens of users or metrics, even if it has no other hosts. Two private clusters may
/// have one port otherwise.
fn with_port(own: &str, site: &Config) -> String {
    if site.user_tokens().is_none() && !site.has_metrics() {
        return own.to_owned();
    }
    let port = site.slurmctld_ports.start();
    let line = |line: &str| match key(line).as_str() {
        "slurmctldport" => format!("SlurmctldPort={port}\n"),
        _ => format!("{line}\n"),
    };
    own.lines().map(line).collect()
}

/// The key that a line begins with, in small letters.
fn key(line: &str) -> String {
    let word = line.split('=').next().unwrap_or_default();
    word.trim().to_ascii_lowercase()
}

fn is_own(line: &str) -> bool {
    OWN_KEYS.contains(&key(line).as_str())
}

/// Whether the next line belongs to this one, too.
fn continues(line: &str) -> bool {
    let comment = line
        .match_indices('#')
        .find(|(at, _)| !line[..*at].ends_with('\\'));
    let line = &line[..comment.map_or(line.len(), |(at, _)| at)];
    line.trim_end().ends_with('\\')
}

/// The file that a line includes.
fn included(line: &str) -> Option<&str> {
    let line = line.trim();
    let rest = line
        .get(..7)
        .filter(|word| word.eq_ignore_ascii_case("include"))
        .and_then(|_| line.get(7..))
        .filter(|rest| rest.starts_with(char::is_whitespace))?;
    let target = rest.split('#').next().unwrap_or_default().trim();
    let is_file = !target.is_empty() && !target.starts_with('=');
    is_file.then(|| target.trim_matches('"'))
}

/// The lines of a file with the values of `own` for the keys that a private cluster sets itself. One that has no value is made
/// a comment; those that the file has no line for come last. All others stay as and where they are, but that files which
/// they include are named as `include` says.
fn replace_own_lines(text: &str, own: &str, include: impl Fn(&str) -> String) -> String {
    let mut own: Vec<&str> = own.lines().filter(|line| is_own(line)).collect();
    let mut out = String::with_capacity(text.len() + 1024);
    let mut push = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    let (mut goes_on, mut is_replaced) = (false, false);
    for line in text.lines() {
        let is_first = !std::mem::replace(&mut goes_on, continues(line));
        if is_first {
            is_replaced = is_own(line);
        }
        let own_line = own
            .iter()
            .position(|own| is_first && key(own) == key(line))
            .map(|at| own.remove(at));
        match (own_line, included(line)) {
            (Some(own), _) => push(own),
            (None, _) if is_replaced => push(&format!("# {line}")),
            (None, Some(file)) if is_first => push(&format!("Include {}", include(file))),
            _ => push(line),
        }
    }
    if !own.is_empty() {
        push("# Of this private cluster:");
        own.iter().for_each(|line| push(line));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str =
        "# A cluster.\nClusterName=muster\nSlurmctldHost=here\nSlurmUser=root\nTmpFS=/tmp/x\n";

    fn replaced(text: &str) -> String {
        replace_own_lines(text, OWN, |file| format!("/etc/{file}"))
    }

    #[test]
    fn lines_stay_where_they_are() {
        let site = "# Ours\nClusterName=site\nSlurmctldHost=a \\\n  StateSaveLocation=/x # no\nslurmctldhost = b\n\
                    NodeName=n1 \\\n SlurmUser=odd\nInclude \"more.conf\" # gpus\nSlurmdPidFile=/y\n";
        let text = replaced(site);
        assert_eq!(
            text,
            "# Ours\nClusterName=site\nSlurmctldHost=here\n#   StateSaveLocation=/x # no\n# slurmctldhost = b\n\
             NodeName=n1 \\\n SlurmUser=odd\nInclude /etc/more.conf\n# SlurmdPidFile=/y\n\
             # Of this private cluster:\nSlurmUser=root\nTmpFS=/tmp/x\n"
        );
        let again = replace_own_lines(&text, OWN, ToOwned::to_owned);
        assert_eq!(again, text, "what is given again stays as it is");
    }

    #[test]
    fn a_line_that_never_ends_takes_nothing_of_the_clusters() {
        let text = replaced("NodeName=n1 \\");
        let (_, own) = text.split_once('\n').unwrap();
        assert!(
            own.starts_with("# Of this private cluster:\nSlurmctldHost=here\n"),
            "{text}"
        );
        assert!(!continues("Prolog=/x # to be done \\"));
        assert!(continues("Prolog=/x\\#y \\"));
    }
}
