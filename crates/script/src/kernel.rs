//! The kernel's numbers: this crate has no C library to take them from.

// The system's own names.
#![allow(non_upper_case_globals)]

use core::ffi::{c_int, c_long, c_uint};

/// Constants, and a test that they are the C library's.
macro_rules! numbers {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub(crate) const $name: $type = $value;)*

        #[cfg(test)]
        #[test]
        fn they_are_those_of_the_c_library() {
            $(assert_eq!($name, libc::$name, stringify!($name));)*
        }
    };
}

/// The number on x86_64 or on aarch64.
const fn by_machine(x86_64: c_long, aarch64: c_long) -> c_long {
    match cfg!(target_arch = "x86_64") {
        true => x86_64,
        false => aarch64,
    }
}

numbers! {
    SYS_chdir: c_long = by_machine(80, 49);
    SYS_close: c_long = by_machine(3, 57);
    SYS_close_range: c_long = by_machine(436, 436);
    SYS_dup3: c_long = by_machine(292, 24);
    SYS_execve: c_long = by_machine(59, 221);
    SYS_execveat: c_long = by_machine(322, 281);
    SYS_exit_group: c_long = by_machine(231, 94);
    SYS_fcntl: c_long = by_machine(72, 25);
    SYS_geteuid: c_long = by_machine(107, 175);
    SYS_getpid: c_long = by_machine(39, 172);
    SYS_lseek: c_long = by_machine(8, 62);
    SYS_mkdirat: c_long = by_machine(258, 34);
    SYS_mmap: c_long = by_machine(9, 222);
    SYS_openat: c_long = by_machine(257, 56);
    SYS_prctl: c_long = by_machine(157, 167);
    SYS_prlimit64: c_long = by_machine(302, 261);
    SYS_pwrite64: c_long = by_machine(18, 68);
    SYS_read: c_long = by_machine(0, 63);
    SYS_rt_sigaction: c_long = by_machine(13, 134);
    SYS_rt_sigprocmask: c_long = by_machine(14, 135);
    SYS_sched_setaffinity: c_long = by_machine(203, 122);
    SYS_setns: c_long = by_machine(308, 268);
    SYS_setgroups: c_long = by_machine(116, 159);
    SYS_setresgid: c_long = by_machine(119, 149);
    SYS_setresuid: c_long = by_machine(117, 147);
    SYS_setsid: c_long = by_machine(112, 157);
    SYS_statx: c_long = by_machine(332, 291);
    SYS_umask: c_long = by_machine(95, 166);
    SYS_write: c_long = by_machine(1, 64);
    AT_FDCWD: c_int = -100;
    AT_EMPTY_PATH: c_int = 0x1000;
    AT_NO_AUTOMOUNT: c_int = 0x800;
    AT_STATX_DONT_SYNC: c_int = 0x4000;
    AT_SYMLINK_NOFOLLOW: c_int = 0x100;
    O_RDONLY: c_int = 0;
    O_WRONLY: c_int = 1;
    O_RDWR: c_int = 2;
    O_CREAT: c_int = 0o100;
    O_NOCTTY: c_int = 0o400;
    O_TRUNC: c_int = 0o1000;
    O_APPEND: c_int = 0o2000;
    O_CLOEXEC: c_int = 0o2_000_000;
    CLONE_NEWNS: c_int = 0x2_0000;
    FD_CLOEXEC: c_int = 1;
    F_SETFD: c_int = 2;
    F_DUPFD_CLOEXEC: c_int = 1030;
    SEEK_END: c_int = 2;
    PROT_READ: c_int = 1;
    PROT_WRITE: c_int = 2;
    MAP_PRIVATE: c_int = 2;
    MAP_POPULATE: c_int = 0x8000;
    CLOSE_RANGE_CLOEXEC: c_uint = 4;
    PR_SET_DUMPABLE: c_int = 4;
    PR_SET_NAME: c_int = 15;
    SIG_SETMASK: c_int = 2;
    SIGHUP: c_int = 1;
    SIGPIPE: c_int = 13;
    PATH_MAX: c_int = 4096;
    STATX_BASIC_STATS: c_uint = 0x7ff;
    S_IFDIR: c_uint = 0o040_000;
    S_IFMT: c_uint = 0o170_000;
    ENOENT: c_int = 2;
    EBADF: c_int = 9;
    EEXIST: c_int = 17;
    EINVAL: c_int = 22;
    ENAMETOOLONG: c_int = 36;
}
