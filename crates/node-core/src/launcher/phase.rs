//! The life of a job on one node as one transition table. [`super::Launcher`] changes a job's phase only by this
//! table; a test prints it to docs/node-job-states.md.

/// Where a job is in its life on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeJobPhase {
    /// Nothing of it has begun: it waits for its share, its user's groups, its script's file, or after a lack.
    #[default]
    Waiting,
    /// It is being written into the record file.
    Recording,
    /// The prolog runs, or waits for a retry.
    Prolog,
    /// The process of its script is being started, or is about to be started again.
    Starting,
    /// It runs: its script, or, where that is on another node, its steps.
    Running,
    /// The job was signalled to end; remaining processes are killed after `KillWait`.
    Ending,
    /// Remaining processes are being killed.
    Clearing,
    /// No process of the job is left, and its epilog runs.
    Epilog,
    /// It has left the node. It is known until the controller knows that.
    Released,
    /// It is forgotten.
    Gone,
}

/// Events of a job on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// All that its launch needs is there.
    Prepare,
    /// Something that users can use up was lacking: it is tried again.
    Lack,
    /// The record file has it, and its prolog is started.
    StartProlog,
    /// The record file has it, its prolog is over, and its script is started.
    StartScript,
    /// The script runs, or there is none here: steps may start.
    Begin,
    /// The script has ended or could not be started, and no step runs.
    End,
    /// The script has ended or could not be started, and steps run.
    EndWithSteps,
    /// The controller orders its end.
    Terminate,
    /// SIGKILL is sent: it was ordered so, or `KillWait` is over.
    Kill,
    /// No process of the job is left, and its epilog is started.
    StartEpilog,
    /// No process of the job is left, and its epilog has ended.
    Release,
    /// The controller knows how it ended here.
    Forget,
}

impl NodeJobPhase {
    /// All phases of a job that is known, in order.
    pub const ALL: [NodeJobPhase; 9] = [
        NodeJobPhase::Waiting,
        NodeJobPhase::Recording,
        NodeJobPhase::Prolog,
        NodeJobPhase::Starting,
        NodeJobPhase::Running,
        NodeJobPhase::Ending,
        NodeJobPhase::Clearing,
        NodeJobPhase::Epilog,
        NodeJobPhase::Released,
    ];

    /// Where a move leads; none if it cannot happen here.
    pub fn after(self, happens: Move) -> Option<NodeJobPhase> {
        use Move as M;
        use NodeJobPhase as P;
        match (self, happens) {
            (P::Waiting, M::Prepare) => Some(P::Recording),
            (P::Waiting | P::Recording, M::Lack) => Some(P::Waiting),
            (P::Prolog | P::Starting | P::Ending | P::Clearing, M::Lack) => Some(self),
            (P::Recording, M::StartProlog) => Some(P::Prolog),
            (P::Recording | P::Prolog, M::StartScript) => Some(P::Starting),
            (P::Recording | P::Prolog | P::Starting, M::Begin) => Some(P::Running),
            // A launch that fails ends the job here.
            (
                P::Waiting
                | P::Recording
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Ending
                | P::Clearing,
                M::End,
            ) => Some(P::Clearing),
            (P::Starting | P::Running | P::Ending, M::EndWithSteps) => Some(P::Ending),
            (P::Clearing, M::EndWithSteps) => Some(P::Clearing),
            // A launch that has not begun has no remains.
            (P::Waiting | P::Recording, M::Terminate) => Some(P::Released),
            (P::Prolog | P::Starting | P::Running, M::Terminate) => Some(P::Ending),
            (P::Ending | P::Clearing | P::Epilog | P::Released, M::Terminate) => Some(self),
            (P::Prolog | P::Starting | P::Running | P::Ending | P::Clearing, M::Kill) => {
                Some(P::Clearing)
            }
            (P::Epilog, M::Kill) => Some(P::Epilog),
            (P::Ending | P::Clearing, M::StartEpilog) => Some(P::Epilog),
            (P::Ending | P::Clearing | P::Epilog, M::Release) => Some(P::Released),
            (P::Released, M::Forget) => Some(P::Gone),
            (
                P::Recording
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Ending
                | P::Clearing
                | P::Epilog
                | P::Released
                | P::Gone,
                M::Prepare,
            )
            | (P::Running | P::Epilog | P::Released | P::Gone, M::Lack)
            | (
                P::Waiting
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Ending
                | P::Clearing
                | P::Epilog
                | P::Released
                | P::Gone,
                M::StartProlog,
            )
            | (
                P::Waiting
                | P::Starting
                | P::Running
                | P::Ending
                | P::Clearing
                | P::Epilog
                | P::Released
                | P::Gone,
                M::StartScript,
            )
            | (
                P::Waiting
                | P::Running
                | P::Ending
                | P::Clearing
                | P::Epilog
                | P::Released
                | P::Gone,
                M::Begin,
            )
            | (P::Epilog | P::Released | P::Gone, M::End)
            | (
                P::Waiting | P::Recording | P::Prolog | P::Epilog | P::Released | P::Gone,
                M::EndWithSteps,
            )
            | (P::Gone, M::Terminate)
            | (P::Waiting | P::Recording | P::Released | P::Gone, M::Kill)
            | (
                P::Waiting
                | P::Recording
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Epilog
                | P::Released
                | P::Gone,
                M::StartEpilog,
            )
            | (
                P::Waiting
                | P::Recording
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Released
                | P::Gone,
                M::Release,
            )
            | (
                P::Waiting
                | P::Recording
                | P::Prolog
                | P::Starting
                | P::Running
                | P::Ending
                | P::Clearing
                | P::Epilog
                | P::Gone,
                M::Forget,
            ) => None,
        }
    }

    /// Nothing of it has begun.
    pub fn has_not_begun(self) -> bool {
        matches!(self, NodeJobPhase::Waiting | NodeJobPhase::Recording)
    }

    /// The job is ending, and some of its processes may remain.
    pub fn is_ending(self) -> bool {
        matches!(
            self,
            NodeJobPhase::Ending | NodeJobPhase::Clearing | NodeJobPhase::Epilog
        )
    }

    /// Nothing of it begins any more.
    pub fn is_leaving(self) -> bool {
        self.is_ending() || self.is_released()
    }

    /// The job has been released.
    pub fn is_released(self) -> bool {
        matches!(self, NodeJobPhase::Released | NodeJobPhase::Gone)
    }
}

impl Move {
    /// All moves, in order.
    pub const ALL: [Move; 12] = [
        Move::Prepare,
        Move::Lack,
        Move::StartProlog,
        Move::StartScript,
        Move::Begin,
        Move::End,
        Move::EndWithSteps,
        Move::Terminate,
        Move::Kill,
        Move::StartEpilog,
        Move::Release,
        Move::Forget,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A phase that nothing leaves would keep a share for ever.
    #[test]
    fn every_job_can_leave() {
        for phase in NodeJobPhase::ALL {
            let mut reached = vec![phase];
            let mut at = 0;
            while let Some(from) = reached.get(at).copied() {
                at += 1;
                for next in Move::ALL.iter().filter_map(|m| from.after(*m)) {
                    if !reached.contains(&next) {
                        reached.push(next);
                    }
                }
            }
            assert!(reached.contains(&NodeJobPhase::Gone), "{phase:?}");
        }
    }
}
