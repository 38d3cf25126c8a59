//! The last lines of a script's standard error, for mails.

use crate::world::{World, exit, spec, step_end};
use muster_core::event::Event;
use muster_model::command::NodeCommand;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::StepEnd;
use muster_model::mail::{MAIL_LINES_BYTES_MAX, MAIL_LINES_MAX, MailOptions};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

fn with_lines(types: &str, lines: Option<u16>) -> JobSpec {
    JobSpec {
        mail: Some(MailOptions {
            types: types.to_owned(),
            user: String::new(),
            lines,
        }),
        ..spec("j")
    }
}

/// The lines that are kept of those that a node reports.
fn kept(world: &mut World, id: JobId, lines: String) -> Option<String> {
    assert!(world.start(id, &[0]));
    let (job, attempt) = (id, world.job(id).attempt);
    let end = StepEnd {
        last_lines: Some(lines),
        ..step_end(world.now, exit(1))
    };
    let exit = end.exit;
    let oom = false;
    world.node(
        0,
        NodeCommand::BatchEnded {
            job,
            attempt,
            exit,
            oom,
            end,
        },
    );
    let kept = world.events.iter().find_map(|event| match event {
        Event::StepEnded {
            step: StepNo::BATCH,
            end,
            ..
        } => Some(end.last_lines.clone()),
        _ => None,
    });
    world.release(id);
    kept.expect("the step ends")
}

#[test]
fn a_node_says_no_more_than_a_job_asks_for() {
    let mut world = World::new();
    let id = world.submit(with_lines("END", Some(2)));
    let lines = kept(&mut world, id, "a\nb\nc\n".to_owned());
    assert_eq!(lines.as_deref(), Some("b\nc\n"));
    let id = world.submit(with_lines("END", Some(1)));
    let lines = kept(&mut world, id, "x".repeat(1 << 20)).unwrap();
    assert_eq!(lines.len(), MAIL_LINES_BYTES_MAX);
    for mail in [with_lines("END", None), spec("j")] {
        let id = world.submit(mail);
        assert_eq!(kept(&mut world, id, "a\n".to_owned()), None);
    }
    world.check_replay();
}

#[test]
fn lines_without_a_mail_and_too_many_are_refused() {
    let mut world = World::new();
    world.submit(with_lines("END", Some(MAIL_LINES_MAX)));
    for bad in [
        with_lines("END", Some(MAIL_LINES_MAX + 1)),
        with_lines("", Some(1)),
    ] {
        assert_eq!(world.refusal(bad), RefusalCode::InvalidValue);
    }
}
