//! `cargo xtask differ`: runs the same command lines on a real Slurm (where it is installed) and on Muster, both in the
//! same state, and shows where output or exit status differ; with `--grid-engine` on a real Grid Engine. What may differ is listed with
//! its reason in accepted.txt of tests/differ or tests/grid-engine. It measures nothing; `cargo xtask bench peer` does.

mod accepted;
mod clusters;
mod compare;
mod corpus;
mod draw;

use accepted::{AcceptedList, LineVerdict};
use anyhow::{Context, Result, bail, ensure};
use clusters::BothClusters;
use corpus::CorpusLine;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

/// All findings.
const REPORT: &str = "target/differ.txt";

/// The product that Muster is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ComparedProduct {
    Slurm,
    GridEngine,
}

impl ComparedProduct {
    fn name(self) -> &'static str {
        match self {
            ComparedProduct::Slurm => "Slurm",
            ComparedProduct::GridEngine => "Grid Engine",
        }
    }

    /// Where configuration, lines and the accepted differences are.
    fn folder(self) -> &'static str {
        match self {
            ComparedProduct::Slurm => "tests/differ",
            ComparedProduct::GridEngine => "tests/grid-engine",
        }
    }
}
/// Changed lines of a difference that are printed; the report has all.
const SHOWN: usize = 12;

/// Options, as messages name them.
const OPTIONS: &str = "--grid-engine, --seed N, --lines N, --only COMMAND, --muster FILE, --hold";

struct DifferOptions {
    product: ComparedProduct,
    seed: u64,
    /// Lines that are drawn beside those of the files.
    drawn: usize,
    only: Option<String>,
    /// Runs no line, but leaves both clusters for lines that are typed.
    hold: bool,
}

/// Runs all lines, or those that begin with a command.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let product = options.product;
    let mut accepted = AcceptedList::read(&read(product, "accepted.txt")?)?;
    let mut lines = corpus::read_all(product.folder())?;
    if product == ComparedProduct::Slurm {
        lines.extend(draw::lines(options.seed, options.drawn)?);
    }
    // Queries first: what changes the state leaves ended jobs and numbers behind.
    lines.sort_by_key(|line| line.kind);
    if let Some(only) = &options.only {
        lines.retain(|line| line.text.split_whitespace().any(|word| word == only));
    }
    let Some(clusters) = BothClusters::start(product)? else {
        let name = product.name();
        println!("{name} is not installed here: there is nothing to compare with.");
        return Ok(());
    };
    if options.hold {
        return clusters.hold();
    }
    let mut report = DifferReport::default();
    for line in &lines {
        let mut verdict = judge(&clusters, line, &mut accepted)?;
        if line.kind == corpus::CorpusKind::Query && matches!(verdict, LineVerdict::Differs(_)) {
            // A second between two answers is no difference.
            verdict = judge(&clusters, line, &mut accepted)?;
        }
        report.add(line, verdict);
    }
    drop(clusters);
    let unused = accepted.unused();
    report.write(&unused)?;
    let whole = options.only.is_none();
    println!("{}", report.summary(lines.len()));
    for entry in unused.iter().filter(|_| whole) {
        println!("accepted, but met by no line: {entry}");
    }
    ensure!(
        report.differences == 0,
        "{} differences; all are in {REPORT}",
        report.differences
    );
    Ok(())
}

fn options(args: &[String]) -> Result<DifferOptions> {
    let mut options = DifferOptions {
        product: ComparedProduct::Slurm,
        seed: 1,
        drawn: 1100,
        only: None,
        hold: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--lines" => options.drawn = value()?.parse().context("--lines")?,
            "--only" => options.only = Some(value()?.clone()),
            "--muster" => crate::build::use_given(value()?)?,
            "--grid-engine" => options.product = ComparedProduct::GridEngine,
            "--hold" => options.hold = true,
            _ => bail!("unknown option {arg}; there are {OPTIONS}"),
        }
    }
    Ok(options)
}

/// A file of a product's folder.
fn read(product: ComparedProduct, name: &str) -> Result<String> {
    let file = format!("{}/{name}", product.folder());
    fs::read_to_string(&file).with_context(|| format!("{file}: run this in the repository's root"))
}

fn judge(
    clusters: &BothClusters,
    line: &CorpusLine,
    accepted: &mut AcceptedList,
) -> Result<LineVerdict> {
    let (other, muster) = clusters.answers(line)?;
    Ok(accepted.judge(&line.text, &other, &muster))
}

/// Results of the lines.
#[derive(Default)]
struct DifferReport {
    equal: usize,
    differences: usize,
    by_reason: BTreeMap<String, usize>,
    text: String,
}

impl DifferReport {
    fn add(&mut self, line: &CorpusLine, verdict: LineVerdict) {
        match verdict {
            LineVerdict::Equal => self.equal += 1,
            LineVerdict::Accepted(reasons) => {
                for reason in reasons {
                    *self.by_reason.entry(reason).or_default() += 1;
                }
            }
            LineVerdict::Differs(changes) => {
                self.differences += 1;
                let mut text = format!("== {}: {}\n", line.user.name(), line.text);
                for change in &changes {
                    let _ = writeln!(text, "{change}");
                }
                self.text += &text;
                let end = text.match_indices('\n').nth(SHOWN);
                print!("{}", end.map_or(&*text, |(at, _)| &text[..=at]));
            }
        }
    }

    fn summary(&self, lines: usize) -> String {
        let accepted = lines - self.equal - self.differences;
        let mut text = format!(
            "{lines} lines: {} equal, {accepted} differ as accepted, {} differ",
            self.equal, self.differences
        );
        for (reason, count) in &self.by_reason {
            let _ = write!(text, "\n  {count:>4}  {reason}");
        }
        text
    }

    fn write(&self, unused: &[String]) -> Result<()> {
        let mut text = self.text.clone();
        for entry in unused {
            let _ = writeln!(text, "== unused: {entry}");
        }
        fs::write(REPORT, text).context(REPORT)
    }
}
