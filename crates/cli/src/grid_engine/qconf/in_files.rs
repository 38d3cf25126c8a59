//! Objects in files that no command writes: parallel environments, complexes, host groups, attributes of hosts. qconf prints the
//! line to be written, and its file.

use muster_conf::grid_engine::{AllocationRule, ComplexTarget, CountedPer, Mapping};
use muster_model::calendar::Calendar;
use std::io::Read as _;

/// The largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const SGE_CONF: &str = "write into sge.conf beside slurm.conf";
const NO_LINE: &str = "take out of sge.conf beside slurm.conf";
const SLURM_CONF: &str = "write into slurm.conf, then scontrol reconfigure";

/// The line to be written, and its file, in place of an option's change; `None` for unrelated options, and where the
/// file says it all. `complexes` are the existing names.
///
/// # Errors
/// A file is unreadable or invalid.
pub(super) fn advice(
    option: &str,
    values: &[String],
    mapping: &Mapping,
    complexes: impl FnOnce() -> Vec<String>,
) -> Option<Result<String, String>> {
    let (verb, object) = option.strip_prefix('-')?.split_at_checked(1)?;
    let value = values.first().map(String::as_str);
    let of_file = verb.starts_with(|c: char| c.is_ascii_uppercase());
    if !matches!(verb, "a" | "A" | "m" | "M" | "d" | "D" | "r" | "R") {
        return None;
    }
    match object {
        "p" => Some(match of_file {
            true => rows(value?).and_then(|rows| environment_of_file(&rows)),
            false => environment(verb, value?, mapping),
        }),
        "hgrp" => Some(match of_file {
            true => rows(value?).and_then(|rows| host_group_of_file(&rows)),
            false => host_group(verb, value?),
        }),
        "cal" => Some(match of_file {
            true => rows(value?).and_then(|rows| calendar_of_file(&rows)),
            false => Ok(calendar_line(verb, value?)),
        }),
        "c" if of_file => {
            Some(text(value?).map(|text| self::complexes(&text, mapping, &complexes())))
        }
        "attr" => attribute(values, mapping).map(Ok),
        _ => None,
    }
}

pub(super) fn text(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("error opening {path}: {e}"))?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("error reading {path}: {e}"))?;
    Ok(text)
}

/// Lines of a name and a value, which a backslash continues.
fn rows(path: &str) -> Result<Vec<(String, String)>, String> {
    text(path).map(|text| rows_of(&text))
}

pub(super) fn rows_of(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        (name, words.collect::<Vec<_>>().join(" "))
    };
    lines.map(row).collect()
}

pub(super) fn row<'r>(rows: &'r [(String, String)], name: &str) -> Result<&'r str, String> {
    let found = rows.iter().find(|(own, _)| own == name);
    let found = found.map(|(_, value)| value.as_str());
    found
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("attribute \"{name}\" is missing"))
}

/// Name and rule of an environment.
pub(super) fn environment_of_rows(
    rows: &[(String, String)],
) -> Result<(&str, AllocationRule), String> {
    let (name, text) = (row(rows, "pe_name")?, row(rows, "allocation_rule")?);
    let rule = AllocationRule::parse(text);
    let rule = rule.ok_or_else(|| format!("allocation_rule \"{text}\" is not valid"))?;
    Ok((name, rule))
}

fn environment_of_file(rows: &[(String, String)]) -> Result<String, String> {
    let (name, rule) = environment_of_rows(rows)?;
    Ok(format!("{SGE_CONF}: pe {name} {}", rule.text()))
}

fn environment(verb: &str, name: &str, mapping: &Mapping) -> Result<String, String> {
    let rules = "$pe_slots, or $fill_up, $round_robin, or a number of slots on each host";
    let known = mapping.rule(name);
    match (verb, known) {
        ("a", Some(_)) => Err(format!("parallel environment \"{name}\" already exists")),
        ("a", None) => Ok(format!("{SGE_CONF}: pe {name} {rules}")),
        (_, None) => Err(format!("parallel environment \"{name}\" does not exist")),
        ("m", Some(rule)) => Ok(format!(
            "{SGE_CONF} in place of \"pe {name} {}\": pe {name} {rules}",
            rule.text()
        )),
        (_, Some(rule)) if mapping.pes.is_empty() => Ok(format!(
            "{SGE_CONF} a pe line for each environment that is to stay; without any there are the usual ones, among them {name} {}",
            rule.text()
        )),
        (_, Some(rule)) => Ok(format!("{NO_LINE}: pe {name} {}", rule.text())),
    }
}

/// A calendar by its rows.
///
/// # Errors
/// One is missing, unknown or wrong.
pub(super) fn calendar_of_rows(rows: &[(String, String)]) -> Result<Calendar, String> {
    let known = ["calendar_name", "year", "week"];
    if let Some((name, _)) = rows
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()))
    {
        return Err(format!("error: unknown attribute name \"{name:.80}\""));
    }
    let row = |name| {
        row(rows, name).map_err(|_| format!("error: required attribute \"{name}\" is missing"))
    };
    Calendar::new(row("calendar_name")?, row("year")?, row("week")?)
}

fn calendar_of_file(rows: &[(String, String)]) -> Result<String, String> {
    let calendar = calendar_of_rows(rows)?;
    Ok(format!("{SGE_CONF}: calendar {}", calendar.text()))
}

fn calendar_line(verb: &str, name: &str) -> String {
    match verb {
        "d" => format!("{NO_LINE}: calendar {name} ..."),
        _ => format!("{SGE_CONF}: calendar {name} year NONE week mon-fri=6-20"),
    }
}

/// The name of a host group without the `@`.
fn set_name(group: &str) -> Result<&str, String> {
    match group.strip_prefix('@') {
        Some("allhosts") => {
            Err("denied: @allhosts has all nodes of slurm.conf, and changes with them".to_owned())
        }
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(format!("\"{group}\" is not a valid name of a host group")),
    }
}

fn host_group_of_file(rows: &[(String, String)]) -> Result<String, String> {
    let name = set_name(row(rows, "group_name")?)?;
    Ok(host_group_line(name, row(rows, "hostlist")?))
}

fn host_group_line(name: &str, hosts: &str) -> String {
    let words = hosts.split([' ', ',']).filter(|word| !word.is_empty());
    let all: Vec<&str> = words.collect();
    format!("{SGE_CONF}: hostgroup @{name} {}", all.join(" "))
}

fn host_group(verb: &str, group: &str) -> Result<String, String> {
    let name = set_name(group)?;
    Ok(match verb {
        "d" => {
            format!("{NO_LINE}: hostgroup @{name} ...")
        }
        _ => format!("{SGE_CONF}: hostgroup @{name} HOST HOST"),
    })
}

/// Lines for complexes of a table that are not there yet, or there no more.
fn complexes(table: &str, mapping: &Mapping, known: &[String]) -> String {
    let mut lines = Vec::new();
    let mut named = Vec::new();
    for line in table
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, kind, _, _, consumable, ..] = words[..] else {
            continue;
        };
        named.push(name);
        if known.iter().any(|own| own == name) {
            continue;
        }
        lines.push(match (kind, consumable) {
            ("BOOL", _) => format!("{SGE_CONF}: complex {name} feature:{name}"),
            ("MEMORY", "YES") => format!("{SGE_CONF}: complex {name} memory"),
            ("INT" | "RSMAP" | "DOUBLE", "YES" | "JOB" | "HOST") => {
                let per = match consumable {
                    "YES" => " slot",
                    "JOB" => " job",
                    _ => "",
                };
                format!("{SGE_CONF}: complex {name} gres:{name}{per} (of hosts), or complex {name} license:{name} (of the cluster)")
            }
            _ => format!("{name}: nodes have no such value of type {kind}; a feature says what they are"),
        });
    }
    let gone = mapping
        .complexes
        .iter()
        .filter(|(name, _)| !named.contains(&name.as_str()));
    lines.extend(
        gone.map(|(name, target)| format!("{NO_LINE}: complex {name} {}", target_text(target))),
    );
    match lines.is_empty() {
        true => {
            "all of it is there; types, relations and defaults of complexes are fixed".to_owned()
        }
        false => lines.join("\n"),
    }
}

/// The target of a complex, as sge.conf has it.
fn target_text(target: &ComplexTarget) -> String {
    match target {
        ComplexTarget::Gres(name, CountedPer::Host) => format!("gres:{name}"),
        ComplexTarget::Gres(name, CountedPer::Slot) => format!("gres:{name} slot"),
        ComplexTarget::Gres(name, CountedPer::Job) => format!("gres:{name} job"),
        ComplexTarget::License(name) => format!("license:{name}"),
        ComplexTarget::Feature(name) => format!("feature:{name}"),
        ComplexTarget::Memory => "memory".to_owned(),
    }
}

/// The command that changes an attribute of another object than a queue.
fn attribute(values: &[String], mapping: &Mapping) -> Option<String> {
    let [object, name, value, instances, ..] = values else {
        return None;
    };
    match (object.as_str(), name.as_str()) {
        ("exechost", "complex_values") => {
            let each = value.split([',', ' ']).filter(|own| !own.is_empty());
            let lines: Vec<String> = each
                .map(|own| host_value(own, instances, mapping))
                .collect();
            Some(lines.join("\n"))
        }
        ("pe", "allocation_rule") => Some(format!("{SGE_CONF}: pe {instances} {value}")),
        ("pe", _) => Some(
            "of a parallel environment there is the rule alone, in pe lines of sge.conf".to_owned(),
        ),
        ("hostgroup", "hostlist") => {
            let names = instances
                .split(',')
                .filter_map(|group| set_name(group).ok());
            let lines: Vec<String> = names.map(|name| host_group_line(name, value)).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
        ("exechost", _) => {
            Some("NodeName lines of slurm.conf, then scontrol reconfigure".to_owned())
        }
        ("userset" | "project", _) => {
            Some("lists of users and projects are accounts: qconf -au, sacctmgr".to_owned())
        }
        ("resource_quota", _) => Some("limits of accounts and QOS: sacctmgr modify".to_owned()),
        _ => None,
    }
}

/// An amount or a property of hosts, `gpu=2`.
fn host_value(own: &str, hosts: &str, mapping: &Mapping) -> String {
    let (name, amount) = own.split_once('=').unwrap_or((own, "TRUE"));
    let of_cluster = hosts == "global";
    match mapping.complex(name) {
        Some(ComplexTarget::License(license)) => {
            format!("{SLURM_CONF}: Licenses={license}:{amount}")
        }
        _ if of_cluster => format!(
            "{SLURM_CONF}: Licenses={name}:{amount}; and into sge.conf: complex {name} license:{name}"
        ),
        Some(ComplexTarget::Feature(feature)) => {
            format!(
                "scontrol update NodeName={hosts} AvailableFeatures=..., with or without {feature}, and Feature of the NodeName line of slurm.conf"
            )
        }
        Some(ComplexTarget::Memory) => format!("{SLURM_CONF}: RealMemory of NodeName={hosts}"),
        Some(ComplexTarget::Gres(gres, _)) => {
            format!(
                "{SLURM_CONF}: Gres={gres}:{amount} on the line of NodeName={hosts}, and its devices into gres.conf"
            )
        }
        None => format!(
            "{SLURM_CONF}: Gres={name}:{amount} on the line of NodeName={hosts}, {name} in GresTypes, and its devices into gres.conf"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(option: &str, values: &[&str], conf: &str) -> Option<Result<String, String>> {
        let mapping = Mapping::parse(conf, "f").0;
        let values: Vec<String> = values.iter().map(|own| (*own).to_owned()).collect();
        advice(option, &values, &mapping, Vec::new)
    }

    #[test]
    fn the_line_that_does_it_is_named() {
        let conf = "pe smp $pe_slots\ncomplex gpu gres:gpu:a100 slot\ncomplex lic license:matlab\ncomplex big feature:bigmem\n";
        for (option, values, want) in [
            (
                "-ap",
                &["mpi"][..],
                "write into sge.conf beside slurm.conf: pe mpi $pe_slots, or $fill_up, $round_robin, or a number of slots on each host",
            ),
            (
                "-dp",
                &["smp"],
                "take out of sge.conf beside slurm.conf: pe smp $pe_slots",
            ),
            (
                "-ahgrp",
                &["@big"],
                "write into sge.conf beside slurm.conf: hostgroup @big HOST HOST",
            ),
            (
                "-dhgrp",
                &["@big"],
                "take out of sge.conf beside slurm.conf: hostgroup @big ...",
            ),
            (
                "-mattr",
                &["exechost", "complex_values", "lic=3", "global"],
                "write into slurm.conf, then scontrol reconfigure: Licenses=matlab:3",
            ),
            (
                "-mattr",
                &["exechost", "complex_values", "gpu=2", "n1"],
                "write into slurm.conf, then scontrol reconfigure: Gres=gpu:a100:2 on the line of NodeName=n1, and its devices into gres.conf",
            ),
            (
                "-rattr",
                &["pe", "allocation_rule", "$fill_up", "smp"],
                "write into sge.conf beside slurm.conf: pe smp $fill_up",
            ),
            (
                "-aattr",
                &["hostgroup", "hostlist", "n1 @more", "@big"],
                "write into sge.conf beside slurm.conf: hostgroup @big n1 @more",
            ),
        ] {
            assert_eq!(
                said(option, values, conf),
                Some(Ok(want.to_owned())),
                "{option} {values:?}"
            );
        }
        for (option, values, want) in [
            (
                "-dp",
                &["nosuch"][..],
                "parallel environment \"nosuch\" does not exist",
            ),
            (
                "-ap",
                &["smp"],
                "parallel environment \"smp\" already exists",
            ),
            (
                "-mhgrp",
                &["@allhosts"],
                "denied: @allhosts has all nodes of slurm.conf, and changes with them",
            ),
            (
                "-ahgrp",
                &["big"],
                "\"big\" is not a valid name of a host group",
            ),
        ] {
            assert_eq!(
                said(option, values, conf),
                Some(Err(want.to_owned())),
                "{option} {values:?}"
            );
        }
        for (option, values) in [
            ("-ap", &[][..]),
            ("-aq", &["x"]),
            ("-sp", &["smp"]),
            ("-mattr", &["ckpt", "a", "b", "c"]),
        ] {
            assert_eq!(said(option, values, conf), None, "{option}");
        }
        // The usual environments have no lines.
        assert!(
            said("-dp", &["mpi"], "")
                .unwrap()
                .unwrap()
                .contains("usual ones")
        );
    }

    #[test]
    fn texts_of_files_become_lines() {
        let rows = rows_of("pe_name  mpi8\nslots 99\nallocation_rule \\\n   8\n");
        assert_eq!(
            environment_of_file(&rows).as_deref(),
            Ok("write into sge.conf beside slurm.conf: pe mpi8 8")
        );
        assert!(environment_of_file(&rows_of("pe_name x\nallocation_rule none\n")).is_err());
        assert!(environment_of_file(&rows_of("pe_name x\n")).is_err());
        assert_eq!(
            host_group_of_file(&rows_of("group_name @a\nhostlist n1 n2\n")).as_deref(),
            Ok("write into sge.conf beside slurm.conf: hostgroup @a n1 n2")
        );
        let mapping = Mapping::parse("complex old license:old\n", "f").0;
        let table = "#name shortcut type relop requestable consumable default urgency\n\
                     gpu gpu INT <= YES HOST 0 0\nbig big BOOL == YES NO 0 0\narch a STRING == YES NO NONE 0\n\
                     os os STRING == YES NO NONE 0\n";
        let lines = complexes(table, &mapping, &["arch".to_owned(), "old".to_owned()]);
        let lines: Vec<&str> = lines.lines().collect();
        assert!(
            lines[0].contains("complex gpu gres:gpu (of hosts), or complex gpu license:gpu"),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("complex big feature:big"), "{lines:?}");
        assert!(
            lines[2].starts_with("os: nodes have no such value of type STRING"),
            "{lines:?}"
        );
        assert!(lines[3].ends_with("complex old license:old"), "{lines:?}");
        assert_eq!(lines.len(), 4);
    }
}
