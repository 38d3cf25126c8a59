//! Memory for large frames while they arrive and until they are answered. Each user has some alone, frames of middling size
//! have some that large ones cannot take, and the rest is for all.

use muster_model::limits::REQUEST_BYTES_MAX;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Frames up to this size need no room.
pub(crate) const SMALL_FRAME: usize = 16 << 10;
/// Room for larger frames of one user, and of all users together, KiB. A user's is that of the largest request.
const FRAMES_KIB: usize = REQUEST_BYTES_MAX / 1024 + 1;
const ALL_FRAMES_KIB: usize = 3 * FRAMES_KIB;
/// Room that each user has beside that of all.
const FEW_FRAMES_KIB: usize = 1024;
/// Room that a user has beside both for frames of middling size, and what all users have of it. Larger frames take none of it,
/// however many come and however slowly.
const MEDIUM_FRAMES_KIB: usize = 2 * 1024;
const ALL_MEDIUM_FRAMES_KIB: usize = 32 * MEDIUM_FRAMES_KIB;
/// A frame takes room in such parts, as it comes.
const FRAME_PART_KIB: usize = 256;

/// The room of all users.
pub(super) struct SharedRoom {
    frames: Arc<Semaphore>,
    medium: Arc<Semaphore>,
    /// For one frame more: of those that wait for each other in the midst, one comes whole.
    whole: Arc<Semaphore>,
}

/// The room of one user.
pub(super) struct UserRoom {
    /// For all of each frame, so that one user's frames wait for each other.
    frames: Arc<Semaphore>,
    few: Arc<Semaphore>,
    medium: Arc<Semaphore>,
}

impl SharedRoom {
    pub(super) fn new() -> Rc<SharedRoom> {
        let semaphore = |room| Arc::new(Semaphore::new(room));
        Rc::new(SharedRoom {
            frames: semaphore(ALL_FRAMES_KIB),
            medium: semaphore(ALL_MEDIUM_FRAMES_KIB),
            whole: semaphore(1),
        })
    }
}

impl UserRoom {
    pub(super) fn new() -> Rc<UserRoom> {
        let semaphore = |room| Arc::new(Semaphore::new(room));
        Rc::new(UserRoom {
            frames: semaphore(FRAMES_KIB),
            few: semaphore(FEW_FRAMES_KIB),
            medium: semaphore(MEDIUM_FRAMES_KIB),
        })
    }
}

/// Room for a frame that comes. Of the room of all users it takes as much as has come: who only says that much will come takes
/// nothing from others.
pub(crate) struct FrameRoom {
    shared: Rc<SharedRoom>,
    user: Rc<UserRoom>,
    /// Of the whole frame.
    bytes: usize,
    /// For which there is room.
    held: usize,
    /// The first is that of the user's own room.
    permits: Vec<OwnedSemaphorePermit>,
}

impl FrameRoom {
    /// For a frame of so many bytes, of which nothing has come.
    pub(super) fn new(shared: &Rc<SharedRoom>, user: &Rc<UserRoom>, bytes: usize) -> FrameRoom {
        FrameRoom {
            shared: Rc::clone(shared),
            user: Rc::clone(user),
            bytes,
            held: SMALL_FRAME,
            permits: Vec::new(),
        }
    }

    /// Makes room for what there is of the frame after the next read, if that needs no wait; whether there is room.
    pub(crate) fn grow_now(&mut self, bytes: usize) -> bool {
        if self.permits.is_empty() {
            let own = Arc::clone(&self.user.frames).try_acquire_many_owned(self.own_kib());
            let Ok(own) = own else { return false };
            self.permits.push(own);
        }
        while self.held < bytes.min(self.bytes) {
            let Some((bytes, permits)) = self.part_now() else {
                return false;
            };
            self.take(bytes, permits);
        }
        true
    }

    /// The same, and waits until others give back theirs. The future must be kept until it is ready: one that is made anew
    /// waits behind all others again.
    pub(crate) async fn grow(mut self, bytes: usize) -> FrameRoom {
        if self.permits.is_empty() {
            let own = Arc::clone(&self.user.frames).acquire_many_owned(self.own_kib());
            self.permits.extend(own.await);
        }
        while !self.grow_now(bytes) {
            // The semaphores are never closed.
            let Ok((part, permits)) = self.next_part().await else {
                break;
            };
            self.take(part, permits);
        }
        self
    }

    /// Room for the next part, in bytes, if there is some now.
    fn part_now(&self) -> Option<(usize, Vec<OwnedSemaphorePermit>)> {
        let (bytes, kib) = self.part();
        let of = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_many_owned(kib);
        let found = of(&self.user.few).or_else(|_| of(&self.shared.frames));
        if let Ok(permit) = found {
            return Some((bytes, vec![permit]));
        }
        if !self.is_medium() {
            return None;
        }
        let (own, all) = (of(&self.user.medium).ok()?, of(&self.shared.medium).ok()?);
        Some((bytes, vec![own, all]))
    }

    /// Room for the next part, or for all that is left of the frame, whichever comes first.
    async fn next_part(&self) -> Result<(usize, Vec<OwnedSemaphorePermit>), AcquireError> {
        let (part, kib) = self.part();
        let of = |room: &Arc<Semaphore>| Arc::clone(room).acquire_many_owned(kib);
        let (own, all) = (of(&self.user.medium), of(&self.shared.medium));
        // While it waits for the user's own, it takes nothing from others.
        let medium = async { Ok(vec![own.await?, all.await?]) };
        let whole = Arc::clone(&self.shared.whole).acquire_owned();
        let (bytes, permits) = tokio::select! {
            permit = of(&self.user.few) => (part, permit.map(|permit| vec![permit])),
            permit = of(&self.shared.frames) => (part, permit.map(|permit| vec![permit])),
            permits = medium, if self.is_medium() => (part, permits),
            permit = whole => (self.bytes, permit.map(|permit| vec![permit])),
        };
        Ok((bytes, permits?))
    }

    /// Whether there is room for it that larger frames cannot take.
    fn is_medium(&self) -> bool {
        self.bytes <= (FEW_FRAMES_KIB + MEDIUM_FRAMES_KIB) << 10
    }

    /// Of the user's own room, that of the whole frame.
    fn own_kib(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(1024).min(FRAMES_KIB)).unwrap_or(u32::MAX)
    }

    /// The next part, in bytes and KiB.
    fn part(&self) -> (usize, u32) {
        let kib = (self.bytes - self.held).div_ceil(1024).min(FRAME_PART_KIB);
        (kib * 1024, u32::try_from(kib).unwrap_or(u32::MAX))
    }

    fn take(&mut self, bytes: usize, permits: Vec<OwnedSemaphorePermit>) {
        self.held = self.held.saturating_add(bytes).min(self.bytes);
        self.permits.extend(permits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Poll;

    async fn is_pending<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        let mut future = future;
        std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    fn room(shared: &Rc<SharedRoom>, bytes: usize) -> FrameRoom {
        FrameRoom::new(shared, &UserRoom::new(), bytes)
    }

    #[tokio::test]
    async fn large_frames_of_a_user_wait_for_each_other() {
        let (shared, user) = (SharedRoom::new(), UserRoom::new());
        let of_user = |bytes| FrameRoom::new(&shared, &user, bytes);
        let mut first = of_user(REQUEST_BYTES_MAX);
        assert!(first.grow_now(SMALL_FRAME));
        let mut waits = pin!(of_user(1 << 20).grow(SMALL_FRAME));
        assert!(is_pending(waits.as_mut()).await);
        let mut other = room(&shared, REQUEST_BYTES_MAX);
        assert!(other.grow_now(SMALL_FRAME), "nor do others wait");
        drop(first);
        waits.await;
    }

    /// Four users who each said that a large request would come had all others' requests wait for half a minute.
    #[tokio::test]
    async fn a_frame_takes_room_of_all_as_it_comes() {
        let shared = SharedRoom::new();
        let most = REQUEST_BYTES_MAX;
        let mut said: Vec<_> = (0..100).map(|_| room(&shared, most)).collect();
        assert!(said.iter_mut().all(|room| room.grow_now(SMALL_FRAME)));
        let mut other = room(&shared, most);
        assert!(other.grow_now(most));
        drop(other);
        // Where much has come of all, others have room for small frames.
        for room in &mut said {
            let mut bytes = SMALL_FRAME;
            while bytes < most && room.grow_now(bytes) {
                bytes += 64 << 10;
            }
        }
        assert!(room(&shared, FEW_FRAMES_KIB << 10).grow_now(most));
        drop(said);
        assert_eq!(shared.frames.available_permits(), ALL_FRAMES_KIB);
    }

    /// Large requests that were really sent, slowly, had others' requests of more than a MiB wait for half a minute.
    #[tokio::test]
    async fn large_frames_leave_room_for_those_of_middling_size() {
        let shared = SharedRoom::new();
        let most = REQUEST_BYTES_MAX;
        let mut large: Vec<_> = (0..3).map(|_| room(&shared, most)).collect();
        assert!(large.iter_mut().all(|room| room.grow_now(most)));
        // One more comes whole, whatever there is.
        large.push(room(&shared, most).grow(most).await);
        let mut waiting: Vec<_> = (0..30)
            .map(|_| Box::pin(room(&shared, most).grow(most)))
            .collect();
        for room in &mut waiting {
            assert!(is_pending(room.as_mut()).await);
        }
        let mut others: Vec<_> = (0..30).map(|_| room(&shared, 2 << 20)).collect();
        assert!(others.iter_mut().all(|room| room.grow_now(2 << 20)));
        // One user has little of it.
        let user = UserRoom::new();
        let mut own: Vec<_> = (0..8)
            .map(|_| FrameRoom::new(&shared, &user, 1 << 20))
            .collect();
        let grown = own
            .iter_mut()
            .filter_map(|room| room.grow_now(1 << 20).then_some(()));
        assert!(grown.count() <= 3);
        drop((large, waiting, others, own));
        assert_eq!(shared.medium.available_permits(), ALL_MEDIUM_FRAMES_KIB);
    }

    /// Where each has a part and waits for the next, none would ever come whole.
    #[tokio::test]
    async fn frames_that_wait_for_each_other_come_whole() {
        let shared = SharedRoom::new();
        let most = REQUEST_BYTES_MAX;
        let local = tokio::task::LocalSet::new();
        let coming: Vec<_> = (1..=12)
            .map(|_| {
                let mut room = room(&shared, most);
                local.spawn_local(async move {
                    for bytes in (0..=most).step_by(1 << 20) {
                        room = room.grow(bytes).await;
                        tokio::task::yield_now().await;
                    }
                    room.held
                })
            })
            .collect();
        local.await;
        for held in coming {
            assert!(held.await.unwrap() >= most - (1 << 20));
        }
        assert_eq!(shared.whole.available_permits(), 1);
    }
}
