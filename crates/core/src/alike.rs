//! Listings of records that are nearly the same. Whoever submits ten thousand jobs in a loop has records that differ in
//! their numbers and times alone: after one of them, the others are told by what differs, some bytes each, which cost
//! writer and reader a tenth of a whole record.

use crate::ids::JobId;
use crate::job::Job;
use crate::shared_spec::SpecCodec;
use crate::time::Timestamp;
use minicbor::data::Type;
use minicbor::decode::Error;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder};
use std::sync::Arc;

/// What of a record differs from the one before, in the first byte; a number for each follows in this order. Without
/// [`NUMBER`] it is the next number, without the others it is the same.
const NUMBER: u8 = 1;
const SPEC: u8 = 2;
const SUBMITTED: u8 = 4;
/// Milliseconds from submission to eligibility.
const ELIGIBLE: u8 = 8;
const PRIORITY: u8 = 16;
const PREDICTED: u8 = 32;
const EVALUATED: u8 = 64;

/// Records to be written.
#[derive(Debug, Default)]
pub struct Records<'s> {
    /// In the order of the answer.
    pub jobs: Vec<&'s Job>,
    /// Whether the reader understands runs of records that are told by what differs.
    pub runs: bool,
}

impl<C: SpecCodec> Encode<C> for Records<'_> {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        codec: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        if !self.runs {
            e.array(self.jobs.len() as u64)?;
            return self.jobs.iter().try_for_each(|job| job.encode(e, codec));
        }
        e.begin_array()?;
        let mut run = Vec::new();
        let mut before: Option<&Job> = None;
        for job in &self.jobs {
            let told = before.is_some_and(|before| differ(before, job, codec, &mut run));
            if !told {
                end_run(e, &mut run)?;
                job.encode(e, codec)?;
            }
            before = Some(job);
        }
        end_run(e, &mut run)?;
        e.end()?.ok()
    }
}

fn end_run<W: Write>(
    e: &mut Encoder<W>,
    run: &mut Vec<u8>,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    if !run.is_empty() {
        e.bytes(run)?;
        run.clear();
    }
    Ok(())
}

/// Reads what [`Records`] wrote.
///
/// # Errors
/// Not records.
pub fn decode<C: SpecCodec>(d: &mut Decoder<'_>, codec: &mut C) -> Result<Vec<Job>, Error> {
    let mut left = d.array()?;
    let mut jobs = Vec::new();
    while left != Some(0) {
        match d.datatype()? {
            Type::Break => {
                d.skip()?;
                break;
            }
            Type::Bytes => follow(d.bytes()?, codec, &mut jobs)?,
            _ => jobs.push(Job::decode(d, codec)?),
        }
        left = left.map(|left| left - 1);
    }
    Ok(jobs)
}

/// Whether a record is like the one before in everything that is not told by a number. Every field is named, so that a
/// new one is not forgotten.
fn alike(a: &Job, b: &Job) -> bool {
    let Job {
        id: _,
        spec: _,
        submit_time: _,
        priority: _,
        eligible_time,
        predicted_s,
        last_sched_eval,
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
        unheard_steps,
        reason_detail,
        begin_at,
        configuring,
        end_by,
        switch_wait_since,
        priority_fixed,
        priority_least,
        het,
        preempted,
        cpus_lent,
        resumed,
        waking,
        turn_due,
        resize_time,
        resizes,
        accrual,
    } = a;
    let told = eligible_time.is_some() == b.eligible_time.is_some()
        && predicted_s.is_some() == b.predicted_s.is_some()
        && last_sched_eval.is_some() == b.last_sched_eval.is_some();
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
        && *cpus_lent == b.cpus_lent
        && *resumed == b.resumed
        && *waking == b.waking
        && *turn_due == b.turn_due;
    // What has nodes differs from every other in them.
    let place = alloc.is_none()
        && b.alloc.is_none()
        && *nodes_held == b.nodes_held
        && *partition == b.partition
        && *steps == b.steps
        && *next_step == b.next_step
        && *unheard_steps == b.unheard_steps
        && *resize_time == b.resize_time
        && *resizes == b.resizes;
    let wishes = *array == b.array
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
    told && life && place && wishes
}

/// Appends what of a record differs from the one before; false if that cannot be told in numbers.
fn differ<C: SpecCodec>(before: &Job, job: &Job, codec: &C, out: &mut Vec<u8>) -> bool {
    let same_spec = Arc::ptr_eq(&before.spec, &job.spec);
    let spec = match same_spec {
        true => Some(0),
        false => codec.place(&job.spec),
    };
    let (Some(spec), true) = (spec, alike(before, job)) else {
        return false;
    };
    let at = out.len();
    out.push(0);
    let mut flags = 0;
    let mut tell = |flag: u8, number: u64, usual: u64| {
        if number != usual {
            flags |= flag;
            put(out, number);
        }
    };
    tell(NUMBER, signed(before.id.0, job.id.0), signed(0, 1));
    if !same_spec {
        // Of the first specification the place is 0, too.
        tell(SPEC, u64::from(spec) + 1, 0);
    }
    let time = |time: Timestamp| time.0.cast_unsigned();
    let (was, is) = (time(before.submit_time), time(job.submit_time));
    tell(SUBMITTED, signed(was, is), 0);
    let optional = |of: Option<Timestamp>| of.map_or(0, time);
    tell(ELIGIBLE, signed(waits(before), waits(job)), 0);
    let priority = (u64::from(before.priority), u64::from(job.priority));
    tell(PRIORITY, signed(priority.0, priority.1), 0);
    let predicted = |job: &Job| u64::from(job.predicted_s.unwrap_or(0));
    tell(PREDICTED, signed(predicted(before), predicted(job)), 0);
    let evaluated = |job: &Job| optional(job.last_sched_eval);
    tell(EVALUATED, signed(evaluated(before), evaluated(job)), 0);
    out[at] = flags;
    true
}

/// From submission to eligibility.
fn waits(job: &Job) -> u64 {
    let eligible = job.eligible_time.unwrap_or(job.submit_time);
    eligible.0.wrapping_sub(job.submit_time.0).cast_unsigned()
}

/// Appends the records of a run.
fn follow<C: SpecCodec>(mut run: &[u8], codec: &C, jobs: &mut Vec<Job>) -> Result<(), Error> {
    while let Some((flags, rest)) = run.split_first() {
        run = rest;
        let before = jobs.last().ok_or_else(|| {
            Error::message("records follow one that is not there: the answer is damaged")
        })?;
        let mut told = |flag: u8, usual: u64| match flags & flag {
            0 => Ok(usual),
            _ => take(&mut run),
        };
        let number = told(NUMBER, signed(0, 1))?;
        let spec = told(SPEC, 0)?;
        let mut job = before.clone();
        job.id = JobId(moved(before.id.0, number));
        if let Some(place) = spec.checked_sub(1) {
            let found = u32::try_from(place).ok().and_then(|place| codec.at(place));
            job.spec = found.ok_or_else(|| {
                let text = format!("specification {place} is named before it is given");
                Error::message(text)
            })?;
        }
        let time = |was: Timestamp, by| Timestamp(moved(was.0.cast_unsigned(), by).cast_signed());
        job.submit_time = time(before.submit_time, told(SUBMITTED, 0)?);
        let waits = moved(waits(before), told(ELIGIBLE, 0)?).cast_signed();
        let eligible = Timestamp(job.submit_time.0.wrapping_add(waits));
        job.eligible_time = before.eligible_time.map(|_| eligible);
        let small = |was: u32, by| moved(u64::from(was), by) as u32;
        job.priority = small(before.priority, told(PRIORITY, 0)?);
        let by = told(PREDICTED, 0)?;
        job.predicted_s = before.predicted_s.map(|was| small(was, by));
        let by = told(EVALUATED, 0)?;
        job.last_sched_eval = before.last_sched_eval.map(|was| time(was, by));
        jobs.push(job);
    }
    Ok(())
}

/// The way from one number to another: small for small steps in either direction.
fn signed(from: u64, to: u64) -> u64 {
    let by = to.wrapping_sub(from).cast_signed();
    ((by << 1) ^ (by >> 63)).cast_unsigned()
}

/// The number that lies that far from another.
fn moved(from: u64, by: u64) -> u64 {
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

fn take(from: &mut &[u8]) -> Result<u64, Error> {
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
    Err(Error::message("a run of records ends within a number"))
}

#[cfg(test)]
mod tests;
