//! The key of a cluster with `AuthType=auth/slurm`: `slurm.key` beside slurm.conf, any bytes, or `slurm.jwks`, several keys with
//! names, which is read instead where it is there. Who can read it can be any user of the cluster, so files that others than
//! root and `SlurmUser` can read are refused. Keys are no part of any text that is printed.

use crate::base64url;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Bytes of a key file; a list of sixty keys is a tenth of that.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// A key has more bytes, as that of slurm.jwks has in Slurm too: it could be guessed.
const KEY_BYTES_MIN: usize = 16;
/// Keys of one file.
const KEYS_MAX: usize = 64;
/// Bytes of the name of a key.
const KID_BYTES_MAX: usize = 256;

/// Why there is no key. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error(
        "there is no key file {0}: copy it from the controller's host, or make one there \
         ('dd if=/dev/random of={0} bs=1024 count=1', owner SlurmUser, mode 0600)"
    )]
    Absent(String),
    /// Another failure to read it.
    #[error("{0} cannot be read ({1}): it must be a file of SlurmUser's with mode 0600")]
    Unreadable(String, io::ErrorKind),
    /// It is no regular file.
    #[error("{0} is not a regular file")]
    NoFile(String),
    /// Every user can read or change it.
    #[error(
        "{0} has mode {1:04o}, so that every user has the key: 'chmod 0600 {0}', and replace the key, which may be known"
    )]
    Open(String, u32),
    /// It is somebody else's.
    #[error("{0} belongs to uid {1}: 'chown {2} {0}' gives it to SlurmUser")]
    Owner(String, u32, u32),
    /// It is too long.
    #[error("{0} has more than {FILE_BYTES_MAX} bytes")]
    Long(String),
    /// It could be guessed.
    #[error(
        "{0} has a key of {1} bytes, which could be guessed: make one of more than {KEY_BYTES_MIN} bytes, best of 1024 random ones"
    )]
    Short(String, usize),
    /// The list of keys is none.
    #[error("{0}: {1}")]
    List(String, String),
    /// The key that tokens are made with is too old.
    #[error(
        "{0}: the key '{1}' has expired (exp): give \"use\":\"default\" to a newer one, on all hosts, and run 'scontrol reconfigure'"
    )]
    Expired(String, String),
}

impl KeyError {
    /// Whether another process of this host may have the key.
    pub(crate) fn is_not_for_this_process(&self) -> bool {
        matches!(
            self,
            KeyError::Absent(_) | KeyError::Unreadable(_, io::ErrorKind::PermissionDenied)
        )
    }
}

/// Where a host has the cluster's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFiles {
    /// One key.
    pub key: PathBuf,
    /// Several; if this is there, `key` is not read.
    pub jwks: PathBuf,
}

impl KeyFiles {
    /// The files of a directory, which is that of slurm.conf; those of the usual one if there are none. A slurm.conf that was
    /// fetched has no key beside it.
    pub fn of_directory(dir: &Path) -> KeyFiles {
        KeyFiles::find(dir, Path::new("/etc/slurm"))
    }

    fn find(dir: &Path, usual: &Path) -> KeyFiles {
        let [own, other] = [dir, usual].map(|dir| KeyFiles {
            key: dir.join("slurm.key"),
            jwks: dir.join("slurm.jwks"),
        });
        match !own.exist() && other.exist() {
            true => other,
            false => own,
        }
    }

    fn exist(&self) -> bool {
        [&self.key, &self.jwks].iter().any(|path| path.exists())
    }
}

/// State of both files: another stamp means other keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyStamp([Option<[i64; 6]>; 2]);

impl KeyFiles {
    /// Stamp of the files now.
    pub(crate) fn stamp(&self) -> KeyStamp {
        let of = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            let (ino, size) = (found.ino().cast_signed(), found.len().cast_signed());
            Some([
                ino,
                size,
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ])
        };
        KeyStamp([of(&self.jwks), of(&self.key)])
    }
}

/// A key.
pub struct ClusterKey {
    /// Its name, which tokens name; none if it is that of slurm.key.
    kid: Option<String>,
    bytes: Zeroizing<Vec<u8>>,
    /// From when on it is good for nothing, in seconds since 1970.
    expires_s: Option<u64>,
}

impl ClusterKey {
    /// Its name.
    pub(crate) fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The key itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s.is_some_and(|expires| expires <= now_s)
    }
}

/// Why no key belongs to a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// A name that is not in the file.
    #[error(
        "the token was made with a key '{0}' that is not in slurm.jwks here: see that the file is the same on both hosts, and run \
         'scontrol reconfigure'"
    )]
    Unknown(String),
    /// The key has expired.
    #[error("the token was made with the key '{0}', which has expired (exp in slurm.jwks)")]
    Expired(String),
}

/// All keys of a host.
pub struct ClusterKeys {
    /// Where they come from.
    file: PathBuf,
    keys: Vec<ClusterKey>,
    /// The one that tokens are made with.
    default: usize,
}

/// The keys do not reach logs.
impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ClusterKeys({}: {})",
            self.file.display(),
            self.keys.len()
        )
    }
}

impl ClusterKeys {
    /// Reads the cluster's keys, which are root's or those of `SlurmUser`.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn read(files: &KeyFiles, slurm_uid: u32) -> Result<ClusterKeys, KeyError> {
        match read_file(&files.jwks, slurm_uid) {
            Err(KeyError::Absent(_)) => {
                let bytes = read_file(&files.key, slurm_uid)?;
                ClusterKeys::of_one(&files.key, bytes)
            }
            Ok(bytes) => ClusterKeys::of_list(&files.jwks, &bytes),
            Err(e) => Err(e),
        }
    }

    /// The one key of a file.
    pub(crate) fn of_one(file: &Path, bytes: Zeroizing<Vec<u8>>) -> Result<ClusterKeys, KeyError> {
        if bytes.len() <= KEY_BYTES_MIN {
            return Err(KeyError::Short(name(file), bytes.len()));
        }
        let key = ClusterKey {
            kid: None,
            bytes,
            expires_s: None,
        };
        Ok(ClusterKeys {
            file: file.to_owned(),
            keys: vec![key],
            default: 0,
        })
    }

    /// The keys of a JSON Web Key Set (RFC 7517). What this does not know of a key is left out, as in Slurm.
    pub(crate) fn of_list(file: &Path, bytes: &[u8]) -> Result<ClusterKeys, KeyError> {
        let wrong = |what: String| KeyError::List(name(file), what);
        // Errors of the parser name line and column, and no part of the text.
        let list: Value =
            serde_json::from_slice(bytes).map_err(|e| wrong(format!("no JSON: {e}")))?;
        let list = list.get("keys").and_then(Value::as_array);
        let list = list.ok_or_else(|| wrong("it has no list \"keys\"".to_owned()))?;
        if list.is_empty() || list.len() > KEYS_MAX {
            let count = list.len();
            return Err(wrong(format!("{count} keys, not 1 to {KEYS_MAX}")));
        }
        let (mut keys, mut default) = (Vec::<ClusterKey>::new(), None);
        for (index, entry) in list.iter().enumerate() {
            let key = key_of(entry).map_err(|what| wrong(format!("key {}: {what}", index + 1)))?;
            let kid = key.kid.as_deref().unwrap_or("");
            if keys.iter().any(|other| other.kid == key.kid) {
                return Err(wrong(format!("two keys have the kid '{kid}'")));
            }
            if key.bytes.len() <= KEY_BYTES_MIN {
                return Err(KeyError::Short(name(file), key.bytes.len()));
            }
            if entry.get("use").and_then(Value::as_str) == Some("default") {
                if default.is_some() {
                    return Err(wrong("two keys have \"use\":\"default\"".to_owned()));
                }
                default = Some(index);
            }
            keys.push(key);
        }
        Ok(ClusterKeys {
            file: file.to_owned(),
            keys,
            default: default.unwrap_or(0),
        })
    }

    /// The key that tokens are made with.
    ///
    /// # Errors
    /// [`KeyError::Expired`].
    pub(crate) fn signing(&self, now_s: u64) -> Result<&ClusterKey, KeyError> {
        let key = &self.keys[self.default];
        match key.is_expired(now_s) {
            true => {
                let kid = key.kid.clone().unwrap_or_default();
                Err(KeyError::Expired(name(&self.file), kid))
            }
            false => Ok(key),
        }
    }

    /// The key that a token names; the default one where it names none.
    ///
    /// # Errors
    /// See [`NoKey`].
    pub(crate) fn verifying(&self, kid: Option<&str>, now_s: u64) -> Result<&ClusterKey, NoKey> {
        let found = match kid {
            None => self.keys.get(self.default),
            Some(_) => self.keys.iter().find(|key| key.kid() == kid),
        };
        let shown = || kid.unwrap_or("").to_owned();
        match found {
            None => Err(NoKey::Unknown(shown())),
            Some(key) if key.is_expired(now_s) => Err(NoKey::Expired(shown())),
            Some(key) => Ok(key),
        }
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn key_of(entry: &Value) -> Result<ClusterKey, String> {
    let text = |name: &str| {
        let value = entry.get(name).and_then(Value::as_str);
        value.ok_or_else(|| format!("\"{name}\" is missing, or no text"))
    };
    let kid = text("kid")?;
    if kid.is_empty() || kid.len() > KID_BYTES_MAX || kid.chars().any(char::is_control) {
        return Err("its \"kid\" is empty, too long, or has control characters".to_owned());
    }
    for (name, only) in [("alg", "HS256"), ("kty", "oct")] {
        if text(name)? != only {
            return Err(format!("'{kid}': \"{name}\" must be \"{only}\""));
        }
    }
    let bytes = base64url::decode_any(text("k")?.as_bytes());
    let expires_s = match entry.get("exp") {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or_else(|| format!("'{kid}': \"exp\" must be a number, seconds since 1970"))?,
        ),
    };
    Ok(ClusterKey {
        kid: Some(kid.to_owned()),
        bytes: Zeroizing::new(bytes.ok_or_else(|| format!("'{kid}': \"k\" is not valid base64"))?),
        expires_s,
    })
}

/// Reads a file that only its owner, root and perhaps a group can read.
pub(crate) fn read_file(path: &Path, slurm_uid: u32) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => KeyError::Absent(name(path)),
        kind => KeyError::Unreadable(name(path), kind),
    };
    // A pipe in its place would be waited for.
    let file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)
        .map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(KeyError::NoFile(name(path)));
    }
    if found.mode() & 0o007 != 0 {
        return Err(KeyError::Open(name(path), found.mode() & 0o7777));
    }
    if found.uid() != 0 && found.uid() != slurm_uid {
        let uid = found.uid();
        return Err(KeyError::Owner(name(path), uid, slurm_uid));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(KeyError::Long(name(path)));
    }
    // As large as it may become: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(found.len() as usize + 1));
    let read = (&file).take(found.len()).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let dir =
                std::env::temp_dir().join(format!("muster-key-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).unwrap();
            Place(dir)
        }

        fn write(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn read(&self) -> Result<ClusterKeys, KeyError> {
            let own = nix::unistd::geteuid().as_raw();
            ClusterKeys::read(&KeyFiles::of_directory(&self.0), own)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn list(text: &str) -> Result<ClusterKeys, KeyError> {
        ClusterKeys::of_list(Path::new("/etc/slurm/slurm.jwks"), text.as_bytes())
    }

    const K: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM";

    fn key(kid: &str, more: &str) -> String {
        format!(r#"{{"alg":"HS256","kty":"oct","kid":"{kid}","k":"{K}"{more}}}"#)
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_what_to_do() {
        let place = Place::new("modes");
        assert!(matches!(place.read(), Err(KeyError::Absent(_))));
        let path = place.write("slurm.key", &[7; 32], 0o600);
        let keys = place.read().unwrap();
        assert_eq!(keys.signing(0).unwrap().bytes(), [7; 32]);
        assert!(!format!("{keys:?}").contains("7, 7"), "{keys:?}");
        for mode in [0o604, 0o602, 0o601, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let why = place.read().unwrap_err();
            assert_eq!(why, KeyError::Open(name(&path), mode));
            assert!(why.to_string().contains("chmod 0600"), "{why}");
        }
        // A group is the administrator's decision.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(place.read().is_ok());
        place.write("slurm.key", &[7; 16], 0o600);
        assert!(matches!(place.read(), Err(KeyError::Short(_, 16))));
        place.write("slurm.key", &vec![7; FILE_BYTES_MAX as usize + 1], 0o600);
        assert!(matches!(place.read(), Err(KeyError::Long(_))));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(place.read(), Err(KeyError::NoFile(_))));
    }

    #[test]
    fn a_configuration_without_a_key_beside_it_leads_to_the_usual_one() {
        let (own, usual) = (Place::new("fetched"), Place::new("usual"));
        let find = || KeyFiles::find(&own.0, &usual.0).key;
        assert_eq!(find(), own.0.join("slurm.key"), "it is named in the error");
        usual.write("slurm.jwks", b"", 0o600);
        assert_eq!(find(), usual.0.join("slurm.key"));
        own.write("slurm.key", b"", 0o600);
        assert_eq!(find(), own.0.join("slurm.key"));
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not root: owners cannot be changed; this test looked at nothing");
            return;
        }
        let place = Place::new("owners");
        let path = place.write("slurm.key", &[7; 32], 0o600);
        let read = |slurm_uid| ClusterKeys::read(&KeyFiles::of_directory(&place.0), slurm_uid);
        assert!(read(64030).is_ok(), "root's");
        std::os::unix::fs::chown(&path, Some(64030), None).unwrap();
        assert!(read(64030).is_ok());
        let why = read(0).unwrap_err();
        assert_eq!(why, KeyError::Owner(name(&path), 64030, 0));
        assert!(why.to_string().contains("chown 0 "), "{why}");
    }

    #[test]
    fn a_list_of_keys_wins_and_names_the_one_to_use() {
        let place = Place::new("list");
        place.write("slurm.key", &[7; 32], 0o600);
        let text = format!(
            r#"{{"keys":[{},{},{}]}}"#,
            key("a", ""),
            key("b", r#","use":"default","exp":100,"x":[1]"#),
            key("c", r#","use":"sig""#),
        );
        place.write("slurm.jwks", text.as_bytes(), 0o600);
        let keys = place.read().unwrap();
        assert_eq!(keys.signing(99).unwrap().kid(), Some("b"));
        let why = keys.signing(100).err().unwrap();
        assert!(why.to_string().contains("'b' has expired"), "{why}");
        let verifying = |kid| {
            keys.verifying(kid, 99)
                .map(|key| key.kid().unwrap().to_owned())
        };
        assert_eq!(verifying(Some("a")), Ok("a".to_owned()));
        assert_eq!(verifying(None), Ok("b".to_owned()));
        assert_eq!(verifying(Some("d")), Err(NoKey::Unknown("d".to_owned())));
        let expired = keys.verifying(Some("b"), 100).err();
        assert_eq!(expired, Some(NoKey::Expired("b".to_owned())));
        // A list that cannot be used is not passed over for the other file.
        place.write("slurm.jwks", b"{}", 0o600);
        assert!(matches!(place.read(), Err(KeyError::List(..))));
        place.write("slurm.jwks", text.as_bytes(), 0o644);
        assert!(matches!(place.read(), Err(KeyError::Open(..))));
    }

    #[test]
    fn what_is_wrong_with_a_list_is_named_without_its_keys() {
        let several = |keys: &[String]| format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        let one = |text: &str| several(&[text.to_owned()]);
        let cases = [
            (String::new(), "no JSON"),
            ("[]".to_owned(), "no list \"keys\""),
            (several(&[]), "0 keys"),
            (one("{}"), "key 1: \"kid\" is missing"),
            (
                one(&key("a", "").replace("HS256", "none")),
                "\"alg\" must be",
            ),
            (one(&key("a", "").replace("oct", "RSA")), "\"kty\" must be"),
            (
                one(&key("a", "").replace(K, "*")),
                "\"k\" is not valid base64",
            ),
            (one(&key("a", "").replace(K, "MDEy")), "could be guessed"),
            (one(&key("a", ",\"exp\":\"x\"")), "\"exp\" must be a number"),
            (one(&key("", "")), "\"kid\" is empty"),
            (
                several(&[key("a", ""), key("a", "")]),
                "two keys have the kid 'a'",
            ),
            (
                several(&["a", "b"].map(|kid| key(kid, ",\"use\":\"default\""))),
                "two keys have \"use\"",
            ),
        ];
        for (text, expected) in cases {
            let why = list(&text).unwrap_err().to_string();
            assert!(why.contains(expected), "{text}: {why}");
            assert!(why.starts_with("/etc/slurm/slurm.jwks"), "{why}");
            assert!(!why.contains(K), "{why}");
        }
    }
}
