//! `muster sim`: a trace or a model's workload through the real scheduler, and how good the schedule is.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use muster_sim::replay::metrics::{Metrics, metrics};
use muster_sim::replay::{Options, Outcome, Policy, plot, replay};
use muster_sim::workload::{Workload, lublin, swf};
use std::fs;
use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "\
muster sim TRACE.swf[.gz] [OPTIONS]        replay a trace in the Standard Workload Format
muster sim --generate lublin [OPTIONS]     replay the workload of a model (Lublin and Feitelson, 2003)

The jobs go through the controller's own scheduler on a virtual clock, and end when the trace says, or at their limit.

  --policy WORD          one of those below, or 'all' for each of them, one after another
  --parameters TEXT      further SchedulerParameters, as in slurm.conf
  --procs N              processors of the machine, instead of the trace's own
  --cpus-per-node N      CPUs of each node; by default the trace's nodes, or nodes of one CPU
  --load X               stretch or shrink the gaps between submissions to this offered load
  --json                 one JSON object
  --plot FILE            write queue and use over time as SVG (not with '--policy all')

  --jobs N, --seed N, --users N, --exact-limits   of --generate: 10000, 1, 64; limits equal to run times
  --write FILE           of --generate: write the workload as a trace, and replay nothing
";

/// Text of `--help`, with the policies of the replay.
fn help() -> String {
    let mut text = HELP.to_owned();
    text.push_str("\nPolicies:\n");
    for (word, _, about) in Policy::ALL {
        text.push_str(&format!("  {word:<22} {about}\n"));
    }
    text
}

/// Arguments of the command line.
struct Args {
    trace: Option<String>,
    generate: Option<lublin::Options>,
    policies: Vec<(&'static str, Policy)>,
    parameters: Vec<String>,
    procs: Option<u32>,
    cpus_per_node: Option<u32>,
    load: Option<f64>,
    json: bool,
    plot: Option<String>,
    write: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A trace that cannot be read, a workload that the scheduler refuses.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    if words.is_empty() || words.iter().any(|w| w == "--help" || w == "-h") {
        say!("{}", help());
        return Ok(ExitCode::from(u8::from(words.is_empty())));
    }
    let args = parse(words)?;
    let (name, workload) = workload(&args)?;
    if let Some(path) = &args.write {
        let text = swf::write(&workload, "a model: Lublin and Feitelson, 2003");
        fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
        say!("{} jobs written to {path}\n", workload.jobs.len());
        return Ok(ExitCode::SUCCESS);
    }
    let heading = Heading {
        name: &name,
        workload: &workload,
    };
    if !args.json {
        heading.print();
    }
    let mut objects = Vec::new();
    for &(word, policy) in &args.policies {
        let (outcome, took) = run(&args, &workload, policy)?;
        let metrics = metrics(&outcome.jobs, outcome.processors);
        if args.json {
            objects.push(object(&heading, word, &outcome, &metrics, took));
        } else {
            print_row(word, &outcome, &metrics, took);
        }
        if let Some(path) = &args.plot {
            let title = format!("{name}, policy {word}");
            let text = plot::svg(&title, &outcome.samples, outcome.processors);
            fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
        }
    }
    match objects.as_slice() {
        [] => {}
        [one] => say!("{one:#}\n"),
        all => say!("{:#}\n", serde_json::Value::from(all)),
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(words: &[String]) -> Result<Args> {
    let mut args = Args {
        trace: None,
        generate: None,
        policies: vec![("default", Policy::Default)],
        parameters: Vec::new(),
        procs: None,
        cpus_per_node: None,
        load: None,
        json: false,
        plot: None,
        write: None,
    };
    let mut model = lublin::Options::default();
    let mut of_model = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (key, joined) = match word.split_once('=') {
            Some((key, value)) if key.starts_with("--") => (key, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let mut value = || {
            joined
                .clone()
                .or_else(|| words.next().cloned())
                .with_context(|| format!("option {key} needs a value"))
        };
        match key {
            "--policy" => args.policies = policies(&value()?)?,
            "--parameters" => args
                .parameters
                .extend(value()?.split(',').map(str::to_owned)),
            "--procs" => args.procs = Some(number(key, &value()?)?),
            "--cpus-per-node" => args.cpus_per_node = Some(number(key, &value()?)?),
            "--load" => args.load = Some(load(&value()?)?),
            "--json" => args.json = true,
            "--plot" => args.plot = Some(value()?),
            "--write" => args.write = Some(value()?),
            "--generate" => match value()?.as_str() {
                "lublin" => args.generate = Some(model.clone()),
                other => bail!("there is no model '{other}'; there is: lublin"),
            },
            "--jobs" | "--seed" | "--users" => {
                let value = number(key, &value()?)?;
                of_model = Some(key.to_owned());
                match key {
                    "--jobs" => model.jobs = value,
                    "--seed" => model.seed = u64::from(value),
                    _ => model.users = value,
                }
            }
            "--exact-limits" => {
                of_model = Some(key.to_owned());
                model.rounded_limits = false;
            }
            _ if key.starts_with('-') => {
                bail!("'muster sim' has no option '{key}'; 'muster sim --help' lists them")
            }
            _ if args.trace.is_some() => bail!("one trace at a time: '{word}' is another"),
            _ => args.trace = Some(word.clone()),
        }
    }
    match (&args.trace, &mut args.generate) {
        (None, None) => bail!("name a trace, or a model with --generate"),
        (Some(_), Some(_)) => bail!("a trace or --generate, not both"),
        (None, Some(generate)) => *generate = model,
        (Some(_), None) => {
            if let Some(key) = of_model {
                bail!("{key} is an option of --generate; a trace has its own");
            }
        }
    }
    if args.plot.is_some() && args.policies.len() > 1 {
        bail!("--plot draws one policy: name it with --policy");
    }
    Ok(args)
}

fn policies(word: &str) -> Result<Vec<(&'static str, Policy)>> {
    let all = Policy::ALL.iter().map(|(name, policy, _)| (*name, *policy));
    let found: Vec<_> = all
        .filter(|(name, _)| word == "all" || *name == word)
        .collect();
    if found.is_empty() {
        let names: Vec<&str> = Policy::ALL.iter().map(|(name, ..)| *name).collect();
        bail!(
            "there is no policy '{word}'; there are: {}, all",
            names.join(", ")
        );
    }
    Ok(found)
}

fn number(key: &str, text: &str) -> Result<u32> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => bail!("{key} takes a number over 0, not '{text}'"),
    }
}

fn load(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(load) if load > 0.0 && load <= 10.0 => Ok(load),
        _ => bail!("--load takes a number over 0 and up to 10, such as 0.8, not '{text}'"),
    }
}

fn workload(args: &Args) -> Result<(String, Workload)> {
    let (name, mut workload) = match (&args.trace, &args.generate) {
        (Some(path), _) => {
            let text = read(path)?;
            let workload = swf::parse(&text).with_context(|| path.clone())?;
            (path.rsplit('/').next().unwrap_or(path).to_owned(), workload)
        }
        (None, generate) => {
            let mut options = generate.clone().unwrap_or_default();
            options.processors = args.procs.unwrap_or(options.processors);
            (
                format!("lublin, seed {}", options.seed),
                lublin::generate(&options),
            )
        }
    };
    if workload.jobs.is_empty() {
        bail!("{name} has no job that could run");
    }
    if let Some(procs) = args.procs {
        workload.processors = procs;
        workload.nodes = None;
    }
    if let Some(load) = args.load {
        workload.scale_to_load(load);
    }
    Ok((name, workload))
}

fn read(path: &str) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {path}"))?;
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut text)
            .with_context(|| format!("{path} is damaged"))?;
    } else {
        text = bytes;
    }
    // Names in comments are in all kinds of encodings.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn run(args: &Args, workload: &Workload, policy: Policy) -> Result<(Outcome, Duration)> {
    let mut options = Options::new(policy, workload);
    options.parameters.clone_from(&args.parameters);
    options.cpus_per_node = args.cpus_per_node.unwrap_or(options.cpus_per_node);
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{bar:40} {percent} % {pos}/{len} jobs, {eta}")?;
        ProgressBar::new(workload.jobs.len() as u64).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let begin = Instant::now();
    let outcome = replay(workload, &options, &mut |done| {
        bar.set_position(done as u64)
    })?;
    let took = begin.elapsed();
    bar.finish_and_clear();
    Ok((outcome, took))
}

struct Heading<'a> {
    name: &'a str,
    workload: &'a Workload,
}

impl Heading<'_> {
    fn print(&self) {
        let w = self.workload;
        say!(
            "{}: {} jobs, {} processors, offered load {:.2}{}\n",
            self.name,
            w.jobs.len(),
            w.processors,
            w.offered_load(),
            match w.skipped {
                0 => String::new(),
                n => format!(", {n} records that never ran left out"),
            }
        );
        say!(
            "{:<14} {:>10} {:>11} {:>10} {:>10} {:>12} {:>9} {:>9}\n",
            "policy",
            "slowdown",
            "mean wait s",
            "p95 s",
            "max h",
            "utilisation",
            "passes",
            "took s"
        );
    }
}

fn print_row(word: &str, outcome: &Outcome, m: &Metrics, took: Duration) {
    say!(
        "{word:<14} {:>10.2} {:>11.0} {:>10.0} {:>10.1} {:>12.3} {:>9} {:>9.2}\n",
        m.avg_bounded_slowdown,
        m.mean_wait_s,
        m.p95_wait_s,
        m.max_wait_s / 3600.0,
        m.utilisation,
        outcome.passes,
        took.as_secs_f64()
    );
    if outcome.too_large > 0 {
        say!(
            "  {} jobs left out: larger than the machine\n",
            outcome.too_large
        );
    }
}

fn object(
    heading: &Heading<'_>,
    word: &str,
    outcome: &Outcome,
    m: &Metrics,
    took: Duration,
) -> serde_json::Value {
    serde_json::json!({
        "workload": heading.name,
        "policy": word,
        "jobs": m.jobs,
        "jobs_too_large": outcome.too_large,
        "processors": outcome.processors,
        "avg_bounded_slowdown": m.avg_bounded_slowdown,
        "mean_wait_s": m.mean_wait_s,
        "p95_wait_s": m.p95_wait_s,
        "max_wait_s": m.max_wait_s,
        "utilisation": m.utilisation,
        "passes": outcome.passes,
        "took_s": took.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_in_either_form() {
        let args = parsed("t.swf --policy=easy --json --load 0.8 --parameters a,b=1").unwrap();
        assert_eq!(args.policies, [("easy", Policy::Easy)]);
        assert_eq!((args.json, args.load), (true, Some(0.8)));
        assert_eq!(args.parameters, ["a", "b=1"]);
        let args = parsed("--generate lublin --jobs 5 --seed 7").unwrap();
        let model = args.generate.unwrap();
        assert_eq!((model.jobs, model.seed), (5, 7));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, text) in [
            ("t.swf --policy best", "there is no policy 'best'"),
            ("t.swf --jobs 5", "--jobs is an option of --generate"),
            ("a.swf b.swf", "'b.swf'"),
            ("--json", "name a trace"),
            ("t.swf --fast", "'--fast'"),
            ("t.swf --load -1", "--load"),
            ("t.swf --policy all --plot x", "--plot"),
        ] {
            let Err(error) = parsed(line) else {
                panic!("'{line}' is taken");
            };
            assert!(error.to_string().contains(text), "{line}: {error}");
        }
    }
}
