//! Tests of hosts of a step that exchange data.

use super::*;
use crate::lane::LaneState;
use crate::ucx::UcxChoice;
use nix::sys::socket::{Shutdown, shutdown};
use std::process::Command;

/// Set in the child process of a test that needs its own process: UCX is configured by environment
/// variables, and the test treats all sockets that are not its own as those of UCX.
const ALONE: &str = "MUSTER_TEST_ALONE";

/// Serves until an event has happened that no descriptor reports.
fn next(mesh: &mut Mesh) -> Vec<MeshEvent> {
    assert!(mesh.is_eager());
    mesh.serve(&[false, false])
}

#[test]
fn a_new_host_at_the_address_of_one_that_is_gone_is_there() {
    let mut mesh = Mesh::new("127.0.0.1:1".to_owned(), vec![1], None);
    // No host can listen at an invalid address.
    let host = "nowhere";
    mesh.send(host, &Wire::Bye);
    let happened = next(&mut mesh);
    assert!(matches!(&happened[..], [MeshEvent::Gone(h, false)] if h == host));
    assert!(mesh.is_gone(host));
    mesh.add_host(host);
    assert!(!mesh.is_gone(host));
    // The host disconnects, which is reported again.
    mesh.send(host, &Wire::Bye);
    assert_eq!(next(&mut mesh).len(), 1);
}

/// A mesh, and an address at which anybody can connect to it.
fn listening() -> (Mesh, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let mesh = Mesh::new(address.to_string(), b"key".to_vec(), Some(listener));
    (mesh, address)
}

/// A thousand silent connections took all descriptors of a host, and its processor.
#[test]
fn strangers_are_bounded_and_a_host_is_let_in() {
    let (mut mesh, address) = listening();
    let mut silent = Vec::new();
    let last = || TcpStream::connect(address).unwrap();
    for _ in 0..5 {
        silent.extend((0..50).map(|_| last()));
        while mesh.links.iter().filter(|l| l.open).count() < STRANGERS.of_address.min(silent.len())
        {
            mesh.serve(&[true, false]);
        }
        for _ in 0..50_usize.div_ceil(ACCEPTED_MAX) {
            mesh.serve(&[true, false]);
        }
        assert!(mesh.links.len() <= STRANGERS.of_address);
    }
    let mut other = Mesh::new("127.0.0.1:1".to_owned(), b"key".to_vec(), None);
    other.prepare(&mesh.own);
    while !mesh.links.iter().any(Link::is_known) {
        let all = vec![true; mesh.interests().len()];
        mesh.serve(&all);
        let all = vec![true; other.interests().len()];
        other.serve(&all);
    }
    // Silent connections are closed in time, and the host stays connected.
    let late = mesh.deadline().unwrap() + STRANGER_MAX;
    mesh.end_waits(late);
    mesh.bury(&mut Vec::new());
    assert!(mesh.links.iter().all(Link::is_known) && mesh.links.len() == 1);
    assert_eq!(mesh.deadline(), None);
}

/// Another user's connections from the node of a host had that one closed before it was known.
#[test]
fn a_host_with_the_key_stays_however_many_others_come() {
    let (mut mesh, address) = listening();
    let mut other = Mesh::new("127.0.0.1:1".to_owned(), b"key".to_vec(), None);
    other.prepare(&mesh.own);
    while !mesh.links.iter().any(Link::is_answered) {
        let all = vec![true; other.interests().len()];
        other.serve(&all);
        let all = vec![true; mesh.interests().len()];
        mesh.serve(&all);
    }
    let mut silent = Vec::new();
    for _ in 0..3 * STRANGERS.of_address {
        silent.push(TcpStream::connect(address).unwrap());
        mesh.serve(&[true, false]);
    }
    assert!(mesh.links.len() >= STRANGERS.of_address);
    assert!(mesh.links.iter().any(Link::is_answered));
    while !mesh.links.iter().any(Link::is_known) {
        let all = vec![true; other.interests().len()];
        other.serve(&all);
        let all = vec![true; mesh.interests().len()];
        mesh.serve(&all);
    }
}

/// The listener says that there are connections as long as none can be accepted.
#[test]
fn without_descriptors_a_listener_is_left_alone_for_a_while() {
    let (mut mesh, address) = listening();
    let now = Instant::now();
    mesh.accepted(Err(io::Error::from_raw_os_error(libc::EMFILE)), now);
    assert_eq!(mesh.interests()[0].0, -1);
    let until = mesh.deadline().unwrap();
    assert!(until > now && until <= now + ACCEPT_PAUSE);
    mesh.end_waits(until);
    assert_ne!(mesh.interests()[0].0, -1);
    let _other = TcpStream::connect(address).unwrap();
    while mesh.links.is_empty() {
        mesh.serve(&[true, false]);
    }
}

/// Two hosts, and the numbers of the messages that each received from the other.
struct Pair {
    ends: [Mesh; 2],
    got: [Vec<usize>; 2],
    sent: usize,
}

impl Pair {
    /// Two hosts with UCX; `None` if the machine has no UCX.
    fn new() -> Option<Pair> {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut ends = listeners.map(|listener| {
            listener.set_nonblocking(true).unwrap();
            let own = listener.local_addr().unwrap().to_string();
            Mesh::new(own, b"key".to_vec(), Some(listener))
        });
        for end in &mut ends {
            match Ucx::open() {
                Ok(ucx) => end.use_ucx(Ok(ucx)),
                Err(e) => {
                    println!("SKIPPED: {e}");
                    return None;
                }
            }
        }
        Some(Pair {
            ends,
            got: [Vec::new(), Vec::new()],
            sent: 0,
        })
    }

    /// Connects one host to the other. If both connected, there would be two connections.
    fn meet(&mut self) {
        let to = self.ends[1].own.clone();
        self.ends[0].prepare(&to);
        self.serve_until(|p| p.ends.iter().all(|e| e.links.iter().any(Link::is_known)));
    }

    fn has_way(&self, from: usize) -> bool {
        let mut links = self.ends[from].links.iter();
        links.any(|l| matches!(l.lane.way, LaneState::Open(..)))
    }

    /// Each host sends `count` messages of `bytes` bytes to the other, each with its number.
    fn send(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            let mut text = vec![0; bytes];
            text[..8].copy_from_slice(&self.sent.to_le_bytes());
            let message = Wire::Pmi(text.into());
            for from in [0, 1] {
                let to = self.ends[1 - from].own.clone();
                self.ends[from].send(&to, &message);
            }
            self.sent += 1;
        }
    }

    /// Serves both hosts as real hosts do.
    fn serve_until(&mut self, done: impl Fn(&Pair) -> bool) {
        while !done(self) {
            let interests = [0, 1].map(|i| self.ends[i].interests());
            let mut fds: Vec<libc::pollfd> = interests
                .iter()
                .flatten()
                .map(|&(fd, events)| libc::pollfd {
                    fd,
                    events,
                    revents: 0,
                })
                .collect();
            let eager = [0, 1].map(|i| self.ends[i].is_eager()) != [false, false];
            let patience = if eager { 0 } else { 60_000 };
            crate::ends::poll(&mut fds, patience).unwrap();
            let seen: Vec<bool> = fds.iter().map(|fd| fd.revents != 0).collect();
            assert!(eager || seen.contains(&true), "nothing comes");
            let (first, second) = seen.split_at(interests[0].len());
            for (at, seen) in [first, second].into_iter().enumerate() {
                for event in self.ends[at].serve(seen) {
                    let MeshEvent::Message(_, Wire::Pmi(text)) = event else {
                        panic!("{event:?}");
                    };
                    let number = text.first_chunk().map(|n| usize::from_le_bytes(*n));
                    self.got[at].push(number.unwrap());
                }
            }
        }
    }

    /// Waits until every message has arrived, once and in order.
    fn settle(&mut self) {
        self.serve_until(|p| p.got.iter().all(|got| got.len() >= p.sent));
        let all: Vec<usize> = (0..self.sent).collect();
        assert_eq!(self.got, [all.clone(), all]);
    }

    /// Breaks every connection of UCX: the process has no other sockets except its own.
    fn break_ucx(&self) {
        let own: Vec<i32> = self
            .ends
            .iter()
            .flat_map(|end| end.interests())
            .map(|i| i.0)
            .collect();
        let mut broken = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let fd = entry.unwrap().file_name().to_str().unwrap().parse();
            let fd = fd.unwrap();
            // A descriptor that is not a socket cannot be shut down.
            broken += u32::from(!own.contains(&fd) && shutdown(fd, Shutdown::Both).is_ok());
        }
        assert!(broken > 0);
    }
}

/// Runs a test in its own process; returns whether this process is that one.
fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        let choice = UcxChoice {
            devices: Some("lo".to_owned()),
            transports: Some("tcp".to_owned()),
        };
        choice.set();
        return true;
    }
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([&format!("mesh::tests::{test}"), "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && text.contains("1 passed"),
        "{}: {text}",
        ran.status
    );
    false
}

#[test]
fn when_ucx_breaks_all_messages_come_by_the_connection() {
    if !is_alone("when_ucx_breaks_all_messages_come_by_the_connection") {
        return;
    }
    let Some(mut pair) = Pair::new() else {
        return;
    };
    pair.meet();
    pair.serve_until(|p| p.has_way(0) && p.has_way(1));
    pair.send(100, 1000);
    pair.settle();
    assert!(pair.has_way(0) && pair.has_way(1));
    // These messages are in flight, one of them in parts, when more follow.
    pair.send(10, 1000);
    pair.send(1, 3 << 20);
    pair.break_ucx();
    pair.send(50, 1000);
    pair.settle();
    pair.send(10, 8);
    pair.settle();
    for from in [0, 1] {
        pair.serve_until(|p| !p.has_way(from) && !p.ends[from].notes.is_empty());
        let other = &pair.ends[1 - from].own;
        let [note] = &pair.ends[from].notes[..] else {
            panic!("{:?}", pair.ends[from].notes);
        };
        assert!(note.starts_with(&format!("{other}: ")), "{note}");
    }
}

#[test]
fn a_host_that_ucx_does_not_reach_is_reached_by_the_connection() {
    if !is_alone("a_host_that_ucx_does_not_reach_is_reached_by_the_connection") {
        return;
    }
    let Some(mut pair) = Pair::new() else {
        return;
    };
    // The host offers a UCX address at which nothing listens any more.
    let gone = Ucx::open().unwrap().address().to_vec();
    pair.ends[1].offer = Some(Ok(gone));
    pair.meet();
    pair.serve_until(|p| !p.ends[0].notes.is_empty());
    assert!(!pair.has_way(0));
    assert_eq!(pair.ends[0].notes.len(), 1);
    pair.send(100, 1000);
    pair.settle();
    assert!(pair.ends[1].notes.is_empty());
    // The end with the lower address connects first; the other end does once that has reached it.
    let is_second = pair.ends[1].own > pair.ends[0].own;
    assert!(!is_second || !pair.has_way(1));
}

#[test]
fn of_two_hosts_one_connects_by_ucx_first() {
    if !is_alone("of_two_hosts_one_connects_by_ucx_first") {
        return;
    }
    let Some(mut pair) = Pair::new() else {
        return;
    };
    pair.meet();
    let way = |p: &Pair, at: usize| {
        let link = p.ends[at].links.iter().find(|l| l.is_known());
        std::mem::discriminant(&link.unwrap().lane.way)
    };
    let (none, offered) = (
        std::mem::discriminant(&LaneState::None),
        std::mem::discriminant(&LaneState::Offered(Vec::new())),
    );
    let second = usize::from(pair.ends[1].own > pair.ends[0].own);
    pair.serve_until(|p| way(p, second) != none);
    assert_eq!(way(&pair, second), offered);
    pair.serve_until(|p| p.has_way(0) && p.has_way(1));
}
