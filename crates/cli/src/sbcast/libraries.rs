//! `--send-libs`: the shared libraries of a program, as the loader finds them here. ldd(1) lists them, which has the loader look at
//! the program; it does so with the rights of the user who is about to run that program.

use muster_conf::endpoint::Endpoint;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

/// Directories whose libraries are not sent, where neither an option nor `BcastExclude` says so.
const EXCLUDED: &str = "/lib,/usr/lib,/lib64,/usr/lib64";
/// More libraries are not sent.
const LIBRARIES_MAX: usize = 1024;

/// Settings of the site for copies of programs: `BcastParameters` and `BcastExclude`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyDefaults {
    /// `send_libs`.
    pub(crate) sends_libraries: bool,
    /// `DestDir=`.
    pub(crate) dest_dir: Option<String>,
    /// `BcastExclude`.
    excluded: Option<String>,
}

impl CopyDefaults {
    /// The settings of a configuration.
    pub(crate) fn of_site(site: Option<&Endpoint>) -> CopyDefaults {
        let words = site.and_then(|site| site.bcast_parameters.as_deref());
        let words = || words.unwrap_or("").split(',').map(str::trim);
        let value_of = |word: &str| {
            let (name, value) = word.split_once('=')?;
            let is_named = name.eq_ignore_ascii_case("DestDir") && !value.is_empty();
            is_named.then(|| value.to_owned())
        };
        CopyDefaults {
            sends_libraries: words().any(|word| word.eq_ignore_ascii_case("send_libs")),
            dest_dir: words().find_map(value_of),
            excluded: site.and_then(|site| site.bcast_exclude.clone()),
        }
    }

    /// Directories whose libraries are not sent: those of the option, else the site's.
    ///
    /// # Errors
    /// One that is no absolute path.
    pub(crate) fn excluded(&self, option: Option<&str>) -> Result<Vec<String>, String> {
        let text = option.or(self.excluded.as_deref()).unwrap_or(EXCLUDED);
        if text.eq_ignore_ascii_case("none") {
            return Ok(Vec::new());
        }
        let paths = text.split(',').filter(|path| !path.is_empty());
        paths
            .map(|path| match path.starts_with('/') {
                true => Ok(path.to_owned()),
                false => Err(format!("Invalid path in exclude list: {path}")),
            })
            .collect()
    }
}

/// Whether `--send-libs` or its variable wants them: `yes` or nothing, `no`.
///
/// # Errors
/// Another word.
pub(crate) fn are_wanted(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("") => Ok(true),
        Some(word) if word.eq_ignore_ascii_case("yes") => Ok(true),
        Some(word) if word.eq_ignore_ascii_case("no") => Ok(false),
        Some(word) => Err(format!("Invalid --send-libs value '{word}'")),
    }
}

/// The directory of the libraries beside a copy.
pub(crate) fn directory(dest: &str) -> String {
    format!("{dest}_libs")
}

/// Libraries that the loader finds for a program, without those in excluded directories. A program that is linked statically, and a
/// script, has none.
///
/// # Errors
/// The text for the user.
pub(super) fn find(program: &str, excluded: &[String]) -> Result<Vec<String>, String> {
    // A name without a slash would be one of this directory, too.
    let path = std::path::absolute(program).map_err(|e| format!("{program}: {e}"))?;
    let out = Command::new("ldd")
        .arg("--")
        .arg(&path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run ldd, which lists the libraries of {program}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut found: Vec<String> = libraries(&text)
        .filter(|path| !is_below(path, excluded))
        .map(str::to_owned)
        .collect();
    found.dedup();
    match found.len() {
        0..=LIBRARIES_MAX => Ok(found),
        count => Err(format!("{program} has {count} libraries, too many to send")),
    }
}

/// Paths in the output of ldd: `NAME => PATH (ADDRESS)`. The loader itself has a line without an arrow.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (_, found) = line.split_once(" => ")?;
        let (path, _) = found.rsplit_once(" (0x")?;
        path.starts_with('/').then_some(path)
    })
}

fn is_below(path: &str, directories: &[String]) -> bool {
    let plain = |path: &str| {
        let parts = Path::new(path).components();
        parts
            .filter(|part| !matches!(part, Component::CurDir))
            .collect::<std::path::PathBuf>()
    };
    let path = plain(path);
    directories.iter().any(|dir| path.starts_with(plain(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd0f7f2000)\n\
                    \tliba.so => /opt/x (1)/liba.so (0x00007f1b)\n\
                    \tlibgone.so => not found\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1b)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f1c)\n";
        let found: Vec<&str> = libraries(text).collect();
        assert_eq!(
            found,
            ["/opt/x (1)/liba.so", "/lib/x86_64-linux-gnu/libc.so.6"]
        );
        let excluded = CopyDefaults::default().excluded(None).unwrap();
        let sent = found.iter().filter(|path| !is_below(path, &excluded));
        assert_eq!(sent.count(), 1);
        assert!(!is_below("/library/a.so", &["/lib".to_owned()]));
        assert!(is_below("/lib/a.so", &["/lib/".to_owned()]));
    }

    #[test]
    fn directories_are_excluded_by_option_or_site() {
        let site = CopyDefaults {
            excluded: Some("/opt".to_owned()),
            ..CopyDefaults::default()
        };
        assert_eq!(site.excluded(None).unwrap(), ["/opt"]);
        assert_eq!(site.excluded(Some("/a,/b")).unwrap(), ["/a", "/b"]);
        assert!(site.excluded(Some("NONE")).unwrap().is_empty());
        assert!(site.excluded(Some("a")).is_err());
        assert_eq!(CopyDefaults::default().excluded(None).unwrap().len(), 4);
    }

    #[test]
    fn the_option_is_yes_or_no() {
        assert_eq!(are_wanted(None), Ok(true));
        assert_eq!(are_wanted(Some("YES")), Ok(true));
        assert_eq!(are_wanted(Some("no")), Ok(false));
        assert!(are_wanted(Some("x")).is_err());
    }
}
