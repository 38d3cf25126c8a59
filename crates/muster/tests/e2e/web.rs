//! From `muster up` to the pages in a browser.

use crate::cluster::{Cluster, alive};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// The server's answer; nothing while it does not listen.
fn get(place: &str, path: &str, token: &str) -> String {
    let mut answer = String::new();
    let Ok(mut stream) = TcpStream::connect(place.trim_start_matches("http://")) else {
        return answer;
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_cluster_with_tokens_is_shown_to_its_user() {
    let c = Cluster::fresh();
    c.up_again(&["-n", "1", "-c", "1", "--web"]);
    // Others on this host must be able to reach the socket's directory: the server is nobody.
    let is_root = c.ok("id -u") == "0";
    c.ok("chmod 755 ..");
    let key = c.path("jwt.key").display().to_string();
    assert_eq!(c.ok(&format!("stat -c %a {key}")), "600");
    // The controller listens at this host alone.
    let port = c.ok("scontrol show config | sed -n 's/^SlurmctldPort *= //p'");
    let hex = format!(":{:04X} ", port.parse::<u16>().unwrap());
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = listening.lines().find(|line| line.contains(&hex)).unwrap();
    assert!(line.contains("0100007F:"), "{line}");
    let mut web = Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("web")
        .env("MUSTER_HOME", c.path(""))
        .env_remove("SLURM_CONF")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(web.stdout.take().unwrap()).lines();
    let address = printed.find_map(|line| {
        let line = line.unwrap();
        line.trim()
            .starts_with("http://")
            .then(|| line.trim().to_owned())
    });
    let address = address.unwrap();
    let (place, token) = address.split_once("/#token=").unwrap();
    let pong = || get(place, "/slurm/v0.0.43/ping", token);
    c.until("the pages are served", || pong().contains("\"UP\""));
    assert!(get(place, "/", "").contains("/web/app.js"));
    if is_root {
        let pid = web.id();
        assert_eq!(c.ok(&format!("ps -o user= -p {pid}")), "nobody");
    }
    let pid = i32::try_from(web.id()).unwrap();
    c.ok(&format!("kill -INT {pid}"));
    web.wait().unwrap();
    assert!(!alive(pid));
}

/// Its tokens come with `muster up --web`, which is said where there are none.
#[test]
fn a_cluster_without_tokens_says_what_it_lacks() {
    let c = Cluster::start(1, 1);
    let refused = c.muster("web", &[]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("muster up --web"),
        "{why}"
    );
    let running = c.muster("up", &["--web"]);
    let why = String::from_utf8_lossy(&running.stderr).into_owned();
    assert!(
        !running.status.success() && why.contains("muster down"),
        "{why}"
    );
    assert!(c.muster("down", &[]).status.success());
    c.up_again(&["--web"]);
    assert!(
        c.ok("scontrol token lifespan=60")
            .starts_with("SLURM_JWT=ey")
    );
    // Its settings stay with it.
    assert!(c.muster("down", &[]).status.success());
    c.up_again(&[]);
    c.ok("scontrol token lifespan=60");
}
