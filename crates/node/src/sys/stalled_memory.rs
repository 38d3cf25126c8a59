//! Memory whose reads block, for tests: as a mapped file of a user's own file system (FUSE) does, which may never answer.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};

/// A page of memory. A process that reads it blocks until the page is released, and then gets zeros.
pub(crate) struct StalledMemory {
    address: *mut libc::c_void,
    /// Says that somebody waits; userfaultfd(2).
    faults: File,
}

// SAFETY: the address is only handed to system calls.
unsafe impl Send for StalledMemory {}
// SAFETY: as above.
unsafe impl Sync for StalledMemory {}

/// Bytes of the page.
const LENGTH: usize = 4096;
/// `UFFD_API`, and numbers of requests, of linux/userfaultfd.h.
const API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const MODE_MISSING: u64 = 1;
/// Bytes of `struct uffd_msg`.
const EVENT: usize = 32;

impl StalledMemory {
    pub(crate) fn new() -> io::Result<StalledMemory> {
        // SAFETY: userfaultfd(2) takes flags only, and gives a descriptor that nobody else owns.
        let faults = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
            File::from_raw_fd(fd.ok_or_else(io::Error::last_os_error)?)
        };
        // SAFETY: a new mapping of no file, at no given place.
        let address = unsafe {
            let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), LENGTH, access, kind, -1, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = StalledMemory { address, faults };
        let mut api = [API, 0, 0];
        let mut range = [address as u64, LENGTH as u64, MODE_MISSING, 0];
        memory.request(UFFDIO_API, api.as_mut_ptr())?;
        memory.request(UFFDIO_REGISTER, range.as_mut_ptr())?;
        Ok(memory)
    }

    fn request(&self, number: u64, argument: *mut u64) -> io::Result<()> {
        // SAFETY: each request reads and writes as many words as its caller has.
        match unsafe { libc::ioctl(self.faults.as_raw_fd(), number as _, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes the page to a descriptor, which blocks until the page is released.
    pub(crate) fn write_to(&self, fd: i32) -> isize {
        // SAFETY: the mapping has that many bytes; the kernel reads them or fails.
        unsafe { libc::write(fd, self.address, LENGTH) }
    }

    /// Waits until a process reads the page.
    pub(crate) fn until_read(&self) -> io::Result<()> {
        (&self.faults).read_exact(&mut [0; EVENT])
    }

    /// Lets blocked readers go on.
    pub(crate) fn release(&self) -> io::Result<()> {
        const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
        let mut range = [self.address as u64, LENGTH as u64];
        self.request(UFFDIO_UNREGISTER, range.as_mut_ptr())
    }
}

impl Drop for StalledMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nobody uses it any more.
        unsafe { libc::munmap(self.address, LENGTH) };
    }
}
