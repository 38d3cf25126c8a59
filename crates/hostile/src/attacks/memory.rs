//! Secrets of others in the memory of a user's processes, and memory that a user makes daemons take.

use super::{finished, or_end, small_job, submitted, victim_works};
use crate::health;
use crate::outcome::Outcome;
use crate::peer::{self, Peer};
use crate::random::Random;
use crate::requests::{self, blobs};
use crate::sys::{ATTACKER, ROOT, VICTIM, as_user};
use crate::target::{Target, until};
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody, Response};
use muster_proto::step::AgentRequest;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A mapping that is larger is not looked at: it is nobody's heap here.
const MAPPING_MAX: u64 = 256 << 20;

/// Whether a process has some bytes in memory that it may write.
fn has(pid: i32, needle: &[u8]) -> bool {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else {
        return false;
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(mapping).any(|(begin, end)| {
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(0)];
        memory.read_exact_at(&mut bytes, begin).is_ok() && contains(&bytes, needle)
    })
}

/// Begin and end of a private mapping that may be written.
fn mapping(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let (begin, end) = (
        u64::from_str_radix(begin, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    let writable = words.next()?.starts_with("rw");
    (writable && end - begin <= MAPPING_MAX).then_some((begin, end))
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Steps of every kind; none of their processes has another user's environment, script or key in its memory.
pub(super) fn memory_of_others(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let secret = format!("{:016x}{:016x}", random.number(), random.number());
    let script = format!(
        "#!/bin/sh\n# {secret}\n{0} sleep 600 &\nexec sleep 600\n",
        srun(target)
    );
    let variables = [format!("SECRET_TOKEN={secret}"), conf(target)];
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let body = requests::submit_with(small_job(target, VICTIM), blobs(&script, &variables));
    let theirs = or_end!(submitted(&target.ask(VICTIM, body)), target, outcome);
    let running = until(|| {
        let query = RequestBody::Query(Box::new(Query::Allocation(theirs)));
        target.processes_of(VICTIM).len() >= 3
            && matches!(
                target.ask(ROOT, query),
                peer::PeerReply::Accepted(Response::JobStarted(_))
            )
    });
    outcome.require(running, "a job with a step did not start");
    let query = RequestBody::Query(Box::new(Query::Allocation(theirs)));
    let mut needles = vec![("environment or script", secret.clone().into_bytes())];
    if let peer::PeerReply::Accepted(Response::JobStarted(info)) = target.ask(ROOT, query) {
        needles.push(("job's key", info.key.to_vec()));
    }
    let kinds = ["none", "pmi2", "pmix"];
    let usable: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| *kind != "pmix" || has_pmix(target))
        .collect();
    if usable.len() < kinds.len() {
        let text = "steps with --mpi=pmix: no libpmix on this machine";
        outcome.skipped.push(text.to_owned());
    }
    let steps: String = usable
        .iter()
        .map(|kind| format!("{} --overlap -n2 --mpi={kind} sleep 600 &\n", srun(target)))
        .collect();
    let mut spec = small_job(target, ATTACKER);
    spec.ask.ntasks = Some(2);
    let variables = conf(target);
    let carried = blobs(&format!("#!/bin/sh\n{steps}wait\n"), &[&variables]);
    let answer = target.ask(ATTACKER, requests::submit_with(spec, carried));
    outcome.count("a job with steps", &answer);
    let sleepers = || {
        let names = target.processes_of(ATTACKER).into_iter();
        names
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n == "sleep\n")
            })
            .count()
    };
    outcome.require(
        until(|| sleepers() >= 2 * usable.len()),
        "steps did not start",
    );
    for pid in target.processes_of(ATTACKER) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        for (what, needle) in needles.iter().filter(|(_, needle)| has(pid, needle)) {
            outcome.finding(format!(
                "process {pid} ({}) of a user has another user's {what} in its memory ({} bytes)",
                name.trim(),
                needle.len()
            ));
        }
    }
    super::clear(target, VICTIM, &mut outcome);
    finished(target, outcome)
}

fn srun(target: &Target) -> String {
    target.home().join("bin/srun").display().to_string()
}

fn conf(target: &Target) -> String {
    format!("SLURM_CONF={}", target.home().join("slurm.conf").display())
}

fn has_pmix(target: &Target) -> bool {
    target.run(ROOT, "ldconfig -p | grep -q libpmix.so").code == 0
}

/// Bytes of a frame that never ends.
const HALF: usize = 60 << 20;
/// Connections that send one each.
const SENDERS: usize = 5;

/// Frames of 60 MiB that never end, and whole requests of that size with a key that is none.
pub(super) fn half_frames(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let spec = muster_proto::step::StepSpec {
        key: Some(vec![9; 32].into()),
        context: muster_model::spec::ExecContext {
            environment: std::iter::once(vec![b'x'; HALF]).collect(),
            ..requests::context(&[])
        },
        ..requests::step(JobId(u64::MAX - 1), &["true"])
    };
    let whole = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
    let half = |bytes: usize| {
        let mut frame = u32::try_from(bytes).unwrap_or(0).to_be_bytes().to_vec();
        frame.resize(bytes, 0x9f);
        frame
    };
    let half = half(HALF);
    let (controller, agent) = (target.controller(), target.agent(super::FIRST_NODE));
    let mut open = Vec::new();
    for (socket, frame) in [(&controller, &half), (&agent, &half), (&agent, &whole)] {
        for _ in 0..SENDERS {
            let sent = as_user(ATTACKER, || {
                let mut peer = Peer::connect_within(socket, Duration::from_secs(2))?;
                let sent = peer.send_raw(frame);
                // A frame that was not taken needs no answer.
                std::io::Result::Ok((peer, sent.is_ok()))
            });
            outcome.sent += 1;
            match sent {
                Ok((peer, true)) => open.push(peer),
                Ok((_, false)) | Err(_) => outcome.refused += 1,
            }
        }
    }
    for (name, mib) in health::resident(target) {
        if mib > health::RESIDENT_MAX_MIB {
            outcome.finding(format!(
                "{name} has {mib} MiB for frames of users that are not there"
            ));
        }
    }
    if let Err(e) = victim_works(target, Some(super::FIRST_NODE), Duration::from_secs(30)) {
        outcome.finding(e);
    }
    drop(open);
    finished(target, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_the_memory_of_a_process_are_found() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let there: Vec<u8> = (0..40u8).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
        assert!(has(pid, &there));
        assert!(!has(1 << 29, &there), "no such process");
    }
}
