//! The life of a step in its daemon as one transition table. A daemon changes a step's phase only by this table; a
//! test prints it to docs/stepd-states.md.

/// Where a step is in its life, for its daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepPhase {
    /// srun has not come.
    #[default]
    Waiting,
    /// It was ended before srun connected.
    Cancelled,
    /// Its tasks are forked, and prepare to execute.
    Starting,
    /// Its tasks run.
    Running,
    /// Its tasks were signalled to end, or killed.
    Ending,
    /// All tasks have ended; the rest of their output is on its way.
    Draining,
    /// As [`Draining`](StepPhase::Draining), with a time limit, because the step was ended from outside.
    Closing,
    /// It is over, and its end is reported.
    Over,
}

/// Events of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// srun is there, and tasks are started.
    Start,
    /// Some tasks could not be started.
    StartFailed,
    /// All tasks are prepared, and let go.
    Release,
    /// The step is ended: by the launcher, a signal, its time limit, srun's word or its disappearance.
    End,
    /// All tasks have ended.
    TasksEnded,
    /// Nothing is left to do.
    Finish,
    /// The daemon cannot go on.
    Break,
}

impl StepPhase {
    /// All phases, in order.
    pub const ALL: [StepPhase; 8] = [
        StepPhase::Waiting,
        StepPhase::Cancelled,
        StepPhase::Starting,
        StepPhase::Running,
        StepPhase::Ending,
        StepPhase::Draining,
        StepPhase::Closing,
        StepPhase::Over,
    ];

    /// Where a move leads; none if it cannot happen here.
    pub fn after(self, happens: Move) -> Option<StepPhase> {
        use Move as M;
        use StepPhase as P;
        match (self, happens) {
            (P::Waiting, M::Start) => Some(P::Starting),
            (P::Waiting, M::End) => Some(P::Cancelled),
            (P::Waiting, M::StartFailed | M::Release | M::TasksEnded | M::Finish) => None,

            (P::Cancelled, M::End) => Some(P::Cancelled),
            (P::Cancelled, M::Finish) => Some(P::Over),
            (P::Cancelled, M::Start | M::StartFailed | M::Release | M::TasksEnded) => None,

            (P::Starting, M::StartFailed | M::End) => Some(P::Ending),
            (P::Starting, M::Release) => Some(P::Running),
            // The tasks ended before they were released.
            (P::Starting, M::TasksEnded) => Some(P::Draining),
            (P::Starting, M::Start | M::Finish) => None,

            (P::Running, M::End) => Some(P::Ending),
            (P::Running, M::TasksEnded) => Some(P::Draining),
            (P::Running, M::Start | M::StartFailed | M::Release | M::Finish) => None,

            // Tasks that wait for their release may receive a signal only after it.
            (P::Ending, M::Release | M::End) => Some(P::Ending),
            (P::Ending, M::TasksEnded) => Some(P::Closing),
            (P::Ending, M::Start | M::StartFailed | M::Finish) => None,

            (P::Draining, M::End) => Some(P::Closing),
            // More is collected, and looked for, until nothing is left.
            (P::Draining, M::Release | M::TasksEnded) => Some(P::Draining),
            (P::Draining, M::Finish) => Some(P::Over),
            (P::Draining, M::Start | M::StartFailed) => None,

            (P::Closing, M::Release | M::End | M::TasksEnded) => Some(P::Closing),
            (P::Closing, M::Finish) => Some(P::Over),
            (P::Closing, M::Start | M::StartFailed) => None,

            (
                P::Waiting
                | P::Cancelled
                | P::Starting
                | P::Running
                | P::Ending
                | P::Draining
                | P::Closing,
                M::Break,
            ) => Some(P::Over),
            (
                P::Over,
                M::Start
                | M::StartFailed
                | M::Release
                | M::End
                | M::TasksEnded
                | M::Finish
                | M::Break,
            ) => None,
        }
    }

    /// The step was ended from outside, regardless of the exits of its tasks.
    pub fn was_ended(self) -> bool {
        matches!(
            self,
            StepPhase::Cancelled | StepPhase::Ending | StepPhase::Closing
        )
    }

    /// All its tasks have ended.
    pub fn has_no_tasks(self) -> bool {
        matches!(
            self,
            StepPhase::Draining | StepPhase::Closing | StepPhase::Over
        )
    }
}

impl Move {
    /// All moves, in order.
    pub const ALL: [Move; 7] = [
        Move::Start,
        Move::StartFailed,
        Move::Release,
        Move::End,
        Move::TasksEnded,
        Move::Finish,
        Move::Break,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A phase that nothing leaves would keep the step's share of the job for ever.
    #[test]
    fn every_step_comes_to_its_end_when_it_is_ended() {
        for phase in StepPhase::ALL {
            let mut at = phase.after(Move::End).unwrap_or(phase);
            for happens in [Move::TasksEnded, Move::Finish] {
                at = at.after(happens).unwrap_or(at);
            }
            assert_eq!(at, StepPhase::Over, "{phase:?}");
        }
    }
}
