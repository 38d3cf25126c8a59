//! System calls without the C library, for a child that shares its parent's memory (see [`super::nursery`]): there not
//! even `errno` is its own. Nothing here allocates, locks or panics.

use std::ffi::{CStr, c_char};
use std::fmt;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(nix::errno::Errno::from_raw(self.0).desc())
    }
}

type Result<T> = std::result::Result<T, Errno>;

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: libc::c_long, a: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the pointers.
    unsafe {
        std::arch::asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: libc::c_long, a: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the pointers.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number as isize, inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], options(nostack));
    }
    result
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn trap(number: libc::c_long, a: [usize; 5]) -> isize {
    const { assert!(!super::nursery::SHARES_MEMORY, "errno would be shared") };
    // SAFETY: the caller answers for the pointers.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4]) };
    if result < 0 {
        -(nix::errno::Errno::last_raw() as isize)
    } else {
        result as isize
    }
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
unsafe fn call<const N: usize>(number: libc::c_long, args: [usize; N]) -> Result<usize> {
    let mut all = [0; 5];
    all.iter_mut().zip(args).for_each(|(to, from)| *to = from);
    // SAFETY: the caller's.
    let result = unsafe { trap(number, all) };
    usize::try_from(result).map_err(|_| Errno(i32::try_from(-result).unwrap_or(libc::EINVAL)))
}

fn at(path: &CStr) -> usize {
    path.as_ptr() as usize
}

/// A small number of an `int` argument, sign-extended as the C library does.
fn int(n: i32) -> usize {
    n as usize
}

/// See exit_group(2).
pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: takes a number.
        let _ = unsafe { call(libc::SYS_exit_group, [int(code)]) };
    }
}

/// Sets signals to their defaults, and blocks none.
pub(crate) fn restore_signals(signals: &[i32]) {
    // The kernel's struct sigaction with SIG_DFL, no flags and an empty mask.
    let default = [0u64; 4];
    let none = 0u64;
    for signal in signals {
        // SAFETY: the struct is at least as long as the kernel's; the last argument is the length of its mask.
        let _ = unsafe {
            let action = default.as_ptr() as usize;
            call(libc::SYS_rt_sigaction, [int(*signal), action, 0, 8])
        };
    }
    // SAFETY: the set is as long as the last argument says.
    let _ = unsafe {
        let set = (&raw const none) as usize;
        call(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_SETMASK), set, 0, 8],
        )
    };
}

/// See setsid(2).
pub(crate) fn setsid() -> Result<()> {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_setsid, []) }.map(drop)
}

/// See getpid(2).
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { call(libc::SYS_getpid, []) };
    pid.ok().and_then(|p| u32::try_from(p).ok()).unwrap_or(0)
}

/// Sets the CPUs that this process may run on.
pub(crate) fn set_affinity(words: &[u64]) -> Result<()> {
    let args = [0, size_of_val(words), words.as_ptr() as usize];
    // SAFETY: the length is the buffer's, which is only read.
    unsafe { call(libc::SYS_sched_setaffinity, args) }.map(drop)
}

/// Sets the soft limit of a resource, not above its hard limit.
pub(crate) fn set_soft_limit(resource: u32, soft: u64) -> Result<()> {
    let mut limit = [0u64; 2];
    let resource = resource as usize;
    // SAFETY: a struct rlimit64 is two such numbers.
    unsafe {
        let out = limit.as_mut_ptr() as usize;
        call(libc::SYS_prlimit64, [0, resource, 0, out])
    }?;
    let soft = soft.min(limit[1]);
    if limit[0] == soft {
        return Ok(());
    }
    limit[0] = soft;
    // SAFETY: as above.
    unsafe { call(libc::SYS_prlimit64, [0, resource, limit.as_ptr() as usize]) }.map(drop)
}

/// See umask(2).
pub(crate) fn umask(mask: u32) {
    // SAFETY: takes a number.
    let _ = unsafe { call(libc::SYS_umask, [mask as usize]) };
}

/// See chdir(2).
pub(crate) fn chdir(dir: &CStr) -> Result<()> {
    // SAFETY: the string ends with a zero byte.
    unsafe { call(libc::SYS_chdir, [at(dir)]) }.map(drop)
}

/// See open(2).
pub(crate) fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    let args = [int(libc::AT_FDCWD), at(path), int(flags), mode as usize];
    // SAFETY: the string ends with a zero byte.
    let fd = unsafe { call(libc::SYS_openat, args) }?;
    i32::try_from(fd).map_err(|_| Errno(libc::EBADF))
}

/// See mkdir(2); `path` ends at a zero byte, or is nothing.
pub(crate) fn mkdir(path: &[u8], mode: u32) -> Result<()> {
    let path = CStr::from_bytes_until_nul(path).map_err(|_| Errno(libc::ENAMETOOLONG))?;
    // SAFETY: the string ends with a zero byte.
    unsafe {
        call(
            libc::SYS_mkdirat,
            [int(libc::AT_FDCWD), at(path), mode as usize],
        )
    }
    .map(drop)
}

/// Makes `fd` available under the number `target`, inherited across exec, and nowhere else.
pub(crate) fn move_to(fd: i32, target: i32) -> Result<()> {
    // SAFETY: these calls take numbers only.
    unsafe {
        if fd == target {
            // A copy onto itself would leave close-on-exec as it is.
            return call(libc::SYS_fcntl, [int(fd), int(libc::F_SETFD), 0]).map(drop);
        }
        call(libc::SYS_dup3, [int(fd), int(target), 0])?;
        // A standard descriptor that was closed may be taken; it must stay.
        if fd > 2 {
            call(libc::SYS_close, [int(fd)])?;
        }
    }
    Ok(())
}

/// See dup3(2), without flags.
pub(crate) fn copy_to(fd: i32, target: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { call(libc::SYS_dup3, [int(fd), int(target), 0]) }.map(drop)
}

/// Makes these descriptors 3 and up, inherited across exec, and closes all others but the standard ones. Changes the numbers.
pub(crate) fn keep_only(kept: &mut [i32]) -> Result<()> {
    // Above what is open, so that none overwrites another; then down to fixed numbers.
    for fd in &mut *kept {
        let args = [int(*fd), int(libc::F_DUPFD_CLOEXEC), 512];
        // SAFETY: takes numbers only.
        let high = unsafe { call(libc::SYS_fcntl, args) }?;
        *fd = i32::try_from(high).map_err(|_| Errno(libc::EBADF))?;
    }
    let mut target = 3;
    for fd in &*kept {
        copy_to(*fd, target)?;
        target += 1;
    }
    close_from(target.unsigned_abs());
    Ok(())
}

/// Closes every descriptor from `first` on. The parent's are its own.
pub(crate) fn close_from(first: u32) {
    // SAFETY: takes numbers; nothing in a child owns a descriptor.
    let _ = unsafe {
        call(
            libc::SYS_close_range,
            [first as usize, u32::MAX as usize, 0],
        )
    };
}

/// See write(2).
pub(crate) fn write(fd: i32, bytes: &[u8]) {
    let args = [int(fd), bytes.as_ptr() as usize, bytes.len()];
    // SAFETY: the length is the buffer's, which is only read.
    let _ = unsafe { call(libc::SYS_write, args) };
}

/// Begins an audit session for a user, of which this process and all that comes of it are; its number. The kernel gives it
/// when the login user is set.
pub(crate) fn begin_audit_session(uid: u32) -> Result<u32> {
    let text = Line::<12>::of(format_args!("{uid}"));
    let file = open(c"/proc/self/loginuid", libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
    let bytes = text.as_bytes();
    // SAFETY: the length is the buffer's, which is only read.
    let written = unsafe {
        let args = [int(file), bytes.as_ptr() as usize, bytes.len()];
        call(libc::SYS_write, args)
    };
    close(file);
    written?;
    let file = open(c"/proc/self/sessionid", libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let mut digits = [0u8; 12];
    // SAFETY: the length is the buffer's.
    let read = unsafe {
        let args = [int(file), digits.as_mut_ptr() as usize, digits.len()];
        call(libc::SYS_read, args)
    };
    close(file);
    let digits = digits.get(..read?).unwrap_or_default();
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    Ok(digits.fold(0u32, |n, digit| {
        n.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))
    }))
}

/// See close(2).
fn close(fd: i32) {
    // SAFETY: takes a number, of a descriptor that nothing else owns.
    let _ = unsafe { call(libc::SYS_close, [int(fd)]) };
}

/// See execve(2); gives the error only.
///
/// # Safety
/// Both lists have to be of strings that end with a zero byte, and to end with a null pointer.
pub(crate) unsafe fn execve(
    path: &CStr,
    argv: *const *const c_char,
    env: *const *const c_char,
) -> Errno {
    // SAFETY: the caller's.
    match unsafe { call(libc::SYS_execve, [at(path), argv as usize, env as usize]) } {
        Ok(_) => Errno(0),
        Err(e) => e,
    }
}

/// Text in a buffer of this size; what is more is cut off.
pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
    /// The text of `args`.
    pub(crate) fn of(args: fmt::Arguments<'_>) -> Line<N> {
        let mut line = Line {
            bytes: [0; N],
            len: 0,
        };
        // It ends where the buffer does.
        let _ = fmt::write(&mut line, args);
        line
    }

    /// See above.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for Line<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = text.len().min(room.len());
        room.iter_mut()
            .zip(text.bytes())
            .for_each(|(to, from)| *to = from);
        self.len += len;
        if len < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
