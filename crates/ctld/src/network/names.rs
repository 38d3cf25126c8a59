//! Names and addresses of other hosts. The resolver may take long, and who connects chooses what it is asked: look-ups for users
//! are few at a time, and nobody waits for them longer than a moment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Look-ups at a time, of users' hosts, and as many of nodes.
pub(super) const LOOKUPS_MAX: usize = 4;
/// How long a look-up of a user's host is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a name serves (`getnameinfo_cache_timeout` of `CommunicationParameters`).
const KEEP: Duration = Duration::from_secs(60);
/// Names that are kept.
const KNOWN_MAX: usize = 4096;

/// Host names that were checked lately.
pub(super) struct Names {
    known: RefCell<HashMap<(IpAddr, String), (Instant, bool)>>,
    users: Arc<Semaphore>,
    nodes: Arc<Semaphore>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            known: RefCell::default(),
            users: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            nodes: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }

    /// What another host is called: as it says, if that name leads to its address, else by that.
    pub(super) async fn of_host(self: &Rc<Names>, said: String, address: IpAddr) -> String {
        if !is_name(&said) {
            return address.to_string();
        }
        let key = (address, said);
        let known = self.known.borrow().get(&key).copied();
        let fits = match known {
            Some((at, fits)) if at.elapsed() < KEEP => fits,
            _ => {
                let names = Rc::clone(self);
                let (address, said) = key.clone();
                // It goes on when it is not waited for any more: the next connection finds what it found.
                let look_up = tokio::task::spawn_local(async move {
                    let found = look_up(&names.users, said.clone()).await;
                    let fits = found.contains(&address);
                    names.keep((address, said), fits);
                    fits
                });
                match tokio::time::timeout(PATIENCE, look_up).await {
                    Ok(Ok(fits)) => fits,
                    _ => false,
                }
            }
        };
        match fits {
            true => key.1,
            false => address.to_string(),
        }
    }

    /// The addresses of a node.
    pub(super) async fn of_node(&self, name: String) -> Vec<IpAddr> {
        look_up(&self.nodes, name).await
    }

    fn keep(&self, key: (IpAddr, String), fits: bool) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, (at, _)| at.elapsed() < KEEP);
        }
        if known.len() < KNOWN_MAX {
            known.insert(key, (Instant::now(), fits));
        }
    }
}

/// Whether a text can be the name of a host.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=253).contains(&text.len()) && text.chars().all(plain)
}

async fn look_up(turns: &Arc<Semaphore>, name: String) -> Vec<IpAddr> {
    let Ok(turn) = Arc::clone(turns).acquire_owned().await else {
        return Vec::new();
    };
    let look_up = move || {
        let _turn = turn;
        match (name.as_str(), 0).to_socket_addrs() {
            Ok(found) => found.map(|address| address.ip().to_canonical()).collect(),
            Err(_) => Vec::new(),
        }
    };
    tokio::task::spawn_blocking(look_up)
        .await
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_host_is_called_what_leads_to_its_address() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let names = Rc::new(Names::new());
            let here = IpAddr::from(Ipv4Addr::LOCALHOST);
            for (said, address, called) in [
                ("localhost", here, "localhost"),
                ("localhost", IpAddr::from([192, 0, 2, 7]), "192.0.2.7"),
                ("", here, "127.0.0.1"),
                ("a\nb", here, "127.0.0.1"),
                ("127.0.0.1", here, "127.0.0.1"),
            ] {
                let found = names.of_host(said.to_owned(), address).await;
                assert_eq!(found, called, "{said:?}");
            }
            assert_eq!(names.of_node("127.0.0.1".to_owned()).await, [here]);
        });
    }
}
