//! Texts that repeat, stored once. A text that has a number keeps it for ever.

use rusqlite::{Connection, OptionalExtension};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of texts that are remembered before all are forgotten.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;
/// Bytes that an entry costs beside its text.
const ENTRY_BYTES: usize = 64;

/// Numbers of the writer's recent texts.
#[derive(Default)]
pub(super) struct Interned {
    numbers: HashMap<Box<[u8]>, i64>,
    bytes: usize,
}

impl Interned {
    /// The number of `text`, which is stored if it is new.
    pub(super) fn number(&mut self, connection: &Connection, text: &[u8]) -> rusqlite::Result<i64> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let number = match find(connection, text)? {
            Some(number) => number,
            None => connection
                .prepare_cached("INSERT INTO text (hash, value) VALUES (?1, ?2)")?
                .insert((hash(text), text))?,
        };
        if self.bytes > REMEMBERED_BYTES_MAX {
            self.clear();
        }
        self.bytes += text.len() + ENTRY_BYTES;
        self.numbers.insert(text.into(), number);
        Ok(number)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.bytes = 0;
    }
}

/// Texts of a reader's recent numbers.
#[derive(Default)]
pub(super) struct Texts {
    texts: HashMap<i64, Arc<[u8]>>,
    bytes: usize,
}

impl Texts {
    /// The text with a number; empty if there is none.
    pub(super) fn text(
        &mut self,
        connection: &Connection,
        number: i64,
    ) -> rusqlite::Result<Arc<[u8]>> {
        if let Some(text) = self.texts.get(&number) {
            return Ok(text.clone());
        }
        let text: Option<Vec<u8>> = connection
            .prepare_cached("SELECT value FROM text WHERE id = ?1")?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let text: Arc<[u8]> = text.unwrap_or_default().into();
        if self.bytes > REMEMBERED_BYTES_MAX {
            self.texts.clear();
            self.bytes = 0;
        }
        self.bytes += text.len() + ENTRY_BYTES;
        self.texts.insert(number, text.clone());
        Ok(text)
    }
}

/// The number of `text`, if it is stored.
pub(super) fn find(connection: &Connection, text: &[u8]) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM text WHERE hash = ?1 AND value = ?2")?
        .query_row((hash(text), text), |row| row.get(0))
        .optional()
}

/// FNV-1a. It is stored, so it must stay what it is; two texts with one hash cost only time.
fn hash(text: &[u8]) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    i64::from_ne_bytes(hash.to_ne_bytes())
}
