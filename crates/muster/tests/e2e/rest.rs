//! slurmrestd before a real controller: requests over its socket, with tokens of users.

mod changes;
mod commands;
mod events;
mod listening;
mod long;
mod own_paths;
mod piped;
mod shapes;
mod unconfirmed;
mod verified;
mod versions;

mod audit;

use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// Users that every system has.
const OWNER: &str = "daemon";
const STRANGER: &str = "bin";

/// A cluster with a slurmrestd.
struct Rest {
    cluster: Cluster,
    daemon: Child,
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.body);
        parsed.unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The answer of a request that was carried out.
    #[track_caller]
    fn ok(&self) -> Value {
        let value = self.json();
        let errors = value["errors"].as_array().map(Vec::len);
        assert_eq!((self.status, errors), (200, Some(0)), "{self:?}");
        value
    }

    /// Slurm's number of the first error.
    #[track_caller]
    fn error(&self) -> i64 {
        let value = self.json();
        assert_ne!(self.status, 200, "{self:?}");
        value["errors"][0]["error_number"].as_i64().unwrap()
    }
}

impl Rest {
    /// A cluster whose users have tokens; none where there is only one user.
    fn start(lines: &str) -> Option<Rest> {
        Rest::start_beside(lines, &[])
    }

    /// The same, with other files beside slurm.conf.
    fn start_beside(lines: &str, files: &[(&str, &str)]) -> Option<Rest> {
        let cluster = Cluster::fresh();
        for (name, text) in files {
            cluster.write(name, text);
        }
        if cluster.ok("id -u") != "0" {
            eprintln!("not root: there is only one user; this test looked at nothing");
            return None;
        }
        cluster.ok("head -c 48 /dev/urandom | base64 > jwt.key; chmod 600 jwt.key; chmod 755 ..; chmod 1777 .");
        let key = cluster.dir.join("jwt.key");
        // Free a moment ago: by tokens the controller is reached over the network.
        let free = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
        let port = free.unwrap().local_addr().unwrap().port();
        let conf = format!(
            "ClusterName=c\nSlurmctldHost=localhost\nSlurmctldPort={port}\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}\n\
             AccountingStorageType=accounting_storage/slurmdbd\n{lines}",
            key.display()
        );
        cluster.write("given.conf", &conf);
        let file = cluster.dir.join("given.conf");
        cluster.up_again(&["-f", file.to_str().unwrap()]);
        let socket = cluster.dir.join("rest.socket");
        // It has no rights, and a token that is somebody's must not count.
        let script = format!(
            "exec setpriv --reuid=nobody --regid=nogroup --clear-groups slurmrestd -a rest_auth/jwt unix:{}",
            socket.display()
        );
        let daemon = cluster
            .command(&script)
            .env("SLURM_JWT", "of.somebody.else")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(cluster.dir.join("restd.log")).unwrap())
            .spawn()
            .unwrap();
        cluster.until("slurmrestd listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        Some(Rest { cluster, daemon })
    }

    fn token(&self, user: &str) -> String {
        let made = self.cluster.ok(&format!("scontrol token username={user}"));
        made.strip_prefix("SLURM_JWT=").unwrap().to_owned()
    }

    /// Sends bytes, and reads until the server closes.
    fn raw(&self, request: &[u8]) -> Answer {
        let socket = self.cluster.dir.join("rest.socket");
        let mut stream = UnixStream::connect(socket).unwrap();
        // It may answer and close before all has been written.
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = match body {
            "" => String::new(),
            body => format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            ),
        };
        self.raw(
            format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}{length}\r\n{body}")
                .as_bytes(),
        )
    }

    /// As a user, by a token.
    fn of(&self, user: &str) -> User<'_> {
        let token = self.token(user);
        User {
            rest: self,
            headers: format!("X-SLURM-USER-NAME: {user}\r\nX-SLURM-USER-TOKEN: {token}\r\n"),
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

struct User<'a> {
    rest: &'a Rest,
    headers: String,
}

impl User<'_> {
    fn get(&self, path: &str) -> Answer {
        self.rest.send("GET", path, &self.headers, "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.rest
            .send("POST", path, &self.headers, &body.to_string())
    }

    fn delete(&self, path: &str) -> Answer {
        self.rest.send("DELETE", path, &self.headers, "")
    }

    #[track_caller]
    fn submit(&self, job: Value) -> u64 {
        let body = json!({"script": "#!/bin/sh\nsleep 300\n", "job": job});
        let answer = self.post("/slurm/v0.0.43/job/submit", &body);
        answer.ok()["job_id"].as_u64().unwrap()
    }
}

/// The keys that each job needs.
fn job(more: Value) -> Value {
    let mut job = json!({"name": "j", "current_working_directory": "/tmp", "environment": ["PATH=/bin:/usr/bin"],
        "standard_output": "/dev/null"});
    for (key, value) in more.as_object().unwrap() {
        job[key] = value.clone();
    }
    job
}

const ONE_NODE: &str =
    "NodeName=n1 CPUs=4 RealMemory=1000\nPartitionName=batch Nodes=n1 Default=YES State=UP\n";

#[test]
fn jobs_are_submitted_shown_changed_and_ended_by_their_users() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, owner, stranger) = (&rest.cluster, rest.of(OWNER), rest.of(STRANGER));
    let out = c.dir.join("out").display().to_string();
    let script = "#!/bin/sh\nid -un; echo \"$1\"; echo \"$GIVEN\"; pwd; umask; env | grep -c SLURM_JWT; true\n";
    // All versions take both forms of the environment, and number objects.
    let body = json!({"script": script, "job": {
        "name": "first", "tasks": 1, "cwd": "/tmp", "environment": {"PATH": "/bin:/usr/bin", "GIVEN": 7},
        "standard_output": out, "argv": ["an argument"], "umask": "077", "time_limit": {"set": true, "number": 5},
    }});
    let answer = owner.post("/slurm/v0.0.38/job/submit", &body).ok();
    let id = answer["job_id"].as_u64().unwrap();
    assert_eq!(
        (&answer["step_id"], &answer["errors"]),
        (&json!("BATCH"), &json!([]))
    );
    c.until("the job is over", || c.state(id) == "COMPLETED");
    assert_eq!(c.read("out"), "daemon\nan argument\n7\n/tmp\n0077\n0\n");
    let shown = owner.get(&format!("/slurm/v0.0.38/job/{id}")).ok();
    let shown = &shown["jobs"][0];
    assert_eq!(
        (&shown["job_state"], &shown["time_limit"]),
        (&json!("COMPLETED"), &json!(5))
    );
    let shown = owner.get(&format!("/slurmdb/v0.0.43/job/{id}")).ok();
    let shown = &shown["jobs"][0];
    assert_eq!(
        (&shown["user"], &shown["state"]["current"]),
        (&json!(OWNER), &json!(["COMPLETED"]))
    );

    let waiting = owner.submit(job(
        json!({"hold": true, "comment": "a<b>\"&", "colour": 1}),
    ));
    let path = format!("/slurm/v0.0.43/job/{waiting}");
    let shown = owner.get(&path).ok();
    assert_eq!(
        (&shown["jobs"][0]["hold"], &shown["jobs"][0]["comment"]),
        (&json!(true), &json!("a<b>\"&"))
    );
    let changes = json!({"comment": "new", "time_limit": {"set": true, "number": 9}, "nice": 5, "memory_per_node": 100});
    owner.post(&path, &changes).ok();
    let fields = format!("squeue -h -j {waiting} -o '%k %l %y %m'");
    assert_eq!(c.ok(&fields), "new 9:00 5 100M");
    // Another user may not, and nothing happens.
    assert_eq!(
        stranger.post(&path, &json!({"comment": "mine"})).error(),
        2002
    );
    assert_eq!(stranger.delete(&path).error(), 2002);
    assert_eq!(c.ok(&fields), "new 9:00 5 100M");
    owner.post(&path, &json!({"hold": false})).ok();
    c.until_prints(&format!("squeue -h -j {waiting} -o %T"), "RUNNING");
    owner.delete(&format!("{path}?signal=KILL")).ok();
    c.until("the job is over", || {
        c.state(waiting).starts_with("CANCELLED")
    });
    owner.delete(&path).ok();

    // An array, and tasks of it by both ways of writing brackets.
    let array = owner.submit(job(json!({"array": "1-5", "hold": true})));
    owner
        .delete(&format!("/slurm/v0.0.43/job/{array}_[1-2]"))
        .ok();
    owner
        .delete(&format!("/slurm/v0.0.43/job/{array}_%5B4-5%5D"))
        .ok();
    assert_eq!(c.ok(&format!("squeue -h -r -j {array} -o %K")), "3");
    let others = stranger.submit(job(json!({"hold": true, "name": "other"})));
    let chosen = owner.delete("/slurm/v0.0.43/jobs?job_name=j").ok();
    assert_eq!(chosen["status"], json!([]));
    assert_eq!(c.ok("squeue -h -o %A"), others.to_string());
    let states = owner.get("/slurm/v0.0.43/jobs/state").ok();
    let last = states["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|job| job["job_id"] == others);
    assert_eq!(last.unwrap()["state"], json!(["PENDING"]));

    // A heterogeneous job: the script runs in the first component.
    let part = job(json!({"tasks": 1}));
    let body = json!({"script": "#!/bin/sh\nsleep 300\n", "jobs": [part, part]});
    let leader = owner.post("/slurm/v0.0.43/job/submit", &body).ok()["job_id"]
        .as_u64()
        .unwrap();
    let shown = owner.get(&format!("/slurm/v0.0.43/job/{leader}")).ok();
    assert_eq!(shown["jobs"].as_array().unwrap().len(), 2);
    owner.delete(&format!("/slurm/v0.0.43/job/{leader}")).ok();
}

#[test]
fn what_cannot_be_asked_is_refused_by_name() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    let submit = |body: Value| owner.post("/slurm/v0.0.43/job/submit", &body);
    let script = "#!/bin/sh\ntrue\n";
    let described = |answer: &Answer| {
        answer.json()["errors"][0]["description"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (key, value) in [
        ("user_id", json!(0)),
        ("group_id", json!("0")),
        ("admin_comment", json!("x")),
        ("job_id", json!(7)),
        ("site_factor", json!(5)),
        ("environment", json!("PATH=/bin")),
        ("environment", json!(["=x"])),
        ("current_working_directory", json!("relative")),
        ("argv", json!("x")),
        ("rlimits", json!({"nosuch": 1})),
        ("umask", json!("9")),
        ("shared", json!(["nobody"])),
        ("tres_per_job", json!("license/x:1")),
    ] {
        let answer = submit(json!({"script": script, "job": job(json!({key: value}))}));
        assert!(
            answer.status == 400 && described(&answer).contains(key),
            "{key}: {answer:?}"
        );
    }
    // What an option may not be is said in the option's words.
    let answer = submit(json!({"script": script, "job": job(json!({"time_limit": "soon"}))}));
    assert!(described(&answer).contains("time"), "{answer:?}");
    assert_eq!(submit(json!({"job": job(json!({}))})).error(), 2009);
    assert_eq!(
        submit(json!({"script": script, "job": {"current_working_directory": "/"}})).error(),
        2127
    );
    assert_eq!(
        submit(json!({"script": script, "job": {"environment": ["A=b"]}})).error(),
        2063
    );
    assert_eq!(
        submit(json!({"script": script, "job": job(json!({"partition": "nosuch"}))})).error(),
        2000
    );
    for body in ["true\n", "#!/bin/sh\r\ntrue\r\n", "#!/bin/sh\n\u{0}"] {
        let answer = submit(json!({"script": body, "job": job(json!({}))}));
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    for body in [json!([]), json!("x"), json!({"script": script, "jobs": []})] {
        assert_ne!(submit(body.clone()).status, 200, "{body}");
    }
    // Up to v0.0.38 a key that means nothing is an error; later it is a warning.
    let body = json!({"script": script, "job": job(json!({"colour": 1, "hold": true}))});
    assert_eq!(owner.post("/slurm/v0.0.38/job/submit", &body).status, 400);
    let warned = submit(body).ok();
    assert_eq!(warned["warnings"][0]["source"], "colour");
    assert_eq!(rest.cluster.ok("squeue -h -o %j"), "j");
    // Nothing that is said is not everything.
    assert_eq!(owner.delete("/slurm/v0.0.43/jobs").status, 400);
    assert_eq!(owner.delete("/slurm/v0.0.43/jobs?colour=x").status, 400);
    assert_eq!(
        rest.of("root")
            .delete("/slurmdb/v0.0.43/associations")
            .status,
        400
    );
    assert_eq!(rest.cluster.ok("squeue -h -o %j"), "j");
}

#[test]
fn who_asks_is_proved_by_a_token_alone() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let path = "/slurm/v0.0.43/jobs";
    let token = rest.token(OWNER);
    let with = |headers: &str| rest.send("GET", path, headers, "").status;
    assert_eq!(with(&format!("Authorization: Bearer {token}\r\n")), 200);
    assert_eq!(with(&format!("x-slurm-user-token: {token}\r\n")), 200);
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let stranger = rest.token(STRANGER);
    let other = stranger.rsplit_once('.').unwrap().0;
    let expired = rest
        .cluster
        .ok(&format!("scontrol token username={OWNER} lifespan=1"));
    let expired = expired.trim_start_matches("SLURM_JWT=").to_owned();
    // It has been good, so that a connection to the controller was made with it.
    let before = with(&format!("X-SLURM-USER-TOKEN: {expired}\r\n"));
    assert!(before == 200 || before == 401, "{before}");
    rest.cluster.until("a token expires", || {
        with(&format!("X-SLURM-USER-TOKEN: {expired}\r\n")) == 401
    });
    for headers in [
        String::new(),
        "X-SLURM-USER-NAME: root\r\n".to_owned(),
        "X-SLURM-USER-NAME: root\r\nX-SLURM-USER-TOKEN: x\r\n".to_owned(),
        format!("X-SLURM-USER-NAME: root\r\nX-SLURM-USER-TOKEN: {token}\r\n"),
        format!("X-SLURM-USER-NAME: {STRANGER}\r\nX-SLURM-USER-TOKEN: {token}\r\n"),
        // Claims of one with the signature of another.
        format!("X-SLURM-USER-TOKEN: {other}.{signature}\r\n"),
        format!("X-SLURM-USER-TOKEN: {signed}.\r\n"),
        format!("X-SLURM-USER-TOKEN: {signed}\r\n"),
        format!("X-SLURM-USER-TOKEN: {token}\r\nAuthorization: Bearer {token}\r\n"),
        format!("X-SLURM-USER-TOKEN: {token}\r\nX-SLURM-USER-TOKEN: {stranger}\r\n"),
        "Authorization: Basic cm9vdDo=\r\n".to_owned(),
    ] {
        assert_eq!(with(&headers), 401, "{headers}");
    }
}

/// Connections to the controller are kept between requests: one that began with a token of a key that was changed does not
/// serve for long, however often it is used.
#[test]
fn a_connection_ends_with_its_time() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    assert_eq!(owner.get("/slurm/v0.0.43/ping").status, 200);
    rest.cluster.ok("head -c 48 /dev/urandom | base64 >new.key; chmod 600 new.key; mv new.key jwt.key; scontrol reconfigure");
    rest.cluster
        .until("the token is not believed any more", || {
            owner.get("/slurm/v0.0.43/ping").status == 401
        });
    assert_eq!(rest.of(OWNER).get("/slurm/v0.0.43/ping").status, 200);
}

/// Asks over a socket without a token, and prints the first line of the answer.
const ASK: &str = "import socket,sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'GET /slurm/v0.0.43/ping HTTP/1.1\\r\\nHost: h\\r\\nConnection: close\\r\\n\\r\\n')
data = b''
while part := s.recv(4096): data += part
head, body = data.split(b'\\r\\n\\r\\n', 1)
print(head.split(b' ')[1].decode(), b'\"user\": \"nobody\"' in body)
";

#[test]
fn without_a_token_only_its_own_user_and_root_are_taken_as_its_own_user() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let c = &rest.cluster;
    c.write("ask.py", ASK);
    let socket = c.dir.join("local.socket");
    let daemon = c
        .command("exec setpriv --reuid=nobody --regid=nogroup --clear-groups slurmrestd -a local unix:$PWD/local.socket")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let local = Rest {
        cluster: Cluster::fresh(),
        daemon,
    };
    c.until("slurmrestd listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    // Not one of the user who runs the tests.
    let ask = "/usr/bin/python3 ask.py local.socket";
    assert_eq!(c.ok(ask), "200 True");
    let of = |user: &str| {
        c.ok(&format!(
            "setpriv --reuid={user} --regid=nogroup --clear-groups {ask}"
        ))
    };
    assert_eq!(of("nobody"), "200 True");
    assert_eq!(of(STRANGER), "401 False");
    drop(local);
}

#[test]
fn requests_of_any_form_leave_the_server_there() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let owner = rest.of(OWNER);
    let head = |first: &str| {
        format!(
            "{first}\r\nHost: h\r\nConnection: close\r\n{}\r\n",
            owner.headers
        )
    };
    let raw = |text: &str| rest.raw(text.as_bytes());
    for (path, status) in [
        ("/web/../../etc/passwd", 404),
        ("/slurm/v0.0.43/../../etc/passwd", 404),
        ("/slurm/v0.0.43/job/%2e%2e%2fetc", 500),
        ("/slurm/v0.0.43/job/%zz", 400),
        ("/slurm/v0.0.43/job/%00", 400),
        ("/slurm/v0.0.43/job/0", 500),
        ("/slurm/v0.0.43/job/99999999999999999999999", 500),
        ("/slurm/v0.0.43/node/n[1-100000000]", 500),
        ("/slurm/v0.0.43/node/%3Cscript%3E", 500),
        ("/slurm/v0.0.43/node/<script>", 400),
        ("/slurm/v0.0.99/jobs", 404),
        ("/slurm/v0.0.43/job/submit", 405),
        ("/slurmdb/v0.0.43/jobs?colour=1", 500),
        ("/slurmdb/v0.0.43/jobs?start_time=soon", 400),
    ] {
        let answer = owner.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE"] {
        let answer = raw(&head(&format!("{method} /slurm/v0.0.43/jobs HTTP/1.1")));
        assert_eq!(answer.status, 405, "{method}");
    }
    let get = |headers: &str| {
        let all = format!("{}{headers}", owner.headers);
        rest.send("GET", "/slurm/v0.0.43/ping", &all, "")
    };
    assert_eq!(get("Accept: text/plain\r\n").status, 415);
    let yaml = get("Accept: application/yaml\r\n");
    assert!(
        yaml.status == 200 && yaml.body.starts_with("---\npings:\n"),
        "{yaml:?}"
    );
    assert!(
        yaml.head.contains("content-type: application/yaml"),
        "{yaml:?}"
    );
    assert_eq!(
        rest.send("GET", "/slurm/v0.0.43/ping", &owner.headers, "{}")
            .status,
        400
    );
    let post = |headers: &str, body: &str| {
        let headers = format!("{}{headers}", owner.headers);
        rest.send("POST", "/slurm/v0.0.43/job/submit", &headers, body)
            .status
    };
    assert_eq!(post("", "{\"script\": "), 400);
    let deep = "[".repeat(100_000);
    assert_eq!(post("", &deep), 400);
    // A body that is said to be larger than any is not read; nor are headers without end.
    let large = head("POST /slurm/v0.0.43/job/submit HTTP/1.1");
    let large = large.replace("Connection: close", "Content-Length: 99999999999");
    assert_eq!(raw(&large).status, 413);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100_000));
    assert!(matches!(raw(&many).status, 431 | 400 | 0));
    for garbage in [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
    ] {
        assert!(
            matches!(raw(garbage).status, 400 | 404 | 401 | 0),
            "{garbage:?}"
        );
    }
    // Half of a request, and the other side goes away.
    for part in [1, 20, 60] {
        let whole = head("GET /slurm/v0.0.43/jobs HTTP/1.1");
        let mut stream = UnixStream::connect(rest.cluster.dir.join("rest.socket")).unwrap();
        stream.write_all(&whole.as_bytes()[..part]).unwrap();
    }
    owner.get("/slurm/v0.0.43/ping").ok();
}

#[test]
fn metrics_count_what_a_user_may_see() {
    let Some(rest) = Rest::start(&format!("{ONE_NODE}PrivateData=jobs\n")) else {
        return;
    };
    let (c, owner, stranger) = (&rest.cluster, rest.of(OWNER), rest.of(STRANGER));
    owner.submit(job(json!({"array": "1-3", "hold": true})));
    let runs = owner.submit(job(json!({"tasks": 2, "memory_per_node": 100})));
    c.until_prints(&format!("squeue -h -j {runs} -o %T"), "RUNNING");
    let text = |user: &User<'_>, page: &str| {
        let answer = user.get(page);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.head.contains("content-type: text/plain"),
            "{answer:?}"
        );
        answer.body
    };
    let value = |text: &str, name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
            .parse::<u64>()
            .unwrap()
    };
    let jobs = text(&owner, "/metrics/jobs");
    for (name, count) in [
        ("", 2),
        ("_pending", 3),
        ("_hold", 3),
        ("_running", 1),
        ("_cpus_alloc", 2),
        ("_memory_alloc", 100 << 20),
    ] {
        assert_eq!(value(&jobs, &format!("slurm_jobs{name}")), count, "{name}");
    }
    assert_eq!(value(&text(&stranger, "/metrics/jobs"), "slurm_jobs"), 0);
    let users = text(&owner, "/metrics/jobs-users-accts");
    assert_eq!(
        value(&users, "slurm_user_jobs_running{username=\"daemon\"}"),
        1
    );
    let nodes = text(&owner, "/metrics/nodes");
    assert_eq!(value(&nodes, "slurm_node_cpus_alloc{node=\"n1\"}"), 2);
    assert_eq!(
        (
            value(&nodes, "slurm_nodes"),
            value(&nodes, "slurm_nodes_mixed")
        ),
        (1, 1)
    );
    let partitions = text(&owner, "/metrics/partitions");
    assert_eq!(
        value(
            &partitions,
            "slurm_partition_nodes_cpus_idle{partition=\"batch\"}"
        ),
        2
    );
    let scheduler = text(&owner, "/metrics/scheduler");
    assert!(value(&scheduler, "slurm_sdiag_jobs_started") >= 1);
    assert!(text(&owner, "/metrics").contains("/metrics/jobs\n"));
    assert_eq!(owner.get("/metrics/nosuch").status, 404);
    assert_eq!(rest.send("GET", "/metrics/jobs", "", "").status, 401);
    // Every name once: Prometheus takes no page that has one twice.
    for page in [jobs, users, nodes, partitions, scheduler] {
        let mut names: Vec<&str> = page
            .lines()
            .filter_map(|l| l.strip_prefix("# TYPE "))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

#[test]
fn pages_come_from_this_server_alone() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    // Who has no token yet gets the files, in which nothing of the cluster is.
    let page = rest.send("GET", "/", "Accept: text/html\r\n", "");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.head.contains("content-type: text/html"), "{page:?}");
    let policy = "content-security-policy: default-src 'none'; script-src 'self'";
    assert!(page.head.contains(policy), "{page:?}");
    for (path, media_type) in [
        ("/web/style.css", "text/css"),
        ("/web/app.js", "text/javascript"),
        ("/web/plan.js", "text/javascript"),
    ] {
        let file = rest.send("GET", path, "", "");
        assert!(
            file.status == 200 && file.head.contains(media_type),
            "{path}"
        );
    }
    assert_eq!(rest.send("GET", "/web/nosuch", "", "").status, 401);
}

#[test]
fn accounting_is_kept_by_administrators() {
    let Some(rest) = Rest::start(ONE_NODE) else {
        return;
    };
    let (c, root, user) = (&rest.cluster, rest.of("root"), rest.of(STRANGER));
    let at = |path: &str| format!("/slurmdb/v0.0.43/{path}");
    let accounts = json!({"accounts": [{"name": "physics", "description": "all of it", "organization": "science"}]});
    assert_eq!(user.post(&at("accounts"), &accounts).error(), 2002);
    root.post(&at("accounts"), &accounts).ok();
    let association = json!({"associations": [{
        "account": "physics", "user": OWNER, "cluster": "c", "is_default": true, "shares_raw": 7,
        "max": {"jobs": {"active": {"set": true, "number": 3}}, "tres": {"per": {"job": [
            {"type": "cpu", "name": "", "id": 1, "count": 2}]}}},
    }]});
    root.post(&at("associations"), &association).ok();
    let line = format!(
        "sacctmgr -n -P show assoc where user={OWNER} format=account,user,share,maxjobs,maxtres"
    );
    assert_eq!(c.ok(&line), "physics|daemon|7|3|cpu=2");
    let shown = user.get(&at(&format!("associations?user={OWNER}"))).ok();
    let shown = &shown["associations"][0];
    assert_eq!(shown["max"]["jobs"]["active"]["number"], 3);
    assert_eq!(
        (&shown["shares_raw"], &shown["is_default"]),
        (&json!(7), &json!(true))
    );
    let qos = json!({"qos": [{"name": "fast", "priority": {"set": true, "number": 10}, "limits": {"max": {
        "wall_clock": {"per": {"job": {"set": true, "number": 60}}}}}}]});
    root.post(&at("qos"), &qos).ok();
    assert_eq!(
        c.ok("sacctmgr -n -P show qos fast format=name,priority,maxwall"),
        "fast|10|01:00:00"
    );
    let users = json!({"users": [{"name": OWNER, "administrator_level": ["Operator"]}]});
    root.post(&at("users"), &users).ok();
    assert_eq!(
        c.ok(&format!("sacctmgr -n -P show user {OWNER} format=admin")),
        "Operator"
    );
    let shown = user.get(&at(&format!("user/{OWNER}"))).ok();
    assert_eq!(shown["users"][0]["associations"][0]["account"], "physics");
    assert_eq!(user.get(&at("user/nosuch")).error(), 9003);
    assert_eq!(user.delete(&at(&format!("user/{OWNER}"))).error(), 2002);
    root.delete(&at(&format!("association?account=physics&user={OWNER}")))
        .ok();
    assert_eq!(c.ok(&line), "");
    // A name that is there twice is made once; what is not read is named.
    let twice = json!({"accounts": [{"name": "chem", "description": "a", "flags": ["DELETED"]},
        {"name": "chem", "description": "b", "associations": []}]});
    let warned = root.post(&at("accounts"), &twice).ok();
    let sources: Vec<&Value> = warned["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| &w["source"])
        .collect();
    assert_eq!(sources, ["flags"]);
    assert_eq!(c.ok("sacctmgr -n -P show account chem format=descr"), "b");
    let unread = json!({"associations": [{"account": "chem", "user": STRANGER, "comment": "x",
        "max": {"jobs": {"accruing": {"set": true, "number": 3}, "total": {"set": false}}}}]});
    let warned = root.post(&at("associations"), &unread).ok();
    let sources: Vec<&Value> = warned["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| &w["source"])
        .collect();
    assert_eq!(sources, ["comment", "max/jobs/accruing"]);
    root.delete(&at("associations?account=chem")).ok();
    let both = json!({"association_condition": {"accounts": ["physics"], "users": [STRANGER, OWNER],
        "association": {"fairshare": 3}}});
    assert_eq!(user.post(&at("users_association"), &both).error(), 2002);
    let added = root.post(&at("users_association"), &both).ok();
    assert_eq!(added["added_users"], format!("{STRANGER}\n{OWNER}"));
    assert_eq!(c.ok(&line), "physics|daemon|3||");
    root.delete(&at("associations?account=physics&user=daemon,bin"))
        .ok();
    let more = json!({"association_condition": {"accounts": ["optics"], "association": {"parent": "physics"}},
        "account": {"description": "light"}});
    root.post(&at("accounts_association"), &more).ok();
    assert_eq!(
        c.ok("sacctmgr -n -P show account optics format=descr"),
        "light"
    );
    root.delete(&at("account/optics")).ok();
    root.delete(&at("qos/fast")).ok();
    root.delete(&at("account/physics")).ok();
    let left = user.get(&at("accounts")).ok();
    let names: Vec<&Value> = left["accounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["name"])
        .collect();
    assert_eq!(names, ["root"]);
}

#[test]
fn the_daemon_is_nobody_and_refuses_what_it_does_not_know() {
    let c = Cluster::start(1, 1);
    let refused = |args: &str, text: &str| {
        let ran = c.run(&format!("timeout 20 slurmrestd {args} < /dev/null"));
        assert!(ran.code == 1 && ran.err.contains(text), "{args}: {ran:?}");
    };
    if c.ok("id -u") == "0" {
        refused("unix:$PWD/s", "should not be run as the root user");
    }
    refused("nonsense", "invalid address 'nonsense'");
    refused("-a nosuch :1", "no way of authentication 'nosuch'");
    refused("-s nosuch :1", "no part of the API 'nosuch'");
    refused("-d v0.0.1 :1", "no data parser 'v0.0.1'");
    refused("-t 1 :1", "expected a number from 2 to 1024");
    refused("-u nosuchuser unix:$PWD/s", "there is no such user");
    refused("", "there is nowhere to listen");
    assert!(c.run("slurmrestd -a list").err.contains("rest_auth/jwt"));
    assert!(
        c.run("slurmrestd -d list")
            .err
            .contains("data_parser/v0.0.43")
    );
    let described = c.ok("slurmrestd --generate-openapi-spec");
    let described: Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described["openapi"], "3.0.3");
    assert!(described["paths"]["/slurm/v0.0.43/jobs"]["get"].is_object());
}
