//! MariaDB and MySQL.

use crate::database::{Database, DatabaseAddress, DatabaseError};
use crate::sql::{Kind, SqlValue, Statement};
use mysql::prelude::Queryable as _;
use mysql::{ClientIdentity, Conn, OptsBuilder, Params, SslOpts, TxOpts};
use std::time::Duration;

/// Time limit of a connection attempt.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Time limit of a statement before the connection is given up.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// The session: texts as they are, and nothing cut or replaced silently.
const SESSION: [&str; 2] = [
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES', time_zone = '+00:00'",
];

/// A connection.
pub(crate) struct MariaDb {
    connection: Conn,
}

/// Connects, and begins the session with these statements.
pub(crate) fn open(
    address: &DatabaseAddress,
    session: &[&str],
    answer_wait: Duration,
) -> Result<Conn, DatabaseError> {
    let options = OptsBuilder::new()
        .user(Some(&address.user))
        .pass(address.password.as_deref())
        .db_name(Some(&address.database))
        .prefer_socket(false)
        .tcp_connect_timeout(Some(CONNECT_WAIT))
        .read_timeout(Some(answer_wait))
        .write_timeout(Some(answer_wait))
        .ssl_opts(tls(address)?)
        .init(session.to_vec());
    let options = match address.host.starts_with('/') {
        true => options.socket(Some(&address.host)),
        false => options
            .ip_or_hostname(Some(&address.host))
            .tcp_port(address.port),
    };
    Conn::new(options).map_err(|e| DatabaseError::Connect {
        address: address.to_string(),
        why: e.to_string(),
    })
}

/// TLS as the address asks for it: the server has to have it, and a certificate of its name.
fn tls(address: &DatabaseAddress) -> Result<Option<SslOpts>, DatabaseError> {
    let Some(tls) = &address.tls else {
        return Ok(None);
    };
    // Read here first, for errors that name the file.
    tls.client_config()?;
    let identity = tls.identity.clone();
    let identity = identity.map(|files| ClientIdentity::new(files.certificate, files.key));
    let authorities = Some(tls.authorities.clone());
    let options = SslOpts::default().with_root_cert_path(authorities);
    Ok(Some(options.with_client_identity(identity)))
}

impl MariaDb {
    pub(crate) fn connect(address: &DatabaseAddress) -> Result<MariaDb, DatabaseError> {
        let connection = open(address, &SESSION, ANSWER_WAIT)?;
        Ok(MariaDb { connection })
    }
}

fn parameters(values: &[SqlValue]) -> Params {
    if values.is_empty() {
        return Params::Empty;
    }
    let values = values.iter().map(|value| match value {
        SqlValue::Null => mysql::Value::NULL,
        SqlValue::Integer(number) => mysql::Value::Int(*number),
        SqlValue::Text(text) => mysql::Value::Bytes(text.clone().into_bytes()),
    });
    Params::Positional(values.collect())
}

fn value(value: mysql::Value) -> SqlValue {
    match value {
        mysql::Value::Int(number) => SqlValue::Integer(number),
        mysql::Value::UInt(number) => SqlValue::unsigned(number),
        mysql::Value::Bytes(bytes) => SqlValue::Text(String::from_utf8_lossy(&bytes).into_owned()),
        _ => SqlValue::Null,
    }
}

impl Database for MariaDb {
    fn kind(&self) -> Kind {
        Kind::MariaDb
    }

    fn execute(&mut self, statements: &[Statement]) -> Result<(), DatabaseError> {
        let mut transaction = self.connection.start_transaction(TxOpts::default())?;
        for statement in statements {
            transaction.exec_drop(&statement.sql, parameters(&statement.values))?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn query(&mut self, statement: &Statement) -> Result<Vec<Vec<SqlValue>>, DatabaseError> {
        let rows: Vec<mysql::Row> = self
            .connection
            .exec(&statement.sql, parameters(&statement.values))?;
        let rows = rows.into_iter();
        Ok(rows
            .map(|row| row.unwrap().into_iter().map(value).collect())
            .collect())
    }
}
