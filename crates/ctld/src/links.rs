//! Counts the connections of agents that are open, so that the controller can wait for them when it stops. It does not read
//! messages.

use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::Notify;

/// The open connections of agents.
#[derive(Default)]
pub(crate) struct Links {
    open: Cell<usize>,
    last_closed: Notify,
}

/// A connection that counts as open until this is dropped.
pub(crate) struct OpenLink(Rc<Links>);

impl Links {
    /// Counts another one.
    pub(crate) fn open(self: &Rc<Self>) -> OpenLink {
        self.open.set(self.open.get() + 1);
        OpenLink(Rc::clone(self))
    }

    /// Waits until none is open.
    pub(crate) async fn closed(&self) {
        while self.open.get() > 0 {
            self.last_closed.notified().await;
        }
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        let Links { open, last_closed } = &*self.0;
        open.set(open.get() - 1);
        if open.get() == 0 {
            last_closed.notify_one();
        }
    }
}
