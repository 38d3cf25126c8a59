//! slurmrestd with a long queue and a long history: times of pages and metrics, submissions, and pages that follow changes.

use super::site::Site;
use super::{Bench, Beside};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests for each page.
const LOOKS: usize = 40;
/// Connections that submit.
const CLIENTS: usize = 8;
/// Pages that follow changes, and the most of one user.
const STREAMS: usize = 200;
const STREAMS_OF_USER: usize = 16;
/// Time for which the controller's threads are watched.
const WATCHED: Duration = Duration::from_secs(10);
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Files and answers of a page, without pictures.
const PAGE_BYTES_MAX: f64 = 150_000.0;

/// Requests of each page, and the milliseconds that it may take.
const PAGES: &[(&str, &[&str], Option<f64>)] = &[
    (
        "overview",
        &[
            "/muster/v1/queue?limit=0",
            "/muster/v1/nodes",
            "/slurm/v0.0.45/reservations",
        ],
        Some(100.0),
    ),
    ("jobs", &["/muster/v1/queue?limit=2000"], None),
    ("nodes", &["/muster/v1/nodes", "/muster/v1/topology"], None),
    (
        "partitions",
        &[
            "/slurm/v0.0.45/partitions",
            "/muster/v1/nodes",
            "/muster/v1/queue?limit=0",
        ],
        None,
    ),
    ("metrics of jobs", &["/metrics/jobs"], Some(50.0)),
    ("metrics of nodes", &["/metrics/nodes"], Some(50.0)),
    (
        "metrics of partitions",
        &["/metrics/partitions"],
        Some(50.0),
    ),
    ("metrics of scheduler", &["/metrics/scheduler"], Some(50.0)),
    (
        "metrics of users",
        &["/metrics/jobs-users-accts"],
        Some(50.0),
    ),
];

/// slurmrestd of a site; it ends with this value.
struct Restd {
    child: Child,
    port: u16,
}

impl Drop for Restd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that stays open, with the token of its user.
struct HttpClient {
    stream: BufReader<TcpStream>,
    token: String,
}

impl HttpClient {
    fn connect(port: u16, token: &str) -> Result<HttpClient> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(HttpClient {
            stream: BufReader::new(stream),
            token: token.to_owned(),
        })
    }

    /// Sends a request.
    fn send(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-SLURM-USER-TOKEN: {}\r\nAccept-Encoding: gzip\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        self.stream.get_mut().write_all((head + body).as_bytes())?;
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(
            self.stream.read_line(&mut line)? > 0,
            "slurmrestd closed the connection"
        );
        Ok(line.trim_end().to_owned())
    }

    /// Reads the head of an answer: the status, and the length of the body unless it comes in chunks.
    fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("no status in {first}"))?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
    }

    /// Bytes of the answer to a request.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<usize> {
        self.send(method, path, body)?;
        let (status, length) = self.head()?;
        let mut skip = |bytes: usize| -> Result<()> {
            let mut part = (&mut self.stream).take(bytes as u64);
            let copied = std::io::copy(&mut part, &mut std::io::sink())?;
            ensure!(copied == bytes as u64, "the answer breaks off");
            Ok(())
        };
        let mut all = 0;
        if let Some(length) = length {
            skip(length)?;
            all = length;
        } else {
            loop {
                let line = self.line()?;
                let bytes = usize::from_str_radix(&line, 16)?;
                let mut part = (&mut self.stream).take(bytes as u64 + 2);
                std::io::copy(&mut part, &mut std::io::sink())?;
                all += bytes;
                if bytes == 0 {
                    break;
                }
            }
        }
        ensure!(status == 200, "{method} {path}: status {status}");
        Ok(all)
    }
}

/// The section.
pub(super) fn pages(bench: &mut Bench) -> Result<()> {
    let (pending, ended, nodes) = (
        bench.size(100_000),
        bench.size(1_000_000),
        bench.size(1_000),
    );
    let site = filled(bench, pending, ended, nodes)?;
    let restd = start(bench, &site)?;
    let token = token_of(bench, &site, "root")?;
    println!("  {pending} jobs wait, {ended} have ended, {nodes} nodes");
    let mut client = HttpClient::connect(restd.port, &token)?;
    for (name, paths, most) in PAGES {
        let (mut times, mut bytes) = (Vec::new(), 0);
        for _ in 0..LOOKS {
            let begun = Instant::now();
            bytes = 0;
            for path in *paths {
                bytes += client.ask("GET", path, "")?;
            }
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let beside = most.map_or(Beside::Nothing, Beside::AtMost);
        bench.figure(
            &format!("{name}, 95 of 100"),
            times[LOOKS * 95 / 100],
            "ms",
            &beside,
        );
        if !name.starts_with("metrics") {
            let most = Beside::AtMost(PAGE_BYTES_MAX);
            bench.figure(
                &format!("{name}, what is sent"),
                bytes as f64,
                "bytes",
                &most,
            );
        }
    }
    submissions(bench, restd.port, &token)?;
    followers(bench, &site, &restd)
}

/// A cluster in use: jobs that have ended, that run and that wait.
fn filled(bench: &Bench, pending: u32, ended: u32, nodes: u32) -> Result<Site> {
    let key = bench.dir.join("jwt.key");
    fs::write(
        &key,
        "a key of the benchmark, of more than 32 bytes, for tokens",
    )?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let more = format!(
        "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}\n",
        key.display()
    );
    let site = bench.emulated(nodes, 64, &more)?;
    site.settle(bench, nodes)?;
    let range = format!("--array=1-{ended}");
    let array = [
        "sbatch",
        "--parsable",
        &range,
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    site.quiet(&array, Path::new("/tmp"))?;
    site.drain(&bench.dir, Duration::from_secs(1))?;
    site.restart_emulator("exp:100000")?;
    site.settle(bench, nodes)?;
    for part in 0..10 {
        let (tasks, limit) = (
            format!("-n{}", 20 + 7 * part),
            format!("-t{}", 600 * (part + 1)),
        );
        let args = [&*tasks, &limit, "-o", "/dev/null", "--wrap", "true"];
        site.submit((pending / 10).max(1), 1, &args, Path::new("/tmp"))?;
    }
    Ok(site)
}

fn start(bench: &Bench, site: &Site) -> Result<Restd> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let connections = (STREAMS * 2 + 50).to_string();
    let words = [
        "slurmrestd",
        "-u",
        "nobody",
        "-g",
        "nogroup",
        "--max-connections",
        &connections,
        &address,
    ];
    let mut command = site.command(&words, &bench.dir);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let restd = Restd {
        child: child?,
        port,
    };
    site.until("slurmrestd listens", || {
        Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
    })?;
    Ok(restd)
}

fn token_of(bench: &Bench, site: &Site, user: &str) -> Result<String> {
    let name = format!("username={user}");
    let text = site.text(&["scontrol", "token", &name, "lifespan=7200"], &bench.dir)?;
    let token = text.strip_prefix("SLURM_JWT=");
    Ok(token.context("scontrol prints no token")?.to_owned())
}

fn submissions(bench: &mut Bench, port: u16, token: &str) -> Result<()> {
    let count = (bench.size(20_000) as usize).max(CLIENTS) / CLIENTS;
    let job = r##"{"script": "#!/bin/sh\ntrue", "job": {"name": "submitted", "tasks": 1, "time_limit": 10, "hold": true,
        "current_working_directory": "/tmp", "standard_output": "/dev/null", "environment": ["PATH=/bin:/usr/bin"]}}"##;
    let submit = || -> Result<()> {
        let mut client = HttpClient::connect(port, token)?;
        for _ in 0..count {
            client.ask("POST", "/slurm/v0.0.43/job/submit", job)?;
        }
        Ok(())
    };
    let begun = Instant::now();
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(submit)).collect();
        let ends = clients.into_iter().map(|client| client.join());
        ends.map(|end| end.unwrap_or_else(|_| anyhow::bail!("a client panicked")))
            .collect()
    });
    results.into_iter().collect::<Result<Vec<()>>>()?;
    let rate = (count * CLIENTS) as f64 / begun.elapsed().as_secs_f64();
    let name = "jobs submitted over 8 connections";
    bench.figure(name, rate, "jobs/s", &Beside::AtLeast(2_000.0));
    Ok(())
}

/// Processor time of the controller and of its writer while jobs come, milliseconds a second.
struct FollowedPages {
    all: f64,
    writer: f64,
}

/// Submits 40 jobs a second and watches the controller.
fn watch(bench: &Bench, site: &Site) -> Result<FollowedPages> {
    let before = site.cpu_ms()?;
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        let args = ["-H", "-o", "/dev/null", "--wrap", "true"];
        site.submit(20, 1, &args, &bench.dir)?;
        std::thread::sleep(Duration::from_millis(500));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = site.cpu_ms()?;
    let grown = |name: &String, ms: &u64| ms - before.get(name).copied().unwrap_or(0);
    let of_controller = after.iter().filter(|(name, _)| *name != "emulator");
    let all: u64 = of_controller.map(|(name, ms)| grown(name, ms)).sum();
    let writer = after.get_key_value("writer");
    let writer = writer.map_or(0, |(name, ms)| grown(name, ms));
    Ok(FollowedPages {
        all: all as f64 / seconds,
        writer: writer as f64 / seconds,
    })
}

fn followers(bench: &mut Bench, site: &Site, restd: &Restd) -> Result<()> {
    let calm = watch(bench, site)?;
    let users = fs::read_to_string("/etc/passwd")?;
    let users = users.lines().filter_map(|line| line.split(':').next());
    let users: Vec<&str> = users.take(STREAMS.div_ceil(STREAMS_OF_USER)).collect();
    let mut streams = Vec::new();
    for at in 0..STREAMS {
        let user = users[at / STREAMS_OF_USER % users.len()];
        let token = token_of(bench, site, user)?;
        let mut client = HttpClient::connect(restd.port, &token)?;
        client.send("GET", "/muster/v1/events", "")?;
        let (status, _) = client.head()?;
        ensure!(status == 200, "a stream of {user}: status {status}");
        let second = Some(Duration::from_secs(1));
        client.stream.get_ref().set_read_timeout(second)?;
        streams.push(client);
    }
    let (is_over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let followed = std::thread::scope(|scope| {
        let (is_over, read) = (&is_over, &read);
        for client in &mut streams {
            scope.spawn(move || {
                let mut buffer = [0; 1 << 14];
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(bytes) = client.stream.read(&mut buffer) {
                        read.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        let followed = watch(bench, site);
        is_over.store(true, Ordering::Relaxed);
        followed
    })?;
    let bytes = read.into_inner() as f64;
    ensure!(bytes > 0.0, "no page got a change");
    let mut figure = |name: &str, value: f64, unit: &'static str, beside: &Beside| {
        bench.figure(name, value, unit, beside);
    };
    figure(
        "changes that 200 pages got",
        bytes,
        "bytes",
        &Beside::Nothing,
    );
    figure(
        "controller without pages, of a core",
        calm.all / 10.0,
        "%",
        &Beside::Nothing,
    );
    let more = (followed.all - calm.all) / 10.0;
    figure(
        "controller, 200 pages that follow, more",
        more,
        "%",
        &Beside::AtMost(10.0),
    );
    figure(
        "its writer without pages",
        calm.writer / 10.0,
        "%",
        &Beside::Nothing,
    );
    figure(
        "its writer, 200 pages that follow",
        followed.writer / 10.0,
        "%",
        &Beside::Nothing,
    );
    Ok(())
}
