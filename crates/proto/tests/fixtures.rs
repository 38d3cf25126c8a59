//! Examples of every message, which all later versions must read: one file of `tests/fixtures` for each pair of peers.

use minicbor::{Decode, Encode};
use muster_fixtures::{Root, check};
use muster_proto::client;
use muster_proto::client::Request;
use muster_proto::configuration::ConfigurationAnswer;
use muster_proto::frame::{self, Message};
use muster_proto::hello::{ChannelAnswer, ChannelHello, HostAnswer, HostHello, JobCredential};
use muster_proto::node::{Orders, ToCtld, ToNode};
use muster_proto::node_trust::{JoinAnswer, JoinHello};
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, ToStepd};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// A message as its receiver takes it: validated.
fn message<T>(bytes: &[u8]) -> Result<Vec<u8>, String>
where
    T: Message + for<'b> Decode<'b, ()> + Encode<()>,
{
    let message: T = frame::decode(bytes).map_err(|error| error.to_string())?;
    Ok(frame::encode(&message)[4..].to_vec())
}

/// Answers, which commands do not validate.
fn answer(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let answer = client::decode_answer(bytes, &mut ()).map_err(|error| error.to_string())?;
    Ok(frame::encode(&answer)[4..].to_vec())
}

#[test]
fn messages_of_clients_and_controller_are_read() {
    let roots = [
        Root::new("proto::client::Request", message::<Request>),
        Root::new("proto::client::Response", answer),
    ];
    check(PACKAGE, "tests/fixtures/client.txt", &roots, "");
}

#[test]
fn messages_of_agents_and_controller_are_read() {
    let roots = [
        Root::new("proto::node::ToNode", message::<ToNode>),
        Root::new("proto::node::Orders", message::<Orders>),
        Root::new("proto::node::ToCtld", message::<ToCtld>),
    ];
    check(PACKAGE, "tests/fixtures/node.txt", &roots, "");
}

#[test]
fn messages_to_and_between_agents_are_read() {
    let roots = [
        Root::new("proto::step::agent::AgentRequest", message::<AgentRequest>),
        Root::new("proto::step::agent::AgentReply", message::<AgentReply>),
    ];
    check(PACKAGE, "tests/fixtures/agent.txt", &roots, "");
}

#[test]
fn messages_of_srun_and_step_daemons_are_read() {
    let roots = [
        Root::new("proto::step::stepd::ToStepd", message::<ToStepd>),
        Root::new("proto::step::stepd::FromStepd", message::<FromStepd>),
    ];
    check(PACKAGE, "tests/fixtures/stepd.txt", &roots, "");
}

#[test]
fn messages_within_the_key_exchange_of_channels_are_read() {
    let roots = [
        Root::new("proto::hello::ChannelHello", message::<ChannelHello>),
        Root::new("proto::hello::ChannelAnswer", message::<ChannelAnswer>),
        Root::new("proto::hello::JobCredential", message::<JobCredential>),
        Root::new("proto::hello::HostHello", message::<HostHello>),
        Root::new("proto::hello::HostAnswer", message::<HostAnswer>),
        Root::new("proto::node_trust::JoinHello", message::<JoinHello>),
        Root::new("proto::node_trust::JoinAnswer", message::<JoinAnswer>),
    ];
    check(PACKAGE, "tests/fixtures/channel.txt", &roots, "");
}

#[test]
fn the_configuration_for_hosts_without_files_is_read() {
    let answer = "proto::configuration::ConfigurationAnswer";
    let roots = [Root::new(answer, message::<ConfigurationAnswer>)];
    check(PACKAGE, "tests/fixtures/configuration.txt", &roots, "");
}
