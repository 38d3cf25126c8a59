//! The tables, explained in docs/accounting.md. Times are milliseconds since 1970, memory is MiB, states are
//! Slurm's names. `(cluster, origin, run)` is a run of a job: a job that was requeued has several, and `origin` tells apart
//! controllers that gave out the same numbers.

use crate::database::{Database, DatabaseError};
use crate::sql::{Kind, SqlValue, Statement};

/// Each entry brings the tables from the format of its index to the next. Entries never change once released. `KEY` is a text that
/// may be in a key, `TEXT` any other.
const MIGRATIONS: &[&[&str]] = &[FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4];

const FORMAT_1: &[&str] = &[
    "CREATE TABLE muster_copy (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, stage BIGINT NOT NULL, reached_row BIGINT NOT NULL,
        log_number BIGINT NOT NULL, turn BIGINT NOT NULL, PRIMARY KEY (cluster, origin))",
    "CREATE TABLE muster_job (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, run BIGINT NOT NULL,
        job_id BIGINT NOT NULL, restarts BIGINT NOT NULL, array_job_id BIGINT, array_task_id BIGINT,
        het_job_id BIGINT, het_offset BIGINT, name TEXT NOT NULL, uid BIGINT NOT NULL, gid BIGINT NOT NULL,
        user_name KEY NOT NULL, group_name KEY NOT NULL, account KEY NOT NULL, partition_name KEY NOT NULL,
        qos KEY NOT NULL, wckey KEY NOT NULL, state KEY NOT NULL, exit_code BIGINT NOT NULL,
        exit_signal BIGINT NOT NULL, derived_exit_code BIGINT NOT NULL, derived_exit_signal BIGINT NOT NULL,
        cancelled_by BIGINT, submit_ms BIGINT NOT NULL, eligible_ms BIGINT, start_ms BIGINT, end_ms BIGINT,
        suspended_ms BIGINT NOT NULL, time_limit_min BIGINT, req_cpus BIGINT NOT NULL, req_nodes BIGINT NOT NULL,
        req_mem_mib BIGINT NOT NULL, alloc_cpus BIGINT NOT NULL, alloc_nodes BIGINT NOT NULL,
        alloc_mem_mib BIGINT NOT NULL, alloc_gres TEXT NOT NULL, node_list TEXT NOT NULL, reason TEXT NOT NULL,
        priority BIGINT NOT NULL, ntasks BIGINT NOT NULL, work_dir TEXT NOT NULL, submit_line TEXT NOT NULL,
        comment TEXT NOT NULL, admin_comment TEXT NOT NULL, constraints TEXT NOT NULL, reservation TEXT NOT NULL,
        submit_host TEXT NOT NULL, is_batch BIGINT NOT NULL, is_requeued BIGINT NOT NULL,
        is_resized BIGINT NOT NULL, is_backfilled BIGINT NOT NULL, PRIMARY KEY (cluster, origin, run))",
    "CREATE INDEX muster_job_end ON muster_job (cluster, end_ms)",
    "CREATE INDEX muster_job_user ON muster_job (cluster, user_name, end_ms)",
    "CREATE INDEX muster_job_account ON muster_job (cluster, account, end_ms)",
    "CREATE INDEX muster_job_number ON muster_job (cluster, job_id)",
    "CREATE TABLE muster_step (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, run BIGINT NOT NULL, place BIGINT NOT NULL,
        step_id KEY NOT NULL, name TEXT NOT NULL, state KEY NOT NULL, exit_code BIGINT NOT NULL,
        exit_signal BIGINT NOT NULL, cancelled_by BIGINT, start_ms BIGINT NOT NULL, end_ms BIGINT,
        nodes BIGINT NOT NULL, tasks BIGINT NOT NULL, cpus BIGINT NOT NULL, mem_mib BIGINT NOT NULL,
        node_list TEXT NOT NULL, submit_line TEXT NOT NULL, distribution TEXT NOT NULL,
        user_us BIGINT, system_us BIGINT, max_rss_kib BIGINT, total_rss_kib BIGINT, max_rss_node TEXT,
        max_rss_task BIGINT, pages BIGINT, disk_read_bytes BIGINT, disk_write_bytes BIGINT,
        measured_tasks BIGINT, min_cpu_us BIGINT, PRIMARY KEY (cluster, origin, run, place))",
    "CREATE TABLE muster_suspension (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, run BIGINT NOT NULL, start_ms BIGINT NOT NULL,
        end_ms BIGINT, PRIMARY KEY (cluster, origin, run, start_ms))",
    "CREATE TABLE muster_node_event (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, id BIGINT NOT NULL, node KEY NOT NULL,
        start_ms BIGINT NOT NULL, end_ms BIGINT, is_down BIGINT NOT NULL, is_drained BIGINT NOT NULL,
        is_failing BIGINT NOT NULL, reason TEXT NOT NULL, uid BIGINT NOT NULL,
        PRIMARY KEY (cluster, origin, id))",
    "CREATE INDEX muster_node_event_node ON muster_node_event (cluster, node, start_ms)",
    "CREATE TABLE muster_transaction (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, id BIGINT NOT NULL, at_ms BIGINT NOT NULL,
        actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, info TEXT NOT NULL,
        users TEXT NOT NULL, accounts TEXT NOT NULL, PRIMARY KEY (cluster, origin, id))",
];

/// Sums, which copies that were complete before get as well.
const FORMAT_2: &[&str] = &[
    "CREATE TABLE muster_used (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, id BIGINT NOT NULL, length KEY NOT NULL,
        begin_ms BIGINT NOT NULL, account KEY NOT NULL, uid BIGINT NOT NULL, user_name KEY NOT NULL,
        wckey KEY NOT NULL, device KEY NOT NULL, run_ms BIGINT NOT NULL, cpu_ms BIGINT NOT NULL,
        mem_mib_ms BIGINT NOT NULL, node_ms BIGINT NOT NULL, planned_cpu_ms BIGINT NOT NULL,
        PRIMARY KEY (cluster, origin, id))",
    "CREATE INDEX muster_used_begin ON muster_used (cluster, length, begin_ms)",
    "CREATE TABLE muster_out_of_service (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, id BIGINT NOT NULL, length KEY NOT NULL,
        begin_ms BIGINT NOT NULL, node KEY NOT NULL, out_ms BIGINT NOT NULL,
        PRIMARY KEY (cluster, origin, id))",
    "UPDATE muster_copy SET stage = 5, reached_row = 0 WHERE stage = 4",
];

/// Times of reservations, which copies that were complete before get as well.
const FORMAT_3: &[&str] = &[
    "CREATE TABLE muster_reservation (
        cluster KEY NOT NULL, origin BIGINT NOT NULL, id BIGINT NOT NULL, name KEY NOT NULL,
        start_ms BIGINT NOT NULL, end_ms BIGINT NOT NULL, is_over BIGINT NOT NULL, node_list TEXT NOT NULL,
        cpus BIGINT NOT NULL, flags TEXT NOT NULL, users TEXT NOT NULL, accounts TEXT NOT NULL,
        PRIMARY KEY (cluster, origin, id))",
    "CREATE INDEX muster_reservation_start ON muster_reservation (cluster, start_ms)",
    "UPDATE muster_copy SET stage = 7, reached_row = 0 WHERE stage = 4",
];

/// Where the controllers of the clusters are that have this database.
const FORMAT_4: &[&str] = &["CREATE TABLE muster_cluster (
        cluster KEY NOT NULL, addresses TEXT NOT NULL, port BIGINT NOT NULL, seen_ms BIGINT NOT NULL,
        PRIMARY KEY (cluster))"];

/// A column of a table.
pub(crate) struct SchemaColumn {
    pub(crate) name: &'static str,
    pub(crate) is_text: bool,
    /// Whether each row has a value.
    pub(crate) is_required: bool,
}

/// The columns of a table, as it is made; none if there is no such table.
pub(crate) fn columns(table: &str) -> Vec<SchemaColumn> {
    let begin = format!("CREATE TABLE {table} (");
    let mut made = MIGRATIONS.iter().flat_map(|format| format.iter());
    let Some(body) = made.find_map(|sql| sql.strip_prefix(begin.as_str())) else {
        return Vec::new();
    };
    let body = body.split("PRIMARY KEY").next().unwrap_or_default();
    let columns = body.split(',').filter_map(|column| {
        let mut words = column.split_whitespace();
        let (name, kind) = (words.next()?, words.next()?);
        Some(SchemaColumn {
            name,
            is_text: kind != "BIGINT",
            is_required: words.next() == Some("NOT"),
        })
    });
    columns.collect()
}

/// Longest text of a key, characters.
pub(crate) const KEY_CHARACTERS_MAX: usize = 191;

/// A statement about tables, in the words of a database.
fn in_words_of(kind: Kind, sql: &str) -> String {
    let key = format!(" VARCHAR({KEY_CHARACTERS_MAX}) ");
    let (text, end) = match kind {
        Kind::MariaDb if sql.starts_with("CREATE TABLE") => (
            " MEDIUMTEXT ",
            " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        ),
        Kind::MariaDb => (" MEDIUMTEXT ", ""),
        Kind::PostgreSql => (" TEXT ", ""),
    };
    let sql = sql.replace(" KEY NOT", &format!("{key}NOT"));
    let sql = sql.replace(" TEXT NOT", &format!("{text}NOT"));
    sql.replace(" TEXT,", &format!("{},", text.trim_end())) + end
}

/// Makes the tables, or brings them up to date. MariaDB ends a transaction at each of these statements, so each step is repeatable:
/// the format that is reached is written after it.
///
/// # Errors
/// The database refuses, or the tables are of a newer release.
pub(crate) fn migrate(database: &mut dyn Database) -> Result<(), DatabaseError> {
    let kind = database.kind();
    let plain = |sql: &str| Statement {
        sql: in_words_of(kind, sql),
        values: Vec::new(),
    };
    database.execute(&[plain(
        "CREATE TABLE IF NOT EXISTS muster_meta (name KEY NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (name))",
    )])?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found = database.query(&plain(
        "SELECT value FROM muster_meta WHERE name = 'format'",
    ))?;
    let found = match found.first().and_then(|row| row.first()) {
        Some(SqlValue::Integer(format)) => *format,
        _ => 0,
    };
    if found > known {
        return Err(DatabaseError::Newer { found, known });
    }
    for (format, migration) in (1..).zip(MIGRATIONS) {
        if format <= found {
            continue;
        }
        for sql in *migration {
            let sql = sql
                .replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
                .replacen("CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1);
            database.execute(&[plain(&sql)])?;
        }
        let reached = "REPLACE INTO muster_meta (name, value) VALUES ('format', ?)";
        let upsert = "INSERT INTO muster_meta (name, value) VALUES ('format', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let sql = match kind {
            Kind::MariaDb => reached,
            Kind::PostgreSql => upsert,
        };
        database.execute(&[Statement::new(kind, sql, vec![SqlValue::Integer(format)])])?;
    }
    Ok(())
}
