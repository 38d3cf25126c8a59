//! Changes by qconf: users, lists of users, projects and shares, which are sacctmgr's here and become commands of it. All else is
//! in files, and refused with the name of the file.

use muster_conf::grid_engine::Mapping;
use std::path::Path;

/// A command line of sacctmgr.
pub(super) type CommandLine = Vec<String>;

/// Where things are changed that an option names, by how it goes on after its first letter.
const PLACES: [(&str, &str); 18] = [
    (
        "attr",
        "the attribute in slurm.conf, sge.conf or by sacctmgr",
    ),
    ("cal", "calendar lines of sge.conf beside slurm.conf"),
    ("ckpt", "nothing: there are no checkpointing environments"),
    ("conf", "slurm.conf, then scontrol reconfigure"),
    ("c", "complex lines of sge.conf beside slurm.conf"),
    (
        "e",
        "NodeName lines of slurm.conf, then scontrol reconfigure",
    ),
    ("hgrp", "hostgroup lines of sge.conf beside slurm.conf"),
    ("h", "NodeName lines of slurm.conf"),
    (
        "jc",
        "job_classes.conf beside slurm.conf, then scontrol reconfigure",
    ),
    (
        "m",
        "sacctmgr modify user NAME set adminlevel=Administrator",
    ),
    ("o", "sacctmgr modify user NAME set adminlevel=Operator"),
    ("prj", "project lines of sge.conf, and sacctmgr add account"),
    ("p", "pe lines of sge.conf beside slurm.conf"),
    (
        "q",
        "PartitionName lines of slurm.conf, queue lines of sge.conf",
    ),
    ("rqs", "limits of accounts and QOS: sacctmgr modify"),
    (
        "st",
        "nodes of the share tree are accounts and users: sacctmgr; their shares: qconf -mstnode",
    ),
    ("s", "any host that has the cluster's key may submit jobs"),
    ("u", "sacctmgr add user, sacctmgr add account"),
];

/// Where that is changed what an option would change; `None` for options that show.
pub(super) fn place(word: &str) -> Option<&'static str> {
    let rest = word
        .strip_prefix(['-'])?
        .strip_prefix(['a', 'A', 'm', 'M', 'd', 'D', 'r', 'R', 'k', 'p', 'c'])?;
    let place = PLACES.iter().find(|(name, _)| rest.starts_with(name));
    Some(place.map_or(
        "slurm.conf, sge.conf beside it, or sacctmgr",
        |(_, place)| place,
    ))
}

/// Options that are carried out, and what follows each.
const CARRIED_OUT: [(&str, &str); 12] = [
    ("am", "users"),
    ("ao", "users"),
    ("dm", "users"),
    ("do", "users"),
    ("au", "users lists"),
    ("du", "users lists"),
    ("duser", "users"),
    ("Aprj", "file"),
    ("dprj", "projects"),
    ("astnode", "path=shares"),
    ("mstnode", "path=shares"),
    ("clearusage", "users"),
];

/// The commands of sacctmgr that an option stands for; `None` if it is not carried out.
///
/// # Errors
/// A value is missing or cannot be.
pub(super) fn command_lines(
    option: &str,
    values: &[String],
    mapping: &Mapping,
) -> Option<Result<Vec<CommandLine>, String>> {
    let name = option.strip_prefix('-')?;
    let (_, placeholder) = CARRIED_OUT.iter().find(|(own, _)| *own == name)?;
    Some(lines(name, placeholder, values, mapping))
}

fn lines(
    name: &str,
    placeholder: &str,
    values: &[String],
    mapping: &Mapping,
) -> Result<Vec<CommandLine>, String> {
    let wanted = placeholder.split(' ').count();
    if values.len() != wanted {
        return Err(format!("option \"-{name}\" is followed by: {placeholder}"));
    }
    let value = |at: usize| values.get(at).map_or("", String::as_str);
    let level = |users: &str, from: Option<&str>, to: &str| -> Result<CommandLine, String> {
        let mut line = words(&["modify", "user", "where"]);
        line.push(format!("name={}", names(users)?));
        line.extend(from.map(|from| format!("adminlevel={from}")));
        line.extend(["set".to_owned(), format!("adminlevel={to}")]);
        Ok(line)
    };
    let one = |line: CommandLine| vec![line];
    let account = |list: &str| -> Result<String, String> {
        let all: Vec<&str> = list
            .split(',')
            .map(|own| account_of(mapping, own))
            .collect();
        names(&all.join(","))
    };
    match name {
        "am" => level(value(0), None, "Administrator").map(one),
        "ao" => level(value(0), None, "Operator").map(one),
        "dm" => level(value(0), Some("Administrator"), "None").map(one),
        "do" => level(value(0), Some("Operator"), "None").map(one),
        "au" | "du" => {
            let verb = if name == "au" { "add" } else { "delete" };
            let (users, lists) = (names(value(0))?, account(value(1))?);
            let more = [format!("name={users}"), format!("account={lists}")];
            Ok(one(words(&[verb, "user"])
                .into_iter()
                .chain(more)
                .collect()))
        }
        "duser" => Ok(one(words(&[
            "delete",
            "user",
            &format!("name={}", names(value(0))?),
        ]))),
        "Aprj" => {
            let project = project_of_file(Path::new(value(0)))?;
            let name = format!("name={}", account(&project)?);
            Ok(one(words(&["add", "account", &name])))
        }
        "dprj" => {
            let name = format!("name={}", account(value(0))?);
            Ok(one(words(&["delete", "account", &name])))
        }
        "clearusage" => {
            let name = format!("name={}", names(value(0))?);
            Ok(one(words(&[
                "modify",
                "user",
                "where",
                &name,
                "set",
                "rawusage=0",
            ])))
        }
        _ => value(0)
            .split(',')
            .map(|node| shares(node, mapping))
            .collect(),
    }
}

fn words(all: &[&str]) -> CommandLine {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// A list of names as sacctmgr takes them: without what has a meaning to it.
pub(super) fn names(list: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let is_plain = |c: char| c.is_alphanumeric() || "._-@+$".contains(c);
        !name.is_empty() && name.chars().all(is_plain)
    };
    match list.split(',').all(is_name) {
        true => Ok(list.to_owned()),
        false => Err(format!("\"{list}\" is not a valid list of names")),
    }
}

/// The account that a project or a list of users is.
pub(super) fn account_of<'a>(mapping: &'a Mapping, name: &'a str) -> &'a str {
    let known = mapping.projects.iter().find(|(own, _)| own == name);
    known.map_or(name, |(_, account)| account)
}

/// `/physics/ada=10`: shares of the last name, which is a user where one is under an account that is named before.
fn shares(node: &str, mapping: &Mapping) -> Result<CommandLine, String> {
    let wrong = || format!("\"{node}\" is not a node of a share tree with its shares");
    let (path, count) = node.split_once('=').ok_or_else(wrong)?;
    let count: u32 = count.parse().map_err(|_| wrong())?;
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let path = path.strip_prefix(&["Root"]).unwrap_or(&path);
    let last = path.last().ok_or_else(wrong)?;
    let of_user = last.strip_prefix("user:").map(str::to_owned);
    let mut line = words(&["modify"]);
    match (of_user, path) {
        (Some(user), [.., above, _]) => {
            line.extend([
                "user".into(),
                "where".into(),
                format!("name={}", names(&user)?),
            ]);
            line.push(format!("account={}", names(account_of(mapping, above))?));
        }
        (Some(_), _) => return Err(wrong()),
        (None, _) => {
            let name = format!("name={}", names(account_of(mapping, last))?);
            line.extend(words(&["account", "where", &name]));
        }
    }
    line.extend(["set".into(), format!("fairshare={count}")]);
    Ok(line)
}

/// The largest file of a project that is read, bytes: such files have a few lines.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The name in a file of `-Aprj`; other lines than the name must say nothing, since they have no effect.
fn project_of_file(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let shown = path.display();
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|e| format!("cannot read {shown}: {e}"))?;
    project_of_text(&text).map_err(|why| format!("{shown}: {why}"))
}

pub(super) fn project_of_text(text: &str) -> Result<String, String> {
    let mut name = None;
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (key, value.trim()) {
            ("name", value) => name = Some(names(value)?),
            ("oticket" | "fshare", "0") | ("acl" | "xacl", "NONE") => {}
            (key, value) => {
                return Err(format!(
                    "{key} {value} has no effect here: use -au, -mstnode or sacctmgr"
                ));
            }
        }
    }
    name.ok_or_else(|| "there is no name".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(option: &str, values: &[&str]) -> Result<Vec<String>, String> {
        let mapping = Mapping::parse("project p12 physics\n", "f").0;
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let lines = command_lines(option, &values, &mapping).expect("it is carried out")?;
        Ok(lines.iter().map(|line| line.join(" ")).collect())
    }

    #[test]
    fn what_is_in_accounting_becomes_commands_of_sacctmgr() {
        for (option, values, want) in [
            (
                "-am",
                &["ada,bob"][..],
                "modify user where name=ada,bob set adminlevel=Administrator",
            ),
            (
                "-ao",
                &["ada"],
                "modify user where name=ada set adminlevel=Operator",
            ),
            (
                "-dm",
                &["ada"],
                "modify user where name=ada adminlevel=Administrator set adminlevel=None",
            ),
            (
                "-do",
                &["ada"],
                "modify user where name=ada adminlevel=Operator set adminlevel=None",
            ),
            (
                "-au",
                &["ada", "p12,chem"],
                "add user name=ada account=physics,chem",
            ),
            (
                "-du",
                &["ada", "p12"],
                "delete user name=ada account=physics",
            ),
            ("-duser", &["ada"], "delete user name=ada"),
            ("-dprj", &["p12"], "delete account name=physics"),
            (
                "-mstnode",
                &["/Root/p12=30"],
                "modify account where name=physics set fairshare=30",
            ),
            (
                "-astnode",
                &["/p12/user:ada=5"],
                "modify user where name=ada account=physics set fairshare=5",
            ),
            (
                "-clearusage",
                &["ada"],
                "modify user where name=ada set rawusage=0",
            ),
        ] {
            assert_eq!(
                lines_of(option, values),
                Ok(vec![want.to_owned()]),
                "{option}"
            );
        }
        assert_eq!(lines_of("-mstnode", &["/a=1,/b=2"]).unwrap().len(), 2);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (option, values, why) in [
            ("-am", &[][..], "option \"-am\" is followed by: users"),
            (
                "-au",
                &["ada"],
                "option \"-au\" is followed by: users lists",
            ),
            (
                "-am",
                &["ada set"],
                "\"ada set\" is not a valid list of names",
            ),
            ("-duser", &["a=b"], "\"a=b\" is not a valid list of names"),
            ("-duser", &["a,"], "\"a,\" is not a valid list of names"),
            (
                "-mstnode",
                &["/a"],
                "\"/a\" is not a node of a share tree with its shares",
            ),
            (
                "-mstnode",
                &["/a=x"],
                "\"/a=x\" is not a node of a share tree with its shares",
            ),
            (
                "-mstnode",
                &["/user:a=1"],
                "\"/user:a=1\" is not a node of a share tree with its shares",
            ),
        ] {
            assert_eq!(
                lines_of(option, values),
                Err(why.to_owned()),
                "{option} {values:?}"
            );
        }
        assert_eq!(
            project_of_text("name p1\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n"),
            Ok("p1".to_owned())
        );
        assert!(
            project_of_text("name p1\nacl staff\n")
                .unwrap_err()
                .contains("acl staff")
        );
        assert!(project_of_text("oticket 0\n").is_err());
    }

    #[test]
    fn what_is_in_files_is_refused_with_its_place() {
        for (option, want) in [
            ("-aq", "PartitionName lines"),
            ("-Mc", "complex lines of sge.conf"),
            ("-dp", "pe lines of sge.conf"),
            ("-aprj", "project lines of sge.conf"),
            ("-mconf", "slurm.conf, then scontrol reconfigure"),
            ("-mattr", "the attribute"),
            ("-ae", "NodeName lines"),
            ("-kej", "NodeName lines"),
        ] {
            assert!(
                place(option).is_some_and(|own| own.starts_with(want)),
                "{option}"
            );
        }
        for option in ["-sql", "-sq", "-sconf", "-help"] {
            assert_eq!(place(option), None, "{option}");
        }
    }
}
