//! The schemas of answers. They are derived from documents of an example of each record by a test, which keeps them in
//! `shapes.json`: description and answers come from the same code.

use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// For each version: the schemas by their names without the version.
fn all() -> &'static Map<String, Value> {
    static ALL: OnceLock<Map<String, Value>> = OnceLock::new();
    ALL.get_or_init(|| match serde_json::from_str(include_str!("shapes.json")) {
        Ok(Value::Object(all)) => all,
        // A test reads it.
        _ => Map::new(),
    })
}

/// The schemas of one version. Those of bodies, whose members take values of several types, say no type.
pub(super) fn of_version(version: u32) -> impl Iterator<Item = (&'static str, Value)> {
    let known = all().iter().filter_map(move |(name, versions)| {
        let by_version = versions.as_array()?.iter().find(|entry| {
            let list = entry["versions"].as_array();
            list.is_some_and(|list| list.contains(&version.into()))
        });
        Some((name.as_str(), by_version?["schema"].clone()))
    });
    let free = [
        "job_modify",
        "kill_jobs_msg",
        "openapi_create_node_req",
        "openapi_job_modify_req",
        "openapi_job_requeue_resp",
        "openapi_jobs_requeue_query",
        "reservation_desc_msg",
        "reservation_mod_req",
        "update_node_msg",
        "accounts_add_cond",
        "users_add_cond",
        "muster_report",
    ];
    let free = free.map(|name| (name, json!({"type": "object"})));
    known.chain(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// See the beginning of the file.
    const SLURM_ANSWERS: &str = include_str!("../../tests/fixtures/slurm_answers.txt");
    const VERSIONS: [u32; 4] = [42, 43, 44, 45];

    /// A member of an answer in Slurm's documents.
    struct SlurmMember<'a> {
        schema: &'a str,
        path: &'a str,
        kind: &'a str,
        versions: Vec<u32>,
    }

    fn slurm_members() -> Vec<SlurmMember<'static>> {
        let mut schema = "";
        let mut members = Vec::new();
        let lines = SLURM_ANSWERS.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (path, kind, versions) = match words[..] {
                [name] => {
                    schema = name;
                    continue;
                }
                [path, kind] => (path, kind, VERSIONS.to_vec()),
                [path, kind, list] => {
                    let list = list.split(',').map(|number| number.parse().unwrap());
                    (path, kind, list.collect())
                }
                _ => panic!("{line}"),
            };
            members.push(SlurmMember {
                schema,
                path,
                kind,
                versions,
            });
        }
        members
    }

    fn kind_of(schema: &Value) -> Option<&str> {
        let members = schema["properties"].as_object();
        match members.is_some_and(|members| members.contains_key("infinite")) {
            true => Some("number"),
            false => schema["type"].as_str(),
        }
    }

    /// The part of a schema at a path; an error where a key on the way is not there, and nothing where no example has it.
    fn part<'a>(schema: &'a Value, path: &str) -> Result<Option<&'a Value>, ()> {
        let mut part = schema;
        for word in path.split('.') {
            let key = word.trim_end_matches("[]");
            let Some(members) = part["properties"].as_object() else {
                return Ok(None);
            };
            part = members.get(key).ok_or(())?;
            for _ in 0..(word.len() - key.len()) / 2 {
                part = &part["items"];
            }
            if kind_of(part).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(part))
    }

    /// All members of a schema.
    fn paths(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
        if kind_of(schema) == Some("number") {
            return;
        }
        if schema["items"].is_object() {
            return paths(&schema["items"], &format!("{at}[]"), found);
        }
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = match at {
                "" if ["meta", "errors", "warnings"].contains(&key.as_str()) => continue,
                "" => key.clone(),
                at => format!("{at}.{key}"),
            };
            found.insert(path.clone());
            paths(schema, &path, found);
        }
    }

    /// Differences from Slurm's documents that are meant: the beginning of a line of the list below, and why.
    const MEANT: &[(&str, &str)] = &[
        (
            "openapi_assocs_resp associations[].usage",
            "members that earlier versions had do no harm",
        ),
        (
            "openapi_slurmdbd_config_resp associations[].usage",
            "members that earlier versions had do no harm",
        ),
        (
            "openapi_slurmdbd_jobs_resp jobs[].steps[].tres.",
            "Slurm writes the node and task of the least and the most, which its documents do not name",
        ),
        (
            "openapi_reservation_mod_resp reservations[].",
            "the answer has the names of what was made or changed, and no members that were not given",
        ),
        (
            "openapi_conf_resp ",
            "keys are those of the version that is served, beside those that 26.05 has added or removed",
        ),
    ];

    /// Programs are generated from Slurm's own documents, and read no answer that lacks a member or has another type.
    #[test]
    fn answers_have_the_members_of_slurms_documents() {
        let members = slurm_members();
        let mut findings = Vec::new();
        for version in VERSIONS {
            let own: Map<String, Value> = of_version(version)
                .map(|(name, schema)| (name.to_owned(), schema))
                .collect();
            for (name, schema) in &own {
                let of_it = |member: &&SlurmMember| member.schema == name.as_str();
                let known: Vec<&SlurmMember> = members
                    .iter()
                    .filter(of_it)
                    .filter(|member| member.versions.contains(&version))
                    .collect();
                if known.is_empty() || !schema["properties"].is_object() {
                    continue;
                }
                for member in &known {
                    let line = format!("{name} {}", member.path);
                    match part(schema, member.path) {
                        Err(()) => findings.push(format!("{line}: missing in v0.0.{version}")),
                        Ok(Some(part)) if kind_of(part) != Some(member.kind) => {
                            let kind = kind_of(part).unwrap_or("nothing");
                            let wanted = member.kind;
                            findings.push(format!("{line}: {kind} for {wanted} in v0.0.{version}"));
                        }
                        Ok(_) => {}
                    }
                }
                let mut all = BTreeSet::new();
                paths(schema, "", &mut all);
                let is_known = |path: &String| known.iter().any(|member| member.path == path);
                let others = all.into_iter().filter(|path| !is_known(path));
                findings
                    .extend(others.map(|path| format!("{name} {path}: extra in v0.0.{version}")));
            }
        }
        let is_meant = |line: &String| MEANT.iter().any(|(start, _)| line.starts_with(start));
        for (start, _) in MEANT {
            let is_used = findings.iter().any(|line| line.starts_with(start));
            assert!(is_used, "nothing differs at {start} any more");
        }
        // A member of another type is one in any case.
        findings.retain(|line| !is_meant(line) || line.contains(" for "));
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
