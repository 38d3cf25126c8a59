//! `sacctmgr show ENTITY --json`: which of slurmrestd's documents that is. Without `--json` and `--yaml` sacctmgr itself is run.

use crate::connect::{Client, ConnectError};
use crate::listing::document::{Dialect, information};
use crate::listing::{Failure, failed_call, print};
use crate::rest::{CommandDocument, Connect, HttpStatus, part};
use crate::sacctmgr;

/// An entity that has a document: the letters that its name needs at least, its path, and the path of one if there is such.
struct EntityDocument {
    name: &'static str,
    letters: usize,
    path: &'static str,
    one: Option<&'static str>,
    /// Conditions, and the parameters that they are.
    conditions: &'static [(&'static str, &'static str)],
}

const fn entity(
    name: &'static str,
    letters: usize,
    path: &'static str,
    one: Option<&'static str>,
) -> EntityDocument {
    EntityDocument {
        name,
        letters,
        path,
        one,
        conditions: &[],
    }
}

const ENTITIES: &[EntityDocument] = &[
    entity("accounts", 2, "accounts", Some("account")),
    EntityDocument {
        conditions: &[
            ("accounts", "account"),
            ("names", "user"),
            ("partitions", "partition"),
            ("parents", "parent_account"),
            ("users", "user"),
        ],
        ..entity("associations", 2, "associations", None)
    },
    entity("clusters", 2, "clusters", Some("cluster")),
    entity("configuration", 2, "config", None),
    entity("qos", 1, "qos", Some("qos")),
    entity("stats", 2, "diag", None),
    entity("tres", 3, "tres", None),
    entity("users", 1, "users", Some("user")),
    EntityDocument {
        conditions: &[("names", "name"), ("users", "user")],
        ..entity("wckeys", 1, "wckeys", None)
    },
];

/// Runs sacctmgr.
pub(crate) fn sacctmgr(args: &[String]) -> Result<(), Failure> {
    let parsed = sacctmgr::SPEC.parse(args).map_err(Failure::new)?;
    let mut dialect = None;
    for (name, value) in &parsed.options {
        if matches!(*name, "json" | "yaml") {
            let value = value.as_deref().unwrap_or_default();
            dialect = Some((*name == "yaml", value));
        }
    }
    let Some((yaml, value)) = dialect else {
        return sacctmgr::run(args);
    };
    if let Some(text) = information(&sacctmgr::SPEC, &parsed) {
        print(&text);
        return Ok(());
    }
    let dialect = Dialect::parse("sacctmgr", yaml, value)?;
    let document = document(&parsed.operands)
        .map_err(|why| Failure::new(format!("sacctmgr: error: --json and --yaml: {why}")))?;
    let client = Client::connect().map_err(failed_call("slurmdb_connect"))?;
    document.print(client, dialect)
}

fn begins(name: &str, word: &str, letters: usize) -> bool {
    let start = name.get(..word.len());
    word.len() >= letters && start.is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The document that `show ENTITY CONDITIONS` means.
fn document(words: &[String]) -> Result<CommandDocument<'static>, String> {
    let [verb, what, conditions @ ..] = words else {
        return Err("say what is shown, as in: show accounts".to_owned());
    };
    if !begins("show", verb, 3) && !begins("list", verb, 3) {
        return Err(format!("{verb} prints no records"));
    }
    let mut known = ENTITIES.iter();
    let is_meant = |entity: &&EntityDocument| begins(entity.name, what, entity.letters);
    let Some(entity) = known.find(is_meant) else {
        let names: Vec<&str> = ENTITIES.iter().map(|entity| entity.name).collect();
        return Err(format!(
            "there is none of {what}; there are {}",
            names.join(", ")
        ));
    };
    let mut document = CommandDocument {
        command: "sacctmgr",
        area: "slurmdb",
        path: entity.path.to_owned(),
        query: Vec::new(),
    };
    for word in conditions
        .iter()
        .filter(|word| !word.eq_ignore_ascii_case("where"))
    {
        let (key, value) = word.split_once('=').unwrap_or(("names", word.as_str()));
        // Columns are those of the document.
        if begins("format", key, 2) {
            continue;
        }
        let parameter = entity.conditions.iter();
        let parameter = parameter.clone().find(|(name, _)| begins(name, key, 1));
        match (parameter, entity.one) {
            (Some((_, parameter)), _) => {
                document
                    .query
                    .push(((*parameter).to_owned(), value.to_owned()));
            }
            (None, Some(one)) if begins("names", key, 1) && !value.contains(',') => {
                document.path = format!("{one}/{}", part(value));
            }
            _ => return Err(format!("{word} is not taken here")),
        }
    }
    Ok(document)
}

/// A connection of its own for one document.
struct NewConnection;

impl Connect for NewConnection {
    fn connect(&mut self) -> Result<Client, ConnectError> {
        Client::connect()
    }

    fn keep(&mut self, _: Client) {}
}

/// Version of slurmrestd's paths since which there is `conf`.
const CONF_SINCE: u32 = 45;

/// Prints the answer at a path of slurmrestd; at `ping` it says of a controller that does not answer that it is down. Gives
/// whether it is no error. The configuration is in the layout of v0.0.45 where an earlier one is asked for, which has none.
pub(crate) fn print_answer(path: &str, dialect: Dialect) -> bool {
    let known = match path {
        "conf" if dialect.number() < CONF_SINCE => {
            Dialect::of_version(CONF_SINCE, dialect.is_yaml())
        }
        _ => None,
    };
    let document = CommandDocument {
        command: "scontrol",
        area: if path == "topology" {
            "muster"
        } else {
            "slurm"
        },
        path: path.to_owned(),
        query: Vec::new(),
    };
    match document.print_over(&mut NewConnection, known.unwrap_or(dialect)) {
        Ok(status) => status == HttpStatus::OK,
        Err(failure) => {
            failure.report();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_a_path_with_conditions() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let document = document(&words)?;
            let query: Vec<String> = document
                .query
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            Ok::<_, String>(format!("{}?{}", document.path, query.join("&")))
        };
        assert_eq!(of("show account"), Ok("accounts?".to_owned()));
        assert_eq!(
            of("list acc where name=a/b"),
            Ok("account/a%2Fb?".to_owned())
        );
        assert_eq!(
            of("show assoc user=ada,bob account=x format=user"),
            Ok("associations?user=ada,bob&account=x".to_owned())
        );
        assert_eq!(of("show wckey user=ada"), Ok("wckeys?user=ada".to_owned()));
        assert_eq!(of("show qos fast"), Ok("qos/fast?".to_owned()));
        for wrong in [
            "",
            "show",
            "add account x",
            "show events",
            "show user name=a,b",
            "show user adminlevel=None",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
