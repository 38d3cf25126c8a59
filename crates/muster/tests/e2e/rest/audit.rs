//! What the audit log has of clients of slurmrestd, and of hosts that have no user.

use super::*;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// What slurmrestd asked was slurmrestd's, as far as the audit log said, and refused attempts to join were nowhere.
#[test]
fn the_audit_log_has_clients_of_slurmrestd_and_hosts_that_join() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let c = &rest.cluster;
    let job = rest.of(OWNER).submit(job(json!({"hold": true})));
    // As inetd gives it the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let script =
        "exec setpriv --reuid=nobody --regid=nogroup --clear-groups slurmrestd -a rest_auth/jwt";
    let mut daemon = c
        .command(script)
        .stdin(Stdio::from(OwnedFd::from(server)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let token = rest.token(STRANGER);
    let request = format!(
        "DELETE /slurm/v0.0.43/job/{job} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n"
    );
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    daemon.wait().unwrap();

    let conf = c.read("given.conf");
    let port = conf.split_once("SlurmctldPort=").unwrap().1;
    let port: u16 = port.lines().next().unwrap().parse().unwrap();
    let credential = b"no token";
    let exchange = [0; 48];
    let mut opening = b"muster/1".to_vec();
    opening.push(6);
    for part in [&credential[..], &exchange] {
        opening.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
        opening.extend(part);
    }
    // Ten are answered, and the others are over what an address has.
    for _ in 0..12 {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stranger.write_all(&opening).unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
    }

    let log = || std::fs::read_to_string(c.path("log/ctld.log")).unwrap();
    let cancel = format!(" for 127.0.0.1: Cancel \"job {job}\": refused: ");
    c.until("the refused cancel is there", || log().contains(&cancel));
    c.until("the refused join is there", || {
        log().contains("audit: no user from 127.0.0.1: JoinNode \"\": refused: ")
    });
    let joins = "audit: no user from 127.0.0.1: JoinNode \"\": refused: ";
    c.until("each attempt is there", || {
        log().matches(joins).count() == 12
    });
    let log = log();
    let lines = log.lines().filter(|line| line.contains(joins));
    let over = lines.filter(|line| line.contains("too many attempts to join"));
    assert_eq!(over.count(), 2);
}

/// Requests that need no token, and the connections themselves, wrote lines without end.
#[test]
fn strangers_write_few_lines_to_the_log() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let began = std::time::Instant::now();
    let last = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    for (status, first, count) in [
        (204, "GET /livez HTTP/1.1\r\nHost: h\r\n", 400),
        (200, "GET /web/ HTTP/1.1\r\nHost: h\r\n", 100),
        (405, "PUT /nosuch HTTP/1.1\r\nHost: h\r\n", 400),
        (
            415,
            "GET /nosuch HTTP/1.1\r\nHost: h\r\nAccept: text/x\r\n",
            100,
        ),
    ] {
        let many = format!("{first}\r\n").repeat(count) + last;
        assert_eq!(rest.raw(many.as_bytes()).status, status, "{first}");
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    let owner = rest.of(OWNER);
    for _ in 0..30 {
        owner.get("/slurm/v0.0.43/ping").ok();
    }
    let log = rest.cluster.read("restd.log");
    let lines = |word: &str| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!(lines("GET /slurm/v0.0.43/ping -> 200"), 30, "{log}");
    assert_eq!(lines("] debug"), 0, "{log}");
    let of_strangers = log.lines().count() - 30;
    assert!(
        of_strangers <= 10 * (seconds + 2),
        "{of_strangers} in {seconds} s"
    );
}
