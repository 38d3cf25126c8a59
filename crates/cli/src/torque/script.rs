//! Program of a job of qsub: the script as it is, under the shell that it names, with a line before it that has
//! `PBS_NODEFILE` name a file; or a command.

use crate::submit::line;
use muster_model::limits::SCRIPT_BYTES_MAX;
use std::io::Read as _;

/// Program of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TorqueProgram {
    /// The script; empty for a command.
    pub(super) bytes: Vec<u8>,
    /// Where it was read; empty for standard input and commands.
    pub(super) path: String,
    /// Its arguments, or the command.
    pub(super) args: Vec<String>,
    /// Default for the job's name.
    pub(super) name: String,
    /// Whether it is a command.
    pub(super) is_command: bool,
}

impl TorqueProgram {
    /// A script and its arguments; standard input without one.
    pub(super) fn of_script(words: &[String]) -> Result<TorqueProgram, String> {
        let (path, args) = match words.split_first() {
            Some((path, args)) if path != "-" => (path.as_str(), args),
            Some((_, args)) => ("", args),
            None => ("", words),
        };
        let name = match path {
            "" => "STDIN".to_owned(),
            path => line::base_name(path),
        };
        Ok(TorqueProgram {
            bytes: read(path)?,
            path: match path {
                "" => String::new(),
                path => line::current_dir()
                    .join(path)
                    .to_string_lossy()
                    .into_owned(),
            },
            args: args.to_vec(),
            name,
            is_command: false,
        })
    }

    /// A command.
    pub(super) fn of_command(words: &[String]) -> Result<TorqueProgram, String> {
        let first = words.first().ok_or("-b y: there is no command")?;
        Ok(TorqueProgram {
            args: words.to_vec(),
            // A command in one word has its first part's name.
            name: line::base_name(first.split_whitespace().next().unwrap_or(first)),
            is_command: true,
            ..TorqueProgram::default()
        })
    }

    /// The script's text, as far as it is one.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads a script, or standard input where there is no path.
pub(super) fn read(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = SCRIPT_BYTES_MAX as u64 + 1;
    let read = match path {
        "" => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    let what = if path.is_empty() {
        "standard input"
    } else {
        path
    };
    read.map_err(|e| format!("cannot read the script {what}: {e}"))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(format!("the script {what} is empty"));
    }
    if bytes.contains(&0) {
        return Err(format!(
            "the script {what} has a zero byte; submit a program with -b y"
        ));
    }
    if bytes.len() > SCRIPT_BYTES_MAX {
        return Err(format!("the script {what} is too large"));
    }
    Ok(bytes)
}

/// Shells for which a line can be put before the script's own.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// Has `PBS_NODEFILE` name a file with a line for each slot: one that the shell has open and that has no name any more, so that
/// nothing is left of it.
const NODE_FILE: &str = "if [ -n \"$MUSTER_PBS_HOSTS\" ] && PBS_NODEFILE=$(mktemp); then \
     printf %s \"$MUSTER_PBS_HOSTS\" | while read -r h n; do while [ \"$n\" -gt 0 ]; do echo \"$h\"; n=$((n-1)); done; done \
     >\"$PBS_NODEFILE\"; exec 7<\"$PBS_NODEFILE\"; rm -f \"$PBS_NODEFILE\"; PBS_NODEFILE=/proc/$$/fd/7; \
     export PBS_NODEFILE; fi\n";

/// The script that is sent: under the shell that `-S`, its first line or the user's login says.
pub(super) fn made(script: &[u8], shell: Option<&str>) -> Vec<u8> {
    let (first, rest) = match script.starts_with(b"#!") {
        true => {
            let end = script.iter().position(|b| *b == b'\n');
            script.split_at(end.map_or(script.len(), |at| at + 1))
        }
        false => (&b""[..], script),
    };
    let mut text = match (shell, first) {
        (Some(shell), _) => format!("#!{shell}\n").into_bytes(),
        (None, b"") => format!("#!{}\n", login_shell()).into_bytes(),
        (None, first) => first.to_vec(),
    };
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    if is_shell(&text) {
        text.extend_from_slice(NODE_FILE.as_bytes());
    }
    text.extend_from_slice(rest);
    text
}

fn login_shell() -> String {
    let uid = nix::unistd::getuid().as_raw();
    let shell = crate::people::user_of_uid(uid).map(|user| user.shell);
    let shell = shell.map(|path| path.to_string_lossy().into_owned());
    shell
        .filter(|path| !path.is_empty() && !path.ends_with("/nologin") && !path.ends_with("/false"))
        .unwrap_or_else(|| "/bin/sh".to_owned())
}

fn is_shell(first_line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(first_line);
    let mut words = line.trim_start_matches("#!").split_whitespace();
    let program = words.next().unwrap_or_default();
    let program = match program.rsplit('/').next() {
        Some("env") => words.next().unwrap_or_default(),
        Some(name) => name,
        None => "",
    };
    SHELLS.contains(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        let of = |text: &str, shell| String::from_utf8(made(text.as_bytes(), shell)).unwrap();
        let shell = of("#!/bin/bash\ntrue\n", None);
        assert!(shell.starts_with("#!/bin/bash\nif [ -n \"$MUSTER_PBS_HOSTS\" ]"));
        assert!(shell.ends_with("fi\ntrue\n"));
        assert!(of("#!/bin/bash\ntrue\n", Some("/bin/ksh")).starts_with("#!/bin/ksh\nif"));
        assert_eq!(
            of("#!/usr/bin/python3\n1\n", None),
            "#!/usr/bin/python3\n1\n"
        );
        assert_eq!(of("#!/bin/csh", None), "#!/bin/csh\n");
        assert!(of("true\n", None).starts_with("#!/"));
        assert!(of("#!/usr/bin/env bash\n1\n", None).contains("PBS_NODEFILE"));
    }

    /// The line is one that each shell can run.
    #[test]
    fn the_file_of_nodes_has_a_line_for_each_slot() {
        let text = format!("{NODE_FILE}cat $PBS_NODEFILE; wc -l <$PBS_NODEFILE");
        let run = std::process::Command::new("/bin/sh")
            .args(["-c", &text])
            .env("MUSTER_PBS_HOSTS", "n1 2\nn2 1\n")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&run.stdout).into_owned();
        let words: Vec<&str> = out.split_whitespace().collect();
        assert_eq!(words, ["n1", "n1", "n2", "3"], "{run:?}");
    }

    #[test]
    fn what_is_run() {
        let words = |text: &str| Vec::from_iter(text.split_whitespace().map(str::to_owned));
        let command = TorqueProgram::of_command(&words("/bin/echo hi")).unwrap();
        assert_eq!((command.name.as_str(), command.args.len()), ("echo", 2));
        let one = TorqueProgram::of_command(&["/bin/echo $A".to_owned()]).unwrap();
        assert_eq!(one.name, "echo");
        assert!(TorqueProgram::of_command(&[]).is_err());
        let absent = TorqueProgram::of_script(&words("/nosuch/script")).unwrap_err();
        assert!(absent.starts_with("cannot read the script /nosuch/script: "));
    }
}
