//! mpiexec.slurm: starts a parallel program in a job, by srun.

use super::arguments::{self, TorqueLine, WordPlaces};
use super::{HELP, fail, wrong_usage};
use crate::errno;
use crate::options::{HelpForm, Opt, Spec, env, flag, opt};
use crate::{say, srun};
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

/// mpiexec.slurm.
pub(crate) static SPEC: Spec = Spec {
    name: "mpiexec.slurm",
    about: "Starts a parallel program in a job, with the options of mpiexec for Torque.",
    operands: "PROGRAM [ARGUMENT...]",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "Lines of a file of -config are '-n COUNT : PROGRAM [ARGUMENT...]'; those that begin with # are comments.\n",
};

static OPTIONS: &[Opt] = &[
    opt("n", "count", "number of processes"),
    opt("np", "count", "as -n"),
    opt("host", "host", "node that runs them"),
    flag("pernode", "one process on each node"),
    flag("nostdin", "no standard input"),
    flag(
        "allstdin",
        "standard input goes to all processes, as it does anyway",
    ),
    flag("nostdout", "output goes into files of the job's name"),
    opt(
        "config",
        "file",
        "programs and numbers of their processes; - is standard input",
    ),
    flag("verbose", "say more"),
    HELP[0],
    HELP[1],
];

/// Runs mpiexec.slurm.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &[String]) -> Result<ExitCode, ExitCode> {
    let parsed =
        arguments::parse(&SPEC, args, WordPlaces::End).map_err(|why| wrong_usage(&SPEC, &why))?;
    if parsed.wants_help() {
        say::stdout(&SPEC.help());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = parsed.last("config") else {
        if parsed.operands.is_empty() {
            return Err(wrong_usage(&SPEC, "there is no program"));
        }
        let mut words = words(&parsed);
        words.extend(parsed.operands.iter().cloned());
        return Ok(srun::main(&words));
    };
    if file == "-" && !parsed.has("nostdin") {
        return Err(wrong_usage(&SPEC, "-config - needs -nostdin"));
    }
    let wrong = |why: String| fail(SPEC.name, &why, 1);
    let text =
        read(file).map_err(|e| wrong(format!("cannot read {file}: {}", errno::system_text(&e))))?;
    let (count, programs) = programs(&text).map_err(|why| wrong(format!("{file}: {why}")))?;
    // srun reads a file with a line for each group of tasks.
    let mut made = tempfile(&programs)
        .map_err(|e| wrong(format!("cannot write a file: {}", errno::system_text(&e))))?;
    let _ = made.flush();
    let mut words = words(&parsed);
    words.push(format!("--ntasks={count}"));
    words.push("--multi-prog".to_owned());
    words.push(format!("/proc/self/fd/{}", descriptor(&made)));
    Ok(srun::main(&words))
}

fn read(file: &str) -> std::io::Result<String> {
    match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Ok(text)
        }
        file => std::fs::read_to_string(file),
    }
}

/// A file without a name that has this text.
fn tempfile(text: &str) -> std::io::Result<std::fs::File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let fd = memfd_create(c"mpiexec", MFdFlags::empty())?;
    let mut file = std::fs::File::from(fd);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn descriptor(file: &std::fs::File) -> i32 {
    use std::os::fd::AsRawFd as _;
    file.as_raw_fd()
}

/// Options of srun.
fn words(parsed: &TorqueLine) -> Vec<String> {
    let mut words = Vec::new();
    for given in &parsed.options {
        let value = &given.value;
        match given.name {
            "n" | "np" => words.push(format!("--ntasks={value}")),
            "host" => words.push(format!("--nodelist={value}")),
            "pernode" => {
                let nodes = env("SLURM_JOB_NUM_NODES").unwrap_or_else(|| "1".to_owned());
                words.push(format!("--nodes={nodes}"));
                words.push(format!("--ntasks={nodes}"));
                words.push("--ntasks-per-node=1".to_owned());
            }
            "nostdin" => words.push("--input=none".to_owned()),
            "nostdout" => {
                words.push("--output=%x.o%j".to_owned());
                words.push("--error=%x.e%j".to_owned());
            }
            "verbose" => words.push("-v".to_owned()),
            _ => {}
        }
    }
    words
}

/// Lines of `srun --multi-prog`, and how many tasks they are for.
fn programs(text: &str) -> Result<(u32, String), String> {
    let mut first: u32 = 0;
    let mut out = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || format!("line {number}: it is -n COUNT : PROGRAM [ARGUMENT...]");
        let rest = line.strip_prefix("-n").ok_or_else(wrong)?.trim_start();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let program = rest[digits..].trim_start();
        let program = program.strip_prefix(':').unwrap_or(program).trim();
        if program.is_empty() || count == 0 {
            return Err(wrong());
        }
        let next = first.checked_add(count).ok_or_else(wrong)?;
        out.push_str(&format!("{first}-{} {program}\n", next - 1));
        first = next;
    }
    match first {
        0 => Err("it names no program".to_owned()),
        count => Ok((count, out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_srun() {
        let of = |text: &str| {
            let given: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            let parsed = arguments::parse(&SPEC, &given, WordPlaces::End).unwrap();
            (words(&parsed).join(" "), parsed.operands.join(" "))
        };
        let own = |words: &str, rest: &str| (words.to_owned(), rest.to_owned());
        assert_eq!(of("-n 4 a.out -n 2"), own("--ntasks=4", "a.out -n 2"));
        assert_eq!(
            of("-np 2 -host n1 -verbose -nostdin a.out"),
            own("--ntasks=2 --nodelist=n1 -v --input=none", "a.out")
        );
        assert!(of("-pernode a").0.ends_with("--ntasks-per-node=1"));
    }

    #[test]
    fn files_of_programs() {
        let text = "# two\n-n 2 : foo -x\n\n-n 3 bar\n";
        let want = (5, "0-1 foo -x\n2-4 bar\n".to_owned());
        assert_eq!(programs(text), Ok(want));
        for (text, why) in [
            ("", "it names no program"),
            ("foo\n", "line 1: it is -n COUNT : PROGRAM [ARGUMENT...]"),
            (
                "#\n-n x : foo\n",
                "line 2: it is -n COUNT : PROGRAM [ARGUMENT...]",
            ),
        ] {
            assert_eq!(programs(text), Err(why.to_owned()));
        }
    }
}
