//! Notices of jobs and nodes to addresses of the site: signed, in order, again until they are taken, over restarts.

use crate::cluster::Cluster;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: &str = "a key that nobody guesses";

/// A request that came.
struct Delivered {
    signature: String,
    body: String,
}

/// An address that takes notices, or does not.
struct Receiving {
    port: u16,
    /// What it answers.
    status: Arc<Mutex<&'static str>>,
    delivered: Receiver<Delivered>,
}

impl Receiving {
    fn at(listener: TcpListener) -> Receiving {
        let port = listener.local_addr().unwrap().port();
        let status = Arc::new(Mutex::new("200 OK"));
        let (sender, delivered) = channel();
        let answers = Arc::clone(&status);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if let Some(request) = read(&mut stream) {
                    let status = *answers.lock().unwrap();
                    let head = format!(
                        "HTTP/1.1 {status}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    );
                    let _ = stream.write_all(head.as_bytes());
                    if sender.send(request).is_err() {
                        return;
                    }
                }
            }
        });
        Receiving {
            port,
            status,
            delivered,
        }
    }

    fn answer(&self, status: &'static str) {
        *self.status.lock().unwrap() = status;
    }

    #[track_caller]
    fn next(&self) -> Delivered {
        let next = self.delivered.recv_timeout(Duration::from_secs(60));
        next.expect("a request comes")
    }

    /// Notices up to the first that fits, with those before it.
    #[track_caller]
    fn until(&self, mut fits: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            for notice in notices(&self.next()) {
                let is_last = fits(&notice);
                all.push(notice);
                if is_last {
                    return all;
                }
            }
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Delivered> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut signature) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "x-muster-signature" => signature = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Delivered { signature, body })
}

fn notices(delivered: &Delivered) -> Vec<Value> {
    let body: Value = serde_json::from_str(&delivered.body).unwrap();
    body["notices"].as_array().unwrap().clone()
}

fn is_end_of(job: u64) -> impl FnMut(&Value) -> bool {
    move |notice| notice["event"] == "job_ended" && notice["job"]["job_id"] == job
}

/// A cluster with a webhook to a port.
fn start(port: u16, more: &str) -> Cluster {
    let c = Cluster::start(1, 4);
    c.write("hook.key", &format!("{KEY}\n"));
    c.ok("chmod 600 hook.key");
    configure(
        &c,
        &format!("url http://127.0.0.1:{port}/hooks/secret\n{more}"),
    );
    c.ok("scontrol reconfigure");
    c
}

/// Writes webhooks.conf, with these lines of the webhook.
fn configure(c: &Cluster, lines: &str) {
    let key = c.dir.join("hook.key");
    let text = format!("webhook chat\nkey {}\n{lines}", key.display());
    std::fs::write(c.path("webhooks.conf"), text).unwrap();
}

fn log(c: &Cluster) -> String {
    std::fs::read_to_string(c.path("log/ctld.log")).unwrap()
}

#[test]
fn notices_are_signed_and_sent_again_until_they_are_taken() {
    let receiving = Receiving::at(TcpListener::bind("127.0.0.1:0").unwrap());
    receiving.answer("503 Service Unavailable");
    let events = "events job_submitted,job_started,job_ended,node_drain,node_up\n";
    let c = start(receiving.port, events);
    let job = c.sbatch("-J 'a \"name\"' -o /dev/null --wrap 'exit 3'");
    let first = receiving.next();
    let (time, digest) = first.signature.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    c.write("signed", &format!("{time}.{}", first.body));
    let openssl = format!("openssl dgst -sha256 -hmac '{KEY}' <signed | sed 's/.*= //'");
    assert_eq!(c.ok(&openssl), digest);
    let again = receiving.next();
    assert_eq!(notices(&first)[0]["id"], notices(&again)[0]["id"]);
    // A redirection is no success, and is not followed.
    receiving.answer("302 Found");
    let redirected = receiving.next();
    assert_eq!(notices(&first)[0]["id"], notices(&redirected)[0]["id"]);
    receiving.answer("204 No Content");
    let mut all = receiving.until(is_end_of(job));
    all.retain(|notice| notice["job"]["job_id"] == job);
    all.dedup_by_key(|notice| notice["id"].to_string());
    let names: Vec<&str> = all.iter().map(|n| n["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["job_submitted", "job_started", "job_ended"]);
    let last = &all[2]["job"];
    assert_eq!(
        (
            &last["name"],
            &last["state"],
            &last["exit_code"]["return_code"],
            &last["nodes"]
        ),
        (
            &"a \"name\"".into(),
            &"FAILED".into(),
            &3.into(),
            &"n1".into()
        )
    );
    c.ok("scontrol update nodename=n1 state=drain reason='bad disk'");
    let drained = receiving.until(|n| n["event"] == "node_drain");
    let drained = &drained.last().unwrap()["node"];
    assert_eq!(
        (&drained["name"], &drained["reason"]),
        (&"n1".into(), &"bad disk".into())
    );
    c.ok("scontrol update nodename=n1 state=resume");
    receiving.until(|n| n["event"] == "node_up");

    // Another address, once the configuration was read again; the log has no path, which may be a secret.
    let other = Receiving::at(TcpListener::bind("127.0.0.1:0").unwrap());
    configure(&c, &format!("url http://127.0.0.1:{}/\n", other.port));
    c.ok("scontrol reconfigure");
    let job = c.sbatch("-o /dev/null --wrap true");
    other.until(is_end_of(job));
    let log = log(&c);
    assert!(
        log.contains("answers 503") && !log.contains("hooks/secret"),
        "{log}"
    );
    configure(&c, "url gopher://x\n");
    let refused = c.run("scontrol reconfigure");
    assert_ne!(refused.code, 0, "{refused:?}");
}

#[test]
fn notices_that_were_not_sent_survive_a_controller_that_is_killed() {
    // Nobody listens there until the end.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let c = start(port, "events job_submitted,job_ended\n");
    let first = c.sbatch("-o /dev/null --wrap true");
    c.until("the job is over", || c.state(first) == "COMPLETED");
    c.kill(c.controller());
    // What was made of the journal and not written yet is as if the disk had lost it.
    c.ok("rm -f ../state/webhooks/chat.0*");
    let started = c.start_controller();
    assert_eq!(started.code, 0, "{started:?}");
    let second = c.sbatch("-o /dev/null --wrap true");
    c.until("the job is over", || c.state(second) == "COMPLETED");
    let receiving = Receiving::at(TcpListener::bind(("127.0.0.1", port)).unwrap());
    let all = receiving.until(is_end_of(second));
    let of = |job: u64| {
        let own = all.iter().filter(|notice| notice["job"]["job_id"] == job);
        own.map(|notice| notice["event"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of(first), of(second)),
        (
            vec!["job_submitted", "job_ended"],
            vec!["job_submitted", "job_ended"]
        )
    );
    // What was taken, and is noted as such, is not sent again by the next controller.
    let last = all.last().unwrap()["id"].as_str().unwrap().to_owned();
    c.until("it is noted", || {
        let done = std::fs::read_to_string(c.path("state/webhooks/chat.done"));
        done.is_ok_and(|done| done.trim() == last)
    });
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    let third = c.sbatch("-o /dev/null --wrap true");
    let all = receiving.until(is_end_of(third));
    assert!(
        all.iter().all(|notice| notice["job"]["job_id"] == third),
        "{all:?}"
    );
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let receiving = Receiving::at(TcpListener::bind("127.0.0.1:0").unwrap());
    let c = start(receiving.port, "");
    c.ok("chmod 640 hook.key");
    let job = c.sbatch("-o /dev/null --wrap true");
    c.until("the controller says so", || {
        log(&c).contains("nobody else may read")
    });
    assert!(receiving.delivered.try_recv().is_err());
    // Once it is as it must be, what waits is sent.
    c.ok("chmod 600 hook.key");
    receiving.until(is_end_of(job));
}

#[test]
fn traces_of_jobs_are_sent_to_a_collector() {
    let receiving = Receiving::at(TcpListener::bind("127.0.0.1:0").unwrap());
    let c = Cluster::start(1, 4);
    let address = format!("url http://127.0.0.1:{}/v1/traces\n", receiving.port);
    std::fs::write(
        c.path("webhooks.conf"),
        format!("webhook traces\nformat otlp\n{address}"),
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    let job = c.sbatch("-J traced -o /dev/null --wrap 'sleep 1; exit 3'");
    let mut spans = Vec::new();
    while !spans.iter().any(|span: &Value| span["name"] == "run") {
        let delivered = receiving.next();
        assert_eq!(delivered.signature, "");
        let body: Value = serde_json::from_str(&delivered.body).unwrap();
        for resource in body["resourceSpans"].as_array().unwrap() {
            let attributes = resource["resource"]["attributes"].to_string();
            assert!(attributes.contains("slurmctld"), "{attributes}");
            let own = resource["scopeSpans"][0]["spans"].as_array().unwrap();
            spans.extend(own.iter().cloned());
        }
    }
    let of = |name: &str| {
        let span = spans.iter().find(|span| span["name"] == name);
        span.unwrap_or_else(|| panic!("{name}: {spans:?}"))
    };
    let (whole, queue, run) = (of("job"), of("queue"), of("run"));
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(run, "endTimeUnixNano") - time(run, "startTimeUnixNano") >= 1_000_000_000);
    assert_eq!(queue["endTimeUnixNano"], run["startTimeUnixNano"]);
    assert_eq!(whole["startTimeUnixNano"], queue["startTimeUnixNano"]);
    for span in [queue, run] {
        assert_eq!(
            (&span["traceId"], &span["parentSpanId"]),
            (&whole["traceId"], &whole["spanId"])
        );
    }
    let attributes = whole["attributes"].to_string();
    assert!(
        attributes.contains("traced") && attributes.contains(&format!("\"{job}\"")),
        "{attributes}"
    );
    assert_eq!(whole["status"]["message"], "FAILED");
}
