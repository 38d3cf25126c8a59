//! Names and addresses of other hosts. The resolver may take long, and its questions are chosen by clients: look-ups for users
//! are few at a time, one of an address and of a user, and few more wait. A connection waits for them no longer than a moment.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Look-ups at a time, of users' hosts, and as many of nodes.
pub(super) const LOOKUPS_MAX: usize = 8;
/// Look-ups that wait, of all, for an address, and for a user who is not root. For an address a user has one, so that those of
/// others come after no more than that.
const WAITING_MAX: usize = 1024;
const OF_ADDRESS_MAX: usize = 64;
const OF_USER_MAX: usize = 2;
/// Time limit for a look-up of a user's host.
const PATIENCE: Duration = Duration::from_secs(1);
/// Lifetime of a name (`getnameinfo_cache_timeout` of `CommunicationParameters`).
const KEEP: Duration = Duration::from_secs(60);
/// Time for which a confirmed name is used while it is looked up again.
const KEEP_STALE: Duration = Duration::from_secs(3600);
/// Addresses of which names are kept, and names of each.
const KNOWN_MAX: usize = 4096;
const NAMES_MAX: usize = 8;

/// Asks the name service.
type HostResolver = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// Host names that were checked lately, and those that are being checked.
pub(super) struct Names {
    known: RefCell<KnownNames>,
    users: RefCell<LookUps>,
    nodes: Arc<Semaphore>,
    resolver: HostResolver,
}

#[derive(Default)]
struct KnownNames(HashMap<IpAddr, Vec<KnownName>>);

struct KnownName {
    name: String,
    fits: bool,
    found: Instant,
    used: Instant,
}

/// Look-ups for users.
#[derive(Default)]
struct LookUps {
    running: Vec<HostLookUp>,
    waiting: VecDeque<HostLookUp>,
}

/// Whether a name leads to an address.
struct HostLookUp {
    address: IpAddr,
    name: String,
    /// The users that asked; of one that runs, the user for whom it was begun.
    uids: Vec<u32>,
    answers: Vec<oneshot::Sender<bool>>,
}

impl HostLookUp {
    fn is_of_user(&self, uid: u32) -> bool {
        uid != 0 && self.uids.contains(&uid)
    }
}

impl LookUps {
    /// Adds a look-up, or has one that there is answer this, too; nothing if too many wait.
    fn ask(&mut self, uid: u32, address: IpAddr, name: &str) -> Option<oneshot::Receiver<bool>> {
        let (answer, answered) = oneshot::channel();
        let is_same = |l: &&mut HostLookUp| l.address == address && l.name == name;
        let mut waiting = self.waiting.iter_mut().find(is_same);
        // It may begin as soon as one of them has none that runs.
        if let Some(same) = &mut waiting
            && !same.uids.contains(&uid)
        {
            same.uids.push(uid);
        }
        let known = waiting.or_else(|| self.running.iter_mut().find(is_same));
        if let Some(same) = known {
            same.answers.retain(|answer| !answer.is_closed());
            same.answers.push(answer);
            return Some(answered);
        }
        let of_address = self.waiting.iter().filter(|l| l.address == address);
        let mut of_user = self.waiting.iter().filter(|l| l.is_of_user(uid));
        let is_full = self.waiting.len() >= WAITING_MAX
            || of_address.count() >= OF_ADDRESS_MAX
            || of_user.clone().count() >= OF_USER_MAX
            || of_user.any(|l| l.address == address);
        if is_full {
            return None;
        }
        self.waiting.push_back(HostLookUp {
            address,
            name: name.to_owned(),
            uids: vec![uid],
            answers: vec![answer],
        });
        Some(answered)
    }

    /// Begins the first that waits and may begin.
    fn begin(&mut self) -> Option<(IpAddr, String)> {
        if self.running.len() >= LOOKUPS_MAX {
            return None;
        }
        let (at, uid) = self.waiting.iter().enumerate().find_map(|(at, next)| {
            let mut running = self.running.iter();
            if running.any(|l| l.address == next.address) {
                return None;
            }
            let is_free = |uid: &&u32| !self.running.iter().any(|l| l.is_of_user(**uid));
            next.uids.iter().find(is_free).map(|uid| (at, *uid))
        })?;
        let mut next = self.waiting.remove(at)?;
        next.uids = vec![uid];
        let begun = (next.address, next.name.clone());
        self.running.push(next);
        Some(begun)
    }

    fn end(&mut self, address: IpAddr, fits: bool) {
        // There is one of an address.
        if let Some(at) = self.running.iter().position(|l| l.address == address) {
            let ended = self.running.swap_remove(at);
            for answer in ended.answers {
                // The connection that asked may have gone on without it.
                let _ = answer.send(fits);
            }
        }
    }
}

impl KnownNames {
    /// Whether a name leads to an address, and how old that answer is.
    fn find(&mut self, address: IpAddr, name: &str) -> Option<(Duration, bool)> {
        let known = self.0.get_mut(&address)?;
        let known = known.iter_mut().find(|known| known.name == name)?;
        known.used = Instant::now();
        Some((known.found.elapsed(), known.fits))
    }

    /// Of an address the names stay that lead there, and were used last.
    fn keep(&mut self, address: IpAddr, name: String, fits: bool) {
        if self.0.len() >= KNOWN_MAX && !self.0.contains_key(&address) {
            let is_fresh = |known: &KnownName| known.used.elapsed() < KEEP;
            self.0.retain(|_, names| names.iter().any(is_fresh));
            if self.0.len() >= KNOWN_MAX {
                return;
            }
        }
        let names = self.0.entry(address).or_default();
        names.retain(|known| known.name != name);
        if names.len() >= NAMES_MAX {
            let least = names
                .iter()
                .enumerate()
                .min_by_key(|(_, n)| (n.fits, n.used));
            if let Some(at) = least.map(|(at, _)| at) {
                names.swap_remove(at);
            }
        }
        let now = Instant::now();
        names.push(KnownName {
            name,
            fits,
            found: now,
            used: now,
        });
    }
}

impl Names {
    pub(super) fn new() -> Names {
        Names::with(Arc::new(resolve))
    }

    fn with(resolver: HostResolver) -> Names {
        Names {
            known: RefCell::default(),
            users: RefCell::default(),
            nodes: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            resolver,
        }
    }

    /// The name of another host from which a user connects: the one that it gives, if that name leads to its address, else its
    /// address.
    pub(super) async fn of_host(
        self: &Rc<Names>,
        said: String,
        address: IpAddr,
        uid: u32,
    ) -> String {
        if !is_name(&said) {
            return address.to_string();
        }
        let known = self.known.borrow_mut().find(address, &said);
        let fits = match known {
            Some((age, fits)) if age < KEEP => fits,
            Some((age, true)) if age < KEEP_STALE => {
                drop(self.ask(uid, address, &said));
                true
            }
            _ => match self.ask(uid, address, &said) {
                // It goes on when no connection waits for it any more: the next one finds its result.
                Some(answer) => {
                    matches!(tokio::time::timeout(PATIENCE, answer).await, Ok(Ok(true)))
                }
                None => false,
            },
        };
        match fits {
            true => said,
            false => address.to_string(),
        }
    }

    fn ask(
        self: &Rc<Names>,
        uid: u32,
        address: IpAddr,
        name: &str,
    ) -> Option<oneshot::Receiver<bool>> {
        let answer = self.users.borrow_mut().ask(uid, address, name);
        self.go_on();
        answer
    }

    /// Begins look-ups for which there is room.
    fn go_on(self: &Rc<Names>) {
        loop {
            let begun = self.users.borrow_mut().begin();
            let Some((address, name)) = begun else {
                return;
            };
            let names = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let (resolver, asked) = (Arc::clone(&names.resolver), name.clone());
                let found = tokio::task::spawn_blocking(move || resolver(&asked)).await;
                let fits = found.unwrap_or_default().contains(&address);
                names.known.borrow_mut().keep(address, name, fits);
                names.users.borrow_mut().end(address, fits);
                names.go_on();
            });
        }
    }

    /// The addresses of a node.
    pub(super) async fn of_node(&self, name: String) -> Vec<IpAddr> {
        let Ok(turn) = Arc::clone(&self.nodes).acquire_owned().await else {
            return Vec::new();
        };
        let resolver = Arc::clone(&self.resolver);
        let look_up = move || {
            let _turn = turn;
            resolver(&name)
        };
        tokio::task::spawn_blocking(look_up)
            .await
            .unwrap_or_default()
    }
}

fn resolve(name: &str) -> Vec<IpAddr> {
    match (name, 0).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip().to_canonical()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Whether a text can be the name of a host.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=253).contains(&text.len()) && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

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
                let found = names.of_host(said.to_owned(), address, 7).await;
                assert_eq!(found, called, "{said:?}");
            }
            assert_eq!(names.of_node("127.0.0.1".to_owned()).await, [here]);
        });
    }

    fn run(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, work);
    }

    /// Names of a silent server, in as many connections as one can make, had nobody's name looked up for hours.
    #[test]
    fn look_ups_of_one_user_leave_room_for_those_of_others() {
        let (release, released) = channel::<()>();
        let (asked, released) = (Arc::new(Mutex::new(Vec::new())), Mutex::new(released));
        let noted = Arc::clone(&asked);
        let (slow, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let resolver = move |name: &str| {
            noted.lock().unwrap().push(name.to_owned());
            match name {
                "login" => vec![other],
                _ => {
                    let _ = released.lock().unwrap().recv();
                    Vec::new()
                }
            }
        };
        run(async move {
            let names = Rc::new(Names::with(Arc::new(resolver)));
            for number in 0..3000_u32 {
                // From this address, and one of the user's from each of others.
                let from = if number % 2 == 0 {
                    slow
                } else {
                    IpAddr::from(number.to_be_bytes())
                };
                drop(names.ask(7, from, &format!("a{number}.silent")));
            }
            for user in 100..120 {
                drop(names.ask(user, slow, &format!("b{user}.silent")));
            }
            let (running, waiting) = {
                let users = names.users.borrow();
                (users.running.len(), users.waiting.len())
            };
            // Two of the user who has one running, one of them for another address, and one of each of the others.
            assert_eq!((running, waiting), (1, 2 + 20));
            assert_eq!(names.of_host("login".to_owned(), other, 8).await, "login");
            assert_eq!(names.of_host("login".to_owned(), slow, 8).await, "10.0.0.1");
            drop(release);
            while !names.users.borrow().running.is_empty() {
                tokio::task::yield_now().await;
            }
        });
        let asked = asked.lock().unwrap().len();
        assert_eq!(asked, 3 + 20 + 2);
    }

    /// A user with two names of a silent server had them looked up in turn, and the true name of the address never.
    #[test]
    fn a_true_name_comes_after_one_look_up_of_each_other_user() {
        let (login, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut users = LookUps::default();
        let begun = |users: &mut LookUps| users.begin().map(|(_, name)| name);
        assert!(users.ask(7, login, "a0").is_some());
        assert_eq!(begun(&mut users).as_deref(), Some("a0"));
        assert!(users.ask(7, login, "a1").is_some());
        assert!(users.ask(7, login, "a2").is_none());
        assert!(users.ask(8, login, "login").is_some());
        users.end(login, false);
        assert_eq!(begun(&mut users).as_deref(), Some("a1"));
        assert!(users.ask(7, login, "a2").is_some());
        users.end(login, false);
        assert_eq!(begun(&mut users).as_deref(), Some("login"));
        users.end(login, true);
        // One that another user asked for first does not wait until that one has no other.
        let mut users = LookUps::default();
        assert!(users.ask(7, other, "a0").is_some() && users.begin().is_some());
        assert!(users.ask(7, login, "login").is_some() && users.begin().is_none());
        assert!(users.ask(8, login, "login").is_some());
        assert_eq!(begun(&mut users).as_deref(), Some("login"));
        assert!(users.running.iter().any(|l| l.is_of_user(8)));
    }

    #[test]
    fn a_name_that_was_right_serves_while_it_is_looked_up_again() {
        let here = IpAddr::from([10, 0, 0, 2]);
        let answers = Mutex::new(vec![Vec::new(), vec![here]]);
        let resolver = move |_: &str| answers.lock().unwrap().pop().unwrap_or_default();
        run(async move {
            let names = Rc::new(Names::with(Arc::new(resolver)));
            let ask = || names.of_host("login".to_owned(), here, 7);
            let age = |by: Duration| {
                let mut known = names.known.borrow_mut();
                known
                    .0
                    .values_mut()
                    .flatten()
                    .for_each(|name| name.found -= by);
            };
            assert_eq!(ask().await, "login");
            age(KEEP);
            assert_eq!(ask().await, "login", "it is being looked up");
            while !names.users.borrow().running.is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(ask().await, "10.0.0.2", "it leads to another host now");
        });
    }

    /// Names that lead nowhere took the places of others.
    #[test]
    fn names_that_are_right_are_kept_before_others() {
        let mut known = KnownNames::default();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        known.keep(address(1), "login".to_owned(), true);
        for number in 0..100 {
            known.keep(address(1), format!("a{number}"), false);
        }
        assert_eq!(known.0[&address(1)].len(), NAMES_MAX);
        assert!(
            known
                .find(address(1), "login")
                .is_some_and(|(_, fits)| fits)
        );
        assert!(known.find(address(1), "a99").is_some_and(|(_, fits)| !fits));
        for number in 0..10_000 {
            known.keep(address(number), "a".to_owned(), false);
        }
        assert_eq!(known.0.len(), KNOWN_MAX);
    }
}
