//! The controller's process: threads that end one by one. The process has to end with the first of them, so that its
//! supervisor starts it again; acknowledged requests are in force then, and clients whose requests were lost try again.

use super::clients::Lost;
use super::faults::FaultInjector;
use super::submission::Submission;
use super::{WorldEvent, trace};
use crate::Plant;
use crate::classes::FaultClass;
use crate::outlets::Thread;
use muster_journal::Crash;
use muster_model::command::UserCommand;

/// Most time from the end of a thread to the end of its process, milliseconds.
const NOTICED_WITHIN_MS: u64 = 100;

const THREADS: [Thread; 8] = [
    Thread::WriterBeforeCommit,
    Thread::WriterAfterCommit,
    Thread::WriterAfterCommit,
    Thread::Replica,
    Thread::Accounting,
    Thread::Forecaster,
    Thread::Programs,
    Thread::EventLoop,
];

impl FaultInjector<'_> {
    /// Plans the end of a thread.
    pub(crate) fn doom_a_thread(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::DyingThreads) {
            return;
        }
        let delay = self.world.chaos.around(20_000);
        self.world.later(delay, WorldEvent::DoomThread);
        let thread = *self.world.chaos.pick(&THREADS);
        trace!(self.world, "FAULT thread {thread:?} panics");
        match thread {
            Thread::WriterBeforeCommit | Thread::WriterAfterCommit => {
                self.world.faults.panic = Some(thread);
            }
            _ => self.thread_ends(),
        }
    }

    /// A thread has ended: the process ends soon after, without a word to anybody.
    pub(crate) fn thread_ends(&mut self) {
        if self.world.planted(Plant::Zombie) {
            return;
        }
        let life = self.world.life;
        let delay = self.world.chaos.below(NOTICED_WITHIN_MS);
        self.world.later(delay, WorldEvent::ProcessEnds { life });
    }

    /// The process ends because one of its threads did.
    pub(crate) fn process_ends(&mut self, life: u64) {
        if life == self.world.life && self.world.controller.is_some() {
            trace!(self.world, "the controller's process ends");
            self.world.controller_process().die(Crash::Process);
        }
    }

    /// The writer has panicked: its thread was unwound, and nothing of its turn has left the process.
    pub(crate) fn writer_panicked(&mut self, thread: Thread) {
        trace!(self.world, "the writer panics: {thread:?}");
        if self.world.planted(Plant::Zombie) {
            self.world.faults.writer_ended = true;
            return;
        }
        // Its destructors run while the disk is still there.
        self.world.controller = None;
        self.world.controller_process().die(Crash::Process);
    }

    /// The controller was gone before it answered: clients ask once more.
    pub(crate) fn retry(&mut self, lost: Lost) {
        if self.world.healing_since.is_some() {
            return;
        }
        let Lost {
            uid,
            mut command,
            is_submission,
        } = lost;
        if !is_submission {
            return self.world.users().ask(uid, command, None);
        }
        // It may have been accepted all the same: another job, under another name.
        let UserCommand::Submit { spec, .. } = &mut command else {
            return;
        };
        spec.name = self.world.clients.next_name();
        let submission = Submission::of(spec, uid);
        self.world.clients.remember(submission.clone());
        self.world.users().ask(uid, command, Some(submission));
    }
}
