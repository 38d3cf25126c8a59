//! Attacks by HTTP: to be another user, to change another user's records, and requests that no client makes.

use super::{clear, must_submit, small_job, state};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::rest::{
    self, ATTACKER_NAME, Page, VICTIM_NAME, base64url, connect, exchange, headers, request,
};
use crate::sys::{ATTACKER, NAMELESS, ROOT, User, VICTIM, as_user};
use crate::target::{Target, until};
use muster_model::job::JobState;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Connections of each attacker: more than the server has places.
const CONNECTIONS: usize = 300;
/// Bytes of a body of the largest size.
const BODY: usize = 32 << 20;
/// Time limit for another user's request while connections and bodies of others wait.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Asks as the attacker, and counts what came back.
fn ask(target: &Target, outcome: &mut Outcome, what: &str, bytes: &[u8]) -> Option<Page> {
    let page = as_user(ATTACKER, || exchange(target, bytes));
    outcome.sent += 1;
    match &page {
        None => outcome.finding(format!("{what}: neither an answer nor an end")),
        Some(page) if page.is_done() => outcome.accepted += 1,
        Some(_) => outcome.refused += 1,
    }
    page
}

/// The tokens of the attacker and of the other user.
fn tokens(target: &Target, outcome: &mut Outcome) -> Option<[String; 2]> {
    if rest::pid(target).is_none() {
        outcome.skipped.push("slurmrestd does not run".to_owned());
        return None;
    }
    let own = rest::token(target, ATTACKER_NAME);
    let tokens = own.zip(rest::token(target, VICTIM_NAME));
    if tokens.is_none() {
        outcome.finding("root gets no tokens");
    }
    tokens.map(|(own, other)| [own, other])
}

/// A token with other claims and the signature of the attacker's.
fn altered(own: &str, header: &str, claims: &str) -> String {
    let signature = own.rsplit('.').next().unwrap_or_default();
    let [header, claims] = [header, claims].map(|part| base64url(part.as_bytes()));
    format!("{header}.{claims}.{signature}")
}

/// Tokens that are no tokens, of others, or altered.
pub(super) fn false_tokens(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some([own, other]) = tokens(target, &mut outcome) else {
        return outcome;
    };
    const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
    let of_other = format!(r#"{{"iat":1,"exp":9999999999,"sun":"{VICTIM_NAME}"}}"#);
    let of_root = r#"{"iat":1,"exp":9999999999,"sun":"root"}"#;
    let expired = format!(r#"{{"iat":1,"exp":2,"sun":"{ATTACKER_NAME}"}}"#);
    let name = |user: &str| format!("X-SLURM-USER-NAME: {user}\r\n");
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let unsigned = |alg: &str, claims: &str| {
        let token = altered("..", &format!(r#"{{"alg":"{alg}"}}"#), claims);
        headers(VICTIM_NAME, &token)
    };
    let halves = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (own_parts, other_parts) = (halves(&own), halves(&other));
    let mixed = format!("{}.{}.{}", own_parts[0], other_parts[1], own_parts[2]);
    let all = [
        String::new(),
        name("root"),
        headers(VICTIM_NAME, ""),
        headers(VICTIM_NAME, &own),
        headers("root", &own),
        headers("0", &own),
        headers(VICTIM_NAME, &altered(&own, HS256, &of_other)),
        headers("root", &altered(&own, HS256, of_root)),
        headers(ATTACKER_NAME, &altered(&own, HS256, &expired)),
        headers(VICTIM_NAME, &mixed),
        unsigned("none", &of_other),
        unsigned("None", &of_other),
        unsigned("HS512", &of_other),
        unsigned("", &of_other),
        headers(VICTIM_NAME, &format!("{own}.")),
        headers(VICTIM_NAME, &"a.".repeat(10_000)),
        headers(VICTIM_NAME, "..") + &bearer(&own),
        bearer(&own) + &name(VICTIM_NAME),
        bearer(&own) + &name(ATTACKER_NAME) + &name(VICTIM_NAME),
        bearer(&own) + &bearer(&other),
        format!("Authorization: Basic {own}\r\n"),
        headers(&format!("{ATTACKER_NAME}\0root"), &own),
    ];
    for (number, headers) in all.iter().enumerate() {
        let bytes = request("GET", "/slurm/v0.0.43/jobs", headers, b"");
        let what = format!("false token {number}");
        let page = ask(target, &mut outcome, &what, &bytes);
        if let Some(page) = page.filter(|page| page.status == 200) {
            outcome.finding(format!("{what}: {}", page.status));
        }
    }
    outcome
}

/// Changes of what belongs to others, each with a valid token.
pub(super) fn what_is_others(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some([own, _]) = tokens(target, &mut outcome) else {
        return outcome;
    };
    let users =
        format!("sacctmgr -i add account rest; sacctmgr -i add user {VICTIM_NAME} account=rest");
    target.run(ROOT, &users);
    let spec = small_job(target, VICTIM);
    let script = "#!/bin/sh\nexec sleep 600\n";
    let Some(job) = must_submit(target, VICTIM, spec, script, &mut outcome) else {
        return outcome;
    };
    until(|| state(target, job) == Some(JobState::Running));
    let submission = |keys: &str| {
        format!(
            r##"{{"script":"#!/bin/sh\n","job":{{"current_working_directory":"/","environment":["A=1"],{keys}}}}}"##
        )
    };
    let job_path = format!("job/{}", job.0);
    let all: &[(&str, &str, &str, String)] = &[
        ("DELETE", "slurm", &job_path, String::new()),
        (
            "POST",
            "slurm",
            &job_path,
            r#"{"priority":4000000000}"#.to_owned(),
        ),
        (
            "POST",
            "slurm",
            &job_path,
            r#"{"user_id":"0","comment":"mine"}"#.to_owned(),
        ),
        (
            "POST",
            "slurm",
            &job_path,
            r#"{"time_limit":{"set":true,"number":1}}"#.to_owned(),
        ),
        (
            "DELETE",
            "slurm",
            "jobs",
            format!(r#"{{"jobs":["{}"],"signal":"KILL"}}"#, job.0),
        ),
        (
            "POST",
            "slurm",
            "node/n1",
            r#"{"state":["DRAIN"],"reason":"x"}"#.to_owned(),
        ),
        ("DELETE", "slurm", "node/n1", String::new()),
        ("GET", "slurm", "reconfigure", String::new()),
        (
            "POST",
            "slurm",
            "job/submit",
            submission(&format!(r#""user_id":"{VICTIM_NAME}""#)),
        ),
        (
            "POST",
            "slurm",
            "job/submit",
            submission(r#""user_id":"0""#),
        ),
        (
            "POST",
            "slurm",
            "job/submit",
            submission(r#""group_id":"0""#),
        ),
        (
            "POST",
            "slurm",
            "job/submit",
            submission(r#""admin_comment":"x""#),
        ),
        (
            "POST",
            "slurm",
            "job/submit",
            submission(r#""site_factor":100"#),
        ),
        (
            "POST",
            "slurmdb",
            "accounts",
            r#"{"accounts":[{"name":"mine"}]}"#.to_owned(),
        ),
        (
            "POST",
            "slurmdb",
            "users",
            format!(
                r#"{{"users":[{{"name":"{ATTACKER_NAME}","administrator_level":["Administrator"]}}]}}"#
            ),
        ),
        (
            "DELETE",
            "slurmdb",
            &format!("user/{VICTIM_NAME}"),
            String::new(),
        ),
        (
            "POST",
            "slurmdb",
            "qos",
            r#"{"qos":[{"name":"mine","priority":{"set":true,"number":9}}]}"#.to_owned(),
        ),
    ];
    for (method, area, path, body) in all {
        let full = format!("/{area}/v0.0.43/{path}");
        let bytes = request(
            method,
            &full,
            &headers(ATTACKER_NAME, &own),
            body.as_bytes(),
        );
        let what = format!("{method} {path} {body}");
        if ask(target, &mut outcome, &what, &bytes).is_some_and(|page| page.is_done()) {
            outcome.finding(format!("{what}: accepted"));
        }
    }
    // Conditions choose among the jobs that one may end, so this is no error and ends none.
    let theirs = format!(r#"{{"user_id":"{VICTIM_NAME}"}}"#);
    let bytes = request(
        "DELETE",
        "/slurm/v0.0.43/jobs",
        &headers(ATTACKER_NAME, &own),
        theirs.as_bytes(),
    );
    ask(target, &mut outcome, "DELETE jobs", &bytes);
    if state(target, job) != Some(JobState::Running) {
        outcome.finding("another user's job does not run any more");
    }
    clear(target, VICTIM, &mut outcome);
    let removed = format!("sacctmgr -i delete user {VICTIM_NAME}; sacctmgr -i delete account rest");
    if target.run(ROOT, &removed).code != 0 {
        outcome.finding("another user's association is not there any more");
    }
    super::finished(target, outcome)
}

/// Requests that no client makes.
fn malformed(own: &str) -> Vec<Vec<u8>> {
    let who = headers(ATTACKER_NAME, own);
    let submit = "/slurm/v0.0.43/job/submit";
    let get = |path: &str| request("GET", path, &who, b"");
    let post = |body: &[u8]| request("POST", submit, &who, body);
    let head = format!("POST {submit} HTTP/1.1\r\nHost: h\r\n{who}Connection: close\r\n");
    let with = |rest: &str| format!("{head}{rest}").into_bytes();
    let zeros = "0".repeat(3_000_000);
    let strided = format!(r#"{{"jobs":"{}2"}}"#, "1_[0-4000000:2],".repeat(1000));
    vec![
        b"\0\0\0\x05abcde".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        request("BREW", "/slurm/v0.0.43/jobs", &who, b""),
        get(&format!("/{}", "a".repeat(60_000))),
        get(&format!("/{}", "a".repeat(90_000))),
        get("/slurm/v0.0.43/job/..%2f..%2fetc%2fpasswd"),
        get("/../../../etc/passwd"),
        get("//etc/passwd"),
        get("/slurm/v0.0.99999999999999999999/jobs"),
        get("/slurm/v0.0.43/job/18446744073709551616"),
        get("/slurm/v0.0.43/job/-1"),
        get("/slurm/v0.0.43/job/1_[0-4294967295]"),
        get("/slurm/v0.0.43/job/%00"),
        get("/slurm/v0.0.43/job/%ff%fe"),
        get("/slurm/v0.0.43/node/n[0-99999999]"),
        get(&format!("/slurm/v0.0.43/node/{}[0-19999]", "x".repeat(50_000))),
        get(&format!("/slurm/v0.0.43/node/n[{}1]", "1,".repeat(25_000))),
        get(&format!("/slurmdb/v0.0.43/jobs?step={}2", "1_[0-1048575],".repeat(3000))),
        get(&format!("/slurmdb/v0.0.43/jobs?{}", "node=n[0-65535]&".repeat(3000))),
        request("DELETE", "/slurm/v0.0.43/jobs", &who, strided.as_bytes()),
        get(&format!("/slurm/v0.0.43/jobs?{}", "a=b&".repeat(10_000))),
        get("/slurmdb/v0.0.43/jobs?start_time=99999999999999999999&end_time=-5&step=%0a"),
        request("GET", "/slurm/v0.0.43/jobs", &format!("{who}{}", "X: y\r\n".repeat(1000)), b""),
        request("GET", "/slurm/v0.0.43/jobs", &format!("{who}X: {}\r\n", "y".repeat(1 << 20)), b""),
        request("GET", "/slurm/v0.0.43/jobs", &format!("{who}Accept: {}\r\n", "*/*,".repeat(9000)), b""),
        request("GET", "/slurm/v0.0.43/jobs", &who, b"{}"),
        with("Content-Length: -1\r\n\r\n"),
        with("Content-Length: 18446744073709551615\r\n\r\n{}"),
        with("Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}    "),
        with("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
        with("Transfer-Encoding: gzip\r\n\r\n{}"),
        with("Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
        with("Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"),
        post(b"\xff\xfe\0"),
        post(b"{"),
        post(b"null"),
        post(b"[]"),
        post(b"\"text\""),
        post(&b"[".repeat(1_000_000)),
        post(&br#"{"a":"#.repeat(1_000_000)),
        post(&b"[[],".repeat(500_000)),
        post(format!("[{}]", "0,".repeat(4_000_000)).as_bytes()),
        post(format!(r#"{{"job":{{"priority":{zeros}}}}}"#).as_bytes()),
        post(format!(r#"{{"job":{{"priority":1e{}}}}}"#, "9".repeat(400)).as_bytes()),
        post(format!(r#"{{"job":{{"name":"{zeros}"}},"script":"{zeros}"}}"#).as_bytes()),
        post(br#"{"job":{"job":{"job":{}}},"jobs":[{"jobs":[]}],"script":{}}"#),
        post(br#"{"script":"\u0000","job":{"environment":["A=\u0000"],"current_working_directory":"/"}}"#),
        post(&b" ".repeat(BODY + 1)),
    ]
}

/// Requests that no client makes; each is answered or its connection closed.
pub(super) fn malformed_requests(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some([own, _]) = tokens(target, &mut outcome) else {
        return outcome;
    };
    for (number, bytes) in malformed(&own).iter().enumerate() {
        let what = format!("malformed request {number}");
        ask(target, &mut outcome, &what, bytes);
    }
    super::finished(target, outcome)
}

/// Opens connections as a user and sends the same by each; the ends that are still open.
fn open(target: &Target, user: User, count: usize, bytes: &[u8]) -> Vec<UnixStream> {
    as_user(user, || {
        let opened = (0..count).filter_map(|_| {
            let mut stream = connect(target).ok()?;
            stream
                .set_write_timeout(Some(Duration::from_millis(200)))
                .ok()?;
            // The server reads as much as it will.
            let _ = stream.write_all(bytes);
            Some(stream)
        });
        opened.collect()
    })
}

/// Places, bodies and answers taken by others; another user is answered.
pub(super) fn taken_places(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some([own, other]) = tokens(target, &mut outcome) else {
        return outcome;
    };
    let who = headers(ATTACKER_NAME, &own);
    let submit = format!("POST /slurm/v0.0.43/job/submit HTTP/1.1\r\nHost: h\r\n{who}");
    let mut body = format!("{submit}Content-Length: {BODY}\r\n\r\n").into_bytes();
    body.resize(body.len() + 24 * (1 << 20), b' ');
    let unread = format!("GET /openapi/v0.0.43 HTTP/1.1\r\nHost: h\r\n{who}\r\n").repeat(50);
    let kinds: [(&str, usize, &[u8]); 4] = [
        ("idle connections", CONNECTIONS, b""),
        ("half a head", CONNECTIONS, submit.as_bytes()),
        ("answers that nobody reads", CONNECTIONS, unread.as_bytes()),
        ("large bodies", 40, &body),
    ];
    for (what, count, bytes) in kinds {
        let opened: Vec<UnixStream> = [ATTACKER, NAMELESS]
            .into_iter()
            .flat_map(|user| open(target, user, count, bytes))
            .collect();
        outcome.sent += 2 * count as u64;
        outcome.accepted += opened.len() as u64;
        let ping = request(
            "GET",
            "/slurm/v0.0.43/jobs",
            &headers(VICTIM_NAME, &other),
            b"",
        );
        for _ in 0..3 {
            let started = Instant::now();
            let page = as_user(VICTIM, || exchange(target, &ping));
            let elapsed = started.elapsed();
            if !page.as_ref().is_some_and(Page::is_done) || elapsed > ANSWER_MAX {
                let status = page.map(|page| page.status);
                outcome.finding(format!(
                    "{what}: another user got {status:?} after {elapsed:?}"
                ));
                break;
            }
        }
    }
    super::finished(target, outcome)
}
