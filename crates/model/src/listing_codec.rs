//! The encoding of job listings. Ten thousand jobs that were submitted in a loop have records that differ in their numbers and
//! times alone: one of them is sent as the template of the others, each of which takes a few bytes: what differs from the
//! record before. A reader gets templates and values, too, and need not make a record of each.

use crate::ids::JobId;
use crate::job::Job;
use crate::shared_spec::SpecCodec;
use crate::time::Timestamp;
use minicbor::decode::Error;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder};
use std::collections::HashMap;
use std::sync::Arc;

/// Flags in the first byte of a record: the values that differ from the record before. A number for each follows in this
/// order. Without [`NUMBER`] the job's number is the next one, without the others the value is the same.
const NUMBER: u8 = 1;
/// The template is another one.
const TEMPLATE: u8 = 2;
const SUBMITTED: u8 = 4;
/// Milliseconds from submission to eligibility.
const ELIGIBLE: u8 = 8;
const PRIORITY: u8 = 16;
const PREDICTED: u8 = 32;
const EVALUATED: u8 = 64;

/// Templates that room is made for at once, however many a message says will follow.
const TEMPLATES_AT_ONCE: usize = 1 << 10;

/// Stands for no time.
const NEVER: Timestamp = Timestamp(i64::MIN);

/// The values in which records of one template differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowValues {
    /// The job's.
    pub id: JobId,
    /// When it was submitted.
    pub submit_time: Timestamp,
    /// Milliseconds from then until it was eligible; nothing is meant by it where the template is not.
    waits_ms: i64,
    /// Its priority.
    pub priority: u32,
    /// Likewise of the prediction.
    predicted_s: u32,
    /// When the scheduler looked at it, or [`NEVER`].
    evaluated: Timestamp,
}

impl RowValues {
    /// The values of a record.
    pub fn of(job: &Job) -> RowValues {
        let eligible = job.eligible_time.unwrap_or(job.submit_time);
        RowValues {
            id: job.id,
            submit_time: job.submit_time,
            waits_ms: eligible.0.wrapping_sub(job.submit_time.0),
            priority: job.priority,
            predicted_s: job.predicted_s.unwrap_or(0),
            evaluated: job.last_sched_eval.unwrap_or(NEVER),
        }
    }

    /// Makes a record of this template the one that has these values.
    pub fn put(&self, job: &mut Job) {
        job.id = self.id;
        job.submit_time = self.submit_time;
        let eligible = Timestamp(self.submit_time.0.wrapping_add(self.waits_ms));
        job.eligible_time = job.eligible_time.map(|_| eligible);
        job.priority = self.priority;
        job.predicted_s = job.predicted_s.map(|_| self.predicted_s);
        job.last_sched_eval = Some(self.evaluated).filter(|at| *at != NEVER);
    }

    /// The scheduler has looked at it since the record was written.
    pub fn evaluated_at(&mut self, at: Timestamp) {
        self.evaluated = at;
    }
}

/// Encoder of a listing: templates, and the records by their differences.
#[derive(Debug, Default)]
pub struct ListingWriter {
    templates: Vec<u8>,
    records: Vec<u8>,
    /// The record before.
    last: Record,
    template_count: u32,
    record_count: u32,
}

impl ListingWriter {
    /// Number of records.
    pub fn len(&self) -> u32 {
        self.record_count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Size of templates and records in bytes.
    pub fn bytes(&self) -> usize {
        self.templates.len() + self.records.len()
    }

    /// Adds a template. Gives its place.
    pub fn template<C: SpecCodec>(&mut self, job: &Job, codec: &mut C) -> u32 {
        minicbor::encode_with(job, &mut self.templates, codec)
            .expect("writing to memory cannot fail");
        let template = self.template_count;
        self.template_count += 1;
        template
    }

    /// Adds a record of the template at that place.
    pub fn record(&mut self, template: u32, values: &RowValues) {
        let at = self.records.len();
        self.records.push(0);
        let (records, last) = (&mut self.records, &self.last.values);
        let mut flags = 0;
        let mut write = |flag: u8, number: u64, usual: u64| {
            if number != usual {
                flags |= flag;
                put(records, number);
            }
        };
        write(
            NUMBER,
            zigzag_delta(last.id.0, values.id.0),
            zigzag_delta(0, 1),
        );
        write(
            TEMPLATE,
            zigzag_delta_signed(self.last.template.into(), template.into()),
            0,
        );
        let (was, is) = (last.submit_time.0, values.submit_time.0);
        write(SUBMITTED, zigzag_delta_signed(was, is), 0);
        write(
            ELIGIBLE,
            zigzag_delta_signed(last.waits_ms, values.waits_ms),
            0,
        );
        let (was, is) = (last.priority, values.priority);
        write(PRIORITY, zigzag_delta_signed(was.into(), is.into()), 0);
        let (was, is) = (last.predicted_s, values.predicted_s);
        write(PREDICTED, zigzag_delta_signed(was.into(), is.into()), 0);
        let (was, is) = (last.evaluated.0, values.evaluated.0);
        write(EVALUATED, zigzag_delta_signed(was, is), 0);
        self.records[at] = flags;
        let values = *values;
        self.last = Record { template, values };
        self.record_count += 1;
    }
}

impl<C> Encode<C> for ListingWriter {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        _codec: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(2)?.array(self.template_count.into())?;
        let templates = e.writer_mut().write_all(&self.templates);
        templates.map_err(minicbor::encode::Error::write)?;
        e.bytes(&self.records)?.ok()
    }
}

/// Templates that were written, found by what their records share.
#[derive(Debug, Default)]
pub struct TemplateTable<'s>(HashMap<usize, (u32, &'s Job)>);

impl<'s> TemplateTable<'s> {
    /// The place of the template that a record is of; it is written if there is none yet.
    pub fn of<C: SpecCodec>(
        &mut self,
        job: &'s Job,
        writer: &mut ListingWriter,
        codec: &mut C,
    ) -> u32 {
        let spec = Arc::as_ptr(&job.spec) as usize;
        if let Some((template, like)) = self.0.get(&spec)
            && same_template(like, job)
        {
            return *template;
        }
        let template = writer.template(job, codec);
        if job.alloc.is_none() {
            self.0.insert(spec, (template, job));
        }
        template
    }
}

/// A record of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The place of its template.
    pub template: u32,
    /// The values in which it differs.
    pub values: RowValues,
}

/// A listing that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactListing {
    /// The templates, and how many records are of each.
    pub templates: Vec<(Job, u32)>,
    /// The records.
    pub records: PackedRecords,
}

/// Records as they were written: what a hundred thousand of them differ in takes less than a megabyte.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedRecords(Vec<u8>);

impl PackedRecords {
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Record> {
        let (mut rest, mut last) = (self.0.as_slice(), Record::default());
        std::iter::from_fn(move || {
            // They were read before, when they came.
            follow(&mut rest, &mut last).ok().flatten()
        })
    }
}

impl CompactListing {
    /// A job for each.
    pub fn into_jobs(self) -> Vec<Job> {
        let mut templates: Vec<(Option<Job>, u32)> = self
            .templates
            .into_iter()
            .map(|(job, count)| (Some(job), count))
            .collect();
        let job = |record: Record| {
            let (template, left) = templates.get_mut(record.template as usize)?;
            *left -= 1;
            let mut job = match *left {
                // Nobody else is like it.
                0 => template.take(),
                _ => template.clone(),
            }?;
            record.values.put(&mut job);
            Some(job)
        };
        self.records.iter().filter_map(job).collect()
    }

    /// Reads the records, to know that they can be read, and counts those of each template.
    fn count(&mut self) -> Result<(), Error> {
        let (mut rest, mut last) = (self.records.0.as_slice(), Record::default());
        while let Some(record) = follow(&mut rest, &mut last)? {
            let template = self.templates.get_mut(record.template as usize);
            let (_, count) = template.ok_or_else(|| {
                let text = format!("record of template {}, which is not there", record.template);
                Error::message(text)
            })?;
            *count += 1;
        }
        Ok(())
    }
}

impl From<Vec<Job>> for CompactListing {
    fn from(jobs: Vec<Job>) -> CompactListing {
        let mut writer = ListingWriter::default();
        for (template, job) in (0..).zip(&jobs) {
            writer.record(template, &RowValues::of(job));
        }
        CompactListing {
            templates: jobs.into_iter().map(|job| (job, 1)).collect(),
            records: PackedRecords(writer.records),
        }
    }
}

impl<C: SpecCodec> Encode<C> for CompactListing {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        codec: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.array(2)?.array(self.templates.len() as u64)?;
        let mut templates = self.templates.iter();
        templates.try_for_each(|(job, _)| job.encode(e, codec))?;
        e.bytes(&self.records.0)?.ok()
    }
}

impl<'b, C: SpecCodec> Decode<'b, C> for CompactListing {
    fn decode(d: &mut Decoder<'b>, codec: &mut C) -> Result<CompactListing, Error> {
        let damaged = || Error::message("a listing is templates and records");
        if d.array()? != Some(2) {
            return Err(damaged());
        }
        let count = d.array()?.ok_or_else(damaged)?;
        // Room for all: most of a kilobyte each, they are not to be moved again and again. No part has more.
        let mut templates =
            Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(TEMPLATES_AT_ONCE));
        for _ in 0..count {
            templates.push((Job::decode(d, codec)?, 0));
        }
        let mut listed = CompactListing {
            templates,
            records: PackedRecords(d.bytes()?.to_vec()),
        };
        listed.count()?;
        Ok(listed)
    }
}

/// The next record, if there is one.
#[inline]
fn follow(from: &mut &[u8], last: &mut Record) -> Result<Option<Record>, Error> {
    let Some((&flags, rest)) = from.split_first() else {
        return Ok(None);
    };
    *from = rest;
    let mut delta = |flag: u8, usual: u64| match flags & flag {
        0 => Ok(usual),
        _ => take(from),
    };
    let time = |was: i64, by| add_delta(was.cast_unsigned(), by).cast_signed();
    let small = |was: u32, by| add_delta(was.into(), by) as u32;
    let values = &mut last.values;
    values.id.0 = add_delta(values.id.0, delta(NUMBER, zigzag_delta(0, 1))?);
    last.template = small(last.template, delta(TEMPLATE, 0)?);
    values.submit_time.0 = time(values.submit_time.0, delta(SUBMITTED, 0)?);
    values.waits_ms = time(values.waits_ms, delta(ELIGIBLE, 0)?);
    values.priority = small(values.priority, delta(PRIORITY, 0)?);
    values.predicted_s = small(values.predicted_s, delta(PREDICTED, 0)?);
    values.evaluated.0 = time(values.evaluated.0, delta(EVALUATED, 0)?);
    Ok(Some(*last))
}

/// Whether two records differ in [`RowValues`] at most. Every field is named, so that a new one is not forgotten.
pub fn same_template(a: &Job, b: &Job) -> bool {
    let Job {
        id: _,
        spec,
        submit_time: _,
        priority: _,
        eligible_time,
        predicted_s,
        last_sched_eval: _,
        array,
        state,
        completing,
        reason,
        hold,
        start_time,
        end_time,
        suspend_time,
        suspended_ms,
        restarts,
        attempt,
        alloc,
        nodes_held,
        exit,
        derived_exit,
        time_limit,
        waiting_on,
        steps,
        after_completing,
        cancelled_by,
        partition,
        warned,
        term_time,
        requeueable,
        special_exit,
        expected_start,
        next_step,
        unreported_steps,
        reason_detail,
        begin_at,
        configuring,
        end_by,
        switch_wait_since,
        priority_fixed,
        priority_least,
        het,
        preempted,
        cpus_released_by_preemption,
        resumed,
        power_up,
        gang_slice_ends,
        resize_time,
        resizes,
        accrual,
        stopped_by_calendar,
    } = a;
    let delta = Arc::ptr_eq(spec, &b.spec)
        && eligible_time.is_some() == b.eligible_time.is_some()
        && predicted_s.is_some() == b.predicted_s.is_some();
    let life = *state == b.state
        && *reason == b.reason
        && *completing == b.completing
        && *hold == b.hold
        && *start_time == b.start_time
        && *end_time == b.end_time
        && *suspend_time == b.suspend_time
        && *suspended_ms == b.suspended_ms
        && *restarts == b.restarts
        && *attempt == b.attempt
        && *exit == b.exit
        && *derived_exit == b.derived_exit
        && *after_completing == b.after_completing
        && *cancelled_by == b.cancelled_by
        && *warned == b.warned
        && *term_time == b.term_time
        && *special_exit == b.special_exit
        && *configuring == b.configuring
        && *preempted == b.preempted
        && *cpus_released_by_preemption == b.cpus_released_by_preemption
        && *resumed == b.resumed
        && *power_up == b.power_up
        && *gang_slice_ends == b.gang_slice_ends
        && *stopped_by_calendar == b.stopped_by_calendar;
    // A job with nodes differs from every other in them.
    let place = alloc.is_none()
        && b.alloc.is_none()
        && *nodes_held == b.nodes_held
        && *partition == b.partition
        && *steps == b.steps
        && *next_step == b.next_step
        && *unreported_steps == b.unreported_steps
        && *resize_time == b.resize_time
        && *resizes == b.resizes;
    let request = *array == b.array
        && *time_limit == b.time_limit
        && *waiting_on == b.waiting_on
        && *requeueable == b.requeueable
        && *expected_start == b.expected_start
        && *reason_detail == b.reason_detail
        && *begin_at == b.begin_at
        && *end_by == b.end_by
        && *switch_wait_since == b.switch_wait_since
        && *priority_fixed == b.priority_fixed
        && *priority_least == b.priority_least
        && *accrual == b.accrual
        && *het == b.het;
    delta && life && place && request
}

/// The difference of two numbers in zigzag encoding: small for small steps in either direction.
fn zigzag_delta(from: u64, to: u64) -> u64 {
    let by = to.wrapping_sub(from).cast_signed();
    ((by << 1) ^ (by >> 63)).cast_unsigned()
}

/// As above, between signed numbers.
fn zigzag_delta_signed(from: i64, to: i64) -> u64 {
    zigzag_delta(from.cast_unsigned(), to.cast_unsigned())
}

/// The number that lies that zigzag_delta_signed from another.
fn add_delta(from: u64, by: u64) -> u64 {
    let by = (by >> 1) ^ (by & 1).wrapping_neg();
    from.wrapping_add(by)
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline]
fn take(from: &mut &[u8]) -> Result<u64, Error> {
    match from.split_first() {
        // Most of them.
        Some((byte, rest)) if *byte < 0x80 => {
            *from = rest;
            Ok((*byte).into())
        }
        _ => take_long(from),
    }
}

fn take_long(from: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some((byte, rest)) = from.split_first() else {
            break;
        };
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Error::message("records end within a number"))
}

#[cfg(test)]
mod tests;
