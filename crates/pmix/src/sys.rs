//! C declarations of libpmix: the few structures and functions that a server needs, written by hand
//! so that building needs no header. The layouts are those of PMIx 3 to 5 on 64-bit machines.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;

/// Longest name space, with the zero byte.
pub(crate) const NSPACE: usize = 256;
/// Longest key, with the zero byte.
pub(crate) const KEY: usize = 512;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Proc {
    pub(crate) nspace: [c_char; NSPACE],
    pub(crate) rank: u32,
}

/// `pmix_value_t`; the data is read through the accessors of [`RawInfo`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawValue {
    pub(crate) kind: u16,
    pub(crate) data: ValueData,
}

/// The union in `pmix_value_t`: the members that are used here, and padding to its full size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ValueData {
    pub(crate) words: [u64; 3],
    pub(crate) flag: bool,
    pub(crate) byte: u8,
    pub(crate) int: c_int,
    pub(crate) uint: u32,
    pub(crate) size: usize,
    pub(crate) text: *const c_char,
    pub(crate) proc: *const Proc,
    pub(crate) array: *const DataArray,
}

/// `pmix_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawInfo {
    pub(crate) key: [c_char; KEY],
    pub(crate) flags: u32,
    pub(crate) value: RawValue,
}

/// `pmix_pdata_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawPdata {
    pub(crate) proc: Proc,
    pub(crate) key: [c_char; KEY],
    pub(crate) value: RawValue,
}

/// `pmix_data_array_t`.
#[repr(C)]
pub(crate) struct DataArray {
    pub(crate) kind: u16,
    pub(crate) size: usize,
    pub(crate) array: *mut c_void,
}

/// `pmix_byte_object_t`.
#[repr(C)]
pub(crate) struct ByteObject {
    pub(crate) bytes: *mut c_char,
    pub(crate) size: usize,
}

/// `pmix_data_buffer_t`.
#[repr(C)]
pub(crate) struct DataBuffer {
    pub(crate) base: *mut c_char,
    pub(crate) pack: *mut c_char,
    pub(crate) unpack: *mut c_char,
    pub(crate) allocated: usize,
    pub(crate) used: usize,
}

/// `pmix_app_t`.
#[repr(C)]
pub(crate) struct RawApp {
    pub(crate) cmd: *const c_char,
    pub(crate) argv: *const *const c_char,
    pub(crate) env: *const *const c_char,
    pub(crate) cwd: *const c_char,
    pub(crate) maxprocs: c_int,
    pub(crate) info: *const RawInfo,
    pub(crate) ninfo: usize,
}

/// `pmix_query_t`.
#[repr(C)]
pub(crate) struct RawQuery {
    pub(crate) keys: *const *const c_char,
    pub(crate) qualifiers: *const RawInfo,
    pub(crate) nqual: usize,
}

/// `pmix_cpuset_t`.
#[repr(C)]
pub(crate) struct RawCpuset {
    pub(crate) source: *mut c_char,
    pub(crate) bitmap: *mut c_void,
}

const _: () = {
    assert!(size_of::<Proc>() == 260);
    assert!(size_of::<RawValue>() == 32);
    assert!(size_of::<RawInfo>() == 552);
    assert!(size_of::<RawPdata>() == 808);
    assert!(size_of::<DataArray>() == 24);
    assert!(size_of::<RawApp>() == 56);
};

/// `pmix_op_cbfunc_t`.
pub(crate) type OpFn = unsafe extern "C" fn(c_int, *mut c_void);
/// `pmix_release_cbfunc_t`.
pub(crate) type ReleaseFn = unsafe extern "C" fn(*mut c_void);
/// `pmix_modex_cbfunc_t`.
pub(crate) type ModexFn =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Option<ReleaseFn>, *mut c_void);
/// `pmix_lookup_cbfunc_t`.
pub(crate) type LookupFn = unsafe extern "C" fn(c_int, *mut RawPdata, usize, *mut c_void);
/// `pmix_spawn_cbfunc_t`.
pub(crate) type SpawnFn = unsafe extern "C" fn(c_int, *const c_char, *mut c_void);
/// `pmix_info_cbfunc_t`.
pub(crate) type InfoFn =
    unsafe extern "C" fn(c_int, *mut RawInfo, usize, *mut c_void, Option<ReleaseFn>, *mut c_void);
/// `pmix_dmodex_response_fn_t`.
pub(crate) type DmodexFn = unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_void);
/// The type of an entry of `pmix_server_module_t`, whatever its signature.
pub(crate) type UpcallPtr = *const c_void;
/// Number of entries of the module: more than any version has, so that one table serves all
/// versions.
pub(crate) const MODULE: usize = 64;

macro_rules! functions {
    (
        required { $($name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional {
            $($(#[$doc:meta])* $may:ident = $symbols:expr => fn($($of:ty),*) $(-> $to:ty)?;)*
        }
    ) => {
        /// Functions of libpmix.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $($(#[$doc])* pub(crate) $may: Option<unsafe extern "C" fn($($of),*) $(-> $to)?>,)*
        }

        impl Functions {
            /// Looks up all functions.
            fn find(handle: *mut c_void) -> io::Result<Functions> {
                // SAFETY: each symbol, where it exists, is the function of that name in libpmix, whose signature is
                // the one given here; `handle` is a library that is never closed.
                unsafe {
                    Ok(Functions {
                        $($name: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                        >(required(handle, $symbol)?),)*
                        $($may: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($of),*) $(-> $to)?>,
                        >(first(handle, $symbols)),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        get_version = c"PMIx_Get_version": fn() -> *const c_char;
        server_init = c"PMIx_server_init": fn(*mut UpcallPtr, *mut RawInfo, usize) -> c_int;
        generate_regex = c"PMIx_generate_regex": fn(*const c_char, *mut *mut c_char) -> c_int;
        generate_ppn = c"PMIx_generate_ppn": fn(*const c_char, *mut *mut c_char) -> c_int;
        register_nspace = c"PMIx_server_register_nspace":
            fn(*const c_char, c_int, *mut RawInfo, usize, OpFn, *mut c_void) -> c_int;
        register_client = c"PMIx_server_register_client":
            fn(*const Proc, u32, u32, *mut c_void, OpFn, *mut c_void) -> c_int;
        setup_fork = c"PMIx_server_setup_fork": fn(*const Proc, *mut *mut *mut c_char) -> c_int;
        dmodex_request = c"PMIx_server_dmodex_request": fn(*const Proc, DmodexFn, *mut c_void) -> c_int;
        notify_event = c"PMIx_Notify_event":
            fn(c_int, *const Proc, u8, *mut RawInfo, usize, OpFn, *mut c_void) -> c_int;
        data_pack = c"PMIx_Data_pack": fn(*const Proc, *mut DataBuffer, *const c_void, i32, u16) -> c_int;
        data_unpack = c"PMIx_Data_unpack":
            fn(*const Proc, *mut DataBuffer, *mut c_void, *mut i32, u16) -> c_int;
        error_string = c"PMIx_Error_string": fn(c_int) -> *const c_char;
    }
    optional {
        /// Versions before PMIx 4 have only `value_load`.
        info_load = &[c"PMIx_Info_load"] => fn(*mut RawInfo, *const c_char, *const c_void, u16) -> c_int;
        value_load = &[c"PMIx_Value_load", c"pmix_value_load"] => fn(*mut RawValue, *const c_void, u16);
        value_destruct = &[c"PMIx_Value_destruct", c"pmix_value_destruct"] => fn(*mut RawValue);
        /// Available since PMIx 4, as are the next functions.
        parse_cpuset = &[c"PMIx_Parse_cpuset_string"] => fn(*const c_char, *mut RawCpuset) -> c_int;
        destruct_cpuset = &[c"PMIx_Cpuset_destruct"] => fn(*mut RawCpuset);
        locality = &[c"PMIx_server_generate_locality_string"] => fn(*const RawCpuset, *mut *mut c_char) -> c_int;
    }
}

/// Loads a library for good and looks up its functions. Its symbols are made global: plug-ins of libpmix need them.
pub(crate) fn open(path: &str) -> io::Result<Functions> {
    let name = CString::new(path).map_err(io::Error::other)?;
    // SAFETY: the name ends in a zero byte. The library's initialisers are run, which is what loading means.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        return Err(io::Error::other(dl_error()));
    }
    Functions::find(handle)
}

/// The file that a function was loaded from.
pub(crate) fn file_of(function: *const c_void) -> Option<String> {
    // SAFETY: all bytes zero is a valid `Dl_info`; the pointer is only compared with loaded files.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(function, &raw mut found) != 0 && !found.dli_fname.is_null();
        known.then(|| copied(found.dli_fname))
    }
}

/// The dynamic loader's reason for the last failure.
pub(crate) fn dl_error() -> String {
    // SAFETY: dlerror gives null or a string that lives until the next call of this thread's.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown error of the dynamic loader".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// A required symbol of an open library.
pub(crate) fn required(handle: *mut c_void, name: &CStr) -> io::Result<*mut c_void> {
    let found = symbol(handle, name);
    if found.is_null() {
        let name = name.to_string_lossy();
        return Err(io::Error::other(format!("it has no function {name}")));
    }
    Ok(found)
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is an open library's and the name ends in a zero byte.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

fn first(handle: *mut c_void, names: &[&CStr]) -> *mut c_void {
    names
        .iter()
        .map(|name| symbol(handle, name))
        .find(|found| !found.is_null())
        .unwrap_or(std::ptr::null_mut())
}

/// A name in the fixed form of libpmix, cut to what fits.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        // The C type char is signed on some processors and unsigned on others.
        *to = c_char::from_ne_bytes([from]);
    }
    out
}

/// The text of a fixed name.
pub(crate) fn unfixed(name: &[c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .take_while(|c| **c != 0)
        .flat_map(|c| c.to_ne_bytes())
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Copies a C string allocated by malloc and frees it; empty for null.
///
/// # Safety
/// `text` is null or points to such a string, which the caller does not use afterwards.
pub(crate) unsafe fn taken(text: *mut c_char) -> String {
    // SAFETY: what this function requires; free takes null.
    unsafe {
        let out = copied(text);
        libc::free(text.cast());
        out
    }
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `text` is null or leads to a string that ends in a zero byte.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: what this function requires.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Copies of the strings of a list that ends in null.
///
/// # Safety
/// `list` is null or leads to such a list.
pub(crate) unsafe fn strings(list: *const *const c_char) -> Vec<String> {
    let mut out = Vec::new();
    if list.is_null() {
        return out;
    }
    let mut at = list;
    // SAFETY: the list goes on until its null.
    unsafe {
        while !(*at).is_null() {
            out.push(copied(*at));
            at = at.add(1);
        }
    }
    out
}

/// The elements of a C array.
///
/// # Safety
/// `array` is null, or leads to `count` elements that live as long as the result is used.
pub(crate) unsafe fn slice<'a, T>(array: *const T, count: usize) -> &'a [T] {
    if array.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: what this function requires.
    unsafe { std::slice::from_raw_parts(array, count) }
}

/// Sets an environment variable of this process for a library. To be called while the process has
/// one thread.
pub(crate) fn set_variable(name: &CStr, value: &str) {
    let Ok(value) = CString::new(value) else {
        return;
    };
    // SAFETY: both strings end in a zero byte and are copied; the caller has no other thread yet.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}
