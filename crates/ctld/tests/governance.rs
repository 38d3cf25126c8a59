//! A controller in this process, and clients of several users that do what no command does. The users are threads with
//! user ids of their own, so these tests need root; without it they look at nothing and say so.

#![allow(clippy::unwrap_used)]

use muster_ctld::client_timeouts::ClientTimeouts;
use muster_ctld::{Options, run};
use muster_model::command::{Reply, UserCommand};
use muster_model::ids::{BlobId, JobId};
use muster_model::job_class::JobClass;
use muster_model::mail::MailOptions;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, Owner};
use muster_proto::client::{Diag, Query, Request, RequestBody, Response};
use muster_proto::{PROTOCOL, frame};
use nix::sys::resource::{Resource, setrlimit};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Descriptors of the controller and of its clients here together.
const DESCRIPTORS: u64 = 1024;
/// What each user may have of them: see `muster_ctld::quota`.
const CONNECTIONS: usize = 224;

const CONF: &str = "ClusterName=t\nSlurmctldHost=localhost\nSlurmUser=root\nScronParameters=enable\nNodeName=n1 CPUs=4 RealMemory=1000\n\
                    PartitionName=p Nodes=n1 Default=YES State=UP\n";

/// Keeps the lines of the audit log.
struct AuditLines(Mutex<Vec<String>>, Condvar);

static AUDIT: AuditLines = AuditLines(Mutex::new(Vec::new()), Condvar::new());

impl log::Log for AuditLines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target() == "audit" {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(record.args().to_string());
            self.1.notify_all();
        }
    }

    fn flush(&self) {}
}

impl AuditLines {
    /// Waits for a line that has all these words, and takes it and those before it.
    #[track_caller]
    fn take(&self, words: &[&str]) -> Vec<String> {
        let has = |line: &String| words.iter().all(|word| line.contains(word));
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, _) = self
            .1
            .wait_timeout_while(lines, Duration::from_secs(20), |lines| {
                !lines.iter().any(has)
            })
            .unwrap_or_else(PoisonError::into_inner);
        match lines.iter().position(has) {
            Some(at) => lines.drain(..=at).collect(),
            None => panic!("no line has {words:?}: {lines:#?}"),
        }
    }
}

struct Server {
    socket: PathBuf,
    conf: PathBuf,
}

/// The controller, which lives as long as the process. One test at a time uses it.
fn server() -> Option<(&'static Server, MutexGuard<'static, ()>)> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: nobody else can be played; this test looked at nothing");
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some((SERVER.get_or_init(start), turn))
}

fn start() -> Server {
    log::set_logger(&AUDIT).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS).unwrap();
    let dir = Path::new("/tmp").join(format!("muster-governance-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let conf = dir.join("slurm.conf");
    let pid_file = dir.join("run/ctld.pid");
    std::fs::write(&conf, text(&dir, "")).unwrap();
    let (report, _) = muster_conf::load(&conf);
    let socket =
        muster_conf::endpoint::controller_socket(&pid_file, *report.slurmctld_ports.start());
    let options = Options {
        conf: conf.clone(),
        clear: false,
        without_jobs: Vec::new(),
        patience: ClientTimeouts {
            first_request: Duration::from_secs(2),
            request: Duration::from_secs(2),
            idle: Duration::from_secs(2),
            answer: Duration::from_secs(2),
        },
        reopen_log: || Ok(()),
    };
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        run(&options, Arc::new(|_, _| None), move || {
            ready.send(()).unwrap()
        })
        .unwrap()
    });
    is_ready.recv_timeout(Duration::from_secs(60)).unwrap();
    let server = Server { socket, conf };
    // A controller that is ready answers by its configuration, from the first request on.
    match call(&server, &query(Query::Partitions)) {
        Response::Cluster(page) => assert_ne!(page.partitions, []),
        other => panic!("{other:?}"),
    }
    server
}

/// A port that was free a moment ago. By the default port another controller of this host may serve its clients.
static PORT: LazyLock<u16> = LazyLock::new(|| {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
});

fn text(dir: &Path, more: &str) -> String {
    let (dir, port) = (dir.display(), *PORT);
    format!(
        "{CONF}SlurmctldPort={port}\nStateSaveLocation={dir}/state\nSlurmctldPidFile={dir}/run/ctld.pid\n{more}\n"
    )
}

/// Runs `work` on a thread that is a user's.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let user = scope.spawn(move || {
            become_user(uid);
            work()
        });
        user.join().unwrap()
    })
}

#[allow(unsafe_code)]
fn become_user(uid: u32) {
    for call in [nix::libc::SYS_setresgid, nix::libc::SYS_setresuid] {
        // SAFETY: the bare system call changes the ids of this thread alone, which ends with its work.
        let result = unsafe { nix::libc::syscall(call, uid, uid, uid) };
        assert_eq!(result, 0);
    }
}

fn connect(server: &Server) -> UnixStream {
    let stream = UnixStream::connect(&server.socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

fn request(body: RequestBody) -> Request {
    Request {
        version: PROTOCOL,
        client: None,
        body,
    }
}

fn query(query: Query) -> Request {
    request(RequestBody::Query(Box::new(query)))
}

fn call(server: &Server, request: &Request) -> Response {
    let mut stream = connect(server);
    frame::write(&mut stream, request).unwrap();
    receive(&mut stream).unwrap()
}

fn receive(stream: &mut UnixStream) -> io::Result<Response> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; frame::length(header)?];
    stream.read_exact(&mut body)?;
    frame::decode(&body)
}

#[track_caller]
fn answers(server: &Server) {
    let begun = Instant::now();
    match call(server, &query(Query::Ping)) {
        Response::Pong(_) => {}
        other => panic!("{other:?}"),
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
}

fn diag(server: &Server) -> Diag {
    match call(server, &query(Query::Diag)) {
        Response::Diag(diag) => *diag,
        other => panic!("{other:?}"),
    }
}

/// Waits until the other side closes.
#[track_caller]
fn is_closed(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest);
    assert!(
        !matches!(&end, Err(e) if e.kind() == io::ErrorKind::WouldBlock),
        "the connection stays open"
    );
}

#[test]
fn connections_of_one_user_leave_room_for_root_and_others() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let (mut refused, held) = as_user(3001, || {
        let held: Vec<_> = (0..CONNECTIONS).map(|_| connect(server)).collect();
        (connect(server), held)
    });
    match receive(&mut refused).unwrap() {
        Response::Refused(refusal) => {
            assert_eq!(refusal.code, RefusalCode::Busy);
            assert!(refusal.detail.contains("connections"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    is_closed(&mut refused);
    answers(server);
    as_user(3002, || answers(server));
    assert!(
        diag(server).held_back.iter().any(|user| user.uid == 3001),
        "sdiag names the user"
    );
    // Those that never ask for anything are closed.
    for mut silent in held {
        is_closed(&mut silent);
    }
    as_user(3001, || answers(server));
}

/// Whether what is asked can be decoded or not.
#[test]
fn another_version_of_the_protocol_is_refused_by_name() {
    let Some((server, _turn)) = server() else {
        return;
    };
    for (version, todo) in [(0, "update the client"), (PROTOCOL + 1, "update slurmctld")] {
        let body = minicbor::to_vec((version, "what is this")).unwrap();
        let unknown = [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat();
        let ping = frame::encode(&Request {
            version,
            ..query(Query::Ping)
        });
        for said in [unknown, ping] {
            let mut stream = connect(server);
            stream.write_all(&said).unwrap();
            let Response::Refused(refusal) = receive(&mut stream).unwrap() else {
                panic!("version {version} is served");
            };
            assert_eq!(refusal.code, RefusalCode::ProtocolError);
            let both = [version, PROTOCOL].map(|version| format!("protocol {version}"));
            assert!(both.iter().all(|v| refusal.detail.contains(v)), "{refusal}");
            assert!(refusal.detail.contains(todo), "{refusal}");
        }
    }
    answers(server);
}

#[test]
fn half_a_request_is_not_waited_for() {
    let Some((server, _turn)) = server() else {
        return;
    };
    for sent in [&b"\0"[..], &[0, 0, 0, 9, 1, 2, 3], &[0, 16, 0, 0, 1]] {
        let mut half = as_user(3003, || connect(server));
        half.write_all(sent).unwrap();
        is_closed(&mut half);
    }
    answers(server);
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn large_half_requests_take_bounded_memory() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let before = peak_kib();
    as_user(3004, || {
        let most = muster_model::limits::REQUEST_BYTES_MAX;
        let header = u32::try_from(most - 1024).unwrap().to_be_bytes();
        let chunk = vec![0; 1 << 20];
        let mut all = Vec::new();
        for _ in 0..20 {
            let mut half = connect(server);
            half.write_all(&header).unwrap();
            // The controller does not read on when the user's room is taken.
            half.set_write_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            let mut sent = 0;
            while sent + chunk.len() < most - (1 << 20) {
                match half.write(&chunk) {
                    Ok(count) => sent += count,
                    Err(_) => break,
                }
            }
            all.push(half);
        }
        // Small requests of the same user need no room.
        answers(server);
    });
    as_user(3005, || answers(server));
    let grown = (peak_kib() - before) / 1024;
    assert!(grown < 200, "20 half requests of 40 MiB took {grown} MiB");
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let mut deaf = as_user(3006, || connect(server));
    deaf.set_nonblocking(true).unwrap();
    let bytes = frame::encode(&query(Query::Config));
    let begun = Instant::now();
    // It asks until nothing more is taken: answers fill one direction, then questions the other.
    let end = loop {
        match deaf.write(&bytes) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => break e.kind(),
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the connection stays open"
        );
    };
    assert!(
        matches!(
            end,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        ),
        "{end}"
    );
    answers(server);
}

#[test]
fn waits_are_bounded() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let id = as_user(3007, || {
        let script = BlobId([1; 32]);
        let spec = JobSpec {
            name: "waits".to_owned(),
            work_dir: "/tmp".to_owned(),
            script: Some(script),
            ..JobSpec::default()
        };
        let command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: vec![(script, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        };
        match call(server, &request(RequestBody::Command(Box::new(command)))) {
            Response::Reply(reply) => match *reply {
                muster_model::command::Reply::Submitted { id, .. } => id,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    });
    let mut stream = as_user(3007, || connect(server));
    let wait = |job: JobId| frame::encode(&request(RequestBody::WaitEnded(job)));
    for _ in 0..65 {
        stream.write_all(&wait(id)).unwrap();
    }
    match receive(&mut stream).unwrap() {
        Response::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::Busy),
        other => panic!("{other:?}"),
    }
    // A connection that waits is not idle.
    stream
        .set_read_timeout(Some(Duration::from_secs(4)))
        .unwrap();
    let idle = receive(&mut stream).unwrap_err();
    assert_eq!(idle.kind(), io::ErrorKind::WouldBlock, "it stays open");
}

#[test]
fn mail_addresses_that_are_options_are_refused() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let spec = JobSpec {
        name: "mail".to_owned(),
        work_dir: "/tmp".to_owned(),
        mail: MailOptions::of_texts("END".to_owned(), "-Ssendmail=EVIL".to_owned()),
        ..JobSpec::default()
    };
    let command = UserCommand::Submit {
        spec: Box::new(spec),
        blobs: Vec::new(),
        test_only: false,
    };
    let body = RequestBody::Command(Box::new(command));
    let answer = as_user(3008, || call(server, &request(body)));
    match answer {
        Response::Refused(refusal) => {
            assert_eq!(refusal.code, RefusalCode::InvalidValue);
            assert!(refusal.detail.contains("-Ssendmail=EVIL"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
}

fn command(command: UserCommand) -> Request {
    request(RequestBody::Command(Box::new(command)))
}

fn submit(spec: JobSpec, test_only: bool) -> Request {
    let script = BlobId([1; 32]);
    let spec = JobSpec {
        script: Some(script),
        work_dir: "/tmp".to_owned(),
        ..spec
    };
    command(UserCommand::Submit {
        spec: Box::new(spec),
        blobs: vec![(script, b"#!/bin/sh\n".to_vec().into())],
        test_only,
    })
}

#[track_caller]
fn submitted(response: &Response) -> JobId {
    match response {
        Response::Reply(reply) => match **reply {
            Reply::Submitted { id, .. } => id,
            _ => panic!("{reply:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_denied(response: &Response) {
    let is = match response {
        Response::Refused(refusal) => refusal.code == RefusalCode::AccessDenied,
        Response::Reply(reply) => {
            matches!(&**reply, Reply::Refused(refusal) if refusal.code == RefusalCode::AccessDenied)
        }
        _ => false,
    };
    assert!(is, "{response:?}");
}

/// Wherever it is found out that a right lacks.
#[test]
fn every_refusal_for_want_of_a_right_is_in_the_audit_log() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let bob = 3009;
    let owner = Owner {
        uid: 3010,
        user: "alice".to_owned(),
        ..Owner::default()
    };
    let other = JobSpec {
        name: "other".to_owned(),
        owner,
        ..JobSpec::default()
    };
    let class = JobClass {
        name: "nosuch".to_owned(),
        ..JobClass::default()
    };
    let classed = JobSpec {
        name: "classed".to_owned(),
        class: Some(Box::new(class)),
        ..JobSpec::default()
    };
    let interactive = JobSpec {
        name: "interactive".to_owned(),
        interactive: true,
        ..classed.clone()
    };
    let crontab = Query::Crontab { uid: Some(3010) };
    let shutdown = RequestBody::Shutdown { nodes: false };
    let asked = [
        (query(crontab.clone()), "CrontabOfOther \"crontab of 3010\""),
        (submit(other, true), "Submit \"JobName=other UserId=3010\""),
        (submit(classed, false), "Submit \"JobName=classed\""),
        (submit(interactive, false), "Submit \"JobName=interactive\""),
        (request(shutdown.clone()), "Shutdown \"controller\""),
    ];
    for (asked, words) in asked {
        let response = as_user(bob, || call(server, &asked));
        is_denied(&response);
        let lines = AUDIT.take(&["(3009) as user", words, "refused: \"Access"]);
        let own = lines.iter().filter(|line| line.contains("(3009)"));
        assert_eq!(own.count(), 1, "one line: {lines:#?}");
    }
    let token = RequestBody::Token {
        user: Some("root".to_owned()),
        lifespan_s: None,
    };
    as_user(bob, || call(server, &request(token)));
    AUDIT.take(&["(3009) as user", "TokenOfOther \"user root\": refused"]);
    // The connection of an agent may be somebody else's by now.
    let mut agent = connect(server);
    let serve = request(RequestBody::ServeNode("n1".to_owned()));
    frame::write(&mut agent, &serve).unwrap();
    frame::write(&mut agent, &request(shutdown)).unwrap();
    is_denied(&receive(&mut agent).unwrap());
    AUDIT.take(&["Shutdown \"controller\"", "for the agent of node n1"]);
    // Of a local client the process is known, of whom waits as well.
    let spec = JobSpec {
        name: "waited-for".to_owned(),
        ..JobSpec::default()
    };
    let job = submitted(&call(server, &submit(spec, false)));
    let wait = request(RequestBody::WaitStarted(job));
    is_denied(&as_user(bob, || call(server, &wait)));
    let from = format!(
        "(3009) as user from pid {}: WaitStarted",
        std::process::id()
    );
    AUDIT.take(&[&from, &format!("\"job {job}\": refused")]);
    // Reads of what is another's alone.
    let spec = JobSpec {
        name: "script".to_owned(),
        ..JobSpec::default()
    };
    let job = submitted(&as_user(bob, || call(server, &submit(spec, false))));
    let script = query(Query::Script(job));
    for uid in [bob, 0] {
        let response = as_user(uid, || call(server, &script));
        assert!(matches!(response, Response::Script(_)), "{response:?}");
    }
    // The environment may have secrets: its owner is refused only because there is none, others for want of a right.
    let environment = query(Query::Environment(job));
    let response = as_user(bob, || call(server, &environment));
    let is_missing = |why: &Refusal| why.detail.ends_with("has no environment");
    assert!(
        matches!(&response, Response::Refused(why) if is_missing(why)),
        "{response:?}"
    );
    is_denied(&as_user(bob + 1, || call(server, &environment)));
    let response = call(server, &query(crontab));
    assert!(matches!(response, Response::Crontab(None)), "{response:?}");
    let lines = AUDIT.take(&["as root", "CrontabOfOther", "done"]);
    let reads = lines.iter().filter(|line| line.contains("Script"));
    let reads: Vec<_> = reads.collect();
    assert!(
        matches!(reads[..], [line] if line.contains("as root") && line.contains(&format!("job {job}"))),
        "{lines:#?}"
    );
}

#[test]
fn a_flood_of_one_user_does_not_starve_others() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let load = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                become_user(3009);
                while !load() {
                    let _ = call(server, &query(Query::Jobs(Default::default())));
                }
            });
        }
        let slowest = as_user(3010, || {
            let once = |_| {
                let begun = Instant::now();
                call(server, &query(Query::Ping));
                begun.elapsed()
            };
            (0..200).map(once).max().unwrap()
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    });
}

#[test]
fn the_rate_limit_makes_users_wait_and_not_root() {
    let Some((server, _turn)) = server() else {
        return;
    };
    let dir = server.conf.parent().unwrap();
    let limits =
        "SlurmctldParameters=rl_enable,rl_bucket_size=5,rl_refill_rate=5,rl_refill_period=1";
    let reconfigure = |more: &str| {
        std::fs::write(&server.conf, text(dir, more)).unwrap();
        let command = RequestBody::Command(Box::new(UserCommand::Reconfigure));
        match call(server, &request(command)) {
            Response::Reply(_) => {}
            other => panic!("{other:?}"),
        }
    };
    reconfigure(limits);
    let took = |count: usize| {
        let begun = Instant::now();
        (0..count).for_each(|_| drop(call(server, &query(Query::Ping))));
        begun.elapsed()
    };
    let limited = as_user(3011, || took(15));
    let root = took(50);
    let other = as_user(3012, || took(3));
    reconfigure("");
    assert!(
        limited > Duration::from_millis(1500),
        "15 requests passed in {limited:?}"
    );
    assert!(
        root < limited && other < Duration::from_secs(1),
        "{root:?} {other:?}"
    );
    assert!(diag(server).held_back.iter().any(|user| user.uid == 3011));
}

#[test]
fn descriptors_that_clients_send_freeze_nothing() {
    use nix::sys::socket::{
        ControlMessage, MsgFlags, UnixAddr, sendmsg, setsockopt, sockopt::Linger,
    };
    use std::os::fd::AsRawFd;
    let Some((server, _turn)) = server() else {
        return;
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 20,
    };
    setsockopt(&slow, Linger, &linger).unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 64 << 10]).is_ok() {}
    let client = as_user(3013, || connect(server));
    let rights = [slow.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&rights)];
    let bytes = [io::IoSlice::new(b"\0")];
    let sent = sendmsg::<UnixAddr>(
        client.as_raw_fd(),
        &bytes,
        &control,
        MsgFlags::empty(),
        None,
    );
    if sent.is_ok() {
        // The controller's copy is the last one.
        drop(slow);
    }
    drop(client);
    answers(server);
    as_user(3014, || answers(server));
    drop(peer);
}
