//! Control channels of step daemons: socket pairs of which agent or launcher have the upper end.

use super::events::NodeEvent;
use super::machines::Machines;
use crate::node::{AgentInput, ChannelId, Down};
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_node_core::messages::LauncherEvent;

impl Machines<'_> {
    /// A channel has something for a step daemon.
    pub(super) fn wake_stepd_of(&mut self, node: usize, channel: ChannelId) {
        let channels = &self.world.nodes[node].machine.channels;
        if let Some(pid) = channels.get(&channel).and_then(|c| c.stepd) {
            let delay = self.world.hop();
            self.world
                .machine_later(delay, node, NodeEvent::StepdWakes(pid));
        }
    }

    /// Agent or launcher closes its end.
    pub(super) fn close_upper(&mut self, node: usize, channel: ChannelId) {
        let channels = &mut self.world.nodes[node].machine.channels;
        let Some(open) = channels.get_mut(&channel) else {
            return;
        };
        open.is_upper_closed = true;
        // Unread messages are lost.
        open.up.clear();
        match open.is_lower_closed {
            true => drop(channels.remove(&channel)),
            false => self.wake_stepd_of(node, channel),
        }
    }

    /// The daemon's end is closed, by the daemon or by who has it.
    pub(super) fn close_lower(&mut self, node: usize, channel: ChannelId) {
        let channels = &mut self.world.nodes[node].machine.channels;
        let Some(open) = channels.get_mut(&channel) else {
            return;
        };
        open.is_lower_closed = true;
        let down = std::mem::take(&mut open.down);
        match open.is_upper_closed {
            true => drop(channels.remove(&channel)),
            false => self.wake_upper(node, channel),
        }
        for down in down {
            self.discard_message_to_stepd(node, down);
        }
    }

    /// A message to a daemon is lost, and descriptors that came with it are closed.
    pub(super) fn discard_message_to_stepd(&mut self, node: usize, down: Down) {
        match down {
            Down::Command(_, agent) => {
                if let Some(agent) = agent {
                    self.close_lower(node, agent);
                }
            }
            Down::Streams(link) => self.world.step_network().release(link),
        }
    }

    /// Messages for an agent are lost, and ends that came with them are closed.
    pub(super) fn lose_events(&mut self, node: usize, messages: &[LauncherEvent]) {
        for message in messages {
            if let LauncherEvent::StepChannel(attempt, step) = message
                && let Some(channel) = self.take_passed(node, *attempt, *step)
            {
                self.close_upper(node, channel);
            }
        }
    }

    /// The end that comes with this message.
    pub(super) fn take_passed(
        &mut self,
        node: usize,
        attempt: JobAttempt,
        step: StepNo,
    ) -> Option<ChannelId> {
        let machine = &mut self.world.nodes[node].machine;
        machine.passed.remove(&AttemptStep::new(attempt, step))
    }

    /// Something is to be read at the upper end of a channel.
    pub(super) fn wake_upper(&mut self, node: usize, channel: ChannelId) {
        let agent = self.world.nodes[node].agent.as_ref();
        let of_agent = agent.and_then(|a| {
            let mut all = a.stepds.iter();
            all.find(|(_, of)| **of == channel).map(|(id, _)| *id)
        });
        match of_agent {
            Some(stepd) => self
                .world
                .agents()
                .take(node, AgentInput::StepdReadable(stepd)),
            None => self.world.launchers().wake_soon(node),
        }
    }
}
