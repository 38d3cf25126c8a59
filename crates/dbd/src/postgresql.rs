//! PostgreSQL.

use crate::database::{Database, DatabaseAddress, DatabaseError};
use crate::sql::{Kind, SqlValue, Statement};
use postgres::config::SslMode;
use postgres::types::private::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Row};
use std::error::Error;
use std::time::Duration;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Time limit of a connection attempt.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The session: a statement that does not end is given up, and a committed one is durable.
const SESSION: &str = "SET statement_timeout = '120s'; SET synchronous_commit = on; SET client_min_messages = warning";

/// A connection.
pub(crate) struct PostgreSql {
    client: Client,
}

impl PostgreSql {
    pub(crate) fn connect(address: &DatabaseAddress) -> Result<PostgreSql, DatabaseError> {
        let mut config = Config::new();
        config
            .host(&address.host)
            .port(address.port)
            .user(&address.user)
            .dbname(&address.database)
            .application_name("slurmdbd")
            .connect_timeout(CONNECT_WAIT)
            .tcp_user_timeout(CONNECT_WAIT);
        if let Some(password) = &address.password {
            config.password(password);
        }
        let connected = match &address.tls {
            None => config.connect(NoTls),
            // A Unix socket has no name that a certificate could have.
            Some(_) if address.host.starts_with('/') => config.connect(NoTls),
            Some(tls) => {
                config.ssl_mode(SslMode::Require);
                config.connect(MakeRustlsConnect::new(tls.client_config()?))
            }
        };
        let connected = connected.map_err(DatabaseError::from);
        let mut client = connected.map_err(|e| DatabaseError::Connect {
            address: address.to_string(),
            why: e.to_string(),
        })?;
        client.batch_execute(SESSION)?;
        Ok(PostgreSql { client })
    }
}

impl ToSql for SqlValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Integer(number) => number.to_sql(kind, out),
            SqlValue::Text(text) => text.as_str().to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT | Type::VARCHAR)
    }

    to_sql_checked!();
}

fn parameters(values: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|v| v as &(dyn ToSql + Sync)).collect()
}

fn values(row: &Row) -> Result<Vec<SqlValue>, postgres::Error> {
    let value = |at: usize| -> Result<SqlValue, postgres::Error> {
        Ok(match *row.columns()[at].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.into(),
            _ => match row.try_get::<_, Option<String>>(at)? {
                Some(text) => SqlValue::Text(text),
                None => SqlValue::Null,
            },
        })
    };
    (0..row.len()).map(value).collect()
}

impl Database for PostgreSql {
    fn kind(&self) -> Kind {
        Kind::PostgreSql
    }

    fn execute(&mut self, statements: &[Statement]) -> Result<(), DatabaseError> {
        let mut transaction = self.client.transaction()?;
        for statement in statements {
            transaction.execute(&statement.sql, &parameters(&statement.values))?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn query(&mut self, statement: &Statement) -> Result<Vec<Vec<SqlValue>>, DatabaseError> {
        let rows = self
            .client
            .query(&statement.sql, &parameters(&statement.values))?;
        let rows = rows.iter().map(values);
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
