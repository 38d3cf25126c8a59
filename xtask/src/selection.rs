//! `cargo xtask compare-selection`: asks a private Slurm what the tables of `crates/sim/tests/selection` ask, and says
//! where its answers are others than stand there. With `--write` they stand there then; what Muster is to answer is not
//! touched, the tests say whether it does.

use crate::peer::{Product, start_slurm_of};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TABLES: &str = "crates/sim/tests/selection";
/// Separator of Slurm's answer and Muster's.
const BUT: &str = " | Muster: ";
/// Time after which Slurm has looked at jobs that it did not start at once.
const SETTLED: Duration = Duration::from_secs(5);
/// So that it looks soon.
const SOON: &str = "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2\n";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|a| a.starts_with('-'));
    if let Some(flag) = flags.iter().find(|f| **f != "--write") {
        bail!("unknown option {flag}; there is --write, and names of tables");
    }
    let mut files: Vec<_> = fs::read_dir(TABLES)?
        .map(|e| e.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let mut others = 0;
    for file in files {
        let name = file
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !names.is_empty() && !names.iter().any(|n| **n == name) {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let Some(fresh) = asked(&text).with_context(|| name.clone())? else {
            println!("Slurm is not installed here.");
            return Ok(());
        };
        for (old, new) in text
            .lines()
            .zip(fresh.lines())
            .filter(|(old, new)| old != new)
        {
            others += 1;
            println!("{name}\n  stands there: {old}\n  is:           {new}");
        }
        if !flags.is_empty() {
            fs::write(&file, fresh)?;
        }
    }
    match others {
        0 => Ok(()),
        _ if !flags.is_empty() => Ok(()),
        _ => bail!("{others} answers are others than stand in {TABLES}"),
    }
}

/// The table with what Slurm answers now; nothing where there is none.
fn asked(text: &str) -> Result<Option<String>> {
    let scratch = std::env::temp_dir().join(format!("muster-selection-{}", std::process::id()));
    let site = scratch.join("site");
    fs::create_dir_all(&site)?;
    let of = |prefix: &str| -> String {
        let lines = text.lines().filter_map(|l| l.strip_prefix(prefix));
        lines.map(|l| format!("{l}\n")).collect()
    };
    fs::write(site.join("slurm.conf"), of("slurm.conf: ") + SOON)?;
    fs::write(site.join("gres.conf"), of("gres.conf: "))?;
    let Some(slurm) = start_slurm_of(&scratch.join("slurm"), false, Some(&site))? else {
        return Ok(None);
    };
    let mut out = String::new();
    for line in text.lines() {
        let is_row = !line.starts_with('#')
            && !line.starts_with("slurm.conf: ")
            && !line.starts_with("gres.conf: ");
        let fresh = match line.split_once(" = ").filter(|_| is_row) {
            Some((request, answer)) => {
                let muster = answer.split_once(BUT).map_or(answer, |(_, muster)| muster);
                let slurm = answers(&slurm, request)?;
                match slurm == muster {
                    true => format!("{request} = {slurm}"),
                    false => format!("{request} = {slurm}{BUT}{muster}"),
                }
            }
            None => line.to_owned(),
        };
        out.extend([&fresh, "\n"]);
    }
    drop(slurm);
    // Daemons may still write their last lines there.
    let _ = fs::remove_dir_all(&scratch);
    Ok(Some(out))
}

/// Outcome of requests that follow each other on an empty cluster.
fn answers(slurm: &Product, requests: &str) -> Result<String> {
    let (mut answers, mut ids) = (Vec::new(), Vec::new());
    for request in requests.split(" ; ") {
        let words = request.split_whitespace().map(|w| w.replace('\'', ""));
        let mut args: Vec<String> = ["--parsable", "-o/dev/null", "-D/"]
            .map(str::to_owned)
            .to_vec();
        args.extend(words);
        args.push("--wrap=exec sleep 600".to_owned());
        let Some(id) = said(slurm, "sbatch", &args)? else {
            answers.push("refused".to_owned());
            continue;
        };
        answers.push(settled(slurm, id.trim())?);
        ids.push(id.trim().to_owned());
    }
    if !ids.is_empty() {
        said(slurm, "scancel", &ids)?;
    }
    let gone = |command: &str, args: &[&str]| -> Result<bool> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        Ok(said(slurm, command, &args)?.is_some_and(|out| out.trim().is_empty()))
    };
    let busy = ["-h", "-N", "-t", "alloc,mix,comp,drain,down", "-o", "%N"];
    let since = Instant::now();
    while !(gone("squeue", &["-h"])? && gone("sinfo", &busy)?) {
        if since.elapsed() > Duration::from_secs(60) {
            bail!("the jobs of '{requests}' do not go away");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(answers.join(" ; "))
}

/// Output of a command of Slurm; nothing if it fails.
fn said(slurm: &Product, command: &str, args: &[String]) -> Result<Option<String>> {
    let output = Command::new(command)
        .args(args)
        .envs(slurm.env.iter().cloned())
        .stdin(Stdio::null())
        .output()
        .with_context(|| command.to_owned())?;
    let text = String::from_utf8(output.stdout)?;
    Ok(output.status.success().then_some(text))
}

/// Where a job is, once that is known.
fn settled(slurm: &Product, id: &str) -> Result<String> {
    let since = Instant::now();
    loop {
        let args = ["show", "job", "-d", id].map(str::to_owned);
        let text = said(slurm, "scontrol", &args)?.context("the job is not there")?;
        let value = |key: &str| {
            let word = text.split_whitespace().find_map(|w| w.strip_prefix(key));
            word.unwrap_or_default().to_owned()
        };
        let waits = value("JobState=") == "PENDING";
        if !waits {
            let places = text.lines().filter_map(place);
            return Ok(places.collect::<Vec<String>>().join(" "));
        }
        let has_reason = !matches!(value("Reason=").as_str(), "None" | "Priority");
        if has_reason || since.elapsed() > SETTLED {
            return Ok("waits".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A line of what nodes give, in fewer words: nodes, CPUs, devices that are there.
fn place(line: &str) -> Option<String> {
    let mut words = line.trim_start().strip_prefix("Nodes=")?.split_whitespace();
    let nodes = words.next()?;
    let cpus = words.next()?.strip_prefix("CPU_IDs=")?;
    let gres = words
        .find_map(|w| w.strip_prefix("GRES="))
        .unwrap_or_default();
    // `gpu:a:1(IDX:0),gpu:b:0(IDX:),net(CNT:3)`; commas stand within brackets, too.
    let mut devices = Vec::new();
    for device in gres.split_inclusive(')') {
        let device = device.trim_start_matches(',');
        match device.split_once("(CNT:") {
            Some((name, count)) => devices.push(format!("{name}:{}", count.trim_end_matches(')'))),
            None if device.ends_with(":0(IDX:)") || device.is_empty() => {}
            None => devices.push(device.to_owned()),
        }
    }
    let sign = if devices.is_empty() { "" } else { ":" };
    Some(format!("{nodes}:{cpus}{sign}{}", devices.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_places() {
        let line = "     Nodes=n[1-2] CPU_IDs=0-1,8-9 Mem=400 GRES=gpu:a:2(IDX:0,2),gpu:b:0(IDX:),net(CNT:3)";
        assert_eq!(
            place(line).as_deref(),
            Some("n[1-2]:0-1,8-9:gpu:a:2(IDX:0,2),net:3")
        );
        assert_eq!(
            place("     Nodes=n3 CPU_IDs=4 Mem=0 GRES=").as_deref(),
            Some("n3:4")
        );
        assert_eq!(place("   NodeList=n3"), None);
    }
}
