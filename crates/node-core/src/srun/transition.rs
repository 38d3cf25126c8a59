//! The life of a step as a table, as the srun that has asked for it sees it. srun makes no other transitions; a test writes them to
//! docs/srun-states.md.

/// Where srun is with its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SrunState {
    /// It connects to an agent: of the job, or of the component whose part of the step is next. The controller may be asked for
    /// the address, and another agent for the number of the step.
    Locating,
    /// It has requested the step, or a part of it, and waits for the answer.
    Asking,
    /// The step is there; srun opens files and runs its prolog.
    Opening,
    /// It connects to the step daemons.
    Connecting,
    /// The tasks are there.
    Running,
    /// Tasks run, and the step is being ended.
    Ending,
    /// All nodes have sent everything, and the leads record the end.
    Recording,
    /// srun runs its epilog and releases its allocation.
    Finishing,
    /// It has its exit code.
    Over,
}

/// Events of srun and its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SrunStateEvent {
    /// The agent was sent the request.
    Asked,
    /// The step waits, or it or its number is asked for again: with the key of its job, or after an agent had no room for the
    /// request.
    Waits,
    /// The step of a component is there, and others are not.
    PartCreated,
    /// The step is there, or all parts of it are.
    Created,
    /// The streams are open and the prolog is over.
    Opened,
    /// All step daemons know srun.
    Connected,
    /// A task has exited.
    TaskExited,
    /// A node is lost.
    NodeLost,
    /// The step is to end before its tasks do: by a signal, a task that failed, a time limit, or with its allocation.
    EndOrdered,
    /// All nodes have sent everything or are lost.
    NodesClosed,
    /// The end need not be recorded, or srun does not wait for that.
    Recorded,
    /// srun leaves a step that does not end.
    GivenUp,
    /// There is no way on: it was refused, nobody answers, or a file cannot be opened.
    Failed,
    /// The epilog is over.
    Finished,
}

impl SrunState {
    /// All states, in order.
    pub const ALL: [SrunState; 9] = [
        SrunState::Locating,
        SrunState::Asking,
        SrunState::Opening,
        SrunState::Connecting,
        SrunState::Running,
        SrunState::Ending,
        SrunState::Recording,
        SrunState::Finishing,
        SrunState::Over,
    ];
}

impl SrunStateEvent {
    /// All events, in order.
    pub const ALL: [SrunStateEvent; 14] = [
        SrunStateEvent::Asked,
        SrunStateEvent::Waits,
        SrunStateEvent::PartCreated,
        SrunStateEvent::Created,
        SrunStateEvent::Opened,
        SrunStateEvent::Connected,
        SrunStateEvent::TaskExited,
        SrunStateEvent::NodeLost,
        SrunStateEvent::EndOrdered,
        SrunStateEvent::NodesClosed,
        SrunStateEvent::Recorded,
        SrunStateEvent::GivenUp,
        SrunStateEvent::Failed,
        SrunStateEvent::Finished,
    ];
}

/// Where an event leads srun; `None` where it cannot happen, or is late and ignored.
pub fn next_srun_state(state: SrunState, event: SrunStateEvent) -> Option<SrunState> {
    use SrunState as S;
    use SrunStateEvent as E;
    match (state, event) {
        (S::Locating, E::Asked) => Some(S::Asking),
        // An agent had no room for the request for the number.
        (S::Locating, E::Waits) => Some(S::Locating),
        (S::Locating, E::Failed) => Some(S::Over),
        (S::Locating, E::PartCreated | E::Created | E::Opened) => None,
        (S::Locating, E::Connected | E::TaskExited | E::NodeLost | E::EndOrdered) => None,
        (S::Locating, E::NodesClosed | E::Recorded | E::GivenUp | E::Finished) => None,

        (S::Asking, E::Waits) => Some(S::Asking),
        (S::Asking, E::PartCreated) => Some(S::Locating),
        (S::Asking, E::Created) => Some(S::Opening),
        (S::Asking, E::Failed) => Some(S::Over),
        (S::Asking, E::Asked | E::Opened | E::Connected | E::TaskExited) => None,
        (S::Asking, E::NodeLost | E::EndOrdered | E::NodesClosed) => None,
        (S::Asking, E::Recorded | E::GivenUp | E::Finished) => None,

        (S::Opening, E::Opened) => Some(S::Connecting),
        (S::Opening, E::Failed) => Some(S::Over),
        (S::Opening, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Opening, E::Connected | E::TaskExited | E::NodeLost | E::EndOrdered) => None,
        (S::Opening, E::NodesClosed | E::Recorded | E::GivenUp | E::Finished) => None,

        (S::Connecting, E::Connected) => Some(S::Running),
        // Not all nodes are connected. Those that are end the step when srun disconnects.
        (S::Connecting, E::Failed) => Some(S::Over),
        (S::Connecting, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Connecting, E::Opened | E::TaskExited | E::NodeLost | E::EndOrdered) => None,
        (S::Connecting, E::NodesClosed | E::Recorded | E::GivenUp | E::Finished) => None,

        (S::Running, E::TaskExited | E::NodeLost) => Some(S::Running),
        (S::Running, E::EndOrdered) => Some(S::Ending),
        (S::Running, E::NodesClosed) => Some(S::Recording),
        // Signals cannot be caught.
        (S::Running, E::Failed) => Some(S::Over),
        (S::Running, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Running, E::Opened | E::Connected) => None,
        (S::Running, E::Recorded | E::GivenUp | E::Finished) => None,

        (S::Ending, E::TaskExited | E::NodeLost | E::EndOrdered) => Some(S::Ending),
        (S::Ending, E::NodesClosed) => Some(S::Recording),
        (S::Ending, E::GivenUp) => Some(S::Finishing),
        // The first message of the daemon ended it.
        (S::Ending, E::Failed) => Some(S::Over),
        (S::Ending, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Ending, E::Opened | E::Connected | E::Recorded | E::Finished) => None,

        (S::Recording, E::Recorded) => Some(S::Finishing),
        (S::Recording, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Recording, E::Opened | E::Connected | E::TaskExited | E::NodeLost) => None,
        (S::Recording, E::EndOrdered | E::NodesClosed | E::GivenUp) => None,
        (S::Recording, E::Failed | E::Finished) => None,

        (S::Finishing, E::Finished) => Some(S::Over),
        (S::Finishing, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Finishing, E::Opened | E::Connected | E::TaskExited | E::NodeLost) => None,
        (S::Finishing, E::EndOrdered | E::NodesClosed | E::Recorded) => None,
        (S::Finishing, E::GivenUp | E::Failed) => None,

        (S::Over, E::Asked | E::Waits | E::PartCreated | E::Created) => None,
        (S::Over, E::Opened | E::Connected | E::TaskExited | E::NodeLost) => None,
        (S::Over, E::EndOrdered | E::NodesClosed | E::Recorded) => None,
        (S::Over, E::GivenUp | E::Failed | E::Finished) => None,
    }
}
