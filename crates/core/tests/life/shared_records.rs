//! Records that clusters share: licenses of servers, of which jobs of this cluster get its part, and federations.

use crate::accounts::edit;
use crate::world::{World, spec};
use muster_model::accounts::{Federation, FederationMember, ResourceShare, SharedResource};
use muster_model::command::{AccountsAsk, ClusterAsk, UserCommand};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

fn resource(count: u32, shares: &[(&str, u32)]) -> UserCommand {
    let share = |(cluster, percent): &(&str, u32)| ResourceShare {
        cluster: (*cluster).to_owned(),
        percent: *percent,
    };
    let resource = SharedResource {
        name: "ansys".into(),
        server: "flex1".into(),
        count,
        shares: shares.iter().map(share).collect(),
        ..SharedResource::default()
    };
    edit(&["ansys@flex1"], AccountsAsk::SetResource(resource))
}

fn asking(licenses: &str) -> JobSpec {
    JobSpec {
        licenses: Some(licenses.to_owned()),
        ..spec("j")
    }
}

fn own_cluster(world: &World) -> String {
    let config = world.state.config.as_ref().expect("it is configured");
    config.cluster_name.clone()
}

#[test]
fn jobs_get_the_licenses_of_a_server_that_are_their_clusters() {
    let mut world = World::new();
    let own = own_cluster(&world);
    let refusal = |world: &mut World, text: &str| world.refusal(asking(text));
    assert_eq!(
        refusal(&mut world, "ansys@flex1"),
        RefusalCode::InvalidLicense
    );
    world.must(0, resource(70, &[(&own, 30)]));
    assert_eq!(world.state.license_total("ansys@flex1"), 21);
    world.submit(asking("ansys@flex1:21"));
    assert_eq!(
        refusal(&mut world, "ansys@flex1:22"),
        RefusalCode::InvalidLicense
    );
    assert_eq!(refusal(&mut world, "ansys"), RefusalCode::InvalidLicense);
    let shown = world.state.licenses(world.now);
    let of_server = shown.iter().find(|license| license.name == "ansys@flex1");
    assert!(of_server.is_some_and(|license| license.remote && license.total == 21));
    world.must(0, edit(&["ansys@flex1"], AccountsAsk::DeleteResources));
    assert_eq!(world.state.license_total("ansys@flex1"), 0);
}

#[test]
fn no_more_than_all_of_a_resource_is_allocated() {
    let mut world = World::new();
    let own = own_cluster(&world);
    let west = || edit(&["west"], AccountsAsk::AddClusters(ClusterAsk::default()));
    world.must(0, west());
    let refused = [
        resource(10, &[(&own, 60), ("west", 41)]),
        resource(10, &[(&own, 10), (&own, 10)]),
        resource(10, &[("nosuch", 10)]),
        edit(
            &["other@flex1"],
            AccountsAsk::SetResource(SharedResource::default()),
        ),
    ];
    for command in refused {
        assert_eq!(world.refused(0, command), RefusalCode::InvalidValue);
    }
    world.must(0, resource(10, &[(&own, 60), ("west", 40)]));
    assert_eq!(
        world.refused(1000, resource(99, &[])),
        RefusalCode::AccessDenied
    );
    // The part of a cluster goes with the cluster.
    world.must(0, edit(&["west"], AccountsAsk::DeleteClusters));
    let left = &world.state.accounts.resources["ansys@flex1"];
    assert_eq!((left.percent_allocated(), left.id), (60, 1));
}

#[test]
fn a_cluster_is_in_one_federation() {
    let mut world = World::new();
    let own = own_cluster(&world);
    let federation = |name: &str, clusters: &[&str]| {
        let member = |(id, cluster): (u32, &&str)| FederationMember {
            cluster: (*cluster).to_owned(),
            id,
            state: "ACTIVE".into(),
        };
        let federation = Federation {
            name: name.to_owned(),
            members: (1..).zip(clusters).map(member).collect(),
        };
        edit(&[name], AccountsAsk::SetFederation(federation))
    };
    world.must(0, federation("a", &[&own]));
    world.must(0, federation("b", &[&own]));
    assert_eq!(world.state.accounts.federations["a"].members, []);
    assert_eq!(world.state.accounts.federations["b"].members.len(), 1);
    let unknown = federation("c", &["nosuch"]);
    assert_eq!(world.refused(0, unknown), RefusalCode::InvalidValue);
    let denied = federation("c", &[]);
    assert_eq!(world.refused(1000, denied), RefusalCode::AccessDenied);
    world.must(0, edit(&["b"], AccountsAsk::DeleteFederations));
    assert!(!world.state.accounts.federations.contains_key("b"));
}
