//! Texts that children leave for the process that started them.

use super::{check, memory_file};
use muster_script::SLOT;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Memory shared by a process and its children: numbered slots of text. A child writes its slot once, and the parent
/// reads it after the child has ended, so that no further synchronisation is needed. An executed program gets the
/// memory by its descriptor.
pub(crate) struct SharedSlots {
    base: *mut u8,
    count: usize,
    file: OwnedFd,
}

impl AsRawFd for SharedSlots {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl SharedSlots {
    /// Maps `count` empty slots.
    pub(crate) fn new(count: usize) -> io::Result<SharedSlots> {
        let file = std::fs::File::from(memory_file(c"muster-slots")?);
        // A user who opens a child's descriptor by its path in /proc gets no access.
        nix::sys::stat::fchmod(&file, nix::sys::stat::Mode::from_bits_truncate(0o600))?;
        file.set_len((count * SLOT) as u64)?;
        let size = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: takes numbers only.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, size) })?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file stays as long as it is.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * SLOT,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedSlots {
            base: base.cast(),
            count,
            file: file.into(),
        })
    }

    /// Writes a text, cut to what fits.
    pub(crate) fn put(&self, slot: usize, text: &[u8]) {
        let bytes = text.get(..SLOT - 1).unwrap_or(text);
        if slot < self.count && !bytes.is_empty() {
            // SAFETY: the slot lies in the mapping, the text fits into it, and only the one child that was given
            // this slot writes it.
            unsafe {
                let at = self.base.add(slot * SLOT);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(1), bytes.len());
                at.write_volatile(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
            }
        }
    }

    /// Takes a slot's text out, if there is one.
    pub(crate) fn take(&self, slot: usize) -> Option<String> {
        if slot >= self.count {
            return None;
        }
        // SAFETY: the slot lies in the mapping; its writer has ended (the caller reaped it).
        unsafe {
            let at = self.base.add(slot * SLOT);
            let length = usize::from(at.read_volatile());
            if length == 0 {
                return None;
            }
            let mut text = vec![0; length];
            std::ptr::copy_nonoverlapping(at.add(1), text.as_mut_ptr(), length);
            at.write_volatile(0);
            Some(String::from_utf8_lossy(&text).into_owned())
        }
    }
}
