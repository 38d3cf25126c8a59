//! PMI-1 and PMI-2 for MPICH and its relatives: a host like that for PMIx, without a library. Each task inherits a
//! socket; what tasks put is exchanged among the step's hosts at each barrier, over the same connections and in the
//! same logarithm of rounds.

mod protocol;
mod server;
mod spawn;

use crate::control::{Environments, FromHost, ToHost};
use crate::exchange::Exchange;
use crate::host::{Control, Endpoints, poll};
use crate::mesh::{Happening, Mesh};
use crate::srun::{Runs, Wish};
use crate::status;
use crate::wire::Wire;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use server::{Name, Order, Server, Shape};
use sha2::{Digest, Sha256};
use spawn::{Asked, Origin};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Number of the descriptor at which a task finds its socket.
pub const PMI_FD: i32 = 3;

/// What a host serves.
#[derive(Clone, Debug)]
pub struct PmiSetup {
    /// Name of the table of keys: unique in the cluster.
    pub name: String,
    /// Ranks of each node of the step, by local number.
    pub tasks: Vec<Vec<u32>>,
    /// This node among them.
    pub position: usize,
    /// Slots of the allocation.
    pub universe: u32,
    /// What only hosts of this job know.
    pub key: Vec<u8>,
    /// The job's number.
    pub job: u64,
    /// A directory of the user's, for files about spawned steps.
    pub dir: String,
    /// `NAME=value` of srun's environment, for spawned steps.
    pub env: Vec<(String, String)>,
    /// Where they run if they do not say.
    pub work_dir: String,
}

/// Host to host.
#[derive(Clone, Debug, Encode, Decode)]
enum PmiWire {
    /// A round of a barrier.
    #[n(0)]
    Round {
        /// The how-manieth barrier.
        #[n(0)]
        number: u64,
        /// Its round.
        #[n(1)]
        round: u32,
        /// Worst status that is known.
        #[n(2)]
        status: i32,
        /// What nodes have put.
        #[n(3)]
        parts: Vec<ByteVec>,
    },
    /// To the keeper of names.
    #[n(1)]
    Ask(#[n(0)] Name),
    /// Its answer.
    #[n(2)]
    Answer(#[n(0)] Name, #[n(1)] Option<String>),
    /// To the host of the task that asked for this step, with the number of its request: it is up, and this is its name.
    #[n(3)]
    Up(#[n(0)] u64, #[n(1)] String),
}

/// Serves until the step daemon says that it is over, or is gone.
///
/// # Errors
/// The loop cannot wait.
pub fn run(mut setup: PmiSetup, ends: Endpoints, sockets: Vec<UnixStream>) -> io::Result<()> {
    setup.name = unique(&setup.name, &setup.key);
    let mut control = Control::new(ends.control)?;
    let (listener, address) = ends.listener.unzip();
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let own = address.unwrap_or_else(|| "this host".to_owned());
    let mesh = Mesh::new(own.clone(), setup.key.clone(), listener);
    control.send(&FromHost::Ready(environments(&setup)));
    let mut host = Host {
        server: Server::new(Shape {
            name: setup.name.clone(),
            tasks: setup.tasks.clone(),
            position: setup.position,
            universe: setup.universe,
            origin: Origin::read(&setup.env),
        }),
        sockets: sockets.into_iter().map(Some).collect(),
        mesh,
        hosts: vec![own; setup.tasks.len()],
        met: setup.tasks.len() <= 1,
        barriers: BTreeMap::new(),
        entered: 0,
        waiting: Vec::new(),
        stopping: false,
        runs: Runs::default(),
        spawning: BTreeMap::new(),
        askers: BTreeMap::new(),
        next_ticket: 0,
        setup,
    };
    host.serve(&mut control)
}

/// A name that steps of other clusters on the machine do not have: MPICH names files in /dev/shm by it.
fn unique(name: &str, key: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(name)
        .chain_update(key)
        .finalize();
    let digits: Vec<String> = digest[..6].iter().map(|b| format!("{b:02x}")).collect();
    format!("{name}.{}", digits.concat())
}

/// What tasks find in their environment.
fn environments(setup: &PmiSetup) -> Environments {
    let size: usize = setup.tasks.iter().map(Vec::len).sum();
    let spawned = Origin::read(&setup.env).is_some();
    let variable =
        |name: &str, value: String| ByteVec::from(format!("{name}={value}").into_bytes());
    let shared = vec![
        variable("PMI_FD", PMI_FD.to_string()),
        variable("PMI_JOBID", setup.name.clone()),
        variable("PMI_SIZE", size.to_string()),
        variable("PMI_SPAWNED", u32::from(spawned).to_string()),
    ];
    let here = setup.tasks.get(setup.position).cloned().unwrap_or_default();
    let own = here
        .into_iter()
        .map(|rank| (rank, vec![variable("PMI_RANK", rank.to_string())]));
    Environments {
        shared,
        own: own.collect(),
    }
}

struct Host {
    setup: PmiSetup,
    server: Server,
    /// By local number of the task; closed ones are gone.
    sockets: Vec<Option<UnixStream>>,
    mesh: Mesh,
    /// Where the step's hosts listen.
    hosts: Vec<String>,
    /// That is known.
    met: bool,
    barriers: BTreeMap<u64, Exchange>,
    /// Barriers that this node has come to.
    entered: u64,
    /// What waits until the other hosts are known.
    waiting: Vec<Order>,
    stopping: bool,
    /// Steps that tasks of this node have asked for, and which task waits for which.
    runs: Runs,
    spawning: BTreeMap<u64, usize>,
    askers: BTreeMap<u64, u32>,
    next_ticket: u64,
}

impl Host {
    fn serve(&mut self, control: &mut Control) -> io::Result<()> {
        // Spawned steps may outlive the tasks that asked for them.
        while control.open && !(self.stopping && self.runs.is_empty()) {
            self.wait(control)?;
        }
        self.mesh.leave();
        Ok(())
    }

    fn wait(&mut self, control: &mut Control) -> io::Result<()> {
        let entry = |(fd, events): (i32, i16)| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds = vec![entry((control.stream.as_raw_fd(), libc::POLLIN))];
        for (socket, client) in self.sockets.iter().zip(&self.server.clients) {
            let writes = if client.talk.output.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            let fd = socket.as_ref().map_or(-1, |s| s.as_raw_fd());
            fds.push(entry((fd, libc::POLLIN | writes)));
        }
        let spawned = fds.len();
        fds.extend(
            self.runs
                .interests()
                .iter()
                .map(|fd| entry((*fd, libc::POLLIN))),
        );
        let links = fds.len();
        fds.extend(self.mesh.interests().into_iter().map(entry));
        poll(&mut fds, if self.mesh.is_eager() { 0 } else { -1 })?;
        let seen: Vec<bool> = fds.iter().map(|f| f.revents != 0).collect();
        if seen[0] {
            for message in control.read() {
                self.hear(message, control);
            }
        }
        for local in (0..self.sockets.len()).filter(|local| seen[1 + local]) {
            self.read(local, control);
        }
        let mut outbox = Vec::new();
        for (ticket, well) in self.runs.serve(&seen[spawned..links], &mut outbox) {
            // One that ended before its tasks were there has said why on its standard error. Of one that ended badly
            // later, whoever asked for it may still wait for a word.
            let asker = self.askers.remove(&ticket);
            if self.spawning.contains_key(&ticket) {
                self.spawned(ticket, None);
            } else if let Some(rank) = asker.filter(|_| !well && !self.stopping) {
                outbox.push(FromHost::Abort {
                    rank,
                    status: 1,
                    text: "the processes that it spawned have failed".to_owned(),
                });
            }
        }
        outbox.iter().for_each(|message| control.send(message));
        for happening in self.mesh.serve(&seen[links..]) {
            match happening {
                Happening::Message(from, Wire::Pmi(bytes)) => self.message(&from, &bytes),
                Happening::Message(..) => {}
                Happening::Gone(host, orderly) => self.gone(&host, orderly, control),
            }
        }
        (0..self.sockets.len()).for_each(|local| self.write(local));
        Ok(())
    }

    fn hear(&mut self, message: ToHost, control: &mut Control) {
        match message {
            ToHost::Peers(hosts) => {
                if hosts.len() == self.hosts.len() {
                    self.hosts = hosts;
                }
                self.met = true;
                if let Some(origin) =
                    Origin::read(&self.setup.env).filter(|_| self.setup.position == 0)
                {
                    let up = PmiWire::Up(origin.ticket, self.setup.name.clone());
                    self.send(&origin.host, &up);
                }
                for order in std::mem::take(&mut self.waiting) {
                    self.carry_out(order, control);
                }
            }
            // The step daemon decides what a lost task means for the others.
            ToHost::TaskFailed { .. } => {}
            ToHost::Stop => self.stopping = true,
        }
    }

    fn read(&mut self, local: usize, control: &mut Control) {
        let mut chunk = [0; 16 << 10];
        loop {
            let Some(socket) = &mut self.sockets[local] else {
                return;
            };
            match socket.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    for order in self.server.heard(local, &chunk[..n]) {
                        self.carry_out(order, control);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {
                    self.sockets[local] = None;
                    return;
                }
            }
        }
    }

    fn write(&mut self, local: usize) {
        let output = &mut self.server.clients[local].talk.output;
        while !output.is_empty() {
            let Some(socket) = &mut self.sockets[local] else {
                return output.clear();
            };
            match socket.write(output) {
                Ok(n) if n > 0 => {
                    output.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.sockets[local] = None,
            }
        }
    }

    fn carry_out(&mut self, order: Order, control: &mut Control) {
        match order {
            Order::Connected(rank) => control.send(&FromHost::Connected(rank)),
            Order::Finalized(rank) => control.send(&FromHost::Finalized(rank)),
            Order::Abort(rank, status, text) => {
                control.send(&FromHost::Abort { rank, status, text });
            }
            Order::Spawn(local, asked) => self.spawn(local, &asked, control),
            // Where the other hosts are is not known yet.
            order if !self.met => self.waiting.push(order),
            Order::Fence(part) => {
                let number = self.entered;
                self.entered += 1;
                let (members, position) = (self.hosts.len(), self.setup.position);
                let exchange = self.barriers.entry(number).or_default();
                exchange.enter(members, position, status::SUCCESS, part);
                self.advance(number);
            }
            Order::Ask(name) => {
                let keeper = self.hosts[0].clone();
                self.send(&keeper, &PmiWire::Ask(name));
            }
        }
    }

    fn spawn(&mut self, local: usize, asked: &Asked, control: &mut Control) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let wish = Wish {
            kind: "pmi2",
            job: self.setup.job,
            env: &self.setup.env,
            dir: &self.setup.dir,
            work_dir: Some(&self.setup.work_dir),
            ticket,
            variables: &asked.variables(&self.mesh.own, ticket),
        };
        self.spawning.insert(ticket, local);
        let here = self.setup.tasks.get(self.setup.position);
        self.askers
            .extend(here.and_then(|t| Some((ticket, *t.get(local)?))));
        match wish.start(&asked.apps) {
            Ok(run) => self.runs.push(run),
            Err(e) => {
                let line =
                    format!("slurmstepd: error: mpi/pmi2: cannot start srun for a spawn: {e}");
                control.send(&FromHost::Message(line));
                self.spawned(ticket, None);
            }
        }
    }

    fn spawned(&mut self, ticket: u64, name: Option<&str>) {
        if let Some(local) = self.spawning.remove(&ticket) {
            self.server.spawned(local, name);
        }
    }

    fn send(&mut self, host: &str, message: &PmiWire) {
        let bytes = minicbor::to_vec(message).expect("writing to memory cannot fail");
        self.mesh.send(host, &Wire::Pmi(bytes.into()));
    }

    fn message(&mut self, from: &str, bytes: &[u8]) {
        match minicbor::decode(bytes) {
            Ok(PmiWire::Round {
                number,
                round,
                status,
                parts,
            }) => {
                let exchange = self.barriers.entry(number).or_default();
                exchange.receive(round, status, parts);
                self.advance(number);
            }
            Ok(PmiWire::Ask(name)) => {
                let port = self.server.keep(&name);
                self.send(from, &PmiWire::Answer(name, port));
            }
            Ok(PmiWire::Up(ticket, name)) => self.spawned(ticket, Some(&name)),
            Ok(PmiWire::Answer(name, port)) => self.server.answered(&name, port.as_deref()),
            Err(e) => eprintln!("the PMI host at {from} is not understood: {e}"),
        }
    }

    /// Sends what a barrier needs; lets the tasks go when all nodes have come.
    fn advance(&mut self, number: u64) {
        let Some(exchange) = self.barriers.get_mut(&number) else {
            return;
        };
        let due = exchange.advance();
        let result = exchange.result();
        for due in due {
            let host = self.hosts[due.to].clone();
            let (round, status, parts) = (due.round, due.status, due.parts);
            self.send(
                &host,
                &PmiWire::Round {
                    number,
                    round,
                    status,
                    parts,
                },
            );
        }
        if let Some((_, parts)) = result {
            self.barriers.remove(&number);
            self.server.fenced(&parts);
        }
    }

    /// A node that is lost ends the step; srun sees it too. One whose tasks have all left is not missed.
    fn gone(&mut self, host: &str, orderly: bool, control: &mut Control) {
        if !orderly && let Some(at) = self.hosts.iter().position(|h| h == host) {
            control.send(&FromHost::PeerLost(u32::try_from(at).unwrap_or(u32::MAX)));
        }
    }
}
