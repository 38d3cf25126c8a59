//! Labels of jobs (`MCSPlugin`): those that they get, and who sees jobs by them.

use crate::accounts::{account, edit, users};
use crate::world::{World, config, spec, target, user};
use muster_core::policy::access::privacy::JobScope;
use muster_model::command::{JobUpdate, TermsAsk, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::mcs::{MCS_LABEL, McsConfig, McsKind};
use muster_model::private_data::PrivateData;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobSpec, Sharing};

fn labelled(mcs: McsConfig) -> World {
    World::with(ClusterConfig {
        mcs: Some(mcs),
        private: PrivateData::JOBS,
        ..config()
    })
}

fn asking(label: Option<&str>, sharing: Sharing) -> JobSpec {
    let mut job = spec("j");
    job.ask.sharing = sharing;
    let label = label.map(|label| (MCS_LABEL.to_owned(), label.to_owned()));
    job.shown.extend(label);
    job
}

fn label_of(world: &World, id: JobId) -> Option<&str> {
    world.job(id).spec.mcs_label()
}

#[test]
fn a_job_gets_its_label_where_it_asks_or_must() {
    let mut world = labelled(McsConfig::new(McsKind::User));
    let plain = world.submit(asking(None, Sharing::Default));
    let by_mode = world.submit(asking(None, Sharing::ExclusiveMcs));
    let by_name = world.submit(asking(Some("u1000"), Sharing::Default));
    assert_eq!(label_of(&world, plain), None);
    assert_eq!(label_of(&world, by_mode), Some("u1000"));
    assert_eq!(label_of(&world, by_name), Some("u1000"));
    let other = world.refusal(asking(Some("u1001"), Sharing::Default));
    assert_eq!(other, RefusalCode::InvalidMcsLabel);
    let mut world = labelled(McsConfig {
        enforced: true,
        ..McsConfig::new(McsKind::User)
    });
    let plain = world.submit(asking(None, Sharing::Default));
    assert_eq!(label_of(&world, plain), Some("u1000"));
    // Nobody gets another label later.
    let update = JobUpdate {
        shown: vec![(MCS_LABEL.to_owned(), "u1001".to_owned())],
        ..JobUpdate::default()
    };
    let update = |uid| (uid, target(plain), update.clone());
    for (uid, target, update) in [update(1000), update(0)] {
        let command = UserCommand::UpdateJob {
            target,
            update: Box::new(update),
        };
        assert_eq!(world.refused(uid, command), RefusalCode::InvalidMcsLabel);
    }
    // Without a plugin nobody checks it, and none is kept.
    let mut world = World::new();
    let named = world.submit(asking(Some("any"), Sharing::Default));
    assert_eq!(label_of(&world, named), None);
}

#[test]
fn groups_are_those_that_are_configured_and_the_owners() {
    let mcs = McsConfig::parse(McsKind::Group, "enforced,select:other|u1000|u1001").unwrap();
    let mut world = labelled(mcs);
    let plain = world.submit(asking(None, Sharing::Default));
    assert_eq!(label_of(&world, plain), Some("u1000"));
    for label in ["other", "u1001"] {
        let refused = world.refusal(asking(Some(label), Sharing::Default));
        assert_eq!(refused, RefusalCode::InvalidMcsLabel);
    }
    let of_none = world.try_submit(1002, asking(None, Sharing::Default));
    assert_eq!(of_none.unwrap_err().code, RefusalCode::InvalidMcsLabel);
}

#[test]
fn a_label_follows_the_account() {
    let mut world = labelled(McsConfig {
        enforced: true,
        ..McsConfig::new(McsKind::Account)
    });
    for name in ["a", "b"] {
        world.must(0, edit(&[name], account("root")));
        world.must(0, edit(&["u1000"], users(name, TermsAsk::default())));
    }
    let id = world.submit(asking(None, Sharing::Default));
    assert_eq!(label_of(&world, id), Some("a"));
    let update = JobUpdate {
        account: Some("b".into()),
        ..JobUpdate::default()
    };
    let update = Box::new(update);
    let target = target(id);
    world.must(1000, UserCommand::UpdateJob { target, update });
    assert_eq!(label_of(&world, id), Some("b"));
}

#[test]
fn jobs_are_shown_by_their_labels() {
    for private in [false, true] {
        let groups = McsConfig::parse(McsKind::Group, "ondemand,select:u1000|u1001").unwrap();
        let mut world = labelled(McsConfig { private, ..groups });
        let with = world.submit(asking(None, Sharing::ExclusiveMcs));
        let without = world.submit(asking(None, Sharing::Default));
        let sees = |uid: u32, groups: &[&str], id| {
            let mut identity = user(uid);
            identity.groups = groups.iter().map(|name| (*name).to_owned()).collect();
            JobScope::of(&world.state, &identity).has(world.job(id))
        };
        assert!(sees(1000, &[], with) && sees(1000, &[], without));
        assert_eq!(sees(1001, &["u1000"], with), private);
        assert!(!sees(1001, &["u1001"], with));
        assert!(!sees(1001, &["u1000"], without));
        assert!(sees(0, &[], with) && sees(0, &[], without));
    }
}
