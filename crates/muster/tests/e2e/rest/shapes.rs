//! The description of the API and what is answered are the same: each answer of a cluster that has some of everything is looked at
//! by the schema that the description gives for it. With `UPDATE_DOCS=1` the schemas are worked out anew from the answers, and
//! kept in crates/cli/src/rest/shapes.json, which the description is made of.

use super::{OWNER, Rest, User, job};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const TREE: &str = "SwitchName=leaf Nodes=n[1-2]\nSwitchName=root Switches=leaf\n";

const CONF: &str = "TopologyPlugin=topology/tree\nLicenses=matlab:10\nGresTypes=gpu\nNodeName=n[1-2] CPUs=4 RealMemory=1000 Feature=big Gres=gpu:2\n\
    PriorityType=priority/multifactor\nPriorityWeightAge=1\nAccountingStorageTRES=gres/gpu\n\
    PartitionName=batch Nodes=ALL Default=YES State=UP MaxTime=10 DefMemPerCPU=100 AllowAccounts=ALL\n";

/// Some of everything that answers have lists of.
fn fill(rest: &Rest) {
    let c = &rest.cluster;
    c.write("gres.conf", "Name=gpu Count=2\n");
    for words in [
        "add account physics",
        "add qos fast maxtresperjob=cpu=4 maxwall=10 grptres=cpu=9 maxtresperuser=cpu=8 grptresmins=cpu=900 \
         maxtrespa=cpu=7 mintres=cpu=1 preempt=normal flags=DenyOnLimit maxtresminsperjob=cpu=5 \
         maxtrespernode=cpu=4 grptresrunmins=cpu=99",
        &format!(
            "add user {OWNER} account=physics wckeys=k fairshare=5 maxtresperjob=cpu=4 grptres=cpu=4 \
                  grptresmins=cpu=4000 grptresrunmins=cpu=4000 maxtresmins=cpu=4000 maxtrespn=cpu=4 qos=normal,fast"
        ),
        &format!("add coordinator names={OWNER} account=physics"),
    ] {
        c.ok(&format!("sacctmgr -i {words}"));
    }
    c.ok("scontrol create reservation=r nodes=n2 users=root starttime=now+1hour duration=10 flags=maint");
    let owner = rest.of(OWNER);
    owner.submit(job(json!({"tasks": 2, "mail_type": ["END"], "partition": "batch", "profile": ["NONE"], "requeue": true})));
    owner.submit(job(
        json!({"array": "1-3%1", "hold": true, "licenses": "matlab:1", "shared": ["none"]}),
    ));
    let over = owner.submit(job(json!({"tasks": 1})));
    // One that has started ends by a signal, which others do not.
    c.until_prints(&format!("squeue -h -j {over} -o %T"), "RUNNING");
    owner.delete(&format!("/slurm/v0.0.43/job/{over}")).ok();
    c.ok("mkdir kept; muster storage scan kept kept; muster storage scan kept kept");
    c.ok("sbatch -o /dev/null --wrap 'srun true'");
    // Steps have numbers and names in the oldest version, and both are to be described.
    c.until("jobs are over", || {
        let states = c.ok("sacct -n -P -a -o jobid,state");
        states.contains(".0|COMPLETED") && states.contains(&format!("{over}|CANCELLED"))
    });
}

/// Whether a value is of a schema; where it is not.
fn check(value: &Value, schema: &Value, at: &str, wrong: &mut Vec<String>) {
    if value.is_null() {
        if schema["nullable"] != true {
            wrong.push(format!("{at} is null"));
        }
        return;
    }
    let is_of = match schema["type"].as_str() {
        None => return,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(_) => false,
    };
    if !is_of {
        wrong.push(format!("{at} is no {}", schema["type"]));
    }
    if let (Some(members), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        for (key, member) in members {
            match known.get(key) {
                Some(schema) => check(member, schema, &format!("{at}.{key}"), wrong),
                None => wrong.push(format!("{at}.{key} is not described")),
            }
        }
    }
    let numbered = &schema["additionalProperties"];
    if let (Some(members), false) = (value.as_object(), numbered.is_null()) {
        for (key, member) in members {
            check(member, numbered, &format!("{at}.{key}"), wrong);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        check(item, &schema["items"], &format!("{at}[]"), wrong);
    }
}

/// The schema of a value.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!({"nullable": true}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => {
            let items = items.iter().map(shape).reduce(|a, b| both(&a, &b));
            json!({"type": "array", "items": items.unwrap_or(json!({}))})
        }
        // Sockets and cores by their numbers: which there are differs from answer to answer.
        Value::Object(members) if is_numbered(members) => {
            let of_one = members.values().map(shape).reduce(|a, b| both(&a, &b));
            json!({"type": "object", "additionalProperties": of_one})
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| (key.clone(), shape(value)));
            json!({"type": "object", "properties": members.collect::<Map<_, _>>()})
        }
    }
}

/// Whether the members of an object have numbers for names.
fn is_numbered(members: &Map<String, Value>) -> bool {
    let is_number = |key: &String| key.bytes().all(|b| b.is_ascii_digit());
    !members.is_empty() && members.keys().all(is_number)
}

/// The schema that fits what each of two fits.
fn both(a: &Value, b: &Value) -> Value {
    let (mut a, b) = (a.clone(), b);
    let several = json!({"description": "of several types"});
    if a == several || *b == several {
        return several;
    }
    let types = (a.get("type").cloned(), b.get("type").cloned());
    let mut merged = match types {
        (Some(x), Some(y))
            if x == y
                && x == "object"
                && [&a, b].iter().any(|s| !s["additionalProperties"].is_null()) =>
        {
            let of_one = match (&a["additionalProperties"], &b["additionalProperties"]) {
                (Value::Null, one) | (one, Value::Null) => one.clone(),
                (one, other) => both(one, other),
            };
            json!({"type": "object", "additionalProperties": of_one})
        }
        (Some(x), Some(y)) if x == y && x == "object" => {
            let properties = a["properties"].as_object_mut().unwrap();
            for (key, schema) in b["properties"].as_object().unwrap() {
                let merged = properties
                    .get(key)
                    .map_or_else(|| schema.clone(), |own| both(own, schema));
                properties.insert(key.clone(), merged);
            }
            a.clone()
        }
        (Some(x), Some(y)) if x == y && x == "array" => {
            json!({"type": "array", "items": both(&a["items"], &b["items"])})
        }
        (Some(x), Some(y)) if x == y => a.clone(),
        (Some(x), Some(y)) if [&x, &y].iter().all(|t| **t == "integer" || **t == "number") => {
            json!({"type": "number"})
        }
        (Some(_), Some(_)) => return several,
        (Some(_), None) => a.clone(),
        (None, _) => b.clone(),
    };
    if a["nullable"] == true || b["nullable"] == true {
        merged["nullable"] = true.into();
    }
    merged
}

#[test]
fn answers_are_as_the_description_says() {
    let Some(rest) = Rest::start_beside(CONF, &[("topology.conf", TREE)]) else {
        return;
    };
    fill(&rest);
    let root = rest.of("root");
    let described = rest.send("GET", "/openapi/v3", "", "").json();
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::new());
    for (path, methods) in described["paths"].as_object().unwrap() {
        let operation = &methods["get"];
        // A report is described as an object only: its rows are as the parameters say.
        let others = ["/reconfigure", "/requeue", "/report"];
        if operation.is_null() || others.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let named = path
            .replace(
                "{job_id}",
                if path.starts_with("/slurmdb") || path.contains("/resources/") {
                    "1"
                } else {
                    "2"
                },
            )
            .replace("{node_name}", "n1")
            .replace("{partition_name}", "batch")
            .replace("{reservation_name}", "r")
            .replace("{account_name}", "physics")
            .replace("{name}", OWNER)
            .replace("{qos}", "fast")
            .replace("{cluster_name}", "c")
            .replace("{id}", "k");
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let Some(schema) = schema["$ref"].as_str() else {
            // Texts. The stream of events has tests of its own.
            let status = match path.as_str() {
                "/muster/v1/events" => 200,
                path => root.get(path).status,
            };
            assert!(matches!(status, 200 | 204), "{path}: {status}");
            continue;
        };
        // The oldest version takes one association only.
        let query = if path.ends_with("/association") {
            "?user=daemon"
        } else {
            ""
        };
        let answer = root.get(&format!("{named}{query}")).ok();
        let name = schema.rsplit('/').next().unwrap();
        check(
            &answer,
            &described["components"]["schemas"][name],
            path,
            &mut wrong,
        );
        let (version, name) = name.trim_start_matches("v0.0.").split_once('_').unwrap();
        let version: u32 = version.parse().unwrap();
        let entry = seen
            .entry((name.to_owned(), version))
            .or_insert_with(|| shape(&answer));
        *entry = both(entry, &shape(&answer));
    }
    // What answers of submissions and changes have.
    for version in [38, 39, 40, 41, 42, 43, 44, 45] {
        let path = format!("/slurm/v0.0.{version}/job/submit");
        let body = json!({"script": "#!/bin/sh\n", "job": match version {
            // It refuses what the others warn of.
            38 => job(json!({"hold": true})),
            _ => job(json!({"hold": true, "colour": 1})),
        }});
        let submitted = root.post(&path, &body).ok();
        let id = submitted["job_id"].as_u64().unwrap();
        let path = format!("/slurm/v0.0.{version}/job/{id}");
        let changed = root.post(&path, &json!({"comment": "x"})).ok();
        let ended = root.delete(&path).ok();
        // With an error, and the warning of the submission about a key without a meaning, so that both are described.
        let missing = root.delete(&format!("/slurm/v0.0.{version}/job/99")).json();
        let mut plain = both(&shape(&ended), &shape(&missing));
        if version > 38 {
            plain["properties"]["warnings"] = shape(&submitted)["properties"]["warnings"].clone();
        }
        for (name, shape) in [
            ("openapi_job_submit_response", shape(&submitted)),
            ("openapi_job_post_response", shape(&changed)),
            ("openapi_resp", plain),
        ] {
            seen.insert((name.to_owned(), version), shape);
        }
        for (name, shape) in made(&root, version) {
            seen.insert((name.to_owned(), version), shape);
        }
        if version > 39 {
            let chosen = root
                .delete(&format!("/slurm/v0.0.{version}/jobs?jobs=99"))
                .json();
            seen.insert(
                ("openapi_kill_jobs_resp".to_owned(), version),
                shape(&chosen),
            );
        }
    }
    keep_errors(&mut seen);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write(&seen);
    } else {
        assert!(
            wrong.is_empty(),
            "UPDATE_DOCS=1 describes them anew:\n{}",
            wrong.join("\n")
        );
    }
}

/// Answers of paths that make things, of the versions that have them.
fn made(root: &User<'_>, version: u32) -> Vec<(&'static str, Value)> {
    let post = |area: &str, path: &str, body: &Value| {
        let path = format!("/{area}/v0.0.{version}/{path}");
        shape(&root.post(&path, body).ok())
    };
    let mut all = Vec::new();
    if version >= 41 {
        let body = json!({"job": {"hold": true}});
        all.push((
            "openapi_job_alloc_resp",
            post("slurm", "job/allocate", &body),
        ));
    }
    if version >= 43 {
        let body = json!({"name": "r", "users": ["root"], "accounts": ["physics"], "comment": "c",
            "partition": "batch", "node_list": ["n2"], "flags": ["MAINT"]});
        let body = json!({"reservations": [body]});
        let groups = json!({"type": "array", "items": {"type": "string"}});
        let mut answer = post("slurm", "reservations", &body);
        answer["properties"]["reservations"]["items"]["properties"]["groups"] = groups;
        all.push(("openapi_reservation_mod_resp", answer));
    }
    if version >= 45 {
        // One that is not there is an entry of the answer.
        let path = format!("/slurm/v0.0.{version}/jobs/requeue");
        let answer = root.post(&path, &json!({"jobs": ["99"]})).json();
        all.push(("openapi_jobs_requeue_resp", shape(&answer)));
    }
    if version >= 44 {
        let body = json!({"comment": {"job": "x"}});
        all.push(("openapi_job_modify_resp", post("slurmdb", "job/1", &body)));
        let body = json!({"hostlist": "n[1-2]"});
        all.push((
            "openapi_hostnames_req_resp",
            post("util", "hostnames", &body),
        ));
        let body = json!({"hostnames": ["n1"]});
        all.push(("openapi_hostlist_req_resp", post("util", "hostlist", &body)));
    }
    all
}

/// Every answer may have errors and warnings, and most of these have none.
fn keep_errors(seen: &mut BTreeMap<(String, u32), Value>) {
    let plain: BTreeMap<u32, Value> = seen
        .iter()
        .filter(|((name, _), _)| name == "openapi_resp")
        .map(|((_, version), schema)| (*version, schema.clone()))
        .collect();
    for ((_, version), schema) in seen.iter_mut() {
        for key in ["errors", "warnings"] {
            if let Some(described) = plain[version]["properties"].get(key) {
                schema["properties"][key] = described.clone();
            }
        }
    }
}

/// Each schema once, with the versions that have it.
fn write(seen: &BTreeMap<(String, u32), Value>) {
    let mut all: BTreeMap<&str, Vec<(Vec<u32>, &Value)>> = BTreeMap::new();
    for ((name, version), schema) in seen {
        let of_name = all.entry(name).or_default();
        match of_name.iter_mut().find(|(_, known)| *known == schema) {
            Some((versions, _)) => versions.push(*version),
            None => of_name.push((vec![*version], schema)),
        }
    }
    let all: Map<String, Value> = all
        .into_iter()
        .map(|(name, entries)| {
            let entries = entries
                .into_iter()
                .map(|(versions, schema)| json!({"versions": versions, "schema": schema}));
            (name.to_owned(), entries.collect())
        })
        .collect();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/src/rest/shapes.json");
    // A line for each, so that a change shows where it is.
    let lines: Vec<String> = all
        .iter()
        .flat_map(|(name, entries)| {
            let entries: Vec<String> = entries
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect();
            [format!("\"{name}\": [\n{}\n]", entries.join(",\n"))]
        })
        .collect();
    std::fs::write(file, format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
}
