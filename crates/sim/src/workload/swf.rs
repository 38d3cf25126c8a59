//! The Standard Workload Format of the Parallel Workloads Archive: a line for each job with 18 fields, header
//! comments that begin with `;`. Reads and writes it; damaged lines are errors with their number, not guesses.

use super::{Workload, WorkloadJob};
use std::fmt::Write as _;

/// A line that is not of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwfError {
    /// Its number, from 1.
    pub line: usize,
    /// The error, and the expected form.
    pub what: String,
}

impl std::fmt::Display for SwfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for SwfError {}

/// Fields of a line; fewer are an error.
const FIELDS: usize = 18;

/// Reads a trace.
///
/// # Errors
/// A line without 18 numbers.
pub fn parse(text: &str) -> Result<Workload, SwfError> {
    let mut workload = Workload::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            header(comment, &mut workload);
        } else if !line.is_empty() {
            let fields = fields(line).map_err(|what| SwfError { line: at + 1, what })?;
            match job(&fields) {
                Some(job) => workload.jobs.push(job),
                None => workload.skipped += 1,
            }
        }
    }
    Ok(workload.settle())
}

fn header(comment: &str, workload: &mut Workload) {
    let Some((key, value)) = comment.split_once(':') else {
        return;
    };
    // Some logs say `128 (64 before 1994)`.
    let digits: String = value
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let Some(count) = digits.parse::<u32>().ok().filter(|n| *n > 0) else {
        return;
    };
    match key.trim() {
        "MaxProcs" => workload.processors = count,
        "MaxNodes" => workload.nodes = Some(count),
        _ => {}
    }
}

fn fields(line: &str) -> Result<[i64; FIELDS], String> {
    let mut out = [-1; FIELDS];
    let mut words = line.split_ascii_whitespace();
    for (field, slot) in out.iter_mut().enumerate() {
        let word = words.next().ok_or_else(|| {
            format!("has {field} fields, a job of the Standard Workload Format has {FIELDS}")
        })?;
        // Run and CPU times have fractions in some logs.
        let number = || word.parse::<f64>().ok().filter(|n| n.is_finite());
        *slot = (word.parse::<i32>().ok())
            .map(i64::from)
            .or_else(|| number().map(|n| n.round() as i64))
            .ok_or_else(|| format!("field {}, `{word}`, is not a number", field + 1))?;
    }
    Ok(out)
}

/// The job of a line; `None` if it never ran or does not say how large it was.
fn job(fields: &[i64; FIELDS]) -> Option<WorkloadJob> {
    let known = |at: usize| u64::try_from(fields[at]).ok();
    let positive = |at: usize| known(at).filter(|n| *n > 0);
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let run_s = known(3)?;
    let processors = positive(7).or_else(|| positive(4))?;
    Some(WorkloadJob {
        number: known(0).unwrap_or(0),
        submit_s: known(1)?,
        run_s,
        processors: small(processors),
        limit_s: positive(8).unwrap_or(run_s.max(1)),
        user: small(known(11).unwrap_or(0)),
        program: known(13).map(small),
    })
}

/// Writes a trace that [`parse`] reads.
pub fn write(workload: &Workload, title: &str) -> String {
    let mut text = format!(
        "; Version: 2.2\n; Computer: {title}\n; MaxJobs: {}\n; MaxProcs: {}\n",
        workload.jobs.len(),
        workload.processors
    );
    if let Some(nodes) = workload.nodes {
        let _ = writeln!(text, "; MaxNodes: {nodes}");
    }
    for job in &workload.jobs {
        let program = job.program.map_or(-1, i64::from);
        let _ = writeln!(
            text,
            "{} {} -1 {} {} -1 -1 {} {} -1 1 {} 1 {program} -1 -1 -1 -1",
            job.number,
            job.submit_s,
            job.run_s,
            job.processors,
            job.processors,
            job.limit_s,
            job.user
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
; Version: 2.2
; MaxNodes: 4
; MaxProcs: 8 (4 nodes of 2)

  1  0 -1 100  2 -1 -1  4  600 -1 1 7 1 3 -1 -1 -1 -1
  3 90 -1  50 -1 -1 -1 -1 60 -1 1 7 1 3 -1 -1 -1 -1
  2 60 -1 99.6 2 -1 -1 -1 -1 -1 1 8 1 -1 -1 -1 -1 -1
  4 95 -1  -1  2 -1 -1  2 60 -1 5 7 1 3 -1 -1 -1 -1
";

    #[test]
    fn reads_header_and_jobs_in_order_of_submission() {
        let workload = parse(TRACE).unwrap();
        assert_eq!((workload.processors, workload.nodes), (8, Some(4)));
        assert_eq!(workload.skipped, 2, "one has no size, one no run time");
        let [first, second] = workload.jobs[..] else {
            panic!("{:?}", workload.jobs);
        };
        assert_eq!((first.number, first.processors, first.limit_s), (1, 4, 600));
        assert_eq!((second.number, second.run_s, second.limit_s), (2, 100, 100));
        assert_eq!((first.program, second.program), (Some(3), None));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let workload = parse(TRACE).unwrap();
        let again = parse(&write(&workload, "a test")).unwrap();
        assert_eq!(again.jobs, workload.jobs);
        assert_eq!((again.processors, again.nodes), (8, Some(4)));
    }

    #[test]
    fn a_damaged_line_is_named() {
        let short = parse("1 2 3\n").unwrap_err();
        assert_eq!(short.line, 1);
        assert!(short.to_string().contains("has 3 fields"), "{short}");
        let word = parse(&format!("; a\n{}", "x ".repeat(18))).unwrap_err();
        assert_eq!(word.to_string(), "line 2: field 1, `x`, is not a number");
    }
}
