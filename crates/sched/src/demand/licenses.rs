//! Licenses in a pass: those taken by starts, those held for jobs that are first in line, and the
//! time at which enough will be free.

use muster_core::state::{LicenseSource, State};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::licenses::{Counts, LicenseCount, parse_ask};
use muster_model::limits::LICENSE_ALTERNATIVES_MAX;
use muster_model::reservation::RunWindow;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Licenses that a job wants.
#[derive(Clone, Debug)]
pub(crate) struct LicenseDue {
    source: LicenseSource,
    /// Number of licenses left when the job starts.
    left: i64,
    /// Number of these licenses that the job requests.
    wanted: i64,
}

/// The time at which a job can have its licenses, and the number available then.
#[derive(Clone, Debug, Default)]
pub(crate) struct LicensesDue {
    /// `None` if the job can have them now.
    pub(crate) from: Option<Timestamp>,
    pub(crate) counts: Vec<LicenseDue>,
}

/// Licenses that a start of this pass will return, and when.
#[derive(Clone, Debug)]
struct StartedLicenses {
    end: Timestamp,
    counts: Counts,
}

/// Licenses held for a waiting job from a time on.
#[derive(Clone, Debug)]
struct LicenseHold {
    source: LicenseSource,
    start: Timestamp,
    /// Licenses that other jobs may use after that time.
    spare: i64,
}

/// License counts of a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Licenses {
    /// Licenses taken by starts of this pass.
    taken: BTreeMap<LicenseSource, i64>,
    kept: Vec<LicenseHold>,
    started: Vec<StartedLicenses>,
}

/// Where and when a job would use licenses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) state: &'a State,
    pub(crate) reservation: Option<&'a str>,
    pub(crate) now: Timestamp,
    /// The latest end of the job if it starts now.
    pub(crate) end: Timestamp,
}

impl Span<'_> {
    fn source(&self, name: &str) -> LicenseSource {
        let pool = self.state.license_pool(name, self.reservation);
        LicenseSource {
            name: name.to_owned(),
            pool: pool.to_owned(),
        }
    }

    /// The source of each license.
    pub(crate) fn sources(&self, counts: &Counts) -> Vec<LicenseSource> {
        counts.iter().map(|of| self.source(&of.name)).collect()
    }
}

/// The alternatives of a job: it needs all licenses of one of them.
pub(crate) fn asked(text: Option<&str>) -> Vec<Counts> {
    let text = text.filter(|t| !t.is_empty());
    // Submissions with unreadable licenses are refused. If a job still has some, nobody has these
    // licenses.
    let mut asked = text.map_or(Vec::new(), |t| {
        parse_ask(t).unwrap_or_else(|| vec![vec![LicenseCount::new(t, 1)]])
    });
    // Jobs from an older journal may request more licenses than a submission may now.
    asked.truncate(LICENSE_ALTERNATIVES_MAX);
    asked
}

impl Licenses {
    /// Whether no start of this pass has taken licenses.
    pub(crate) fn are_untaken(&self) -> bool {
        self.taken.is_empty()
    }

    /// The first alternative that is available now; `None` if none is. A job without licenses has
    /// an empty alternative.
    pub(crate) fn to_be_had(&self, asked: &[Counts], span: Span<'_>) -> Option<Counts> {
        if asked.is_empty() {
            return Some(Counts::new());
        }
        let there = |LicenseCount { name, count }: &LicenseCount| {
            let count = i64::from(*count);
            let kept = self.kept.iter();
            self.left(name, span) >= count
                && kept
                    .filter(|k| k.source == span.source(name) && k.start < span.end)
                    .all(|k| k.spare >= count)
        };
        let found = asked.iter().find(|one| one.iter().all(there));
        found.cloned()
    }

    fn left(&self, name: &str, span: Span<'_>) -> i64 {
        let window = RunWindow::from_now(span.now, span.end);
        let left = span.state.licenses_left(name, span.reservation, window);
        left - self.taken.get(&span.source(name)).copied().unwrap_or(0)
    }

    /// Availability of the first alternative that fits after some jobs have ended, and the
    /// requested number; `None` if no alternative fits.
    pub(crate) fn without(
        &self,
        asked: &[Counts],
        span: Span<'_>,
        ended: &[&Job],
    ) -> Option<Vec<LicenseDue>> {
        let back = |source: &LicenseSource, after: Timestamp| -> i64 {
            let of = |job: &&Job| {
                let alloc = job.alloc.as_ref()?;
                let mut held = alloc.licenses.iter();
                let count = held.find(|of| of.name == source.name)?.count;
                let pool = span
                    .state
                    .license_pool(&source.name, alloc.reservation.as_deref());
                // Licenses held from a time on include those that jobs return before it.
                let later = span.state.limit_end(job).is_none_or(|end| end > after);
                (pool == source.pool && later).then_some(i64::from(count))
            };
            ended.iter().filter_map(of).sum()
        };
        let due = |LicenseCount { name, count }: &LicenseCount| {
            let (source, count) = (span.source(name), i64::from(*count));
            let there = self.left(name, span) + back(&source, Timestamp(i64::MIN));
            let kept = self.kept.iter().filter(|k| k.source == source);
            let fits = there >= count
                && kept
                    .filter(|k| k.start < span.end)
                    .all(|k| k.spare + back(&source, k.start) >= count);
            fits.then_some(LicenseDue {
                source,
                left: there,
                wanted: count,
            })
        };
        asked
            .iter()
            .find_map(|one| one.iter().map(due).collect::<Option<Vec<LicenseDue>>>())
    }

    /// Takes the licenses for a job that ends at `end`.
    pub(crate) fn take(&mut self, counts: &Counts, sources: Vec<LicenseSource>, end: Timestamp) {
        if counts.is_empty() {
            return;
        }
        self.started.push(StartedLicenses {
            end,
            counts: counts.clone(),
        });
        for (of, source) in counts.iter().zip(sources) {
            let count = i64::from(of.count);
            *self.taken.entry(source.clone()).or_default() += count;
            for kept in &mut self.kept {
                if kept.source == source && kept.start < end {
                    kept.spare -= count;
                }
            }
        }
    }

    /// The time at which the first alternative fits as running jobs end, and the number available
    /// then.
    pub(crate) fn earliest(
        &self,
        asked: &[Counts],
        span: Span<'_>,
        completing: &BTreeSet<JobId>,
    ) -> Option<LicensesDue> {
        let names: BTreeSet<&String> = asked.iter().flatten().map(|of| &of.name).collect();
        let mut left: BTreeMap<&str, i64> = (names
            .iter()
            .map(|name| (name.as_str(), self.left(name, span))))
        .collect();
        let done = |left: &BTreeMap<&str, i64>| {
            let fits = |of: &LicenseCount| left[of.name.as_str()] >= i64::from(of.count);
            let one = asked.iter().find(|one| one.iter().all(fits))?;
            let of = |LicenseCount { name, count }: &LicenseCount| LicenseDue {
                source: span.source(name),
                left: left[name.as_str()],
                wanted: i64::from(*count),
            };
            Some(one.iter().map(of).collect::<Vec<LicenseDue>>())
        };
        if let Some(counts) = done(&left) {
            return Some(LicensesDue { from: None, counts });
        }
        let end_of = |job: &Job| match completing.contains(&job.id) {
            true => Some(span.now),
            false => span.state.limit_end(job).map(|end| end.max(span.now)),
        };
        let running = (span.state.active.iter())
            .filter_map(|id| span.state.jobs.get(id))
            .filter(|job| {
                let alloc = job.alloc.as_ref();
                alloc.is_some_and(|a| {
                    a.reservation.as_deref() == span.reservation
                        && a.licenses.iter().any(|of| names.contains(&of.name))
                })
            })
            .filter_map(|job| Some((end_of(job)?, &job.alloc.as_ref()?.licenses)));
        let started = self
            .started
            .iter()
            .map(|started| (started.end, &started.counts));
        let mut ends: Vec<(Timestamp, &Counts)> = running.chain(started).collect();
        ends.retain(|(end, _)| end.0 < i64::MAX);
        ends.sort_by_key(|(end, _)| *end);
        for (at, counts) in ends {
            for LicenseCount { name, count } in counts {
                if let Some(left) = left.get_mut(name.as_str()) {
                    *left += i64::from(*count);
                }
            }
            if let Some(counts) = done(&left) {
                let from = Some(at).filter(|at| *at > span.now);
                return Some(LicensesDue { from, counts });
            }
        }
        None
    }

    /// Holds licenses from a time on.
    pub(crate) fn keep(&mut self, start: Timestamp, counts: Vec<LicenseDue>) {
        for LicenseDue {
            source,
            left: there,
            wanted: count,
        } in counts
        {
            for kept in &mut self.kept {
                if kept.source == source && start <= kept.start {
                    kept.spare -= count;
                }
            }
            let spare = there - count;
            self.kept.push(LicenseHold {
                source,
                start,
                spare,
            });
        }
    }
}
