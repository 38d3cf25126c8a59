//! Tests of archives as Parquet.

use super::*;
use crate::tables;
use muster_acct::{ArchiveHeader, ArchiveWriter};
use muster_fixtures::sample;
use muster_proto::acct::{AcctJob, NodeEvent};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use std::cell::RefCell;
use std::rc::Rc;

/// A file in memory.
#[derive(Clone, Default)]
struct MemoryFile(Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn archive(rows: impl IntoIterator<Item = Archived>) -> Vec<u8> {
    let header = ArchiveHeader {
        cluster: "alpha".to_owned(),
        origin: 7,
        what: "job".to_owned(),
        written: Timestamp(1),
    };
    let mut writer = ArchiveWriter::begin(Vec::new(), &header).unwrap();
    for row in rows {
        writer.add(row).unwrap();
    }
    writer.finish().unwrap()
}

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// A run with every field set, of this row.
fn job(row: i64) -> Archived {
    let sampled: AcctJob = minicbor::decode(&sample(PACKAGE, "proto::acct::AcctJob")).unwrap();
    let job = AcctJob {
        name: "größe".to_owned(),
        submit: Timestamp(1_500),
        end: None,
        batch: true,
        suspended_ms: 1_000,
        steps: sampled.steps.into_iter().take(1).collect(),
        ..sampled
    };
    Archived::Job(Box::new(ArchivedJob {
        row,
        job,
        array: None,
        suspensions: vec![(Timestamp(2_000), Timestamp(3_000))],
        texts: Vec::new(),
    }))
}

type Files = BTreeMap<String, Vec<u8>>;

fn exported(bytes: &[u8]) -> Result<(BTreeMap<String, u64>, Files), ExportError> {
    let made: Rc<RefCell<BTreeMap<String, MemoryFile>>> = Rc::default();
    let mut reader = ArchiveReader::begin(bytes)?;
    let counts = export(&mut reader, &mut |name| {
        let file = MemoryFile::default();
        made.borrow_mut().insert(name.to_owned(), file.clone());
        Ok(file)
    })?;
    let files = made.take().into_iter();
    let files = files.map(|(name, file)| (name, file.0.lock().unwrap().clone()));
    Ok((counts, files.collect()))
}

fn count(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter()
        .map(|(name, rows)| ((*name).to_owned(), *rows))
        .collect()
}

#[test]
fn jobs_steps_and_suspensions_are_read_back() {
    let (counts, files) = exported(&archive([job(3), job(4)])).unwrap();
    assert_eq!(counts, count(&[("job", 2), ("step", 2), ("suspension", 2)]));
    let file = bytes::Bytes::from(files["job"].clone());
    let reader = SerializedFileReader::new(file).unwrap();
    let rows: Vec<_> = reader
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let field = |row: &parquet::record::Row, name: &str| {
        let mut columns = row.get_column_iter();
        columns
            .find(|(column, _)| *column == name)
            .map(|(_, field)| field.clone())
            .unwrap()
    };
    assert_eq!(field(&rows[1], "run"), Field::Long(4));
    assert_eq!(field(&rows[1], "name"), Field::Str("größe".to_owned()));
    assert_eq!(field(&rows[1], "submit_ms"), Field::TimestampMillis(1_500));
    assert_eq!(field(&rows[1], "end_ms"), Field::Null);
    assert_eq!(field(&rows[1], "is_batch"), Field::Bool(true));
    assert_eq!(field(&rows[1], "suspended_ms"), Field::Long(1_000));
}

#[test]
fn rows_are_written_in_groups() {
    let events = (0..25_000).map(|number| {
        Archived::Event(NodeEvent {
            node: format!("n{number}"),
            start: Timestamp(number),
            end: None,
            down: true,
            drain: false,
            fail: false,
            reason: String::new(),
            uid: 0,
        })
    });
    let (counts, files) = exported(&archive(events)).unwrap();
    assert_eq!(counts, count(&[("node_event", 25_000)]));
    let file = bytes::Bytes::from(files["node_event"].clone());
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 3);
    assert_eq!(reader.metadata().file_metadata().num_rows(), 25_000);
}

#[test]
fn a_damaged_archive_is_refused() {
    let mut bytes = archive([job(3)]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(matches!(exported(&bytes), Err(ExportError::Archive(_))));
}

#[test]
fn columns_are_those_of_the_tables() {
    let tables: [(&str, &[&str]); 8] = [
        ("job", tables::JOB),
        ("step", tables::STEP),
        ("suspension", tables::SUSPENSION),
        ("node_event", tables::NODE_EVENT),
        ("transaction", tables::TRANSACTION),
        ("used", tables::USED),
        ("out_of_service", tables::OUT),
        ("reservation", tables::RESERVATION),
    ];
    for (name, expected) in tables {
        let columns = schema::columns(&format!("muster_{name}")).into_iter();
        let columns: Vec<&str> = columns.map(|column| column.name).collect();
        assert_eq!(columns, expected, "{name}");
    }
}
