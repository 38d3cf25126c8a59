//! Operations that every database must have.

use crate::encryption::{DatabaseTls, TlsError};
use crate::sql::{Kind, SqlValue, Statement};
use std::fmt;

/// Where a database is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    /// Kind of the database.
    pub kind: Kind,
    /// Host name, address, or the path of a Unix socket (of MariaDB) or of its directory (of PostgreSQL).
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of the database.
    pub user: String,
    /// The user's password; none where the database does not ask for one.
    pub password: Option<String>,
    /// The database, which has to be there.
    pub database: String,
    /// TLS, which is then asked for; none where the connection is not encrypted.
    pub tls: Option<DatabaseTls>,
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::MariaDb => "mysql",
            Kind::PostgreSql => "postgresql",
        };
        let DatabaseAddress {
            user,
            host,
            port,
            database,
            ..
        } = self;
        match host.starts_with('/') {
            true => write!(f, "{scheme}://{user}@{host} {database}"),
            false => write!(f, "{scheme}://{user}@{host}:{port}/{database}"),
        }
    }
}

/// A connection.
pub trait Database: Send {
    /// Dialect of its language.
    fn kind(&self) -> Kind;

    /// Carries out statements in one transaction, which is durable when this returns.
    ///
    /// # Errors
    /// What the database says. Unless the connection broke, nothing was done; then, nothing or all.
    fn execute(&mut self, statements: &[Statement]) -> Result<(), DatabaseError>;

    /// The rows that a statement gives.
    ///
    /// # Errors
    /// What the database says.
    fn query(&mut self, statement: &Statement) -> Result<Vec<Vec<SqlValue>>, DatabaseError>;
}

/// Why the copy cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database cannot be reached, or does not let the user in.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Which.
        address: String,
        /// Text of the error.
        why: String,
    },
    /// MariaDB refused.
    #[error("the database: {0}")]
    MariaDb(#[from] mysql::Error),
    /// PostgreSQL refused.
    #[error("the database: {}", with_causes(.0))]
    PostgreSql(#[from] postgres::Error),
    /// The connection cannot be encrypted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The controller's accounting cannot be read.
    #[error(transparent)]
    Source(#[from] muster_acct::StoreError),
    /// The tables there are of a newer release.
    #[error(
        "the database's tables have format {found}, this release knows up to {known}: use the release that made them"
    )]
    Newer {
        /// Their format.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// An answer that does not fit the question.
    #[error("the database answered what was not asked for: {0}")]
    Answer(&'static str),
    /// Two processes write.
    #[error(
        "another slurmdbd writes the accounting of cluster {0} to this database: stop it, or give the clusters different names"
    )]
    OtherWriter(String),
}

/// The error with its causes, which say more.
fn with_causes(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
