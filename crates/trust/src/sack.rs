//! Tokens of auth/slurm for users who cannot read the cluster's key (Slurm's name: SACK): a process that has the key
//! listens at a socket of this host, asks the kernel who connects, and makes a token for that user and nobody else. It reads
//! one bounded datagram of a connection, which says for which cluster the token is to be, and answers with one.
//!
//! The process does nothing else, has one thread but for closing what users send, and waits for nobody: a user who holds connections
//! holds a bounded number for a bounded time.

use crate::credential::Proof;
use crate::host;
use crate::node_key::{self, NodeKey, Speaker};
use crate::slurm_key::{ClusterKeys, KeyError, KeyFiles, KeyStamp};
use crate::subordinate::SubordinateUids;
use crate::token::{self, TokenClaims, TokenRequest};
use muster_channel::{CREDENTIAL_BYTES_MAX, Purpose, SECRET, Scheme};
use muster_closer::{passed, refuse_descriptors};
use muster_model::limits::may_connect;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials, bind, connect,
    getsockopt, listen, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use std::collections::HashMap;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Beginning of a request.
const REQUEST: &[u8] = b"muster sack 1\n";
/// First byte of an answer, and of a refusal.
const MADE: u8 = 1;
const REFUSED: u8 = 2;
/// First byte of an answer made with the key of this node.
const MADE_BY_NODE: u8 = 3;
/// Bytes of a request: its beginning and the name of a cluster.
const REQUEST_BYTES_MAX: usize = 256;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 + SECRET + CREDENTIAL_BYTES_MAX;
/// Connections at a time.
const CONNECTIONS_MAX: u64 = 256;
/// Connections of one user at a time.
const CONNECTIONS_OF_UID_MAX: u64 = 16;
/// Time limit for a user's request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a command waits for an answer.
const ANSWER_TIMEOUT_S: i64 = 5;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// Why a command has no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SackError {
    /// Nothing listens.
    #[error(
        "no process of this host makes tokens of auth/slurm for users (tried: {0}): start sackd here (a login host), or slurmd (a node)"
    )]
    Absent(String),
    /// It does not answer.
    #[error(
        "the process that makes tokens of auth/slurm at {0} does not answer ({1}): restart sackd, or slurmd on a node"
    )]
    Silent(String, String),
    /// It makes none for this user.
    #[error("{0} makes no token: {1}")]
    Refused(String, String),
}

/// Where it is looked for: `$SLURM_SACK_SOCKET`, or the directory of the cluster, if several are served here, or the usual place.
pub fn sockets(cluster: &str) -> Vec<PathBuf> {
    match std::env::var_os("SLURM_SACK_SOCKET").filter(|path| !path.is_empty()) {
        Some(path) => vec![path.into()],
        None => vec![
            format!("/run/slurm-{cluster}/sack.socket").into(),
            "/run/slurm/sack.socket".into(),
        ],
    }
}

/// Where a daemon makes it: `$SLURM_SACK_SOCKET`; or, if the daemon has a directory for nothing else, in `$RUNTIME_DIRECTORY`
/// (systemd.exec(5)); or the usual place.
pub fn own_socket(has_directory: bool) -> PathBuf {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = given("RUNTIME_DIRECTORY").filter(|_| has_directory);
    match (given("SLURM_SACK_SOCKET"), directory) {
        (Some(path), _) => path.into(),
        (None, Some(dir)) => Path::new(&dir).join("sack.socket"),
        (None, None) => "/run/slurm/sack.socket".into(),
    }
}

/// Asks for a proof for this process's user.
///
/// # Errors
/// See [`SackError`].
pub fn ask(cluster: &str) -> Result<Proof, SackError> {
    ask_at(&sockets(cluster), cluster)
}

fn ask_at(sockets: &[PathBuf], cluster: &str) -> Result<Proof, SackError> {
    for path in sockets {
        let shown = || path.display().to_string();
        let silent = |e: Errno| SackError::Silent(shown(), e.desc().to_owned());
        let connection = match dial(path) {
            Ok(connection) => connection,
            Err(Errno::ENOENT | Errno::ECONNREFUSED) => continue,
            Err(e) => return Err(silent(e)),
        };
        let request = [REQUEST, cluster.as_bytes()].concat();
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let flags = MsgFlags::MSG_NOSIGNAL;
        // A server that does not take the connection has sent its reason before it was closed.
        let sent = send(connection.as_raw_fd(), &request, flags);
        let answered = recv(connection.as_raw_fd(), &mut answer, MsgFlags::empty());
        let length = answered.map_err(|e| silent(sent.err().unwrap_or(e)))?;
        return match answer.get(..length).and_then(<[u8]>::split_first) {
            Some((&kind @ (MADE | MADE_BY_NODE), rest)) if rest.len() > SECRET => {
                let (secret, credential) = rest.split_at(SECRET);
                Ok(Proof {
                    scheme: match kind {
                        MADE => Scheme::Slurm,
                        _ => Scheme::Node,
                    },
                    credential: credential.to_vec(),
                    secret: secret.try_into().expect("it has been cut to that length"),
                })
            }
            Some((&REFUSED, why)) => {
                let why = String::from_utf8_lossy(why).into_owned();
                Err(SackError::Refused(shown(), why))
            }
            _ => Err(SackError::Silent(
                shown(),
                "it closed the connection".to_owned(),
            )),
        };
    }
    let tried: Vec<String> = sockets
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Err(SackError::Absent(tried.join(", ")))
}

fn dial(path: &Path) -> Result<OwnedFd, Errno> {
    let kind = SockType::SeqPacket;
    let connection = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    // They bound connect(2) too.
    let patience = TimeVal::seconds(ANSWER_TIMEOUT_S);
    setsockopt(&connection, sockopt::SendTimeout, &patience)?;
    setsockopt(&connection, sockopt::ReceiveTimeout, &patience)?;
    connect(connection.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(connection)
}

/// Settings of a process that makes tokens.
#[derive(Clone, Debug)]
pub struct SackSettings {
    /// `ClusterName`.
    pub cluster: String,
    /// Where the key is.
    pub files: KeyFiles,
    /// The number of `SlurmUser`, who is to read the tokens and may have the key.
    pub slurm_uid: u32,
    /// `ttl=` of `AuthInfo`.
    pub ttl_s: Option<u32>,
    /// Where this node's own key is, which is used in place of the cluster's if it is there.
    pub node_key: Option<PathBuf>,
    /// Where lines for the administrator go.
    pub log: fn(&str),
}

/// The socket of a process that makes tokens, which it alone serves.
#[derive(Debug)]
pub struct SackSocket {
    listener: UnixListener,
    /// The kernel lets nobody send descriptors to it.
    refuses_descriptors: bool,
    path: PathBuf,
    /// Held as long as the socket is served.
    _lock: File,
}

impl SackSocket {
    /// Makes the socket, and its directory. If another process serves it, waits until that ends.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(path: &Path) -> io::Result<SackSocket> {
        let lock = SackSocket::open_lock(path)?;
        lock.lock()?;
        SackSocket::with_lock(path, lock)
    }

    /// As above; none if another process serves it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn try_open(path: &Path) -> io::Result<Option<SackSocket>> {
        let lock = SackSocket::open_lock(path)?;
        match lock.try_lock() {
            Ok(()) => SackSocket::with_lock(path, lock).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn open_lock(path: &Path) -> io::Result<File> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755).create(dir)?;
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(lock)
    }

    fn with_lock(path: &Path, lock: File) -> io::Result<SackSocket> {
        // One of a process that was killed.
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
        let refuses_descriptors = refuse_descriptors(&listener).is_ok();
        passed::start()?;
        open_to_all(path)?;
        listen(&listener, Backlog::new(BACKLOG)?)?;
        Ok(SackSocket {
            listener: listener.into(),
            refuses_descriptors,
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

/// Lets every user connect to a socket. It is the socket whose mode is changed, and not what a link in its place leads to.
///
/// # Errors
/// It is no socket, or its mode cannot be changed.
pub fn open_to_all(socket: &Path) -> io::Result<()> {
    let found = File::options()
        .read(true)
        .custom_flags(nix::libc::O_PATH | nix::libc::O_NOFOLLOW)
        .open(socket)?;
    if !found.metadata()?.file_type().is_socket() {
        return Err(io::Error::other("another file was put in its place"));
    }
    let by_descriptor = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::set_permissions(by_descriptor, Permissions::from_mode(0o666))
}

impl Drop for SackSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

struct Connection {
    /// None while it is being closed.
    socket: Option<UnixStream>,
    /// The kernel lets nobody send descriptors by it, which would be closed with it.
    refuses_descriptors: bool,
    user: UnixCredentials,
    /// The user to whom the connection is charged.
    charged: u32,
    until: Instant,
}

impl Connection {
    fn number(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Takes the next message, as far as there is room.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.socket {
            Some(socket) => passed::receive_into(self.charged, socket, bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn refuse(&self, why: &str) {
        // A connection that is closed with bytes in it is reset, and the answer is lost.
        let _ = self.receive(&mut [0; 1]);
        let answer = [&[REFUSED], why.as_bytes()].concat();
        // A disconnected client needs no answer.
        let _ = send(self.number(), &answer, quietly());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take().filter(|_| !self.refuses_descriptors) {
            passed::close_messages(self.charged, socket.into());
        }
    }
}

/// Makes tokens for who connects. It reads the key anew when its files have changed.
#[derive(Debug)]
pub struct SackServer {
    settings: SackSettings,
    keys: Result<ClusterKeys, KeyError>,
    /// Stamp of the files when the key was read.
    stamp: KeyStamp,
    socket: SackSocket,
    host: String,
    connections: Vec<Connection>,
    subordinate: SubordinateUids,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection(uid {})", self.user.uid())
    }
}

impl SackServer {
    /// Reads the key. Without one it serves too, and says why nobody gets a token.
    pub fn new(settings: SackSettings, socket: SackSocket) -> SackServer {
        let stamp = settings.files.stamp();
        let keys = ClusterKeys::read(&settings.files, settings.slurm_uid);
        let has_own = settings
            .node_key
            .as_deref()
            .is_some_and(|directory| directory.join(node_key::FILE).exists());
        if let Err(e) = &keys
            && !has_own
        {
            (settings.log)(&e.to_string());
        }
        SackServer {
            settings,
            keys,
            stamp,
            socket,
            host: host::short_name(),
            connections: Vec::new(),
            subordinate: SubordinateUids::default(),
        }
    }

    /// Why there is no key.
    ///
    /// # Errors
    /// If there is none.
    pub fn check(&self) -> Result<(), KeyError> {
        self.keys.as_ref().map(|_| ()).map_err(KeyError::clone)
    }

    /// Reads the key anew if its files have changed. If it cannot be used, the one before it remains.
    fn refresh(&mut self) {
        let stamp = self.settings.files.stamp();
        if stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        match ClusterKeys::read(&self.settings.files, self.settings.slurm_uid) {
            Ok(keys) => {
                (self.settings.log)("the key of the cluster was read anew");
                self.keys = Ok(keys);
            }
            Err(e) if self.keys.is_ok() => {
                (self.settings.log)(&format!("the key that was read before is used on: {e}"));
            }
            Err(e) => {
                (self.settings.log)(&e.to_string());
                self.keys = Err(e);
            }
        }
    }

    /// Serves users for one turn; false if something has come by `watched`.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn serve_once(&mut self, watched: BorrowedFd<'_>) -> io::Result<bool> {
        let ready = {
            let listener = self.socket.listener.as_fd();
            let own = [watched, listener];
            let all = own.into_iter().chain(
                self.connections
                    .iter()
                    .filter_map(|open| open.socket.as_ref().map(UnixStream::as_fd)),
            );
            let mut fds: Vec<PollFd> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut fds, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready = |fd: &PollFd| fd.revents().is_some_and(|found| !found.is_empty());
            fds.iter().map(ready).collect::<Vec<bool>>()
        };
        let [is_watched, has_client, asked @ ..] = ready.as_slice() else {
            return Ok(true);
        };
        if asked.contains(&true) {
            self.refresh();
        }
        let now = Instant::now();
        let open = std::mem::take(&mut self.connections);
        for (connection, asked) in open.into_iter().zip(asked) {
            match asked {
                true => self.answer(&connection),
                false if connection.until > now => self.connections.push(connection),
                false => {}
            }
        }
        if *has_client {
            self.accept(now);
        }
        Ok(!is_watched)
    }

    /// Until the first connection has taken too long.
    fn timeout(&self) -> PollTimeout {
        let first = self.connections.iter().map(|open| open.until).min();
        first.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            let rounded = left.as_millis().saturating_add(1);
            PollTimeout::try_from(rounded).unwrap_or(PollTimeout::MAX)
        })
    }

    /// Accepts those who wait, as far as there is room. A connection of a user who has too many is closed.
    fn accept(&mut self, now: Instant) {
        let mut of_uid: HashMap<u32, usize> = HashMap::new();
        for open in &self.connections {
            *of_uid.entry(open.charged).or_default() += 1;
        }
        for _ in 0..CONNECTIONS_MAX {
            // It accepts sockets of this kind as well.
            let Ok((socket, _)) = self.socket.listener.accept() else {
                return;
            };
            let Ok(user) = getsockopt(&socket, sockopt::PeerCredentials) else {
                continue;
            };
            let charged = self.subordinate.charged(user.uid());
            let count = of_uid.entry(charged).or_default();
            let (own, all) = (*count as u64, self.connections.len() as u64);
            let connection = Connection {
                socket: Some(socket),
                refuses_descriptors: self.socket.refuses_descriptors,
                user,
                charged,
                until: now + REQUEST_TIMEOUT,
            };
            if !may_connect(own, all, CONNECTIONS_OF_UID_MAX, CONNECTIONS_MAX) {
                connection.refuse("too many connections at a time: try again");
                continue;
            }
            *count += 1;
            self.connections.push(connection);
        }
    }

    fn answer(&self, connection: &Connection) {
        let mut request = [0; REQUEST_BYTES_MAX];
        // A longer request is cut, and then refused.
        let Ok(length) = connection.receive(&mut request) else {
            return;
        };
        match self.make(&request[..length], &connection.user) {
            Ok(answer) => drop(send(connection.number(), &answer, quietly())),
            Err(why) => connection.refuse(&why),
        }
    }

    /// This node's own key, if it has one.
    fn node_key(&self) -> Result<Option<NodeKey>, String> {
        let directory = self.settings.node_key.as_deref();
        let found = directory.map_or(Ok(None), NodeKey::find);
        found.map_err(|e| e.to_string())
    }

    fn make(&self, request: &[u8], user: &UnixCredentials) -> Result<Vec<u8>, String> {
        let cluster = request
            .strip_prefix(REQUEST)
            .ok_or("the request is one of another version: update Muster on this host")?;
        let own = &self.settings.cluster;
        if !cluster.eq_ignore_ascii_case(own.as_bytes()) {
            let theirs = String::from_utf8_lossy(cluster)
                .escape_default()
                .to_string();
            return Err(format!(
                "tokens of this host are for cluster '{own}', and slurm.conf says '{theirs}': start a sackd of that cluster, \
                 with RUNTIME_DIRECTORY=/run/slurm-{theirs}"
            ));
        }
        if let Some(key) = self.node_key()? {
            let (uid, gid) = (user.uid(), user.gid());
            let proof = key.proof(Speaker::User { uid, gid });
            let proof = proof.map_err(|e| e.to_string())?;
            return Ok([&[MADE_BY_NODE], &proof.secret[..], &proof.credential].concat());
        }
        let claims = TokenClaims {
            cluster: own.clone(),
            purpose: Purpose::User,
            receiver_uid: self.settings.slurm_uid,
            uid: user.uid(),
            gid: user.gid(),
            host: self.host.clone(),
        };
        let how = TokenRequest::now(self.settings.ttl_s);
        let how = how.map_err(|e| format!("no random numbers: {e}"))?;
        let keys = self.keys.as_ref().map_err(ToString::to_string)?;
        let minted = token::mint(keys, &claims, how).map_err(|e| e.to_string())?;
        Ok([&[MADE], &minted.secret[..], minted.token.as_bytes()].concat())
    }
}

fn quietly() -> MsgFlags {
    MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm_key::ClusterKeys;
    use crate::token::now_s;
    use nix::unistd::{getegid, geteuid, pipe};
    use std::thread::JoinHandle;

    /// A server in a thread, until it is dropped.
    struct Running {
        dir: PathBuf,
        stop: Option<OwnedFd>,
        server: Option<JoinHandle<()>>,
    }

    impl Running {
        fn start(name: &str) -> Running {
            let dir =
                std::env::temp_dir().join(format!("muster-sack-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).unwrap();
            let key = dir.join("slurm.key");
            fs::write(&key, [1; 32]).unwrap();
            fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
            let (watched, stop) = pipe().unwrap();
            let mut running = Running {
                dir,
                stop: Some(stop),
                server: None,
            };
            let settings = SackSettings {
                cluster: "c".to_owned(),
                files: KeyFiles::of_directory(&running.dir),
                slurm_uid: geteuid().as_raw(),
                ttl_s: None,
                node_key: Some(running.dir.join("spool")),
                log: |_| (),
            };
            let socket = SackSocket::try_open(&running.path()).unwrap().unwrap();
            let mut server = SackServer::new(settings, socket);
            let serve = move || while server.serve_once(watched.as_fd()).unwrap() {};
            running.server = Some(std::thread::spawn(serve));
            running
        }

        fn path(&self) -> PathBuf {
            self.dir.join("run/sack.socket")
        }

        fn ask(&self, cluster: &str) -> Result<(Vec<u8>, [u8; SECRET]), SackError> {
            let proof = self.ask_for_proof(cluster)?;
            assert_eq!(proof.scheme, Scheme::Slurm);
            Ok((proof.credential, proof.secret))
        }

        fn ask_for_proof(&self, cluster: &str) -> Result<Proof, SackError> {
            ask_at(&[self.dir.join("none"), self.path()], cluster)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.stop = None;
            self.server.take().unwrap().join().unwrap();
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn a_token_is_for_who_asks_and_this_cluster() {
        let running = Running::start("user");
        let (token, secret) = running.ask("C").unwrap();
        let own = geteuid().as_raw();
        let keys = ClusterKeys::read(&KeyFiles::of_directory(&running.dir), own).unwrap();
        let opened = token::open(&keys, &token, now_s(), own).unwrap();
        let claims = &opened.claims;
        assert_eq!((claims.uid, claims.gid), (own, getegid().as_raw()));
        assert_eq!((&*claims.cluster, &claims.purpose), ("c", &Purpose::User));
        assert_eq!(opened.secret, secret);
        let (again, _) = running.ask("c").unwrap();
        assert_ne!(again, token);
        let foreign = running.ask("other").unwrap_err().to_string();
        assert!(foreign.contains("slurm.conf says 'other'"), "{foreign}");
        let long = running.ask(&"c".repeat(5000)).unwrap_err();
        assert!(matches!(long, SackError::Refused(..)), "{long}");
        let connection = dial(&running.path()).unwrap();
        send(connection.as_raw_fd(), b"GET /", MsgFlags::empty()).unwrap();
        let mut answer = [0; 200];
        let length = recv(connection.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
        assert_eq!(answer[0], REFUSED, "{:?}", &answer[..length]);
    }

    #[test]
    fn a_node_with_a_key_of_its_own_says_with_it_who_asks() {
        let running = Running::start("node");
        let controller = crate::KeyPair::of([3; crate::KEY]);
        let key = NodeKey::make("c", "n1", controller.public()).unwrap();
        let spool = running.dir.join("spool");
        fs::create_dir(&spool).unwrap();
        key.write(&spool.join(node_key::FILE)).unwrap();
        let proof = running.ask_for_proof("c").unwrap();
        assert_eq!(proof.scheme, Scheme::Node);
        let claim = node_key::NodeClaim::decode(&proof.credential).unwrap();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        assert_eq!(claim.speaker, Speaker::User { uid, gid });
        let own = claim.secret_for_controller(&controller, &key.public());
        assert_eq!(own, Ok(proof.secret));
        // A file without a valid key is not used, and nothing else in its place.
        fs::write(spool.join(node_key::FILE), "").unwrap();
        let why = running.ask_for_proof("c").unwrap_err().to_string();
        assert!(why.contains("has no key of a node"), "{why}");
    }

    #[test]
    fn a_key_that_is_replaced_is_used_at_once_and_a_bad_one_never() {
        let running = Running::start("rotate");
        let own = geteuid().as_raw();
        let path = running.dir.join("slurm.key");
        let is_made_with = |byte: u8| {
            let (token, _) = running.ask("c").unwrap();
            let keys = crate::token::tests::keys(byte);
            token::open(&keys, &token, now_s(), own).is_ok()
        };
        assert!(is_made_with(1));
        fs::write(&path, [2; 32]).unwrap();
        assert!(is_made_with(2));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, [3; 32]).unwrap();
        assert!(is_made_with(2));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(is_made_with(3));
    }

    #[test]
    fn who_does_not_find_one_is_given_what_to_start() {
        let why = ask_at(&["/nonexistent/sack.socket".into()], "c").unwrap_err();
        assert!(why.to_string().contains("start sackd here"), "{why}");
    }

    #[test]
    fn connections_of_a_user_are_bounded_in_number_and_time() {
        let running = Running::start("bounds");
        let idle: Vec<OwnedFd> = (0..CONNECTIONS_OF_UID_MAX)
            .map(|_| dial(&running.path()).unwrap())
            .collect();
        let why = running.ask("c").unwrap_err().to_string();
        assert!(why.contains("too many connections at a time"), "{why}");
        // They are closed when their time is over.
        for connection in &idle {
            let read = recv(connection.as_raw_fd(), &mut [0; 1], MsgFlags::empty());
            assert_eq!(read, Ok(0));
        }
        assert!(running.ask("c").is_ok());
    }

    #[test]
    fn one_process_serves_a_socket_and_takes_over_from_one_that_was_killed() {
        let running = Running::start("taken");
        assert!(SackSocket::try_open(&running.path()).unwrap().is_none());
        let other = running.dir.join("run/other.socket");
        let killed = SackSocket::try_open(&other).unwrap().unwrap();
        // Its file stays.
        let copy = running.dir.join("run/copy");
        fs::hard_link(&other, &copy).unwrap();
        drop(killed);
        fs::rename(&copy, &other).unwrap();
        let next = SackSocket::try_open(&other).unwrap();
        assert!(next.is_some());
        let mode = fs::metadata(&other).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
    }
}
