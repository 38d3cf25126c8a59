//! Access to this node from other hosts: only holders of the key of a job that is here may connect.

use super::Agent;
use crate::stepd_reuse::sockets_of_job;
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobId, StepId};
use muster_proto::hello::JobCredential;
use muster_trust::{JobKeyUse, derive_job_key};

/// The holder of a credential's key.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelPeer {
    /// The key from which the secret of the channel follows.
    pub key: ByteVec,
    /// The user for whom it asks.
    pub uid: u32,
    /// The socket that it may reach here.
    pub target: ChannelTarget,
}

/// The target of a channel from another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelTarget {
    /// This agent, for the owner of a job, and for what concerns that job.
    Agent(JobId),
    /// This agent, for the agent of another node of this job.
    AgentOf(JobId, String),
    /// A step daemon's socket.
    Stepd(String),
}

/// Why nobody is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefusal {
    /// The job or step may be on its way here.
    #[error("the job or step is not known here")]
    NotHere,
    /// There is no such socket, or it is another job's.
    #[error("this is not the socket of a step daemon of the job")]
    NoSocket,
    /// The holder of a job's key acts for the job's other nodes, and for no others.
    #[error("this is none of the job's other nodes")]
    NoNode,
}

impl Agent {
    /// Identifies the peer that presents this credential and holds its key.
    ///
    /// # Errors
    /// See [`ChannelRefusal`].
    pub fn channel_peer(&self, credential: &JobCredential) -> Result<ChannelPeer, ChannelRefusal> {
        let (key, uid) = self.job_key(credential.job())?;
        match credential {
            JobCredential::Owner(job) => Ok(ChannelPeer {
                key: derive_job_key(&key, JobKeyUse::Owner).into(),
                uid,
                target: ChannelTarget::Agent(*job),
            }),
            JobCredential::Node { job, node } => {
                let of_job = self.state.jobs.latest(*job);
                let is_its = of_job.is_some_and(|(_, job)| job.has_node(node));
                if !is_its || *node == self.state.node.config.name {
                    return Err(ChannelRefusal::NoNode);
                }
                Ok(ChannelPeer {
                    key,
                    uid: 0,
                    target: ChannelTarget::AgentOf(*job, node.clone()),
                })
            }
            JobCredential::Step { job, step, path } => {
                let part = self.steps.node_steps.part(StepId::new(*job, *step));
                let step_key = part.and_then(|part| part.step_key.clone());
                if !self.is_stepd_socket(*job, &key, path) {
                    return Err(ChannelRefusal::NoSocket);
                }
                Ok(ChannelPeer {
                    key: step_key.ok_or(ChannelRefusal::NotHere)?,
                    uid,
                    target: ChannelTarget::Stepd(path.clone()),
                })
            }
        }
    }

    /// The key by which the agents of a job know each other, and the job's owner.
    fn job_key(&self, job: JobId) -> Result<(ByteVec, u32), ChannelRefusal> {
        let (_, job) = self.state.jobs.latest(job).ok_or(ChannelRefusal::NotHere)?;
        let grant = job.grant.as_ref().ok_or(ChannelRefusal::NotHere)?;
        Ok((grant.key.clone(), grant.spec.owner.uid))
    }

    /// Whether a path is that of a socket in this node's spool directory of a step daemon of this job. It may be named after an
    /// earlier step: a daemon serves one after the other. Earlier versions had the job's number in the name.
    fn is_stepd_socket(&self, job: JobId, job_key: &[u8], path: &str) -> bool {
        let spool = self.state.node.config.spool_dir.to_string_lossy();
        let name = path.strip_prefix(&*spool).and_then(|p| p.strip_prefix('/'));
        name.is_some_and(|name| {
            let step = name.strip_prefix(&sockets_of_job(job_key));
            let step = step.or_else(|| name.strip_prefix(&format!("step-{job}.")));
            let step = step.and_then(|name| name.strip_suffix(".sock"));
            step.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
    }
}
