//! Mounts and mount namespaces.

use super::check;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::statvfs::{FsFlags, statvfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const NONE: Option<&str> = None;

/// This process's mount namespace.
pub(crate) fn own_namespace() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/self/ns/mnt")?.into())
}

/// Whether a file is a mount namespace.
pub(crate) fn is_namespace(file: &File) -> io::Result<bool> {
    // NS_GET_NSTYPE of linux/nsfs.h: _IO(0xb7, 3).
    const NS_GET_NSTYPE: u32 = (0xb7 << 8) | 3;
    // SAFETY: the request has no argument.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE.into()) };
    match check(kind) {
        Ok(kind) => Ok(kind == libc::CLONE_NEWNS),
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives this process, which must have one thread, its own mount namespace with the same mounts.
pub(crate) fn unshare() -> io::Result<()> {
    Ok(nix::sched::unshare(CloneFlags::CLONE_NEWNS)?)
}

/// From now on, mounts of this namespace do not propagate to the namespace from which it was made. With `sees_host`,
/// mounts of that namespace still propagate to this one.
pub(crate) fn detach_from_host(sees_host: bool) -> io::Result<()> {
    let kind = match sees_host {
        true => MsFlags::MS_SLAVE,
        false => MsFlags::MS_PRIVATE,
    };
    Ok(mount(NONE, "/", NONE, MsFlags::MS_REC | kind, NONE)?)
}

/// Mounts a directory at a place.
pub(crate) fn bind(what: &Path, at: &Path) -> io::Result<()> {
    Ok(mount(Some(what), at, NONE, MsFlags::MS_BIND, NONE)?)
}

/// Mounts the file or directory that a descriptor is open for.
pub(crate) fn bind_descriptor(what: &impl AsRawFd, at: &Path) -> io::Result<()> {
    bind(
        &PathBuf::from(format!("/proc/self/fd/{}", what.as_raw_fd())),
        at,
    )
}

/// Keeps mounts below this mount from propagating to other namespaces.
pub(crate) fn make_private(at: &Path) -> io::Result<()> {
    Ok(mount(NONE, at, NONE, MsFlags::MS_PRIVATE, NONE)?)
}

/// Adds `nosuid` and `nodev` to the options of a mount.
pub(crate) fn refuse_privileges(at: &Path) -> io::Result<()> {
    let has = statvfs(at)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    for (given, kept) in [
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if has.contains(given) {
            flags |= kept;
        }
    }
    Ok(mount(NONE, at, NONE, flags, NONE)?)
}

/// Mounts a new tmpfs of the same size as the file system mounted there.
pub(crate) fn mount_memory(at: &Path) -> io::Result<()> {
    let there = statvfs(at)?;
    // The widths of these types differ by platform.
    #[allow(clippy::useless_conversion)]
    let size = u64::from(there.fragment_size()) * u64::from(there.blocks());
    let data = format!("mode=1777,size={size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        flags,
        Some(data.as_str()),
    )?)
}

/// Unmounts the topmost mount of a place. Processes that use it keep it.
pub(crate) fn unmount(at: &Path) -> io::Result<()> {
    let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
    Ok(umount2(at, flags)?)
}
