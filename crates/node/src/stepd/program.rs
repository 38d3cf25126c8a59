//! Which program a task runs: the step's, or its line of a `--multi-prog` file; and where that program is.

use muster_core::hostlist;
use std::path::Path;

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

/// The file of a program: as it is if it has a slash, else the first in `path` that may be executed; the name itself
/// if there is none, so that exec(2) says why.
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
