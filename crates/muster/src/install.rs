//! The files by whose names the roles are called, laid out in a directory: `muster` itself, links to it for the daemons, and
//! links for the user commands, to the statically linked program of the commands where this build carries it (it starts
//! in a sixth of the time), else to `muster` as well.

use crate::roles;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The statically linked user commands; empty where the build was not given them. See `build.rs`.
static COMMANDS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/commands"));

/// The name of their file; the commands are links to it.
const COMMANDS_FILE: &str = "muster-commands";

/// DRMAA's library; empty where the build was not given it.
static DRMAA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drmaa"));
/// The library of DRMAA 2.
static DRMAA2: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drmaa2"));
/// The header for programs in C.
static DRMAA_HEADER: &str = include_str!("../../../packaging/drmaa/drmaa.h");
/// The header of DRMAA 2.
static DRMAA2_HEADER: &str = include_str!("../../../packaging/drmaa/drmaa2.h");

/// Slurm's library of C functions.
static LIBSLURM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libslurm"));
/// Its name, which programs of Slurm 22.05 are linked with.
const LIBSLURM_FILE: &str = "libslurm.so.38";
/// Its headers, which programs find in a directory `slurm`.
const SLURM_HEADERS: [(&str, &str); 4] = [
    (
        "slurm.h",
        include_str!("../../../packaging/slurm/slurm/slurm.h"),
    ),
    (
        "slurm_errno.h",
        include_str!("../../../packaging/slurm/slurm/slurm_errno.h"),
    ),
    (
        "slurm_version.h",
        include_str!("../../../packaging/slurm/slurm/slurm_version.h"),
    ),
    (
        "slurmdb.h",
        include_str!("../../../packaging/slurm/slurm/slurmdb.h"),
    ),
];

/// Puts DRMAA's libraries and libslurm, with their headers, into `dir`, where this build carries them.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn libraries(dir: &Path) -> Result<()> {
    let library = |name: &str, bytes: &[u8]| {
        replace(&dir.join(name), |new| {
            fs::write(new, bytes)?;
            fs::set_permissions(new, fs::Permissions::from_mode(0o755))
        })
    };
    if !DRMAA.is_empty() {
        let name = "libdrmaa.so.1.0";
        library(name, DRMAA)?;
        replace(&dir.join("libdrmaa.so"), |new| {
            std::os::unix::fs::symlink(name, new)
        })?;
        replace(&dir.join("drmaa.h"), |new| fs::write(new, DRMAA_HEADER))?;
    }
    if !DRMAA2.is_empty() {
        library("libdrmaa2.so", DRMAA2)?;
        replace(&dir.join("drmaa2.h"), |new| fs::write(new, DRMAA2_HEADER))?;
    }
    if !LIBSLURM.is_empty() {
        library(LIBSLURM_FILE, LIBSLURM)?;
        replace(&dir.join("libslurm.so"), |new| {
            std::os::unix::fs::symlink(LIBSLURM_FILE, new)
        })?;
        let headers = dir.join("slurm");
        fs::create_dir_all(&headers)
            .with_context(|| format!("cannot make {}", headers.display()))?;
        for (name, text) in SLURM_HEADERS {
            replace(&headers.join(name), |new| fs::write(new, text))?;
        }
    }
    Ok(())
}

/// Puts everything into `dir`, which exists. What is there is replaced as a whole, also while it runs.
///
/// Hard links, so that `/proc/PID/exe` of a daemon bears the name that tools look for. `muster` itself is a link to this program, or a
/// copy where the directory is on another file system, or where another user could write to this program: root's daemons would
/// be that user's.
///
/// # Errors
/// When this program's file cannot be found, or the directory cannot be written.
pub(crate) fn into(dir: &Path) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let muster = dir.join("muster");
    let is_shared =
        fs::metadata(&own).is_ok_and(|own| is_shareable(&own, nix::unistd::geteuid().as_raw()));
    replace(&muster, |new| match is_shared {
        true => fs::hard_link(&own, new).or_else(|_| copy(&own, new)),
        false => copy(&own, new),
    })?;
    let commands = match COMMANDS {
        [] => muster.clone(),
        program => {
            let file = dir.join(COMMANDS_FILE);
            replace(&file, |new| {
                fs::write(new, program)?;
                fs::set_permissions(new, fs::Permissions::from_mode(0o755))
            })?;
            file
        }
    };
    for name in roles::links() {
        let program = match roles::by_link(name) {
            Some(roles::Role::Command) => &commands,
            _ => &muster,
        };
        replace(&dir.join(name), |new| fs::hard_link(program, new))?;
    }
    Ok(())
}

/// Whether nobody but this user and root can write to a program.
fn is_shareable(program: &fs::Metadata, uid: u32) -> bool {
    let is_trusted = program.uid() == uid || program.uid() == 0;
    is_trusted && program.mode() & 0o022 == 0
}

/// Copies a program, as one of the caller's.
fn copy(program: &Path, new: &Path) -> std::io::Result<()> {
    fs::copy(program, new)?;
    fs::set_permissions(new, fs::Permissions::from_mode(0o755))
}

/// Makes a file beside `path` and gives it that name.
fn replace(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    let new = path.with_file_name(".new");
    let _ = fs::remove_file(&new);
    make(&new)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot make {}", path.display()))?;
    // A rename between two links to one file does nothing and leaves both.
    let _ = fs::remove_file(&new);
    Ok(())
}
