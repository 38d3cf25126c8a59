//! What only Muster answers: the queue in short, the network, why a job waits.

use super::{ONE_NODE, OWNER, Rest, STRANGER, job};
use serde_json::{Value, json};

const TWO_SWITCHES: &str =
    "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n2\nSwitchName=root Switches=leaf[1-2]\n";

/// What pages show of many jobs, of the network, and of a job that waits, is asked for at paths of its own.
#[test]
fn the_queue_in_short_the_network_and_what_a_job_waits_for() {
    let lines = "TopologyPlugin=topology/tree\nPrivateData=jobs\nNodeName=n[1-2] CPUs=4 RealMemory=1000\n\
         PartitionName=batch Nodes=ALL Default=YES State=UP MaxTime=30\n";
    let Some(rest) = Rest::start_beside(lines, &[("topology.conf", TWO_SWITCHES)]) else {
        return;
    };
    let (owner, stranger) = (rest.of(OWNER), rest.of(STRANGER));
    let name = "<script>window.pwned=1</script>";
    let runs = owner.submit(job(json!({"name": name, "minimum_nodes": 2, "tasks": 8})));
    let state = format!("squeue -h -j {runs} -o %T");
    rest.cluster.until_prints(&state, "RUNNING");
    let waits = owner.submit(job(
        json!({"tasks": 8, "minimum_nodes": 2, "time_limit": 10}),
    ));
    let tasks = owner.submit(job(json!({"array": "1-7", "hold": true})));
    let answer = owner.get("/muster/v1/queue?starts=1").ok();
    let of = |answer: &Value, id: u64| {
        let jobs = answer["jobs"].as_array().unwrap();
        let found = jobs.iter().find(|job| job["job_id"] == id);
        found
            .unwrap_or_else(|| panic!("no {id} in {answer}"))
            .clone()
    };
    let (first, second) = (of(&answer, runs), of(&answer, waits));
    assert_eq!(
        (&first["name"], &first["nodes"]),
        (&name.into(), &"n[1-2]".into())
    );
    // It may start when the other one's time is over, on its nodes.
    assert_eq!(
        (&second["expected"], &second["nodes"]),
        (&"plan".into(), &"n[1-2]".into())
    );
    assert_eq!(second["start"], first["end"], "{answer}");
    assert_eq!(of(&answer, tasks)["jobs"], 7);
    let progress = &answer["starts"];
    assert_eq!(
        (
            &progress["planned"],
            &progress["estimated"],
            &progress["in_progress"]
        ),
        (&1.into(), &0.into(), &false.into())
    );
    let states = json!([{"state": "PENDING", "jobs": 8}, {"state": "RUNNING", "jobs": 1}]);
    assert_eq!((&answer["states"], &answer["own"]), (&states, &9.into()));
    // Counts are of all, and of jobs there are as many as were asked for: those that run first.
    let one = owner.get("/muster/v1/queue?limit=1").ok();
    // Counts alone are made by the controller, and are the same.
    let counts = owner.get("/muster/v1/queue?limit=0").ok();
    for key in ["states", "reasons", "partitions", "own"] {
        assert_eq!(counts[key], one[key], "{key}");
    }
    assert_eq!((&one["left_out"], &one["states"]), (&2.into(), &states));
    assert_eq!(one["jobs"][0]["job_id"], runs);
    let pending = owner.get("/muster/v1/queue?state=PENDING&user=daemon").ok();
    assert_eq!(pending["jobs"].as_array().map(Vec::len), Some(2));
    for wrong in [
        "limit=20001",
        "starts=perhaps",
        "state=COMPLETING",
        "user=%00",
    ] {
        let answer = owner.get(&format!("/muster/v1/queue?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
    }
    let why = owner.get(&format!("/muster/v1/why/{waits}")).ok();
    assert_eq!(why["why"]["expected_start"]["time"], second["start"]);
    assert_eq!(why["why"]["ahead"][0]["job_id"], runs);
    assert_eq!(owner.get("/muster/v1/why/4711").error(), 2017);
    // PrivateData holds here, too.
    let nothing = stranger.get("/muster/v1/queue").ok();
    assert_eq!(
        (&nothing["jobs"], &nothing["states"]),
        (&json!([]), &json!([]))
    );
    assert_ne!(stranger.get(&format!("/muster/v1/why/{waits}")).status, 200);
    let network = stranger.get("/muster/v1/topology").ok();
    let switches = &network["topologies"][0]["switches"];
    assert_eq!(
        (&switches[1]["name"], &switches[1]["nodes"]),
        (&"leaf2".into(), &"n2".into())
    );
    assert_eq!(switches[2]["switches"], json!(["leaf1", "leaf2"]));
    let nodes = stranger.get("/muster/v1/nodes").ok();
    let group = &nodes["groups"][0];
    assert_eq!(
        (&group["nodes"], &group["used_cpus"]),
        (&"n[1-2]".into(), &4.into())
    );
    assert_eq!(nodes["hardware"][0]["partitions"], json!(["batch"]));
    assert_eq!(nodes["reasons"], json!([]));
    rest.cluster
        .ok("scontrol update nodename=n2 state=drain reason='a <b>disk</b>'");
    let nodes = stranger.get("/muster/v1/nodes").ok();
    let reason = &nodes["reasons"][0];
    assert_eq!(
        (&reason["nodes"], &reason["reason"], &reason["user"]),
        (&"n2".into(), &"a <b>disk</b>".into(), &"root".into())
    );
    assert_eq!(nodes["groups"].as_array().map(Vec::len), Some(2), "{nodes}");
    assert_eq!(rest.send("GET", "/muster/v1/queue", "", "").status, 401);
}

#[test]
fn the_network_is_withheld_with_the_nodes() {
    let lines = format!("PrivateData=nodes\n{ONE_NODE}");
    let Some(rest) = Rest::start(&lines) else {
        return;
    };
    assert_eq!(
        rest.of("root").get("/muster/v1/topology").ok()["topologies"],
        json!([])
    );
    for path in ["/muster/v1/topology", "/muster/v1/nodes"] {
        let refused = rest.of(STRANGER).get(path);
        assert_eq!(
            refused.error(),
            rest.of(STRANGER).get("/slurm/v0.0.45/nodes").error()
        );
    }
}

#[test]
fn what_users_have_on_file_systems_is_recorded_by_administrators_and_shown() {
    let Some(rest) = Rest::start(&format!("PrivateData=usage\n{ONE_NODE}")) else {
        return;
    };
    let (c, owner) = (&rest.cluster, rest.of(OWNER));
    c.ok("mkdir -p home/a; head -c 300000 /dev/zero > home/a/big; chown -R daemon home/a; echo x > home/small");
    assert!(c.ok("muster storage").contains("No file system"));
    c.ok("muster storage scan home home");
    let kept = rest.of("root").get("/muster/v1/storage").ok();
    let first = &kept["storage"]["filesystems"][0];
    assert_eq!(
        (&first["name"], &first["since"]),
        (&json!("home"), &json!(null))
    );
    let users = first["users"].as_array().unwrap();
    let of = |name: &str| users.iter().find(|user| user["user"] == name).unwrap();
    assert!(of(OWNER)["bytes"].as_u64().unwrap() >= 300_000 && of(OWNER)["files"] == 2);
    assert_eq!(of("root")["files"], 2);
    // Growth counts from an earlier scan.
    c.ok("head -c 300000 /dev/zero > home/a/more; chown daemon home/a/more; muster storage scan home home");
    let shown = c.ok("muster storage");
    let line = shown
        .lines()
        .find(|line| line.starts_with("daemon"))
        .unwrap();
    assert!(line.contains('+'), "{shown}");
    // Others see what is theirs, and record nothing.
    let own = owner.get("/muster/v1/storage").ok();
    assert_eq!(own["storage"]["own_only"], true);
    let users = own["storage"]["filesystems"][0]["users"]
        .as_array()
        .unwrap();
    assert!(users.len() == 1 && users[0]["user"] == OWNER, "{own}");
    let as_owner =
        "setpriv --reuid=daemon --regid=daemon --clear-groups muster storage scan home home/a";
    let refused = c.run(as_owner);
    assert!(
        refused.code != 0 && refused.err.contains("denied"),
        "{}",
        refused.err
    );
    assert_eq!(
        c.run(&format!("{as_owner} --dry-run -f csv"))
            .out
            .lines()
            .count(),
        2
    );
}
