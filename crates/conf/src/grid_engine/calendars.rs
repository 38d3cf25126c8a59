//! Calendars, and the queues that have them.

use super::Mapping;
use crate::diagnostic::{Diagnostic, Origin, Severity};
use muster_model::calendar::Calendar;
use std::sync::Arc;

/// The usual name of the default queue.
const DEFAULT_QUEUE: &str = "all.q";

impl Mapping {
    /// Reads the words of a line that defines a calendar.
    pub(super) fn take_calendar(&mut self, words: &[&str]) -> Result<(), String> {
        let calendar = Calendar::parse(&words.join(" "))?;
        let name = &calendar.name;
        if self.calendars.iter().any(|own| own.name == *name) {
            return Err(format!("calendar '{name}' is defined twice"));
        }
        self.calendars.push(calendar);
        Ok(())
    }

    /// Reads the words of a line that gives a queue a calendar.
    pub(super) fn take_queue_calendar(&mut self, words: &[&str]) -> Result<(), String> {
        let [queue, calendar] = words else {
            return Err("'queue_calendar' needs a queue and a calendar".to_owned());
        };
        if self.queue_calendars.iter().any(|(own, _)| own == queue) {
            return Err(format!("queue '{queue}' has a calendar already"));
        }
        let pair = ((*queue).to_owned(), (*calendar).to_owned());
        self.queue_calendars.push(pair);
        Ok(())
    }

    /// The calendar of this name.
    pub fn calendar(&self, name: &str) -> Option<&Calendar> {
        self.calendars.iter().find(|own| own.name == name)
    }

    /// The calendar of a partition, by the name of its queue or its own.
    pub fn calendar_of(&self, partition: &str, is_default: bool) -> Option<&Calendar> {
        let is_mapped = self.queues.iter().any(|(queue, _)| queue == DEFAULT_QUEUE);
        let queue = self.queue_of(partition);
        let is_it = |own: &str| {
            own == queue || own == partition || (own == DEFAULT_QUEUE && is_default && !is_mapped)
        };
        let mut named = self.queue_calendars.iter();
        let (_, name) = named.find(|(own, _)| is_it(own))?;
        self.calendar(name)
    }

    /// Findings about queues whose calendar is not defined.
    pub(super) fn calendars_without_definition(&self, file: &Arc<str>) -> Vec<Diagnostic> {
        let named = self.queue_calendars.iter();
        let lost = named.filter(|(_, name)| self.calendar(name).is_none());
        let finding = |(queue, name): &(String, String)| Diagnostic {
            severity: Severity::Error,
            origin: Origin {
                file: Arc::clone(file),
                line: 0,
                column: 0,
            },
            key: "queue_calendar".to_owned(),
            message: format!("calendar '{name}' of queue '{queue}' is not defined"),
            help: "write a line: calendar NAME [year ENTRY ...] [week ENTRY ...]".to_owned(),
        };
        lost.map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_calendars() {
        let conf = "queue long.q long\ncalendar night week mon-fri=6-20\ncalendar off week off\n\
                    queue_calendar long.q night\nqueue_calendar all.q off\nqueue_calendar plain night\n";
        let (mapping, findings) = Mapping::parse(conf, "f");
        assert_eq!(findings, []);
        let of = |partition, is_default| {
            let found = mapping.calendar_of(partition, is_default);
            found.map(|own| own.name.as_str())
        };
        assert_eq!(of("long", false), Some("night"));
        assert_eq!(of("plain", false), Some("night"));
        assert_eq!(of("batch", true), Some("off"));
        assert_eq!(of("batch", false), None);
        assert_eq!(
            mapping.calendar("night").unwrap().text(),
            "night year NONE week mon-fri=6-20"
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for (conf, why) in [
            (
                "calendar c week mo",
                "error in disabled_week of calendar \"c\": \"mo\" is not a weekday",
            ),
            ("calendar", "'' is not a valid name of a calendar"),
            (
                "calendar c week off\ncalendar c week on",
                "calendar 'c' is defined twice",
            ),
            (
                "queue_calendar a",
                "'queue_calendar' needs a queue and a calendar",
            ),
            (
                "queue_calendar a b",
                "calendar 'b' of queue 'a' is not defined",
            ),
            (
                "calendar c week off\nqueue_calendar a c\nqueue_calendar a c",
                "queue 'a' has a calendar already",
            ),
        ] {
            let (_, findings) = Mapping::parse(conf, "f");
            assert_eq!(
                findings.first().map(|own| own.message.as_str()),
                Some(why),
                "{conf}"
            );
        }
    }
}
