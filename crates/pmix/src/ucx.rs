//! UCX as a transport for messages between hosts (`PMIxDirectConnUCX`): the real libucp, opened at run time. It sends
//! tagged bytes to an address and reports broken endpoints; [`crate::lane`] decides the message of each tag. It has one
//! thread and does not block: the host polls a descriptor of the library.
#![allow(unsafe_code)]

mod sys;

use crate::sys::set_variable;
use minicbor::{Decode, Encode};
use muster_model::limits::FRAME_BYTES_MAX;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use sys::Functions;

/// File name of the library in every version since 1.0.
const NAME: &str = "libucp.so.0";
/// Variable with the path of another libucp.
const VARIABLE: &str = "MUSTER_UCX_LIB";
/// Settings for UCX in this process: do not catch signals, do not hook memory functions, do not
/// warn about unused variables, which are meant for other processes, and do not write to standard
/// output. Process one TCP event at a time: UCX 1.13 aborts if further events of an endpoint follow
/// the one that closes it.
const MANNERS: [(&std::ffi::CStr, &str); 5] = [
    (c"UCX_ERROR_SIGNALS", ""),
    (c"UCX_MEM_EVENTS", "n"),
    (c"UCX_WARN_UNUSED_ENV_VARS", "n"),
    (c"UCX_LOG_FILE", "stderr"),
    (c"UCX_TCP_MAX_POLL", "1"),
];

/// The networks and transports that mpi.conf lets the library use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct UcxChoice {
    /// `PMIxNetDevicesUCX`.
    #[n(0)]
    pub devices: Option<String>,
    /// `PMIxTlsUCX`.
    #[n(1)]
    pub transports: Option<String>,
}

impl UcxChoice {
    /// Sets the environment variables of the library before it is opened. To be called while this
    /// process has one thread.
    pub(crate) fn set(&self) {
        for (name, value) in MANNERS {
            set_variable(name, value);
        }
        let own = [
            (c"UCX_NET_DEVICES", &self.devices),
            (c"UCX_TLS", &self.transports),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                set_variable(name, value);
            }
        }
    }
}

/// An endpoint, which leads to one other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(*mut c_void);

/// A received packet.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrival {
    /// A message with its tag.
    Message(u64, Vec<u8>),
    /// An endpoint is broken; the text says why.
    Broken(Endpoint, String),
}

/// Error callbacks of the library store broken endpoints here.
type Faults = Mutex<Vec<(usize, c_int)>>;

/// An open library with one worker.
pub(crate) struct Ucx {
    functions: Functions,
    context: *mut c_void,
    worker: *mut c_void,
    /// Descriptor that becomes readable when there is work.
    wake: RawFd,
    address: Vec<u8>,
    /// Messages that the library is sending or receiving.
    busy: Vec<Transfer>,
    faults: Box<Faults>,
}

struct Transfer {
    request: *mut c_void,
    /// Buffer that the library reads or writes, so it must not move.
    bytes: Vec<u8>,
    /// Tag of a message that is being received.
    tag: Option<u64>,
}

impl std::fmt::Debug for Ucx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ucx").finish_non_exhaustive()
    }
}

unsafe extern "C" fn broken(faults: *mut c_void, endpoint: *mut c_void, status: c_int) {
    // SAFETY: the argument is the box of the `Ucx` whose worker calls this, from within a call of its owner's.
    let faults = unsafe { &*faults.cast::<Faults>() };
    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
    faults.push((endpoint.addr(), status));
}

impl Ucx {
    /// Opens the library and creates a worker that other hosts can reach.
    pub(crate) fn open() -> io::Result<Ucx> {
        let own = std::env::var(VARIABLE).ok().filter(|v| !v.is_empty());
        let path = own.as_deref().unwrap_or(NAME);
        let functions = sys::open(path).map_err(|e| {
            io::Error::other(format!(
                "no UCX library can be opened ({e}); install it (Debian: libucx0), or name it in {VARIABLE}"
            ))
        })?;
        let mut ucx = Ucx {
            functions,
            context: std::ptr::null_mut(),
            worker: std::ptr::null_mut(),
            wake: -1,
            address: Vec::new(),
            busy: Vec::new(),
            faults: Box::default(),
        };
        ucx.start()?;
        Ok(ucx)
    }

    fn start(&mut self) -> io::Result<()> {
        let f = &self.functions;
        let params = sys::Params {
            mask: sys::HAS_FEATURES,
            features: sys::FEATURES,
            rest: [0; 16],
        };
        let of_worker = sys::WorkerParams {
            mask: sys::HAS_THREAD_MODE,
            thread_mode: 0,
            rest: [0; 40],
        };
        let mut config = std::ptr::null_mut();
        let (mut bytes, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: all pointers lead to live values; what the library makes is released where it made it, the context
        // and the worker when this value is dropped.
        unsafe {
            let read = (f.config_read)(std::ptr::null(), std::ptr::null(), &raw mut config);
            self.check(read, "ucp_config_read")?;
            let (major, minor) = sys::API;
            let rc = (f.init)(
                major,
                minor,
                &raw const params,
                config,
                &raw mut self.context,
            );
            (f.config_release)(config);
            self.check(rc, "ucp_init")?;
            let rc = (f.worker_create)(self.context, &raw const of_worker, &raw mut self.worker);
            self.check(rc, "ucp_worker_create")?;
            let rc = (f.worker_fd)(self.worker, &raw mut self.wake);
            self.check(rc, "ucp_worker_get_efd")?;
            let rc = (f.worker_address)(self.worker, &raw mut bytes, &raw mut length);
            self.check(rc, "ucp_worker_get_address")?;
            self.address = crate::sys::slice(bytes.cast::<u8>(), length).to_vec();
            (f.release_address)(self.worker, bytes);
        }
        Ok(())
    }

    /// Address of this worker, for other hosts.
    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    /// The version of the library: `1.13.1`.
    pub(crate) fn version(&self) -> String {
        sys::version(&self.functions)
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.wake
    }

    /// Whether [`Self::fd`] will report the next event; if false, there is work now.
    pub(crate) fn may_sleep(&mut self) -> bool {
        // SAFETY: the worker is live.
        let rc = unsafe { (self.functions.worker_arm)(self.worker) };
        rc != sys::BUSY
    }

    /// Creates an endpoint for the given address. An unreachable address is only noticed when a
    /// message is sent.
    pub(crate) fn connect(&mut self, address: &[u8]) -> io::Result<Endpoint> {
        let params = |errors: u64| sys::EndpointParams {
            mask: sys::HAS_ADDRESS | errors,
            address: address.as_ptr().cast(),
            error_mode: sys::ERRORS_OF_PEERS,
            on_error: Some(broken),
            on_error_arg: (&raw const *self.faults).cast_mut().cast(),
            rest: [0; 16],
        };
        let mut endpoint = std::ptr::null_mut();
        let mut connect = |errors: u64| {
            let params = params(errors);
            // SAFETY: the worker and the address are live; the handler's argument lives as long as the worker.
            unsafe { (self.functions.connect)(self.worker, &raw const params, &raw mut endpoint) }
        };
        // Not all transports report the death of the other end; the TCP connection beside this
        // endpoint does.
        let mut rc = connect(sys::HAS_ERRORS);
        if rc != 0 {
            rc = connect(0);
        }
        self.check(rc, "ucp_ep_create")?;
        Ok(Endpoint(endpoint))
    }

    /// Sends bytes under a tag.
    pub(crate) fn send(&mut self, to: Endpoint, tag: u64, bytes: Vec<u8>) -> io::Result<()> {
        // SAFETY: the endpoint is one of this worker's that is not closed; the bytes stay until the request is done.
        let given = unsafe {
            (self.functions.send)(
                to.0,
                bytes.as_ptr().cast(),
                bytes.len(),
                tag,
                sys::RequestParams::PLAIN,
            )
        };
        match sys::outcome(given) {
            Ok(None) => Ok(()),
            Ok(Some(request)) => {
                self.busy.push(Transfer {
                    request,
                    bytes,
                    tag: None,
                });
                Ok(())
            }
            Err(status) => self.check(status, "ucp_tag_send"),
        }
    }

    /// Makes progress; returns the events.
    pub(crate) fn progress(&mut self) -> Vec<Arrival> {
        let mut out = Vec::new();
        loop {
            // SAFETY: the worker is live.
            while unsafe { (self.functions.worker_progress)(self.worker) } != 0 {}
            let before = out.len();
            self.take_messages(&mut out);
            self.collect(&mut out);
            if out.len() == before {
                break;
            }
        }
        let faults =
            std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        for (endpoint, status) in faults {
            let endpoint = Endpoint(std::ptr::with_exposed_provenance_mut(endpoint));
            out.push(Arrival::Broken(
                endpoint,
                sys::text(&self.functions, status),
            ));
        }
        out
    }

    /// Starts to receive the messages that have arrived.
    fn take_messages(&mut self, out: &mut Vec<Arrival>) {
        loop {
            let mut about = sys::Arrived::default();
            // SAFETY: worker and description are live; a mask of zero takes any tag.
            let message = unsafe { (self.functions.probe)(self.worker, 0, 0, 1, &raw mut about) };
            if message.is_null() {
                return;
            }
            if about.length > 2 * FRAME_BYTES_MAX {
                // No host sends a message of this size; it stays in the library.
                eprintln!("a message of {} bytes by UCX is left alone", about.length);
                continue;
            }
            let mut bytes = vec![0u8; about.length];
            // SAFETY: the message was found by the call above; the bytes stay until the request is done.
            let given = unsafe {
                (self.functions.receive)(
                    self.worker,
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    message,
                    sys::RequestParams::PLAIN,
                )
            };
            match sys::outcome(given) {
                Ok(None) => out.push(Arrival::Message(about.tag, bytes)),
                Ok(Some(request)) => self.busy.push(Transfer {
                    request,
                    bytes,
                    tag: Some(about.tag),
                }),
                Err(status) => {
                    let text = sys::text(&self.functions, status);
                    eprintln!("a message by UCX cannot be received: {text}");
                }
            }
        }
    }

    /// Collects completed transfers.
    fn collect(&mut self, out: &mut Vec<Arrival>) {
        let functions = &self.functions;
        self.busy.retain_mut(|transfer| {
            // SAFETY: the request is one that is not freed yet.
            let status = unsafe { (functions.check)(transfer.request) };
            if status == sys::IN_PROGRESS {
                return true;
            }
            // SAFETY: it is done, and forgotten here.
            unsafe { (functions.free)(transfer.request) };
            if let (0, Some(tag)) = (status, transfer.tag) {
                out.push(Arrival::Message(tag, std::mem::take(&mut transfer.bytes)));
            }
            // A failed send is also reported as a broken endpoint.
            false
        });
    }

    /// Closes an endpoint.
    pub(crate) fn close(&mut self, endpoint: Endpoint) {
        let params = sys::RequestParams {
            mask: sys::HAS_FLAGS,
            flags: sys::CLOSE_AT_ONCE,
            rest: [0; 10],
        };
        // SAFETY: the endpoint is one of this worker's and not used again.
        let given = unsafe { (self.functions.close)(endpoint.0, &raw const params) };
        if let Ok(Some(request)) = sys::outcome(given) {
            self.busy.push(Transfer {
                request,
                bytes: Vec::new(),
                tag: None,
            });
        }
    }

    fn check(&self, status: c_int, what: &str) -> io::Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = sys::text(&self.functions, status);
        Err(io::Error::other(format!("{what}: {text}")))
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        // SAFETY: both are this value's own; requests end with the worker, whose memory is dropped afterwards.
        unsafe {
            if !self.worker.is_null() {
                (self.functions.worker_destroy)(self.worker);
            }
            if !self.context.is_null() {
                (self.functions.cleanup)(self.context);
            }
        }
    }
}

/// The version of the machine's UCX library. To be called while this process has one thread.
///
/// # Errors
/// No UCX library can be opened, or it finds no network; the text says what to do.
pub fn ucx_version(choice: &UcxChoice) -> io::Result<String> {
    choice.set();
    // The result contains the error.
    set_variable(c"UCX_LOG_LEVEL", "fatal");
    Ucx::open().map(|ucx| ucx.version())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves both hosts, with the same waiting as a real host, until the second has received one
    /// message.
    fn deliver(a: &mut Ucx, b: &mut Ucx) -> Arrival {
        loop {
            a.progress();
            if let Some(arrival) = b.progress().pop() {
                return arrival;
            }
            let rest = [&mut *a, &mut *b].map(|end| end.may_sleep());
            let mut fds = [a.fd(), b.fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            let patience = if rest == [true, true] { 20_000 } else { 0 };
            crate::ends::poll(&mut fds, patience).unwrap();
            let idle = fds.iter().all(|fd| fd.revents == 0);
            assert!(patience == 0 || !idle, "nothing comes");
        }
    }

    /// One test, because the library is configured by variables of the process.
    #[test]
    fn messages_of_all_sizes_arrive_and_what_is_wrong_is_said() {
        let mut choice = UcxChoice {
            devices: None,
            transports: Some("tcp".to_owned()),
        };
        choice.set();
        let (mut a, mut b) = match (Ucx::open(), Ucx::open()) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(e), _) | (_, Err(e)) => {
                eprintln!("SKIPPED: {e}");
                return;
            }
        };
        assert!(b.version().starts_with("1."), "{}", b.version());
        let address = b.address().to_vec();
        let to_b = a.connect(&address).unwrap();
        for (tag, size) in [(7, 0), (8, 100), (9, 100_000), (10, 3 << 20)] {
            let bytes: Vec<u8> = (0u32..size).map(|i| (i % 251) as u8).collect();
            a.send(to_b, tag, bytes.clone()).unwrap();
            assert_eq!(deliver(&mut a, &mut b), Arrival::Message(tag, bytes));
        }
        a.close(to_b);
        choice.devices = Some("nosuch0:1".to_owned());
        let error = ucx_version(&choice).unwrap_err().to_string();
        assert!(error.starts_with("ucp_"), "{error}");
    }
}
