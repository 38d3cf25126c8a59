//! Measures how the time of a fence grows with the number of hosts. Many hosts run in one process,
//! each a thread with its own connections over the same kind of sockets as in production. There are
//! no tasks and no libpmix.

use crate::ends::poll;
use crate::exchange::Exchange;
use crate::mesh::{Mesh, MeshEvent};
use crate::wire::Wire;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Measured times of a fence.
#[derive(Clone, Debug)]
pub struct FenceFigures {
    /// Number of rounds, which run one after the other.
    pub rounds: u32,
    /// Number of messages of all hosts together.
    pub messages: u64,
    /// Average time of one fence. The first fence, which also connects the hosts, is not counted.
    pub time: Duration,
}

/// Runs `times` fences among `hosts` hosts, each of which contributes `bytes` bytes.
///
/// # Errors
/// A host cannot listen or wait, or received no data from another host.
pub fn rehearse_fence(hosts: usize, bytes: usize, times: u32) -> io::Result<FenceFigures> {
    let listeners: Vec<TcpListener> = (0..hosts)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<io::Result<_>>()?;
    let names: Vec<String> = listeners
        .iter()
        .map(|l| Ok(l.local_addr()?.to_string()))
        .collect::<io::Result<_>>()?;
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(index, listener)| {
                let names = &names;
                let builder = std::thread::Builder::new().stack_size(512 << 10);
                builder.spawn_scoped(scope, move || meet(index, names, listener, bytes, times))
            })
            .collect::<io::Result<_>>()?;
        let threads: Vec<std::thread::ScopedJoinHandle<'_, io::Result<FenceFigures>>> = threads;
        threads
            .into_iter()
            .map(|t| {
                t.join()
                    .unwrap_or_else(|_| Err(io::Error::other("a host has failed")))
            })
            .collect::<io::Result<Vec<FenceFigures>>>()
    })?;
    Ok(FenceFigures {
        rounds: all.iter().map(|f| f.rounds).max().unwrap_or(0),
        messages: all.iter().map(|f| f.messages).sum(),
        time: all.iter().map(|f| f.time).max().unwrap_or_default(),
    })
}

/// The part of one host.
fn meet(
    index: usize,
    names: &[String],
    listener: TcpListener,
    bytes: usize,
    times: u32,
) -> io::Result<FenceFigures> {
    listener.set_nonblocking(true)?;
    let mut mesh = Mesh::new(names[index].clone(), b"rehearsal".to_vec(), Some(listener));
    let mut runs: BTreeMap<u64, Exchange> = BTreeMap::new();
    let (mut messages, mut rounds) = (0, 0);
    let mut from = Instant::now();
    for number in 0..=u64::from(times) {
        let run = runs.entry(number).or_default();
        run.enter(names.len(), index, 0, vec![7; bytes]);
        loop {
            let run = runs.entry(number).or_default();
            for due in run.advance() {
                messages += u64::from(number > 0);
                let message = Wire::Exchange {
                    name: b"fence".to_vec().into(),
                    number,
                    round: due.round,
                    status: due.status,
                    parts: due.parts,
                };
                mesh.send(&names[due.to], &message);
            }
            if let Some((status, parts)) = run.result() {
                if status != 0 || parts.iter().any(|p| p.len() != bytes) {
                    return Err(io::Error::other(
                        "a fence did not return the data given to it",
                    ));
                }
                rounds = run.rounds();
                break;
            }
            listen(&mut mesh, &mut runs)?;
        }
        runs.remove(&number);
        if number == 0 {
            from = Instant::now();
        }
    }
    let time = from.elapsed() / times.max(1);
    mesh.leave();
    Ok(FenceFigures {
        rounds,
        messages: messages / u64::from(times.max(1)),
        time,
    })
}

/// Waits for messages and handles them.
fn listen(mesh: &mut Mesh, runs: &mut BTreeMap<u64, Exchange>) -> io::Result<()> {
    let mut fds: Vec<libc::pollfd> = mesh
        .interests()
        .into_iter()
        .map(|(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        })
        .collect();
    let patience = if mesh.is_eager() { 0 } else { 60_000 };
    poll(&mut fds, patience)?;
    let seen: Vec<bool> = fds.iter().map(|f| f.revents != 0).collect();
    if patience > 0 && !seen.contains(&true) {
        return Err(io::Error::other("a host has received nothing for a minute"));
    }
    for event in mesh.serve(&seen) {
        if let MeshEvent::Message(_, message) = event
            && let Wire::Exchange {
                number,
                round,
                status,
                parts,
                ..
            } = message
        {
            let run = runs.entry(number).or_default();
            run.receive(round, status, parts);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_messages_over_sockets_are_those_of_the_algorithm() {
        for (hosts, rounds) in [(1, 0), (2, 1), (5, 3), (64, 6)] {
            let figures = rehearse_fence(hosts, 100, 2).unwrap();
            assert_eq!(figures.rounds, rounds, "{hosts} hosts");
            assert_eq!(
                figures.messages,
                hosts as u64 * u64::from(rounds),
                "{hosts} hosts"
            );
        }
    }
}
