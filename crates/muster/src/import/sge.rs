//! `muster import sge DIR NEW`: what a site's `qconf` printed, as configuration of Muster in a new directory, with a list of what
//! could not be carried over and why. Nothing is asked of a running Grid Engine, and nothing that runs is changed.

mod accounts;
mod classes;
mod dump;
mod hosts;
mod memory;
mod names;
mod queues;

use anyhow::{Context, Result, bail, ensure};
use dump::Dump;
use muster_conf::{Severity, check};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Its help.
pub(super) const HELP: &str = "\
Usage: muster import sge DIR NEW [--controller HOST]
Reads what qconf printed of a Grid Engine cell, in files below DIR of any names (save_sge_config.sh writes such; or
qconf -sq, -sp, -se, -shgrp, -sc, -sprj, -su, -sul, -suser, -sconf, -srqs, -sjc, each object into a file), and writes into
the new directory NEW: slurm.conf, gres.conf, sge.conf, job_classes.conf, accounts.dump (for 'sacctmgr load'), and NOTES,
a list of what could not be carried over and why.

  --controller HOST   the host of the controller (default: the first administrative host, or the first host)
  -h, --help          print this help
";

/// The written files, and notes about the rest.
#[derive(Default)]
struct Made {
    slurm: String,
    gres: String,
    sge: String,
    classes: String,
    accounts: String,
    notes: Vec<String>,
    /// The notes.
    noted: HashSet<String>,
}

impl Made {
    /// Something that is not carried over, and why.
    fn note(&mut self, what: &str, why: &str) {
        let line = format!("{what}: {why}");
        if self.noted.insert(line.clone()) {
            self.notes.push(line);
        }
    }
}

/// Runs it.
pub(super) fn main(words: &[String]) -> Result<ExitCode> {
    let mut controller = None;
    let mut operands = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--controller" => {
                controller = Some(rest.next().context("--controller needs a host")?.clone())
            }
            option if option.starts_with('-') => bail!("there is no option {option}\n{HELP}"),
            _ => operands.push(word.as_str()),
        }
    }
    let ["sge", from, to] = operands.as_slice() else {
        bail!("sge, a directory to read and a new one to write are needed\n{HELP}");
    };
    let dump = Dump::read(Path::new(from))?;
    ensure!(
        !dump.queues.is_empty(),
        "{from} has no queue: no file begins with a line 'qname NAME', as 'qconf -sq' prints it"
    );
    let made = convert(&dump, controller.as_deref())?;
    let to = Path::new(to);
    fs::create_dir(to)
        .with_context(|| format!("cannot make {}, which must be new", to.display()))?;
    write(&made, to)?;
    let report = check(&to.join("slurm.conf"));
    for finding in report
        .diagnostics
        .iter()
        .filter(|own| own.severity != Severity::NoEffect)
    {
        complain!("{finding}");
    }
    say!(
        "{}: {} hosts, {} queues; NOTES lists {} things that could not be carried over\n",
        to.display(),
        dump.hosts.len(),
        dump.queues.len(),
        made.notes.len()
    );
    Ok(match report.is_usable() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn convert(dump: &Dump, controller: Option<&str>) -> Result<Made> {
    names::check(dump)?;
    let mut made = Made::default();
    for (file, why) in &dump.unknown {
        made.note(file, why);
    }
    let resources = hosts::resources(dump, &mut made);
    let named = controller.or(dump.admin_hosts.first().map(String::as_str));
    let first = dump.hosts.first().map(|host| host.name());
    let controller = named
        .or(first)
        .context("no host is known: give --controller HOST")?;
    settings(dump, controller, &resources, &mut made);
    memory::write(dump, &resources, &mut made);
    hosts::write(dump, &resources, &mut made);
    queues::write(dump, &mut made);
    resources.write(&mut made);
    accounts::write(dump, &mut made);
    classes::write(dump, &mut made);
    leftovers(dump, &mut made);
    Ok(made)
}

/// Writes settings of the whole cluster.
fn settings(dump: &Dump, controller: &str, resources: &hosts::Resources, made: &mut Made) {
    let mut line = |key: &str, value: &str| made.slurm.push_str(&format!("{key}={value}\n"));
    line("ClusterName", "sge");
    line("SlurmctldHost", controller);
    line("SlurmUser", "slurm");
    line("AuthType", "auth/munge");
    line("SelectType", "select/cons_tres");
    line("StateSaveLocation", "/var/spool/slurmctld");
    line("SlurmdSpoolDir", "/var/spool/slurmd");
    line("AccountingStorageType", "accounting_storage/slurmdbd");
    line("PriorityType", "priority/multifactor");
    line("RequeueExit", "99");
    line("RequeueExitHold", "100");
    if !resources.gres.is_empty() {
        line("GresTypes", &resources.gres.join(","));
    }
    if !resources.licenses.is_empty() {
        line("Licenses", &resources.licenses.join(","));
    }
    let number = |key: &str| {
        dump.setting(key)
            .and_then(|text| text.parse::<u32>().ok())
            .filter(|n| *n > 0)
    };
    if let Some(most) = number("max_jobs") {
        line("MaxJobCount", &most.to_string());
    }
    if let Some(most) = number("max_aj_tasks") {
        line(
            "MaxArraySize",
            &most.saturating_add(1).min(4_000_001).to_string(),
        );
    }
    if let Some(mailer) = dump.setting("mailer").filter(|text| is_path(text)) {
        line("MailProg", mailer);
    }
    if dump.setting("enforce_project") == Some("true") {
        line("AccountingStorageEnforce", "associations");
    }
    if let Some(url) = dump.setting("jsv_url") {
        match muster_conf::grid_engine::jsv_path(url) {
            Ok(_) => made.sge.push_str(&format!("jsv_url {url}\n")),
            Err(why) => made.note("jsv_url of the configuration", &why),
        }
    }
    note_settings(dump, made);
    queues::write_tmp_fs(dump, made);
    made.slurm.push('\n');
}

/// Notes settings that are not carried over.
fn note_settings(dump: &Dump, made: &mut Made) {
    if let Some(mailer) = dump.setting("mailer").filter(|text| !is_path(text)) {
        made.note(
            &format!("mailer {mailer} of the configuration"),
            "MailProg is the whole path of a program, without arguments",
        );
    }
    for key in [
        "prolog",
        "epilog",
        "load_sensor",
        "user_lists",
        "xuser_lists",
        "projects",
        "xprojects",
        "max_u_jobs",
        "starter_method",
    ] {
        if let Some(value) = dump.setting(key).filter(|value| *value != "0") {
            let why = match key {
                "prolog" | "epilog" => {
                    "programs around a job run as root or as the user here: see Prolog and TaskProlog of slurm.conf"
                }
                "max_u_jobs" => "set MaxJobs of users by sacctmgr",
                _ => {
                    "there is nothing like it: see AllowGroups and AllowAccounts of partitions, and NodeFeatures"
                }
            };
            made.note(&format!("{key} {value} of the configuration"), why);
        }
    }
}

/// Whether it is the path of a program: more words would be settings of their own. slurm.conf ends words at any white space, and
/// has a NUL for that, too.
fn is_path(text: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "'\"#\\".contains(c);
    text.starts_with('/') && !text.contains(is_wrong)
}

/// Objects that have no counterpart.
fn leftovers(dump: &Dump, made: &mut Made) {
    for object in &dump.others {
        let why = match object.kind.as_str() {
            "ckpt_name" => {
                "there are no checkpointing environments; programs restart from their own checkpoints"
            }
            "algorithm" => "weights of priorities are PriorityWeight... of slurm.conf",
            "sharetree" => "shares are Fairshare of accounts and users: sacctmgr modify",
            _ => "there is nothing like it",
        };
        made.note(&object.what, why);
    }
    for (name, limits) in &dump.quotas {
        for limit in limits {
            made.note(
                &format!("resource quota set {name}: {limit}"),
                "limits are those of accounts, users and QOS: sacctmgr modify ... set MaxTRES, GrpTRES, MaxJobs",
            );
        }
    }
}

fn write(made: &Made, to: &Path) -> Result<()> {
    let head =
        "# Made by 'muster import sge'; NOTES beside it has what could not be carried over.\n";
    let mut notes = String::from("What could not be carried over, and why:\n\n");
    made.notes
        .iter()
        .for_each(|note| notes.push_str(&format!("* {note}\n")));
    let files = [
        ("slurm.conf", head, &made.slurm),
        ("gres.conf", head, &made.gres),
        ("sge.conf", head, &made.sge),
        ("job_classes.conf", head, &made.classes),
        ("accounts.dump", head, &made.accounts),
        ("NOTES", "", &notes),
    ];
    for (name, head, text) in files {
        let file = to.join(name);
        fs::write(&file, format!("{head}{text}"))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
