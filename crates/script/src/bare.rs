//! System calls without the C library: the process that becomes a script has none, and of a child that shares its parent's
//! memory not even `errno` would be its own. Nothing here allocates, locks or panics.
#![allow(unsafe_code)]

pub use crate::errno::Errno;
use crate::kernel;
pub use crate::line::TextBuffer;
use core::ffi::{CStr, c_char, c_long};

type Result<T> = core::result::Result<T, Errno>;

const _: () = assert!(usize::BITS == 64, "arguments of system calls are 64 bits");

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the pointers.
    unsafe {
        core::arch::asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the pointers.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number as isize, inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn trap(number: c_long, a: [usize; 6]) -> isize {
    // Memory is not shared here, so that `errno` is this process's own.
    // SAFETY: the caller answers for the pointers.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    // SAFETY: the C library's own `errno`.
    match result {
        0.. => result as isize,
        _ => -(unsafe { *libc::__errno_location() } as isize),
    }
}

/// # Safety
/// What the arguments point to has to be what the call asks for.
unsafe fn call<const N: usize>(number: c_long, args: [usize; N]) -> Result<usize> {
    let mut all = [0; 6];
    all.iter_mut().zip(args).for_each(|(to, from)| *to = from);
    // SAFETY: the caller's.
    let result = unsafe { trap(number, all) };
    usize::try_from(result).map_err(|_| Errno(i32::try_from(-result).unwrap_or(kernel::EINVAL)))
}

fn at(path: &CStr) -> usize {
    path.as_ptr() as usize
}

/// A small number of an `int` argument, sign-extended as the C library does.
fn int(n: i32) -> usize {
    n as usize
}

/// See exit_group(2).
pub fn exit(code: i32) -> ! {
    loop {
        // SAFETY: takes a number.
        let _ = unsafe { call(kernel::SYS_exit_group, [int(code)]) };
    }
}

/// Sets signals to their defaults, and blocks none.
pub fn restore_signals(signals: &[i32]) {
    // The kernel's struct sigaction with SIG_DFL, no flags and an empty mask.
    let default = [0u64; 4];
    let none = 0u64;
    for signal in signals {
        // SAFETY: the struct is at least as long as the kernel's; the last argument is the length of its mask.
        let _ = unsafe {
            let action = default.as_ptr() as usize;
            call(kernel::SYS_rt_sigaction, [int(*signal), action, 0, 8])
        };
    }
    // SAFETY: the set is as long as the last argument says.
    let _ = unsafe {
        let set = (&raw const none) as usize;
        call(
            kernel::SYS_rt_sigprocmask,
            [int(kernel::SIG_SETMASK), set, 0, 8],
        )
    };
}

/// See setsid(2).
pub fn setsid() -> Result<()> {
    // SAFETY: no arguments.
    unsafe { call(kernel::SYS_setsid, []) }.map(drop)
}

/// See setns(2): puts this process, which has one thread and shares no directory, into a mount namespace.
pub fn join_mount_namespace(namespace: i32) -> Result<()> {
    let args = [int(namespace), int(kernel::CLONE_NEWNS)];
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_setns, args) }.map(drop)
}

/// See getpid(2).
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { call(kernel::SYS_getpid, []) };
    pid.ok().and_then(|p| u32::try_from(p).ok()).unwrap_or(0)
}

/// Sets the CPUs that this process may run on.
pub fn set_affinity(words: &[u64]) -> Result<()> {
    let args = [0, size_of_val(words), words.as_ptr() as usize];
    // SAFETY: the length is the buffer's, which is only read.
    unsafe { call(kernel::SYS_sched_setaffinity, args) }.map(drop)
}

/// Sets the soft limit of a resource, not above its hard limit.
pub fn set_soft_limit(resource: u32, soft: u64) -> Result<()> {
    let mut limit = [0u64; 2];
    let resource = resource as usize;
    // SAFETY: a struct rlimit64 is two such numbers.
    unsafe {
        let out = limit.as_mut_ptr() as usize;
        call(kernel::SYS_prlimit64, [0, resource, 0, out])
    }?;
    let soft = soft.min(limit[1]);
    if limit[0] == soft {
        return Ok(());
    }
    limit[0] = soft;
    // SAFETY: as above.
    unsafe {
        call(
            kernel::SYS_prlimit64,
            [0, resource, limit.as_ptr() as usize],
        )
    }
    .map(drop)
}

/// See umask(2); gives the one before.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: takes a number.
    let before = unsafe { call(kernel::SYS_umask, [mask as usize]) };
    before.ok().and_then(|m| u32::try_from(m).ok()).unwrap_or(0)
}

/// See geteuid(2).
pub fn effective_user() -> u32 {
    // SAFETY: no arguments.
    let uid = unsafe { call(kernel::SYS_geteuid, []) };
    // There is nobody with the number that means none.
    uid.ok()
        .and_then(|u| u32::try_from(u).ok())
        .unwrap_or(u32::MAX)
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The user that has it.
    pub uid: u32,
    /// Kind and permissions.
    pub mode: u32,
    /// The file system that it is on.
    pub device: u64,
}

/// The kernel's struct statx, as far as it is used.
#[repr(C)]
struct Statx {
    before_uid: [u32; 5],
    uid: u32,
    gid: u32,
    mode: u16,
    before_device: [u16; 53],
    device: [u32; 2],
    rest: [u32; 28],
}

const _: () = assert!(size_of::<Statx>() == 256 && core::mem::offset_of!(Statx, device) == 136);

/// See statx(2). Nothing is mounted for it, and a file system over a network or of a user's, which may never answer, is not asked.
pub fn look_at(path: &CStr, flags: i32) -> Result<FileInfo> {
    let mut found = Statx {
        before_uid: [0; 5],
        uid: 0,
        gid: 0,
        mode: 0,
        before_device: [0; 53],
        device: [0; 2],
        rest: [0; 28],
    };
    let flags = flags | kernel::AT_NO_AUTOMOUNT | kernel::AT_STATX_DONT_SYNC;
    let wanted = kernel::STATX_BASIC_STATS as usize;
    let args = [
        int(kernel::AT_FDCWD),
        at(path),
        int(flags),
        wanted,
        (&raw mut found) as usize,
    ];
    // SAFETY: the string ends with a zero byte, and the struct is as long as the kernel's.
    unsafe { call(kernel::SYS_statx, args) }?;
    let [major, minor] = found.device.map(u64::from);
    Ok(FileInfo {
        uid: found.uid,
        mode: found.mode.into(),
        device: major << 32 | minor,
    })
}

/// See chdir(2).
pub fn chdir(dir: &CStr) -> Result<()> {
    // SAFETY: the string ends with a zero byte.
    unsafe { call(kernel::SYS_chdir, [at(dir)]) }.map(drop)
}

/// See open(2).
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32> {
    let args = [int(kernel::AT_FDCWD), at(path), int(flags), mode as usize];
    // SAFETY: the string ends with a zero byte.
    let fd = unsafe { call(kernel::SYS_openat, args) }?;
    i32::try_from(fd).map_err(|_| Errno(kernel::EBADF))
}

/// See mkdir(2); `path` ends at a zero byte, or is nothing.
pub fn mkdir(path: &[u8], mode: u32) -> Result<()> {
    let path = CStr::from_bytes_until_nul(path).map_err(|_| Errno(kernel::ENAMETOOLONG))?;
    // SAFETY: the string ends with a zero byte.
    unsafe {
        call(
            kernel::SYS_mkdirat,
            [int(kernel::AT_FDCWD), at(path), mode as usize],
        )
    }
    .map(drop)
}

/// Makes `fd` available under the number `target`, inherited across exec, and nowhere else.
pub fn move_to(fd: i32, target: i32) -> Result<()> {
    // SAFETY: these calls take numbers only.
    unsafe {
        if fd == target {
            // A copy onto itself would leave close-on-exec as it is.
            return call(kernel::SYS_fcntl, [int(fd), int(kernel::F_SETFD), 0]).map(drop);
        }
        call(kernel::SYS_dup3, [int(fd), int(target), 0])?;
        // A standard descriptor that was closed may be taken; it must stay.
        if fd > 2 {
            call(kernel::SYS_close, [int(fd)])?;
        }
    }
    Ok(())
}

/// See dup3(2), without flags.
pub fn copy_to(fd: i32, target: i32) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_dup3, [int(fd), int(target), 0]) }.map(drop)
}

/// Makes these descriptors 3 and up, inherited across exec, which closes all others but the standard ones. Changes the numbers.
pub fn keep_only(kept: &mut [i32]) -> Result<()> {
    let end = 3 + i32::try_from(kept.len()).unwrap_or(i32::MAX - 3);
    // Out of the way, so that none overwrites another; then down to fixed numbers.
    for fd in kept.iter_mut().filter(|fd| **fd < end) {
        let args = [int(*fd), int(kernel::F_DUPFD_CLOEXEC), int(end)];
        // SAFETY: takes numbers only.
        let high = unsafe { call(kernel::SYS_fcntl, args) }?;
        *fd = i32::try_from(high).map_err(|_| Errno(kernel::EBADF))?;
    }
    for (target, fd) in (3..).zip(&*kept) {
        copy_to(*fd, target)?;
    }
    let first = end.unsigned_abs();
    close_on_exec_from(first).or_else(|_| {
        // Kernels before 5.11 close a range at once or not at all; then all open ones have been opened to be closed by
        // exec.
        let args = [first as usize, u32::MAX as usize, 0];
        // SAFETY: takes numbers; nothing in a child owns a descriptor.
        let _ = unsafe { call(kernel::SYS_close_range, args) };
        Ok(())
    })
}

/// Has the next exec close a descriptor.
pub fn close_on_exec(fd: i32) -> Result<()> {
    let args = [int(fd), int(kernel::F_SETFD), int(kernel::FD_CLOEXEC)];
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_fcntl, args) }.map(drop)
}

/// Has the next exec close every descriptor from `first` on.
pub fn close_on_exec_from(first: u32) -> Result<()> {
    let args = [
        first as usize,
        u32::MAX as usize,
        kernel::CLOSE_RANGE_CLOEXEC as usize,
    ];
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_close_range, args) }.map(drop)
}

/// How many bytes a file has, at whose end it stands then.
pub fn length(fd: i32) -> Result<usize> {
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_lseek, [int(fd), 0, int(kernel::SEEK_END)]) }
}

/// Maps a file's bytes into memory of this process's own, for good.
pub fn map(fd: i32, bytes: usize) -> Result<&'static mut [u64]> {
    let protection = kernel::PROT_READ | kernel::PROT_WRITE;
    let flags = kernel::MAP_PRIVATE | kernel::MAP_POPULATE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe {
        call(
            kernel::SYS_mmap,
            [0, bytes, int(protection), int(flags), int(fd), 0],
        )
    }?;
    let words = bytes / size_of::<u64>();
    // SAFETY: it begins at a page, nothing else knows of it, and nothing unmaps it. Numbers may have any value.
    Ok(unsafe {
        core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(at), words)
    })
}

/// See prctl(2), PR_SET_DUMPABLE: lets no process without privileges look into this one, and has it leave no core, until it
/// executes a program.
pub fn set_undumpable() -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe {
        call(
            kernel::SYS_prctl,
            [int(kernel::PR_SET_DUMPABLE), 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Names this process; no more than 15 bytes count.
pub fn set_name(name: &CStr) {
    // SAFETY: the string ends with a zero byte.
    let _ = unsafe {
        call(
            kernel::SYS_prctl,
            [int(kernel::PR_SET_NAME), at(name), 0, 0, 0],
        )
    };
}

/// See sigprocmask(2): sets the signals that are blocked; gives those that were.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the sets are as long as the last argument says.
    let _ = unsafe {
        let (mask, before) = (&raw const mask as usize, &raw mut before as usize);
        call(
            kernel::SYS_rt_sigprocmask,
            [int(kernel::SIG_SETMASK), mask, before, 8],
        )
    };
    before
}

/// See setgroups(2), for this thread.
pub fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the length is the slice's, which is only read.
    unsafe {
        call(
            kernel::SYS_setgroups,
            [groups.len(), groups.as_ptr() as usize],
        )
    }
    .map(drop)
}

/// See setresgid(2), for this thread.
pub fn set_gids(real: u32, effective: u32, saved: u32) -> Result<()> {
    let ids = [real as usize, effective as usize, saved as usize];
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_setresgid, ids) }.map(drop)
}

/// See setresuid(2), for this thread.
pub fn set_uids(real: u32, effective: u32, saved: u32) -> Result<()> {
    let ids = [real as usize, effective as usize, saved as usize];
    // SAFETY: takes numbers only.
    unsafe { call(kernel::SYS_setresuid, ids) }.map(drop)
}

/// See read(2).
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    let args = [int(fd), bytes.as_mut_ptr() as usize, bytes.len()];
    // SAFETY: the length is the buffer's.
    unsafe { call(kernel::SYS_read, args) }
}

/// See pwrite(2).
pub fn write_at(fd: i32, bytes: &[u8], at: usize) -> Result<usize> {
    let args = [int(fd), bytes.as_ptr() as usize, bytes.len(), at];
    // SAFETY: the length is the buffer's, which is only read.
    unsafe { call(kernel::SYS_pwrite64, args) }
}

/// See write(2).
pub fn write(fd: i32, bytes: &[u8]) {
    let _ = try_write(fd, bytes);
}

/// Writes once; how many bytes were taken.
pub fn try_write(fd: i32, bytes: &[u8]) -> Result<usize> {
    let args = [int(fd), bytes.as_ptr() as usize, bytes.len()];
    // SAFETY: the length is the buffer's, which is only read.
    unsafe { call(kernel::SYS_write, args) }
}

/// Begins an audit session for a user, of which this process and all that comes of it are; its number. The kernel gives it
/// when the login user is set.
pub fn begin_audit_session(uid: u32) -> Result<u32> {
    let text = TextBuffer::<12>::of(format_args!("{uid}"));
    let file = open(
        c"/proc/self/loginuid",
        kernel::O_WRONLY | kernel::O_CLOEXEC,
        0,
    )?;
    let bytes = text.as_bytes();
    // SAFETY: the length is the buffer's, which is only read.
    let written = unsafe {
        let args = [int(file), bytes.as_ptr() as usize, bytes.len()];
        call(kernel::SYS_write, args)
    };
    close(file);
    written?;
    let flags = kernel::O_RDONLY | kernel::O_CLOEXEC;
    let file = open(c"/proc/self/sessionid", flags, 0)?;
    let mut digits = [0u8; 12];
    let read = read(file, &mut digits);
    close(file);
    let digits = digits.get(..read?).unwrap_or_default();
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    Ok(digits.fold(0u32, |n, digit| {
        n.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))
    }))
}

/// See close(2).
pub fn close(fd: i32) {
    // SAFETY: takes a number, of a descriptor that nothing else owns.
    let _ = unsafe { call(kernel::SYS_close, [int(fd)]) };
}

/// See execve(2); gives the error only.
///
/// # Safety
/// Both lists have to be of strings that end with a zero byte, and to end with a null pointer.
pub unsafe fn execve(path: &CStr, argv: *const *const c_char, env: *const *const c_char) -> Errno {
    // SAFETY: the caller's.
    match unsafe { call(kernel::SYS_execve, [at(path), argv as usize, env as usize]) } {
        Ok(_) => Errno(0),
        Err(e) => e,
    }
}

/// Executes the program that a descriptor is open for (execveat(2)); gives the error only.
///
/// # Safety
/// As for [`execve`].
pub unsafe fn execute_file(
    fd: i32,
    argv: *const *const c_char,
    env: *const *const c_char,
) -> Errno {
    let (flags, none) = (int(kernel::AT_EMPTY_PATH), at(c""));
    let args = [int(fd), none, argv as usize, env as usize, flags];
    // SAFETY: the caller's.
    match unsafe { call(kernel::SYS_execveat, args) } {
        Ok(_) => Errno(0),
        Err(e) => e,
    }
}
