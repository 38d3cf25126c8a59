//! Messages that a hostile peer could make of a valid one: items of its CBOR replaced by others, so that most still decode.

use proptest::prelude::*;

/// What becomes of one item, which is chosen by a number.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Another number in its place.
    Number(usize, u64),
    /// A negative number in its place.
    Negative(usize, u64),
    /// A text of so many bytes, with an odd character in it or not.
    Text(usize, usize, Option<char>),
    /// A copy of another item, with all that is in it.
    Copy(usize, usize),
    /// Null.
    Null(usize),
    /// A byte of the message.
    Byte(usize, u8),
    /// The message ends there.
    Cut(usize),
}

/// Numbers at which something could go wrong.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    3,
    63,
    64,
    65,
    1000,
    4095,
    65_535,
    1 << 20,
    (1 << 30) - 1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 2,
    (1 << 32) - 1,
    1 << 32,
    253_402_300_799_999,
    (1 << 63) - 1,
    u64::MAX,
];

/// One change.
pub(crate) fn change() -> impl Strategy<Value = Change> {
    let number = prop_oneof![
        4 => (0..NUMBERS.len()).prop_map(|at| NUMBERS[at]),
        1 => any::<u64>(),
        2 => 0..20u64,
    ];
    let length = prop_oneof![0usize..40, 1020usize..1030, 65_530usize..65_540];
    let odd = prop_oneof![
        3 => Just(None),
        1 => "[\\x00\\[\\],:*&|()-=%@+\\n ]".prop_map(|s| s.chars().next()),
    ];
    prop_oneof![
        8 => (any::<usize>(), number.clone()).prop_map(|(at, n)| Change::Number(at, n)),
        2 => (any::<usize>(), number).prop_map(|(at, n)| Change::Negative(at, n)),
        4 => (any::<usize>(), length, odd).prop_map(|(at, len, odd)| Change::Text(at, len, odd)),
        4 => (any::<usize>(), any::<usize>()).prop_map(|(at, of)| Change::Copy(at, of)),
        2 => any::<usize>().prop_map(Change::Null),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => any::<usize>().prop_map(Change::Cut),
    ]
}

/// The message with the change made to it.
pub(crate) fn changed(bytes: &[u8], change: &Change) -> Vec<u8> {
    let all = items(bytes);
    let item = |at: usize| all[at % all.len()].clone();
    let put = |range: std::ops::Range<usize>, with: &[u8]| {
        [&bytes[..range.start], with, &bytes[range.end..]].concat()
    };
    match change {
        Change::Number(at, number) => put(item(*at), &head(0, *number)),
        Change::Negative(at, number) => put(item(*at), &head(1, *number)),
        Change::Text(at, length, odd) => {
            let mut text = "n".repeat(*length);
            text.extend(odd);
            let encoded = [head(3, text.len() as u64), text.into_bytes()].concat();
            put(item(*at), &encoded)
        }
        Change::Copy(at, of) => put(item(*at), &bytes[item(*of)]),
        Change::Null(at) => put(item(*at), &[0xf6]),
        Change::Byte(at, byte) => {
            let mut out = bytes.to_vec();
            let at = *at % out.len();
            out[at] = *byte;
            out
        }
        Change::Cut(at) => bytes[..*at % bytes.len()].to_vec(),
    }
}

/// The head of an item.
fn head(kind: u8, number: u64) -> Vec<u8> {
    let kind = kind << 5;
    let with = |short: u8, bytes: &[u8]| [&[kind | short], bytes].concat();
    match number {
        0..24 => vec![kind | number as u8],
        24..0x100 => with(24, &(number as u8).to_be_bytes()),
        0x100..0x1_0000 => with(25, &(number as u16).to_be_bytes()),
        0x1_0000..0x1_0000_0000 => with(26, &(number as u32).to_be_bytes()),
        _ => with(27, &number.to_be_bytes()),
    }
}

/// Where each item of valid CBOR is, with all that is in it.
fn items(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut all = Vec::new();
    walk(bytes, 0, &mut all);
    all
}

fn walk(bytes: &[u8], from: usize, all: &mut Vec<std::ops::Range<usize>>) -> usize {
    let place = all.len();
    all.push(from..from);
    let (kind, short) = (bytes[from] >> 5, bytes[from] & 31);
    let width = match short {
        24..=27 => 1usize << (short - 24),
        _ => 0,
    };
    let mut number = u64::from(short);
    let mut at = from + 1 + width;
    if width > 0 {
        let digits = bytes[from + 1..at].iter();
        number = digits.fold(0, |n, byte| n << 8 | u64::from(*byte));
    }
    let inner = match kind {
        4 => number,
        5 => 2 * number,
        _ => 0,
    };
    for _ in 0..inner {
        at = walk(bytes, at, all);
    }
    if matches!(kind, 2 | 3) {
        at += number as usize;
    }
    all[place].end = at;
    at
}
