//! Requests that no command of ours sends: specifications with fields of any value, selections of others' jobs, and
//! well-formed requests of which single items of the encoding were replaced. What does not decode never reaches the
//! writer, so only requests that decode are made here.

use crate::random::Random;
use minicbor::bytes::ByteVec;
use muster_model::command::{
    AccountsAsk, AccountsEdit, JobSelection, JobTarget, JobUpdate, NodeUpdate, QosAsk,
    ReservationAsk, SignalScope, UserCommand,
};
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{ExitStatus, JobState};
use muster_model::job_class::JobClass;
use muster_model::mail::MailOptions;
use muster_model::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, DeviceAsk, GresAsk, JobKind, JobSpec,
    MemoryAsk, Owner, ResourceAsk, Sharing, WarnSignal,
};
use muster_model::task_range::TaskRange;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::topology::SwitchAsk;
use muster_model::trigger::{TriggerAsk, TriggerEvents};
use muster_proto::client::{Request, RequestBody};
use muster_proto::{PROTOCOL, frame};

/// A hostile user's knowledge of the cluster.
pub(crate) struct AttackerKnowledge {
    /// Jobs, others' for the most part.
    pub(crate) jobs: Vec<JobId>,
    /// Scripts and environments of others.
    pub(crate) blobs: Vec<BlobId>,
    /// A valid specification to start from.
    pub(crate) spec: JobSpec,
    /// The controller's time, milliseconds.
    pub(crate) now: i64,
    /// Own uid.
    pub(crate) uid: u32,
    /// `MaxArraySize`.
    pub(crate) array_size: u32,
}

const NUMBERS: [u32; 14] = [
    0,
    1,
    2,
    3,
    64,
    100,
    999,
    65_535,
    65_536,
    1 << 20,
    1 << 24,
    i32::MAX as u32,
    u32::MAX - 1,
    u32::MAX,
];

const TEXTS: [&str; 17] = [
    "",
    " ",
    "all",
    "few,few,few",
    "n0",
    "n[0-3]",
    "n[0-4294967295]",
    "n[0-99999][0-99999]",
    "n[",
    "..",
    "-Ssendmail=x",
    "a\nb",
    "\u{0}",
    "\u{1f4a5}",
    "gpu:18446744073709551615",
    "foo:4294967295|foo:1",
    "[(x&y)|((((((((z*99999999999))))))))]",
];

fn number(random: &mut Random) -> u32 {
    match random.below(3) {
        0 => random.small(0, 8),
        _ => *random.pick(&NUMBERS),
    }
}

fn wide(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => u64::MAX - random.below(3),
        1 => 1 << random.below(64),
        _ => u64::from(number(random)),
    }
}

fn text(random: &mut Random) -> String {
    match random.below(8) {
        0 => "x".repeat(random.between(1000, 70_000) as usize),
        1 => "(".repeat(random.between(10, 2000) as usize),
        2 => "n0,".repeat(random.between(10, 2000) as usize),
        _ => (*random.pick(&TEXTS)).to_owned(),
    }
}

fn time(random: &mut Random, known: &AttackerKnowledge) -> Timestamp {
    let near = known.now + i64::try_from(random.below(600_000)).unwrap_or(0) - 300_000;
    Timestamp(*random.pick(&[i64::MIN, -1, 0, 1, near, near, near, i64::MAX]))
}

fn limit(random: &mut Random) -> TimeLimit {
    match random.below(4) {
        0 => TimeLimit::Unlimited,
        _ => TimeLimit::Minutes(number(random)),
    }
}

fn some<T>(random: &mut Random, of: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (!random.one_in(4)).then(|| of(random))
}

fn job(random: &mut Random, known: &AttackerKnowledge) -> JobId {
    if known.jobs.is_empty() || random.one_in(10) {
        return JobId(wide(random));
    }
    *random.pick(&known.jobs)
}

fn indices(random: &mut Random, most: u32) -> IndexSet {
    let mut set = IndexSet::default();
    for _ in 0..random.below(4) {
        let first = match random.below(3) {
            0 => number(random),
            _ => random.small(0, most),
        };
        let length = match random.below(3) {
            0 => most,
            _ => random.small(0, 9),
        };
        set.insert_range(first, first.saturating_add(length));
    }
    set
}

fn gres(random: &mut Random) -> Vec<GresAsk> {
    let count = random.below(3);
    (0..count)
        .map(|_| GresAsk {
            name: (*random.pick(&["gpu", "", "mps", "shard", "x"])).to_owned(),
            kind: some(random, text).filter(|_| random.one_in(2)),
            count: wide(random),
        })
        .collect()
}

fn devices(random: &mut Random) -> Box<DeviceAsk> {
    Box::new(DeviceAsk {
        per_job: gres(random),
        per_socket: gres(random),
        per_task: gres(random),
        cpus_per_gpu: some(random, number),
        mib_per_gpu: some(random, wide),
        ntasks_per_gpu: some(random, number),
        ..DeviceAsk::default()
    })
}

/// Changes one field of what a job asks for.
fn spoil_ask(random: &mut Random, ask: &mut ResourceAsk) {
    match random.below(30) {
        0 => ask.min_nodes = number(random),
        1 => ask.max_nodes = some(random, number),
        2 => ask.ntasks = some(random, number),
        3 => ask.cpus_per_task = some(random, number),
        4 => ask.ntasks_per_node = some(random, number),
        5 => ask.ntasks_per_socket = some(random, number),
        6 => ask.ntasks_per_core = some(random, number),
        7 => ask.min_cpus_per_node = some(random, number),
        8 => ask.memory = MemoryAsk::PerNode(wide(random)),
        9 => ask.memory = MemoryAsk::PerCpu(wide(random)),
        10 => ask.tmp_disk_mib = wide(random),
        11 => ask.gres = gres(random),
        12 => ask.constraint = some(random, text),
        13 => ask.nodelist = some(random, text),
        14 => ask.exclude = some(random, text),
        15 => {
            let all = [
                Sharing::Exclusive,
                Sharing::ExclusiveUser,
                Sharing::ExclusiveMcs,
                Sharing::Oversubscribe,
            ];
            ask.sharing = *random.pick(&all);
        }
        16 => ask.contiguous = true,
        17 => ask.sockets_per_node = some(random, number),
        18 => ask.cores_per_socket = some(random, number),
        19 => ask.threads_per_core = some(random, number),
        20 => ask.core_spec = some(random, number),
        21 => ask.overcommit = true,
        22 => ask.distribution = some(random, text),
        23 => {
            ask.switches = Some(SwitchAsk {
                count: number(random),
                wait_s: some(random, wide),
            })
        }
        24 => ask.devices = Some(devices(random)),
        25 => ask.segment = some(random, number),
        26 => ask.thread_spec = some(random, number),
        27 | 28 => {
            let mut range = TaskRange {
                counts: indices(random, 9),
                tasks_of_node: some(random, number).filter(|_| random.one_in(3)),
            };
            if random.one_in(2) {
                let first = ask.ntasks.unwrap_or(1);
                range.counts = IndexSet::single(first);
                range
                    .counts
                    .insert_range(first.saturating_add(1), number(random));
                ask.ntasks = Some(first);
            }
            ask.task_range = Some(Box::new(range));
        }
        _ => ask.prefer = some(random, text),
    }
}

/// Changes one field of a specification.
fn spoil(random: &mut Random, known: &AttackerKnowledge, spec: &mut JobSpec) {
    match random.below(35) {
        0 => {
            spec.owner = Owner {
                uid: *random.pick(&[0, 1000, known.uid]),
                gid: *random.pick(&[0, 6, 42, known.uid]),
                user: (*random.pick(&["", "root", "u1000"])).to_owned(),
                group: (*random.pick(&["", "root", "disk"])).to_owned(),
            };
        }
        1 => {
            // The own group's name with another one's number.
            spec.owner.uid = known.uid;
            spec.owner.user = format!("u{}", known.uid);
            spec.owner.group = format!("u{}", known.uid);
            spec.owner.gid = *random.pick(&[0, 6, 42]);
        }
        2 => spec.account = some(random, text),
        3 => spec.qos = some(random, text),
        4 => spec.partitions = (0..random.below(4)).map(|_| text(random)).collect(),
        5 => spec.kind = JobKind::Allocation,
        6 | 7 if !known.blobs.is_empty() => spec.script = Some(*random.pick(&known.blobs)),
        8 if !known.blobs.is_empty() => spec.context = Some(*random.pick(&known.blobs)),
        9 => spec.argv = (0..random.below(4)).map(|_| text(random)).collect(),
        10 => spec.command = text(random),
        11 => spec.work_dir = text(random),
        12 => spec.stdio.stdout = some(random, text),
        13 => spec.submit_line = text(random),
        14 => spec.submit_host = text(random),
        15 => spec.time_limit = some(random, limit),
        16 => spec.time_min = some(random, limit),
        17 => spec.begin = Some(time(random, known)),
        18 => spec.deadline = Some(time(random, known)),
        19 => spec.priority = some(random, number),
        20 => spec.nice = number(random) as i32,
        21 => spec.dependency = dependency(random, known),
        22 | 23 => {
            spec.array = Some(ArraySpec {
                indices: indices(random, known.array_size),
                throttle: some(random, number),
            });
        }
        24 => {
            spec.warn_signal = Some(WarnSignal {
                signal: number(random),
                before_s: number(random),
                batch_only: random.one_in(2),
            });
        }
        25 => spec.wckey = some(random, text),
        26 => spec.immediate_s = some(random, number),
        27 => {
            spec.mail = MailOptions::of_texts(text(random), text(random));
            if let Some(mail) = &mut spec.mail {
                mail.lines = random.one_in(2).then_some(3);
            }
        }
        28 => spec.licenses = some(random, text),
        29 => spec.reservation = some(random, text),
        30 => {
            let key = *random.pick(&["admin-comment", "extra", "", "network"]);
            spec.shown = vec![(key.to_owned(), text(random))];
        }
        31 => spec.site_factor = number(random) as i32,
        32 => spec.submit_sid = number(random),
        33 => {
            spec.class = Some(Box::new(JobClass {
                name: text(random),
                rules: text(random),
                ..JobClass::default()
            }));
        }
        _ => spoil_ask(random, &mut spec.ask),
    }
}

fn dependency(random: &mut Random, known: &AttackerKnowledge) -> Dependency {
    let kinds = [
        DependencyKind::After,
        DependencyKind::AfterAny,
        DependencyKind::AfterOk,
        DependencyKind::AfterNotOk,
        DependencyKind::AfterCorr,
    ];
    let terms = (0..random.below(5))
        .map(|_| match random.below(5) {
            0 => DependencyTerm::Singleton,
            _ => DependencyTerm::Job {
                kind: *random.pick(&kinds),
                job: job(random, known),
                task: some(random, number),
                delay_minutes: number(random),
            },
        })
        .collect();
    Dependency {
        terms,
        any: random.one_in(2),
    }
}

fn spoiled_spec(random: &mut Random, known: &AttackerKnowledge) -> JobSpec {
    let mut spec = known.spec.clone();
    for _ in 0..random.between(1, 4) {
        spoil(random, known, &mut spec);
    }
    for _ in 0..random.below(3) {
        spoil_ask(random, &mut spec.ask);
    }
    spec
}

fn target(random: &mut Random, known: &AttackerKnowledge) -> JobTarget {
    JobTarget {
        job: job(random, known),
        tasks: some(random, |r| indices(r, known.array_size)).filter(|_| random.one_in(2)),
        component: some(random, number).filter(|_| random.one_in(4)),
    }
}

fn selection(random: &mut Random, known: &AttackerKnowledge) -> JobSelection {
    let names_jobs = random.one_in(2);
    let count = if names_jobs { random.below(6) } else { 0 };
    JobSelection {
        targets: (0..count).map(|_| target(random, known)).collect(),
        step: some(random, |r| StepNo(number(r))).filter(|_| random.one_in(4)),
        uid: some(random, |r| *r.pick(&[0, 1000, 1001, 1002])).filter(|_| !names_jobs),
        name: some(random, text).filter(|_| random.one_in(4)),
        state: random.one_in(4).then_some(JobState::Running),
        nodes: match random.one_in(4) {
            true => vec![text(random)],
            false => Vec::new(),
        },
        ..JobSelection::default()
    }
}

fn update(random: &mut Random, known: &AttackerKnowledge) -> Box<JobUpdate> {
    let mut update = JobUpdate::default();
    for _ in 0..random.between(1, 3) {
        match random.below(18) {
            0 => update.time_limit = Some(limit(random)),
            1 => update.time_delta_min = Some(wide(random) as i64),
            2 => update.priority = Some(number(random)),
            3 => update.nice = Some(number(random) as i32),
            4 => update.partitions = Some(vec![text(random)]),
            5 => update.name = Some(text(random)),
            6 => update.account = Some(text(random)),
            7 => update.qos = Some(text(random)),
            8 => update.dependency = Some(dependency(random, known)),
            9 => update.begin = Some(time(random, known)),
            10 => update.deadline = Some(time(random, known)),
            11 | 12 => {
                let mut ask = known.spec.ask.clone();
                spoil_ask(random, &mut ask);
                update.ask = Some(ask);
            }
            13 => update.array_throttle = Some(number(random)),
            14 => update.site_factor = Some(number(random) as i32),
            15 => update.nodelist = Some(text(random)),
            16 => update.licenses = Some(text(random)),
            _ => update.shown = vec![("admin-comment".to_owned(), text(random))],
        }
    }
    Box::new(update)
}

/// A script, now and then longer than a record of the journal may be.
fn script(random: &mut Random) -> Vec<u8> {
    let mut text = format!("#!/bin/sh\n# {}\n", random.next()).into_bytes();
    if random.one_in(8) {
        text.resize(random.between(60_000, 70_000) as usize, b'#');
    }
    text
}

fn submission(random: &mut Random, known: &AttackerKnowledge) -> UserCommand {
    let own: [(BlobId, ByteVec); 1] = [(
        BlobId([random.small(1, 250) as u8; 32]),
        script(random).into(),
    )];
    let carries = !random.one_in(5);
    let carry = |spec: &mut JobSpec| {
        if carries && spec.script.is_some() && !known.blobs.iter().any(|b| spec.script == Some(*b))
        {
            spec.script = Some(own[0].0);
        }
    };
    let blobs = if carries { own.to_vec() } else { Vec::new() };
    if random.one_in(6) {
        let count = *random.pick(&[0, 1, 2, 3, 130]);
        let mut specs: Vec<JobSpec> = (0..count).map(|_| spoiled_spec(random, known)).collect();
        specs.iter_mut().for_each(carry);
        return UserCommand::SubmitHet {
            specs,
            blobs,
            test_only: false,
        };
    }
    let mut spec = spoiled_spec(random, known);
    carry(&mut spec);
    UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: false,
    }
}

/// A request that only administrators may make.
fn administration(random: &mut Random, known: &AttackerKnowledge) -> UserCommand {
    let target = target(random, known);
    let pairs = vec![(
        (*random.pick(&["State", "Nodes", "MaxTime"])).to_owned(),
        text(random),
    )];
    match random.below(10) {
        0 => UserCommand::Suspend { target },
        1 => UserCommand::Resume { target },
        2 => UserCommand::UpdateNodes {
            nodes: text(random),
            update: NodeUpdate {
                state: Some("DOWN".to_owned()),
                reason: Some(text(random)),
                ..NodeUpdate::default()
            },
        },
        3 => UserCommand::UpdatePartition {
            name: "all".to_owned(),
            pairs,
            read: Vec::new(),
        },
        4 => UserCommand::CreatePartition {
            name: text(random),
            pairs,
        },
        5 => UserCommand::DeletePartition {
            name: "few".to_owned(),
        },
        6 => UserCommand::CreateReservation(Box::new(ReservationAsk {
            name: Some(text(random)),
            nodes: Some("ALL".to_owned()),
            start: Some(time(random, known)),
            duration: Some(limit(random)),
            ..ReservationAsk::default()
        })),
        7 => UserCommand::DeleteReservation {
            name: "r0".to_owned(),
        },
        8 => UserCommand::Reboot {
            nodes: "ALL".to_owned(),
            asap: true,
            down_after: true,
            reason: some(random, text),
        },
        _ => UserCommand::EditAccounts(Box::new(AccountsEdit {
            cluster: String::new(),
            names: vec!["capped".to_owned(), text(random)],
            ask: AccountsAsk::AddQos(QosAsk::default()),
        })),
    }
}

/// Whether only administrators may ask for it.
pub(crate) fn is_administration(command: &UserCommand) -> bool {
    matches!(
        command,
        UserCommand::Suspend { .. }
            | UserCommand::Resume { .. }
            | UserCommand::UpdateNodes { .. }
            | UserCommand::UpdatePartition { .. }
            | UserCommand::CreatePartition { .. }
            | UserCommand::DeletePartition { .. }
            | UserCommand::CreateNodes { .. }
            | UserCommand::DeleteNodes { .. }
            | UserCommand::TakeNode(_)
            | UserCommand::CreateReservation(_)
            | UserCommand::UpdateReservation(_)
            | UserCommand::DeleteReservation { .. }
            | UserCommand::Reboot { .. }
            | UserCommand::CancelReboot { .. }
            | UserCommand::EditAccounts(_)
            | UserCommand::Reconfigure
    )
}

/// A request.
pub(crate) fn command(random: &mut Random, known: &AttackerKnowledge) -> UserCommand {
    let target = target(random, known);
    match random.below(20) {
        0..=8 => submission(random, known),
        9 | 10 => UserCommand::Cancel {
            selection: selection(random, known),
        },
        11 => UserCommand::Signal {
            selection: selection(random, known),
            signal: number(random),
            scope: *random.pick(&[SignalScope::Steps, SignalScope::Batch, SignalScope::Full]),
        },
        12 => UserCommand::Hold {
            target,
            user: random.one_in(2),
        },
        13 => UserCommand::Release { target },
        14 => UserCommand::Requeue {
            target,
            hold: random.one_in(2),
            special_exit: random.one_in(2),
            incomplete: random.one_in(2),
        },
        15 | 16 => UserCommand::UpdateJob {
            target,
            update: update(random, known),
        },
        17 => match random.below(6) {
            4 => UserCommand::Trigger(Box::new(TriggerAsk::Set {
                events: TriggerEvents(1 << random.below(24)),
                job: random.one_in(2).then_some(target.job),
                nodes: if random.one_in(2) {
                    "n[1-2]".to_owned()
                } else {
                    String::new()
                },
                offset_s: i32::try_from(random.below(100)).unwrap_or(0) - 50,
                program: "/bin/true".to_owned(),
                permanent: random.one_in(2),
            })),
            5 => UserCommand::Trigger(Box::new(TriggerAsk::Clear {
                id: some(random, |r| u32::try_from(r.below(20)).unwrap_or(0)),
                job: some(random, |_| target.job),
                uid: some(random, |r| u32::try_from(r.below(3)).unwrap_or(0)),
            })),
            0 => UserCommand::Top { target },
            1 => UserCommand::Notify {
                target,
                text: text(random),
            },
            2 => UserCommand::UpdateStep {
                target,
                step: some(random, |r| StepNo(number(r))),
                time_limit: limit(random),
            },
            _ => UserCommand::EndAllocation {
                job: target.job,
                exit: ExitStatus {
                    code: number(random),
                    signal: number(random),
                },
            },
        },
        _ => administration(random, known),
    }
}

/// The request as the controller decodes it after some items of its encoding were replaced; `None` if that is none.
pub(crate) fn garbled(random: &mut Random, command: UserCommand) -> Option<UserCommand> {
    let request = Request {
        version: PROTOCOL,
        client: None,
        body: RequestBody::Command(Box::new(command)),
    };
    let mut body = frame::encode(&request).split_off(4);
    if random.one_in(2) {
        body = garble(random, &body)?;
    }
    match frame::decode::<Request>(&body).ok()?.body {
        RequestBody::Command(command) => Some(*command),
        _ => None,
    }
}

/// A data item of the encoding (RFC 8949, section 3): the major type, its argument, and the bytes of a string. What is
/// in an array or a map follows as items of its own.
struct Item<'b> {
    major: u8,
    /// The low five bits of the first byte, for floating-point numbers and simple values.
    low: u8,
    argument: u64,
    content: &'b [u8],
}

impl<'b> Item<'b> {
    /// The first item, and what follows it.
    fn split(body: &'b [u8]) -> Option<(Item<'b>, &'b [u8])> {
        let (first, rest) = body.split_first()?;
        let (major, low) = (first >> 5, first & 31);
        let more = match low {
            0..=23 => 0,
            24..=27 => 1 << (low - 24),
            _ => return None,
        };
        let (bytes, rest) = rest.split_at_checked(more)?;
        let large = bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let argument = if more == 0 { u64::from(low) } else { large };
        let length = match major {
            2 | 3 => usize::try_from(argument).ok()?,
            _ => 0,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let item = Item {
            major,
            low,
            argument,
            content,
        };
        Some((item, rest))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let first = self.major << 5;
        let argument = self.argument.to_be_bytes();
        match (self.major, self.argument) {
            // Simple values and floating-point numbers as they were.
            (7, _) => {
                out.push(first | self.low);
                let more = if self.low < 24 {
                    0
                } else {
                    1 << (self.low - 24)
                };
                out.extend_from_slice(&argument[8 - more..]);
            }
            (_, 0..=23) => out.push(first | argument[7]),
            _ => {
                out.push(first | 27);
                out.extend_from_slice(&argument);
            }
        }
        out.extend_from_slice(self.content);
    }
}

fn garble(random: &mut Random, body: &[u8]) -> Option<Vec<u8>> {
    let (mut items, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        let (item, after) = Item::split(rest)?;
        items.push(item);
        rest = after;
    }
    for _ in 0..random.between(1, 3) {
        let at = random.below(items.len() as u64) as usize;
        spoil_item(random, &mut items[at]);
    }
    let mut out = Vec::with_capacity(body.len());
    items.iter().for_each(|item| item.write(&mut out));
    Some(out)
}

fn spoil_item(random: &mut Random, item: &mut Item<'_>) {
    const FALSE: u8 = 20;
    const TRUE: u8 = 21;
    const NULL: u8 = 22;
    match item.major {
        0 | 1 => match random.below(4) {
            0 => item.major = 1 - item.major,
            1 => (item.major, item.low) = (7, NULL),
            _ => item.argument = wide(random),
        },
        3 => {
            item.content = random.pick(&TEXTS).as_bytes();
            item.argument = item.content.len() as u64;
        }
        4 | 5 if random.one_in(3) => {
            let more = random.one_in(2);
            item.argument = match more {
                true => item.argument + 1,
                false => item.argument.saturating_sub(1),
            };
        }
        7 if [FALSE, TRUE].contains(&item.low) => item.low = FALSE + TRUE - item.low,
        7 if item.low == NULL => {
            (item.major, item.argument) = (0, u64::from(number(random)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_written_as_they_were_read() {
        let spec = JobSpec {
            name: "j".repeat(300),
            nice: -70_000,
            begin: Some(Timestamp(1 << 40)),
            ..JobSpec::default()
        };
        let mut bytes = Vec::new();
        minicbor::encode(&spec, &mut bytes).expect("writing to memory cannot fail");
        let (mut out, mut rest) = (Vec::new(), bytes.as_slice());
        while let Some((item, after)) = Item::split(rest) {
            item.write(&mut out);
            rest = after;
        }
        assert_eq!(rest, b"");
        assert_eq!(minicbor::decode::<JobSpec>(&out).ok(), Some(spec));
    }

    #[test]
    fn most_garbled_requests_decode() {
        let known = AttackerKnowledge {
            jobs: vec![JobId(1)],
            blobs: Vec::new(),
            spec: JobSpec::default(),
            now: 0,
            uid: 2000,
            array_size: 100,
        };
        let mut random = Random::new(1, 1);
        let decoded = (0..1000)
            .filter(|_| {
                let command = command(&mut random, &known);
                garbled(&mut random, command).is_some()
            })
            .count();
        assert!((500..1000).contains(&decoded), "{decoded} of 1000");
    }
}
