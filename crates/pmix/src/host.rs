//! The host process: one event loop over the step daemon, the upcalls of libpmix and the other
//! hosts.

mod names;
mod requests;
mod spawn;

use crate::collective::{Collectives, Contribution, Finish, Outcome, Outgoing, neighbours};
use crate::control::{Environments, FromHost, ToHost};
use crate::ends::{Control, Endpoints, poll, wait_ms};
use crate::info::{Infos, Value};
use crate::job::{self, Job, LocalRegistration, TaskOwner};
use crate::library::{Library, library};
use crate::mesh::{Mesh, MeshEvent};
use crate::pmi::{self, Pmi, PmiSetup};
use crate::server::{Server, TaskLocation};
use crate::sys::set_variable;
use crate::ucx::{Ucx, UcxChoice};
use crate::upcall::{Done, Modex, Upcall};
use crate::{ProcName, descriptors, status};
use minicbor::{Decode, Encode};
use names::Names;
use spawn::Spawns;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes that PMIx 3 and 4 reserve for the location of ranks in their store. They write to all of
/// it while the first task waits, and tasks must assume the same size.
const PLACES: &CStr = c"NS_META_SEG_SIZE";
/// Minimum: space for ten thousand ranks, so that spawned ranks fit too. Maximum: the library's own
/// default.
const PLACES_RANGE: (usize, usize) = (256 << 10, 4 << 20);
/// Twice the space of one rank.
const PLACE: usize = 48;

/// Variable that names the PMI library which ranks of Intel MPI load.
const INTEL: &str = "I_MPI_PMI_LIBRARY";

/// The setup of a host: its step and its node.
#[derive(Clone, Debug, Encode, Decode)]
pub struct HostSetup {
    /// The job's number.
    #[n(0)]
    pub job: u64,
    /// Name space of the step: unique in the cluster.
    #[n(1)]
    pub nspace: String,
    /// Names of the step's nodes.
    #[n(2)]
    pub names: Vec<String>,
    /// Ranks of each node, by local number.
    #[n(3)]
    pub tasks: Vec<Vec<u32>>,
    /// Position of this node in `nodes`.
    #[n(4)]
    pub position: usize,
    /// User and group of the tasks, and of this process.
    #[n(5)]
    pub owner: TaskOwner,
    /// A fresh directory owned by the user, for files of tasks and of the library. The step daemon
    /// removes it.
    #[n(6)]
    pub dir: String,
    /// The secret key shared by the hosts of this job.
    #[n(7)]
    pub key: Vec<u8>,
    /// Kernel numbers of the CPUs to which each task of this node is bound (`0-1,4`), by local
    /// number; empty if tasks are not bound.
    #[n(8)]
    pub cpus: Vec<String>,
    /// The node runs more tasks of the step than it has CPUs for them.
    #[n(9)]
    pub crowded: bool,
    /// Slots of the allocation, which is the size of the MPI universe.
    #[n(10)]
    pub universe: u32,
    /// The requested version (`pmix_v4`).
    #[n(11)]
    pub version: Option<u32>,
    /// Variables of srun's environment, as `NAME=value`, that concern spawned steps.
    #[n(12)]
    pub env: Vec<(String, String)>,
    /// Settings.
    #[n(13)]
    pub tuning: Tuning,
}

/// The part of mpi.conf that concerns a host.
#[derive(Clone, Debug, Encode, Decode)]
pub struct Tuning {
    /// `PMIxShareServerTopology`: tasks read the topology of the node from shared memory.
    #[n(0)]
    pub share_topology: bool,
    /// `PMIxDirectConnEarly`: hosts connect at the start instead of at the first message.
    #[n(1)]
    pub early: bool,
    /// `PMIxTimeout`: how long another host may take to answer.
    #[n(2)]
    pub timeout: Duration,
    /// `PMIxDirectConnUCX`, and the other settings of UCX.
    #[n(3)]
    pub ucx: Option<UcxChoice>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            share_topology: true,
            early: true,
            timeout: Duration::from_secs(300),
            ucx: None,
        }
    }
}

/// Serves until the step daemon ends the host or disconnects. `beside` adds a PMI server on these
/// sockets of the tasks, which serves alone if there is no library.
///
/// # Errors
/// Waiting for events failed. Errors of the library are reported to the step daemon instead.
pub fn run(
    setup: HostSetup,
    ends: Endpoints,
    beside: Option<(PmiSetup, Vec<UnixStream>)>,
) -> io::Result<()> {
    descriptors::raise_limit();
    let mut control = Control::new(ends.control)?;
    let mesh = Mesh::listening(ends.listener, &setup.key)?;
    let ucx = setup.tuning.ucx.clone().filter(|_| setup.names.len() > 1);
    // The process must still have one thread here.
    ucx.iter().for_each(UcxChoice::set);
    set_variable(PLACES, &room_for_places(&setup).to_string());
    let server = match open(&setup) {
        Ok(server) => server,
        Err(e) => {
            let Some((pmi, sockets)) = beside else {
                control.send(&FromHost::Failed(e.to_string()));
                return Ok(());
            };
            eprintln!("PMI is served without PMIx: {e}");
            return pmi::serve_alone(pmi, sockets, mesh, &mut control);
        }
    };
    let pmi = beside.map(|(pmi, sockets)| Pmi::new(pmi, mesh.own.clone(), sockets));
    match MpiHost::open(setup, server, mesh, pmi.transpose()?, &mut control) {
        Ok(mut host) => {
            // The step daemon can start the tasks meanwhile.
            if ucx.is_some() {
                host.mesh.use_ucx(Ucx::open());
            }
            host.serve(&mut control)
        }
        Err(e) => {
            control.send(&FromHost::Failed(e.to_string()));
            Ok(())
        }
    }
}

/// Starts the library's server.
fn open(setup: &HostSetup) -> io::Result<Server> {
    let library = library()?;
    if let Some(wanted) = setup.version.filter(|v| *v != library.major) {
        return Err(io::Error::other(format!(
            "pmix_v{wanted} was asked for, but the node's library is {}; use --mpi=pmix_v{} or --mpi=pmix",
            library.banner, library.major
        )));
    }
    start(library, setup)
}

/// A request to another host for which the library waits.
struct PendingAnswer {
    host: String,
    reply: Modex,
    until: Instant,
}

struct MpiHost {
    setup: HostSetup,
    library: &'static Library,
    server: Server,
    mesh: Mesh,
    /// The PMI server, if the step uses one.
    pmi: Option<Pmi>,
    collectives: Collectives,
    /// Name spaces whose processes tasks may address, including this step's own.
    jobs: BTreeMap<String, Job>,
    /// Requests of this node's tasks for data of other hosts.
    asked: HashMap<u64, PendingAnswer>,
    /// Requests of other hosts for data of this node's tasks: requesting host and its ticket.
    serving: HashMap<u64, (String, u64)>,
    next_ticket: u64,
    /// The next context number for a group.
    next_group: u64,
    names: Names,
    spawns: Spawns,
    /// Lines and orders for the step daemon.
    outbox: Vec<FromHost>,
    finalized: BTreeSet<u32>,
    /// Replies to aborting tasks, which wait for them.
    aborting: Vec<Done>,
    /// Whether requests that concern other hosts can be served: their addresses are known.
    has_peers: bool,
    /// The addresses of the step's hosts are known.
    met_own: bool,
    waiting: Vec<Upcall>,
    /// The step daemon has no tasks left.
    stopping: bool,
}

impl MpiHost {
    fn open(
        setup: HostSetup,
        server: Server,
        mesh: Mesh,
        pmi: Option<Pmi>,
        control: &mut Control,
    ) -> io::Result<MpiHost> {
        let job = Job {
            nspace: setup.nspace.clone(),
            names: setup.names.clone(),
            tasks: setup.tasks.clone(),
            hosts: vec![mesh.own.clone(); setup.names.len()],
            parent: None,
            apps: spawn::apps(&setup),
        };
        let mut host = MpiHost {
            library: server.library(),
            server,
            pmi,
            collectives: Collectives::default(),
            jobs: BTreeMap::new(),
            asked: HashMap::new(),
            serving: HashMap::new(),
            next_ticket: 1,
            next_group: 0,
            names: Names::new(mesh.own.clone()),
            spawns: Spawns::default(),
            outbox: Vec::new(),
            finalized: BTreeSet::new(),
            aborting: Vec::new(),
            has_peers: false,
            met_own: false,
            waiting: Vec::new(),
            stopping: false,
            mesh,
            setup,
        };
        let mut environments = host.register_own(job)?;
        if let Some(pmi) = &host.pmi {
            environments.join(pmi.environments());
        }
        control.send(&FromHost::Ready(environments));
        Ok(host)
    }

    /// Registers the step and this node's tasks with the server; returns the environment variables
    /// of the tasks.
    fn register_own(&mut self, mut job: Job) -> io::Result<Environments> {
        job.parent = spawn::parent(&self.setup);
        let nsdir = format!("{}/{}", self.setup.dir, self.setup.nspace);
        std::fs::create_dir_all(&nsdir)?;
        let job_id = self.setup.job.to_string();
        let cpus = self.setup.cpus.iter();
        let places: Option<Vec<TaskLocation>> = cpus.map(|c| self.server.place(c)).collect();
        let local = LocalRegistration {
            node: Some(self.setup.position),
            job_id: &job_id,
            owner: self.setup.owner,
            dirs: (&self.setup.dir, &nsdir),
            crowded: self.setup.crowded,
            universe: self.setup.universe,
            places: &places.unwrap_or_default(),
        };
        job::register(&self.server, &job, &local)?;
        let here = job
            .tasks
            .get(self.setup.position)
            .cloned()
            .unwrap_or_default();
        let TaskOwner { uid, gid } = self.setup.owner;
        let tasks: Vec<ProcName> = here
            .iter()
            .map(|rank| ProcName {
                nspace: job.nspace.clone(),
                rank: *rank,
            })
            .collect();
        // Register all tasks before the first of them can connect.
        for task in &tasks {
            self.server.register_client(task, uid, gid)?;
        }
        let mut all = Vec::with_capacity(tasks.len());
        // Intel MPI reads only this variable; without it each rank would run as a job of its own.
        let intel = format!("{INTEL}={}", self.library.path).into_bytes();
        let intel = Some(intel).filter(|_| !self.setup.env.iter().any(|(name, _)| name == INTEL));
        let places = format!(
            "{}={}",
            PLACES.to_string_lossy(),
            room_for_places(&self.setup)
        )
        .into_bytes();
        for task in &tasks {
            let mut env = self.server.environment(task)?;
            env.extend(intel.clone());
            env.push(places.clone());
            all.push((task.rank, env));
        }
        self.jobs.insert(job.nspace.clone(), job);
        Ok(Environments::gather(all))
    }

    fn serve(&mut self, control: &mut Control) -> io::Result<()> {
        self.report_changes(control);
        let mut noted = false;
        // Spawned steps may outlive the tasks that spawned them.
        while control.open && !(self.stopping && self.is_idle()) {
            self.deadlines();
            self.wait(control)?;
            self.report_notes(&mut noted);
            self.report_changes(control);
        }
        // PMIx_server_finalize is not called: on an overloaded machine it has waited for a lock for
        // ever. All that it would free belongs to this process, or to directories that the step
        // daemon removes.
        if self.stopping {
            self.mesh.leave();
        }
        Ok(())
    }

    /// Whether no step that a task spawned is running.
    fn is_idle(&self) -> bool {
        self.spawns.is_empty() && self.pmi.as_ref().is_none_or(Pmi::is_idle)
    }

    /// Reports why UCX is not used: each host logs it, and one line of each host goes to the user.
    fn report_notes(&mut self, noted: &mut bool) {
        for why in self.mesh.notes.drain(..) {
            eprintln!("UCX is not used: {why}");
            if !std::mem::replace(noted, true) {
                let node = &self.setup.names[self.setup.position];
                let line = format!(
                    "slurmstepd: mpi/pmix: {node}: UCX (PMIxDirectConnUCX) is not used between nodes, but TCP: {why}"
                );
                self.outbox.push(FromHost::Note(line));
            }
        }
    }

    fn report_changes(&mut self, control: &mut Control) {
        for message in self.outbox.drain(..) {
            control.send(&message);
        }
    }

    fn wait(&mut self, control: &mut Control) -> io::Result<()> {
        let entry = |(fd, events): (i32, i16)| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds = vec![
            entry((control.stream.as_raw_fd(), libc::POLLIN)),
            entry((self.server.queue.wake.as_fd().as_raw_fd(), libc::POLLIN)),
        ];
        let own = fds.len();
        let spawned = self.spawns.interests();
        fds.extend(spawned.iter().map(|fd| entry((*fd, libc::POLLIN))));
        let beside = fds.len();
        fds.extend(self.pmi.iter().flat_map(Pmi::interests).map(entry));
        let links = fds.len();
        fds.extend(self.mesh.interests().into_iter().map(entry));
        let timeout = if self.mesh.is_eager() {
            0
        } else {
            self.timeout_ms()
        };
        poll(&mut fds, timeout)?;
        let seen = |range: Range<usize>| -> Vec<bool> {
            fds[range].iter().map(|f| f.revents != 0).collect()
        };
        if fds[0].revents != 0 {
            for message in control.read() {
                self.on_message(message, control);
            }
        }
        if let Some(pmi) = &mut self.pmi {
            pmi.serve(&seen(beside..links), &mut self.mesh, control);
        }
        let of_links = seen(links..fds.len());
        for event in self.mesh.serve(&of_links) {
            match event {
                MeshEvent::Message(from, message) => self.message(&from, message),
                MeshEvent::Gone(host, orderly) => self.gone(&host, orderly),
            }
        }
        self.serve_spawned(&seen(own..beside));
        if fds[1].revents != 0 {
            for upcall in self.server.queue.take() {
                self.upcall(upcall, control);
            }
        }
        if let Some(pmi) = &mut self.pmi {
            pmi.write();
        }
        Ok(())
    }

    fn on_message(&mut self, message: ToHost, control: &mut Control) {
        match message {
            ToHost::Peers(mut hosts) => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.on_peers(hosts.clone(), &mut self.mesh, control);
                }
                let own = self.setup.nspace.clone();
                let position = self.setup.position;
                // A step on one node needs no such message; the host of the step that spawned it
                // waits for one.
                if let Some(host) = hosts.get_mut(position).filter(|h| h.is_empty()) {
                    host.clone_from(&self.mesh.own);
                }
                if let Some(job) = self.jobs.get_mut(&own)
                    && hosts.len() == job.hosts.len()
                {
                    job.hosts = hosts.clone();
                }
                if let Some(keeper) = hosts.first().filter(|_| !self.spawns.introduced) {
                    self.names.keeper.clone_from(keeper);
                }
                if self.setup.tuning.early {
                    for at in neighbours(hosts.len(), position) {
                        self.mesh.prepare(&hosts[at]);
                    }
                }
                self.met_own = true;
                self.notify_parent();
                self.all_known();
            }
            ToHost::TaskFailed { rank } => self.task_failed(rank),
            ToHost::Stop => {
                self.stopping = true;
                self.pmi.iter_mut().for_each(Pmi::stop);
            }
        }
    }

    /// Resumes requests that waited for the addresses of other hosts.
    fn all_known(&mut self) {
        let introduced = self.spawns.introduced || spawn::parent(&self.setup).is_none();
        if !self.met_own || !introduced || std::mem::replace(&mut self.has_peers, true) {
            return;
        }
        for upcall in std::mem::take(&mut self.waiting) {
            self.request(upcall);
        }
    }

    /// Hosts of the given processes, in an order that is the same on all hosts; `None` if a name
    /// space is not known.
    fn members(&self, procs: &[ProcName]) -> Option<Vec<String>> {
        let mut ranks: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for proc in procs {
            ranks.entry(&proc.nspace).or_default().push(proc.rank);
        }
        let mut out: Vec<String> = Vec::new();
        for (nspace, ranks) in ranks {
            let job = self.jobs.get(nspace)?;
            for node in job.nodes_of(&ranks) {
                let host = &job.hosts[node];
                if !out.contains(host) {
                    out.push(host.clone());
                }
            }
        }
        Some(out)
    }

    /// Enters a collective of the hosts of some processes.
    fn enter_collective(
        &mut self,
        kind: &str,
        procs: Vec<ProcName>,
        (status, part): (i32, Vec<u8>),
        finish: Finish,
    ) {
        let members = self.members(&procs).filter(|m| m.contains(&self.mesh.own));
        let Some(members) = members else {
            return refuse(finish, status::NOT_FOUND);
        };
        let mut procs = procs;
        procs.sort();
        let name = minicbor::to_vec((kind, &procs)).expect("writing to memory cannot fail");
        let entry = Contribution {
            name,
            members,
            status,
            part,
            finish,
        };
        let mesh = &self.mesh;
        let (outgoing, outcome) = self
            .collectives
            .enter(&mesh.own, entry, |host| mesh.is_gone(host));
        self.post(outgoing);
        outcome.into_iter().for_each(|o| self.finish(o));
    }

    fn post(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { host, message } in outgoing {
            self.mesh.send(&host, &message);
        }
    }

    fn finish(&mut self, outcome: Outcome) {
        let Outcome {
            status,
            parts,
            finish,
        } = outcome;
        match finish {
            Finish::Fence(reply) => {
                let whole: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
                reply.give(status, whole);
            }
            Finish::Met(reply) => reply.fail(status),
            Finish::Group(wants_id, reply) => self.group_complete(status, &parts, wants_id, reply),
        }
    }

    fn gone(&mut self, host: &str, orderly: bool) {
        let (outgoing, outcomes) = self.collectives.lost(host);
        self.post(outgoing);
        outcomes.into_iter().for_each(|o| self.finish(o));
        let lost: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, a)| a.host == host)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in lost {
            if let Some(asked) = self.asked.remove(&ticket) {
                asked.reply.fail(status::NOT_FOUND);
            }
        }
        self.names.forget_host(host);
        self.need_not_know(host);
        if !orderly {
            let own = self.jobs.get(&self.setup.nspace);
            if let Some(at) = own.and_then(|j| j.hosts.iter().position(|h| h == host)) {
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                self.outbox.push(FromHost::PeerLost(at));
            }
        }
    }

    fn deadlines(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, a)| a.until <= now)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in late {
            if let Some(asked) = self.asked.remove(&ticket) {
                asked.reply.fail(status::TIMEOUT);
            }
        }
        let answers = self.names.expire(now);
        self.answer_names(answers);
    }

    fn timeout_ms(&self) -> i32 {
        let fetches = self.asked.values().map(|a| a.until);
        let others = self.names.next_expiry().into_iter();
        wait_ms(fetches.chain(others).chain(self.mesh.deadline()).min())
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

fn refuse(finish: Finish, status: i32) {
    match finish {
        Finish::Fence(reply) => reply.fail(status),
        Finish::Met(reply) => reply.fail(status),
        Finish::Group(_, reply) => reply.fail(status),
    }
}

/// Bytes to reserve for the locations of all ranks: the user's setting, else whole pages for any
/// page size.
fn room_for_places(setup: &HostSetup) -> usize {
    let said = setup
        .env
        .iter()
        .find(|(name, _)| name.as_bytes() == PLACES.to_bytes());
    if let Some(bytes) = said.and_then(|(_, text)| text.parse().ok()) {
        return bytes;
    }
    let ranks: usize = setup.tasks.iter().map(Vec::len).sum();
    let (least, most) = PLACES_RANGE;
    (ranks * PLACE)
        .next_multiple_of(64 << 10)
        .clamp(least, most)
}

fn start(library: &'static Library, setup: &HostSetup) -> io::Result<Server> {
    let mut infos = Infos::new(library);
    let name = format!("{}.hosts", setup.nspace);
    infos.add("pmix.srv.nspace", Value::Text(&name));
    let rank = u32::try_from(setup.position).unwrap_or(0);
    infos.add("pmix.srv.rank", Value::Rank(rank));
    infos.add("pmix.srvr.tmpdir", Value::Text(&setup.dir));
    infos.add("pmix.sys.tmpdir", Value::Text(&setup.dir));
    infos.add("pmix.euid", Value::U32(setup.owner.uid));
    infos.add("pmix.egid", Value::U32(setup.owner.gid));
    if let Some(node) = setup.names.get(setup.position) {
        infos.add("pmix.hname", Value::Text(node));
    }
    if setup.tuning.share_topology {
        infos.add("pmix.srvr.share", Value::Bool(true));
    }
    Server::start(library, &mut infos)
}
