//! The file `journal.id`: whose journal this is. Its presence says that a journal was created
//! here, so that a controller which finds it without segments knows that state was lost, and its
//! log id is part of every checksum, so that files of two journals cannot be mixed. Text, for
//! people; the last line is a CRC-32 of the lines before it.

use crate::log_id::LogId;
use crate::storage::{Storage, read_full};
use crate::{Error, format};

/// Name of the identity file.
pub(crate) const FILE: &str = "journal.id";
const TEMPORARY: &str = "journal.id.tmp";
/// An identity file is far shorter, bytes.
const MAX_LEN: usize = 4096;

/// Content of the identity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) id: LogId,
}

impl Identity {
    pub(crate) fn new(cluster: &str, id: LogId) -> Result<Identity, Error> {
        if cluster.is_empty() || cluster.contains(|c: char| c.is_control()) || cluster.len() > 1024
        {
            return Err(Error::BadName {
                name: cluster.to_owned(),
            });
        }
        Ok(Identity {
            cluster: cluster.to_owned(),
            id,
        })
    }

    /// Writes the file, durably.
    pub(crate) fn write(&self, storage: &dyn Storage) -> Result<(), Error> {
        let path = format!("{}/{FILE}", storage.location());
        let io = |op| move |error| Error::io(op, path.clone(), error);
        let file = storage.create(TEMPORARY).map_err(io.clone()("create"))?;
        file.write_all_at(self.encode().as_bytes(), 0)
            .map_err(io.clone()("write"))?;
        file.sync().map_err(io.clone()("sync"))?;
        storage
            .rename(TEMPORARY, FILE)
            .map_err(io.clone()("rename"))?;
        storage.sync_dir().map_err(io("sync the directory of"))
    }

    /// Reads the file.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Identity, Error> {
        let path = format!("{}/{FILE}", storage.location());
        let file = storage
            .open(FILE)
            .map_err(|error| Error::io("open", path.clone(), error))?;
        let mut bytes = vec![0; MAX_LEN];
        let len = read_full(file.as_ref(), &mut bytes, 0)
            .map_err(|error| Error::io("read", path.clone(), error))?;
        Identity::decode(&bytes[..len], &path)
    }

    fn encode(&self) -> String {
        let text = format!(
            "muster journal\nformat {}\nid {}\ncluster {}\n",
            format::VERSION,
            self.id,
            self.cluster
        );
        let crc = crc32fast::hash(text.as_bytes());
        format!("{text}crc {crc:08x}\n")
    }

    fn decode(bytes: &[u8], path: &str) -> Result<Identity, Error> {
        let bad = |what: &str| Error::BadFile {
            file: path.to_owned(),
            offset: 0,
            what: what.to_owned(),
        };
        let text = str::from_utf8(bytes).map_err(|_| bad("it is not text"))?;
        let (body, crc) = text
            .rsplit_once("crc ")
            .ok_or_else(|| bad("it does not end with a checksum"))?;
        if crc != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
            return Err(bad("its checksum does not match"));
        }
        let mut lines = body.lines();
        if lines.next() != Some("muster journal") {
            return Err(bad("it does not begin with 'muster journal'"));
        }
        let mut field = |name: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(' '))
                .map(str::to_owned)
                .ok_or_else(|| bad(&format!("it has no line '{name}'")))
        };
        let found = field("format")?
            .parse()
            .map_err(|_| bad("its format is not a number"))?;
        if found != format::VERSION {
            let (file, supported) = (path.to_owned(), format::VERSION);
            return Err(Error::Version {
                file,
                found,
                supported,
            });
        }
        let id = parse_hex(&field("id")?).ok_or_else(|| bad("its id is not 32 hex digits"))?;
        Ok(Identity {
            cluster: field("cluster")?,
            id,
        })
    }
}

fn parse_hex(text: &str) -> Option<LogId> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(LogId(bytes))
}
