//! Crashes at every operation: what was acknowledged is there, in order and once; a batch is there
//! as a whole or not at all; what was refused is not there.

use std::io::ErrorKind;

use crate::support::{self, CLUSTER, ID, batch, create, open, read_all, small, snapshot, storage};
use muster_journal::{Crash, Error, FileLog, Log, MemStorage, Options};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<usize>),
    Snapshot,
    Reopen,
}

/// What must be in the log, and what may be.
#[derive(Default)]
struct Model {
    /// Acknowledged records.
    acked: Vec<Vec<u8>>,
    /// The batch whose outcome is unknown.
    in_flight: Vec<Vec<u8>>,
}

impl Model {
    fn check(&mut self, found: Vec<Vec<u8>>) {
        let mut both = self.acked.clone();
        both.append(&mut self.in_flight);
        assert!(
            found == self.acked || found == both,
            "acknowledged {}, with the batch in flight {}, found {}",
            self.acked.len(),
            both.len(),
            found.len()
        );
        self.acked = found;
    }
}

/// Does the steps until the machine halts.
fn run(
    memory: &MemStorage,
    mut log: FileLog,
    model: &mut Model,
    steps: &[Step],
    options: &Options,
) -> Result<(), Error> {
    for step in steps {
        match step {
            Step::Append(lens) => {
                let (batch, records) = batch(log.last_position() + 1, lens);
                match log.append(&batch) {
                    Ok(position) => {
                        model.acked.extend(records);
                        assert_eq!(position, model.acked.len() as u64);
                    }
                    Err(Error::Full { .. }) => {}
                    Err(Error::Stopped { .. }) => {}
                    Err(error) => {
                        model.in_flight = records;
                        if !matches!(error, Error::SyncFailed { .. }) {
                            return Err(error);
                        }
                    }
                }
            }
            Step::Snapshot if model.acked.is_empty() => {}
            Step::Snapshot => match snapshot(&mut log, &model.acked) {
                Err(Error::Snapshot { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            },
            Step::Reopen => {
                drop(log);
                let (new, mut recovered) = open(memory, options)?;
                model.check(read_all(&mut recovered)?);
                log = new;
            }
        }
    }
    Ok(())
}

fn crash_and_check(memory: &MemStorage, model: &mut Model, crash: Crash) -> MemStorage {
    let survived = memory.crash(crash);
    let (log, mut recovered) = open(&survived, &small()).unwrap();
    model.check(read_all(&mut recovered).unwrap());
    drop(log);
    // What was handed out must not be lost by a second crash.
    let survived = survived.crash(Crash::Power);
    let (_, mut recovered) = open(&survived, &small()).unwrap();
    assert!(recovered.torn.is_none(), "{:?}", recovered.torn);
    model.check(read_all(&mut recovered).unwrap());
    survived
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => prop::collection::vec(prop_oneof![4 => 0..40usize, 1 => 0..1500usize], 1..6)
            .prop_map(Step::Append),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..30)
}

fn crashes() -> impl Strategy<Value = Crash> {
    prop_oneof![
        1 => Just(Crash::Process),
        1 => Just(Crash::Power),
        6 => any::<u64>().prop_map(Crash::Torn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn acknowledged_records_survive_crashes(
        rounds in prop::collection::vec((steps(), 1..200u64, crashes()), 1..5),
    ) {
        let mut memory = MemStorage::new();
        let mut model = Model::default();
        drop(create(&memory, &small()));
        for (steps, halt, crash) in rounds {
            let (log, _) = open(&memory, &small()).unwrap();
            memory.halt_at(halt);
            let _ = run(&memory, log, &mut model, &steps, &small());
            memory = crash_and_check(&memory, &mut model, crash);
        }
    }
}

fn fixed_steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for index in 0..24 {
        steps.push(Step::Append(vec![index * 13, 700, 5]));
        if index % 9 == 8 {
            steps.push(Step::Snapshot);
        }
    }
    steps
}

#[test]
fn crash_at_every_operation() {
    let memory = MemStorage::new();
    let log = create(&memory, &small());
    let before = memory.operations();
    run(
        &memory,
        log,
        &mut Model::default(),
        &fixed_steps(),
        &small(),
    )
    .unwrap();
    let operations = memory.operations() - before;
    assert!(operations > 100);
    for halt in 1..=operations {
        for crash in [Crash::Process, Crash::Power]
            .into_iter()
            .chain((0..6).map(Crash::Torn))
        {
            let memory = MemStorage::new();
            let mut model = Model::default();
            let log = create(&memory, &small());
            memory.halt_at(halt);
            let _ = run(&memory, log, &mut model, &fixed_steps(), &small());
            crash_and_check(&memory, &mut model, crash);
        }
    }
}

#[test]
fn crash_at_every_operation_of_creation_and_of_recovery() {
    for halt in 1..40 {
        for crash in [Crash::Process, Crash::Power]
            .into_iter()
            .chain((0..6).map(Crash::Torn))
        {
            let memory = MemStorage::new();
            memory.halt_at(halt);
            let created = FileLog::create(storage(&memory), CLUSTER, ID, small()).is_ok();
            let memory = memory.crash(crash);
            if created || FileLog::exists(&memory).unwrap() {
                open(&memory, &small()).unwrap();
            } else {
                create(&memory, &small());
            }

            // A torn tail, and a crash while it is being removed.
            let memory = MemStorage::new();
            let mut model = Model::default();
            let log = create(&memory, &small());
            memory.halt_at(60);
            let _ = run(&memory, log, &mut model, &fixed_steps(), &small());
            let memory = memory.crash(Crash::Torn(halt));
            memory.halt_at(halt);
            let _ = open(&memory, &small());
            crash_and_check(&memory, &mut model, crash);
        }
    }
}

#[test]
fn every_operation_fails_once() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for at in 1..=500 {
            let crash = if at % 2 == 0 {
                Crash::Process
            } else {
                Crash::Torn(at)
            };
            let at = at / 2 + 1;
            let memory = MemStorage::new();
            let mut model = Model::default();
            let log = create(&memory, &small());
            memory.fail_at(at, kind);
            let _ = run(&memory, log, &mut model, &fixed_steps(), &small());
            crash_and_check(&memory, &mut model, crash);
        }
    }
}

#[test]
fn a_full_disk_refuses_batches_and_nothing_else() {
    for capacity in (1000..12_000).step_by(37) {
        let memory = MemStorage::new();
        let mut log = create(&memory, &small());
        let (mut acked, mut refused) = (Vec::new(), 0);
        memory.set_capacity(Some(capacity));
        for len in [30, 900, 10, 2000, 400].into_iter().cycle().take(30) {
            let (batch, records) = batch(log.last_position() + 1, &[len, 3, len]);
            match log.append(&batch) {
                Ok(_) => acked.extend(records),
                Err(error) => {
                    assert!(error.is_full(), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
        // A crash now brings none of the refused ones back.
        let copy = memory.crash(Crash::Torn(capacity));
        copy.set_capacity(None);
        let (mut log, mut recovered) = open(&copy, &small()).unwrap();
        assert!(recovered.torn.is_none());
        assert_eq!(read_all(&mut recovered).unwrap(), acked);
        let (batch, records) = batch(log.last_position() + 1, &[500, 500]);
        log.append(&batch).unwrap();
        acked.extend(records);
        drop(log);
        let (_, mut recovered) = open(&copy, &small()).unwrap();
        assert_eq!(read_all(&mut recovered).unwrap(), acked);
    }
}

#[test]
fn the_log_goes_on_when_there_is_room_again() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    support::append(&mut log, &[100]).unwrap();
    memory.set_capacity(Some(memory.used()));
    assert!(support::append(&mut log, &[2000]).unwrap_err().is_full());
    assert_eq!(log.last_position(), 1);
    memory.set_capacity(None);
    assert_eq!(support::append(&mut log, &[2000]).unwrap(), 2);
}

#[test]
fn no_append_after_a_failed_sync() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &small());
    support::append(&mut log, &[100]).unwrap();
    // An append is a write and a sync.
    memory.fail_at(2, ErrorKind::Other);
    let error = support::append(&mut log, &[100]).unwrap_err();
    assert!(matches!(error, Error::SyncFailed { .. }), "{error}");
    let error = support::append(&mut log, &[100]).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(error.to_string().contains("sync failed"), "{error}");
}

#[test]
fn an_append_is_one_write_and_one_sync_and_a_mark() {
    let memory = MemStorage::new();
    let mut log = create(&memory, &Options::default());
    for lens in [&[300; 1][..], &[300; 512], &[100_000]] {
        let before = memory.operations();
        support::append(&mut log, lens).unwrap();
        assert_eq!(memory.operations() - before, 3);
    }
}
