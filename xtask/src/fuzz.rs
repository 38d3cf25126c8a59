//! `cargo xtask fuzz`: builds the fuzz targets with instructions for coverage, runs them for a time each, and keeps a
//! small corpus of inputs that reached new edges. Works on a stable toolchain.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Flags by which the compiler counts edges and shows comparisons to libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Files of one target's corpus in the repository.
const FILES_MAX: usize = 100;
/// Bytes of one target's corpus in the repository.
const CORPUS_MAX: u64 = 150 << 10;
/// Findings of one target after which it is left alone.
const FINDINGS_MAX: usize = 20;
/// Memory that a target may take, MiB. The engine keeps how often each input reached what, which is most of it; what one input
/// takes is bounded by the program (`INPUT_MIB` there).
const MEMORY_MIB: u32 = 3072;
/// Seconds that one input may take.
const INPUT_S: u32 = 20;

/// Options of the command line.
struct Options {
    time: Duration,
    targets: Vec<String>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options> {
        let mut options = Options {
            time: Duration::from_secs(60),
            targets: Vec::new(),
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let number = words.next().and_then(|n| n.parse::<u64>().ok());
                number.with_context(|| format!("{word}: a number must follow"))
            };
            match word.as_str() {
                "--minutes" => options.time = Duration::from_secs(60 * number()?),
                "--seconds" => options.time = Duration::from_secs(number()?),
                word if word.starts_with('-') => bail!("{word}: --minutes and --seconds are known"),
                name => options.targets.push(name.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Result of a target.
#[derive(Default)]
struct Outcome {
    executions: u64,
    seconds: f32,
    /// Places in which it panicked, or what else ended it; and the input.
    findings: BTreeSet<String>,
    inputs: Vec<String>,
}

/// Runs targets.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut options = Options::read(args)?;
    let program = build()?;
    let seeds = Path::new("fuzz/target/seeds");
    write_seeds(&program, seeds)?;
    if options.targets.is_empty() {
        options.targets = names(seeds)?;
    }
    let mut rows = Vec::new();
    for name in &options.targets {
        ensure!(seeds.join(name).is_dir(), "there is no target {name}");
        let outcome = fuzz(&program, name, options.time)?;
        keep(&program, name)?;
        rows.push((name, outcome));
    }
    println!(
        "{:16} {:>12} {:>8} {:>10} {:>9} {:>8}",
        "target", "executions", "s", "per s", "findings", "corpus"
    );
    for (name, outcome) in &rows {
        let files = names(&Path::new("fuzz/corpus").join(name)).map_or(0, |files| files.len());
        println!(
            "{name:16} {:>12} {:>8.0} {:>10.0} {:>9} {files:>8}",
            outcome.executions,
            outcome.seconds,
            outcome.executions as f32 / outcome.seconds.max(1.0),
            outcome.findings.len(),
        );
    }
    let findings: Vec<String> = rows
        .iter()
        .flat_map(|(name, outcome)| {
            let all = outcome.findings.iter().chain(&outcome.inputs);
            all.map(move |finding| format!("{name}: {finding}"))
        })
        .collect();
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    Ok(())
}

/// Builds the program of all targets. Build scripts and macros are built without the flags, as there is a target triple.
fn build() -> Result<PathBuf> {
    let triple = crate::build::host()?;
    let status = Command::new("cargo")
        .args(["build", "--release", "--target", &triple])
        .current_dir("fuzz")
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_TARGET_DIR")
        .status()?;
    ensure!(status.success(), "the fuzz targets do not build");
    let file = Path::new("fuzz/target")
        .join(triple)
        .join("release/muster-fuzz");
    Ok(fs::canonicalize(file)?)
}

fn write_seeds(program: &Path, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let status = Command::new(program)
        .env("FUZZ_WRITE_SEEDS", dir)
        .stderr(Stdio::null())
        .status()?;
    ensure!(
        status.success(),
        "the inputs to begin with cannot be written"
    );
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Directories of a target: inputs found so far, the kept corpus, the first inputs.
fn corpora(name: &str) -> Result<[PathBuf; 3]> {
    let dirs = ["fuzz/target/found", "fuzz/corpus", "fuzz/target/seeds"];
    let dirs = dirs.map(|dir| Path::new(dir).join(name));
    for dir in &dirs {
        fs::create_dir_all(dir)?;
    }
    Ok(dirs)
}

/// Runs a target until its time is over; it is started again after what ends it.
fn fuzz(program: &Path, name: &str, time: Duration) -> Result<Outcome> {
    let dirs = corpora(name)?;
    let artifacts = Path::new("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts)?;
    let (started, mut outcome) = (Instant::now(), Outcome::default());
    loop {
        let left = time.saturating_sub(started.elapsed()).as_secs();
        if left == 0 || outcome.findings.len() >= FINDINGS_MAX {
            break;
        }
        let output = Command::new(program)
            .env("FUZZ_TARGET", name)
            .env("RUST_BACKTRACE", "0")
            .arg(format!("-max_total_time={left}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={INPUT_S}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args([
                "-print_final_stats=1",
                "-close_fd_mask=1",
                "-len_control=0",
                "-reduce_inputs=1",
            ])
            .arg(format!("-max_len={}", longest(name)))
            .args(&dirs)
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        read(&text, output.status.success(), &mut outcome);
        println!(
            "{name}: {} executions in {:.0} s, {} findings",
            outcome.executions,
            started.elapsed().as_secs_f32(),
            outcome.findings.len()
        );
    }
    outcome.seconds = started.elapsed().as_secs_f32();
    Ok(outcome)
}

/// Bytes of the longest input of a target.
fn longest(name: &str) -> u32 {
    match name {
        "messages" | "records" | "decisions" => 16 << 10,
        "shim_messages" | "configuration" | "verifiers" => 8 << 10,
        "step_layout" | "rest" | "jsv" => 4 << 10,
        _ => 1 << 10,
    }
}

/// Reads the output of libFuzzer.
fn read(text: &str, well: bool, outcome: &mut Outcome) {
    for line in text.lines() {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.executions += count.trim().parse::<u64>().unwrap_or(0);
        }
        if let Some(path) = line.split("Test unit written to ").nth(1) {
            outcome.inputs.push(path.to_owned());
        }
    }
    if well {
        return;
    }
    let place = text
        .lines()
        .find_map(|line| line.split("panicked at ").nth(1));
    let error = text.lines().find(|line| line.contains("ERROR: libFuzzer"));
    let what = place.or(error).unwrap_or("it ended");
    outcome
        .findings
        .insert(what.trim_end_matches(':').to_owned());
}

/// Adds to the kept corpus what takes new ways, and leaves out some of it where it is too much.
fn keep(program: &Path, name: &str) -> Result<()> {
    let [found, kept, seeds] = corpora(name)?;
    let merged = Path::new("fuzz/target/merged").join(name);
    let _ = fs::remove_dir_all(&merged);
    fs::create_dir_all(&merged)?;
    let status = Command::new(program)
        .env("FUZZ_TARGET", name)
        .args(["-merge=1", "-close_fd_mask=1"])
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .args([&merged, &kept, &found, &seeds])
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "{name}: the corpus cannot be merged");
    let mut files = Vec::new();
    for entry in fs::read_dir(&merged)? {
        let entry = entry?;
        files.push((entry.metadata()?.len(), entry.path()));
    }
    files.sort();
    fs::remove_dir_all(&kept)?;
    fs::create_dir_all(&kept)?;
    // Both short and long ones.
    let step = files.len().div_ceil(FILES_MAX).max(1);
    let mut bytes = 0;
    for (size, file) in files.into_iter().step_by(step) {
        bytes += size;
        if bytes > CORPUS_MAX {
            break;
        }
        let to = kept.join(file.file_name().context("a file has a name")?);
        fs::copy(&file, to)?;
    }
    Ok(())
}
