//! The user's time zone, read only when an option or a message needs it.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use muster_conf::options::values::time::{Civil, CivilZone};
use muster_model::time::Timestamp;
use std::cell::OnceCell;
use std::time::{SystemTime, UNIX_EPOCH};

/// The system's or `TZ`'s zone.
#[derive(Default)]
pub(crate) struct LocalZone(OnceCell<TimeZone>);

impl LocalZone {
    /// Another zone than the system's.
    pub(crate) fn of(zone: TimeZone) -> LocalZone {
        LocalZone(OnceCell::from(zone))
    }

    fn zone(&self) -> &TimeZone {
        self.0.get_or_init(muster_conf::zone::local)
    }
}

impl CivilZone for LocalZone {
    fn civil(&self, unix_s: i64) -> Civil {
        let at = jiff::Timestamp::from_second(unix_s).unwrap_or_default();
        let local = at.to_zoned(self.zone().clone());
        let part = |n: i8| u32::try_from(n).unwrap_or(0);
        Civil {
            year: local.year().into(),
            month: part(local.month()),
            day: part(local.day()),
            hour: part(local.hour()),
            minute: part(local.minute()),
            second: part(local.second()),
        }
    }

    fn unix(&self, c: Civil) -> Option<i64> {
        let part = |n: u32| i8::try_from(n).ok();
        let local = DateTime::new(
            i16::try_from(c.year).ok()?,
            part(c.month)?,
            part(c.day)?,
            part(c.hour)?,
            part(c.minute)?,
            part(c.second)?,
            0,
        )
        .ok()?;
        let zoned = self.zone().to_zoned(local).ok()?;
        Some(zoned.timestamp().as_second())
    }
}

/// Now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// `2026-11-21T21:53:46` in the user's time zone.
pub(crate) fn show(at: Timestamp) -> String {
    let c = LocalZone::default().civil(at.unix_s());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        c.year, c.month, c.day, c.hour, c.minute, c.second
    )
}
