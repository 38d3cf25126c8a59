//! Where options of a submission come from beside the command line: sge_request files, files of `-@`, lines in the script.

use super::arguments::{self, OperandPosition, OptionArgument, UsageError};
use super::submit_options::QSUB;
use crate::listing::complain;
use crate::options::env;
use crate::people;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Options from one place, with what to call it in messages; empty for the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionSource {
    pub(super) name: String,
    pub(super) options: Vec<OptionArgument>,
}

/// An error, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced {
    pub(super) place: String,
    pub(super) wrong: UsageError,
}

/// The options of the sge_request files that there are, the weakest first: the cell's, the user's, the directory's.
pub(super) fn from_request_files() -> Result<Vec<OptionSource>, Misplaced> {
    let mut places = Vec::new();
    for path in request_files() {
        let file = trusted(&path).and_then(|file| file.map(read).transpose());
        if let Some(text) = file.map_err(|e| unreadable(&path, &e))? {
            places.extend(lines(&path, &text, 0)?);
        }
    }
    Ok(places)
}

/// Where there may be sge_request files.
fn request_files() -> Vec<PathBuf> {
    let cell = env("SGE_CELL").unwrap_or_else(|| "default".to_owned());
    let root = env("SGE_ROOT").map(|root| Path::new(&root).join(cell).join("common/sge_request"));
    let home = home().join(".sge_request");
    let mut all: Vec<PathBuf> = root.into_iter().chain([home]).collect();
    let here = PathBuf::from(HERE);
    // Called at home, one file is both.
    if here.canonicalize().ok() != all.last().and_then(|last| last.canonicalize().ok()) {
        all.push(here);
    }
    all
}

/// The sge_request file of the directory that jobs are submitted from.
const HERE: &str = ".sge_request";

/// Opens a file of options if it is the caller's or root's, and open to no others: options name programs to run, and a directory
/// that jobs are submitted from may be open to all. The opened file is looked at, since its path may lead to another one a moment
/// later. Absent where there is no file, or none to be read, which is said.
fn trusted(path: &Path) -> std::io::Result<Option<File>> {
    // Anybody could make a link here to a file that was not meant for this.
    let link = if path == Path::new(HERE) {
        libc::O_NOFOLLOW
    } else {
        0
    };
    // A pipe or a terminal of somebody else's is not waited for.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC | link;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let is_own = |found: &Metadata| {
        let is_own = [0, nix::unistd::geteuid().as_raw()].contains(&found.uid());
        is_own && found.mode() & 0o022 == 0
    };
    let (found, file) = match opened {
        Ok(file) => (file.metadata()?, Ok(file)),
        Err(error) => match path.symlink_metadata() {
            Ok(found) => (found, Err(error)),
            Err(_) => return Ok(None),
        },
    };
    if found.is_file() && is_own(&found) {
        return file.map(Some);
    }
    if found.is_file() || found.is_symlink() && link != 0 {
        complain(&format!(
            "qsub: {} is left out: it must be a file of yours or root's, not writable by its group or by all",
            path.display()
        ));
    }
    Ok(None)
}

/// Most bytes of a file of options.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn read(file: File) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(std::io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// The user's home, as the user database has it.
pub(super) fn home() -> PathBuf {
    let user = people::user_of_uid(nix::unistd::getuid().as_raw());
    user.map_or_else(|| PathBuf::from("/"), |user| user.dir)
}

/// Depth to which files may name further files.
const DEPTH_MAX: u32 = 8;

fn wrong_file(text: String) -> Misplaced {
    Misplaced {
        place: String::new(),
        wrong: UsageError::Usage(text),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Misplaced {
    let why = super::reason(error);
    wrong_file(format!("qsub: cannot read {}: {why}", path.display()))
}

/// The options of a file of `-@`.
fn file(path: &Path, depth: u32) -> Result<Vec<OptionSource>, Misplaced> {
    if depth > DEPTH_MAX {
        let shown = path.display();
        let text = format!("qsub: {shown}: files of -@ name each other");
        return Err(wrong_file(text));
    }
    let text = File::open(path).and_then(read);
    lines(path, &text.map_err(|e| unreadable(path, &e))?, depth)
}

/// The options of a file, line by line; lines that begin with `#` are comments.
fn lines(path: &Path, text: &str, depth: u32) -> Result<Vec<OptionSource>, Misplaced> {
    let shown = path.display();
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim_start().starts_with('#'));
    let mut places = Vec::new();
    for (number, line) in lines {
        let place = format!("{shown}, line {number}");
        places.extend(line_options(line, place, depth)?);
    }
    Ok(places)
}

/// The options of a script: lines that begin with `prefix`.
pub(super) fn from_script(
    script: &str,
    name: &str,
    prefix: &str,
) -> Result<Vec<OptionSource>, Misplaced> {
    let mut places = Vec::new();
    if prefix.is_empty() {
        return Ok(places);
    }
    for (number, line) in (1..).zip(script.lines()) {
        if let Some(rest) = line.strip_prefix(prefix) {
            places.extend(line_options(rest, format!("{name}, line {number}"), 0)?);
        }
    }
    Ok(places)
}

fn line_options(line: &str, place: String, depth: u32) -> Result<Vec<OptionSource>, Misplaced> {
    let misplaced = |wrong| Misplaced {
        place: place.clone(),
        wrong,
    };
    let words =
        split(line).map_err(|text| misplaced(UsageError::Usage(format!("qsub: {text}"))))?;
    let parsed = arguments::parse(&QSUB, &words, OperandPosition::End).map_err(misplaced)?;
    if let Some(word) = parsed.operands.first() {
        let text = format!("qsub: invalid option argument \"{word}\"");
        return Err(misplaced(UsageError::Usage(text)));
    }
    expanded(place.clone(), parsed.options, depth)
}

/// Puts the options of files of `-@` in the place of each.
pub(super) fn expanded(
    name: String,
    options: Vec<OptionArgument>,
    depth: u32,
) -> Result<Vec<OptionSource>, Misplaced> {
    let mut places = vec![OptionSource {
        name: name.clone(),
        options: Vec::new(),
    }];
    for given in options {
        if given.name == "@" {
            places.extend(file(Path::new(given.value()), depth + 1)?);
            places.push(OptionSource {
                name: name.clone(),
                options: Vec::new(),
            });
        } else if let Some(last) = places.last_mut() {
            last.options.push(given);
        }
    }
    Ok(places)
}

/// Words as a shell splits them: quotes of both kinds, and a backslash before a character that is taken as it is.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(words);
        }
        let (mut word, mut quote) = (String::new(), None);
        while let Some(c) = chars.next() {
            match (c, quote) {
                ('\\', None | Some('"')) => word.extend(chars.next()),
                (c, Some(q)) if c == q => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                (c, None) if c.is_whitespace() => break,
                (c, _) => word.push(c),
            }
        }
        if let Some(q) = quote {
            return Err(format!("unmatched {q} in [{}]", line.trim()));
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Options name programs that the caller runs.
    #[test]
    fn files_that_all_may_write_are_left_out() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("muster-sge-request.{}", std::process::id()));
        std::fs::write(&path, "-N a\n").unwrap();
        let is_read = |path: &Path| trusted(path).unwrap().is_some();
        for (mode, wanted) in [(0o664, false), (0o666, false), (0o644, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_read(&path), wanted, "{mode:o}");
        }
        // The file that was looked at is read, whatever its path leads to then.
        let opened = trusted(&path).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "-jsv other\n").unwrap();
        assert_eq!(read(opened).unwrap(), "-N a\n");
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(!is_read(&path));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!is_read(&path));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!is_read(&path), "a pipe is not waited for");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn files_of_options_are_bounded() {
        let endless = File::open("/dev/zero").unwrap();
        assert!(read(endless).is_err());
    }

    #[test]
    fn quotes() {
        for (line, want) in [
            ("-N a", &["-N", "a"][..]),
            (" -N \"a b\"  -v X='1 2' ", &["-N", "a b", "-v", "X=1 2"]),
            (r"-v A=a\ b\,c", &["-v", "A=a b,c"]),
            ("", &[]),
            ("-N ''", &["-N", ""]),
            (r#"-v A="say \"x\"""#, &["-v", "A=say \"x\""]),
        ] {
            assert_eq!(split(line).unwrap(), want, "{line}");
        }
        assert_eq!(split("-N \"a").unwrap_err(), "unmatched \" in [-N \"a]");
    }

    #[test]
    fn lines_of_a_script() {
        let script = "#!/bin/sh\n#$ -N x -cwd\n# $ -N y\ntrue\n#$ -j y\n";
        let names = |places: Vec<OptionSource>| -> Vec<String> {
            let options = places.into_iter().flat_map(|place| place.options);
            options.map(|given| given.name.to_owned()).collect()
        };
        let places = from_script(script, "job.sh", "#$").unwrap();
        assert_eq!(places[1].name, "job.sh, line 5");
        assert_eq!(names(places), ["N", "cwd", "j"]);
        assert_eq!(from_script(script, "job.sh", "").unwrap(), []);
        let other = from_script("#PBS -N x\n", "job.sh", "#PBS").unwrap();
        assert_eq!(names(other), ["N"]);
    }

    proptest! {
        #[test]
        fn never_panics(script in "(#\\$)?[ -~\né]{0,80}") {
            let _ = from_script(&script, "s", "#$");
        }
    }
}
