//! Paths that make and change what other paths show: allocations, reservations, partitions, nodes, records of accounting. Each is
//! refused to users who may not do it with the command of the same meaning.

use super::{ONE_NODE, OWNER, Rest, STRANGER, job};
use serde_json::{Value, json};

/// `ESLURM_ACCESS_DENIED`, `ESLURM_USER_ID_MISSING`: what users get who may not.
const DENIED: [i64; 2] = [2002, 2010];

#[test]
fn an_allocation_waits_is_used_by_steps_and_ends_when_cancelled() {
    // Components of a heterogeneous job have nodes of their own.
    let nodes = "NodeName=n[1-2] CPUs=4 RealMemory=1000\nPartitionName=batch Nodes=ALL Default=YES State=UP\n";
    let Some(rest) = Rest::start(nodes) else {
        return;
    };
    let (c, owner) = (&rest.cluster, rest.of(OWNER));
    let path = "/slurm/v0.0.41/job/allocate";
    let body =
        json!({"job": {"name": "held", "tasks": 2, "time_limit": {"set": true, "number": 5}}});
    let made = owner.post(path, &body).ok();
    let id = made["job_id"].as_u64().unwrap();
    assert_eq!(
        (&made["job_submit_user_msg"], &made["warnings"]),
        (&json!(""), &json!([]))
    );
    c.until_prints(
        &format!("squeue -h -j {id} -o '%T %u %j %C'"),
        "RUNNING daemon held 2",
    );
    // The connection that asked is gone, and the allocation is still there for steps of its user.
    let step = format!(
        "cd /tmp; setpriv --reuid={OWNER} --regid={OWNER} --clear-groups srun --jobid={id} -n2 id -un"
    );
    assert_eq!(c.ok(&step), "daemon\ndaemon");
    let layout = owner.get(&format!("/slurm/v0.0.44/resources/{id}")).ok();
    let node = &layout["nodes"][0];
    assert_eq!(
        (&node["node"], &node["core_bitmap"]),
        (&json!("n1"), &json!("0-1"))
    );
    let stranger = rest
        .of(STRANGER)
        .delete(&format!("/slurm/v0.0.45/job/{id}"));
    assert!(DENIED.contains(&stranger.error()), "{stranger:?}");
    owner.delete(&format!("/slurm/v0.0.45/job/{id}")).ok();
    c.until("the allocation is over", || {
        c.state(id).starts_with("CANCELLED")
    });

    // What only scripts have is said to have no effect, and one that would be an array is refused.
    let body = json!({"script": "#!/bin/sh", "job": {"argv": ["x"], "hold": true}});
    let made = owner.post(path, &body).ok();
    assert_eq!(made["warnings"].as_array().map(Vec::len), Some(2), "{made}");
    let held = made["job_id"].as_u64().unwrap();
    assert_eq!(
        c.ok(&format!("squeue -h -j {held} -o '%j %r'")),
        "openapi JobHeldUser"
    );
    for body in [
        json!({"job": {"array": "1-2"}}),
        json!({}),
        json!({"job": {"user_id": "0"}}),
    ] {
        assert_eq!(owner.post(path, &body).status, 400, "{body}");
    }
    // Components run side by side or not at all.
    let body = json!({"hetjob": [{"tasks": 1}, {"tasks": 2, "name": "second"}]});
    let made = owner.post("/slurm/v0.0.45/job/allocate", &body).ok();
    let id = made["job_id"].as_u64().unwrap();
    c.until_prints(
        &format!("squeue -h -j {id} -o '%i %T %j' | sort"),
        &format!("{id}+0 RUNNING openapi\n{id}+1 RUNNING second"),
    );
    assert_ne!(owner.post("/slurm/v0.0.40/job/allocate", &body).status, 200);
}

#[test]
fn reservations_are_made_changed_and_deleted_by_those_who_may() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, root, owner) = (&rest.cluster, rest.of("root"), rest.of(OWNER));
    let start = c.ok("date -d '+1 hour' +%s").parse::<u64>().unwrap();
    let body = json!({"name": "maintenance", "users": ["root", OWNER], "duration": {"set": true, "number": 30},
        "start_time": {"set": true, "number": start}, "node_list": ["n1"], "flags": ["IGNORE_JOBS"]});
    let path = "/slurm/v0.0.43/reservation";
    assert!(DENIED.contains(&owner.post(path, &body).error()));
    let made = root.post(path, &body).ok();
    assert_eq!(made["reservations"][0]["name"], "maintenance");
    assert_eq!(made["reservations"][0]["users"], json!(["root", OWNER]));
    let shown = root.get("/slurm/v0.0.43/reservation/maintenance").ok();
    let shown = &shown["reservations"][0];
    assert_eq!(
        (
            &shown["users"],
            &shown["start_time"]["number"],
            &shown["end_time"]["number"]
        ),
        (&json!("root,daemon"), &json!(start), &json!(start + 1800))
    );
    // The same name again is a change; one without a name gets one.
    let change = json!({"reservations": [{"name": "maintenance", "users": ["root"], "end_time": {"set": true, "number": start + 600}},
        {"users": "root", "start_time": "now+1day", "duration": 5, "node_count": 1}]});
    assert!(DENIED.contains(&owner.post("/slurm/v0.0.45/reservations", &change).error()));
    let changed = root.post("/slurm/v0.0.45/reservations", &change).ok();
    let second = changed["reservations"][1]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        c.ok("scontrol -o show res maintenance | grep -o 'Duration=[^ ]*\\|Users=[^ ]*'"),
        "Duration=00:10:00\nUsers=root"
    );
    for (body, why) in [
        (
            json!({"name": "x", "users": "root", "node_list": ["n1"]}),
            "start time",
        ),
        (
            json!({"name": "x", "users": "root", "start_time": "then"}),
            "start_time: expected a time",
        ),
        (json!({"name": "x", "comment": "a\nb"}), "no field has"),
        (
            json!({"name": "maintenance", "flags": ["SUDDEN"]}),
            "Error parsing flags",
        ),
        (
            json!({"burst_buffer": "1TB"}),
            "BurstBuffer is not supported",
        ),
    ] {
        let refused = root.post(path, &body);
        assert!(
            refused.body.contains(why) && refused.status == 400,
            "{refused:?}"
        );
    }
    assert!(
        DENIED.contains(
            &owner
                .delete(&format!("/slurm/v0.0.45/reservation/{second}"))
                .error()
        )
    );
    root.delete(&format!("/slurm/v0.0.45/reservation/{second}"))
        .ok();
    assert_eq!(c.ok("scontrol show res | grep -c ReservationName="), "1");
}

#[test]
fn partitions_and_nodes_are_made_changed_and_deleted_by_those_who_may() {
    let lines = format!("MaxNodeCount=4\n{ONE_NODE}");
    let Some(rest) = Rest::start(&lines) else {
        return;
    };
    let (c, root, owner) = (&rest.cluster, rest.of("root"), rest.of(OWNER));
    let path = "/slurm/v0.0.45/partitions";
    let body = json!({"partitions": [{"name": "night", "nodes": {"configured": "n1"}, "priority": {"tier": 3},
        "maximums": {"time": {"set": true, "number": 90}}}]});
    assert!(DENIED.contains(&owner.post(path, &body).error()));
    root.post(path, &body).ok();
    assert_eq!(c.ok("sinfo -h -p night -o '%R %l %N'"), "night 1:30:00 n1");
    // What an answer has can be sent back, changed.
    let mut shown = root.get("/slurm/v0.0.45/partition/night").ok();
    shown["partitions"][0]["partition"]["state"] = json!(["DOWN"]);
    shown["partitions"][0]["maximums"]["time"] =
        json!({"set": false, "infinite": true, "number": 0});
    root.post(path, &shown).ok();
    assert_eq!(
        c.ok("sinfo -h -p night -o '%R %l %a'"),
        "night infinite down"
    );
    let one = "/slurm/v0.0.45/partition/night";
    assert!(DENIED.contains(&owner.delete(one).error()));
    root.delete(one).ok();
    assert_eq!(c.ok("sinfo -h -o %R"), "batch");
    assert_eq!(root.delete(one).status, 500);

    let path = "/slurm/v0.0.44/new/node";
    let body = json!({"node_conf": "NodeName=c1 CPUs=2 State=CLOUD"});
    assert!(DENIED.contains(&owner.post(path, &body).error()));
    root.post(path, &body).ok();
    assert!(c.ok("scontrol -o show node c1").contains("DYNAMIC_NORM"));
    for line in [
        "NodeName=c2 State=DOWN",
        "nonsense",
        "NodeName=c2 State=CLOUD\nx",
    ] {
        let refused = root.post(path, &json!({"node_conf": line}));
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    root.delete("/slurm/v0.0.45/node/c1").ok();
}

#[test]
fn records_of_accounting_are_changed_in_one_request_and_texts_of_jobs() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, root, owner) = (&rest.cluster, rest.of("root"), rest.of(OWNER));
    let config = json!({
        "accounts": [{"name": "physics", "description": "d", "organization": "o"}],
        "qos": [{"name": "fast", "priority": 7}],
        "users": [{"name": OWNER, "default": {"account": "physics"}}],
        "associations": [{"account": "physics", "user": OWNER, "shares_raw": 5, "qos": ["fast"]}],
        "wckeys": [{"name": "k", "user": OWNER}],
        "tres": [],
    });
    let path = "/slurmdb/v0.0.42/config";
    let refused = owner.post(path, &config);
    assert!(DENIED.contains(&refused.error()), "{refused:?}");
    assert_eq!(c.ok("sacctmgr -nP show account format=account"), "root");
    root.post(path, &config).ok();
    let rows = format!("sacctmgr -nP show assoc user={OWNER} format=account,user,share,qos");
    assert_eq!(c.ok(&rows), "physics|daemon|5|fast");
    // What is answered can be sent back, and changes nothing.
    let all = "sacctmgr -nP show assoc; sacctmgr -nP show qos; sacctmgr -nP show user; sacctmgr -nP show wckey";
    let before = c.ok(all);
    for version in [38, 45] {
        let path = format!("/slurmdb/v0.0.{version}/config");
        let shown = root.get(&path).ok();
        root.post(&path, &shown).ok();
        assert_eq!(c.ok(all), before, "{version}");
    }
    for body in [
        json!({}),
        json!([]),
        json!({"accounts": {}}),
        json!({"accounts": [7]}),
    ] {
        assert_eq!(root.post(path, &body).status, 400, "{body}");
    }
    assert_eq!(
        root.post("/slurmdb/v0.0.45/tres", &json!({"tres": []}))
            .error(),
        2036
    );

    let id = owner.submit(job(json!({"tasks": 1, "account": "physics"})));
    let one = format!("/slurmdb/v0.0.44/job/{id}");
    // While it runs its texts are the controller's.
    owner
        .post(&one, &json!({"comment": {"job": "while it runs"}}))
        .ok();
    assert_eq!(c.ok(&format!("squeue -h -j {id} -o %k")), "while it runs");
    owner.delete(&format!("/slurm/v0.0.44/job/{id}")).ok();
    c.until("the job is over", || c.state(id).starts_with("CANCELLED"));
    let note = json!({"comment": {"job": "seen"}, "derived_exit_code": {"return_code": {"set": true, "number": 3}}, "wckey": "k"});
    let denied = rest.of(STRANGER).post(&one, &note);
    assert_ne!(denied.status, 200, "{denied:?}");
    let many = json!({"job_id_list": [id.to_string()], "job_rec": note});
    let changed = owner.post("/slurmdb/v0.0.45/jobs", &many).ok();
    assert_eq!(changed["results"], json!([id.to_string()]));
    assert_eq!(
        c.ok(&format!("sacct -nXP -j {id} -o comment,wckey")),
        "seen|k"
    );
    // Only administrators write their own comment.
    let admin = json!({"comment": {"administrator": "checked"}});
    assert_ne!(owner.post(&one, &admin).status, 200);
    root.post(&one, &admin).ok();
    assert_eq!(
        c.ok(&format!("sacct -nXP -j {id} -o admincomment")),
        "checked"
    );
    for body in [
        json!({}),
        json!({"comment": {"system": "x"}}),
        json!({"derived_exit_code": "x"}),
    ] {
        assert_eq!(root.post(&one, &body).status, 400, "{body}");
    }
    assert_eq!(root.post("/slurmdb/v0.0.44/job/999", &admin).error(), 2017);
}

#[test]
fn lists_of_hosts_are_shortened_and_written_in_full() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    let names = owner
        .post(
            "/util/v0.0.45/hostnames",
            &json!({"hostlist": "n[01-03],x"}),
        )
        .ok();
    assert_eq!(names["hostnames"], json!(["n01", "n02", "n03", "x"]));
    let list = owner
        .post(
            "/util/v0.0.44/hostlist",
            &json!({"hostnames": ["n01", "n02", "x"]}),
        )
        .ok();
    assert_eq!(list["hostlist"], "n[01-02],x");
    for (path, body) in [
        ("hostnames", json!({"hostlist": "n[1-999999999]"})),
        ("hostnames", json!({"hostlist": "n[2-1]"})),
        ("hostlist", json!({"hostnames": [1]})),
        ("hostlist", json!({})),
    ] {
        let refused = owner.post(&format!("/util/v0.0.45/{path}"), &body);
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    assert_eq!(
        rest.send("POST", "/util/v0.0.45/hostlist", "", "{}").status,
        401
    );
    let instances: Value = owner.get("/slurmdb/v0.0.40/instances").ok();
    assert_eq!(instances["instances"], json!([]));
}

#[test]
fn conditions_for_the_end_of_jobs_come_in_a_body_or_in_the_query() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, owner) = (&rest.cluster, rest.of(OWNER));
    let path = "/slurm/v0.0.43/jobs";
    let headers = format!("{}Content-Type: application/json\r\n", owner.headers);
    let end = |body: Value| rest.send("DELETE", path, &headers, &body.to_string());
    let held = || owner.submit(job(json!({"hold": true})));
    let (first, second) = (held(), held());
    let left = "squeue -h -o %A -S i";
    // Nothing said is not everything.
    assert_eq!(end(json!({})).status, 400);
    assert_eq!(end(json!({"job_name": "nosuch"})).ok()["status"], json!([]));
    assert_eq!(c.ok(left), format!("{first}\n{second}"));
    assert_eq!(
        end(json!({"jobs": [first.to_string()]})).ok()["status"],
        json!([])
    );
    assert_eq!(c.ok(left), second.to_string());
    owner.delete(&format!("{path}?jobs={second}")).ok();
    assert_eq!(c.ok(left), "");
    // Where no body is known, one is refused.
    let one = format!("/slurm/v0.0.43/job/{}", held());
    assert_eq!(rest.send("DELETE", &one, &headers, "{}").status, 400);
}
