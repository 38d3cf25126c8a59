//! C declarations of libucp: the few structures and functions that tagged messages need, written by
//! hand so that building needs no header. The layouts have not changed since UCX 1.9.
#![allow(unsafe_code)]

use crate::sys::{copied, dl_error, required};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::io;

/// The requested version of the interface.
pub(super) const API: (c_uint, c_uint) = (1, 9);
/// `UCP_FEATURE_TAG` and `UCP_FEATURE_WAKEUP`.
pub(super) const FEATURES: u64 = 1 | 1 << 4;
/// `UCP_PARAM_FIELD_FEATURES`.
pub(super) const HAS_FEATURES: u64 = 1;
/// `UCP_WORKER_PARAM_FIELD_THREAD_MODE`; the mode is 0, one thread.
pub(super) const HAS_THREAD_MODE: u64 = 1;
/// `UCP_EP_PARAM_FIELD_REMOTE_ADDRESS`, `..._ERR_HANDLING_MODE` and `..._ERR_HANDLER`.
pub(super) const HAS_ADDRESS: u64 = 1;
pub(super) const HAS_ERRORS: u64 = 1 << 1 | 1 << 2;
/// `UCP_ERR_HANDLING_MODE_PEER`.
pub(super) const ERRORS_OF_PEERS: c_uint = 1;
/// `UCP_OP_ATTR_FIELD_FLAGS`, and `UCP_EP_CLOSE_FLAG_FORCE` as the flags.
pub(super) const HAS_FLAGS: u32 = 1 << 4;
pub(super) const CLOSE_AT_ONCE: u32 = 1;
/// `UCS_INPROGRESS` and `UCS_ERR_BUSY`.
pub(super) const IN_PROGRESS: c_int = 1;
pub(super) const BUSY: c_int = -15;
/// `UCS_ERR_LAST`: pointers from here to -1 are statuses.
const LAST_ERROR: isize = -100;

/// `ucp_params_t`; only what the mask names is read.
#[repr(C)]
pub(super) struct Params {
    pub(super) mask: u64,
    pub(super) features: u64,
    pub(super) rest: [u64; 16],
}

/// `ucp_worker_params_t`; only the fields in the mask are read.
#[repr(C)]
pub(super) struct WorkerParams {
    pub(super) mask: u64,
    pub(super) thread_mode: u64,
    pub(super) rest: [u64; 40],
}

/// `ucp_ep_params_t`; only the fields in the mask are read.
#[repr(C)]
pub(super) struct EndpointParams {
    pub(super) mask: u64,
    pub(super) address: *const c_void,
    pub(super) error_mode: c_uint,
    pub(super) on_error: Option<ErrorFn>,
    pub(super) on_error_arg: *mut c_void,
    pub(super) rest: [u64; 16],
}

/// `ucp_request_param_t`.
#[repr(C)]
pub(super) struct RequestParams {
    pub(super) mask: u32,
    pub(super) flags: u32,
    pub(super) rest: [u64; 10],
}

impl RequestParams {
    /// Default parameters.
    pub(super) const PLAIN: &RequestParams = &RequestParams {
        mask: 0,
        flags: 0,
        rest: [0; 10],
    };
}

/// `ucp_tag_recv_info_t`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) tag: u64,
    pub(super) length: usize,
}

/// `ucp_err_handler_cb_t`: the argument, the endpoint, the status.
pub(super) type ErrorFn = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int);

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Functions of libucp.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            fn find(handle: *mut c_void) -> io::Result<Functions> {
                // SAFETY: each symbol is the function of that name in libucp or libucs, whose signature is the one
                // given here; `handle` is a library that is never closed.
                unsafe {
                    Ok(Functions {
                        $($name: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                        >(required(handle, $symbol)?),)*
                    })
                }
            }
        }
    };
}

functions! {
    version = c"ucp_get_version_string": fn() -> *const c_char;
    status_text = c"ucs_status_string": fn(c_int) -> *const c_char;
    config_read = c"ucp_config_read": fn(*const c_char, *const c_char, *mut *mut c_void) -> c_int;
    config_release = c"ucp_config_release": fn(*mut c_void);
    init = c"ucp_init_version": fn(c_uint, c_uint, *const Params, *const c_void, *mut *mut c_void) -> c_int;
    cleanup = c"ucp_cleanup": fn(*mut c_void);
    worker_create = c"ucp_worker_create": fn(*mut c_void, *const WorkerParams, *mut *mut c_void) -> c_int;
    worker_destroy = c"ucp_worker_destroy": fn(*mut c_void);
    worker_address = c"ucp_worker_get_address": fn(*mut c_void, *mut *mut c_void, *mut usize) -> c_int;
    release_address = c"ucp_worker_release_address": fn(*mut c_void, *mut c_void);
    worker_fd = c"ucp_worker_get_efd": fn(*mut c_void, *mut c_int) -> c_int;
    worker_arm = c"ucp_worker_arm": fn(*mut c_void) -> c_int;
    worker_progress = c"ucp_worker_progress": fn(*mut c_void) -> c_uint;
    connect = c"ucp_ep_create": fn(*mut c_void, *const EndpointParams, *mut *mut c_void) -> c_int;
    close = c"ucp_ep_close_nbx": fn(*mut c_void, *const RequestParams) -> *mut c_void;
    send = c"ucp_tag_send_nbx":
        fn(*mut c_void, *const c_void, usize, u64, *const RequestParams) -> *mut c_void;
    probe = c"ucp_tag_probe_nb": fn(*mut c_void, u64, u64, c_int, *mut Arrived) -> *mut c_void;
    receive = c"ucp_tag_msg_recv_nbx":
        fn(*mut c_void, *mut c_void, usize, *mut c_void, *const RequestParams) -> *mut c_void;
    check = c"ucp_request_check_status": fn(*mut c_void) -> c_int;
    free = c"ucp_request_free": fn(*mut c_void);
}

/// Loads a library for good and looks up its functions.
pub(super) fn open(path: &str) -> io::Result<Functions> {
    let name = CString::new(path).map_err(io::Error::other)?;
    // SAFETY: the name ends in a zero byte. The library's initialisers are run, which is what loading means.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        return Err(io::Error::other(dl_error()));
    }
    Functions::find(handle)
}

/// The result of a UCX function: done, a pending request, or an error status.
pub(super) fn outcome(given: *mut c_void) -> Result<Option<*mut c_void>, c_int> {
    match given.addr().cast_signed() {
        0 => Ok(None),
        status @ LAST_ERROR..=-1 => Err(c_int::try_from(status).unwrap_or(-1)),
        _ => Ok(Some(given)),
    }
}

/// The text of a status.
pub(super) fn text(functions: &Functions, status: c_int) -> String {
    // SAFETY: the function gives a string of the library's own for any number.
    unsafe { copied((functions.status_text)(status)) }
}

/// The version of the library: `1.13.1`.
pub(super) fn version(functions: &Functions) -> String {
    // SAFETY: the function takes nothing and gives a string of the library's own.
    unsafe { copied((functions.version)()) }
}
