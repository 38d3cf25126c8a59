//! Errors of the system with their context. The cause is kept, because its number decides whether a
//! resource was missing that may be available later.

use nix::errno::Errno;
use std::error::Error;
use std::fmt::Display;
use std::io;

/// An error of the system and its context.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {cause}")]
struct NamedError {
    subject: String,
    #[source]
    cause: io::Error,
}

/// An error of the same kind with the context in its text.
pub(crate) fn named(subject: impl Display, cause: io::Error) -> io::Error {
    let subject = subject.to_string();
    io::Error::new(cause.kind(), NamedError { subject, cause })
}

/// The system's number of an error, or of the first of its causes that has one.
fn number(error: &io::Error) -> Option<Errno> {
    let mut cause: &(dyn Error + 'static) = error;
    loop {
        let number = cause.downcast_ref::<io::Error>();
        if let Some(number) = number.and_then(io::Error::raw_os_error) {
            return Some(Errno::from_raw(number));
        }
        cause = cause.source()?;
    }
}

/// Whether an error means that a resource is missing that may be available later, such as
/// descriptors.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        number(error),
        Some(
            Errno::EMFILE
                | Errno::ENFILE
                | Errno::ENOMEM
                | Errno::EAGAIN
                | Errno::ENOSPC
                | Errno::EDQUOT
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_or_room_is_temporary_whatever_is_said_of_it() {
        for (number, temporary) in [
            (Errno::EMFILE, true),
            (Errno::ENFILE, true),
            (Errno::ENOMEM, true),
            (Errno::ENOSPC, true),
            (Errno::EDQUOT, true),
            (Errno::EROFS, false),
        ] {
            let cause = || io::Error::from_raw_os_error(number as i32);
            let once = named("/x", cause());
            assert_eq!(once.kind(), cause().kind());
            assert_eq!(once.to_string(), format!("/x: {}", cause()));
            let twice = named("the job's directories", named("/x", cause()));
            for error in [cause(), once, twice] {
                assert_eq!(is_temporary(&error), temporary, "{error}");
            }
        }
        assert!(!is_temporary(&io::Error::other("no number")));
    }
}
