//! Who is at the other end of a socket: peer credentials, with names from the user database, which may be slow and
//! is asked at most once a minute per user.

use muster_core::command::Identity;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::time::{Duration, Instant};

const KEEP: Duration = Duration::from_secs(60);

/// Identities that were looked up lately.
#[derive(Default)]
pub(crate) struct Directory {
    known: RefCell<HashMap<(u32, u32), (Instant, Identity)>>,
}

impl Directory {
    /// The identity behind a uid and gid.
    pub(crate) async fn identity(&self, uid: u32, gid: u32) -> Identity {
        if let Some((at, identity)) = self.known.borrow().get(&(uid, gid))
            && at.elapsed() < KEEP
        {
            return identity.clone();
        }
        let identity = tokio::task::spawn_blocking(move || look_up(uid, gid))
            .await
            .unwrap_or_else(|_| Identity {
                uid,
                gid,
                ..nameless(uid, gid)
            });
        self.known
            .borrow_mut()
            .insert((uid, gid), (Instant::now(), identity.clone()));
        identity
    }
}

fn nameless(uid: u32, gid: u32) -> Identity {
    Identity {
        uid,
        gid,
        user: uid.to_string(),
        group: gid.to_string(),
        groups: Vec::new(),
        gids: Vec::new(),
        // Whoever speaks over a Unix socket is on this host, whatever it says.
        host: Some(crate::answer::hostname()),
    }
}

fn look_up(uid: u32, gid: u32) -> Identity {
    let mut identity = nameless(uid, gid);
    if let Ok(Some(group)) = Group::from_gid(Gid::from_raw(gid)) {
        identity.group = group.name;
    }
    if let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) {
        let gids = CString::new(user.name.as_str())
            .ok()
            .and_then(|name| getgrouplist(&name, user.gid).ok())
            .unwrap_or_default();
        (identity.gids, identity.groups) = gids
            .into_iter()
            .filter_map(|g| Some((g.as_raw(), Group::from_gid(g).ok().flatten()?.name)))
            .unzip();
        identity.user = user.name;
    }
    identity
}
