//! The hash by which texts are found. It has a key of the database's own: texts are what users write, and who could choose many
//! with one hash would have each look-up go through all of them.

use rusqlite::Connection;

/// A database's key of hashes, which is made once: hashes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextKey(u64, u64);

impl TextKey {
    /// The key of a database.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<TextKey> {
        let mut half = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
        let mut half = |name: &str| half.query_row([name], |row| row.get(0));
        let (first, second): (i64, i64) = (half("text_key_first")?, half("text_key_second")?);
        Ok(TextKey(first.cast_unsigned(), second.cast_unsigned()))
    }

    /// The hash of a text, as it is stored.
    pub(super) fn hash(self, text: &[u8]) -> i64 {
        self.sip(text).cast_signed()
    }

    /// SipHash-2-4.
    fn sip(self, text: &[u8]) -> u64 {
        let TextKey(first, second) = self;
        let mut state = [
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = text.as_chunks::<8>();
        for word in words {
            absorb(&mut state, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let length = (text.len() as u64) << 56;
        absorb(&mut state, u64::from_le_bytes(last) | length);
        state[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut state);
        }
        state.into_iter().fold(0, |sum, part| sum ^ part)
    }
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the algorithm's authors give for the key 00 01 .. 0f and texts 00 01 .. of 0, 1, 7, 8 and 15 bytes.
    /// They are stored, so they must never change.
    #[test]
    fn stored_hashes_stay_what_they_are() {
        let key = TextKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let text: Vec<u8> = (0..15).collect();
        for (length, hash) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (7, 0xab02_00f5_8b01_d137),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(key.sip(&text[..length]), hash, "{length}");
        }
    }
}
