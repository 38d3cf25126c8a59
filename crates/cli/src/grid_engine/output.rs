//! The script that the controller gets, and the files of a job: the patterns that Muster expands for those of Grid Engine.

use super::defaults;
use super::qsub::{self, Program};
use super::request::Request;

/// The pattern of a file: where `-o` or `-e` says, in that directory, or in the job's directory under the usual name.
pub(super) fn path(request: &Request, given: Option<&str>, letter: char) -> String {
    let id = if request.tasks.is_some() {
        "%A.%a"
    } else {
        "%j"
    };
    let usual = format!("%x.{letter}{id}");
    let Some(given) = given else {
        return usual;
    };
    let pattern = pattern(given, request.tasks.is_some());
    let is_dir = given.ends_with('/') || qsub::work_dir(request).join(given).is_dir();
    match is_dir && letter != 'i' {
        true => format!("{}/{usual}", pattern.trim_end_matches('/')),
        false => pattern,
    }
}

/// Pseudo variables in a path.
fn pattern(path: &str, is_array: bool) -> String {
    let home = defaults::home().to_string_lossy().replace('%', "%%");
    let names = [
        ("$JOB_NAME", "%x"),
        ("$JOB_ID", "%A"),
        ("$TASK_ID", if is_array { "%a" } else { "undefined" }),
        ("$HOSTNAME", "%N"),
        ("$USER", "%u"),
        ("$HOME", home.as_str()),
    ];
    let mut out = String::new();
    let mut rest = path;
    if let Some(in_home) = path.strip_prefix("~/") {
        out = format!("{home}/");
        rest = in_home;
    }
    while let Some(c) = rest.chars().next() {
        if let Some((name, value)) = names.iter().find(|(name, _)| rest.starts_with(name)) {
            out.push_str(value);
            rest = &rest[name.len()..];
            continue;
        }
        match c {
            '%' => out.push_str("%%"),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Shells for which a line can be put before the script's own.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// Has `PE_HOSTFILE` name a file with the hosts: one that the shell has open and that has no name any more, so that nothing is left
/// of it.
const HOST_FILE: &str = "if [ -n \"$MUSTER_PE_HOSTS\" ] && PE_HOSTFILE=$(mktemp); then \
     printf %s \"$MUSTER_PE_HOSTS\" >\"$PE_HOSTFILE\"; exec 7<\"$PE_HOSTFILE\"; rm -f \"$PE_HOSTFILE\"; \
     PE_HOSTFILE=/proc/$$/fd/7; export PE_HOSTFILE; fi\n";

/// Likewise for csh, which cannot hold a file open: the file is in the job's own directory, which is removed with the job.
const HOST_FILE_CSH: &str = "if ( $?MUSTER_PE_HOSTS ) setenv PE_HOSTFILE `mktemp -p $TMPDIR pe_hostfile.XXXXXX`\n\
     if ( $?PE_HOSTFILE ) sh -c 'printf %s \"$MUSTER_PE_HOSTS\" >\"$PE_HOSTFILE\"'\n";

/// The program to be run: the script under the shell that `-S` or its first line names, `/bin/sh` if neither does; or the
/// command.
pub(super) fn script(request: &Request, program: &Program) -> Vec<u8> {
    let (first, rest): (Vec<u8>, &[u8]) = match program.script.strip_prefix(b"#!") {
        Some(_) => {
            let end = program.script.iter().position(|b| *b == b'\n');
            let (line, rest) = program
                .script
                .split_at(end.map_or(program.script.len(), |at| at + 1));
            (line.to_owned(), rest)
        }
        None => (b"#!/bin/sh\n".to_vec(), &program.script),
    };
    let first = match &request.shell {
        Some(shell) => format!("#!{shell}\n").into_bytes(),
        None => first,
    };
    let mut text = first;
    if request.pe.is_some() {
        text.extend_from_slice(host_file(&text).as_bytes());
    }
    match request.binary {
        false => text.extend_from_slice(rest),
        true => text.extend_from_slice(command(request, program).as_bytes()),
    }
    text
}

/// The lines that make `PE_HOSTFILE`, in the language of the script; none in those that are no shell's.
fn host_file(first_line: &[u8]) -> &'static str {
    let line = String::from_utf8_lossy(first_line);
    let mut words = line.trim_start_matches("#!").split_whitespace();
    let program = words.next().unwrap_or_default();
    let program = match program.rsplit('/').next() {
        Some("env") => words.next().unwrap_or_default(),
        Some(name) => name,
        None => "",
    };
    match program {
        shell if SHELLS.contains(&shell) => HOST_FILE,
        "csh" | "tcsh" => HOST_FILE_CSH,
        _ => "",
    }
}

/// `-b y`: the shell reads the words, but those with blanks stay one; with `-shell n` all stay unchanged.
fn command(request: &Request, program: &Program) -> String {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let as_needed = |word: &String| {
        let has_blank = word.is_empty() || word.contains(char::is_whitespace);
        match request.without_shell || has_blank && !word.contains('\'') {
            true => quoted(word),
            false => word.clone(),
        }
    };
    let mut words = vec![match request.without_shell {
        true => quoted(&program.path),
        false => program.path.clone(),
    }];
    words.extend(program.args.iter().map(as_needed));
    // A shell that is given several commands in one word must run them all.
    let exec = if request.without_shell || !program.path.contains(char::is_whitespace) {
        "exec "
    } else {
        ""
    };
    format!("{exec}{}\n", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid_engine::request::{Slots, Tasks};

    #[test]
    fn files() {
        let serial = Request::default();
        let array = Request {
            tasks: Some(Tasks {
                first: 1,
                last: 3,
                step: 1,
            }),
            ..Request::default()
        };
        for (request, given, want) in [
            (&serial, None, "%x.o%j"),
            (&array, None, "%x.o%A.%a"),
            (&serial, Some("/tmp"), "/tmp/%x.o%j"),
            (&serial, Some("/nosuch/"), "/nosuch/%x.o%j"),
            (
                &serial,
                Some("/x/$JOB_NAME-$JOB_ID.$TASK_ID"),
                "/x/%x-%A.undefined",
            ),
            (&array, Some("/x/$USER.$TASK_ID.$HOSTNAME"), "/x/%u.%a.%N"),
            (&serial, Some("100%"), "100%%"),
            (&serial, Some("/dev/null"), "/dev/null"),
        ] {
            assert_eq!(path(request, given, 'o'), want);
        }
    }

    #[test]
    fn scripts() {
        let of = |request: &Request, script: &str| {
            let program = Program {
                script: script.into(),
                ..Program::default()
            };
            String::from_utf8(super::script(request, &program)).unwrap()
        };
        let plain = Request::default();
        assert_eq!(of(&plain, "#!/bin/bash\ntrue\n"), "#!/bin/bash\ntrue\n");
        assert_eq!(of(&plain, "true\n"), "#!/bin/sh\ntrue\n");
        let shell = Request {
            shell: Some("/bin/ksh".to_owned()),
            ..Request::default()
        };
        assert_eq!(of(&shell, "#!/bin/bash\ntrue\n"), "#!/bin/ksh\ntrue\n");
        let parallel = Request {
            pe: Some(("mpi".to_owned(), Slots::span(2, 2))),
            ..Request::default()
        };
        assert!(of(&parallel, "#!/usr/bin/env bash\ntrue\n").contains("PE_HOSTFILE"));
        assert!(
            of(&parallel, "#!/bin/csh -f\ntrue\n").contains("\nif ( $?MUSTER_PE_HOSTS ) setenv")
        );
        assert_eq!(
            of(&parallel, "#!/usr/bin/python3\n1\n"),
            "#!/usr/bin/python3\n1\n"
        );
    }

    #[test]
    fn commands() {
        let program = Program {
            path: "echo".to_owned(),
            args: ["$HOME", "a b", "it's"].map(str::to_owned).to_vec(),
            ..Program::default()
        };
        let request = Request::default();
        assert_eq!(command(&request, &program), "exec echo $HOME 'a b' it's\n");
        let request = Request {
            without_shell: true,
            ..Request::default()
        };
        assert_eq!(
            command(&request, &program),
            "exec 'echo' '$HOME' 'a b' 'it'\\''s'\n"
        );
    }
}
