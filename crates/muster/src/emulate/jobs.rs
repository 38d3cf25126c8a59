//! `muster emulate jobs`: submissions without a process each, so that the controller is measured. Each connection has
//! one submission under way, as a user's loop around sbatch would.

use anyhow::{Context, Result, anyhow, bail, ensure};
use muster_cli::connect::Client;
use muster_model::command::{Reply, UserCommand};
use serde_json::json;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Runs the command.
///
/// # Errors
/// A bad command line, no controller, or a submission that is refused.
pub(super) fn main(words: &[String]) -> Result<ExitCode> {
    let args = parse(words)?;
    let command = match muster_cli::submission(&args.sbatch) {
        Ok(command) => command,
        Err(code) => return Ok(code),
    };
    let mut clients = Vec::new();
    for _ in 0..args.clients.min(args.count) {
        clients.push(Client::connect()?);
    }
    let left = AtomicU32::new(args.count);
    let started = Instant::now();
    let waits: Vec<Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(|| submit(client, &command, &left)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let panicked = |_| Err(anyhow!("a client panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        joined.collect()
    });
    let took = started.elapsed();
    let waits: Vec<Vec<Duration>> = waits.into_iter().collect::<Result<_>>()?;
    let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
    waits.sort_unstable();
    print_results(&args, took, &waits);
    Ok(ExitCode::SUCCESS)
}

struct Args {
    count: u32,
    clients: u32,
    json: bool,
    sbatch: Vec<String>,
}

fn parse(words: &[String]) -> Result<Args> {
    let end = words.iter().position(|word| word == "--");
    let end = end.context("'--' and the arguments of sbatch must follow; --help shows how")?;
    let (mut count, mut clients, mut json) = (None, 1, false);
    let mut own = words[..end].iter();
    while let Some(word) = own.next() {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|n: &u32| *n > 0);
            number.with_context(|| format!("'{text}' is not a number of jobs or clients"))
        };
        match word.split_once('=').unwrap_or((word, "")) {
            ("--clients", "") => clients = number(own.next().map_or("", String::as_str))?,
            ("--clients", text) => clients = number(text)?,
            ("--json", "") => json = true,
            (text, "") if count.is_none() && !text.starts_with('-') => count = Some(number(text)?),
            _ => bail!("'muster emulate jobs' has no option '{word}'; --help lists them"),
        }
    }
    Ok(Args {
        count: count.context("how many jobs? --help shows the options")?,
        clients,
        json,
        sbatch: words[end + 1..].to_vec(),
    })
}

/// Submits until all are submitted; how long each acknowledgement took.
fn submit(mut client: Client, command: &UserCommand, left: &AtomicU32) -> Result<Vec<Duration>> {
    let mut waits = Vec::new();
    let one_less = |left: u32| left.checked_sub(1);
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
        .is_ok()
    {
        let command = command.clone();
        let begun = Instant::now();
        let reply = client.command(command)?;
        waits.push(begun.elapsed());
        ensure!(
            matches!(reply, Reply::Submitted { .. }),
            "the controller answered {reply:.80?}"
        );
    }
    Ok(waits)
}

fn print_results(args: &Args, took: Duration, waits: &[Duration]) {
    let ms = |share: usize| {
        let at = (waits.len() * share / 100).min(waits.len().saturating_sub(1));
        waits.get(at).map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
    };
    let rate = waits.len() as f64 / took.as_secs_f64().max(1e-9);
    if args.json {
        let summary = json!({
            "submissions": waits.len(), "clients": args.clients, "seconds": took.as_secs_f64(), "rate": rate,
            "p50_ms": ms(50), "p99_ms": ms(99), "max_ms": ms(100),
        });
        say!("{summary}\n");
    } else {
        say!(
            "{} submissions by {} clients: {rate:.0}/s, acknowledged in {:.2} ms (half of them), {:.2} ms (99 of 100), \
             {:.2} ms (the last)\n",
            waits.len(),
            args.clients,
            ms(50),
            ms(99),
            ms(100)
        );
    }
}
