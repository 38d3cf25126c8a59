//! The event stream: what a page reads while jobs go their way, what it does not, and how it goes on where it was.

use super::{ONE_NODE, OWNER, Rest, STRANGER, User, job};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A page that follows.
struct Page {
    lines: BufReader<UnixStream>,
    /// What it has of an event.
    event: (String, String),
    /// The id of the last event.
    last: String,
}

impl Page {
    fn open(user: &User<'_>, query: &str, headers: &str) -> Page {
        let socket = user.rest.cluster.dir.join("rest.socket");
        let mut stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let head = format!(
            "GET /muster/v1/events{query} HTTP/1.1\r\nHost: h\r\n{}{headers}\r\n",
            user.headers
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut page = Page {
            lines: BufReader::new(stream),
            event: Default::default(),
            last: String::new(),
        };
        let mut text = page.line();
        assert!(text.contains("200"), "{text}");
        let mut is_stream = false;
        while !text.is_empty() {
            text = page.line();
            is_stream |= text.eq_ignore_ascii_case("content-type: text/event-stream");
        }
        assert!(is_stream);
        page
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(
            self.lines.read_line(&mut line).unwrap(),
            0,
            "the stream ends"
        );
        line.trim_end().to_owned()
    }

    /// The next event: its kind and data. Lengths of parts are no lines of events.
    fn next(&mut self) -> (String, Value) {
        loop {
            let line = self.line();
            if let Some(id) = line.strip_prefix("id: ") {
                self.last = id.to_owned();
            } else if let Some(kind) = line.strip_prefix("event: ") {
                self.event.0 = kind.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let kind = std::mem::take(&mut self.event.0);
                return (kind, serde_json::from_str(data).unwrap());
            }
        }
    }

    /// Reads until a job has changed so.
    fn until(&mut self, job: u64, change: &str) -> Value {
        loop {
            let (kind, data) = self.next();
            if kind == "job" && data["job_id"] == json!(job) && data["change"] == json!(change) {
                return data;
            }
        }
    }
}

#[test]
fn pages_follow_what_changes_and_go_on_where_they_were() {
    let Some(rest) = Rest::start(&format!("PrivateData=jobs\n{ONE_NODE}")) else {
        return;
    };
    let (owner, stranger) = (rest.of(OWNER), rest.of(STRANGER));
    let mut page = Page::open(&owner, "", "");
    let mut other = Page::open(&owner, "?kind=job&user=nosuch", "");
    let mut of_stranger = Page::open(&stranger, "", "");
    for page in [&mut page, &mut other, &mut of_stranger] {
        assert_eq!(page.next().0, "ready");
    }
    let first = owner.submit(job(json!({"name": "a<b>\"&"})));
    let submitted = page.until(first, "submitted");
    assert_eq!(submitted["name"], json!("a<b>\"&"));
    let begin = page.last.clone();
    assert_eq!(
        page.until(first, "started")["job_state"],
        json!(["RUNNING"])
    );
    owner.delete(&format!("/slurm/v0.0.43/job/{first}")).ok();
    let ended = page.until(first, "ended");
    assert_eq!(ended["job_state"], json!(["CANCELLED"]));
    // A node is nobody's secret here; jobs of others are, and those that are filtered do not come.
    let admin = rest.of("root");
    let drain = json!({"state": ["DRAIN"], "reason": "disk"});
    admin.post("/slurm/v0.0.43/node/n1", &drain).ok();
    let (kind, data) = of_stranger.next();
    assert_eq!((kind.as_str(), &data["name"]), ("node", &json!("n1")));
    assert!(data["state"].as_array().unwrap().contains(&json!("DRAIN")));
    // Another page goes on after what the first one had read then.
    let resumed = format!("Last-Event-ID: {begin}\r\n");
    let mut again = Page::open(&owner, "", &resumed);
    let (_, data) = again.next();
    assert_eq!(
        (&data["job_id"], &data["change"]),
        (&json!(first), &json!("started"))
    );
    // A place that is none is said to be lost.
    let mut lost = Page::open(&owner, "?after=999999", "");
    assert_eq!(lost.next().0, "reset");

    // It goes on over a restart of the controller, and a page whose place is of before is told.
    rest.cluster.kill(rest.cluster.controller());
    rest.cluster.start_controller();
    // The node comes back, or that was too early to be seen and the stream says that something is missing.
    let (kind, _) = page.next();
    assert!(
        ["node", "partition", "reset"].contains(&kind.as_str()),
        "{kind}"
    );
    let second = owner.submit(job(json!({"name": "second", "hold": true})));
    page.until(second, "submitted");
    let mut early = Page::open(&owner, &format!("?after={begin}"), "");
    assert_eq!(early.next().0, "reset");
    drop(early);

    // Streams of one user are bounded, those of another are not hurt; a wrong token has none.
    let pages: Vec<Page> = (0..12)
        .map(|_| Page::open(&owner, "?kind=node", ""))
        .collect();
    let refused = owner.get("/muster/v1/events");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(Page::open(&stranger, "?kind=job", "").next().0, "ready");
    drop(pages);
    let wrong = rest.send(
        "GET",
        "/muster/v1/events",
        "X-SLURM-USER-TOKEN: a.b.c\r\n",
        "",
    );
    assert_eq!(wrong.status, 401, "{wrong:?}");
    assert_eq!(owner.get("/muster/v1/events?colour=red").status, 400);
}
