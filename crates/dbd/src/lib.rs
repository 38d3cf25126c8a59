//! Accounting in MariaDB or PostgreSQL, for sites that ask their own database: a copy of the controller's accounting, which
//! follows it.
//!
//! The controller writes to its own file and knows nothing of this. `slurmdbd` reads from that file what the copy lacks and
//! writes it, with how far it is, in one transaction: whatever stops at any moment, no row is missing later or there twice. While
//! the database is away, what waits is the controller's file itself.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod database;
mod encryption;
pub mod import;
mod mariadb;
pub mod parquet;
mod postgresql;
mod replica;
mod schema;
mod sql;
mod tables;

pub use database::{Database, DatabaseAddress, DatabaseError};
pub use encryption::{ClientFiles, DatabaseTls, TlsError};
pub use replica::Replica;
pub use sql::Kind;

/// Connects to a database.
///
/// # Errors
/// It cannot be reached, or does not let this user in.
pub fn connect(address: &DatabaseAddress) -> Result<Box<dyn Database>, DatabaseError> {
    Ok(match address.kind {
        Kind::MariaDb => Box::new(mariadb::MariaDb::connect(address)?),
        Kind::PostgreSql => Box::new(postgresql::PostgreSql::connect(address)?),
    })
}
