//! Error numbers and their texts.

use core::fmt;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            "" => write!(f, "error {}", self.0),
            text => f.write_str(text),
        }
    }
}

impl Errno {
    /// Text of an error of a start, in the C library's words, which are not at hand here.
    fn text(self) -> &'static str {
        match self.0 {
            1 => "Operation not permitted",
            2 => "No such file or directory",
            3 => "No such process",
            4 => "Interrupted system call",
            5 => "Input/output error",
            6 => "No such device or address",
            7 => "Argument list too long",
            8 => "Exec format error",
            9 => "Bad file descriptor",
            11 => "Resource temporarily unavailable",
            12 => "Cannot allocate memory",
            13 => "Permission denied",
            14 => "Bad address",
            16 => "Device or resource busy",
            17 => "File exists",
            18 => "Invalid cross-device link",
            19 => "No such device",
            20 => "Not a directory",
            21 => "Is a directory",
            22 => "Invalid argument",
            23 => "Too many open files in system",
            24 => "Too many open files",
            25 => "Inappropriate ioctl for device",
            26 => "Text file busy",
            27 => "File too large",
            28 => "No space left on device",
            29 => "Illegal seek",
            30 => "Read-only file system",
            32 => "Broken pipe",
            36 => "File name too long",
            38 => "Function not implemented",
            40 => "Too many levels of symbolic links",
            75 => "Value too large for defined data type",
            80 => "Accessing a corrupted shared library",
            95 => "Operation not supported",
            110 => "Connection timed out",
            111 => "Connection refused",
            112 => "Host is down",
            113 => "No route to host",
            116 => "Stale file handle",
            117 => "Structure needs cleaning",
            121 => "Remote I/O error",
            122 => "Disk quota exceeded",
            126 => "Required key not available",
            127 => "Key has expired",
            128 => "Key has been revoked",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;
    use std::string::ToString as _;
    use std::{format, io};

    #[test]
    fn texts_are_those_of_the_c_library() {
        let mut known = 0;
        for number in (1..200).filter(|n| !Errno(*n).text().is_empty()) {
            let text = io::Error::from_raw_os_error(number).to_string();
            let own = format!("{} (os error {number})", Errno(number));
            assert_eq!(own, text);
            known += 1;
        }
        assert!(known > 40, "{known}");
        assert_eq!(format!("{}", Errno(199)), "error 199");
    }
}
