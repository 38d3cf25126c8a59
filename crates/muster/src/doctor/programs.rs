//! MPI: the libraries there are, and whether two ranks find each other with each.

use super::{Finding, State};
use crate::mpi::{self, Family, Mpi};
use crate::scratch::{Scratch, last_words};
use std::time::Instant;

const AREA: &str = "MPI";

/// Looks for the libraries and, if it may, tries each.
pub(super) fn look(try_them: bool) -> Vec<Finding> {
    let mut findings = vec![pmix()];
    let all = mpi::find();
    if all.is_empty() {
        let text = "neither on the path nor in /opt or /usr/local".to_owned();
        let finding = Finding::new(AREA, "mpirun", State::Note, text);
        findings.push(finding.advise(
            "Debian: openmpi-bin and libopenmpi-dev; or add the directory of another MPI to PATH",
        ));
        findings.push(ucx());
        return findings;
    }
    let scratch = if try_them {
        Some(Scratch::start(1, 2))
    } else {
        None
    };
    for one in &all {
        let name = format!("{} {}", one.family.name(), one.version);
        let place = one.dir.join(&one.mpirun);
        let place = place.display();
        findings.push(match &scratch {
            None => Finding::new(AREA, &name, State::Good, format!("{place}, not tried")),
            Some(Err(e)) => Finding::new(
                AREA,
                &name,
                State::Bad,
                format!("{place}: no cluster to try it on: {e:#}"),
            ),
            Some(Ok(scratch)) => try_one(one, &name, scratch),
        });
    }
    findings.push(ucx());
    findings
}

fn pmix() -> Finding {
    match muster_pmix::library() {
        Ok(library) => {
            let text = format!("{}, {}", library.banner, library.path);
            Finding::new(AREA, "libpmix", State::Good, text)
        }
        Err(e) => Finding::new(AREA, "libpmix", State::Note, e.to_string())
            .advise("without it srun starts MPICH only; Debian: libpmix2"),
    }
}

/// Comes last, as the library is configured by variables that programs under test must not see.
fn ucx() -> Finding {
    match muster_pmix::ucx_version(&muster_pmix::UcxChoice::default()) {
        Ok(version) => Finding::new(AREA, "libucp", State::Good, format!("UCX {version}")),
        Err(e) => Finding::new(AREA, "libucp", State::Note, e.to_string())
            .advise("needed only where mpi.conf has PMIxDirectConnUCX=yes; without it TCP is used"),
    }
}

fn try_one(mpi: &Mpi, name: &str, scratch: &Scratch) -> Finding {
    let place = mpi.dir.display();
    let program = match build(mpi, scratch) {
        Ok(program) => program,
        Err(why) => {
            return Finding::new(AREA, name, State::Note, format!("{place}: not tried: {why}"))
                .advise("with its development package (Debian: libopenmpi-dev, libmpich-dev) its mpicc can build one");
        }
    };
    // As users do who know nothing of kinds.
    let srun = format!("srun -n2 {program}");
    let mpirun = format!("salloc -Q -n2 {} -n 2 {program}", mpi.mpirun);
    let ways = [("srun", srun), ("mpirun", mpirun)];
    let tried = ways.map(|(way, command)| (way, time(mpi, &command, scratch)));
    let results: Vec<String> = tried
        .iter()
        .map(|(way, outcome)| match outcome {
            Ok(ms) => format!("two ranks by {way} in {ms} ms"),
            Err(why) => format!("{way} FAILS: {why}"),
        })
        .collect();
    let text = format!("{place}: {}", results.join("; "));
    match (&tried[0].1, &tried[1].1) {
        (Ok(_), Ok(_)) => Finding::new(AREA, name, State::Good, text),
        (Ok(_), Err(_)) => {
            Finding::new(AREA, name, State::Note, text).advise("start its programs with srun")
        }
        (Err(_), outcome) => {
            let advice = match (mpi.family, outcome.is_ok()) {
                (Family::Mpich, _) => "it has to be built with PMI-1 or PMI-2, as it is by default",
                (_, true) => {
                    "start its programs with mpirun inside an allocation; for srun it needs libpmix of version 3 to 5"
                }
                (_, false) => "its own installation does not work: see what it says",
            };
            Finding::new(AREA, name, State::Bad, text).advise(advice)
        }
    }
}

/// A program of two ranks that print that they are two.
fn build(mpi: &Mpi, scratch: &Scratch) -> Result<String, String> {
    let Some(mpicc) = &mpi.mpicc else {
        let Some(benchmark) = &mpi.benchmark else {
            return Err("there is no mpicc of it".to_owned());
        };
        return Ok(format!(
            "{} -npmin 2 -iter 10 -msglog 3:3 PingPong",
            benchmark.display()
        ));
    };
    let write = std::fs::write(scratch.path("hello.c"), mpi::HELLO);
    write.map_err(|e| e.to_string())?;
    let command = format!("rm -f hello; {} -o hello hello.c", mpicc.display());
    match scratch.run(&command, Some(&mpi.dir)) {
        Ok(output) if output.status.success() => Ok("./hello".to_owned()),
        Ok(output) => Err(format!("{}: {}", mpicc.display(), last_words(&output))),
        Err(e) => Err(e.to_string()),
    }
}

/// Milliseconds that it takes; it counts only if the two have met.
fn time(mpi: &Mpi, command: &str, scratch: &Scratch) -> Result<u128, String> {
    let from = Instant::now();
    let command = mpi.prelude() + command;
    let output = scratch
        .run(&command, Some(&mpi.dir))
        .map_err(|e| e.to_string())?;
    let spent = from.elapsed().as_millis();
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(last_words(&output));
    }
    let hello = text.contains("rank 0 of 2") && text.contains("rank 1 of 2");
    if hello || text.contains("# #processes = 2") {
        return Ok(spent);
    }
    if text.contains("of 1") || text.contains("# #processes = 1") {
        return Err("it ran as two jobs of one rank".to_owned());
    }
    Err(format!(
        "unexpected output '{}'",
        text.trim().lines().next().unwrap_or("")
    ))
}
