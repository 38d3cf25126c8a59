//! Base64 in the alphabet for URLs without padding (RFC 4648, 5), as tokens and key files have it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes bytes, without padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..=chunk.len() {
            let value = bits >> (18 - 6 * index) & 63;
            text.push(char::from(ALPHABET[value as usize]));
        }
    }
    text
}

/// Decodes a text without padding. Each value has one text only: bits that are left over must be zero.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    decode_with(text, |c| match c {
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    })
}

/// Decodes a text in either alphabet, with padding or without, as administrators write keys.
pub(crate) fn decode_any(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|c| *c != b'=').map_or(0, |at| at + 1);
    if text.len() - end > 2 {
        return None;
    }
    decode_with(&text[..end], |c| match c {
        b'-' | b'+' => Some(62),
        b'_' | b'/' => Some(63),
        _ => None,
    })
}

fn decode_with(text: &[u8], last_two: impl Fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        _ => last_two(c),
    };
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut bits = 0_u32;
        for c in chunk {
            bits = bits << 6 | u32::from(value(*c)?);
        }
        bits <<= 6 * (4 - chunk.len());
        let [_, decoded @ ..] = bits.to_be_bytes();
        let (count, rest) = match chunk.len() {
            2 => (1, &decoded[1..]),
            3 => (2, &decoded[2..]),
            4 => (3, &decoded[3..]),
            _ => return None,
        };
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(&decoded[..count]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_of_the_standard_are_read_and_written() {
        let pairs: [(&[u8], &str); 7] = [
            (b"", ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"fooba", "Zm9vYmE"),
            (b"\xfb\xff", "-_8"),
        ];
        for (bytes, text) in pairs {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
        }
        assert_eq!(decode_any(b"+/8=").as_deref(), Some(&b"\xfb\xff"[..]));
        assert_eq!(decode_any(b"Zg==").as_deref(), Some(&b"f"[..]));
        for wrong in ["Z", "Zh", "Zm9", "+/8", "Zg==", "Z g", "Zg\n"] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(decode_any(b"Zg==="), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_stands_for_it(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            noise in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let text = encode(&bytes);
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes));
            if let Some(read) = decode(&noise) {
                prop_assert_eq!(encode(&read).into_bytes(), noise);
            }
        }
    }
}
