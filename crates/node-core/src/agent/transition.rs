//! The life of a job as the agent of a node sees it, and of a step as two tables: its part on one node, and the whole step at the
//! agent that leads it. The agent makes no other transitions; a test writes them to docs/node-job-states.md and
//! docs/step-states.md.

/// Where a job is in its life, for the agent of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeJobState {
    /// It may run.
    #[default]
    Live,
    /// The controller has ended it because it is over.
    Finished,
    /// The controller has ended it for another reason.
    Cancelled,
    /// The end of its script, or its failure to start, is in the reports.
    Concluded,
    /// The job has no processes here. Steps that it leads still run on other nodes, and its release is not in the
    /// reports.
    Held,
    /// The job has no processes here, and its release is in the reports.
    Released,
}

/// Events of a job, for the agent of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeJobEvent {
    /// The controller ends it because it is over.
    OrderedToFinish,
    /// The controller ends it for another reason.
    OrderedToEnd,
    /// The launcher reported how the job's script ended, or that it could not start.
    Concluded,
    /// The job has no processes here any more.
    Left,
    /// Likewise, while steps that this node leads still run on other nodes.
    LeftBeforeSteps,
    /// These steps have ended, or the wait for them has.
    StepsOver,
}

impl NodeJobState {
    /// All states, in order.
    pub const ALL: [NodeJobState; 6] = [
        NodeJobState::Live,
        NodeJobState::Finished,
        NodeJobState::Cancelled,
        NodeJobState::Concluded,
        NodeJobState::Held,
        NodeJobState::Released,
    ];

    /// Whether no more steps are made.
    pub fn is_over(self) -> bool {
        match self {
            NodeJobState::Live | NodeJobState::Finished => false,
            NodeJobState::Cancelled
            | NodeJobState::Concluded
            | NodeJobState::Held
            | NodeJobState::Released => true,
        }
    }

    /// Whether nothing of it will go on, though processes may still be here.
    pub fn is_leaving(self) -> bool {
        match self {
            NodeJobState::Finished | NodeJobState::Cancelled | NodeJobState::Concluded => true,
            NodeJobState::Live | NodeJobState::Held | NodeJobState::Released => false,
        }
    }

    /// Whether the job has no processes here.
    pub fn has_left(self) -> bool {
        matches!(self, NodeJobState::Held | NodeJobState::Released)
    }
}

impl NodeJobEvent {
    /// All events, in order.
    pub const ALL: [NodeJobEvent; 6] = [
        NodeJobEvent::OrderedToFinish,
        NodeJobEvent::OrderedToEnd,
        NodeJobEvent::Concluded,
        NodeJobEvent::Left,
        NodeJobEvent::LeftBeforeSteps,
        NodeJobEvent::StepsOver,
    ];
}

/// Where an event leads a job; `None` where it changes nothing and is ignored.
pub fn next_node_job_state(state: NodeJobState, event: NodeJobEvent) -> Option<NodeJobState> {
    use NodeJobEvent as E;
    use NodeJobState as S;
    match (state, event) {
        (S::Live, E::OrderedToFinish) => Some(S::Finished),
        // The end of a job that is over is no cancellation of its steps.
        (S::Finished, E::OrderedToFinish) => Some(S::Finished),
        (S::Cancelled, E::OrderedToFinish) => Some(S::Cancelled),
        (S::Live | S::Finished | S::Cancelled, E::OrderedToEnd) => Some(S::Cancelled),
        (S::Live | S::Finished | S::Cancelled, E::Concluded) => Some(S::Concluded),

        // It may be ended again: remaining processes are killed.
        (S::Concluded, E::OrderedToFinish | E::OrderedToEnd) => Some(S::Concluded),
        // A new launcher repeats its report.
        (S::Concluded, E::Concluded) => None,

        (S::Live | S::Finished | S::Cancelled | S::Concluded, E::Left) => Some(S::Released),
        (S::Live | S::Finished | S::Cancelled | S::Concluded, E::LeftBeforeSteps) => Some(S::Held),
        (S::Live | S::Finished | S::Cancelled | S::Concluded, E::StepsOver) => None,

        (S::Held, E::StepsOver) => Some(S::Released),
        (S::Held, E::OrderedToFinish | E::OrderedToEnd | E::Concluded) => None,
        (S::Held, E::Left | E::LeftBeforeSteps) => None,

        (S::Released, E::OrderedToFinish | E::OrderedToEnd | E::Concluded) => None,
        (S::Released, E::Left | E::LeftBeforeSteps | E::StepsOver) => None,
    }
}

/// Where a node's part of a step is in its life, for the agent of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStepState {
    /// The agent has no record of it: it has not begun, or the lead has received its end.
    Absent,
    /// It is to start, and neither the launcher nor a daemon has it.
    Ordered,
    /// It is being written to a daemon that waits for a step.
    Offered,
    /// The launcher is starting a daemon for it.
    Starting,
    /// A daemon has it.
    Running,
    /// It has ended, and the lead is being informed.
    Ended,
}

/// Events of a node's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStepEvent {
    /// The lead has it started here.
    Ordered,
    /// A daemon of the job waits for a step: it is sent this one.
    Offered,
    /// The launcher is sent the order.
    SentToLauncher,
    /// The launcher that had the order is gone.
    LauncherLost,
    /// A daemon has the step.
    Started,
    /// The launcher cannot start it.
    Failed,
    /// An earlier life of the agent started it, or the launcher found it.
    Adopted,
    /// The daemon, or the launcher for it, reports the end.
    Ended,
    /// The lead knows the end.
    Delivered,
    /// The job is over and forgotten.
    Forgotten,
}

impl NodeStepState {
    /// All states, in order.
    pub const ALL: [NodeStepState; 6] = [
        NodeStepState::Absent,
        NodeStepState::Ordered,
        NodeStepState::Offered,
        NodeStepState::Starting,
        NodeStepState::Running,
        NodeStepState::Ended,
    ];
}

impl NodeStepEvent {
    /// All events, in order.
    pub const ALL: [NodeStepEvent; 10] = [
        NodeStepEvent::Ordered,
        NodeStepEvent::Offered,
        NodeStepEvent::SentToLauncher,
        NodeStepEvent::LauncherLost,
        NodeStepEvent::Started,
        NodeStepEvent::Failed,
        NodeStepEvent::Adopted,
        NodeStepEvent::Ended,
        NodeStepEvent::Delivered,
        NodeStepEvent::Forgotten,
    ];
}

/// Where an event leads a node's part of a step; `None` where it changes nothing and is ignored.
pub fn next_node_step_state(state: NodeStepState, event: NodeStepEvent) -> Option<NodeStepState> {
    use NodeStepEvent as E;
    use NodeStepState as S;
    match (state, event) {
        (S::Absent, E::Ordered) => Some(S::Ordered),
        (S::Absent, E::Adopted) => Some(S::Running),
        // Late answers: the step ended before it was known to run, or its job was forgotten.
        (S::Absent, E::Started | E::Failed) => Some(S::Absent),
        (S::Absent, E::Offered | E::SentToLauncher | E::LauncherLost) => None,
        (S::Absent, E::Ended | E::Delivered | E::Forgotten) => None,

        (S::Ordered, E::Offered) => Some(S::Offered),
        (S::Ordered, E::SentToLauncher) => Some(S::Starting),
        (S::Ordered, E::LauncherLost | E::Adopted) => Some(S::Ordered),
        // A restarted launcher reports a daemon that runs the step.
        (S::Ordered, E::Started) => Some(S::Running),
        (S::Ordered, E::Ended) => Some(S::Ended),
        (S::Ordered, E::Failed | E::Forgotten) => Some(S::Absent),
        (S::Ordered, E::Ordered | E::Delivered) => None,

        (S::Offered, E::Started) => Some(S::Running),
        // The daemon does not take it: another one, or the launcher.
        (S::Offered, E::Offered | E::LauncherLost | E::Adopted) => Some(S::Offered),
        (S::Offered, E::SentToLauncher) => Some(S::Starting),
        (S::Offered, E::Ended) => Some(S::Ended),
        (S::Offered, E::Failed | E::Forgotten) => Some(S::Absent),
        (S::Offered, E::Ordered | E::Delivered) => None,

        (S::Starting, E::Started) => Some(S::Running),
        (S::Starting, E::LauncherLost) => Some(S::Ordered),
        (S::Starting, E::Adopted) => Some(S::Starting),
        // A short step may end before the launcher's answer arrives.
        (S::Starting, E::Ended) => Some(S::Ended),
        (S::Starting, E::Failed | E::Forgotten) => Some(S::Absent),
        (S::Starting, E::Ordered | E::Offered | E::SentToLauncher | E::Delivered) => None,

        (S::Running, E::Started | E::Adopted) => Some(S::Running),
        (S::Running, E::Ended) => Some(S::Ended),
        // The controller knows the end of the step although this part's was lost.
        (S::Running, E::Delivered | E::Forgotten) => Some(S::Absent),
        (S::Running, E::Ordered | E::Offered | E::SentToLauncher) => None,
        (S::Running, E::LauncherLost | E::Failed) => None,

        (S::Ended, E::Started | E::Ended | E::Adopted) => Some(S::Ended),
        (S::Ended, E::Delivered | E::Forgotten) => Some(S::Absent),
        (S::Ended, E::Ordered | E::Offered | E::SentToLauncher) => None,
        (S::Ended, E::LauncherLost | E::Failed) => None,
    }
}

/// Where a step is in its life, for the agent that leads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LedStepState {
    /// It was asked for, and waits for resources or for its turn.
    Waiting,
    /// It has its resources, and its nodes start it.
    Starting,
    /// As above, but srun has disconnected: the step is ended once all nodes have answered.
    Abandoned,
    /// All nodes have answered, and it runs.
    Running,
    /// Its nodes were ordered to end it.
    Ending,
    /// A node could not start it: started parts are ended, and the step is never reported to the controller.
    Failed,
    /// It is over, and its resources are free.
    Over,
}

/// Events of a led step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LedStepEvent {
    /// It fits.
    Placed,
    /// It is refused.
    Refused,
    /// All its nodes have started it.
    Started,
    /// All its nodes have answered, and not all have started it.
    StartFailed,
    /// Its srun has disconnected.
    ClientGone,
    /// A part of it had too much memory.
    OutOfMemory,
    /// All its parts have ended.
    AllEnded,
    /// The job is over and forgotten.
    Forgotten,
}

impl LedStepState {
    /// All states, in order.
    pub const ALL: [LedStepState; 7] = [
        LedStepState::Waiting,
        LedStepState::Starting,
        LedStepState::Abandoned,
        LedStepState::Running,
        LedStepState::Ending,
        LedStepState::Failed,
        LedStepState::Over,
    ];
}

impl LedStepEvent {
    /// All events, in order.
    pub const ALL: [LedStepEvent; 8] = [
        LedStepEvent::Placed,
        LedStepEvent::Refused,
        LedStepEvent::Started,
        LedStepEvent::StartFailed,
        LedStepEvent::ClientGone,
        LedStepEvent::OutOfMemory,
        LedStepEvent::AllEnded,
        LedStepEvent::Forgotten,
    ];
}

/// Where an event leads a led step; `None` where it changes nothing and is ignored.
pub fn next_led_step_state(state: LedStepState, event: LedStepEvent) -> Option<LedStepState> {
    use LedStepEvent as E;
    use LedStepState as S;
    match (state, event) {
        (S::Waiting, E::Placed) => Some(S::Starting),
        (S::Waiting, E::Refused | E::ClientGone | E::Forgotten) => Some(S::Over),
        (S::Waiting, E::Started | E::StartFailed | E::OutOfMemory | E::AllEnded) => None,

        (S::Starting, E::Started) => Some(S::Running),
        (S::Starting, E::StartFailed) => Some(S::Failed),
        (S::Starting, E::ClientGone) => Some(S::Abandoned),
        // Nodes that have not answered are ended with their job, or when they have.
        (S::Starting, E::OutOfMemory) => Some(S::Starting),
        (S::Starting, E::Forgotten) => Some(S::Over),
        // Answers are out.
        (S::Starting, E::AllEnded) => None,
        (S::Starting, E::Placed | E::Refused) => None,

        (S::Abandoned, E::Started) => Some(S::Ending),
        (S::Abandoned, E::StartFailed) => Some(S::Failed),
        (S::Abandoned, E::OutOfMemory) => Some(S::Abandoned),
        (S::Abandoned, E::Forgotten) => Some(S::Over),
        (S::Abandoned, E::ClientGone | E::AllEnded | E::Placed | E::Refused) => None,

        (S::Running, E::ClientGone | E::OutOfMemory) => Some(S::Ending),
        (S::Running, E::AllEnded | E::Forgotten) => Some(S::Over),
        (S::Running, E::Placed | E::Refused | E::Started | E::StartFailed) => None,

        (S::Ending, E::ClientGone | E::OutOfMemory) => Some(S::Ending),
        (S::Ending, E::AllEnded | E::Forgotten) => Some(S::Over),
        (S::Ending, E::Placed | E::Refused | E::Started | E::StartFailed) => None,

        (S::Failed, E::ClientGone | E::OutOfMemory) => Some(S::Failed),
        (S::Failed, E::AllEnded | E::Forgotten) => Some(S::Over),
        (S::Failed, E::Placed | E::Refused | E::Started | E::StartFailed) => None,

        (S::Over, E::Placed | E::Refused | E::Started | E::StartFailed) => None,
        (S::Over, E::ClientGone | E::OutOfMemory | E::AllEnded | E::Forgotten) => None,
    }
}
