//! Strings of bits, in which programs keep indices of nodes or of tasks. In memory they are a mark, their length, and words of 64
//! bits, as in Slurm.

#![allow(unsafe_code)]

use crate::error::CallError;
use crate::memory;
use libc::{c_char, c_int};
use muster_model::hostlist;
use std::ptr::null_mut;

/// `BITSTR_MAGIC`.
const MARK: i64 = 0x4243_4445;
/// Words before those with bits.
const HEAD: usize = 2;
const WORD_BITS: usize = 64;
/// Most bits of one string: more than a cluster has nodes or an array has tasks.
const BITS_MAX: usize = 1 << 30;

/// A string of bits of a program's.
struct BitString {
    size: usize,
    /// The words after the head, which are as many as [`BitString::words`]. They are no slice: programs may give one string as both
    /// arguments.
    first: *mut i64,
}

impl BitString {
    /// The bits of a pointer.
    ///
    /// # Safety
    /// `at` is null or a string of `slurm_bit_alloc`, which is not freed and no other thread uses while the value is there.
    unsafe fn of(at: *mut i64) -> Result<BitString, CallError> {
        let wrong = || CallError::argument("no string of bits");
        if at.is_null() {
            return Err(wrong());
        }
        // SAFETY: a string has a head.
        let (mark, size) = unsafe { (*at, *at.add(1)) };
        let size = usize::try_from(size).map_err(|_| wrong())?;
        if mark != MARK {
            return Err(wrong());
        }
        // SAFETY: the words follow the head.
        let first = unsafe { at.add(HEAD) };
        Ok(BitString { size, first })
    }

    /// Number of words.
    fn words(&self) -> usize {
        self.size.div_ceil(WORD_BITS)
    }

    fn word(&self, place: usize) -> i64 {
        assert!(place < self.words(), "a place of the string");
        // SAFETY: the string has that word.
        unsafe { self.first.add(place).read() }
    }

    fn put_word(&mut self, place: usize, word: i64) {
        assert!(place < self.words(), "a place of the string");
        // SAFETY: the string has that word.
        unsafe { self.first.add(place).write(word) };
    }

    fn has(&self, bit: usize) -> bool {
        bit < self.size && self.word(bit / WORD_BITS) >> (bit % WORD_BITS) & 1 != 0
    }

    fn put(&mut self, bit: usize, on: bool) {
        if bit >= self.size {
            return;
        }
        let mask = 1 << (bit % WORD_BITS);
        let word = self.word(bit / WORD_BITS);
        let word = if on { word | mask } else { word & !mask };
        self.put_word(bit / WORD_BITS, word);
    }

    fn put_range(&mut self, from: i64, to: i64, on: bool) {
        let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else {
            return;
        };
        for bit in from..=to.min(self.size.saturating_sub(1)) {
            self.put(bit, on);
        }
    }

    fn set_bits(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.size).filter(|bit| self.has(*bit))
    }

    fn count_in(&self, from: i32, to: i32) -> i32 {
        let (from, to) = (index(from.into()), index(to.into()).min(self.size));
        number((from..to).filter(|bit| self.has(*bit)).count())
    }

    /// The first of `wanted` neighbours that are all on, or all off.
    fn neighbours(&self, wanted: i32, on: bool) -> Option<usize> {
        let wanted = index(wanted.into());
        let mut run = 0;
        for bit in 0..self.size {
            run = if self.has(bit) == on { run + 1 } else { 0 };
            if run == wanted && wanted > 0 {
                return Some(bit + 1 - wanted);
            }
        }
        None
    }

    fn clear(&mut self) {
        (0..self.words()).for_each(|place| self.put_word(place, 0));
    }

    /// `0-3,5`.
    fn ranges(&self) -> String {
        let all: Vec<u32> = self
            .set_bits()
            .filter_map(|bit| u32::try_from(bit).ok())
            .collect();
        hostlist::ranges(&all)
    }

    /// Hexadecimal digits, the highest bits first.
    fn hex(&self) -> String {
        let digits = self.size.div_ceil(4);
        let digit = |place: usize| {
            let value = (0..4).fold(0, |sum, bit| {
                sum | u32::from(self.has(place * 4 + bit)) << bit
            });
            char::from_digit(value, 16)
                .unwrap_or('0')
                .to_ascii_uppercase()
        };
        (0..digits).rev().map(digit).collect()
    }
}

fn index(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

fn number<T: TryFrom<usize> + Default>(count: usize) -> T {
    T::try_from(count).unwrap_or_default()
}

fn place(found: Option<usize>) -> i64 {
    found.map_or(-1, number)
}

/// A string with all bits off.
fn made(size: i64) -> *mut i64 {
    let Some(size) = usize::try_from(size).ok().filter(|size| *size <= BITS_MAX) else {
        return null_mut();
    };
    let mut words = vec![0; HEAD + size.div_ceil(WORD_BITS)];
    (words[0], words[1]) = (MARK, number(size));
    memory::array(&words)
}

/// A string with some bits on.
///
/// # Safety
/// None: the string is new.
unsafe fn made_of(size: i64, bits: impl IntoIterator<Item = usize>) -> *mut i64 {
    let at = made(size);
    // SAFETY: it was made just now.
    if let Ok(mut own) = unsafe { BitString::of(at) } {
        bits.into_iter().for_each(|bit| own.put(bit, true));
    }
    at
}

/// A string with some bits on, for other modules.
pub fn with_bits(size: i64, bits: Vec<usize>) -> *mut i64 {
    // SAFETY: the string is new.
    unsafe { made_of(size, bits) }
}

value_functions! {
    /// A string of bits, all off.
    fn slurm_bit_alloc(size: i64) -> *mut i64, else null_mut(), {
        Ok(made(size))
    }
    /// Changes the length of a string; bits that are added are off. A length that cannot be leaves the string as it is.
    fn slurm_bit_realloc(at: *mut *mut i64, size: i64) -> *mut i64, else null_mut(), {
        let Some(place) = at.as_mut() else { return Ok(null_mut()) };
        let old = BitString::of(*place)?;
        let new = made_of(size, old.set_bits());
        if new.is_null() {
            return Err(CallError::argument("no length of a string of bits"));
        }
        libc::free((*place).cast());
        *place = new;
        Ok(new)
    }
    /// A copy.
    fn slurm_bit_copy(at: *mut i64) -> *mut i64, else null_mut(), {
        let own = BitString::of(at)?;
        Ok(made_of(number(own.size), own.set_bits()))
    }
    /// Whether a bit is on.
    fn slurm_bit_test(at: *mut i64, bit: i64) -> c_int, else 0, {
        Ok((bit >= 0 && BitString::of(at)?.has(index(bit))).into())
    }
    /// Number of bits.
    fn slurm_bit_size(at: *mut i64) -> i64, else 0, {
        Ok(number(BitString::of(at)?.size))
    }
    /// The first bit that is off.
    fn slurm_bit_ffc(at: *mut i64) -> i64, else -1, {
        let own = BitString::of(at)?;
        Ok(place((0..own.size).find(|bit| !own.has(*bit))))
    }
    /// The first bit that is on.
    fn slurm_bit_ffs(at: *mut i64) -> i64, else -1, {
        Ok(place(BitString::of(at)?.set_bits().next()))
    }
    /// The last bit that is on.
    fn slurm_bit_fls(at: *mut i64) -> i64, else -1, {
        let own = BitString::of(at)?;
        Ok(place((0..own.size).rev().find(|bit| own.has(*bit))))
    }
    /// The first of some neighbours that are all off.
    fn slurm_bit_nffc(at: *mut i64, wanted: i32) -> i64, else -1, {
        Ok(place(BitString::of(at)?.neighbours(wanted, false)))
    }
    /// The first of some neighbours that are all on.
    fn slurm_bit_nffs(at: *mut i64, wanted: i32) -> i64, else -1, {
        Ok(place(BitString::of(at)?.neighbours(wanted, true)))
    }
    /// The first of some neighbours that are all off, looked for from a place on and then from the front.
    fn slurm_bit_noc(at: *mut i64, wanted: i32, seed: i32) -> i64, else -1, {
        let own = BitString::of(at)?;
        let (wanted, from) = (index(wanted.into()), index(seed.into()));
        let fits = |first: usize| (first..first + wanted).all(|bit| bit < own.size && !own.has(bit));
        let found = (from..own.size).find(|first| fits(*first));
        Ok(place(found.or_else(|| own.neighbours(number(wanted), false))))
    }
    /// Number of bits that are on.
    fn slurm_bit_set_count(at: *mut i64) -> i32, else 0, {
        Ok(number(BitString::of(at)?.set_bits().count()))
    }
    /// Number of bits that are on, from one to before another.
    fn slurm_bit_set_count_range(at: *mut i64, from: i32, to: i32) -> i32, else 0, {
        Ok(BitString::of(at)?.count_in(from, to))
    }
    /// Number of bits that are off.
    fn slurm_bit_clear_count(at: *mut i64) -> i32, else 0, {
        let own = BitString::of(at)?;
        Ok(number(own.size - own.set_bits().count()))
    }
    /// Number of bits that are off, from one to before another.
    fn slurm_bit_clear_count_range(at: *mut i64, from: i32, to: i32) -> i32, else 0, {
        let own = BitString::of(at)?;
        let to = to.min(number(own.size));
        Ok((to - from.max(0)).max(0) - own.count_in(from, to))
    }
    /// Most neighbours that are all on.
    fn slurm_bit_nset_max_count(at: *mut i64) -> i32, else 0, {
        let own = BitString::of(at)?;
        let mut runs = (0, 0);
        for bit in 0..own.size {
            runs.0 = if own.has(bit) { runs.0 + 1 } else { 0 };
            runs.1 = runs.1.max(runs.0);
        }
        Ok(number(runs.1))
    }
    /// A copy of another length, with each bit moved on.
    fn slurm_bit_rotate_copy(at: *mut i64, by: i32, size: i64) -> *mut i64, else null_mut(), {
        let own = BitString::of(at)?;
        let all = index(size).max(1);
        let by = i64::from(by).rem_euclid(number::<i64>(all).max(1));
        Ok(made_of(size, own.set_bits().map(|bit| (bit + index(by)) % all)))
    }
    /// Writes the bits that are on as `0-3,5`, and gives the buffer.
    fn slurm_bit_fmt(buffer: *mut c_char, size: i32, at: *mut i64) -> *mut c_char, else buffer, {
        memory::write_cut(&BitString::of(at)?.ranges(), buffer, index(size.into()));
        Ok(buffer)
    }
    /// The bits that are on as `0-3,5`, to be freed by `slurm_xfree`.
    fn slurm_bit_fmt_full(at: *mut i64) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&BitString::of(at)?.ranges()))
    }
    /// The bits as hexadecimal digits, `0x0F`.
    fn slurm_bit_fmt_hexmask(at: *mut i64) -> *mut c_char, else null_mut(), {
        Ok(memory::string(&format!("0x{}", BitString::of(at)?.hex())))
    }
    /// As above, without zeros in front.
    fn slurm_bit_fmt_hexmask_trim(at: *mut i64) -> *mut c_char, else null_mut(), {
        let digits = BitString::of(at)?.hex();
        let short = digits.trim_start_matches('0');
        let shown = if short.is_empty() { "0" } else { short };
        Ok(memory::string(&format!("0x{shown}")))
    }
    /// The bits as binary digits.
    fn slurm_bit_fmt_binmask(at: *mut i64) -> *mut c_char, else null_mut(), {
        let own = BitString::of(at)?;
        let digits: String = (0..own.size).rev().map(|bit| if own.has(bit) { '1' } else { '0' }).collect();
        Ok(memory::string(&digits))
    }
    /// Sets the bits that a text such as `0-3,5` names, and no others.
    fn slurm_bit_unfmt(at: *mut i64, text: *const c_char) -> c_int, else -1, {
        let mut own = BitString::of(at)?;
        let text = memory::text(text).unwrap_or_default();
        let wrong = || CallError::argument("no list of numbers");
        let all = match text.is_empty() {
            true => Vec::new(),
            false => hostlist::parse_ranges(&text, own.size).map_err(|_| wrong())?,
        };
        if all.iter().any(|bit| *bit as usize >= own.size) {
            return Err(wrong());
        }
        own.clear();
        all.iter().for_each(|bit| own.put(*bit as usize, true));
        Ok(0)
    }
    /// Sets the bits of hexadecimal digits, and no others.
    fn slurm_bit_unfmt_hexmask(at: *mut i64, text: *const c_char) -> c_int, else -1, {
        let mut own = BitString::of(at)?;
        let text = memory::text(text).unwrap_or_default();
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        own.clear();
        for (place, digit) in digits.chars().rev().enumerate() {
            let wrong = || CallError::argument("no hexadecimal digits");
            let value = digit.to_digit(16).ok_or_else(wrong)?;
            for bit in (0..4).filter(|bit| value >> bit & 1 != 0) {
                if place * 4 + bit >= own.size {
                    return Err(wrong());
                }
                own.put(place * 4 + bit, true);
            }
        }
        Ok(0)
    }
    /// Pairs of a first and a last number of a text such as `0-3,5`, and -1 behind the last pair.
    fn slurm_bitfmt2int(text: *const c_char) -> *mut i32, else null_mut(), {
        let Some(text) = memory::text(text) else { return Ok(null_mut()) };
        let text = text.trim_start_matches('[').trim_end_matches(']');
        let mut pairs: Vec<i32> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<i32>().map_err(|_| CallError::argument("no list of numbers"));
            pairs.extend([number(first)?, number(last)?]);
        }
        pairs.push(-1);
        Ok(memory::array(&pairs))
    }
    /// Whether all bits of the first that are on are on in the second.
    fn slurm_bit_super_set(part: *mut i64, whole: *mut i64) -> c_int, else 0, {
        let (part, whole) = (BitString::of(part)?, BitString::of(whole)?);
        Ok(part.set_bits().all(|bit| whole.has(bit)).into())
    }
    /// Number of bits that are on in both.
    fn slurm_bit_overlap(left: *mut i64, right: *mut i64) -> c_int, else 0, {
        let (left, right) = (BitString::of(left)?, BitString::of(right)?);
        Ok(number(left.set_bits().filter(|bit| right.has(*bit)).count()))
    }
    /// Whether a bit is on in both.
    fn slurm_bit_overlap_any(left: *mut i64, right: *mut i64) -> c_int, else 0, {
        let (left, right) = (BitString::of(left)?, BitString::of(right)?);
        Ok(left.set_bits().any(|bit| right.has(bit)).into())
    }
    /// Whether both have the same bits.
    fn slurm_bit_equal(left: *mut i64, right: *mut i64) -> c_int, else 0, {
        let (left, right) = (BitString::of(left)?, BitString::of(right)?);
        let is_equal = |place| left.word(place) == right.word(place);
        Ok((left.size == right.size && (0..left.words()).all(is_equal)).into())
    }
    /// A string with the first bits of another that are on; null if there are not as many.
    fn slurm_bit_pick_cnt(at: *mut i64, wanted: i64) -> *mut i64, else null_mut(), {
        let own = BitString::of(at)?;
        let picked: Vec<usize> = own.set_bits().take(index(wanted)).collect();
        Ok(match picked.len() == index(wanted) {
            true => made_of(number(own.size), picked),
            false => null_mut(),
        })
    }
    /// The bit that is the n-th of those that are on; -1 if there is none.
    fn slurm_bit_get_bit_num(at: *mut i64, wanted: i32) -> i64, else -1, {
        let own = BitString::of(at)?;
        Ok(match usize::try_from(wanted) {
            Ok(wanted) => place(own.set_bits().nth(wanted)),
            Err(_) => -1,
        })
    }
    /// Number of bits that are on before this one; -1 if it is off.
    fn slurm_bit_get_pos_num(at: *mut i64, bit: i64) -> i32, else -1, {
        let own = BitString::of(at)?;
        Ok(match bit >= 0 && own.has(index(bit)) {
            true => number(own.set_bits().take_while(|at| *at < index(bit)).count()),
            false => -1,
        })
    }
}

/// Changes a string by another one.
///
/// # Safety
/// As of [`BitString::of`].
unsafe fn merge(at: *mut i64, other: *mut i64, change: impl Fn(bool, bool) -> bool) {
    // SAFETY: as the caller promises.
    let (Ok(mut own), Ok(other)) = (unsafe { BitString::of(at) }, unsafe {
        BitString::of(other)
    }) else {
        return;
    };
    for bit in 0..own.size {
        let value = change(own.has(bit), other.has(bit));
        own.put(bit, value);
    }
}

quiet_functions! {
    /// Frees a string, and sets the program's pointer to null.
    fn slurm_bit_free(at: *mut *mut i64) {
        if let Some(place) = at.as_mut() {
            libc::free(std::ptr::replace(place, null_mut()).cast());
        }
    }
    /// Sets a bit.
    fn slurm_bit_set(at: *mut i64, bit: i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.put_range(bit, bit, true);
        }
    }
    /// Clears a bit.
    fn slurm_bit_clear(at: *mut i64, bit: i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.put_range(bit, bit, false);
        }
    }
    /// Sets bits from one to another.
    fn slurm_bit_nset(at: *mut i64, from: i64, to: i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.put_range(from, to, true);
        }
    }
    /// Clears bits from one to another.
    fn slurm_bit_nclear(at: *mut i64, from: i64, to: i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.put_range(from, to, false);
        }
    }
    /// Sets all bits.
    fn slurm_bit_set_all(at: *mut i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.put_range(0, i64::MAX, true);
        }
    }
    /// Clears all bits.
    fn slurm_bit_clear_all(at: *mut i64) {
        if let Ok(mut own) = BitString::of(at) {
            own.clear();
        }
    }
    /// Keeps the bits that are on in another string, too.
    fn slurm_bit_and(at: *mut i64, other: *mut i64) {
        merge(at, other, |own, other| own && other);
    }
    /// Adds the bits that are on in another string.
    fn slurm_bit_or(at: *mut i64, other: *mut i64) {
        merge(at, other, |own, other| own || other);
    }
    /// Takes over the bits of another string.
    fn slurm_bit_copybits(at: *mut i64, other: *mut i64) {
        merge(at, other, |_, other| other);
    }
    /// Turns each bit over.
    fn slurm_bit_not(at: *mut i64) {
        if let Ok(mut own) = BitString::of(at) {
            for bit in 0..own.size {
                let value = !own.has(bit);
                own.put(bit, value);
            }
        }
    }
    /// Sets all bits between the first and the last that are on.
    fn slurm_bit_fill_gaps(at: *mut i64) {
        if let Ok(mut own) = BitString::of(at) {
            let (first, last) = (own.set_bits().next(), own.set_bits().last());
            if let (Some(first), Some(last)) = (first, last) {
                own.put_range(number(first), number(last), true);
            }
        }
    }
    /// Moves each bit on; those that go beyond the end come in at the front.
    fn slurm_bit_rotate(at: *mut i64, by: i32) {
        if let Ok(mut own) = BitString::of(at) {
            let size: i64 = number(own.size);
            let by = index(i64::from(by).rem_euclid(size.max(1)));
            let moved: Vec<usize> = own.set_bits().map(|bit| (bit + by) % own.size).collect();
            own.clear();
            moved.into_iter().for_each(|bit| own.put(bit, true));
        }
    }
    /// Sets the bits of binary digits, and no others.
    fn slurm_bit_unfmt_binmask(at: *mut i64, text: *const c_char) {
        if let Ok(mut own) = BitString::of(at) {
            let text = memory::text(text).unwrap_or_default();
            own.clear();
            for (bit, digit) in text.chars().rev().enumerate() {
                own.put(bit, digit == '1');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_written_and_read() {
        // SAFETY: the strings are this test's.
        unsafe {
            let mut own = slurm_bit_alloc(70);
            slurm_bit_nset(own, 1, 3);
            slurm_bit_set(own, 69);
            slurm_bit_set(own, 70);
            slurm_bit_set(own, -1);
            assert_eq!(slurm_bit_set_count(own), 4, "bits outside are not there");
            assert_eq!((slurm_bit_ffs(own), slurm_bit_fls(own)), (1, 69));
            assert_eq!((slurm_bit_ffc(own), slurm_bit_nffc(own, 5)), (0, 4));
            assert_eq!(slurm_bit_nset_max_count(own), 3);
            let text = slurm_bit_fmt_full(own);
            assert_eq!(memory::text(text).as_deref(), Some("1-3,69"));
            let mut copy = slurm_bit_alloc(70);
            assert_eq!(slurm_bit_unfmt(copy, text), 0);
            assert_eq!(slurm_bit_equal(own, copy), 1);
            slurm_bit_rotate(copy, 1);
            assert_eq!((slurm_bit_ffs(copy), slurm_bit_fls(copy)), (0, 4));
            libc::free(text.cast());
            let mask = slurm_bit_fmt_hexmask(own);
            slurm_bit_clear_all(copy);
            assert_eq!(slurm_bit_unfmt_hexmask(copy, mask), 0);
            assert_eq!(slurm_bit_overlap(own, copy), 4);
            libc::free(mask.cast());
            slurm_bit_free(&mut own);
            slurm_bit_free(&mut copy);
            assert!(own.is_null());
            assert_eq!(slurm_bit_size(own), 0);
        }
    }

    #[test]
    fn a_length_that_is_refused_leaves_the_string() {
        // SAFETY: the string is this test's.
        unsafe {
            let mut own = slurm_bit_alloc(70);
            slurm_bit_set(own, 69);
            for size in [-1, i64::MAX] {
                assert!(slurm_bit_realloc(&mut own, size).is_null());
                assert_eq!(slurm_bit_test(own, 69), 1);
            }
            assert_eq!(slurm_bit_realloc(&mut own, 80), own);
            assert_eq!((slurm_bit_size(own), slurm_bit_fls(own)), (80, 69));
            slurm_bit_free(&mut own);
        }
    }

    /// Under miri it fails where two mutable references lead to one string.
    #[test]
    fn both_arguments_may_be_one_string() {
        // SAFETY: the string is this test's.
        unsafe {
            let mut own = slurm_bit_alloc(70);
            slurm_bit_set(own, 3);
            slurm_bit_set(own, 69);
            assert_eq!(slurm_bit_equal(own, own), 1);
            assert_eq!(slurm_bit_super_set(own, own), 1);
            assert_eq!(slurm_bit_overlap(own, own), 2);
            assert_eq!(slurm_bit_overlap_any(own, own), 1);
            slurm_bit_and(own, own);
            slurm_bit_or(own, own);
            slurm_bit_copybits(own, own);
            assert_eq!(slurm_bit_set_count(own), 2);
            slurm_bit_free(&mut own);
        }
    }
}
