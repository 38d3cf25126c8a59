//! Standard input and output as a connection.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

/// A socket that standard input is copied to, and that is copied to standard output, until it ends. Only the latter has an end to wait
/// for: a terminal may have no more input, ever.
///
/// # Errors
/// There are no descriptors or threads.
pub(crate) fn standard_streams() -> io::Result<(UnixStream, JoinHandle<io::Result<()>>)> {
    let (near, far) = UnixStream::pair()?;
    let input = far.try_clone()?;
    thread::Builder::new().name("input".into()).spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut &input);
        let _ = input.shutdown(Shutdown::Write);
    })?;
    let output = thread::Builder::new()
        .name("output".into())
        .spawn(move || {
            let mut stdout = io::stdout().lock();
            io::copy(&mut &far, &mut stdout)?;
            stdout.flush()
        })?;
    Ok((near, output))
}
