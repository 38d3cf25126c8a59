//! The time zone of this process, as tzset(3) finds it: the file that `TZ` names, a rule in `TZ`, or /etc/localtime.
//!
//! jiff finds a zone by name in a database whose directory it reads whole, which takes longer than most commands run.
//! Its own way is kept for all that is no name.

use jiff::tz::TimeZone;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where zones are, unless `TZDIR` says so.
const ZONES: &str = "/usr/share/zoneinfo";

/// The zone of `TZ`, or the system's; UTC if neither makes sense.
pub fn local() -> TimeZone {
    let directory = std::env::var_os("TZDIR").map_or_else(|| PathBuf::from(ZONES), PathBuf::from);
    std::env::var_os("TZ")
        .and_then(|name| named(&name, &directory))
        .unwrap_or_else(TimeZone::system)
}

/// The rule of the zone as POSIX writes it, which tells all times to come: what `TZ` says, or what ends the file of the zone.
pub fn rule() -> String {
    let directory = std::env::var_os("TZDIR").map_or_else(|| PathBuf::from(ZONES), PathBuf::from);
    let given = std::env::var_os("TZ").filter(|name| !name.is_empty());
    let Some(name) = given else {
        return fs::read("/etc/localtime")
            .ok()
            .and_then(|zone| footer(&zone))
            .unwrap_or_else(utc);
    };
    let bytes = name.as_bytes();
    let path = directory.join(OsStr::from_bytes(bytes.strip_prefix(b":").unwrap_or(bytes)));
    let of_file = fs::read(path).ok().and_then(|zone| footer(&zone));
    of_file
        .or_else(|| is_rule(&name.to_string_lossy()))
        .unwrap_or_else(utc)
}

fn utc() -> String {
    "UTC0".to_owned()
}

/// The last line of a file of a zone (RFC 8536).
fn footer(zone: &[u8]) -> Option<String> {
    let body = zone.strip_suffix(b"\n")?;
    let begin = body.iter().rposition(|byte| *byte == b'\n')? + 1;
    is_rule(std::str::from_utf8(&body[begin..]).ok()?)
}

fn is_rule(text: &str) -> Option<String> {
    TimeZone::posix(text).ok().map(|_| text.to_owned())
}

/// The zone in a file of the directory, or of the system where the name is a whole path.
fn named(name: &OsStr, directory: &Path) -> Option<TimeZone> {
    let bytes = name.as_bytes();
    let name = OsStr::from_bytes(bytes.strip_prefix(b":").unwrap_or(bytes));
    if name.is_empty() {
        return None;
    }
    let zone = fs::read(directory.join(name)).ok()?;
    TimeZone::tzif(&name.to_string_lossy(), &zone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine hours east of Greenwich, without any change, as RFC 8536 writes it.
    fn nine_hours_east() -> Vec<u8> {
        let block = |version: u8| {
            let mut bytes = b"TZif".to_vec();
            bytes.push(version);
            bytes.extend([0; 15]);
            for count in [0, 0, 0, 0, 1, 4u32] {
                bytes.extend(count.to_be_bytes());
            }
            bytes.extend((9 * 3600i32).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(b"JST\0");
            bytes
        };
        [block(b'2'), block(b'2'), b"\nJST-9\n".to_vec()].concat()
    }

    #[test]
    fn zones_are_found_by_name_and_by_path() {
        let directory = std::env::temp_dir().join(format!("muster-zones-{}", std::process::id()));
        let file = directory.join("Asia/Tokyo");
        fs::create_dir_all(directory.join("Asia")).unwrap();
        fs::write(&file, nine_hours_east()).unwrap();
        let path = file.display().to_string();
        for name in ["Asia/Tokyo", ":Asia/Tokyo", &path] {
            let zone = named(OsStr::new(name), &directory).expect(name);
            let offset = zone.to_offset(jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(offset.seconds(), 9 * 3600, "{name}");
        }
        assert_eq!(footer(&nine_hours_east()).as_deref(), Some("JST-9"));
        assert!(footer(b"TZif\n\n").is_none());
        assert_eq!(is_rule("CET-1CEST,M3.5.0,M10.5.0/3").unwrap().len(), 26);
        assert!(is_rule("Europe/Berlin").is_none());
        for other in ["", "Asia", "Asia/Nowhere", "EST5EDT,M3.2.0,M11.1.0"] {
            assert!(named(OsStr::new(other), &directory).is_none(), "{other}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
