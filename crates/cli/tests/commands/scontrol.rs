//! scontrol's changing commands.

use crate::stage::Stage;
use muster_model::command::{Reply, UserCommand};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::client::{Pong, Query, RequestBody, Response};

#[test]
fn errors_have_slurms_words() {
    let stage = Stage::new();
    stage.controller(|request| {
        let refusal: Refusal = match request {
            RequestBody::Command(c) if matches!(**c, UserCommand::UpdateJob { .. }) => {
                RefusalCode::InvalidPartition.into()
            }
            _ => Refusal::new(RefusalCode::InvalidJobId, "there is no job 99999"),
        };
        vec![Response::Reply(Box::new(Reply::Refused(refusal)))]
    });
    for (args, stderr) in [
        (
            &["scontrol", "hold", "99999"][..],
            "Invalid job id specified for job 99999\nslurm_suspend error: Invalid job id specified\n",
        ),
        (
            &["scontrol", "requeue", "99999"],
            "Invalid job id specified for job 99999\n",
        ),
        (
            &["scontrol", "update", "jobid=15", "nosuch=1"],
            "Update of this parameter is not supported: nosuch=1\nRequest aborted\n",
        ),
        (
            &["scontrol", "update", "jobid=15", "partition=nosuch"],
            "Invalid partition name specified for job 15\n",
        ),
        (&["scontrol", "nosuch"], "invalid keyword: nosuch\n"),
        (
            &["scontrol", "update", "jobid=15"],
            "No changes specified\n",
        ),
        (
            &["scontrol", "update", "jobid=15", "timelimit=foo"],
            "scontrol: error: Invalid TimeLimit value\n",
        ),
    ] {
        let seen = stage.run(args);
        assert_eq!(seen.stderr, stderr, "{args:?}");
        assert_eq!((seen.stdout.as_str(), seen.code), ("", 1), "{args:?}");
    }
}

#[test]
fn ping_and_write() {
    let stage = Stage::new();
    assert_eq!(
        stage.run(&["scontrol", "ping"]).stdout,
        "Slurmctld(primary) at vm is DOWN\n"
    );
    stage.controller(|request| match request {
        RequestBody::Query(q) => match &**q {
            Query::Ping => vec![Response::Pong(Pong {
                hostname: "other".to_owned(),
                pid: 1,
                version: String::new(),
                cluster: "peer".to_owned(),
                started: Timestamp(0),
            })],
            Query::Script(_) => vec![Response::Script(
                b"#!/bin/bash\nsleep 600\n".to_vec().into(),
            )],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    });
    let seen = stage.run(&["scontrol", "ping"]);
    assert_eq!(
        (seen.stdout.as_str(), seen.code),
        ("Slurmctld(primary) at vm is UP\n", 0)
    );
    let seen = stage.run(&["scontrol", "write", "batch_script", "9", "-"]);
    assert_eq!(seen.stdout, "#!/bin/bash\nsleep 600\n");
    let seen = stage.run(&["scontrol", "write", "batch", "9"]);
    assert_eq!(
        seen.stdout,
        "batch script for job 9 written to slurm-9.sh\n"
    );
    assert_eq!(stage.read("slurm-9.sh"), "#!/bin/bash\nsleep 600\n");
}

#[test]
fn commands_from_standard_input() {
    let stage = Stage::new();
    let seen = stage.run_with(&["scontrol"], &[], "foo\nversion\n!!\nquit\nversion\n");
    let version = format!("slurm {}\n", muster_cli::SLURM_VERSION);
    assert_eq!(
        seen.stdout,
        format!(
            "scontrol: foo\nscontrol: version\n{version}scontrol: !!\n{version}scontrol: quit\n"
        )
    );
    assert_eq!(
        (seen.stderr.as_str(), seen.code),
        ("invalid keyword: foo\n", 1)
    );
}
