//! Answers that are long, and requests that would make them so.

use super::{ONE_NODE, OWNER, Rest, job};
use serde_json::{Value, json};

/// What is in the parts of a body that is sent in parts.
fn joined(body: &str) -> String {
    let (mut left, mut whole) = (body, String::new());
    loop {
        let (length, rest) = left.split_once("\r\n").expect("the length of a part");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
        left = rest[length..]
            .strip_prefix("\r\n")
            .expect("the end of a part");
    }
}

/// The whole document of each was in memory before any of it was sent, for each that asked.
#[test]
fn long_lists_are_sent_while_they_are_made() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    let comment = "c".repeat(60_000);
    let array = owner.submit(job(
        json!({"array": "0-49", "comment": comment, "hold": true}),
    ));
    // A record of its own for each task.
    rest.cluster.ok(&format!("scontrol hold {array}_[0-48]"));
    let is_sent_in_parts = |path: &str| {
        let answer = owner.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.head.contains("ransfer-encoding: chunked"),
            "{}",
            answer.head
        );
        let document: Value = serde_json::from_str(&joined(&answer.body)).unwrap();
        assert_eq!(
            document["jobs"].as_array().map(Vec::len),
            Some(50),
            "{path}"
        );
        assert_eq!(document["errors"], json!([]), "{path}");
        assert!(document["meta"]["slurm"]["release"].is_string(), "{path}");
    };
    is_sent_in_parts("/slurm/v0.0.43/jobs");
    is_sent_in_parts(&format!("/slurm/v0.0.43/job/{array}"));
    // Short ones are whole.
    let answer = owner.get("/slurm/v0.0.43/ping");
    assert!(answer.head.contains("ontent-length: "), "{}", answer.head);
    let nothing = owner
        .get("/slurmdb/v0.0.43/jobs?start_time=1970-01-02&job_name=nosuch")
        .ok();
    assert_eq!(nothing["jobs"], json!([]));
    assert_eq!(nothing["warnings"][0]["description"], "Query found no jobs");
}

/// Each key that means nothing became a warning with three copies of it, of a million in one body.
#[test]
fn few_of_many_unknown_keys_are_named() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    let mut wanted = job(json!({"hold": true}));
    for number in 0..5000 {
        wanted[format!("key{number}")] = json!(0);
    }
    let body = json!({"script": "#!/bin/sh\n", "job": wanted});
    let answer = owner.post("/slurm/v0.0.43/job/submit", &body).ok();
    let warnings = answer["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 64);
    let last = &warnings[63]["description"];
    assert_eq!(last, "there are more warnings than are listed");
    // Lists and objects without anything in them take memory as well.
    let nested = format!("{{\"job\":{}}}", "[".repeat(100) + &"]".repeat(100));
    let many = format!("[{}0]", format!("{nested},").repeat(1500));
    let answer = rest.send("POST", "/slurm/v0.0.43/job/submit", &owner.headers, &many);
    assert_eq!(answer.status, 413, "{answer:?}");
}
