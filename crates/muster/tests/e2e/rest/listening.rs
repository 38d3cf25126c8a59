//! Where slurmrestd listens, as which user it answers, and which parts of the API.

use crate::cluster::Cluster;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// As systemd does: makes a socket of each kind, and becomes slurmrestd.
const ACTIVATE: &str = "
import os, socket, sys
at, port = sys.argv[1], int(sys.argv[2])
sockets = [socket.socket(socket.AF_UNIX), socket.socket()]
sockets[0].bind(at)
sockets[1].bind(('127.0.0.1', port))
os.chmod(at, 0o666)
for one in sockets:
    one.listen(16)
given = [os.dup2(one.fileno(), 20 + n) for n, one in enumerate(sockets)]
for n, fd in enumerate(given):
    os.dup2(fd, 3 + n, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)))
os.execvp(sys.argv[3], sys.argv[3:])
";

/// The status of the answer to a path, and whose the daemon is.
const ASK: &str = "
import http.client, socket, sys
class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
where = Local('localhost') if '/' in sys.argv[1] else http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))
where.request('GET', sys.argv[2])
answer = where.getresponse()
print(answer.status, b'\"user\": \"nobody\"' in answer.read())
";

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

struct Daemon<'c> {
    cluster: &'c Cluster,
    process: Child,
}

impl Daemon<'_> {
    fn start<'c>(cluster: &'c Cluster, script: &str) -> Daemon<'c> {
        let mut command = cluster.command(script);
        let log = std::fs::File::create(cluster.dir.join("restd.log")).unwrap();
        let process = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        Daemon { cluster, process }
    }

    fn ask(&self, at: &str, path: &str) -> String {
        self.cluster
            .ok(&format!("/usr/bin/python3 ask.py {at} {path}"))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A cluster where this runs as root, which alone may become others.
fn cluster() -> Option<Cluster> {
    let c = Cluster::start(1, 1);
    if c.ok("id -u") != "0" {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return None;
    }
    c.ok("chmod 755 ..; chmod 1777 .");
    c.write("activate.py", ACTIVATE);
    c.write("ask.py", ASK);
    Some(c)
}

const AS_NOBODY: &str = "setpriv --reuid=nobody --regid=nogroup --clear-groups";
const PING: &str = "/slurm/v0.0.43/ping";

#[test]
fn sockets_of_systemd_are_used_in_place_of_the_usual_addresses() {
    let Some(c) = cluster() else { return };
    let (socket, usual) = (c.dir.join("given.socket"), c.dir.join("usual.socket"));
    let [port, more] = [(); 2].map(|()| free_port());
    let daemon = Daemon::start(
        &c,
        &format!(
            "export SLURMRESTD_LISTEN=unix:{}; exec {AS_NOBODY} /usr/bin/python3 activate.py {} {port} slurmrestd -a local localhost:{more}",
            usual.display(),
            socket.display()
        ),
    );
    c.until("it answers", || UnixStream::connect(&socket).is_ok());
    assert_eq!(daemon.ask(socket.to_str().unwrap(), PING), "200 True");
    // A connection of a network proves nothing by itself; the path is asked for all the same.
    assert_eq!(daemon.ask(&port.to_string(), PING), "401 False");
    assert_eq!(daemon.ask(&port.to_string(), "/livez"), "204 False");
    c.until("the address of the command line is there", || {
        TcpStream::connect(("127.0.0.1", more)).is_ok()
    });
    assert!(!usual.exists());
}

#[test]
fn it_becomes_the_user_and_group_of_its_options() {
    let Some(c) = cluster() else { return };
    let socket = c.dir.join("own.socket");
    let at = socket.display();
    let daemon = Daemon::start(
        &c,
        &format!("exec slurmrestd -u nobody -g daemon -a rest_auth/local unix:{at}"),
    );
    let status = format!("/proc/{}/status", daemon.process.id());
    let ids = |name: &str| {
        let text = std::fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    c.until("it is another", || ids("Uid:")[0] != "0");
    c.until("it answers", || UnixStream::connect(&socket).is_ok());
    let [user, group] =
        ["id -u nobody", "getent group daemon | cut -d: -f3"].map(|line| c.ok(line));
    assert_eq!(ids("Uid:"), vec![user; 4]);
    assert_eq!(ids("Gid:"), vec![group.clone(); 4]);
    assert_eq!(ids("Groups:"), [group]);
    assert_eq!(daemon.ask(&at.to_string(), PING), "200 True");
}

#[test]
fn parts_and_versions_that_are_not_chosen_are_not_served() {
    let Some(c) = cluster() else { return };
    let socket = c.dir.join("some.socket");
    let at = socket.to_str().unwrap();
    let daemon = Daemon::start(
        &c,
        &format!(
            "exec {AS_NOBODY} slurmrestd -a local -s openapi/slurmctld -d v0.0.43,latest unix:{at}"
        ),
    );
    c.until("it answers", || UnixStream::connect(&socket).is_ok());
    assert_eq!(daemon.ask(at, PING), "200 True");
    for path in [
        "/slurm/v0.0.41/ping",
        "/slurmdb/v0.0.43/jobs",
        "//slurmdb/v0.0.43/jobs",
        "/slurm%64b/v0.0.43/jobs",
    ] {
        assert_eq!(daemon.ask(at, path), "404 False", "{path}");
    }
    assert_eq!(daemon.ask(at, "/muster/v1/queue"), "200 True");
    // The description has what is served, and nothing else.
    let spec = "slurmrestd -s openapi/slurmctld -d v0.0.43,latest --generate-openapi-spec";
    let described: serde_json::Value = serde_json::from_str(&c.ok(spec)).unwrap();
    let paths = described["paths"].as_object().unwrap();
    assert!(!paths.keys().any(|path| path.starts_with("/slurmdb/")));
    let own_streams = ["/muster/v1/events"];
    for (path, methods) in paths {
        // Pages and streams are no documents.
        let is_text = !path.contains("/v0.0.") && !path.starts_with("/muster/v1/");
        if methods.get("get").is_none() || is_text || own_streams.contains(&path.as_str()) {
            continue;
        }
        let one = path.replace(['{', '}'], "");
        let answered = daemon.ask(at, &one);
        let unknown_job = path.contains('{') && answered.starts_with("404");
        assert!(
            !answered.starts_with("404 False") || unknown_job,
            "{path}: {answered}"
        );
        assert!(!answered.starts_with("405"), "{path}: {answered}");
    }
    assert_eq!(daemon.ask(at, "/openapi/v0.0.41"), "404 False");
}
