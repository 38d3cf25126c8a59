//! The PMI server as a state machine without I/O: it takes requests, and returns answers and
//! actions. It keeps one key table for the step, which all tasks fill and which is exchanged with
//! the other nodes at each barrier, and the published names.

use super::protocol::{Dialect, Request, TaskConnection, mapping};
use super::spawn::{Origin, SpawnCommand};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};
use std::collections::{BTreeMap, BTreeSet};

/// Limits of PMI-1 that are reported to tasks.
const MAXES: [(&str, &str); 3] = [
    ("kvsname_max", "256"),
    ("keylen_max", "64"),
    ("vallen_max", "1024"),
];
/// The key from which MPI reads which ranks share a node.
const MAPPING: &str = "PMI_process_mapping";

/// The layout of the step.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Name of the key table: unique in the cluster.
    pub(crate) name: String,
    /// Ranks of each node, by local number.
    pub(crate) tasks: Vec<Vec<u32>>,
    /// Position of this node in `ranks`.
    pub(crate) position: usize,
    /// Slots of the allocation.
    pub(crate) universe: u32,
    /// The task that spawned the step, if a task did.
    pub(crate) origin: Option<Origin>,
}

/// Actions besides the answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// All tasks of this node have entered a barrier. Carries the keys that they have put since the
    /// last barrier.
    Fence(Vec<u8>),
    /// A task has connected.
    Connected(u32),
    /// A task has finalized.
    Finalized(u32),
    /// A task asks to end the step (abort).
    Abort(u32, i32, String),
    /// A request to the name keeper.
    Ask(Name),
    /// A local task asks to spawn processes.
    Spawn(usize, SpawnCommand),
}

/// A question about a name; its asker is a local task.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub(crate) struct Name {
    /// The local task that asks.
    #[n(0)]
    pub(crate) task: u32,
    /// The lookup.
    #[n(1)]
    pub(crate) what: NameAsk,
    /// The name.
    #[n(2)]
    pub(crate) service: String,
}

/// An operation on a published name.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub(crate) enum NameAsk {
    /// Publish this port under the name.
    #[n(0)]
    Publish(#[n(0)] String),
    /// Remove the name.
    #[n(1)]
    Unpublish,
    /// Look up the port.
    #[n(2)]
    Lookup,
}

/// Keys that tasks of one node have put.
#[derive(Debug, Default, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct Puts(#[n(0)] Vec<(String, String)>);

impl Message for Puts {}

/// The state of one task's connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Protocol state and buffers.
    pub(crate) talk: TaskConnection,
    /// The task waits in a barrier.
    fenced: bool,
    /// The task has sent its finalize request.
    pub(crate) finalized: bool,
    /// The node attribute that the task waits for.
    awaits: Option<String>,
    /// A spawn request that the task has sent in part.
    asking: SpawnCommand,
}

/// The server of one node.
#[derive(Debug)]
pub(crate) struct PmiServer {
    shape: Shape,
    /// Tasks by local number.
    pub(crate) clients: Vec<Client>,
    table: BTreeMap<String, String>,
    fresh: Vec<(String, String)>,
    /// Attributes of this node, shared by its tasks.
    node_table: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    left: BTreeSet<u32>,
}

impl PmiServer {
    pub(crate) fn new(shape: Shape) -> PmiServer {
        let here = shape.tasks.get(shape.position).map_or(0, Vec::len);
        let mut table = BTreeMap::from([(MAPPING.to_owned(), mapping(&shape.tasks))]);
        table.extend(shape.origin.iter().flat_map(|o| o.puts.clone()));
        PmiServer {
            clients: (0..here).map(|_| Client::default()).collect(),
            table,
            fresh: Vec::new(),
            node_table: BTreeMap::new(),
            names: BTreeMap::new(),
            left: BTreeSet::new(),
            shape,
        }
    }

    fn rank(&self, local: usize) -> u32 {
        let here = self.shape.tasks.get(self.shape.position);
        here.and_then(|t| t.get(local)).copied().unwrap_or(0)
    }

    fn size(&self) -> usize {
        self.shape.tasks.iter().map(Vec::len).sum()
    }

    /// Handles a request of a task.
    pub(crate) fn on_bytes(&mut self, local: usize, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(client) = self.clients.get_mut(local) else {
            return actions;
        };
        client.talk.push(bytes);
        loop {
            match self.clients[local].talk.take() {
                Ok(Some(request)) => self.serve(local, &request, &mut actions),
                Ok(None) => break,
                Err(_) => {
                    let why = "it speaks neither PMI-1 nor PMI-2".to_owned();
                    actions.push(Action::Abort(self.rank(local), 1, why));
                    break;
                }
            }
        }
        actions
    }

    fn serve(&mut self, local: usize, request: &Request, actions: &mut Vec<Action>) {
        match self.clients[local].talk.dialect() {
            Dialect::One => self.serve_one(local, request, actions),
            Dialect::Two => self.serve_two(local, request, actions),
        }
    }

    fn say(&mut self, local: usize, cmd: &str, pairs: &[(&str, &str)]) {
        if let Some(client) = self.clients.get_mut(local) {
            client.talk.say(cmd, pairs);
        }
    }

    fn serve_one(&mut self, local: usize, request: &Request, actions: &mut Vec<Action>) {
        let name = self.shape.name.clone();
        match request.cmd.as_str() {
            "init" => {
                let two = request.get("pmi_version") == Some("2");
                let (version, sub) = if two { ("2", "0") } else { ("1", "1") };
                let pairs = [
                    ("pmi_version", version),
                    ("pmi_subversion", sub),
                    ("rc", "0"),
                ];
                self.say(local, "response_to_init", &pairs);
                actions.push(Action::Connected(self.rank(local)));
                if two {
                    self.clients[local].talk.speak(Dialect::Two);
                }
            }
            "get_maxes" => self.say(local, "maxes", &MAXES),
            "get_appnum" => {
                let app = self.app_of(local).to_string();
                self.say(local, "appnum", &[("appnum", &app)]);
            }
            "get_my_kvsname" => self.say(local, "my_kvsname", &[("kvsname", &name)]),
            "get_universe_size" => {
                let size = self.shape.universe.to_string();
                self.say(local, "universe_size", &[("size", &size), ("rc", "0")]);
            }
            "put" => {
                self.put(request.text("key"), request.text("value"));
                self.say(local, "put_result", &[("rc", "0"), ("msg", "success")]);
            }
            "get" => match self.table.get(request.text("key")).cloned() {
                Some(value) => {
                    let pairs = [("rc", "0"), ("msg", "success"), ("value", &value)];
                    self.say(local, "get_result", &pairs);
                }
                None => {
                    let pairs = [("rc", "-1"), ("msg", "key_not_found"), ("value", "unknown")];
                    self.say(local, "get_result", &pairs);
                }
            },
            "barrier_in" => self.enter(local, actions),
            "finalize" => self.finalize(local, actions),
            "abort" => self.abort(local, request.text("exitcode"), "", actions),
            "publish_name" | "unpublish_name" | "lookup_name" => {
                self.ask(local, request, "service", actions);
            }
            "spawn" => self.ask_for(local, request, actions),
            other => {
                let why = format!("PMI-1 has no command '{other}'");
                actions.push(Action::Abort(self.rank(local), 1, why));
            }
        }
    }

    fn serve_two(&mut self, local: usize, request: &Request, actions: &mut Vec<Action>) {
        let name = self.shape.name.clone();
        match request.cmd.as_str() {
            "fullinit" => {
                let (rank, size) = (self.rank(local).to_string(), self.size().to_string());
                let app = self.app_of(local).to_string();
                let pairs = [
                    ("rc", "0"),
                    ("pmi-version", "2"),
                    ("pmi-subversion", "0"),
                    ("rank", &rank),
                    ("size", &size),
                    ("appnum", &app),
                    ("debugged", "FALSE"),
                    ("pmiverbose", "FALSE"),
                ];
                self.say(local, "fullinit-response", &pairs);
            }
            "job-getid" => self.reply(local, request, &[("jobid", &name), ("rc", "0")]),
            "kvs-put" => {
                self.put(request.text("key"), request.text("value"));
                self.reply(local, request, &[("rc", "0")]);
            }
            "kvs-get" => {
                let found = self.table.get(request.text("key")).cloned();
                self.found(local, request, found);
            }
            "kvs-fence" => self.enter(local, actions),
            "info-putnodeattr" => {
                let (key, value) = (request.text("key"), request.text("value"));
                self.node_table.insert(key.to_owned(), value.to_owned());
                self.reply(local, request, &[("rc", "0")]);
                self.answer_waiting(key, value);
            }
            "info-getnodeattr" => {
                let key = request.text("key");
                match self.node_table.get(key).cloned() {
                    None if request
                        .get("wait")
                        .is_some_and(|w| w.eq_ignore_ascii_case("true")) =>
                    {
                        self.clients[local].awaits = Some(key.to_owned());
                    }
                    found => self.found(local, request, found),
                }
            }
            "info-getjobattr" => {
                let found = match request.text("key") {
                    "universeSize" => Some(self.shape.universe.to_string()),
                    MAPPING => self.table.get(MAPPING).cloned(),
                    _ => None,
                };
                self.found(local, request, found);
            }
            "finalize" => self.finalize(local, actions),
            "abort" => self.abort(local, "1", request.text("msg"), actions),
            "name-publish" | "name-unpublish" | "name-lookup" => {
                self.ask(local, request, "name", actions);
            }
            "spawn" => self.ask_for(local, request, actions),
            "job-connect" | "job-disconnect" => {
                let why = "not supported by this step's PMI; --mpi=pmix is";
                self.reply(local, request, &[("rc", "1"), ("errmsg", why)]);
            }
            other => {
                let why = format!("PMI-2 has no command '{other}'");
                actions.push(Action::Abort(self.rank(local), 1, why));
            }
        }
    }

    fn app_of(&self, local: usize) -> u32 {
        let origin = self.shape.origin.as_ref();
        origin.map_or(0, |o| o.app_of(self.rank(local)))
    }

    fn ask_for(&mut self, local: usize, request: &Request, actions: &mut Vec<Action>) {
        let client = &mut self.clients[local];
        client.asking.add(request, client.talk.dialect());
        if client.asking.unfinished {
            return;
        }
        let asked = std::mem::take(&mut client.asking);
        if asked.is_whole() {
            actions.push(Action::Spawn(local, asked));
        } else {
            self.spawned(local, None);
        }
    }

    /// Answers a spawn request: the processes have started with a table of this name, or have
    /// failed to start.
    pub(crate) fn spawned(&mut self, local: usize, name: Option<&str>) {
        let Some(client) = self.clients.get_mut(local) else {
            return;
        };
        match (client.talk.dialect(), name) {
            (Dialect::One, Some(_)) => client.talk.say("spawn_result", &[("rc", "0")]),
            (Dialect::One, None) => client.talk.say("spawn_result", &[("rc", "-1")]),
            (Dialect::Two, Some(name)) => {
                let pairs = [("rc", "0"), ("jobid", name), ("nerrs", "0")];
                client.talk.say("spawn-response", &pairs);
            }
            (Dialect::Two, None) => {
                let pairs = [("rc", "1"), ("errmsg", "the processes cannot be started")];
                client.talk.say("spawn-response", &pairs);
            }
        }
    }

    /// The answer to a PMI-2 request is its name with `-response`.
    fn reply(&mut self, local: usize, request: &Request, pairs: &[(&str, &str)]) {
        self.say(local, &format!("{}-response", request.cmd), pairs);
    }

    fn found(&mut self, local: usize, request: &Request, value: Option<String>) {
        match value {
            Some(value) => {
                let pairs = [("found", "TRUE"), ("value", value.as_str()), ("rc", "0")];
                self.reply(local, request, &pairs);
            }
            None => self.reply(local, request, &[("found", "FALSE"), ("rc", "0")]),
        }
    }

    fn answer_waiting(&mut self, key: &str, value: &str) {
        for client in &mut self.clients {
            if client.awaits.as_deref() == Some(key) {
                client.awaits = None;
                let pairs = [("found", "TRUE"), ("value", value), ("rc", "0")];
                client.talk.say("info-getnodeattr-response", &pairs);
            }
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        self.fresh.push((key.to_owned(), value.to_owned()));
        self.table.insert(key.to_owned(), value.to_owned());
    }

    fn enter(&mut self, local: usize, actions: &mut Vec<Action>) {
        self.clients[local].fenced = true;
        self.fence_if_complete(actions);
    }

    /// Finalized tasks do not enter barriers any more.
    fn fence_if_complete(&mut self, actions: &mut Vec<Action>) {
        let waiting = self.clients.iter().any(|c| c.fenced);
        if waiting && self.clients.iter().all(|c| c.fenced || c.finalized) {
            let puts = Puts(std::mem::take(&mut self.fresh));
            let bytes = minicbor::to_vec(&puts).expect("writing to memory cannot fail");
            actions.push(Action::Fence(bytes));
        }
    }

    /// All nodes have entered the barrier: takes the keys that they have put, in any order.
    pub(crate) fn fenced(&mut self, parts: &[ByteVec]) {
        for part in parts {
            if let Ok(Puts(puts)) = frame::decode(part) {
                self.table.extend(puts);
            }
        }
        for client in self.clients.iter_mut().filter(|c| c.fenced) {
            client.fenced = false;
            match client.talk.dialect() {
                Dialect::One => client.talk.say("barrier_out", &[]),
                Dialect::Two => client.talk.say("kvs-fence-response", &[("rc", "0")]),
            }
        }
    }

    fn finalize(&mut self, local: usize, actions: &mut Vec<Action>) {
        let rank = self.rank(local);
        actions.push(Action::Finalized(rank));
        self.left.insert(rank);
        let client = &mut self.clients[local];
        client.finalized = true;
        match client.talk.dialect() {
            Dialect::One => client.talk.say("finalize_ack", &[]),
            Dialect::Two => client.talk.say("finalize-response", &[("rc", "0")]),
        }
        self.fence_if_complete(actions);
    }

    fn abort(&mut self, local: usize, code: &str, text: &str, actions: &mut Vec<Action>) {
        let code = code.parse().unwrap_or(1);
        actions.push(Action::Abort(self.rank(local), code, text.to_owned()));
    }

    fn ask(&mut self, local: usize, request: &Request, key: &str, actions: &mut Vec<Action>) {
        let what = if request.cmd.contains("unpublish") {
            NameAsk::Unpublish
        } else if request.cmd.contains("lookup") {
            NameAsk::Lookup
        } else {
            NameAsk::Publish(request.text("port").to_owned())
        };
        let task = u32::try_from(local).unwrap_or(u32::MAX);
        let service = request.text(key).to_owned();
        actions.push(Action::Ask(Name {
            task,
            what,
            service,
        }));
    }

    /// At the name keeper: looks up the port of a name.
    pub(crate) fn keep(&mut self, name: &Name) -> Option<String> {
        match &name.what {
            NameAsk::Publish(port) => {
                self.names.insert(name.service.clone(), port.clone());
                Some(port.clone())
            }
            NameAsk::Unpublish => self.names.remove(&name.service),
            NameAsk::Lookup => self.names.get(&name.service).cloned(),
        }
    }

    /// Handles an answer of the name keeper.
    pub(crate) fn answered(&mut self, name: &Name, port: Option<&str>) {
        let local = name.task as usize;
        let Some(dialect) = self.clients.get(local).map(|c| c.talk.dialect()) else {
            return;
        };
        let ok = port.is_some();
        let word = match name.what {
            NameAsk::Publish(_) => "publish",
            NameAsk::Unpublish => "unpublish",
            NameAsk::Lookup => "lookup",
        };
        let is_lookup = name.what == NameAsk::Lookup;
        match dialect {
            Dialect::One => {
                let mut pairs = vec![
                    ("rc", if ok { "0" } else { "-1" }),
                    ("info", if ok { "ok" } else { "notok" }),
                    ("msg", if ok { "success" } else { "name_not_found" }),
                ];
                pairs.extend(port.filter(|_| is_lookup).map(|p| ("port", p)));
                self.say(local, &format!("{word}_result"), &pairs);
            }
            Dialect::Two => {
                let mut pairs = vec![("rc", if ok { "0" } else { "1" })];
                pairs.extend(port.filter(|_| is_lookup).map(|p| ("port", p)));
                pairs.extend((!ok).then_some(("errmsg", "name_not_found")));
                self.say(local, &format!("name-{word}-response"), &pairs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(tasks: &[&[u32]], position: usize) -> PmiServer {
        PmiServer::new(Shape {
            name: "kvs".to_owned(),
            tasks: tasks.iter().map(|t| t.to_vec()).collect(),
            position,
            universe: 8,
            origin: None,
        })
    }

    fn said(server: &mut PmiServer, local: usize) -> String {
        let bytes = std::mem::take(&mut server.clients[local].talk.output);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_of_a_whole_life() {
        let mut nodes = [server(&[&[0, 1], &[2]], 0), server(&[&[0, 1], &[2]], 1)];
        let actions = nodes[1].on_bytes(
            0,
            b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\n",
        );
        assert_eq!(actions, [Action::Connected(2)]);
        assert_eq!(
            said(&mut nodes[1], 0),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
             cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
        );
        nodes[1].on_bytes(0, b"cmd=get kvsname=kvs key=PMI_process_mapping\n");
        assert_eq!(
            said(&mut nodes[1], 0),
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,1))\n"
        );
        let mut parts = Vec::new();
        for (node, local, rank) in [(0, 0, 0), (0, 1, 1), (1, 0, 2)] {
            let text = format!("cmd=put kvsname=kvs key=k{rank} value=v{rank}\ncmd=barrier_in\n");
            for order in nodes[node].on_bytes(local, text.as_bytes()) {
                let Action::Fence(bytes) = order else {
                    panic!("{order:?}")
                };
                parts.push(ByteVec::from(bytes));
            }
        }
        assert_eq!(
            parts.len(),
            2,
            "each node comes once, when all of its tasks have"
        );
        for node in &mut nodes {
            node.fenced(&parts);
        }
        let text = said(&mut nodes[0], 1);
        assert_eq!(text, "cmd=put_result rc=0 msg=success\ncmd=barrier_out\n");
        nodes[0].on_bytes(0, b"cmd=get kvsname=kvs key=k2\n");
        assert!(said(&mut nodes[0], 0).ends_with("cmd=get_result rc=0 msg=success value=v2\n"));
        nodes[0].on_bytes(0, b"cmd=get kvsname=kvs key=none\n");
        assert!(said(&mut nodes[0], 0).contains("rc=-1"));
        assert_eq!(
            nodes[0].on_bytes(0, b"cmd=finalize\n"),
            [Action::Finalized(0)]
        );
        assert_eq!(said(&mut nodes[0], 0), "cmd=finalize_ack\n");
        let actions = nodes[0].on_bytes(1, b"cmd=abort exitcode=3\n");
        assert_eq!(actions, [Action::Abort(1, 3, String::new())]);
        assert!(matches!(
            nodes[0].on_bytes(1, b"nonsense\n")[..],
            [Action::Abort(1, 1, _)]
        ));
    }

    #[test]
    fn the_second_protocol_begins_with_a_line_of_the_first() {
        let mut s = server(&[&[0, 1]], 0);
        s.on_bytes(0, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        assert_eq!(
            said(&mut s, 0),
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
        );
        let ask = |s: &mut PmiServer, body: &str| {
            let text = format!("{:>6}{body}", body.len());
            let actions = s.on_bytes(0, text.as_bytes());
            (actions, said(s, 0))
        };
        let (_, answer) = ask(&mut s, "cmd=fullinit;pmijobid=1;pmirank=0;threaded=FALSE;");
        assert!(
            answer.contains("cmd=fullinit-response;rc=0;") && answer.contains("size=2;"),
            "{answer}"
        );
        let (_, answer) = ask(&mut s, "cmd=info-getjobattr;key=universeSize;");
        assert!(answer.contains("found=TRUE;value=8;rc=0;"), "{answer}");
        // The task waits for the attribute of the node.
        s.on_bytes(1, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        said(&mut s, 1);
        let (_, answer) = ask(&mut s, "cmd=info-getnodeattr;key=a;wait=TRUE;");
        assert_eq!(answer, "");
        let put = "cmd=info-putnodeattr;key=a;value=x;;y;";
        s.on_bytes(1, format!("{:>6}{put}", put.len()).as_bytes());
        let answer = said(&mut s, 0);
        assert!(answer.contains("found=TRUE;value=x;;y;"), "{answer}");
        let (actions, answer) = ask(&mut s, "cmd=abort;isworld=TRUE;msg=no more;");
        assert_eq!(
            (actions, answer.as_str()),
            (vec![Action::Abort(0, 1, "no more".to_owned())], "")
        );
    }

    #[test]
    fn names_have_a_keeper() {
        let mut keeper = server(&[&[0], &[1]], 0);
        let mut other = server(&[&[0], &[1]], 1);
        let ask = |other: &mut PmiServer, keeper: &mut PmiServer, line: &[u8]| {
            let actions = other.on_bytes(0, line);
            let [Action::Ask(name)] = &actions[..] else {
                panic!("{actions:?}")
            };
            let port = keeper.keep(name);
            other.answered(name, port.as_deref());
            said(other, 0)
        };
        let answer = ask(&mut other, &mut keeper, b"cmd=lookup_name service=s\n");
        assert!(
            answer.starts_with("cmd=lookup_result rc=-1 info=notok"),
            "{answer}"
        );
        let answer = ask(
            &mut other,
            &mut keeper,
            b"cmd=publish_name service=s port=p1\n",
        );
        assert_eq!(answer, "cmd=publish_result rc=0 info=ok msg=success\n");
        let answer = ask(&mut other, &mut keeper, b"cmd=lookup_name service=s\n");
        assert!(answer.ends_with("port=p1\n"), "{answer}");
        ask(&mut other, &mut keeper, b"cmd=unpublish_name service=s\n");
        let answer = ask(&mut other, &mut keeper, b"cmd=lookup_name service=s\n");
        assert!(answer.contains("rc=-1"), "{answer}");
    }
}
