//! `cargo xtask clients`: programs that people use on top of Slurm, run against a cluster of their own. Each file
//! tests/clients/use_NAME.py is one; its first line names the packages it needs. They are installed from the
//! package index, so this is no part of `cargo xtask check`.

use crate::build::target;
use crate::cluster::Cluster;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Clients that run at the same time. They wait most of the time, but each polls.
const AT_ONCE: usize = 4;

/// Time limit of one.
const PATIENCE: Duration = Duration::from_secs(600);

/// Variables that a login sets and some clients read.
const LOGIN: &str = "export USER=\"$(id -un)\"; export LOGNAME=\"$USER\"";

/// One client.
#[derive(Clone)]
struct Client {
    name: String,
    file: PathBuf,
    /// `package==version`, the client itself first.
    needs: Vec<String>,
}

/// Outcome of a run.
struct Outcome {
    client: Client,
    ended: Ended,
    took: Duration,
}

#[derive(PartialEq)]
enum Ended {
    Passed,
    /// Exit status 77: something that it needs and that pip does not bring is not on this machine.
    Skipped,
    Failed(String),
}

/// Runs all clients, or those whose names are given.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let clients = find(names)?;
    let place = place()?;
    let cluster = Cluster::up("clients", &place, &["--nodes", "4", "--cpus", "4"])?;
    println!(
        "installing and running the clients; logs are in {}",
        place.display()
    );
    let queue = Mutex::new(clients.into_iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(client) = queue.lock().ok().and_then(|mut q| q.next()) {
                    let outcome = attempt(client, &place, &cluster.env);
                    if let Ok(mut done) = done.lock() {
                        done.push(outcome);
                    }
                }
            });
        }
    });
    drop(cluster);
    report(done.into_inner().unwrap_or_default(), &place)
}

fn find(names: &[String]) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for entry in fs::read_dir("tests/clients").context("run this in the repository's root")? {
        let file = entry?.path();
        let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        let Some(name) = stem.strip_prefix("use_") else {
            continue;
        };
        let text = fs::read_to_string(&file)?;
        let needs = text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("# needs: "));
        let needs = needs.with_context(|| format!("{}: line 1: no '# needs: '", file.display()))?;
        clients.push(Client {
            name: name.to_owned(),
            needs: needs.split_whitespace().map(str::to_owned).collect(),
            file: fs::canonicalize(&file)?,
        });
    }
    clients.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(unknown) = names
        .iter()
        .find(|n| !clients.iter().any(|c| c.name == **n))
    {
        bail!("there is no tests/clients/use_{unknown}.py");
    }
    clients.retain(|c| names.is_empty() || names.contains(&c.name));
    Ok(clients)
}

/// target/clients.
fn place() -> Result<PathBuf> {
    let place = target().join("clients");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    Ok(fs::canonicalize(place)?)
}

/// Makes the client's virtual environment; one for all would not do, as their needs exclude each other.
fn install(place: &Path, client: &Client) -> Result<PathBuf> {
    let venv = place.join("venv").join(&client.name);
    let stamp = venv.join("needs.txt");
    let needs = client.needs.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|has| has == needs) {
        return Ok(venv);
    }
    let log = place.join(format!("{}.pip.log", client.name));
    let out = File::create(&log)?;
    let made = Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&venv)
        .stdout(out.try_clone()?)
        .stderr(out.try_clone()?)
        .status()
        .context("python3 is needed")?;
    let installed = Command::new(venv.join("bin/pip"))
        .args(["install", "--disable-pip-version-check"])
        .args(&client.needs)
        .stdout(out.try_clone()?)
        .stderr(out)
        .status()?;
    let done = made.success() && installed.success();
    ensure!(done, "it cannot be installed: {}", log.display());
    fs::write(&stamp, needs)?;
    Ok(venv)
}

/// Runs one client in a directory of its own.
fn attempt(client: Client, place: &Path, env: &str) -> Outcome {
    let venv = install(place, &client);
    let start = Instant::now();
    let ended = venv
        .and_then(|venv| run_one(&client, place, &venv, env))
        .unwrap_or_else(|e| Ended::Failed(format!("{e:#}")));
    Outcome {
        ended,
        client,
        took: start.elapsed(),
    }
}

fn run_one(client: &Client, place: &Path, venv: &Path, env: &str) -> Result<Ended> {
    let dir = place.join(&client.name);
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let out = File::create(place.join(format!("{}.log", client.name)))?;
    // As on a site: users who log in have the commands on PATH, and so have the login shells that clients start.
    let profile = format!("{env}\n{LOGIN}\n. '{}/bin/activate'\n", venv.display());
    fs::write(dir.join(".bash_profile"), profile)?;
    let seconds = PATIENCE.as_secs();
    let script = format!("exec timeout {seconds} python '{}'", client.file.display());
    let status = Command::new("bash")
        .args(["-l", "-c", &script])
        .env("HOME", &dir)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .status()?;
    match status.code() {
        Some(0) => Ok(Ended::Passed),
        Some(77) => Ok(Ended::Skipped),
        Some(124) => bail!("not done after {} s", PATIENCE.as_secs()),
        _ => bail!("{status}"),
    }
}

fn report(mut outcomes: Vec<Outcome>, place: &Path) -> Result<()> {
    outcomes.sort_by(|a, b| a.client.name.cmp(&b.client.name));
    for Outcome {
        client,
        ended,
        took,
    } in &outcomes
    {
        let version = client.needs.first().and_then(|n| n.split_once("=="));
        let version = version.map_or("", |(_, version)| version);
        let log = format!("{}/{}.log", place.display(), client.name);
        let said = match ended {
            Ended::Passed => "ok".to_owned(),
            Ended::Skipped => format!("skipped: see {log}"),
            Ended::Failed(why) => format!("failed: {why}; see {log}"),
        };
        let seconds = took.as_secs();
        println!("{:<16} {version:<12} {seconds:>4} s  {said}", client.name);
    }
    let count = |ended: &Ended| outcomes.iter().filter(|o| o.ended == *ended).count();
    let (passed, skipped) = (count(&Ended::Passed), count(&Ended::Skipped));
    let failed = outcomes.len() - passed - skipped;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    ensure!(failed == 0, "not all clients work");
    Ok(())
}
