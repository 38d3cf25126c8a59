//! The order for the process that becomes a script: a file of 64-bit numbers, then zero-terminated strings. It is read where the
//! kernel maps it, without a heap. Writer and reader are of one build, so the format has no version.

use crate::tmp_dir::TmpDirNames;
use core::ffi::CStr;

/// How many variables may be added to the environment: the process id, and the two that name the temporary directory.
const ADDED_VARIABLES: usize = 3;

/// How many numbers the file begins with: the fields of [`Head`].
const HEAD: usize = 11;

/// Numbers of the order, and lengths of the lists that follow.
struct Head {
    becomes_user: u64,
    uid: u64,
    gid: u64,
    umask: u64,
    slot: u64,
    append: u64,
    has_stderr: u64,
    groups: u64,
    /// Pairs of a resource and its soft limit.
    limits: u64,
    args: u64,
    env: u64,
}

impl Head {
    fn words(&self) -> [u64; HEAD] {
        [
            self.becomes_user,
            self.uid,
            self.gid,
            self.umask,
            self.slot,
            self.append,
            self.has_stderr,
            self.groups,
            self.limits,
            self.args,
            self.env,
        ]
    }

    fn of(words: [u64; HEAD]) -> Head {
        let [
            becomes_user,
            uid,
            gid,
            umask,
            slot,
            append,
            has_stderr,
            groups,
            limits,
            args,
            env,
        ] = words;
        Head {
            becomes_user,
            uid,
            gid,
            umask,
            slot,
            append,
            has_stderr,
            groups,
            limits,
            args,
            env,
        }
    }
}

/// Soft limit of a resource.
#[cfg(not(freestanding))]
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimit {
    /// `RLIMIT_*` number (getrlimit(2)).
    pub resource: u32,
    /// The soft limit to set, if the hard limit allows it.
    pub soft: u64,
}

/// An order as the launcher gives it.
#[cfg(not(freestanding))]
#[derive(Debug)]
pub struct ExecOrder<'a> {
    /// The program to be executed.
    pub path: &'a str,
    /// Its arguments, `path` first.
    pub args: &'a Strings,
    /// Its environment but for the process id, in two parts.
    pub env: [&'a Strings; 2],
    /// The user and groups to become, where the launcher is root.
    pub user: Option<(u32, u32, &'a [u32])>,
    /// The user's name, for messages.
    pub user_name: &'a str,
    /// Working directory.
    pub work_dir: &'a str,
    /// File for standard input.
    pub stdin: &'a str,
    /// File for standard output.
    pub stdout: &'a str,
    /// File for standard error; absent: it goes to standard output.
    pub stderr: Option<&'a str>,
    /// Append to the files for output instead of truncating them.
    pub append: bool,
    /// See umask(2).
    pub umask: u32,
    /// Soft limits to be set.
    pub limits: &'a [ResourceLimit],
    /// Where a failure before the exec is reported.
    pub slot: usize,
    /// The job's temporary directory, if it has one: its usual path, the one for where something else is there, and the directory
    /// above.
    pub tmp_dir: Option<[&'a str; 3]>,
}

#[cfg(not(freestanding))]
mod writer {
    use super::{ADDED_VARIABLES, ExecOrder, HEAD, Head};
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// Strings for the kernel, one after another.
    #[derive(Debug, Default)]
    pub struct Strings {
        bytes: Vec<u8>,
        starts: Vec<usize>,
    }

    impl Strings {
        /// Adds a string, which is these one after another, unless it has a zero byte.
        pub fn push(&mut self, parts: &[&[u8]]) {
            if parts.iter().any(|part| part.contains(&0)) {
                return;
            }
            self.starts.push(self.bytes.len());
            parts
                .iter()
                .for_each(|part| self.bytes.extend_from_slice(part));
            self.bytes.push(0);
        }

        /// The strings of these that have no zero byte.
        pub fn of<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Strings {
            let mut all = Strings::default();
            for string in strings {
                all.push(&[string]);
            }
            all
        }

        /// Adds the places of the strings, if they are appended to so many bytes.
        fn places(&self, bytes: &mut usize, words: &mut Vec<u64>) {
            words.extend(self.starts.iter().map(|start| (*bytes + start) as u64));
            *bytes += self.bytes.len();
        }
    }

    impl ExecOrder<'_> {
        fn paths(&self) -> [&str; 9] {
            let stderr = self.stderr.unwrap_or_default();
            let [usual, other, above] = self.tmp_dir.unwrap_or_default();
            [
                self.path,
                self.user_name,
                self.work_dir,
                self.stdin,
                self.stdout,
                stderr,
                usual,
                other,
                above,
            ]
        }

        /// Why the kernel cannot be given a path.
        #[must_use]
        pub fn wrong_path(&self) -> Option<String> {
            let limit = crate::kernel::PATH_MAX as usize;
            self.paths().into_iter().find_map(|path| {
                if path.len() >= limit {
                    return Some(format!("{path:.80}...: File name too long"));
                }
                let has_zero = path.contains('\0');
                has_zero.then(|| format!("{path:?}: a path cannot have a zero byte"))
            })
        }

        /// The order as a file; no path has a zero byte.
        #[must_use]
        pub fn to_bytes(&self) -> Vec<u8> {
            let user = self.user.unwrap_or_default();
            let [first, second] = self.env;
            let env = first.starts.len() + second.starts.len();
            let head = Head {
                becomes_user: u64::from(self.user.is_some()),
                uid: user.0.into(),
                gid: user.1.into(),
                umask: self.umask.into(),
                slot: self.slot as u64,
                append: u64::from(self.append),
                has_stderr: u64::from(self.stderr.is_some()),
                groups: user.2.len() as u64,
                limits: self.limits.len() as u64,
                args: self.args.starts.len() as u64,
                env: env as u64,
            };
            let mut words = Vec::with_capacity(HEAD + 256);
            words.extend(head.words());
            for limit in self.limits {
                words.extend([u64::from(limit.resource), limit.soft]);
            }
            words.extend(user.2.chunks(2).map(|pair| {
                let pair = [pair[0], pair.get(1).copied().unwrap_or(0)].map(u32::to_ne_bytes);
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&pair[0]);
                bytes[4..].copy_from_slice(&pair[1]);
                u64::from_ne_bytes(bytes)
            }));
            let mut length: usize = self.paths().iter().map(|path| path.len() + 1).sum();
            self.args.places(&mut length, &mut words);
            words.push(0);
            self.env
                .iter()
                .for_each(|e| e.places(&mut length, &mut words));
            // Room for more, and the end.
            words.extend([0; ADDED_VARIABLES + 1]);
            let mut bytes = Vec::with_capacity(8 * words.len() + length + 8);
            words
                .iter()
                .for_each(|w| bytes.extend_from_slice(&w.to_ne_bytes()));
            for path in self.paths() {
                bytes.extend_from_slice(path.as_bytes());
                bytes.push(0);
            }
            for strings in [self.args, first, second] {
                bytes.extend_from_slice(&strings.bytes);
            }
            // The last byte is a zero, and the whole is read as numbers first.
            bytes.resize((bytes.len() / 8 + 1) * 8, 0);
            bytes
        }
    }
}

#[cfg(not(freestanding))]
pub use writer::Strings;

/// An order, read in place. Its memory is never unmapped.
pub(crate) struct MappedOrder {
    pub(crate) path: &'static CStr,
    /// Addresses of the arguments, and a null.
    pub(crate) argv: &'static mut [u64],
    /// Pointers of the environment, then nulls: room for more variables, and the end.
    pub(crate) env: &'static mut [u64],
    pub(crate) user: Option<(u32, u32, &'static [u32])>,
    pub(crate) user_name: &'static CStr,
    pub(crate) work_dir: &'static CStr,
    pub(crate) stdin: &'static CStr,
    pub(crate) stdout: &'static CStr,
    pub(crate) stderr: Option<&'static CStr>,
    pub(crate) append: bool,
    pub(crate) umask: u32,
    /// Resources and their soft limits, one after the other.
    pub(crate) limits: &'static [u64],
    pub(crate) slot: usize,
    pub(crate) tmp_dir: Option<TmpDirNames<'static>>,
}

/// Splits the first `count` elements off a slice.
fn take<'a, T>(from: &mut &'a mut [T], count: u64) -> Option<&'a mut [T]> {
    let all = core::mem::take(from);
    let (taken, rest) = all.split_at_mut_checked(usize::try_from(count).ok()?)?;
    *from = rest;
    Some(taken)
}

fn string(from: &mut &'static [u8]) -> Option<&'static CStr> {
    let text = CStr::from_bytes_until_nul(from).ok()?;
    *from = from.get(text.count_bytes() + 1..)?;
    Some(text)
}

impl MappedOrder {
    /// Reads an order in place. `None` if this is no order.
    pub(crate) fn read(memory: &'static mut [u64]) -> Option<MappedOrder> {
        let mut words = memory;
        let head = take(&mut words, HEAD as u64)?;
        let head = Head::of(*head.first_chunk()?);
        let limits = take(&mut words, head.limits.checked_mul(2)?)?;
        let groups = take(&mut words, head.groups.div_ceil(2))?;
        let args = take(&mut words, head.args.checked_add(1)?)?;
        let nulls = ADDED_VARIABLES + 1;
        let env = take(&mut words, head.env.checked_add(nulls as u64)?)?;
        let mut bytes = bytes_of(words);
        let strings = bytes;
        let mut next = || string(&mut bytes);
        let path = next()?;
        let order = MappedOrder {
            path,
            argv: addresses(args, 1, strings)?,
            env: addresses(env, nulls, strings)?,
            user: None,
            user_name: next()?,
            work_dir: next()?,
            stdin: next()?,
            stdout: next()?,
            stderr: next().filter(|_| head.has_stderr != 0),
            append: head.append != 0,
            umask: u32::try_from(head.umask).ok()?,
            limits,
            slot: usize::try_from(head.slot).ok()?,
            tmp_dir: Some(TmpDirNames {
                usual: next()?,
                other: next()?,
                above: next()?,
            })
            .filter(|names| !names.usual.is_empty()),
        };
        let id = |word: u64| u32::try_from(word).ok();
        let groups = halves_of(groups).get(..usize::try_from(head.groups).ok()?)?;
        Some(MappedOrder {
            user: match head.becomes_user {
                0 => None,
                _ => Some((id(head.uid)?, id(head.gid)?, groups)),
            },
            ..order
        })
    }

    /// Adds a variable to the environment; no more than there is room for are.
    pub(crate) fn add_variable(&mut self, variable: &CStr) {
        let room = self.env.split_last_mut().map(|(_, room)| room);
        let mut free = room.into_iter().flatten().filter(|at| **at == 0);
        if let Some(place) = free.next() {
            *place = variable.as_ptr().expose_provenance() as u64;
        }
    }
}

#[allow(unsafe_code)]
fn bytes_of(words: &'static [u64]) -> &'static [u8] {
    // SAFETY: each word is eight bytes, of any value.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

#[allow(unsafe_code)]
fn halves_of(words: &'static [u64]) -> &'static [u32] {
    // SAFETY: each word is two halves, of any value, and aligned better than they need to be.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 2) }
}

/// Replaces places in `strings` by addresses; the last `nulls` become null. Each string ends with a zero byte, because the last
/// byte of all is one.
fn addresses(
    places: &'static mut [u64],
    nulls: usize,
    strings: &'static [u8],
) -> Option<&'static mut [u64]> {
    if *strings.last()? != 0 {
        return None;
    }
    let (known, rest) = places.split_at_mut_checked(places.len().checked_sub(nulls)?)?;
    for place in known {
        let string = strings.get(usize::try_from(*place).ok()?..)?;
        if string.is_empty() {
            return None;
        }
        *place = string.as_ptr().expose_provenance() as u64;
    }
    rest.fill(0);
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn example<'a>(args: &'a Strings, env: [&'a Strings; 2]) -> ExecOrder<'a> {
        ExecOrder {
            path: "/script",
            args,
            env,
            user: Some((1, 2, &[3, 4, 5])),
            user_name: "name",
            work_dir: "/dir",
            stdin: "in",
            stdout: "",
            stderr: None,
            append: true,
            umask: 0o77,
            limits: &[
                ResourceLimit {
                    resource: 7,
                    soft: u64::MAX,
                },
                ResourceLimit {
                    resource: 1,
                    soft: 9,
                },
            ],
            slot: usize::MAX,
            tmp_dir: Some(["/tmp/usual", "/tmp/other", "/tmp"]),
        }
    }

    fn words(bytes: &[u8]) -> &'static mut [u64] {
        let words = bytes.as_chunks().0.iter().map(|c| u64::from_ne_bytes(*c));
        words.collect::<Vec<_>>().leak()
    }

    #[allow(unsafe_code)]
    fn texts(addresses: &[u64]) -> Vec<&str> {
        let texts = addresses.iter().take_while(|at| **at != 0).map(|at| {
            // SAFETY: `read` made them of leaked memory that ends with a zero byte.
            let text = unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(*at as usize)) };
            text.to_str().expect("it was text")
        });
        texts.collect()
    }

    #[test]
    fn an_order_is_read_as_written() {
        let args = Strings::of([&b"/script"[..], b"", b"two words"]);
        let mut first = Strings::of([&b"A=1"[..], b"zero\0byte"]);
        first.push(&[b"B=", b"2"]);
        let second = Strings::of([&b"C="[..]]);
        let bytes = example(&args, [&first, &second]).to_bytes();
        let mut order = MappedOrder::read(words(&bytes)).expect("it is whole");
        assert_eq!(order.path, c"/script");
        assert_eq!(texts(order.argv), ["/script", "", "two words"]);
        assert_eq!(order.argv.len(), 4);
        assert_eq!(texts(order.env), ["A=1", "B=2", "C="]);
        assert_eq!(order.env.len(), 7);
        for _ in 0..=ADDED_VARIABLES {
            order.add_variable(c"NEW=");
        }
        assert_eq!(texts(order.env)[3..], ["NEW="; 3]);
        assert_eq!(order.env.last(), Some(&0));
        let names = order.tmp_dir.expect("it has one");
        let names = [names.usual, names.other, names.above];
        assert_eq!(names, [c"/tmp/usual", c"/tmp/other", c"/tmp"]);
        assert_eq!(order.user, Some((1, 2, &[3, 4, 5][..])));
        let paths = [order.user_name, order.work_dir, order.stdin, order.stdout];
        assert_eq!(paths, [c"name", c"/dir", c"in", c""]);
        assert_eq!(order.stderr, None);
        assert_eq!(
            (order.append, order.umask, order.slot),
            (true, 0o77, usize::MAX)
        );
        assert_eq!(order.limits, [7, u64::MAX, 1, 9]);
        let empty = Strings::default();
        let other = ExecOrder {
            user: None,
            stderr: Some("err"),
            append: false,
            limits: &[],
            tmp_dir: None,
            ..example(&args, [&empty, &empty])
        };
        let order = MappedOrder::read(words(&other.to_bytes())).expect("it is whole");
        assert_eq!((order.user, order.stderr), (None, Some(c"err")));
        assert!(order.limits.is_empty() && !order.append && order.tmp_dir.is_none());
        assert_eq!(texts(order.env), Vec::<&str>::new());
        assert_eq!(order.env, [0; 4]);
    }

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        let none = Strings::default();
        let mut order = example(&none, [&none, &none]);
        assert_eq!(order.wrong_path(), None);
        order.stderr = Some("a\0b");
        let wrong = order.wrong_path().expect("it is wrong");
        assert!(wrong.contains("zero byte"), "{wrong}");
    }

    #[test]
    fn what_is_cut_off_or_changed_is_no_order_or_stays_in_its_memory() {
        let args = Strings::of([&b"/script"[..]]);
        let env = Strings::of([&b"A=1"[..]]);
        let bytes = example(&args, [&env, &env]).to_bytes();
        let whole = words(&bytes).to_vec();
        for length in 0..whole.len() {
            let cut = whole[..length].to_vec().leak();
            let end = cut.as_ptr_range().end.addr() as u64;
            if let Some(order) = MappedOrder::read(cut) {
                assert!(order.env.iter().chain(&*order.argv).all(|at| *at < end));
            }
        }
        for at in 0..whole.len() {
            for value in [0, 1, 1 << 32, u64::MAX] {
                let mut changed = vec![0; whole.len()];
                changed.copy_from_slice(&whole);
                changed[at] = value;
                let changed = changed.leak();
                let end = changed.as_ptr_range().end.addr() as u64;
                if let Some(order) = MappedOrder::read(changed) {
                    assert!(order.env.iter().chain(&*order.argv).all(|at| *at < end));
                }
            }
        }
    }
}
