//! The tables of transitions of jobs and steps as pages of documentation. `UPDATE_DOCS=1 cargo test -p muster-node-core` writes them.

use muster_fixtures::pages::{assert_page, write_transitions};
use muster_node_core::agent::transition::{
    LedStepEvent, LedStepState, NodeJobEvent, NodeJobState, NodeStepEvent, NodeStepState,
    next_led_step_state, next_node_job_state, next_node_step_state,
};
use muster_node_core::launcher;
use muster_node_core::srun::transition::{SrunState, SrunStateEvent, next_srun_state};
use muster_node_core::stepd::phase as stepd;

const NODE_JOB_HEAD: &str = "\
# The life of a job on a node

Written from the tables in `crates/node-core/src/launcher/phase.rs` and `crates/node-core/src/agent/transition.rs` by their test;
change the tables, then run `UPDATE_DOCS=1 cargo test -p muster-node-core`.

## For the launcher

Rows are what happens, columns the phase in which the launcher of a node has the job, cells the phase that follows. A dot is what
cannot happen: the launcher logs it and leaves the job as it is.

* `Waiting`: nothing has begun. It waits for its share, its user's groups, its script's file, or after a lack (`MissingController`).
* `Recording`: it is being written into the record file. Nothing is started before it is there.
* `Prolog`, `Starting`: its prolog runs; the process of its script is being started. Both are tried again after a lack.
* `Running`: its script runs; or, where that is on another node, its steps.
* `Ending`: it was asked to end by SIGTERM. `Clearing`: what is left of it gets SIGKILL. `Epilog`: nothing is left, the epilog runs.
* `Released`: it has left the node, and is known until the controller knows that. `Gone`: it is forgotten.

After a crash of the launcher, the next one finds a job of the record file in `Running`, `Ending`, `Clearing` or `Released`.

";

const NODE_JOB_AGENT_HEAD: &str = "\
## For the agent

Columns are what the agent of the node knows of the job. A dot is what changes nothing: it cannot happen, or it is late, and the
agent ignores it.

* `Live`: it may run, and steps may be made. `Finished`: the controller has ended it because it is over.
* `Cancelled`: the controller has ended it for another reason. Steps are not made from now on.
* `Concluded`: the end of its script, or its failure to start, is reported.
* `Held`: it has left the node, and that is not reported: steps that this node leads are not over on other nodes.
* `Released`: it has left the node, and that is reported. It is known until the controller has made that durable.

The job of a report that is durable is forgotten in any state, and so is one in `Live` of which the launcher knows nothing. That it
is suspended is kept beside its state.

";

const STEPD_HEAD: &str = "\
# The life of a step in its daemon

Written from the table in `crates/node-core/src/stepd/phase.rs` by its test; change the table, then run
`UPDATE_DOCS=1 cargo test -p muster-node-core`.

Rows are what happens, columns the phase in which the step daemon of a node has its part of the step, cells the phase that follows.
A dot is what cannot happen: the daemon logs it and leaves the step as it is.

* `Waiting`: srun has not come. After 30 seconds the step is ended. A direct step does not wait: srun's streams come with it.
* `Cancelled`: it was ended before srun came, and none of its tasks has begun.
* `Starting`: its tasks are forked and prepare themselves; they are let go together, once the MPI host, if there is one, is ready.
* `Running`: its tasks run. A task that has nobody to wait for does so at once.
* `Ending`: its tasks have got SIGTERM, and get SIGKILL when `KillWait` is over; or SIGKILL at once, where the step has failed.
* `Draining`: all tasks and their epilogs have ended, and what they left behind is killed. Their output is sent, and srun takes it.
* `Closing`: the same of a step that was ended. It takes five seconds at most.
* `Over`: it is reported to the launcher and the agent, or left in the step's result file. The daemon may be given another step.

What the agents of the node and of the lead have of the step is in [step-states.md](step-states.md).

";

/// How a page begins.
fn head(title: &str, source: &str, who: &str) -> String {
    format!(
        "# {title}\n\n\
         Written from the tables in `crates/node-core/src/{source}` by their test; change them, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-node-core`.\n\n\
         Rows are what happens, columns where the step is, cells where it goes. A dot is what changes nothing: it cannot\n\
         happen, or it is late, and {who} ignores it.\n\n"
    )
}

fn steps_page() -> String {
    let mut page = head("The life of a step", "agent/transition.rs", "the agent");
    page.push_str("## A node's part of a step, for the agent of that node\n\n");
    write_transitions(
        &mut page,
        (&NodeStepState::ALL, &NodeStepEvent::ALL),
        next_node_step_state,
    );
    page.push_str("\n## A step, for the agent that leads it\n\n");
    write_transitions(
        &mut page,
        (&LedStepState::ALL, &LedStepEvent::ALL),
        next_led_step_state,
    );
    page
}

fn srun_page() -> String {
    let mut page = head("A step, for its srun", "srun/transition.rs", "srun");
    write_transitions(
        &mut page,
        (&SrunState::ALL, &SrunStateEvent::ALL),
        next_srun_state,
    );
    page
}

fn node_job_page() -> String {
    let mut page = NODE_JOB_HEAD.to_owned();
    let lists = (&launcher::NodeJobPhase::ALL[..], &launcher::Move::ALL[..]);
    write_transitions(&mut page, lists, launcher::NodeJobPhase::after);
    page.push('\n');
    page.push_str(NODE_JOB_AGENT_HEAD);
    let lists = (&NodeJobState::ALL[..], &NodeJobEvent::ALL[..]);
    write_transitions(&mut page, lists, next_node_job_state);
    page
}

fn stepd_page() -> String {
    let mut page = STEPD_HEAD.to_owned();
    let lists = (&stepd::StepPhase::ALL[..], &stepd::Move::ALL[..]);
    write_transitions(&mut page, lists, stepd::StepPhase::after);
    page
}

#[test]
fn the_pages_are_up_to_date() {
    let package = "muster-node-core";
    assert_page(package, "step-states.md", &steps_page());
    assert_page(package, "srun-states.md", &srun_page());
    assert_page(package, "node-job-states.md", &node_job_page());
    assert_page(package, "stepd-states.md", &stepd_page());
}

/// A job of the agent's can always be released, is released once, and has one conclusion at most.
#[test]
fn every_job_leaves_the_node_once() {
    let left = [NodeJobState::Held, NodeJobState::Released];
    for state in NodeJobState::ALL {
        for event in [NodeJobEvent::Left, NodeJobEvent::LeftBeforeSteps] {
            let next = next_node_job_state(state, event);
            assert_eq!(next.is_some(), !left.contains(&state), "{state:?}");
        }
        let concluded = next_node_job_state(state, NodeJobEvent::Concluded);
        assert_eq!(concluded.is_some(), state < NodeJobState::Concluded);
        for event in NodeJobEvent::ALL {
            let next = next_node_job_state(state, event);
            assert!(next.is_none_or(|next| next >= state), "{state:?} {event:?}");
        }
    }
}

/// srun can fail until its step runs, ends once it does, and never begins again.
#[test]
fn srun_goes_forward() {
    for state in SrunState::ALL {
        let next = |event| next_srun_state(state, event);
        let ahead = SrunStateEvent::ALL.into_iter().filter_map(next);
        let again = (SrunState::Asking, SrunState::Locating);
        let is_ahead = |next: SrunState| next >= state || (state, next) == again;
        assert!(ahead.clone().all(is_ahead), "{state:?}");
        assert_eq!(ahead.count() == 0, state == SrunState::Over);
        let fails = next(SrunStateEvent::Failed) == Some(SrunState::Over);
        assert_eq!(fails, state <= SrunState::Ending, "{state:?}");
    }
}

#[test]
fn nothing_leads_out_of_the_end() {
    let ended = |event: &LedStepEvent| next_led_step_state(LedStepState::Over, *event).is_none();
    assert!(LedStepEvent::ALL.iter().all(ended));
    // A part is there again only where it is started anew, or found.
    for event in NodeStepEvent::ALL {
        let starts = matches!(event, NodeStepEvent::Ordered | NodeStepEvent::Adopted);
        let next = next_node_step_state(NodeStepState::Absent, event);
        assert_eq!(
            next.is_some_and(|next| next != NodeStepState::Absent),
            starts,
            "{event:?}"
        );
    }
}

/// A part that has begun can end, and be forgotten, from each state.
#[test]
fn every_part_can_go() {
    for state in NodeStepState::ALL.into_iter().skip(1) {
        let next = |event| next_node_step_state(state, event);
        assert_eq!(next(NodeStepEvent::Ended), Some(NodeStepState::Ended));
        assert_eq!(next(NodeStepEvent::Forgotten), Some(NodeStepState::Absent));
    }
}
