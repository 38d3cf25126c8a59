//! The user's editor, and the file that it is given.

use crate::options::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that the user has edited. It is removed whatever happens.
pub(crate) struct EditedFile(PathBuf);

impl EditedFile {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for EditedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Lets the user edit a text. `program` is the command that asks.
///
/// # Errors
/// The file cannot be made, or the editor cannot be started or fails.
pub(crate) fn edit(program: &str, what: &str, text: &str) -> Result<EditedFile, String> {
    let directory = env("TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
    let template = Path::new(&directory).join(format!("{program}-XXXXXX"));
    let (file, path) = nix::unistd::mkstemp(&template)
        .map_err(|e| format!("error creating temporary {what} in {directory}: {e}"))?;
    let edited = EditedFile(path);
    fs::File::from(file)
        .write_all(text.as_bytes())
        .map_err(|e| format!("error writing temporary {what}: {e}"))?;
    let editor = env("VISUAL").or_else(|| env("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // The variable may have options in it.
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg(program)
        .arg(edited.path())
        .status()
        .map_err(|e| format!("the editor could not be started: {e}"))?;
    match status.success() {
        true => Ok(edited),
        false => Err(format!("editor '{editor}' ended with {status}")),
    }
}
