//! A QOS that an operator gives to a job whose owner may not use it.

use crate::accounts::{account, edit, users};
use crate::world::{World, config, spec, target};
use muster_model::command::{AccountsAsk, JobUpdate, QosAsk, TermsAsk, UserCommand};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{GRANTED_QOS, JobSpec};

fn qos(name: &str) -> JobUpdate {
    JobUpdate {
        qos: Some(name.into()),
        ..JobUpdate::default()
    }
}

#[test]
fn an_operator_gives_any_qos() {
    let mut config = config();
    config.order.enforce_associations = true;
    config.order.enforce_qos = true;
    let mut w = World::with(config);
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    w.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    let id = w.submit(spec("x"));
    let given = |update: JobUpdate| UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    };
    let refused = w.refused(1000, given(qos("high")));
    assert_eq!(refused, RefusalCode::InvalidQos);
    assert_eq!(w.refused(0, given(qos("nosuch"))), RefusalCode::InvalidQos);

    w.must(0, given(qos("high")));
    let job = w.job(id);
    assert_eq!(job.spec.qos_name(), "high");
    assert_eq!(w.state.waits_for_limit(job, w.now), None);
    // It is the operator's again who moves the job with it.
    let account = JobUpdate {
        account: Some("a".into()),
        ..JobUpdate::default()
    };
    let moved = w.refused(1000, given(account));
    assert_eq!(moved, RefusalCode::InvalidQos);
    w.must(1000, given(qos("normal")));
    assert!(!w.job(id).spec.has_granted_qos());
}

#[test]
fn nobody_says_of_a_job_that_it_was_given_one() {
    let mut w = World::new();
    let forged = || vec![(GRANTED_QOS.to_owned(), "high".to_owned())];
    let submitted = JobSpec {
        shown: forged(),
        ..spec("x")
    };
    assert_eq!(w.refusal(submitted), RefusalCode::InvalidValue);
    let id = w.submit(spec("x"));
    let updated = UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(JobUpdate {
            shown: forged(),
            ..JobUpdate::default()
        }),
    };
    assert_eq!(w.refused(1000, updated), RefusalCode::InvalidValue);
}
