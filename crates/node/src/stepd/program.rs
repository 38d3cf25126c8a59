//! Which program a task runs: the step's, or its line of a `--multi-prog` file; and where that program is.

use crate::job_files::say;
use crate::sys::{self, ExecArguments};
use muster_model::hostlist;
use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::path::Path;

/// The variable with a task's process id.
pub(super) const TASK_PID: &str = "SLURM_TASK_PID";

/// A task's program, worked out as far as can be before the task exists.
pub(super) struct Program<'a> {
    argv: Vec<String>,
    words: Option<ExecArguments<'a>>,
    environment: ExecArguments<'a>,
    path: Option<String>,
    /// Where somebody else has found it.
    found: Option<CString>,
}

impl<'a> Program<'a> {
    pub(super) fn new(argv: Vec<String>, environment: ExecArguments<'a>) -> Program<'a> {
        let path = environment
            .iter()
            .find_map(|v| v.to_bytes().strip_prefix(b"PATH="));
        let path = path.and_then(|path| str::from_utf8(path).ok());
        let path = path.map(str::to_owned);
        let words: Option<Vec<CString>> =
            argv.iter().map(|a| CString::new(a.as_str()).ok()).collect();
        Program {
            words: words.map(ExecArguments::new),
            environment,
            path,
            argv,
            found: None,
        }
    }

    /// Looks there first.
    pub(super) fn found_at(mut self, file: Option<&str>) -> Program<'a> {
        self.found = file.and_then(|file| CString::new(file).ok());
        self
    }

    /// In a task's child: executes it; gives an exit code if it cannot be. `last` is done last before.
    pub(super) fn exec(&mut self, global: u32, last: impl FnOnce() -> io::Result<()>) -> i32 {
        let Some(name) = self.argv.first() else {
            say(&format!("no program is given for task {global}"));
            return 1;
        };
        sys::close_on_exec_from(3);
        if let Err(e) = last() {
            say(&format!(
                "task {global}: its PMI socket cannot be handed over: {e}"
            ));
            return 1;
        }
        let Some(words) = &self.words else {
            say("an argument has a zero byte");
            return 1;
        };
        let mut pid = [0; 32];
        // Ten digits at most: it fits.
        let _ = write!(&mut pid[..], "{TASK_PID}={}\0", std::process::id());
        let pid = CStr::from_bytes_until_nul(&pid).unwrap_or_default();
        if let Some(file) = &self.found {
            // If this fails, the search below finds the error to report.
            let _ = sys::exec_with(file, words, &mut self.environment, pid);
        }
        let Ok(file) = CString::new(locate(name, self.path.as_deref())) else {
            say("an argument has a zero byte");
            return 1;
        };
        let e = sys::exec_with(&file, words, &mut self.environment, pid);
        say(&format!(
            "execve(): {}: {}",
            file.to_string_lossy(),
            e.desc()
        ));
        // Slurm makes the errno the exit code.
        e as i32
    }
}

/// Command line of a task out of a `--multi-prog` file: `%t` is the task's number, `%o` its place in the line's set.
pub(super) fn of_task(lines: &[(String, String)], task: u32) -> Option<Vec<String>> {
    lines.iter().find_map(|(set, command)| {
        let offset = place(set, task)?;
        let command = command
            .replace("%t", &task.to_string())
            .replace("%o", &offset.to_string());
        Some(words(&command))
    })
}

/// Place of a task in `0`, `1-3,7` or `*`.
fn place(set: &str, task: u32) -> Option<usize> {
    if set.trim() == "*" {
        return usize::try_from(task).ok();
    }
    let members = hostlist::parse_ranges(set.trim(), hostlist::MAX_HOSTS).ok()?;
    members.iter().position(|m| *m == task)
}

/// Splits at white space; quotes keep words together, a backslash keeps the next character.
fn words(text: &str) -> Vec<String> {
    let (mut out, mut word, mut inside) = (Vec::new(), String::new(), false);
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                inside = true;
            }
            (None | Some('"'), '\\') => {
                word.extend(chars.next());
                inside = true;
            }
            (None, c) if c.is_whitespace() => {
                if std::mem::take(&mut inside) {
                    out.push(std::mem::take(&mut word));
                }
            }
            (_, c) => {
                word.push(c);
                inside = true;
            }
        }
    }
    if inside {
        out.push(word);
    }
    out
}

/// The file of a program: unchanged if it contains a slash, else the first executable file of that name in `path`. If
/// there is none, the name itself, so that exec(2) reports the error.
pub(super) fn locate(program: &str, path: Option<&str>) -> String {
    if program.contains('/') {
        return program.to_owned();
    }
    path.unwrap_or("/usr/local/bin:/usr/bin:/bin")
        .split(':')
        .map(|dir| if dir.is_empty() { "." } else { dir })
        .map(|dir| Path::new(dir).join(program))
        .find(|file| {
            file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
        })
        .map_or_else(|| program.to_owned(), |f| f.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_multi_prog() {
        let lines = [
            ("0".to_owned(), "echo a%t".to_owned()),
            (
                "1-2,5".to_owned(),
                "echo b%t:%o 'x y' z\\ w \"\"".to_owned(),
            ),
            ("*".to_owned(), "rest %o".to_owned()),
        ];
        assert_eq!(of_task(&lines, 0).unwrap(), ["echo", "a0"]);
        assert_eq!(
            of_task(&lines, 5).unwrap(),
            ["echo", "b5:2", "x y", "z w", ""]
        );
        assert_eq!(of_task(&lines, 4).unwrap(), ["rest", "4"]);
        assert_eq!(of_task(&lines[..2], 4), None);
        assert_eq!(locate("/x/y", None), "/x/y");
        assert_eq!(locate("sh", Some("/nosuch:/bin")), "/bin/sh");
        assert_eq!(locate("nosuchprogram", Some("/bin")), "nosuchprogram");
    }
}
