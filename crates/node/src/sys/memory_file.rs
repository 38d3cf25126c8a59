//! Files that exist in memory alone, memfd_create(2).

use super::check;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Makes a file that cannot be executed.
pub(crate) fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    make(name, libc::MFD_NOEXEC_SEAL)
}

/// Makes a file with a program. Nobody can change it, and only root can open it.
pub(crate) fn sealed_program(name: &CStr, program: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(make(name, libc::MFD_EXEC)?);
    file.write_all(program)?;
    nix::sys::stat::fchmod(
        &file,
        nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IXUSR,
    )?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes numbers only.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file.into())
}

/// `executable` is the flag for or against execution; kernels before 6.3 do not know it.
fn make(name: &CStr, executable: libc::c_uint) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    create(name, flags | executable).or_else(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => create(name, flags),
        _ => Err(e),
    })
}

fn create(name: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte.
    let fd = check(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    // SAFETY: nobody else has this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
