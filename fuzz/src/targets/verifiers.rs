//! Messages of verifiers: those of the controller's own processes, lines of JSV scripts, and jobs that are changed by
//! them.

use super::headed;
use minicbor::Encode;
use muster_conf::grid_engine::Mapping;
use muster_hostile::cbor::Value as Tree;
use muster_hostile::requests;
use muster_model::spec::{ExecContext, JobSpec};
use muster_proto::frame;
use muster_proto::jsv::{JsvAction, JsvDecision, Verification};
use muster_verifier::jsv::{Site, apply, asked};
use muster_verifier::message::{
    ControllerRequest, DataQuery, DataReply, Level, LoadScript, Row, Subject, VerifierReport,
};
use muster_verifier::message::{Value, Verdict};
use std::sync::LazyLock;

fn encoded<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("writing to memory cannot fail")
}

/// Messages of both sides: a decoded one is the same after a round trip.
pub(super) fn messages(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        if let Ok(report) = frame::decode::<VerifierReport>(bytes) {
            let once = encoded(&report);
            let again =
                frame::decode::<VerifierReport>(&once).expect("what was decoded can be again");
            assert!(encoded(&again) == once, "{report:?} is {again:?}");
        }
    } else if let Ok(order) = frame::decode::<ControllerRequest>(bytes) {
        let once = encoded(&order);
        let again =
            frame::decode::<ControllerRequest>(&once).expect("what was decoded can be again");
        assert!(encoded(&again) == once, "{order:?} is {again:?}");
    }
}

pub(super) fn seeds_of_messages() -> Vec<Vec<u8>> {
    let reports = [
        VerifierReport::Loaded(b"function slurm_job_submit() return 0 end".to_vec().into()),
        VerifierReport::Broken {
            why: "line 1".to_owned(),
            has_other: true,
        },
        VerifierReport::Log {
            level: Level::Info,
            text: "x".to_owned(),
        },
        VerifierReport::Question(DataQuery::Association {
            account: "a".to_owned(),
            partition: "p".to_owned(),
        }),
        VerifierReport::Verdict(Box::new(Verdict {
            lines: vec!["no".to_owned()],
            code: -1,
            spec: Some(Box::new(JobSpec::default())),
            script: Some(b"#!/bin/sh\n".to_vec().into()),
            ..Verdict::default()
        })),
    ];
    let row = Row {
        key: "p".to_owned(),
        fields: vec![
            ("nodes".to_owned(), Value::Number(3)),
            ("state".to_owned(), Value::Text("UP".to_owned())),
        ],
    };
    let orders = [
        ControllerRequest::Load(LoadScript {
            path: "/etc/slurm/job_submit.lua".to_owned(),
            last_good: None,
            time_limit_ms: 10_000,
            memory_bytes: 64 << 20,
            cluster: "c".to_owned(),
        }),
        ControllerRequest::Verify(Box::new(SUBJECT.clone())),
        ControllerRequest::Answer(DataReply::Rows(vec![row])),
    ];
    let reports = reports.iter().map(|report| headed(&[0], &Tree::of(report)));
    let orders = orders.iter().map(|order| headed(&[1], &Tree::of(order)));
    reports.chain(orders).collect()
}

/// A job that says something of everything.
static SUBJECT: LazyLock<Subject> = LazyLock::new(|| Subject {
    uid: 1000,
    user: "alice".to_owned(),
    spec: requests::full_job("/"),
    script: Some(b"#!/bin/sh\n".to_vec().into()),
    context: Some(ExecContext::default().encoded().into()),
    component: None,
    change: None,
});

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let text = "queue long.q long\npe smp $pe_slots\npe mpi4 4\ncomplex gpu gres:gpu:a100\n\
                complex lic license:matlab\ncomplex m memory\nproject p12 physics\n";
    Site {
        mapping: Mapping::parse(text, "sge.conf").0,
        gres: vec!["gpu".to_owned(), "fpga".to_owned()],
    }
});

/// A whole conversation: the lines of a verifier, and the job that comes of them.
pub(super) fn lines(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mut verification, first) = Verification::begin(asked(&SUBJECT, &SITE));
    assert_eq!(first.lines().count(), 1);
    for line in text.split('\n') {
        match verification.take(line) {
            Ok(JsvAction::Next) => {}
            Ok(JsvAction::Write(text)) => assert!(text.ends_with("BEGIN\n"), "{text:?}"),
            Ok(JsvAction::Log(_, text)) => assert!(!text.contains('\n'), "{text:?}"),
            Ok(JsvAction::Ended(outcome)) => {
                if outcome.state == JsvDecision::Correct {
                    let (mut spec, mut context) = (SUBJECT.spec.clone(), SUBJECT.context.clone());
                    let owner = spec.owner.clone();
                    let applied = apply(&mut spec, &mut context, &outcome, &SITE);
                    assert_eq!(spec.owner, owner, "a verifier gave the job away");
                    if applied.is_ok() {
                        let again = Subject {
                            spec,
                            ..SUBJECT.clone()
                        };
                        let _ = asked(&again, &SITE);
                    }
                }
                return;
            }
            Err(why) => return assert!(!why.is_empty()),
        }
    }
}

pub(super) fn seeds_of_lines() -> Vec<Vec<u8>> {
    [
        "SEND ENV\nSTARTED\nPARAM l_hard h_rt=60,gpu=2\nENV ADD A b\nENV DEL PATH\nRESULT STATE CORRECT why\n",
        "STARTED\nPARAM pe_name smp\nPARAM pe_min 4\nPARAM pe_max 4\nRESULT STATE CORRECT\n",
        "STARTED\nPARAM t_min 1\nPARAM t_max 9\nPARAM t_step 2\nPARAM tc 3\nRESULT STATE CORRECT\n",
        "STARTED\nPARAM CMDNAME /a\nPARAM CMDARGS 1\nPARAM CMDARG0 x\nRESULT STATE CORRECT\n",
        "STARTED\nPARAM q_hard long.q@n1\nPARAM m bea\nPARAM M a@b\nPARAM p -5\nPARAM h u\nRESULT STATE CORRECT\n",
        "STARTED\nPARAM hold_jid 1,2\nPARAM a 203001020304.05\nPARAM R y\nRESULT STATE CORRECT\n",
        "LOG WARNING x\nSTARTED\nLOG ERROR y\nRESULT STATE REJECT_WAIT later\n",
        "STARTED\nRESULT STATE ACCEPT\n",
        "ERROR\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
