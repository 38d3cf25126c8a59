//! Texts that repeat, stored once. A text that has a number keeps it for ever.

use super::text_hash::TextKey;
use rusqlite::{Connection, OptionalExtension, Row};
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
    /// Key of the database, once a text was looked for.
    key: Option<TextKey>,
}

impl Interned {
    /// The number of `text`, which is stored if it is new.
    pub(super) fn number(&mut self, connection: &Connection, text: &[u8]) -> rusqlite::Result<i64> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let key = match self.key {
            Some(key) => key,
            None => *self.key.insert(TextKey::of(connection)?),
        };
        let number = match find(connection, key, text)? {
            Some(number) => number,
            None => connection
                .prepare_cached("INSERT INTO text (hash, value) VALUES (?1, ?2)")?
                .insert((key.hash(text), text))?,
        };
        if self.bytes > REMEMBERED_BYTES_MAX {
            self.clear();
        }
        self.bytes += text.len() + ENTRY_BYTES;
        self.numbers.insert(text.into(), number);
        Ok(number)
    }

    /// Forgets all texts.
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
pub(super) fn find(
    connection: &Connection,
    key: TextKey,
    text: &[u8],
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM text WHERE hash = ?1 AND value = ?2")?
        .query_row((key.hash(text), text), |row| row.get(0))
        .optional()
}

/// Gives all texts of a database their hashes with its key, which it has got since.
pub(super) fn rehash(connection: &Connection) -> rusqlite::Result<()> {
    let key = TextKey::of(connection)?;
    let mut next =
        connection.prepare("SELECT id, value FROM text WHERE id > ?1 ORDER BY id LIMIT 1")?;
    let mut set = connection.prepare("UPDATE text SET hash = ?2 WHERE id = ?1")?;
    let mut last = i64::MIN;
    loop {
        let hash_of = |row: &Row<'_>| Ok((row.get(0)?, key.hash(row.get_ref(1)?.as_bytes()?)));
        let Some((id, hash)) = next.query_row([last], hash_of).optional()? else {
            return Ok(());
        };
        set.execute((id, hash))?;
        last = id;
    }
}
