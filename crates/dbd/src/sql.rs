//! Statements that all databases understand, and where they differ.

use std::fmt::Write as _;

/// Values of one statement, at most: both databases count them in 16 bits.
const VALUES_MAX: usize = 60_000;
/// Bytes of texts of one statement, about: `max_allowed_packet` of MariaDB is 16 MiB.
const BYTES_MAX: usize = 4 << 20;

/// Which kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MariaDB, or MySQL.
    MariaDb,
    /// PostgreSQL.
    PostgreSql,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// None.
    Null,
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
}

impl SqlValue {
    /// A text; PostgreSQL has none with a NUL.
    pub(crate) fn text(text: &str) -> SqlValue {
        SqlValue::Text(match text.contains('\0') {
            true => text.replace('\0', "\u{fffd}"),
            false => text.to_owned(),
        })
    }

    /// A number that may be beyond what the databases have.
    pub(crate) fn unsigned(number: u64) -> SqlValue {
        SqlValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn bytes(&self) -> usize {
        match self {
            SqlValue::Text(text) => text.len(),
            _ => 8,
        }
    }
}

impl From<u32> for SqlValue {
    fn from(number: u32) -> SqlValue {
        SqlValue::Integer(number.into())
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> SqlValue {
        SqlValue::Integer(number)
    }
}

impl From<bool> for SqlValue {
    fn from(is: bool) -> SqlValue {
        SqlValue::Integer(is.into())
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> SqlValue {
        value.map_or(SqlValue::Null, Into::into)
    }
}

/// A statement and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// With `?` (MariaDB) or `$1` (PostgreSQL) for each value.
    pub sql: String,
    /// In order.
    pub values: Vec<SqlValue>,
}

impl Statement {
    /// A statement in which each `?` stands for a value.
    pub(crate) fn new(kind: Kind, sql: &str, values: Vec<SqlValue>) -> Statement {
        let mut number = 0;
        let mut text = String::with_capacity(sql.len() + 8);
        for part in sql.split_inclusive('?') {
            match part.strip_suffix('?') {
                Some(before) => {
                    number += 1;
                    text.push_str(before);
                    place(kind, number, &mut text);
                }
                None => text.push_str(part),
            }
        }
        debug_assert_eq!(number, values.len(), "{sql}");
        Statement { sql: text, values }
    }
}

/// The place of a value.
fn place(kind: Kind, number: usize, text: &mut String) {
    match kind {
        Kind::MariaDb => text.push('?'),
        Kind::PostgreSql => {
            let _ = write!(text, "${number}");
        }
    }
}

/// Insertions of rows that become updates where a row with the key is there; `keys` columns at the beginning are the key. No two of
/// the rows have one key.
pub(crate) fn upserts(
    kind: Kind,
    table: &str,
    columns: &[&str],
    keys: usize,
    rows: Vec<Vec<SqlValue>>,
) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut values: Vec<SqlValue> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        debug_assert_eq!(row.len(), columns.len(), "{table}");
        bytes += row.iter().map(SqlValue::bytes).sum::<usize>();
        values.extend(row);
        if values.len() + columns.len() > VALUES_MAX || bytes > BYTES_MAX {
            let values = std::mem::take(&mut values);
            statements.push(upsert(kind, table, columns, keys, values));
            bytes = 0;
        }
    }
    if !values.is_empty() {
        statements.push(upsert(kind, table, columns, keys, values));
    }
    statements
}

fn upsert(
    kind: Kind,
    table: &str,
    columns: &[&str],
    keys: usize,
    values: Vec<SqlValue>,
) -> Statement {
    let mut sql = format!("INSERT INTO {table} ({}) VALUES ", columns.join(", "));
    for row in 0..values.len() / columns.len() {
        sql.push_str(if row == 0 { "(" } else { ", (" });
        for column in 0..columns.len() {
            if column > 0 {
                sql.push_str(", ");
            }
            place(kind, row * columns.len() + column + 1, &mut sql);
        }
        sql.push(')');
    }
    let new = |column: &&str| match kind {
        Kind::MariaDb => format!("{column} = VALUES({column})"),
        Kind::PostgreSql => format!("{column} = excluded.{column}"),
    };
    let set: Vec<String> = columns[keys..].iter().map(new).collect();
    let _ = match kind {
        Kind::MariaDb => write!(sql, " ON DUPLICATE KEY UPDATE {}", set.join(", ")),
        Kind::PostgreSql => write!(
            sql,
            " ON CONFLICT ({}) DO UPDATE SET {}",
            columns[..keys].join(", "),
            set.join(", ")
        ),
    };
    Statement { sql, values }
}

/// Removes rows whose key has some numbers.
pub(crate) fn deletes(
    kind: Kind,
    table: &str,
    key: &str,
    (cluster, origin): (&str, i64),
    runs: impl Iterator<Item = i64>,
) -> Vec<Statement> {
    let runs: Vec<i64> = runs.collect();
    let part = |runs: &[i64]| {
        let places = vec!["?"; runs.len()].join(", ");
        let sql =
            format!("DELETE FROM {table} WHERE cluster = ? AND origin = ? AND {key} IN ({places})");
        let mut values = vec![SqlValue::text(cluster), SqlValue::Integer(origin)];
        values.extend(runs.iter().copied().map(SqlValue::Integer));
        Statement::new(kind, &sql, values)
    };
    runs.chunks(1000).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_is_written_as_each_database_reads_it() {
        let values = || vec![SqlValue::Integer(1), SqlValue::text("a\0b")];
        let sql = "UPDATE t SET a = ? WHERE b = ?";
        let of = |kind| Statement::new(kind, sql, values());
        assert_eq!(of(Kind::MariaDb).sql, sql);
        assert_eq!(of(Kind::PostgreSql).sql, "UPDATE t SET a = $1 WHERE b = $2");
        assert_eq!(of(Kind::MariaDb).values[1], SqlValue::text("a\u{fffd}b"));
        let rows = || vec![values(), values()];
        let of = |kind| upserts(kind, "t", &["k", "v"], 1, rows()).remove(0).sql;
        assert_eq!(
            of(Kind::MariaDb),
            "INSERT INTO t (k, v) VALUES (?, ?), (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)"
        );
        assert_eq!(
            of(Kind::PostgreSql),
            "INSERT INTO t (k, v) VALUES ($1, $2), ($3, $4) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
        );
    }

    #[test]
    fn a_statement_has_no_more_values_and_bytes_than_a_database_takes() {
        let rows = |text: &str| vec![vec![SqlValue::Integer(1), SqlValue::text(text)]; 70_000];
        let of = |text| upserts(Kind::PostgreSql, "t", &["k", "v"], 1, rows(text));
        let short = of("");
        assert!(short.iter().all(|s| s.values.len() <= VALUES_MAX));
        assert_eq!(short.iter().map(|s| s.values.len()).sum::<usize>(), 140_000);
        let long = "x".repeat(1 << 10);
        for statement in of(&long) {
            let bytes: usize = statement.values.iter().map(SqlValue::bytes).sum();
            assert!(bytes <= BYTES_MAX + (1 << 11));
        }
    }
}
