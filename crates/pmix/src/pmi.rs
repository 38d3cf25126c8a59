//! PMI-1 and PMI-2 for MPICH and its relatives, alone or beside PMIx. Each task inherits a socket.
//! The keys that tasks put are exchanged among the step's hosts at each barrier, over the same
//! connections and in the same logarithmic number of rounds as PMIx data. PMI needs no library, and
//! costs next to nothing if no task uses it.

pub(crate) mod protocol;
pub(crate) mod server;
mod spawn;

use crate::control::{Environments, FromHost, ToHost};
use crate::ends::{Control, Endpoints, poll, wait_ms};
use crate::exchange::Exchange;
use crate::mesh::{Mesh, MeshEvent};
use crate::srun::{Runs, SpawnRequest};
use crate::wire::Wire;
use crate::{descriptors, status};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};
use server::{Action, Name, PmiServer, Shape};
use sha2::{Digest, Sha256};
use spawn::{Origin, SpawnCommand};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Descriptor number of the PMI socket in a task: one that scripts do not use for their own files.
pub const PMI_FD: i32 = 61;

/// Variable that tells Intel MPI how it learns which ranks share a node.
const INTEL_NODES: &str = "I_MPI_NODEMAP_ALGORITHM";

/// The setup of the PMI part of a host.
#[derive(Clone, Debug)]
pub struct PmiSetup {
    /// Name of the key table: unique in the cluster.
    pub name: String,
    /// Ranks of each node of the step, by local number.
    pub tasks: Vec<Vec<u32>>,
    /// Position of this node in `ranks`.
    pub position: usize,
    /// Slots of the allocation.
    pub universe: u32,
    /// The secret key shared by the hosts of this job.
    pub key: Vec<u8>,
    /// The job's number.
    pub job: u64,
    /// A directory of the user, for files about spawned steps.
    pub dir: String,
    /// Variables of srun's environment, as `NAME=value`, for spawned steps.
    pub env: Vec<(String, String)>,
    /// Working directory of spawned steps that name none.
    pub work_dir: String,
}

/// Host to host.
#[derive(Clone, Debug, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) enum PmiWire {
    /// A round of a barrier.
    #[n(0)]
    Round {
        /// The barrier's sequence number.
        #[n(0)]
        number: u64,
        /// Its round.
        #[n(1)]
        round: u32,
        /// Worst status that is known.
        #[n(2)]
        status: i32,
        /// Keys that nodes have put.
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

impl Message for PmiWire {}

/// Serves until the step daemon ends the host or disconnects.
///
/// # Errors
/// Waiting for events failed.
pub fn run(setup: PmiSetup, ends: Endpoints, sockets: Vec<UnixStream>) -> io::Result<()> {
    descriptors::raise_limit();
    let mut control = Control::new(ends.control)?;
    let mesh = Mesh::listening(ends.listener, &setup.key)?;
    serve_alone(setup, sockets, mesh, &mut control)
}

/// Serves over existing connections.
pub(crate) fn serve_alone(
    setup: PmiSetup,
    sockets: Vec<UnixStream>,
    mut mesh: Mesh,
    control: &mut Control,
) -> io::Result<()> {
    let mut pmi = Pmi::new(setup, mesh.own.clone(), sockets)?;
    control.send(&FromHost::Ready(pmi.environments()));
    // Spawned steps may outlive the tasks that spawned them.
    while control.open && !(pmi.stopping && pmi.is_idle()) {
        pmi.wait(&mut mesh, control)?;
    }
    mesh.leave();
    Ok(())
}

/// A table name that no step of another cluster on the machine uses, because MPICH names files in
/// /dev/shm after it.
fn unique(name: &str, key: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(name)
        .chain_update(key)
        .finalize();
    let digits: Vec<String> = digest[..6].iter().map(|b| format!("{b:02x}")).collect();
    format!("{name}.{}", digits.concat())
}

/// The PMI part of a host.
pub(crate) struct Pmi {
    setup: PmiSetup,
    server: PmiServer,
    /// Sockets by local number of the task; `None` once closed.
    sockets: Vec<Option<UnixStream>>,
    /// Addresses at which the step's hosts listen.
    hosts: Vec<String>,
    /// Whether `hosts` is known.
    met: bool,
    barriers: BTreeMap<u64, Exchange>,
    /// Number of barriers that this node has entered.
    entered: u64,
    /// Actions that wait until the other hosts are known.
    waiting: Vec<Action>,
    stopping: bool,
    /// Steps that tasks of this node spawned, and the task that waits for each of them.
    runs: Runs,
    spawning: BTreeMap<u64, usize>,
    askers: BTreeMap<u64, u32>,
    next_ticket: u64,
}

impl Pmi {
    pub(crate) fn new(
        mut setup: PmiSetup,
        own: String,
        sockets: Vec<UnixStream>,
    ) -> io::Result<Pmi> {
        setup.name = unique(&setup.name, &setup.key);
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let shape = Shape {
            name: setup.name.clone(),
            tasks: setup.tasks.clone(),
            position: setup.position,
            universe: setup.universe,
            origin: Origin::read(&setup.env),
        };
        Ok(Pmi {
            server: PmiServer::new(shape),
            sockets: sockets.into_iter().map(Some).collect(),
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
        })
    }

    /// Variables for the environment of tasks.
    pub(crate) fn environments(&self) -> Environments {
        let setup = &self.setup;
        let size: usize = setup.tasks.iter().map(Vec::len).sum();
        let spawned = Origin::read(&setup.env).is_some();
        let variable =
            |name: &str, value: String| ByteVec::from(format!("{name}={value}").into_bytes());
        let mut shared = vec![
            variable("PMI_FD", PMI_FD.to_string()),
            variable("PMI_JOBID", setup.name.clone()),
            variable("PMI_SIZE", size.to_string()),
            variable("PMI_SPAWNED", u32::from(spawned).to_string()),
        ];
        // Without this value MPI reads SLURM_TASKS_PER_NODE and takes "3,1" for two and two; ranks
        // then wait for each other for ever.
        if !setup.env.iter().any(|(name, _)| name == INTEL_NODES) {
            shared.push(variable(INTEL_NODES, "pmi_process_mapping".to_owned()));
        }
        let here = setup.tasks.get(setup.position).cloned().unwrap_or_default();
        let own = here
            .into_iter()
            .map(|rank| (rank, vec![variable("PMI_RANK", rank.to_string())]));
        Environments {
            shared,
            own: own.collect(),
        }
    }

    /// Whether no step that a task spawned is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.runs.is_empty()
    }

    /// Descriptors and events to poll.
    pub(crate) fn interests(&self) -> Vec<(i32, i16)> {
        let tasks = self.sockets.iter().zip(&self.server.clients);
        let tasks = tasks.map(|(socket, client)| {
            let writes = if client.talk.output.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            let fd = socket.as_ref().map_or(-1, |s| s.as_raw_fd());
            (fd, libc::POLLIN | writes)
        });
        let runs = self.runs.interests();
        let runs = runs.into_iter().map(|fd| (fd, libc::POLLIN));
        tasks.chain(runs).collect()
    }

    /// Serves the descriptors that poll reported, in the order of [`Self::interests`].
    pub(crate) fn serve(&mut self, seen: &[bool], mesh: &mut Mesh, control: &mut Control) {
        let (tasks, runs) = seen.split_at(self.sockets.len());
        for local in (0..tasks.len()).filter(|local| tasks[*local]) {
            self.read(local, mesh, control);
        }
        let mut outbox = Vec::new();
        for (ticket, well) in self.runs.serve(runs, &mut outbox) {
            // An srun that ended before its tasks started has written the reason to its standard
            // error. If it failed later, the spawning task may still wait for an answer.
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
    }

    /// Waits for events and serves them, if no other server runs in this process.
    fn wait(&mut self, mesh: &mut Mesh, control: &mut Control) -> io::Result<()> {
        let entry = |(fd, events): (i32, i16)| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds = vec![entry((control.stream.as_raw_fd(), libc::POLLIN))];
        fds.extend(self.interests().into_iter().map(entry));
        let links = fds.len();
        fds.extend(mesh.interests().into_iter().map(entry));
        let eager = mesh.is_eager();
        poll(&mut fds, if eager { 0 } else { wait_ms(mesh.deadline()) })?;
        let seen: Vec<bool> = fds.iter().map(|f| f.revents != 0).collect();
        if seen[0] {
            for message in control.read() {
                match message {
                    ToHost::Peers(hosts) => self.on_peers(hosts, mesh, control),
                    // The step daemon decides what a lost task means for the other tasks.
                    ToHost::TaskFailed { .. } => {}
                    ToHost::Stop => self.stop(),
                }
            }
        }
        self.serve(&seen[1..links], mesh, control);
        for event in mesh.serve(&seen[links..]) {
            match event {
                MeshEvent::Message(from, Wire::Pmi(bytes)) => self.message(&from, &bytes, mesh),
                MeshEvent::Message(..) => {}
                // A lost node ends the step, which srun notices too. A node whose tasks have all
                // finalized is not needed.
                MeshEvent::Gone(host, orderly) => {
                    if !orderly && let Some(at) = self.hosts.iter().position(|h| *h == host) {
                        let at = u32::try_from(at).unwrap_or(u32::MAX);
                        control.send(&FromHost::PeerLost(at));
                    }
                }
            }
        }
        self.write();
        Ok(())
    }

    /// The addresses of the step's hosts are known.
    pub(crate) fn on_peers(&mut self, hosts: Vec<String>, mesh: &mut Mesh, control: &mut Control) {
        if hosts.len() == self.hosts.len() && self.hosts.len() > 1 {
            self.hosts = hosts;
        }
        self.met = true;
        let origin = Origin::read(&self.setup.env).filter(|_| self.setup.position == 0);
        if let Some(origin) = origin {
            let up = PmiWire::Up(origin.ticket, self.setup.name.clone());
            send(mesh, &origin.host, &up);
        }
        for order in std::mem::take(&mut self.waiting) {
            self.carry_out(order, mesh, control);
        }
    }

    /// The tasks have ended.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    fn read(&mut self, local: usize, mesh: &mut Mesh, control: &mut Control) {
        let mut chunk = [0; 16 << 10];
        loop {
            let Some(socket) = &mut self.sockets[local] else {
                return;
            };
            match socket.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    for order in self.server.on_bytes(local, &chunk[..n]) {
                        self.carry_out(order, mesh, control);
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

    /// Sends queued messages to tasks.
    pub(crate) fn write(&mut self) {
        for (socket, client) in self.sockets.iter_mut().zip(&mut self.server.clients) {
            write_to(socket, &mut client.talk.output);
        }
    }

    fn carry_out(&mut self, order: Action, mesh: &mut Mesh, control: &mut Control) {
        match order {
            Action::Connected(rank) => control.send(&FromHost::Connected(rank)),
            Action::Finalized(rank) => control.send(&FromHost::Finalized(rank)),
            Action::Abort(rank, status, text) => {
                control.send(&FromHost::Abort { rank, status, text });
            }
            Action::Spawn(local, asked) => self.spawn(local, &asked, mesh, control),
            // The addresses of the other hosts are not known yet.
            order if !self.met => self.waiting.push(order),
            Action::Fence(part) => {
                let number = self.entered;
                self.entered += 1;
                let (members, position) = (self.hosts.len(), self.setup.position);
                let exchange = self.barriers.entry(number).or_default();
                exchange.enter(members, position, status::SUCCESS, part);
                self.advance(number, mesh);
            }
            Action::Ask(name) => {
                send(mesh, &self.hosts[0], &PmiWire::Ask(name));
            }
        }
    }

    fn spawn(&mut self, local: usize, asked: &SpawnCommand, mesh: &Mesh, control: &mut Control) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let request = SpawnRequest {
            kind: "pmi2",
            job: self.setup.job,
            env: &self.setup.env,
            dir: &self.setup.dir,
            work_dir: Some(&self.setup.work_dir),
            ticket,
            variables: &asked.variables(&mesh.own, ticket),
        };
        self.spawning.insert(ticket, local);
        let here = self.setup.tasks.get(self.setup.position);
        self.askers
            .extend(here.and_then(|t| Some((ticket, *t.get(local)?))));
        match request.start(&asked.apps) {
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

    /// Handles a message of another host.
    pub(crate) fn message(&mut self, from: &str, bytes: &[u8], mesh: &mut Mesh) {
        match frame::decode(bytes) {
            Ok(PmiWire::Round {
                number,
                round,
                status,
                parts,
            }) => {
                let exchange = self.barriers.entry(number).or_default();
                exchange.receive(round, status, parts);
                self.advance(number, mesh);
            }
            Ok(PmiWire::Ask(name)) => {
                let port = self.server.keep(&name);
                send(mesh, from, &PmiWire::Answer(name, port));
            }
            Ok(PmiWire::Up(ticket, name)) => self.spawned(ticket, Some(&name)),
            Ok(PmiWire::Answer(name, port)) => self.server.answered(&name, port.as_deref()),
            Err(e) => eprintln!("invalid message from the PMI host at {from}: {e}"),
        }
    }

    /// Sends the messages of a barrier; releases the tasks when all nodes have entered it.
    fn advance(&mut self, number: u64, mesh: &mut Mesh) {
        let Some(exchange) = self.barriers.get_mut(&number) else {
            return;
        };
        let due = exchange.advance();
        let result = exchange.result();
        for due in due {
            let (round, status, parts) = (due.round, due.status, due.parts);
            let message = PmiWire::Round {
                number,
                round,
                status,
                parts,
            };
            send(mesh, &self.hosts[due.to], &message);
        }
        if let Some((_, parts)) = result {
            self.barriers.remove(&number);
            self.server.fenced(&parts);
        }
    }
}

fn send(mesh: &mut Mesh, host: &str, message: &PmiWire) {
    let bytes = minicbor::to_vec(message).expect("writing to memory cannot fail");
    mesh.send(host, &Wire::Pmi(bytes.into()));
}

fn write_to(to: &mut Option<UnixStream>, output: &mut Vec<u8>) {
    while !output.is_empty() {
        let Some(socket) = to else {
            return output.clear();
        };
        match socket.write(output) {
            Ok(n) if n > 0 => {
                output.drain(..n);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            _ => *to = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_fixtures::{Root, check};

    /// Hosts of a step may be of neighbouring versions.
    #[test]
    fn messages_between_hosts_are_read() {
        let message = |bytes: &[u8]| {
            let message: PmiWire = frame::decode(bytes).map_err(|error| error.to_string())?;
            Ok(frame::encode(&message)[4..].to_vec())
        };
        let roots = [Root::new("pmix::pmi::PmiWire", message)];
        check(
            env!("CARGO_MANIFEST_DIR"),
            "tests/fixtures/pmi.txt",
            &roots,
            "",
        );
    }
}
