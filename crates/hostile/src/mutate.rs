//! Wrong, extreme and contradictory values for every place of a message.

use crate::cbor::{NULL, Value};
use crate::random::Random;

/// Length of texts that are beyond every limit on a name or path, and still cheap to send.
const LONG: usize = 70_000;
/// Elements of a list that is far longer than any that users write.
const MANY: usize = 5_000;

/// Values in all of the copies of an element that a list gets. Without it an element that is a long list of such lists, which the
/// fuzzing engine arrives at, takes gigabytes.
const COPIED_MAX: usize = 100_000;

/// Values for the place of another, none of which its type is sure to allow.
pub fn replacements(value: &Value) -> Vec<Value> {
    match value {
        Value::Unsigned(_) | Value::Negative(_) => numbers(value),
        Value::Text(_) => texts(),
        Value::Bytes(bytes) => vec![
            Value::Bytes(Vec::new()),
            Value::Bytes(vec![0xff]),
            Value::Bytes(vec![0; bytes.len() + 1]),
            Value::Bytes(vec![0x9f; LONG]),
            Value::text("x"),
            NULL,
        ],
        Value::Array(items) => lists(items),
        Value::Map(pairs) => maps(pairs),
        // An absent option, or a switch.
        Value::Simple(_) => vec![
            Value::Simple(20),
            Value::Simple(21),
            Value::Unsigned(0),
            Value::Unsigned(u64::from(u32::MAX)),
            Value::Unsigned(u64::MAX),
            Value::text("x"),
            Value::text(""),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Unsigned(0), Value::Unsigned(0)]),
        ],
        Value::Tag(..) | Value::Float(_) | Value::Raw(_) => vec![NULL],
    }
}

fn numbers(value: &Value) -> Vec<Value> {
    let mut all: Vec<Value> = [
        0,
        1,
        2,
        0xff,
        0xffff,
        0x1_0000,
        (1 << 31) - 1,
        1 << 31,
        u64::from(u32::MAX) - 1,
        u64::from(u32::MAX),
        1 << 32,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX,
    ]
    .map(Value::Unsigned)
    .to_vec();
    all.extend([0, (1 << 31) - 1, (1 << 63) - 1, u64::MAX].map(Value::Negative));
    all.extend([Value::text("1"), Value::Array(Vec::new()), NULL]);
    all.retain(|other| other != value);
    all
}

fn texts() -> Vec<Value> {
    let mut all: Vec<Value> = [
        "",
        " ",
        "\0",
        "a\0b",
        "\x1b[2J\r\n\x07",
        "-x",
        "--help",
        "../../../../etc/shadow",
        "/proc/self/mem",
        "%",
        "%9999999999d%s%n",
        "[0-99999999]",
        "n[1-3,2-9]",
        "ALL",
        "root",
        "4294967295",
        "-1",
        "1-",
        "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((",
        "afterok:1:2:3:4,singleton?after:1+99999999999",
        "\u{202e}\u{0}\u{10ffff}",
    ]
    .map(Value::text)
    .to_vec();
    all.push(Value::Text(vec![0xff, 0xfe, 0xc0, 0x80]));
    all.push(Value::Text(vec![b'x'; LONG]));
    all.extend([Value::Unsigned(0), NULL]);
    all
}

fn lists(items: &[Value]) -> Vec<Value> {
    let mut all = vec![
        Value::Array(Vec::new()),
        NULL,
        // Many elements that are announced and not there: at the end of a message, or in place of what follows.
        Value::Raw(vec![0x9b, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]),
        Value::Raw(vec![0x9f]),
        Value::Array(vec![NULL; MANY]),
    ];
    if let Some((last, rest)) = items.split_last() {
        all.push(Value::Array(rest.to_vec()));
        let copies = MANY.min(COPIED_MAX / last.count());
        all.push(Value::Array(vec![last.clone(); copies]));
        all.push(Value::Array([items, items].concat()));
        all.push(Value::Array(items.iter().rev().cloned().collect()));
    }
    all
}

fn maps(pairs: &[(Value, Value)]) -> Vec<Value> {
    let max = u64::from(u32::MAX);
    let mut all: Vec<Value> = [
        &[][..],
        &[(5, 1)],
        &[(0, 3), (2, 9)],
        &[(0, 3), (4, 9)],
        &[(4, 9), (0, 1)],
        &[(1, 1), (1, 2)],
        &[(0, max)],
        &[(max, max)],
        &[(0, 1 << 32)],
        &[(1 << 63, u64::MAX)],
    ]
    .map(Value::ranges)
    .to_vec();
    all.push(Value::Map(vec![(Value::text("a"), NULL)]));
    all.push(Value::Raw(vec![
        0xbb, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff,
    ]));
    let many = (0..MANY as u64).map(|n| (2 * n, 2 * n));
    all.push(Value::ranges(&many.collect::<Vec<_>>()));
    all.push(Value::Map([pairs, pairs].concat()));
    all
}

/// Copies of a message with one place changed: every place, every value for it.
pub fn each(message: &Value) -> impl Iterator<Item = Value> + '_ {
    message.places().into_iter().flat_map(move |place| {
        let old = message.get(&place).cloned().unwrap_or(NULL);
        let copy = move |new| message.with(&place, new);
        replacements(&old).into_iter().map(copy)
    })
}

/// A copy with one place changed, as a generator decides.
#[must_use]
pub fn one(message: &Value, random: &mut Random) -> Value {
    let places = message.places();
    let changed = random.pick(&places).and_then(|place| {
        let values = replacements(message.get(place)?);
        Some(message.with(place, random.pick(&values)?.clone()))
    });
    changed.unwrap_or_else(|| message.clone())
}

/// A copy with one to four places changed, as a generator decides.
#[must_use]
pub fn several(message: &Value, random: &mut Random) -> Value {
    let times = 1 + random.below(4);
    (0..times).fold(message.clone(), |copy, _| one(&copy, random))
}

/// A copy with some places changed, for a fuzzing engine: by wrong values, by values from other places of the message, by lists
/// that lose, repeat or exchange elements, and by what the engine makes of a text's or a number's bytes.
#[must_use]
pub fn by_engine(
    message: &Value,
    random: &mut Random,
    engine: &mut dyn FnMut(&mut Vec<u8>),
) -> Value {
    let times = 1 + random.below(3);
    (0..times).fold(message.clone(), |copy, _| {
        step_of_engine(&copy, random, engine)
    })
}

fn step_of_engine(
    message: &Value,
    random: &mut Random,
    engine: &mut dyn FnMut(&mut Vec<u8>),
) -> Value {
    let places = message.places();
    let (Some(place), Some(other)) = (random.pick(&places).cloned(), random.pick(&places).cloned())
    else {
        return message.clone();
    };
    let mut copy = message.clone();
    let from = message.get(&other).cloned().unwrap_or(NULL);
    let kind = random.below(6);
    if kind == 0 {
        return one(message, random);
    }
    let Some(value) = copy.get_mut(&place) else {
        return copy;
    };
    match value {
        Value::Unsigned(number) | Value::Negative(number) => {
            let mut bytes = number.to_be_bytes().to_vec();
            match random.below(3) {
                0 => engine(&mut bytes),
                1 => bytes = number.wrapping_add(1).to_be_bytes().to_vec(),
                _ => bytes = (random.number() >> random.below(64)).to_be_bytes().to_vec(),
            }
            bytes.resize(8, 0);
            let bytes: [u8; 8] = bytes.try_into().unwrap_or_default();
            *number = u64::from_be_bytes(bytes);
        }
        Value::Text(bytes) | Value::Bytes(bytes) if kind < 4 => engine(bytes),
        Value::Array(items) if !items.is_empty() => {
            let (a, b) = (random.below(items.len()), random.below(items.len()));
            match random.below(4) {
                0 => {
                    items.remove(a);
                }
                1 => items.insert(a, items[b].clone()),
                2 => items.swap(a, b),
                _ => items.push(from),
            }
        }
        Value::Map(pairs) => pairs.push((from.clone(), from)),
        _ => *value = from,
    }
    copy
}

/// Bytes of a message with a few of them changed, left out or put in, as a generator decides.
#[must_use]
pub fn bytes(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = message.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(copy.len());
        match random.below(4) {
            0 => copy.truncate(at),
            1 => copy.insert(at.min(copy.len()), random.number() as u8),
            _ if copy.is_empty() => {}
            2 => {
                copy.remove(at);
            }
            _ => copy[at] ^= 1 << random.below(8),
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each replacement of a list of long lists had five thousand times its size.
    #[test]
    fn lists_of_long_lists_do_not_grow_without_bound() {
        let mut value = Value::Array(vec![NULL]);
        for _ in 0..4 {
            let all = lists(std::slice::from_ref(&value));
            let longest = all.into_iter().max_by_key(Value::count);
            value = longest.unwrap_or(NULL);
            assert!(value.count() <= 10 * COPIED_MAX, "{}", value.count());
        }
    }

    #[test]
    fn every_place_is_changed() {
        let message = Value::Array(vec![
            Value::Unsigned(7),
            Value::text("a"),
            Value::ranges(&[(1, 2)]),
        ]);
        let changed: Vec<Value> = each(&message).collect();
        for place in message.places() {
            let old = message.get(&place);
            assert!(
                changed.iter().any(|copy| copy.get(&place) != old),
                "{place:?}"
            );
        }
        assert!(changed.iter().all(|copy| *copy != message));
    }

    #[test]
    fn a_seed_decides() {
        let message = Value::of(&muster_model::spec::JobSpec::default());
        let run = |seed| {
            let mut random = Random::new(seed);
            let copies = (0..50).map(|_| several(&message, &mut random).encode());
            copies.collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
