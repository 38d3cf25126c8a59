//! Questions to the agents of a job's nodes: what its steps use now, and which processes they have.

use crate::agent::AgentStream;
use muster_model::ids::StepNo;
use muster_model::job::Usage;
use muster_proto::client::AllocationInfo;
use muster_proto::step::{AgentReply, AgentRequest};
use std::collections::BTreeMap;

/// What a step uses on one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepUsage {
    /// The node.
    pub(crate) node: String,
    /// The step.
    pub(crate) step: StepNo,
    /// What it uses.
    pub(crate) usage: Usage,
}

/// The agents that a command asks. One that cannot be reached is not asked again: a node that is down takes seconds each time.
#[derive(Debug, Default)]
pub(crate) struct AgentQueries {
    /// Why, by address.
    unreachable: BTreeMap<String, String>,
}

impl AgentQueries {
    /// Asks the agents of all nodes of a job. Gives a line for each that did not answer, or answered something that `take` does not
    /// want.
    pub(crate) fn ask(
        &mut self,
        info: &AllocationInfo,
        request: &AgentRequest,
        mut take: impl FnMut(&str, AgentReply) -> bool,
    ) -> Vec<String> {
        let mut failures = Vec::new();
        let nodes = info.job.alloc.iter().flat_map(|alloc| &alloc.nodes);
        for (node, address) in nodes.zip(&info.addresses) {
            let why = match self.ask_one(info, address, request) {
                Ok(AgentReply::Refused(refusal)) => refusal.to_string(),
                Ok(reply) => {
                    if take(&node.name, reply) {
                        continue;
                    }
                    "an answer to another question".to_owned()
                }
                Err(why) => why,
            };
            let name = &node.name;
            failures.push(format!(
                "{name}: the agent at {address} cannot be asked: {why}"
            ));
        }
        failures
    }

    fn ask_one(
        &mut self,
        info: &AllocationInfo,
        address: &str,
        request: &AgentRequest,
    ) -> Result<AgentReply, String> {
        if let Some(why) = self.unreachable.get(address) {
            return Err(why.clone());
        }
        let answer = AgentStream::connect_agent(address, info.job.id, Some(&info.key));
        let answer = answer.and_then(|mut agent| {
            agent.send(request)?;
            agent.receive()
        });
        answer.map_err(|e| {
            let why = e.to_string();
            self.unreachable.insert(address.to_owned(), why.clone());
            why
        })
    }

    /// What the steps of a job use on each of its nodes, as far as agents say so.
    pub(crate) fn measure(&mut self, info: &AllocationInfo) -> Vec<StepUsage> {
        let job = info.job.id;
        let mut all = Vec::new();
        self.ask(info, &AgentRequest::Measure { job }, |node, reply| {
            let AgentReply::Measured(steps) = reply else {
                return false;
            };
            all.extend(steps.into_iter().map(|(step, usage)| StepUsage {
                node: node.to_owned(),
                step,
                usage,
            }));
            true
        });
        all
    }
}
