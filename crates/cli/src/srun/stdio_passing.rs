//! Descriptor passing of srun's standard streams: a step's only task then reads and writes them itself, and nothing is
//! carried.

use crate::process;
use muster_conf::options::ChosenOptions;
use muster_node_core::srun::config::{InputSource, Sink, Streams};
use muster_proto::step::{StdinTask, StepSpec};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::isatty;
use std::os::fd::BorrowedFd;

/// Whether neither the task, nor srun, nor a reader of the output would notice that the streams were passed.
pub(super) fn can_pass_stdio(chosen: &ChosenOptions, spec: &StepSpec, streams: &Streams) -> bool {
    let own = streams.stdout == Sink::Own && streams.stderr == Sink::Own;
    let input = match (&streams.stdin, spec.stdin_task) {
        (InputSource::Own, StdinTask::All | StdinTask::One(0)) => true,
        (InputSource::Nothing, StdinTask::None) => spec.stdio.stdin.is_none(),
        _ => false,
    };
    // Tasks start when the prolog is over; with the streams they would start before it. The lines of --verbose come
    // before their output, too.
    let plain = ["label", "prolog", "verbose"]
        .iter()
        .all(|long| !chosen.has(long));
    let alone = spec.ntasks.is_none_or(|n| n == 1) && spec.het.is_none() && spec.pty.is_none();
    own && input && plain && alone && are_plain()
}

/// A terminal is srun's, which puts it into other modes and takes its keys; what does not block is not what a program
/// expects.
fn are_plain() -> bool {
    let plain = |fd: BorrowedFd<'_>| {
        let flags = fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
        flags.is_ok_and(|f| !f.contains(OFlag::O_NONBLOCK)) && isatty(fd) != Ok(true)
    };
    process::standard_streams().into_iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::options::{OptionCommand, Source, find};

    fn asked(line: &[(&'static str, Option<&str>)]) -> bool {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        for (long, value) in line {
            let row = find(OptionCommand::Srun, long).unwrap();
            chosen.give(row, value.map(str::to_owned), Source::CommandLine);
        }
        let (stdio, streams, stdin_task) = super::super::request::streams(&chosen).unwrap();
        let spec = StepSpec {
            ntasks: Some(1),
            stdio,
            stdin_task,
            ..StepSpec::default()
        };
        can_pass_stdio(&chosen, &spec, &streams)
    }

    #[test]
    fn streams_that_differ_are_not_passed() {
        // The test's own streams may be a terminal.
        if !are_plain() {
            return;
        }
        assert!(asked(&[]));
        assert!(asked(&[("input", Some("none"))]));
        assert!(asked(&[("input", Some("0")), ("unbuffered", None)]));
        for line in [
            ("label", None),
            ("output", Some("file")),
            ("output", Some("0")),
            ("error", Some("%t")),
            ("input", Some("1")),
            ("input", Some("file")),
            ("prolog", Some("/bin/true")),
        ] {
            assert!(!asked(&[line]), "{line:?}");
        }
    }
}
