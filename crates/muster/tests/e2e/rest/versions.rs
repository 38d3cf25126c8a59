//! What single versions of the API have otherwise than others: v0.0.39's plain times, states and exit statuses, and paths that
//! v0.0.45 brought.

use super::{OWNER, Rest, STRANGER, job};
use serde_json::json;

const CONF: &str = "KillWait=7\nPrivateData=jobs\n\
    NodeName=n1 CPUs=4 RealMemory=1000\nPartitionName=batch Nodes=ALL Default=YES State=UP MaxTime=10 DefMemPerCPU=100\n";

#[test]
fn v0_0_39_has_plain_times_states_and_statuses_and_numbers_that_may_be_unset() {
    let Some(rest) = Rest::start(CONF) else {
        return;
    };
    let owner = rest.of(OWNER);
    let body = json!({"script": "#!/bin/sh\nexit 3", "job": {"name": "old", "tasks": 1, "standard_output": "/dev/null",
        "current_working_directory": "/tmp", "environment": ["PATH=/bin:/usr/bin"]}});
    let made = owner.post("/slurm/v0.0.39/job/submit", &body).ok();
    let id = made["job_id"].as_u64().unwrap();
    rest.cluster
        .until_prints(&format!("squeue -h -t all -j {id} -o %T"), "FAILED");

    let live = owner.get(&format!("/slurm/v0.0.39/job/{id}")).ok();
    let job = &live["jobs"][0];
    assert_eq!(job["job_state"], "FAILED");
    assert!(job["start_time"].as_u64().unwrap() > 1_700_000_000, "{job}");
    assert_eq!(
        job["exit_code"],
        json!({"set": true, "infinite": false, "number": 3 << 8})
    );
    assert_eq!(job["time_limit"]["number"], 10);
    assert!(live["last_update"].is_u64() && live["warnings"].is_array());
    let newer = owner.get(&format!("/slurm/v0.0.40/job/{id}")).ok();
    assert_eq!(newer["jobs"][0]["job_state"], json!(["FAILED"]));
    assert_eq!(newer["jobs"][0]["start_time"]["number"], job["start_time"]);

    let path = format!("/slurmdb/v0.0.39/job/{id}");
    rest.cluster.until("accounting has the step", || {
        let kept = owner.get(&path).ok();
        kept["jobs"][0]["steps"]
            .as_array()
            .is_some_and(|steps| steps.len() == 1)
    });
    let kept = owner.get(&path).ok();
    let job = &kept["jobs"][0];
    assert_eq!(job["state"]["current"], "FAILED");
    assert_eq!(
        job["exit_code"],
        json!({"status": "ERROR", "return_code": 3})
    );
    let steps = job["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| &step["step"]["id"]).collect();
    assert!(
        names.contains(&&json!({"job_id": id, "step_id": "batch"})),
        "{names:?}"
    );

    // A state alone does not narrow the times, as it does for sacct.
    for (state, count) in [("FAILED", 1), ("COMPLETED", 0)] {
        let path = format!("/slurmdb/v0.0.45/jobs?state={state}");
        let found = owner.get(&path).ok();
        assert_eq!(
            found["jobs"].as_array().map(Vec::len),
            Some(count),
            "{path}"
        );
    }

    let nodes = owner.get("/slurm/v0.0.39/nodes").ok();
    assert!(nodes["nodes"][0]["boot_time"].is_u64(), "{nodes}");
    // What came later is not there.
    assert_eq!(owner.get("/slurm/v0.0.39/shares").status, 404);
}

#[test]
fn jobs_are_requeued_together_and_the_configuration_is_shown() {
    let Some(rest) = Rest::start(CONF) else {
        return;
    };
    let (c, owner) = (&rest.cluster, rest.of(OWNER));
    let ids: Vec<u64> = (0..2)
        .map(|_| owner.submit(job(json!({"tasks": 1, "requeue": true}))))
        .collect();
    let fixed = owner.submit(job(json!({"tasks": 1, "requeue": false})));
    for id in ids.iter().chain([&fixed]) {
        c.until_prints(&format!("squeue -h -j {id} -o %T"), "RUNNING");
    }
    let path = "/slurm/v0.0.45/jobs/requeue";
    let body = json!({"jobs": [ids[0].to_string(), ids[1].to_string()], "flags": ["Hold"]});
    let stranger = rest.of(STRANGER).post(path, &body);
    assert_eq!(
        stranger.json()["status"].as_array().map(Vec::len),
        Some(2),
        "{stranger:?}"
    );
    assert_eq!(owner.post(path, &body).ok()["status"], json!([]));
    for id in &ids {
        c.until_prints(
            &format!("squeue -h -j {id} -o '%T %r'"),
            "PENDING JobHeldUser",
        );
    }
    // One that refuses is named, and the other is put back.
    let body = json!({"jobs": [fixed.to_string(), ids[0].to_string()]});
    let answer = owner.post(path, &body).json();
    assert_eq!(answer["status"][0][0]["job_id"], fixed, "{answer}");
    for body in [
        json!({}),
        json!({"jobs": []}),
        json!({"jobs": ["x"]}),
        json!({"jobs": ["1"], "flags": ["Now"]}),
        json!({"job": ["1"]}),
    ] {
        assert!(owner.post(path, &body).status >= 400, "{body}");
    }

    let shown = owner.get("/slurm/v0.0.45/conf").ok();
    let conf = &shown["slurm_conf"];
    assert_eq!(
        (&conf["KillWait"], &conf["PrivateData"]),
        (&json!(7), &json!(["jobs"]))
    );
    assert_eq!(conf["JobRequeue"], true);
    assert!(shown["slurm_conf_meta"]["BOOT_TIME"].is_u64());
    assert_eq!(owner.get("/slurm/v0.0.44/conf").status, 404);
}
