//! `muster doctor`: abilities and gaps of this machine as a node, with remedies. It changes nothing: MPI programs are
//! tried on a private cluster that goes with it.

mod machine;
mod programs;

use anyhow::{Result, bail};
use serde_json::json;
use std::process::ExitCode;

const HELP: &str = "\
muster doctor [--json] [--quick]     what this machine can do as a node, and what to install or set

Looks at the MPI libraries (two ranks are started with each, by srun and by its own mpirun, on a private cluster that
is gone afterwards), libpmix, cross-memory attach, shared memory, limits, control groups, munge, clock and ports.

  --json     one JSON object
  --quick    start no MPI programs

The exit status is 1 if something that is there does not work.
";

/// Weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works.
    Good,
    /// It is not there, or could be better; act if it is needed.
    Note,
    /// It is there and does not work.
    Bad,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Note => "note",
            State::Bad => "FAIL",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    area: &'static str,
    name: String,
    state: State,
    /// The finding.
    found: String,
    /// Remedy; empty if none is needed.
    advice: String,
}

impl Finding {
    fn new(area: &'static str, name: &str, state: State, found: String) -> Finding {
        Finding {
            area,
            name: name.to_owned(),
            state,
            found,
            advice: String::new(),
        }
    }

    fn advise(mut self, advice: &str) -> Finding {
        advice.clone_into(&mut self.advice);
        self
    }
}

/// Runs the command.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    let (mut in_json, mut quick) = (false, false);
    for word in words {
        match word.as_str() {
            "--json" => in_json = true,
            "--quick" => quick = true,
            "--help" | "-h" => {
                say!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => bail!("doctor has no option '{other}'; 'muster doctor --help' lists them"),
        }
    }
    let mut findings = machine::look();
    findings.extend(programs::look(!quick));
    say!(
        "{}",
        if in_json {
            as_json(&findings)
        } else {
            as_text(&findings)
        }
    );
    let failed = findings.iter().any(|f| f.state == State::Bad);
    Ok(ExitCode::from(u8::from(failed)))
}

fn as_json(findings: &[Finding]) -> String {
    let list: Vec<_> = findings
        .iter()
        .map(|f| {
            json!({
                "area": f.area,
                "name": f.name,
                "state": f.state.word().to_lowercase(),
                "found": f.found,
                "advice": f.advice,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "findings": list }))
}

fn as_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut area = "";
    for f in findings {
        if f.area != area {
            area = f.area;
            out += &format!("{}{area}\n", if out.is_empty() { "" } else { "\n" });
        }
        out += &format!("  {:<4}  {:<width$}  {}\n", f.state.word(), f.name, f.found);
        if !f.advice.is_empty() {
            out += &format!("        {:<width$}  -> {}\n", "", f.advice);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_by_area() {
        let findings = [
            Finding::new("machine", "clock", State::Good, "synchronised".to_owned()),
            Finding::new("MPI", "libpmix", State::Note, "not found".to_owned())
                .advise("install libpmix2"),
        ];
        assert_eq!(
            as_text(&findings),
            "machine\n  ok    clock    synchronised\n\nMPI\n  note  libpmix  not found\n                 -> install libpmix2\n"
        );
        let json: serde_json::Value = serde_json::from_str(&as_json(&findings)).unwrap();
        assert_eq!(json["findings"][1]["advice"], "install libpmix2");
    }
}
