//! Whether a program is one of MPI's, as far as its file tells: by the libraries that it is linked to. It lets srun start
//! MPI programs without an option, and everything else without what only they need. Where a file does not
//! tell, the program may be one: a script, an interpreter, whatever starts others or opens libraries as it runs.

use muster_proto::step::{ProgramKind, StepSpec};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Beginnings of names of libraries by which programs find each other.
const MPI: [&str; 5] = [
    "libmpi",
    "liboshmem",
    "libpmix.so",
    "libpmi.so",
    "libpmi2.so",
];
/// Prefixes of libraries that are not MPI's and do not load it.
const PLAIN: [&str; 20] = [
    "ld-linux",
    "libacl.so",
    "libatomic.so",
    "libattr.so",
    "libc.so",
    "libcap.so",
    "libdl.so",
    "libgcc_s.so",
    "libgfortran.so",
    "libgmp.so",
    "libgomp.so",
    "libm.so",
    "libpcre2-8.so",
    "libpthread.so",
    "libquadmath.so",
    "librt.so",
    "libselinux.so",
    "libstdc++.so",
    "libutil.so",
    "libz.so",
];
/// Functions by which a program starts others, or opens libraries.
const LEADS_ON: [&str; 17] = [
    "dlmopen",
    "dlopen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "syscall",
    "system",
    "wordexp",
];
/// Variables by which libraries come into a program of which its file says nothing.
const PRELOADS: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

/// A longer file may have MPI's libraries in itself.
const PLAIN_MAX: u64 = 512 << 10;
/// So much of a file is read first.
const HEAD: usize = 2048;
/// Parts of a file that are longer are not looked at.
const DYNAMIC_MAX: u64 = 8 << 10;
const STRINGS_MAX: u64 = 128 << 10;
/// Longest name of a library that is looked at.
const NAME_MAX: usize = 64;

/// The kind of program that the tasks run; and its file, if it was found in `PATH` independently of the tasks' directory.
pub(super) fn kind(spec: &StepSpec) -> (ProgramKind, Option<String>) {
    let value = |name: &str| spec.context.environment.value(name.as_bytes());
    if !spec.multi_prog.is_empty() || PRELOADS.iter().any(|name| value(name).is_some()) {
        return (ProgramKind::Unknown, None);
    }
    let name = spec.argv.first().map_or("", String::as_str);
    let path = value("PATH").unwrap_or_default();
    let Some(found) = locate(name, Path::new(&spec.work_dir), path) else {
        return (ProgramKind::Unknown, None);
    };
    let kind = of_file(&found).unwrap_or_default();
    let file = Some(found.place).filter(|_| found.is_anywhere);
    (
        kind,
        file.and_then(|file| file.into_os_string().into_string().ok()),
    )
}

/// The file of a program.
struct ProgramFile {
    place: PathBuf,
    /// Bytes.
    length: u64,
    /// It was found by `PATH`, in whatever directory its tasks are.
    is_anywhere: bool,
}

/// Where a program is, as the node will look for it.
fn locate(name: &str, work_dir: &Path, path: &[u8]) -> Option<ProgramFile> {
    let file = |file: &Path| file.metadata().ok().filter(Metadata::is_file);
    if name.contains('/') {
        let place = work_dir.join(name);
        return Some(ProgramFile {
            length: file(&place)?.len(),
            place,
            is_anywhere: false,
        });
    }
    // A dozen places are looked at, most of them in vain.
    let mut place = OsString::with_capacity(256);
    for dir in path.split(|b| *b == b':') {
        place.clear();
        let is_anywhere = dir.starts_with(b"/");
        if !is_anywhere {
            place.extend([work_dir.as_os_str(), OsStr::new("/")]);
        }
        let dir = OsStr::from_bytes(dir);
        place.extend([dir, OsStr::new("/"), OsStr::new(name)]);
        let found = file(Path::new(&place));
        if let Some(found) = found.filter(|m| m.permissions().mode() & 0o111 != 0) {
            return Some(ProgramFile {
                place: place.into(),
                length: found.len(),
                is_anywhere,
            });
        }
    }
    None
}

fn of_file(found: &ProgramFile) -> Option<ProgramKind> {
    let kind = Elf::open(File::open(&found.place).ok()?)?.kind()?;
    Some(kind).filter(|kind| *kind != ProgramKind::Plain || found.length <= PLAIN_MAX)
}

/// A program of 64 bits in this machine's order of bytes: elf(5).
struct Elf {
    file: File,
    /// For each loaded part: its place in the file, its place in memory, its length.
    loads: Vec<(u64, u64, u64)>,
    /// Entries for the linker: tags and values.
    dynamic: Vec<(u64, u64)>,
}

impl Elf {
    /// Nothing if it is none, or is linked statically.
    fn open(file: File) -> Option<Elf> {
        let mut head = [0; HEAD];
        let length = file.read_at(&mut head, 0).ok()?;
        let head = &head[..length];
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head.get(..6)? != [0x7f, b'E', b'L', b'F', 2, order] {
            return None;
        }
        let first = usize::try_from(word(head, 32)?).ok()?;
        let (size, count) = (half(head, 54)?, half(head, 56)?);
        let mut loads = Vec::new();
        let mut dynamic = None;
        for i in 0..usize::from(count) {
            let header = head.get(first.checked_add(i * usize::from(size))?..)?;
            let (offset, address, length) =
                (word(header, 8)?, word(header, 16)?, word(header, 32)?);
            match header.get(..4)? {
                PT_LOAD => loads.push((offset, address, length)),
                PT_DYNAMIC => dynamic = Some((offset, length)),
                _ => {}
            }
        }
        let (offset, length) = dynamic.filter(|(_, length)| *length <= DYNAMIC_MAX)?;
        let bytes = read(&file, offset, length)?;
        let pairs = bytes.chunks_exact(16);
        let dynamic = pairs.map_while(|p| Some((word(p, 0)?, word(p, 8)?)));
        let dynamic = dynamic.take_while(|(tag, _)| *tag != 0).collect();
        Some(Elf {
            file,
            loads,
            dynamic,
        })
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        let mut all = self.dynamic.iter();
        all.find_map(|(tag, value)| (*tag == wanted).then_some(*value))
    }

    /// Where in the file is what has this place in memory.
    fn offset(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|(offset, start, length)| {
            let into = address.checked_sub(*start).filter(|into| into < length)?;
            offset.checked_add(into)
        })
    }

    fn kind(&self) -> Option<ProgramKind> {
        let strings = self.offset(self.value(DT_STRTAB)?)?;
        let mut plain = true;
        for (_, at) in self.dynamic.iter().filter(|(tag, _)| *tag == DT_NEEDED) {
            let mut name = [0; NAME_MAX];
            let length = self
                .file
                .read_at(&mut name, strings.checked_add(*at)?)
                .ok()?;
            let begins = |names: &[&str]| {
                let mut names = names.iter();
                names.any(|known| name[..length].starts_with(known.as_bytes()))
            };
            if begins(&MPI) {
                return Some(ProgramKind::Mpi);
            }
            plain &= begins(&PLAIN);
        }
        let length = self
            .value(DT_STRSZ)
            .filter(|length| *length <= STRINGS_MAX)?;
        let strings = read(&self.file, strings, length)?;
        // The end of one name may serve as another.
        let leads_on = |name: &[u8]| {
            LEADS_ON
                .iter()
                .any(|known| name.ends_with(known.as_bytes()))
        };
        plain &= !strings.split(|b| *b == 0).any(leads_on);
        Some(match plain {
            true => ProgramKind::Plain,
            false => ProgramKind::Unknown,
        })
    }
}

const PT_LOAD: &[u8] = &1u32.to_ne_bytes();
const PT_DYNAMIC: &[u8] = &2u32.to_ne_bytes();
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn read(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn of(argv: &[&str], environment: &[&str]) -> ProgramKind {
        let mut spec = StepSpec {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            work_dir: "/".to_owned(),
            ..StepSpec::default()
        };
        spec.context.environment = environment.iter().collect();
        kind(&spec).0
    }

    #[test]
    fn what_starts_others_may_be_anything() {
        let path = ["A=1", "PATH=/nosuch::/usr/bin:/bin"];
        for name in ["true", "sleep", "/usr/bin/hostname", "bin/cat"] {
            assert_eq!(of(&[name], &path), ProgramKind::Plain, "{name}");
        }
        for name in ["env", "sh", "bash", "nosuch", "/", "/dev/null", ""] {
            assert_eq!(of(&[name], &path), ProgramKind::Unknown, "{name}");
        }
        assert_eq!(of(&["true"], &["PATH=/nosuch"]), ProgramKind::Unknown);
        let path = ["PATH=/usr/bin", "LD_PRELOAD=/x.so"];
        assert_eq!(of(&["true"], &path), ProgramKind::Unknown);
    }

    #[test]
    fn a_program_is_mpis_by_what_it_is_linked_to() {
        let dir = std::env::temp_dir().join(format!("muster-linked-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a.c"), "int a(void) { return 0; }").unwrap();
        std::fs::write(
            dir.join("b.c"),
            "int a(void); int main(void) { return a(); }",
        )
        .unwrap();
        for (library, wanted) in [
            ("libmpi.so.40", ProgramKind::Mpi),
            ("libmpich.so.12", ProgramKind::Mpi),
            ("libother.so.1", ProgramKind::Unknown),
        ] {
            let script = format!(
                "gcc -shared -Wl,-soname,{library} -o liba.so a.c && gcc -o b b.c ./liba.so"
            );
            let built = Command::new("sh")
                .args(["-c", &script])
                .current_dir(&dir)
                .status();
            assert!(built.unwrap().success());
            let program = dir.join("b").display().to_string();
            assert_eq!(of(&[&program], &[]), wanted, "{library}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
