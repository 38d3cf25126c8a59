//! Archives as Parquet files (<https://parquet.apache.org>), which other tools read: a file for each kind of rows, with the columns
//! of the table that a copy has them in.

use crate::schema;
use crate::sql::SqlValue;
use crate::tables::RowOrigin;
use muster_acct::{
    ArchiveError, ArchiveReader, Archived, ArchivedJob, OutSum, Suspension, UsedSum, length_name,
};
use muster_model::time::Timestamp;
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Rows that are kept in memory before they are written.
const GROUP_ROWS: usize = 10_000;

/// Why an archive cannot be written as Parquet.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A file cannot be made.
    #[error("{name}: {source}")]
    Create {
        /// The kind of its rows.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{0}")]
    Write(#[from] ParquetError),
}

/// Writes the rows of an archive, each kind to a file that `create` makes when the first of them is there; it is given the kind: `job`,
/// `step`, `suspension`, `node_event`, `transaction`, `used`, `out_of_service` or `reservation`. Returns the number of rows of each.
/// An archive that is damaged at its end is found to be at its end: files are whole if this succeeds.
///
/// # Errors
/// The archive is damaged, or a file cannot be made or written.
pub fn export<R: Read, W: Write + Send>(
    reader: &mut ArchiveReader<R>,
    create: &mut dyn FnMut(&str) -> io::Result<W>,
) -> Result<BTreeMap<String, u64>, ExportError> {
    let header = reader.header().clone();
    let origin = RowOrigin {
        cluster: &header.cluster,
        origin: header.origin,
    };
    let mut export = Export {
        create,
        tables: BTreeMap::new(),
    };
    let mut number = 0;
    while let Some(row) = reader.next_row()? {
        number += 1;
        export.add_row(origin, number, &row)?;
    }
    let mut counts = BTreeMap::new();
    for (name, table) in export.tables {
        counts.insert(name.to_owned(), table.finish()?);
    }
    Ok(counts)
}

struct Export<'a, W: Write + Send> {
    create: &'a mut dyn FnMut(&str) -> io::Result<W>,
    tables: BTreeMap<&'static str, TableWriter<W>>,
}

impl<W: Write + Send> Export<'_, W> {
    /// `number` counts the rows of the archive: those without a number of their own get it.
    fn add_row(
        &mut self,
        origin: RowOrigin<'_>,
        number: i64,
        row: &Archived,
    ) -> Result<(), ExportError> {
        match row {
            Archived::Event(event) => self.add("node_event", origin.node_event(number, event)),
            Archived::Job(job) => self.add_job(origin, job),
            Archived::Step { row, step } => self.add("step", origin.step(*row, number, step)),
            Archived::Suspension { row, start, end } => {
                let suspension = suspended(*row, *start, *end);
                self.add("suspension", origin.suspension(&suspension))
            }
            Archived::Transaction(made) => self.add("transaction", origin.transaction(made)),
            Archived::Used(sum) => {
                self.add("used", origin.used(number, &UsedSum::of_archived(sum)))
            }
            Archived::Out {
                length,
                begin,
                node,
                out_ms,
            } => {
                let sum = OutSum {
                    length: length_name((*length).into()),
                    begin: *begin,
                    node: node.clone(),
                    out_ms: *out_ms,
                };
                self.add("out_of_service", origin.out(number, &sum))
            }
            Archived::Reservation(record) => {
                self.add("reservation", origin.reservation(number, record))
            }
        }
    }

    fn add_job(
        &mut self,
        origin: RowOrigin<'_>,
        archived: &ArchivedJob,
    ) -> Result<(), ExportError> {
        let run = archived.row;
        self.add("job", origin.job(run, &archived.job))?;
        for (place, step) in (0..).zip(&archived.job.steps) {
            self.add("step", origin.step(run, place, step))?;
        }
        for (start, end) in &archived.suspensions {
            let suspension = suspended(run, *start, Some(*end));
            self.add("suspension", origin.suspension(&suspension))?;
        }
        Ok(())
    }

    fn add(&mut self, name: &'static str, row: Vec<SqlValue>) -> Result<(), ExportError> {
        let table = match self.tables.entry(name) {
            std::collections::btree_map::Entry::Occupied(table) => table.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let made = (self.create)(name);
                let out = made.map_err(|source| ExportError::Create {
                    name: name.to_owned(),
                    source,
                })?;
                place.insert(TableWriter::begin(out, name)?)
            }
        };
        table.add(row)
    }
}

fn suspended(job: i64, start: Timestamp, end: Option<Timestamp>) -> Suspension {
    Suspension { job, start, end }
}

/// A file.
struct TableWriter<W: Write + Send> {
    out: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: Vec<Vec<SqlValue>>,
    count: u64,
}

/// A column of a file.
struct Column {
    name: &'static str,
    kind: ColumnKind,
    is_required: bool,
}

#[derive(Clone, Copy)]
enum ColumnKind {
    Number,
    /// Milliseconds since 1970.
    Time,
    Truth,
    Text,
}

/// Columns of points in time; others whose names end in `_ms` are durations.
const TIMES: [&str; 6] = [
    "submit_ms",
    "eligible_ms",
    "start_ms",
    "end_ms",
    "begin_ms",
    "at_ms",
];

impl Column {
    fn of(column: schema::SchemaColumn) -> Column {
        let name = column.name;
        let kind = match name {
            _ if column.is_text => ColumnKind::Text,
            _ if TIMES.contains(&name) => ColumnKind::Time,
            _ if name.starts_with("is_") => ColumnKind::Truth,
            _ => ColumnKind::Number,
        };
        Column {
            name,
            kind,
            is_required: column.is_required,
        }
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.kind {
            ColumnKind::Number => (PhysicalType::INT64, None),
            ColumnKind::Time => {
                let of_utc = true;
                let time = LogicalType::timestamp(of_utc, TimeUnit::MILLIS);
                (PhysicalType::INT64, Some(time))
            }
            ColumnKind::Truth => (PhysicalType::BOOLEAN, None),
            ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = match self.is_required {
            true => Repetition::REQUIRED,
            false => Repetition::OPTIONAL,
        };
        let column = Type::primitive_type_builder(self.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()?;
        Ok(Arc::new(column))
    }
}

impl<W: Write + Send> TableWriter<W> {
    fn begin(out: W, name: &str) -> Result<TableWriter<W>, ExportError> {
        let columns = schema::columns(&format!("muster_{name}")).into_iter();
        let columns: Vec<Column> = columns.map(Column::of).collect();
        let fields: Result<Vec<TypePtr>, ParquetError> =
            columns.iter().map(Column::schema).collect();
        let schema = Type::group_type_builder(name)
            .with_fields(fields?)
            .build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("muster {}", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(TableWriter {
            out: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?,
            columns,
            rows: Vec::new(),
            count: 0,
        })
    }

    fn add(&mut self, row: Vec<SqlValue>) -> Result<(), ExportError> {
        self.rows.push(row);
        self.count += 1;
        match self.rows.len() {
            GROUP_ROWS => self.write_group(),
            _ => Ok(()),
        }
    }

    fn write_group(&mut self) -> Result<(), ExportError> {
        let mut group = self.out.next_row_group()?;
        for (place, column) in self.columns.iter().enumerate() {
            let values = self.rows.iter().map(|row| &row[place]);
            match column.kind {
                ColumnKind::Number | ColumnKind::Time => {
                    write::<Int64Type, _>(&mut group, column, values.map(number))?;
                }
                ColumnKind::Truth => {
                    let truths = values.map(|value| number(value).map(|number| number != 0));
                    write::<BoolType, _>(&mut group, column, truths)?;
                }
                ColumnKind::Text => {
                    write::<ByteArrayType, _>(&mut group, column, values.map(text))?
                }
            }
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<u64, ExportError> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        self.out.close()?;
        Ok(self.count)
    }
}

fn number(value: &SqlValue) -> Option<i64> {
    match value {
        SqlValue::Integer(number) => Some(*number),
        SqlValue::Text(_) | SqlValue::Null => None,
    }
}

fn text(value: &SqlValue) -> Option<ByteArray> {
    match value {
        SqlValue::Text(text) => Some(ByteArray::from(text.as_str())),
        SqlValue::Integer(_) | SqlValue::Null => None,
    }
}

/// Writes the next column of a group.
fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut levels = Vec::new();
    let mut present = Vec::new();
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    let levels = (!column.is_required).then_some(&levels[..]);
    let unexpected = || ParquetError::General(format!("there is no column {}", column.name));
    let mut out = group.next_column()?.ok_or_else(unexpected)?;
    out.typed::<T>().write_batch(&present, levels, None)?;
    out.close()
}

#[cfg(test)]
mod tests;
