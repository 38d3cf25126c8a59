//! Credentials of munge (munge(7)), by the site's own libmunge, which is opened when it is needed: who has no munge needs no
//! library. munged says who asks for a credential, and decodes one for nobody but whom it is restricted to.
//!
//! A call may take ten seconds where munged hangs: callers that must not wait call it on threads of their own.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

/// Names of the library, newest first.
const LIBRARIES: [&str; 2] = ["libmunge.so.2", "libmunge.so"];
/// Bytes of a payload. munged takes more; payloads here are small.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// `munge_opt_t` and `munge_cipher_t` of munge.h.
const OPT_CIPHER: c_int = 0;
const OPT_TTL: c_int = 4;
const OPT_SOCKET: c_int = 8;
const OPT_UID_RESTRICTION: c_int = 9;
/// Payloads have secrets in them: they are encrypted whatever munged's own default is.
const CIPHER_AES256: c_int = 5;

/// Why there is no credential, or none that is believed. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MungeError {
    /// The library is not on this host.
    #[error(
        "libmunge cannot be opened ({0}): install munge on this host (Debian: munge, libmunge2)"
    )]
    Library(String),
    /// munged does not answer.
    #[error(
        "munged does not answer ({0}): see that it runs on this host, and that AuthInfo=socket= leads to it"
    )]
    Daemon(String),
    /// It is older than it may be, or the clocks of two hosts differ.
    #[error("the credential has expired: see that the clocks of both hosts are the same")]
    Expired,
    /// It was made in the future.
    #[error(
        "the credential was made in the future: see that the clocks of both hosts are the same"
    )]
    Rewound,
    /// It was shown before.
    #[error("the credential was used before")]
    Replayed,
    /// It was made with another key, or changed.
    #[error(
        "the credential was made with another munge key, or was changed: see that munge.key is the same on both hosts"
    )]
    Invalid,
    /// It is restricted to another user.
    #[error(
        "the credential is for another user than uid {0}: see that SlurmUser has the same uid on both hosts"
    )]
    Receiver(u32),
    /// It is no credential of munge.
    #[error("invalid munge credential: {0}")]
    Malformed(String),
    /// Something else.
    #[error("munge: {0}")]
    Other(String),
}

/// Content of a decoded credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCredential {
    /// Its maker.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// Payload by the maker.
    pub payload: Vec<u8>,
}

type ContextCreate = unsafe extern "C" fn() -> *mut c_void;
type ContextDestroy = unsafe extern "C" fn(*mut c_void);
type ContextSet = unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int;
type ContextError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Encode = unsafe extern "C" fn(*mut *mut c_char, *mut c_void, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(
    *const c_char,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
    *mut u32,
    *mut u32,
) -> c_int;

/// The library. Calls may come from several threads: each has a context of its own.
pub struct Munge {
    create: ContextCreate,
    destroy: ContextDestroy,
    set: ContextSet,
    error: ContextError,
    encode: Encode,
    decode: Decode,
    socket: Option<CString>,
    ttl_s: Option<c_int>,
    /// Keeps what the pointers lead to.
    _library: libloading::Library,
}

impl std::fmt::Debug for Munge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Munge({:?})", self.socket)
    }
}

impl Munge {
    /// Opens the library. `socket` is munged's, where it is not its usual one; `ttl_s` how long credentials are good for.
    ///
    /// # Errors
    /// [`MungeError::Library`].
    #[allow(unsafe_code)]
    pub fn open(socket: Option<&Path>, ttl_s: Option<u32>) -> Result<Munge, MungeError> {
        let mut failed = String::new();
        for name in LIBRARIES {
            // SAFETY: loading libmunge runs its constructors, which do nothing but set up memory of its own.
            match unsafe { libloading::Library::new(name) } {
                Ok(library) => return Munge::of_library(library, socket, ttl_s),
                Err(e) => failed = e.to_string(),
            }
        }
        Err(MungeError::Library(failed))
    }

    #[allow(unsafe_code)]
    fn of_library(
        library: libloading::Library,
        socket: Option<&Path>,
        ttl_s: Option<u32>,
    ) -> Result<Munge, MungeError> {
        fn symbol<T: Copy>(library: &libloading::Library, name: &str) -> Result<T, MungeError> {
            // SAFETY: the types above are those of munge.h, which have not changed since libmunge.so.2 began.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            found
                .map(|symbol| *symbol)
                .map_err(|e| MungeError::Library(e.to_string()))
        }
        let socket = socket.map(|path| CString::new(path.as_os_str().as_encoded_bytes()));
        Ok(Munge {
            create: symbol(&library, "munge_ctx_create")?,
            destroy: symbol(&library, "munge_ctx_destroy")?,
            set: symbol(&library, "munge_ctx_set")?,
            error: symbol(&library, "munge_ctx_strerror")?,
            encode: symbol(&library, "munge_encode")?,
            decode: symbol(&library, "munge_decode")?,
            socket: socket
                .transpose()
                .map_err(|e| MungeError::Other(e.to_string()))?,
            ttl_s: ttl_s.map(|ttl_s| c_int::try_from(ttl_s).unwrap_or(c_int::MAX)),
            _library: library,
        })
    }

    /// A credential with this payload, which only this user can decode.
    ///
    /// # Errors
    /// [`MungeError::Daemon`], mostly.
    #[allow(unsafe_code)]
    pub fn encode(&self, payload: &[u8], receiver_uid: u32) -> Result<Vec<u8>, MungeError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(MungeError::Other("the payload is too long".to_owned()));
        }
        let context = self.context()?;
        context.set_number(OPT_CIPHER, CIPHER_AES256)?;
        // The library takes it as the int that has these bits.
        context.set_number(OPT_UID_RESTRICTION, receiver_uid.cast_signed())?;
        if let Some(ttl_s) = self.ttl_s {
            context.set_number(OPT_TTL, ttl_s)?;
        }
        let mut made: *mut c_char = std::ptr::null_mut();
        let length = payload.len() as c_int;
        // SAFETY: the context is this call's own; the payload has `length` bytes; `made` is where the library puts a
        // text that it has allocated by malloc(3), or leaves null.
        let failed =
            unsafe { (self.encode)(&raw mut made, context.raw, payload.as_ptr().cast(), length) };
        // SAFETY: see above.
        let made = unsafe { Allocated::new(made.cast()) };
        match (failed, made) {
            // SAFETY: where the library reports success, this is a text that ends with a zero.
            (0, Some(made)) => Ok(unsafe { CStr::from_ptr(made.0.cast()) }.to_bytes().to_vec()),
            _ => Err(context.why(failed)),
        }
    }

    /// Decodes and verifies a credential.
    ///
    /// # Errors
    /// It is invalid: see [`MungeError`].
    #[allow(unsafe_code)]
    pub fn decode(&self, credential: &[u8]) -> Result<DecodedCredential, MungeError> {
        let credential = CString::new(credential)
            .map_err(|_| MungeError::Malformed("it has a zero in it".to_owned()))?;
        let context = self.context()?;
        let (mut payload, mut length): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
        let (mut uid, mut gid) = (u32::MAX, u32::MAX);
        // SAFETY: as in `encode`; the credential ends with a zero.
        let failed = unsafe {
            (self.decode)(
                credential.as_ptr(),
                context.raw,
                &raw mut payload,
                &raw mut length,
                &raw mut uid,
                &raw mut gid,
            )
        };
        // SAFETY: a payload that the library gives was allocated by malloc(3).
        let payload = unsafe { Allocated::new(payload) };
        // The library gives all of this for credentials that are to be refused, too.
        if failed != 0 {
            return Err(context.why(failed));
        }
        let bytes = match (payload, usize::try_from(length)) {
            (Some(payload), Ok(length)) => {
                // SAFETY: where the library reports success, the payload has `length` bytes.
                unsafe { std::slice::from_raw_parts(payload.0.cast::<u8>(), length) }.to_vec()
            }
            _ => Vec::new(),
        };
        Ok(DecodedCredential {
            uid,
            gid,
            payload: bytes,
        })
    }

    /// Whether munged restricts credentials to users: a credential for another user than this process's must not be decoded.
    ///
    /// # Errors
    /// It was; or munged does not answer.
    pub fn check_restriction(&self) -> Result<(), MungeError> {
        let other = nix_uid().wrapping_add(1) & 0x7fff_ffff;
        let credential = self.encode(b"self-test", other)?;
        match self.decode(&credential) {
            Err(MungeError::Receiver(_)) => Ok(()),
            Err(other) => Err(other),
            Ok(_) => Err(MungeError::Other(
                "munged decodes credentials that are for other users: it cannot be trusted; replace it by the distribution's"
                    .to_owned(),
            )),
        }
    }

    #[allow(unsafe_code)]
    fn context(&self) -> Result<Context<'_>, MungeError> {
        // SAFETY: takes nothing, gives a context or null.
        let raw = unsafe { (self.create)() };
        if raw.is_null() {
            return Err(MungeError::Other("no memory for a context".to_owned()));
        }
        let context = Context { munge: self, raw };
        if let Some(socket) = &self.socket {
            // SAFETY: this option takes a text that ends with a zero, which the library copies.
            let failed = unsafe { (self.set)(raw, OPT_SOCKET, socket.as_ptr()) };
            if failed != 0 {
                return Err(context.why(failed));
            }
        }
        Ok(context)
    }
}

fn nix_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A context of the library, for one call.
struct Context<'m> {
    munge: &'m Munge,
    raw: *mut c_void,
}

impl Context<'_> {
    #[allow(unsafe_code)]
    fn set_number(&self, option: c_int, value: c_int) -> Result<(), MungeError> {
        // SAFETY: these options take an int.
        match unsafe { (self.munge.set)(self.raw, option, value) } {
            0 => Ok(()),
            failed => Err(self.why(failed)),
        }
    }

    /// The error of a number (`munge_err_t`), with what the context says of it.
    #[allow(unsafe_code)]
    fn why(&self, failed: c_int) -> MungeError {
        // SAFETY: the context is there; the text, if there is one, ends with a zero and lives as long as the context.
        let text = unsafe {
            let text = (self.munge.error)(self.raw);
            match text.is_null() {
                true => format!("error {failed}"),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        };
        match failed {
            6 | 7 => MungeError::Daemon(text),
            2 | 8..=13 => MungeError::Malformed(text),
            14 => MungeError::Invalid,
            15 => MungeError::Expired,
            16 => MungeError::Rewound,
            17 => MungeError::Replayed,
            18 => MungeError::Receiver(nix_uid()),
            _ => MungeError::Other(text),
        }
    }
}

impl Drop for Context<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it was made by `create`, and is not used any more.
        unsafe { (self.munge.destroy)(self.raw) };
    }
}

/// Memory that the library has allocated by malloc(3), cleared and freed at the end: payloads have secrets.
struct Allocated(*mut c_void);

impl Allocated {
    /// # Safety
    /// The pointer is null, or from malloc(3) and nobody else's.
    #[allow(unsafe_code)]
    unsafe fn new(raw: *mut c_void) -> Option<Allocated> {
        (!raw.is_null()).then_some(Allocated(raw))
    }
}

impl Drop for Allocated {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: see `new`.
        unsafe { nix::libc::free(self.0) };
    }
}
