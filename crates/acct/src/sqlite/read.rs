//! Answering sacct from the file. Each query is one read transaction: the writer goes on beside it.

use super::copy::{logged_bytes, logged_transaction};
use super::records::{RawJob, Records, decode, job_columns, owner_names};
use super::row::{first_row, last_row, row_run, small, time};
use super::text::{Texts, find};
use super::text_hash::TextKey;
use super::write::{REPEATED_BYTES_MAX, cut};
use crate::array_text::pending_text;
use crate::store::{History, Interrupter, StoreError, Transactions, Use};
use crate::window::{JobTimes, Window};
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::ArrayTask;
use muster_model::known_cluster::KnownCluster;
use muster_model::spec::ArraySpec;
use muster_model::storage::StorageAnswer;
use muster_model::time::Timestamp;
use muster_proto::acct::{
    AcctJob, AcctQuery, AcctStep, JobTextKind, NodeEvent, ReservationRecord, UsageQuery,
};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Bytes after which a page ends, however few jobs it has: some have tens of thousands of steps.
const PAGE_BYTES: usize = 4 << 20;
/// Bytes of a job or step beside its long texts, about.
pub(super) const FIXED_BYTES: usize = 512;

/// Bytes of hostlists that are remembered before all are forgotten.
const ON_NODES_BYTES_MAX: usize = 16 << 20;

/// Answers queries; one at a time, from any thread.
pub struct Reader {
    path: PathBuf,
    connection: Connection,
    texts: Texts,
}

impl Reader {
    /// Opens a file that [`super::SqliteStore::open`] made.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader {
            path: path.to_owned(),
            connection: super::open_read_only(path)?,
            texts: Texts::default(),
        })
    }

    /// Another one of the same file, for questions at the same time.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn another(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.path)
    }

    /// The journal position that readers see.
    ///
    /// # Errors
    /// What the database says.
    pub fn position(&self) -> Result<u64, StoreError> {
        super::schema::position(&self.connection)
    }
}

impl History for Reader {
    fn query(
        &mut self,
        query: &AcctQuery,
        page_len: usize,
        page: &mut dyn FnMut(Vec<AcctJob>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        let query = &query.clone().in_order();
        let mut search = Search {
            connection: &transaction,
            records: Records {
                connection: &transaction,
                texts: &mut self.texts,
            },
            query,
            window: Window::of(query),
            named: NamedTexts::find(&transaction, query)?,
            on_nodes: HashMap::new(),
            on_nodes_bytes: 0,
            owned: HashMap::new(),
            pages: Pages {
                page,
                page_len: page_len.max(1),
                jobs: Vec::new(),
                bytes: 0,
                held: None,
                duplicates: query.duplicates,
                given: false,
            },
        };
        let flow = if query.jobs.is_empty() {
            search.all()?
        } else {
            search.named_jobs()?
        };
        if flow.is_continue() {
            search.pages.finish();
        }
        Ok(())
    }

    fn interrupter(&self) -> Interrupter {
        let handle = self.connection.get_interrupt_handle();
        Interrupter(Box::new(move || handle.interrupt()))
    }

    fn node_events(
        &mut self,
        nodes: &[String],
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Vec<NodeEvent>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT node, start_ms, end_ms, down, drain, fail, reason, uid FROM node_event
             WHERE start_ms <= ?1 AND (end_ms IS NULL OR end_ms >= ?2) ORDER BY start_ms, id",
        )?;
        let window = (
            end.map_or(i64::MAX, |end| end.0),
            start.map_or(i64::MIN, |start| start.0),
        );
        let events = statement.query_map(window, |row| {
            Ok(NodeEvent {
                node: row.get(0)?,
                start: Timestamp(row.get(1)?),
                end: time(row.get(2)?),
                down: row.get(3)?,
                drain: row.get(4)?,
                fail: row.get(5)?,
                reason: row.get(6)?,
                uid: row.get(7)?,
            })
        })?;
        let named = ListedNames::new(nodes);
        let is_meant = |event: &NodeEvent| nodes.is_empty() || named.contains(&event.node);
        let meant = events.filter(|event| event.as_ref().map_or(true, is_meant));
        let (mut found, mut bytes) = (Vec::new(), 0);
        for event in meant {
            let event = event?;
            bytes += EVENT_BYTES + event.node.len() + event.reason.len();
            if bytes > EVENTS_BYTES_MAX {
                return Err(StoreError::TooMany(
                    "more events of nodes than one answer holds: ask for a shorter time (Start=, End=) or name nodes (Nodes=)",
                ));
            }
            found.push(event);
        }
        Ok(found)
    }

    fn reservations(
        &mut self,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Result<Vec<ReservationRecord>, StoreError> {
        super::reservation::within(&self.connection, start, end)
    }

    fn job_text(
        &mut self,
        job: JobId,
        kind: JobTextKind,
        owner: Option<u32>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        super::job_text::find(&transaction, job, kind, owner)
    }

    fn usage(&mut self, query: &UsageQuery, now: Timestamp) -> Result<Use, StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        super::usage::read(&transaction, &mut self.texts, query, now)
    }

    fn storage(&mut self, own: Option<&str>) -> Result<StorageAnswer, StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        super::storage::read(&transaction, own)
    }

    fn known_clusters(&mut self) -> Result<Vec<KnownCluster>, StoreError> {
        super::known_cluster::read(&self.connection)
    }

    fn transactions(
        &mut self,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
        actor: Option<&str>,
    ) -> Result<Transactions, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, at_ms, actor, action, target, info, users, accounts FROM txn
             WHERE at_ms >= ?1 AND at_ms <= ?2 AND (?4 IS NULL OR actor = ?4)
             ORDER BY at_ms DESC, id DESC LIMIT ?3",
        )?;
        let window = (
            start.map_or(i64::MIN, |start| start.0),
            end.map_or(i64::MAX, |end| end.0),
            TRANSACTIONS_MAX + 1,
            actor,
        );
        let (mut found, mut bytes) = (Transactions::default(), 0);
        for (number, logged) in (0..).zip(statement.query_map(window, logged_transaction)?) {
            let logged = logged?;
            bytes += logged_bytes(&logged);
            if bytes > TRANSACTION_BYTES_MAX || number >= TRANSACTIONS_MAX {
                found.left_out = true;
                break;
            }
            found.newest.push(logged);
        }
        found.newest.reverse();
        Ok(found)
    }
}

/// Names that a query lists, in order: there may be tens of thousands, and as many rows to look them up for.
struct ListedNames<'a, N>(Vec<&'a N>);

impl<'a, N: Ord> ListedNames<'a, N> {
    fn new(names: &'a [N]) -> Self {
        let mut names: Vec<&N> = names.iter().collect();
        names.sort_unstable();
        ListedNames(names)
    }

    fn contains(&self, name: &N) -> bool {
        self.0.binary_search(&name).is_ok()
    }
}

/// Bytes of nodes' events in one answer, which has to fit into a message.
const EVENTS_BYTES_MAX: usize = 16 << 20;
/// Bytes of an event beside its texts, about.
const EVENT_BYTES: usize = 64;

/// Changes of accounting in one answer, which has to fit into a message.
const TRANSACTIONS_MAX: u32 = 10_000;
/// Bytes of them, about: older ones are left out.
const TRANSACTION_BYTES_MAX: usize = 32 << 20;

/// Numbers of the texts that a query names; absent when it names none of the kind.
struct NamedTexts {
    partitions: Option<Vec<i64>>,
    accounts: Option<Vec<i64>>,
    qos: Option<Vec<i64>>,
    wckeys: Option<Vec<i64>>,
}

impl NamedTexts {
    fn find(connection: &Connection, query: &AcctQuery) -> Result<NamedTexts, StoreError> {
        let key = TextKey::of(connection)?;
        let numbers = |names: &[String]| -> Result<Option<Vec<i64>>, StoreError> {
            if names.is_empty() {
                return Ok(None);
            }
            let mut numbers = Vec::new();
            for name in names {
                numbers.extend(find(connection, key, name.as_bytes())?);
            }
            numbers.sort_unstable();
            Ok(Some(numbers))
        };
        Ok(NamedTexts {
            partitions: numbers(&query.partitions)?,
            accounts: numbers(&query.accounts)?,
            qos: numbers(&query.qos)?,
            wckeys: numbers(&query.wckeys)?,
        })
    }
}

/// Collects jobs into pages and keeps only the last selected run of each, unless all are wanted.
struct Pages<'a> {
    page: &'a mut dyn FnMut(Vec<AcctJob>) -> ControlFlow<()>,
    page_len: usize,
    jobs: Vec<AcctJob>,
    /// Approximate size of a page in bytes.
    bytes: usize,
    held: Option<(JobId, ShownRun)>,
    duplicates: bool,
    given: bool,
}

/// About how many bytes a job and its steps take in an answer.
pub(super) fn bytes_of(job: &AcctJob) -> usize {
    let texts = [
        &job.nodelist,
        &job.work_dir,
        &job.submit_line,
        &job.comment,
        &job.admin_comment,
        &job.constraint,
        &job.reservation,
    ];
    let files = [&job.stdio.stdin, &job.stdio.stdout, &job.stdio.stderr];
    let texts = texts.into_iter().chain(files.into_iter().flatten());
    let pairs = job.grid_engine.iter();
    let pairs: usize = pairs.map(|(name, text)| name.len() + text.len()).sum();
    let own = pairs + texts.map(String::len).sum::<usize>();
    let step = |step: &AcctStep| {
        step.name.len() + step.nodelist.len() + step.submit_line.len() + FIXED_BYTES
    };
    own + FIXED_BYTES + job.steps.iter().map(step).sum::<usize>()
}

/// A run as it is shown.
struct ShownRun {
    job: AcctJob,
    /// Tasks of an array's record, each of which is shown as a job of its own; none where the run is shown as it is.
    tasks: Vec<u32>,
}

/// The record of an array as a further one of its tasks has it: the texts that are long are as those of tasks that have rows of
/// their own, and the first one has them in full.
fn shortened(job: &AcctJob) -> AcctJob {
    let mut short = AcctJob {
        submit_line: String::new(),
        comment: String::new(),
        admin_comment: String::new(),
        ..job.clone()
    };
    for (text, whole) in [
        (&mut short.submit_line, &job.submit_line),
        (&mut short.comment, &job.comment),
        (&mut short.admin_comment, &job.admin_comment),
    ] {
        cut(whole, REPEATED_BYTES_MAX).clone_into(text);
    }
    short
}

impl Pages<'_> {
    fn add(&mut self, id: JobId, shown: ShownRun) -> ControlFlow<()> {
        match self.held.replace((id, shown)) {
            Some((before, shown)) if self.duplicates || before != id => self.give(shown),
            // The run before it was made smaller is part of the same run.
            Some((_, shown)) if shown.job.resized => self.give(shown),
            Some(_) | None => ControlFlow::Continue(()),
        }
    }

    /// The tasks of a record are made one at a time: there may be tens of thousands, each with all texts of the record.
    fn give(&mut self, shown: ShownRun) -> ControlFlow<()> {
        let ShownRun { mut job, tasks } = shown;
        let Some((last, before)) = tasks.split_last() else {
            return self.give_one(job);
        };
        let array = job.id;
        let task = |index: &u32| {
            let index = *index;
            Some(ArrayTask { array, index })
        };
        for index in before {
            let next = shortened(&job);
            job.array = task(index);
            self.give_one(std::mem::replace(&mut job, next))?;
        }
        job.array = task(last);
        self.give_one(job)
    }

    fn give_one(&mut self, job: AcctJob) -> ControlFlow<()> {
        self.bytes += bytes_of(&job);
        self.jobs.push(job);
        if self.jobs.len() >= self.page_len || self.bytes >= PAGE_BYTES {
            self.given = true;
            self.bytes = 0;
            (self.page)(std::mem::take(&mut self.jobs))?;
        }
        ControlFlow::Continue(())
    }

    fn finish(mut self) {
        if let Some((_, last)) = self.held.take()
            && self.give(last).is_break()
        {
            return;
        }
        if !self.jobs.is_empty() || !self.given {
            // Nothing follows, so it does not matter whether more is wanted.
            let _ = (self.page)(self.jobs);
        }
    }
}

/// One query being answered.
struct Search<'a> {
    connection: &'a Connection,
    records: Records<'a>,
    query: &'a AcctQuery,
    window: Window,
    named: NamedTexts,
    /// Whether a hostlist has one of the nodes asked for.
    on_nodes: HashMap<String, bool>,
    on_nodes_bytes: usize,
    /// Whether the text of an owner has a name of those asked for.
    owned: HashMap<i64, bool>,
    pages: Pages<'a>,
}

impl Search<'_> {
    /// Every run that the window and the owners may select, through the index on both.
    fn all(&mut self) -> Result<ControlFlow<()>, StoreError> {
        let uids: Vec<String> = self.query.uids.iter().map(u32::to_string).collect();
        let columns = job_columns();
        let bounded = self.window.from != i64::MIN || !uids.is_empty();
        let sql = if bounded {
            let owned = match uids.is_empty() {
                true => String::new(),
                false => format!("AND uid IN ({})", uids.join(", ")),
            };
            format!(
                "SELECT {columns} FROM job WHERE row IN (SELECT row FROM job INDEXED BY job_end
                 WHERE end_ms >= ?1 {owned}) ORDER BY row"
            )
        } else {
            format!("SELECT {columns} FROM job WHERE ?1 IS NOT NULL ORDER BY row")
        };
        let connection = self.connection;
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([self.window.from])?;
        while let Some(row) = rows.next()? {
            let run = RawJob::of(row)?;
            if self.take(&run, &Tasks::All)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn named_jobs(&mut self) -> Result<ControlFlow<()>, StoreError> {
        let connection = self.connection;
        let sql = format!("SELECT {} FROM job WHERE row = ?1", job_columns());
        let mut statement = connection.prepare_cached(&sql)?;
        for (number, tasks) in self.named_rows()? {
            let mut rows = statement.query([number])?;
            let Some(row) = rows.next()? else { continue };
            let run = RawJob::of(row)?;
            if self.take(&run, &tasks)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Rows of the jobs that are named, in order, and which tasks of an array's record are meant.
    fn named_rows(&self) -> Result<BTreeMap<i64, Tasks>, StoreError> {
        let mut rows: BTreeMap<i64, Tasks> = BTreeMap::new();
        let mut runs = self
            .connection
            .prepare_cached("SELECT row FROM job WHERE row BETWEEN ?1 AND ?2")?;
        let mut tasks = self
            .connection
            .prepare_cached("SELECT row FROM job WHERE array_id = ?1")?;
        let mut components = self
            .connection
            .prepare_cached("SELECT row FROM job WHERE het_id = ?1")?;
        let mut task = self
            .connection
            .prepare_cached("SELECT row FROM job WHERE array_id = ?1 AND array_index = ?2")?;
        for (job, index) in &self.query.jobs {
            let Ok(first) = first_row(*job) else { continue };
            let id = super::row::signed(job.0);
            let found = match index {
                None => {
                    let mut found = numbers(&mut runs, (first, last_row(*job)?))?;
                    found.extend(numbers(&mut tasks, [id])?);
                    found.extend(numbers(&mut components, [id])?);
                    found
                }
                Some(index) => {
                    // The task may still be in the array's record.
                    if let Tasks::Some(set) = rows.entry(first).or_insert(Tasks::none()) {
                        set.insert(*index);
                    }
                    numbers(&mut task, (id, index))?
                }
            };
            for row in found {
                rows.insert(row, Tasks::All);
            }
        }
        Ok(rows)
    }

    /// Looks at one run and passes it on if it is selected.
    fn take(&mut self, run: &RawJob<'_>, tasks: &Tasks) -> Result<ControlFlow<()>, StoreError> {
        if run.array_spec.is_none() && matches!(tasks, Tasks::Some(_)) {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.is_selected(run)? {
            return Ok(ControlFlow::Continue(()));
        }
        match self.shown(run, tasks)? {
            Some(shown) => Ok(self.pages.add(row_run(run.row).job, shown)),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn is_selected(&mut self, run: &RawJob<'_>) -> Result<bool, StoreError> {
        let query = self.query;
        let named = |numbers: &Option<Vec<i64>>, number: Option<i64>| {
            let has =
                |numbers: &Vec<i64>| number.is_some_and(|n| numbers.binary_search(&n).is_ok());
            numbers.as_ref().is_none_or(has)
        };
        let plain = (query.uids.is_empty() || query.uids.binary_search(&small(run.uid)).is_ok())
            && (query.gids.is_empty() || query.gids.binary_search(&small(run.gid)).is_ok())
            && (query.names.is_empty()
                || query
                    .names
                    .binary_search_by(|name| name.as_str().cmp(run.name))
                    .is_ok())
            && named(&self.named.partitions, Some(run.partition))
            && named(&self.named.accounts, Some(run.account))
            && named(&self.named.qos, Some(run.qos))
            && named(&self.named.wckeys, run.wckey);
        if !plain || !self.is_owned(run.owner)? {
            return Ok(false);
        }
        let state = run.state()?;
        let life = JobTimes {
            state,
            submit: run.submit,
            eligible: run.eligible,
            start: run.start,
            end: run.end(),
        };
        let connection = self.connection;
        let mut failed = None;
        let selected = self.window.selects(query, life, |window| {
            was_suspended(connection, run, window).unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(selected && (query.nodes.is_empty() || self.was_on_nodes(run.nodelist))),
        }
    }

    /// Whether the owner, whose names are in a text, is of those asked for by name.
    fn is_owned(&mut self, owner: i64) -> Result<bool, StoreError> {
        let AcctQuery { users, groups, .. } = self.query;
        if users.is_empty() && groups.is_empty() {
            return Ok(true);
        }
        if let Some(known) = self.owned.get(&owner) {
            return Ok(*known);
        }
        let text = self.records.texts.text(self.connection, owner)?;
        let (user, group) = owner_names(&text);
        let named = |list: &[String], name| list.is_empty() || list.binary_search(&name).is_ok();
        let is_owned = named(users, user) && named(groups, group);
        self.owned.insert(owner, is_owned);
        Ok(is_owned)
    }

    fn was_on_nodes(&mut self, nodelist: &str) -> bool {
        if let Some(known) = self.on_nodes.get(nodelist) {
            return *known;
        }
        let is_meant = |name| self.query.nodes.binary_search(&name).is_ok();
        let names = hostlist::names(nodelist, hostlist::MAX_HOSTS);
        let was = names.is_ok_and(|mut names| names.any(is_meant));
        if self.on_nodes_bytes > ON_NODES_BYTES_MAX {
            self.on_nodes.clear();
            self.on_nodes_bytes = 0;
        }
        self.on_nodes_bytes += nodelist.len() + FIXED_BYTES;
        self.on_nodes.insert(nodelist.to_owned(), was);
        was
    }

    /// A run as it is shown: itself; for an array's record, its tasks together or the selected ones, if any is left.
    fn shown(&mut self, run: &RawJob<'_>, tasks: &Tasks) -> Result<Option<ShownRun>, StoreError> {
        let mut job = self.records.job(run)?;
        if !self.query.allocations_only {
            job.steps = self.records.steps(run, &job)?;
        }
        let mut shown = ShownRun {
            job,
            tasks: Vec::new(),
        };
        let Some(spec) = run.array_spec else {
            return Ok(Some(shown));
        };
        let spec: ArraySpec = decode(run, "array_spec", spec)?;
        let mut left = spec.indices;
        let mut gone = self
            .connection
            .prepare_cached("SELECT array_index FROM job WHERE array_id = ?1")?;
        for index in numbers(&mut gone, [super::row::signed(shown.job.id.0)])? {
            left.remove(small(index));
        }
        let any = match tasks {
            Tasks::All => {
                shown.job.array_pending = Some(pending_text(&left, spec.throttle));
                !left.is_empty()
            }
            Tasks::Some(indices) => {
                let chosen = indices.iter().filter(|index| left.contains(**index));
                shown.tasks.extend(chosen);
                !shown.tasks.is_empty()
            }
        };
        Ok(any.then_some(shown))
    }
}

/// Tasks of an array's record.
enum Tasks {
    All,
    Some(BTreeSet<u32>),
}

impl Tasks {
    fn none() -> Tasks {
        Tasks::Some(BTreeSet::new())
    }
}

fn numbers(
    statement: &mut rusqlite::Statement<'_>,
    parameters: impl rusqlite::Params,
) -> Result<Vec<i64>, StoreError> {
    let rows = statement.query_map(parameters, |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn was_suspended(
    connection: &Connection,
    run: &RawJob<'_>,
    window: Window,
) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM suspension WHERE job = ?1 AND start_ms <= ?3
             AND min(coalesce(end_ms, ?4), ?4) >= ?2)",
        )?
        .query_row((run.row, window.from, window.to, run.end_ms), |row| {
            row.get(0)
        })
}

#[cfg(test)]
mod tests {
    use super::ListedNames;
    use std::cell::Cell;
    use std::cmp::Ordering;

    /// A name that counts how often it is compared.
    struct ComparedName<'a>(u32, &'a Cell<u64>);

    impl Ord for ComparedName<'_> {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for ComparedName<'_> {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for ComparedName<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    impl Eq for ComparedName<'_> {}

    #[test]
    fn a_name_is_looked_up_and_not_searched_for() {
        let compared = Cell::new(0);
        let name = |n: u32| ComparedName(n, &compared);
        let names: Vec<ComparedName<'_>> =
            (0..10_000u32).map(|n| name(n * 7919 % 20_011)).collect();
        let named = ListedNames::new(&names);
        compared.set(0);
        for event in 0..10_000 {
            let has = names.iter().any(|n| n.0 == event);
            assert_eq!(named.contains(&name(event)), has);
        }
        assert!(compared.get() < 10_000 * 20, "{}", compared.get());
    }
}
