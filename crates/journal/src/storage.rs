//! Where the journal keeps its bytes: a flat directory of files, seen through two small traits,
//! so that tests and the cluster simulator can put a memory with crash semantics in its place.
//! The traits promise no more than a POSIX file system does: data is durable after
//! [`StorageFile::sync`], names after [`Storage::sync_dir`].

use std::io;

pub(crate) mod dir;
pub(crate) mod mem;

/// A flat directory of files.
pub trait Storage: Send + Sync {
    /// Name of the directory in error messages.
    fn location(&self) -> String;
    /// Takes the lock that keeps a second controller out. It is held until the value is dropped.
    fn lock(&self) -> io::Result<Lock>;
    /// Names of all files; [`io::ErrorKind::NotFound`] if the directory itself is not there.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file; one of the same name is emptied.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;
    /// Renames a file, in place of one that has the name already.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file.
pub trait StorageFile: Send {
    /// Length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at `offset`. After an error any part of it may be written.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Outcome of [`Storage::lock`].
pub enum Lock {
    /// The lock is ours until the value is dropped.
    Held(Box<dyn Send>),
    /// Another process (named where known) holds it.
    Busy(Option<u32>),
}

/// Fills `buf` from `offset` on as far as the file goes; returns the bytes read.
pub(crate) fn read_full(file: &dyn StorageFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
