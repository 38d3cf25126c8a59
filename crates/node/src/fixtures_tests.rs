//! Examples of every message between the processes of a node, and of what they keep for each other, which all later versions
//! must read: launchers and step daemons outlive updates.

use crate::record::Record;
use crate::shim::wire::{FromShim, ToShim};
use crate::stepd::{Control, Told};
use minicbor::{Decode, Encode};
use muster_fixtures::{Root, check};
use muster_proto::frame::{self, Message};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn message<T>(bytes: &[u8]) -> Result<Vec<u8>, String>
where
    T: Message + for<'b> Decode<'b, ()> + Encode<()>,
{
    let message: T = frame::decode(bytes).map_err(|error| error.to_string())?;
    Ok(frame::encode(&message)[4..].to_vec())
}

#[test]
fn messages_of_agent_and_launcher_are_read() {
    let roots = [
        Root::new("node::shim::wire::ToShim", message::<ToShim>),
        Root::new("node::shim::wire::FromShim", message::<FromShim>),
    ];
    check(PACKAGE, "tests/fixtures/launcher.txt", &roots, "");
}

#[test]
fn messages_to_and_of_step_daemons_are_read() {
    let roots = [
        Root::new("node::stepd::home::Control", message::<Control>),
        Root::new("node::stepd::home::Told", message::<Told>),
    ];
    check(PACKAGE, "tests/fixtures/daemon.txt", &roots, "");
}

#[test]
fn records_of_steps_are_read() {
    let roots = [Root::plain::<Record>("node::record::Record").stored()];
    check(PACKAGE, "tests/fixtures/kept.txt", &roots, "");
}
