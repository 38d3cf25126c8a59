//! The form of a frame, looked at before anything of it is decoded: how many CBOR items it has, how deeply they are
//! nested, and that it ends where they end. Decoded types follow the nesting with their stack, and an item of one byte may
//! take 64 of memory, so a frame of a few megabytes could otherwise cost a gigabyte or the process.

use muster_model::limits::FRAME_DEPTH_MAX;

/// An error in the form of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It ends within an item.
    #[error("the frame ends within a value")]
    Cut,
    /// Something follows the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// It has more items than a message of its type may have.
    #[error("the message has more than {0} values")]
    TooManyItems(usize),
    /// Its items are nested more deeply than in any message.
    #[error("values are nested more than {FRAME_DEPTH_MAX} deep")]
    TooDeep,
    /// It has an item of a kind that no message has: a tag, a length that comes at the end, a reserved number.
    #[error("a value of a kind that no message has")]
    Unknown,
}

/// Checks the form of a frame.
pub(crate) fn check(body: &[u8], items_max: usize) -> Result<(), ShapeError> {
    let mut rest = body;
    // Items that are still to come, by level.
    let mut open = [0u64; FRAME_DEPTH_MAX];
    let mut depth = 0;
    for _ in 0..items_max {
        let inner = item(&mut rest)?;
        if inner > 0 {
            *open.get_mut(depth).ok_or(ShapeError::TooDeep)? = inner;
            depth += 1;
            continue;
        }
        // This item is done, and so are all those of which it was the last.
        loop {
            let Some(level) = depth.checked_sub(1) else {
                return match rest.len() {
                    0 => Ok(()),
                    left => Err(ShapeError::Trailing(left)),
                };
            };
            open[level] -= 1;
            if open[level] > 0 {
                break;
            }
            depth = level;
        }
    }
    Err(ShapeError::TooManyItems(items_max))
}

/// Takes one item; how many items are in it.
fn item(rest: &mut &[u8]) -> Result<u64, ShapeError> {
    let (first, more) = rest.split_first().ok_or(ShapeError::Cut)?;
    *rest = more;
    let (kind, short) = (first >> 5, first & 31);
    let number = match short {
        0..24 => u64::from(short),
        24 => u64::from_be_bytes(padded(take(rest, 1)?)),
        25 => u64::from_be_bytes(padded(take(rest, 2)?)),
        26 => u64::from_be_bytes(padded(take(rest, 4)?)),
        27 => u64::from_be_bytes(padded(take(rest, 8)?)),
        _ => return Err(ShapeError::Unknown),
    };
    match kind {
        // Numbers, and what has no contents.
        0 | 1 | 7 => Ok(0),
        2 | 3 => {
            let length = usize::try_from(number).map_err(|_| ShapeError::Cut)?;
            take(rest, length).map(|_| 0)
        }
        4 => Ok(number),
        5 => number.checked_mul(2).ok_or(ShapeError::Cut),
        _ => Err(ShapeError::Unknown),
    }
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Result<&'b [u8], ShapeError> {
    let (taken, more) = rest.split_at_checked(count).ok_or(ShapeError::Cut)?;
    *rest = more;
    Ok(taken)
}

fn padded(bytes: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out[8 - bytes.len()..].copy_from_slice(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::Encoder;

    fn many(items: u64) -> Vec<u8> {
        let mut e = Encoder::new(Vec::new());
        e.array(items).unwrap();
        (0..items).for_each(|n| {
            e.u64(n).unwrap();
        });
        e.into_writer()
    }

    #[test]
    fn a_message_is_one_value() {
        check(&many(3), 10).unwrap();
        check(&[0], 1).unwrap();
        let mut e = Encoder::new(Vec::new());
        e.map(2).unwrap();
        e.str("a").unwrap().bytes(&[1, 2, 3]).unwrap();
        e.i8(-1).unwrap().array(0).unwrap();
        check(&e.into_writer(), 10).unwrap();
        assert_eq!(check(&[], 10), Err(ShapeError::Cut));
        assert_eq!(check(&[0, 0], 10), Err(ShapeError::Trailing(1)));
        for length in 0..many(3).len() {
            assert_eq!(check(&many(3)[..length], 10), Err(ShapeError::Cut));
        }
    }

    #[test]
    fn items_are_counted() {
        check(&many(9), 10).unwrap();
        assert_eq!(check(&many(10), 10), Err(ShapeError::TooManyItems(10)));
        // Announced, but not there: 2^63 elements, 2^64 - 1 pairs.
        let huge = [0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(check(&huge, 10), Err(ShapeError::Cut));
        let pairs = [0xbb, 255, 255, 255, 255, 255, 255, 255, 255, 0];
        assert_eq!(check(&pairs, 10), Err(ShapeError::Cut));
        let text = [0x7b, 255, 255, 255, 255, 255, 255, 255, 255, 0];
        assert_eq!(check(&text, 10), Err(ShapeError::Cut));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| [vec![0x81; depth], vec![0]].concat();
        check(&nested(FRAME_DEPTH_MAX), 1000).unwrap();
        let deep = nested(FRAME_DEPTH_MAX + 1);
        assert_eq!(check(&deep, 1000), Err(ShapeError::TooDeep));
        let megabytes = nested(8 << 20);
        assert_eq!(check(&megabytes, 1 << 30), Err(ShapeError::TooDeep));
    }

    #[test]
    fn what_no_message_has_is_refused() {
        // A tag, an array and a text without a length, reserved numbers.
        for bytes in [
            &[0xc0, 0][..],
            &[0x9f, 0xff],
            &[0x7f, 0xff],
            &[0x1c],
            &[0xff],
        ] {
            assert_eq!(check(bytes, 10), Err(ShapeError::Unknown), "{bytes:?}");
        }
    }
}
