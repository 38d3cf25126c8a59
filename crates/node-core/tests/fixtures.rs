//! Examples of every message between the processes of a node, and of what they keep for each other, which all later versions
//! must read: launchers and step daemons outlive updates.

use minicbor::{Decode, Encode};
use muster_fixtures::{Root, check};
use muster_node_core::kept::KeptNodeStep;
use muster_node_core::messages::{LauncherCommand, LauncherEvent, StepdCommand, StepdEvent};
use muster_node_core::record::StepRecord;
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
    let command = "node-core::messages::agent_launcher::LauncherCommand";
    let event = "node-core::messages::agent_launcher::LauncherEvent";
    let roots = [
        Root::new(command, message::<LauncherCommand>),
        Root::new(event, message::<LauncherEvent>),
    ];
    check(PACKAGE, "tests/fixtures/launcher.txt", &roots, "");
}

#[test]
fn messages_to_and_of_step_daemons_are_read() {
    let command = "node-core::messages::launcher_stepd::StepdCommand";
    let event = "node-core::messages::launcher_stepd::StepdEvent";
    let roots = [
        Root::new(command, message::<StepdCommand>),
        Root::new(event, message::<StepdEvent>),
    ];
    check(PACKAGE, "tests/fixtures/stepd.txt", &roots, "");
}

#[test]
fn records_of_steps_are_read() {
    let roots = [
        Root::plain::<StepRecord>("node-core::record::StepRecord").stored(),
        Root::plain::<KeptNodeStep>("node-core::kept::KeptNodeStep").stored(),
    ];
    check(PACKAGE, "tests/fixtures/records.txt", &roots, "");
}
