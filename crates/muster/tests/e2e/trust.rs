//! Who may do what, and what a user's process is left with.

use crate::cluster::{Cluster, ran};
use muster_proto::PROTOCOL;
use muster_proto::client::{Query, Request, RequestBody, Response};
use muster_proto::frame;
use muster_proto::node::NodeHello;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Runs a command as `nobody`.
fn as_nobody(c: &Cluster, script: &str) -> crate::cluster::Ran {
    let quoted = script.replace('\'', "'\\''");
    ran(c
        .command(&format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '{quoted}'"
        ))
        .output()
        .unwrap())
}

#[test]
fn tasks_run_as_the_user_with_nothing_left_of_root() {
    let c = Cluster::start(1, 2);
    if !c.ok("id -u").eq("0") {
        eprintln!("not root: one user only, nothing to drop; this test looked at nothing");
        return;
    }
    c.ok("chmod 1777 . && chmod 755 ..");
    let script = "id -u; id -g; grep -E \"^(CapEff|CapPrm|CapInh|NoNewPrivs|Groups)\" /proc/self/status; ls -l /proc/self/fd | wc -l";
    let submitted = as_nobody(&c, &format!("sbatch -W -o nobody.out --wrap '{script}'"));
    assert_eq!(submitted.code, 0, "{submitted:?}");
    let stepped = as_nobody(&c, &format!("srun bash -c '{script}'"));
    for out in [c.read("nobody.out"), stepped.out] {
        assert!(out.starts_with("65534\n65534\n"), "{out}");
        for caps in ["CapEff", "CapPrm", "CapInh"] {
            assert!(out.contains(&format!("{caps}:\t0000000000000000")), "{out}");
        }
        assert!(
            out.lines().last().unwrap().parse::<u32>().unwrap() <= 6,
            "descriptors leak: {out}"
        );
    }
    assert_eq!(c.ok("stat -c %u nobody.out"), "65534");
}

#[test]
fn users_touch_only_their_own_jobs() {
    let c = Cluster::start(1, 2);
    if !c.ok("id -u").eq("0") {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return;
    }
    c.ok("chmod 755 ..");
    let job = c.sbatch("-H -o /dev/null --wrap true");
    for denied in [
        format!("scancel {job}"),
        format!("scontrol hold {job}"),
        format!("scontrol update jobid={job} priority=5"),
        "scontrol update nodename=n1 state=drain reason=x".to_owned(),
        "scontrol reconfigure".to_owned(),
        "scontrol shutdown".to_owned(),
        format!("scontrol write batch_script {job} -"),
    ] {
        let ran = as_nobody(&c, &denied);
        assert!(
            ran.code != 0 && (ran.err.contains("denied") || ran.err.contains("Invalid user id")),
            "{denied}: {ran:?}"
        );
    }
    assert_eq!(c.ok(&format!("squeue -h -j {job},{job} -o %T")), "PENDING");
    let other = as_nobody(&c, "scancel -u root; scancel --state=PENDING");
    assert_eq!(
        c.ok(&format!("squeue -h -j {job},{job} -o %T")),
        "PENDING",
        "{other:?}"
    );
}

/// Says these things on a new connection to the controller, as the user of this process; gives all answers.
fn answers(socket: &Path, bodies: Vec<RequestBody>) -> Vec<Response> {
    let mut stream = UnixStream::connect(socket).unwrap();
    for body in bodies {
        let version = PROTOCOL;
        // The controller may have closed the connection by now.
        let _ = frame::write(
            &mut stream,
            &Request {
                version,
                body,
                client: None,
            },
        );
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    std::iter::from_fn(|| frame::read(&mut stream).ok()).collect()
}

/// As many connections of users as the kernel takes wait while the controller accepts none: an agent waits with none of them.
#[test]
fn agents_do_not_wait_behind_users() {
    let c = Cluster::start(1, 1);
    let socket = c.ok("ls -d ../run/muster-ctld.*/socket");
    let socket = c.path(socket.trim_start_matches("../"));
    let daemons = socket.with_file_name("daemons");
    let mode = std::fs::metadata(&daemons).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    if c.ok("id -u").eq("0") {
        let path = daemons.display();
        let script = format!("import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\")");
        c.ok("chmod 755 ..");
        let denied = as_nobody(&c, &format!("python3 -c '{script}' 2>&1 || true"));
        assert!(denied.out.contains("PermissionError"), "{denied:?}");
    }
    let pid = c.controller();
    c.ok(&format!("kill -STOP {pid}"));
    let connect = |path: &Path| {
        let kind = SockType::Stream;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let own = nix::sys::socket::socket(AddressFamily::Unix, kind, flags, None).unwrap();
        nix::sys::socket::connect(own.as_raw_fd(), &UnixAddr::new(path).unwrap()).map(|()| own)
    };
    let waiting: Vec<_> = std::iter::from_fn(|| connect(&socket).ok())
        .take(10_000)
        .collect();
    let full = connect(&socket).map(drop);
    let agent = connect(&daemons);
    c.ok(&format!("kill -CONT {pid}"));
    assert_eq!(full, Err(Errno::EAGAIN), "{} wait", waiting.len());
    assert!(agent.is_ok(), "{agent:?}");
    drop(waiting);
    let hello = |name: &str| RequestBody::ServeNode(name.to_owned());
    let said = vec![hello("n1"), RequestBody::Query(Box::new(Query::Config))];
    let all = answers(&daemons, said);
    assert!(matches!(all[..], [Response::Refused(_)]), "{all:?}");
}

#[test]
fn an_agents_connection_is_good_for_nothing_else() {
    let c = Cluster::start(1, 1);
    let socket = c.ok("ls -d ../run/muster-ctld.*/socket");
    let socket = c.path(socket.trim_start_matches("../"));
    let hello = |node: &str| {
        RequestBody::NodeHello(Box::new(NodeHello {
            name: node.to_owned(),
            info: Default::default(),
            present: Vec::new(),
            key: vec![7; 32].into(),
            launcher_key: vec![8; 32].into(),
            dynamic: None,
        }))
    };
    let serve = |node: &str| RequestBody::ServeNode(node.to_owned());
    let config = || RequestBody::Query(Box::new(Query::Config));
    assert!(matches!(
        answers(&socket, vec![config()])[..],
        [Response::Config(_)]
    ));
    // What the supervisor has said cannot be taken back, whoever the kernel says it is.
    for body in [
        config(),
        hello("n2"),
        serve("n2"),
        RequestBody::Shutdown { nodes: true },
    ] {
        let said = vec![serve("n1"), body.clone(), config()];
        let all = answers(&socket, said);
        let [Response::Refused(refusal)] = &all[..] else {
            panic!("{body:?}: {all:?}");
        };
        assert!(refusal.detail.contains("agent of node n1"), "{refusal:?}");
    }
    // Nor are they as many as the agent likes: the controller's descriptors are everybody's.
    let connect = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let (version, body) = (PROTOCOL, serve("n2"));
        frame::write(
            &mut stream,
            &Request {
                version,
                body,
                client: None,
            },
        )
        .unwrap();
        stream
    };
    let many: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    let mut fds: Vec<PollFd> = many
        .iter()
        .map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
        .collect();
    let refused = poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap();
    assert!(refused > 0, "all are served");
    drop(many);
    c.ok("srun -n1 true");
    let own = answers(&socket, vec![serve("n1"), hello("n1")]);
    assert!(matches!(own.first(), Some(Response::Welcome(_))), "{own:?}");
}
