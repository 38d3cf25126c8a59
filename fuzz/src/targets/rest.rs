//! Requests of HTTP clients, up to the point where the controller is asked.

use muster_cli::connect::{Client, ConnectError};
use muster_cli::rest::{AnswerSink, Caller, Connect, HttpStatus, Method, Request, answer};

/// No controller is there: questions to it do not matter here.
struct Nobody;

impl Connect for Nobody {
    fn connect(&mut self) -> Result<Client, ConnectError> {
        Err(ConnectError::Config(std::io::ErrorKind::NotFound.into()))
    }

    fn keep(&mut self, _: Client) {}
}

impl AnswerSink for Nobody {
    fn begin(&mut self, _: HttpStatus, _: &'static str) {}

    fn send(&mut self, _: String) -> bool {
        true
    }

    fn finish(&mut self) {}

    fn fail(&mut self) {}
}

/// A line with method, path and query, then a body.
pub(super) fn run(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n');
    let (head, body) = data.split_at(at.unwrap_or(data.len()));
    let Ok(head) = std::str::from_utf8(head) else {
        return;
    };
    let (method, target) = head.split_once(' ').unwrap_or((head, ""));
    let method = match method {
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        _ => Method::Get,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let caller = Caller {
        uid: 1000,
        user: "alice".to_owned(),
        group: "users".to_owned(),
        source: "socket".to_owned(),
    };
    let request = Request {
        method,
        path,
        query,
        body: body.get(1..).unwrap_or_default(),
        yaml: query.starts_with("yaml"),
        caller: &caller,
    };
    if let Some(answer) = answer(&request, &mut Nobody, &mut Nobody) {
        assert!((200..600).contains(&answer.status.0));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        concat!(
            "POST /slurm/v0.0.43/job/submit\n",
            r##"{"script":"#!/bin/sh\ntrue\n","job":{"name":"a","partition":"p","tasks":4,"minimum_nodes":2,"nodes":"1-3","##,
            r##""time_limit":{"set":true,"infinite":false,"number":5},"memory_per_cpu":100,"environment":["A=b"],"##,
            r##""current_working_directory":"/tmp","tres_per_node":"gres/gpu:2","array":"1-9%2","begin_time":5,"##,
            r##""dependency":"afterok:1","mail_type":["END"],"exclusive":["true"],"argv":["x"],"hold":true}}"##
        ),
        "POST /slurm/v0.0.38/job/submit\n{\"script\":\"#!/bin/sh\\n\",\"job\":{\"environment\":{\"A\":\"b\"},\"nodes\":[1,2]}}",
        "POST /slurm/v0.0.42/job/17_3\n{\"comment\":\"x\",\"priority\":{\"set\":true,\"number\":4}}",
        "DELETE /slurm/v0.0.42/job/5?signal=USR1&flags=BATCH_JOB\n",
        "DELETE /slurm/v0.0.41/jobs\n{\"jobs\":[\"1\",2],\"signal\":\"9\",\"user_name\":\"a\"}",
        "GET /slurm/v0.0.43/jobs?update_time=5&flags=DETAIL\n",
        "GET /slurmdb/v0.0.43/jobs?users=a,b&start_time=2030-01-01&state=COMPLETED\n",
        "POST /slurmdb/v0.0.43/accounts\n{\"accounts\":[{\"name\":\"a\",\"description\":\"d\",\"organization\":\"o\"}]}",
        "POST /slurmdb/v0.0.42/users\n{\"users\":[{\"name\":\"a\",\"default\":{\"account\":\"x\"}}]}",
        "POST /slurmdb/v0.0.42/associations\n{\"associations\":[{\"account\":\"a\",\"user\":\"b\",\"max\":{\"jobs\":{\"total\":{\"set\":true,\"number\":5}}}}]}",
        "POST /slurmdb/v0.0.42/qos\n{\"qos\":[{\"name\":\"q\",\"priority\":{\"set\":true,\"number\":5},\"flags\":[\"DENY_LIMIT\"]}]}",
        "POST /slurm/v0.0.43/node/n1\n{\"state\":[\"DRAIN\"],\"reason\":\"x\"}",
        "GET /muster/v1/report?by=user&every=month&start=2030-01-01\n",
        "GET /metrics\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
