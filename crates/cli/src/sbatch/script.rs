//! A batch script: where it comes from, and whether it can be one. It is read whole before sbatch returns, since
//! many programs delete it right after.

use crate::say::Say;
use crate::submit::line;
use muster_model::limits::SCRIPT_BYTES_MAX;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A script and its name.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Default for the job's name.
    pub(crate) name: String,
    /// Its path; empty when it has none.
    pub(crate) path: String,
}

impl Script {
    /// From a file, found as the shell would: here, then in `PATH`.
    pub(super) fn from_file(name: &str) -> Result<Script, Vec<String>> {
        let unable = |path: &str| vec![format!("Unable to open file {path}")];
        let (mut file, path) = open(name).ok_or_else(|| unable(name))?;
        let mut bytes = Vec::new();
        // A directory opens but cannot be read: then there is no script in it.
        let _ = file
            .by_ref()
            .take(SCRIPT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes);
        check(&bytes)?;
        Ok(Script {
            bytes,
            name: line::base_name(name),
            path: path.to_string_lossy().into_owned(),
        })
    }

    /// From standard input.
    pub(super) fn from_stdin() -> Result<Script, Vec<String>> {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(SCRIPT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| vec![format!("cannot read the script from standard input: {e}")])?;
        check(&bytes)?;
        Ok(Script {
            bytes,
            name: "sbatch".to_owned(),
            path: String::new(),
        })
    }

    /// Around a command.
    pub(super) fn wrapped(command: &str) -> Result<Script, Vec<String>> {
        let text = format!("#!/bin/sh\n# Made by sbatch --wrap.\n\n{command}\n");
        check(text.as_bytes())?;
        Ok(Script {
            bytes: text.into_bytes(),
            name: "wrap".to_owned(),
            path: String::new(),
        })
    }

    /// Puts the lines of a file behind the first one (`--bbf`).
    pub(super) fn insert(&mut self, path: &str) -> Result<(), Vec<String>> {
        let unread = || vec!["Invalid --bbf specification".to_owned()];
        let (file, _) = open(path).ok_or_else(unread)?;
        let mut lines = Vec::new();
        file.take(SCRIPT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut lines)
            .map_err(|_| unread())?;
        if lines.last().is_some_and(|last| *last != b'\n') {
            lines.push(b'\n');
        }
        let first = self.bytes.iter().position(|byte| *byte == b'\n');
        let rest = match first {
            Some(end) => self.bytes.split_off(end + 1),
            None => {
                self.bytes.push(b'\n');
                Vec::new()
            }
        };
        self.bytes.append(&mut lines);
        self.bytes.extend(rest);
        check(&self.bytes)
    }

    /// The text in which directives stand: everything that is UTF-8 from the start.
    pub(super) fn head(&self) -> &str {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&self.bytes[..e.valid_up_to()]).unwrap_or(""),
        }
    }
}

fn open(name: &str) -> Option<(std::fs::File, PathBuf)> {
    let here = line::current_dir().join(name);
    if let Ok(file) = std::fs::File::open(&here) {
        return Some((file, here));
    }
    if name.contains('/') {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|dir| {
        let candidate = dir.join(name);
        let file = std::fs::File::open(&candidate).ok()?;
        is_file(&candidate).then_some((file, candidate))
    })
}

fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file())
}

/// Refuses an impossible script, in the lines that users know.
fn check(bytes: &[u8]) -> Result<(), Vec<String>> {
    let lines = |texts: &[&str]| Err(texts.iter().map(|t| (*t).to_owned()).collect());
    if bytes.is_empty() {
        return lines(&["Batch script is empty!"]);
    }
    if bytes.len() > SCRIPT_BYTES_MAX {
        return Err(vec![format!(
            "Batch script is larger than {} MiB; keep data in files beside it",
            SCRIPT_BYTES_MAX >> 20
        )]);
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return lines(&["Batch script contains only whitespace!"]);
    }
    if !bytes.starts_with(b"#!") {
        return lines(&[
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        ]);
    }
    if bytes.contains(&0) {
        return lines(&["Batch script contains a zero byte; is it a program?"]);
    }
    if bytes.windows(2).any(|pair| pair == b"\r\n") {
        return lines(&[
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        ]);
    }
    Ok(())
}

/// Prints why there is no script.
pub(super) fn complain(say: &Say, lines: &[String]) {
    for line in lines {
        say.error(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_put_behind_the_first_line() {
        let path = std::env::temp_dir().join(format!("muster-bbf-{}", std::process::id()));
        std::fs::write(&path, "#BB one\necho two").unwrap();
        let name = path.to_str().unwrap();
        for (text, expected) in [
            ("#!/bin/sh\ntrue\n", "#!/bin/sh\n#BB one\necho two\ntrue\n"),
            ("#!/bin/sh", "#!/bin/sh\n#BB one\necho two\n"),
        ] {
            let mut script = Script::wrapped("true").unwrap();
            script.bytes = text.into();
            script.insert(name).unwrap();
            assert_eq!(String::from_utf8(script.bytes).unwrap(), expected);
        }
        std::fs::remove_file(&path).unwrap();
        let missing = Script::wrapped("true").unwrap().insert(name).unwrap_err();
        assert_eq!(missing, ["Invalid --bbf specification"]);
    }

    #[test]
    fn scripts_that_cannot_be() {
        for (text, first) in [
            (&b""[..], "Batch script is empty!"),
            (b" \n\t\n", "Batch script contains only whitespace!"),
            (
                b"true\n",
                "This does not look like a batch script.  The first",
            ),
            (
                b"#!/bin/sh\r\ntrue\r\n",
                "Batch script contains DOS line breaks (\\r\\n)",
            ),
            (
                b"#!/bin/sh\n\0",
                "Batch script contains a zero byte; is it a program?",
            ),
        ] {
            assert_eq!(check(text).unwrap_err()[0], first);
        }
        assert!(check(b"#!/bin/sh\ntrue\n").is_ok());
        assert!(check(&vec![b'#'; SCRIPT_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_wrapped_command_keeps_its_text() {
        let script = Script::wrapped("echo \"a\nb\"").unwrap();
        assert!(script.head().contains("\necho \"a\nb\"\n"));
        assert_eq!((script.name.as_str(), script.path.as_str()), ("wrap", ""));
    }

    #[test]
    fn missing_and_directory() {
        assert_eq!(
            Script::from_file("nosuchfile.sh").unwrap_err(),
            ["Unable to open file nosuchfile.sh"]
        );
        assert_eq!(
            Script::from_file("/tmp").unwrap_err(),
            ["Batch script is empty!"]
        );
    }
}
