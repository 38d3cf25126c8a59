//! Requests of libpmix to its host. They arrive on a thread of the library, which must not be blocked: each request is
//! copied and queued, and the host's loop answers it later. A request that is dropped without an answer is answered with an
//! error, so that no client waits for ever.
#![allow(unsafe_code)]

use crate::ProcName;
use crate::info::{Infos, Packed};
use crate::library::Library;
use crate::status;
use crate::sys::{
    self, InfoFn, LookupFn, ModexFn, OpFn, Proc, RawApp, RawInfo, RawPdata, RawQuery, SpawnFn,
    UpcallPtr,
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A request of the library or of one of its clients.
#[derive(Debug)]
pub(crate) enum Upcall {
    /// A task has connected.
    Connected(ProcName, Done),
    /// A task has finalized.
    Finalized(ProcName, Done),
    /// A task asks to end all or some processes (abort).
    Abort {
        proc: ProcName,
        code: i32,
        text: String,
        reply: Done,
    },
    /// All local members of a fence have entered it.
    Fence {
        procs: Vec<ProcName>,
        status: i32,
        data: Vec<u8>,
        reply: Modex,
    },
    /// Get the data that another process has put.
    Fetch {
        proc: ProcName,
        reply: Modex,
    },
    /// Publish, look up or withdraw names.
    Publish {
        proc: ProcName,
        infos: Packed,
        keys: Vec<String>,
        reply: Done,
    },
    Lookup {
        keys: Vec<String>,
        wait: bool,
        timeout_s: u64,
        reply: Lookup,
    },
    Unpublish {
        proc: ProcName,
        keys: Vec<String>,
        reply: Done,
    },
    /// Spawn processes.
    Spawn {
        parent: ProcName,
        apps: Vec<App>,
        reply: Spawned,
    },
    /// All local members of a connect or disconnect have entered it.
    Connect {
        procs: Vec<ProcName>,
        leave: bool,
        reply: Done,
    },
    /// Create or destroy a group.
    Group {
        name: String,
        destroy: bool,
        procs: Vec<ProcName>,
        wants_id: bool,
        data: Option<Vec<u8>>,
        reply: InfoReply,
    },
    /// An event for other processes.
    Notify {
        code: i32,
        source: ProcName,
        range: u8,
        infos: Packed,
    },
    Query {
        keys: Vec<String>,
        reply: InfoReply,
    },
    Log {
        texts: Vec<(String, String)>,
        reply: Done,
    },
    Control {
        targets: Vec<ProcName>,
        signal: i32,
        reply: InfoReply,
    },
    /// Data of a local task that the host has requested from the library.
    Fetched {
        ticket: u64,
        status: i32,
        data: Vec<u8>,
    },
}

/// A program of a spawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct App {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) work_dir: Option<String>,
    pub(crate) tasks: u32,
    pub(crate) hosts: Option<String>,
}

/// Queue of upcalls to the host's loop.
pub(crate) struct Queue {
    waiting: Mutex<Vec<Upcall>>,
    /// Becomes readable when the queue is not empty.
    pub(crate) wake: EventFd,
    library: &'static Library,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The queue of this process.
pub(crate) fn queue(library: &'static Library) -> std::io::Result<&'static Queue> {
    if let Some(queue) = QUEUE.get() {
        return Ok(queue);
    }
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    Ok(QUEUE.get_or_init(|| Queue {
        waiting: Mutex::new(Vec::new()),
        wake,
        library,
    }))
}

impl Queue {
    fn push(&self, upcall: Upcall) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(upcall);
        // The write fails only if the counter is full, and then the loop is already awake.
        let _ = self.wake.write(1);
    }

    pub(crate) fn take(&self) -> Vec<Upcall> {
        let _ = self.wake.read();
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The library's pointer that identifies a request; it is only passed back.
#[derive(Debug)]
struct Ticket(*mut c_void);

// SAFETY: the pointer is never followed here, and the library takes answers on any thread.
unsafe impl Send for Ticket {}

macro_rules! reply {
    ($(#[$doc:meta])* $name:ident, $function:ty, |$f:ident, $ticket:ident, $status:ident| $fail:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(Option<($function, Ticket)>);

        impl $name {
            fn new(function: Option<$function>, ticket: *mut c_void) -> $name {
                $name(function.map(|f| (f, Ticket(ticket))))
            }

            /// Answers with a status only.
            #[allow(dead_code)]
            pub(crate) fn fail(mut self, $status: i32) {
                if let Some(($f, Ticket($ticket))) = self.0.take() {
                    // SAFETY: the function came with this ticket and is called once.
                    unsafe { $fail }
                }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let $status = status::ERROR;
                if let Some(($f, Ticket($ticket))) = self.0.take() {
                    // SAFETY: as above.
                    unsafe { $fail }
                }
            }
        }
    };
}

reply!(
    /// An answer with a status.
    Done, OpFn, |f, ticket, status| f(status, ticket)
);
reply!(
    /// An answer with a status and bytes.
    Modex, ModexFn, |f, ticket, status| f(
        status,
        std::ptr::null(),
        0,
        ticket,
        None,
        std::ptr::null_mut()
    )
);
reply!(
    /// The answer to a lookup.
    Lookup, LookupFn, |f, ticket, status| f(status, std::ptr::null_mut(), 0, ticket)
);
reply!(
    /// The answer to a spawn.
    Spawned, SpawnFn, |f, ticket, status| f(status, std::ptr::null(), ticket)
);
reply!(
    /// An answer with a status and attributes.
    InfoReply, InfoFn, |f, ticket, status| f(
        status,
        std::ptr::null_mut(),
        0,
        ticket,
        None,
        std::ptr::null_mut()
    )
);

unsafe extern "C" fn release_bytes(bytes: *mut c_void) {
    // SAFETY: the pointer is the box that `Modex::give` leaked.
    drop(unsafe { Box::from_raw(bytes.cast::<Vec<u8>>()) });
}

unsafe extern "C" fn release_infos(infos: *mut c_void) {
    // SAFETY: the pointer is the box that `InfoReply::give` leaked.
    drop(unsafe { Box::from_raw(infos.cast::<Infos>()) });
}

impl Modex {
    /// Answers with bytes, which live until the library releases them.
    pub(crate) fn give(mut self, status: i32, data: Vec<u8>) {
        if let Some((f, ticket)) = self.0.take() {
            let length = data.len();
            let data = Box::new(data);
            let bytes = data.as_ptr().cast();
            let held = Box::into_raw(data).cast();
            // SAFETY: the bytes stay where they are until `release_bytes` is called with their box.
            unsafe { f(status, bytes, length, ticket.0, Some(release_bytes), held) };
        }
    }
}

impl Spawned {
    pub(crate) fn give(mut self, nspace: &str) {
        if let Some((f, ticket)) = self.0.take() {
            // The library copies all 256 bytes of a name space name.
            let name: [c_char; sys::NSPACE] = sys::fixed(nspace);
            // SAFETY: the name lives through the call.
            unsafe { f(status::SUCCESS, name.as_ptr(), ticket.0) };
        }
    }
}

impl InfoReply {
    pub(crate) fn give(mut self, status: i32, infos: Infos) {
        if let Some((f, ticket)) = self.0.take() {
            let mut infos = Box::new(infos);
            let (array, count) = (infos.as_mut_ptr(), infos.len());
            let held = Box::into_raw(infos).cast();
            // SAFETY: the attributes stay where they are until `release_infos` is called with their box.
            unsafe { f(status, array, count, ticket.0, Some(release_infos), held) };
        }
    }
}

impl Lookup {
    /// Answers a lookup: publisher, key and value of each name found.
    pub(crate) fn give(mut self, status: i32, found: &[(ProcName, Infos)]) {
        let mut data: Vec<RawPdata> = Vec::new();
        for (proc, infos) in found {
            data.extend(infos.raw().iter().map(|info| RawPdata {
                proc: proc.raw(),
                key: info.key,
                value: info.value,
            }));
        }
        if let Some((f, ticket)) = self.0.take() {
            // SAFETY: the library packs the array before it returns; the values belong to `found`, which lives.
            unsafe { f(status, data.as_mut_ptr(), data.len(), ticket.0) };
        }
    }
}

fn accept(upcall: impl FnOnce(&'static Library) -> Upcall) -> c_int {
    let Some(queue) = QUEUE.get() else {
        return status::ERROR;
    };
    queue.push(upcall(queue.library));
    status::SUCCESS
}

unsafe fn named(proc: *const Proc) -> ProcName {
    // SAFETY: the library gives a process wherever one is declared; null would be its bug and is survived.
    match unsafe { proc.as_ref() } {
        Some(proc) => ProcName::of(proc),
        None => ProcName {
            nspace: String::new(),
            rank: crate::RANK_ALL,
        },
    }
}

unsafe fn all_named(procs: *const Proc, count: usize) -> Vec<ProcName> {
    // SAFETY: the library gives pointer and count of one array.
    unsafe { sys::slice(procs, count) }
        .iter()
        .map(ProcName::of)
        .collect()
}

unsafe extern "C" fn client_connected(
    proc: *const Proc,
    _object: *mut c_void,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are the library's, as declared.
    let proc = unsafe { named(proc) };
    accept(|_| Upcall::Connected(proc, Done::new(f, ticket)))
}

unsafe extern "C" fn client_connected2(
    proc: *const Proc,
    _object: *mut c_void,
    _infos: *mut RawInfo,
    _count: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let proc = unsafe { named(proc) };
    accept(|_| Upcall::Connected(proc, Done::new(f, ticket)))
}

unsafe extern "C" fn client_finalized(
    proc: *const Proc,
    _object: *mut c_void,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let proc = unsafe { named(proc) };
    accept(|_| Upcall::Finalized(proc, Done::new(f, ticket)))
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    code: c_int,
    text: *const c_char,
    _targets: *const Proc,
    _count: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (proc, text) = unsafe { (named(proc), sys::copied(text)) };
    accept(|_| Upcall::Abort {
        proc,
        code,
        text,
        reply: Done::new(f, ticket),
    })
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn fence(
    procs: *const Proc,
    count: usize,
    infos: *const RawInfo,
    ninfo: usize,
    data: *mut c_char,
    length: usize,
    f: Option<ModexFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above; the bytes are the host's to free.
    let (procs, infos, bytes) = unsafe {
        let bytes = sys::slice(data.cast::<u8>(), length).to_vec();
        libc::free(data.cast());
        (all_named(procs, count), sys::slice(infos, ninfo), bytes)
    };
    let status = infos
        .iter()
        .find(|i| i.name() == "pmix.loc.col.st")
        .and_then(RawInfo::number)
        .and_then(|n| i32::try_from(n).ok())
        .unwrap_or(status::SUCCESS);
    accept(|_| Upcall::Fence {
        procs,
        status,
        data: bytes,
        reply: Modex::new(f, ticket),
    })
}

unsafe extern "C" fn direct_modex(
    proc: *const Proc,
    _infos: *const RawInfo,
    _count: usize,
    f: Option<ModexFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let proc = unsafe { named(proc) };
    accept(|_| Upcall::Fetch {
        proc,
        reply: Modex::new(f, ticket),
    })
}

/// Attributes of a publish request that are directives and not data.
fn is_directive(key: &str) -> bool {
    matches!(
        key,
        "pmix.range"
            | "pmix.persist"
            | "pmix.timeout"
            | "pmix.euid"
            | "pmix.egid"
            | "pmix.wait"
            | "pmix.acs.perms"
            | "pmix.grpid"
            | "pmix.userid"
    )
}

unsafe extern "C" fn publish(
    proc: *const Proc,
    infos: *const RawInfo,
    count: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (proc, infos) = unsafe { (named(proc), sys::slice(infos, count)) };
    let data: Vec<RawInfo> = infos
        .iter()
        .filter(|i| !is_directive(&i.name()))
        .copied()
        .collect();
    let keys = data.iter().map(RawInfo::name).collect();
    accept(|library| Upcall::Publish {
        proc,
        infos: Infos::packed(library, &data),
        keys,
        reply: Done::new(f, ticket),
    })
}

unsafe extern "C" fn lookup(
    _proc: *const Proc,
    keys: *const *const c_char,
    infos: *const RawInfo,
    count: usize,
    f: Option<LookupFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (keys, infos) = unsafe { (sys::strings(keys), sys::slice(infos, count)) };
    let number = |key: &str| infos.iter().find(|i| i.name() == key)?.number();
    // A wait for 0 keys means a wait for all keys.
    let wait = infos.iter().any(|i| i.name() == "pmix.wait");
    let timeout_s = number("pmix.timeout").map_or(0, |n| u64::try_from(n).unwrap_or(0));
    accept(|_| Upcall::Lookup {
        keys,
        wait,
        timeout_s,
        reply: Lookup::new(f, ticket),
    })
}

unsafe extern "C" fn unpublish(
    proc: *const Proc,
    keys: *const *const c_char,
    _infos: *const RawInfo,
    _count: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (proc, keys) = unsafe { (named(proc), sys::strings(keys)) };
    accept(|_| Upcall::Unpublish {
        proc,
        keys,
        reply: Done::new(f, ticket),
    })
}

unsafe extern "C" fn spawn(
    proc: *const Proc,
    _infos: *const RawInfo,
    _count: usize,
    apps: *const RawApp,
    napps: usize,
    f: Option<SpawnFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (parent, apps) = unsafe { (named(proc), sys::slice(apps, napps)) };
    let apps = apps
        .iter()
        .map(|app| {
            // SAFETY: the members are as the structure declares them.
            let (command, mut argv, env, dir, infos) = unsafe {
                (
                    sys::copied(app.cmd),
                    sys::strings(app.argv),
                    sys::strings(app.env),
                    sys::copied(app.cwd),
                    sys::slice(app.info, app.ninfo),
                )
            };
            if argv.is_empty() {
                argv.push(command);
            } else if !command.is_empty() {
                argv[0] = command;
            }
            let text = |key: &str| infos.iter().find(|i| i.name() == key)?.text();
            App {
                argv,
                env,
                work_dir: text("pmix.wdir").or(Some(dir).filter(|d| !d.is_empty())),
                tasks: u32::try_from(app.maxprocs).unwrap_or(0),
                hosts: text("pmix.host"),
            }
        })
        .collect();
    accept(|_| Upcall::Spawn {
        parent,
        apps,
        reply: Spawned::new(f, ticket),
    })
}

unsafe extern "C" fn connect(
    procs: *const Proc,
    count: usize,
    _infos: *const RawInfo,
    _ninfo: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let procs = unsafe { all_named(procs, count) };
    accept(|_| Upcall::Connect {
        procs,
        leave: false,
        reply: Done::new(f, ticket),
    })
}

unsafe extern "C" fn disconnect(
    procs: *const Proc,
    count: usize,
    _infos: *const RawInfo,
    _ninfo: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let procs = unsafe { all_named(procs, count) };
    accept(|_| Upcall::Connect {
        procs,
        leave: true,
        reply: Done::new(f, ticket),
    })
}

/// Registrations for events need no action of the host: it forwards all events.
unsafe extern "C" fn register_events(
    _codes: *const c_int,
    _count: usize,
    _infos: *const RawInfo,
    _ninfo: usize,
    _f: Option<OpFn>,
    _ticket: *mut c_void,
) -> c_int {
    status::OPERATION_SUCCEEDED
}

unsafe extern "C" fn deregister_events(
    _codes: *const c_int,
    _count: usize,
    _f: Option<OpFn>,
    _ticket: *mut c_void,
) -> c_int {
    status::OPERATION_SUCCEEDED
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn notify_event(
    code: c_int,
    source: *const Proc,
    range: u8,
    infos: *const RawInfo,
    count: usize,
    _f: Option<OpFn>,
    _ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (source, infos) = unsafe { (named(source), sys::slice(infos, count)) };
    let accepted = accept(|library| Upcall::Notify {
        code,
        source,
        range,
        infos: Infos::packed(library, infos),
    });
    // The event is already being sent. PMIx 4.2 crashes if another thread than its own calls this callback.
    match accepted {
        status::SUCCESS => status::OPERATION_SUCCEEDED,
        refused => refused,
    }
}

unsafe extern "C" fn query(
    _proc: *const Proc,
    queries: *const RawQuery,
    count: usize,
    f: Option<InfoFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let keys = unsafe {
        sys::slice(queries, count)
            .iter()
            .flat_map(|q| sys::strings(q.keys))
            .collect()
    };
    accept(|_| Upcall::Query {
        keys,
        reply: InfoReply::new(f, ticket),
    })
}

unsafe extern "C" fn log(
    _client: *const Proc,
    data: *const RawInfo,
    count: usize,
    _directives: *const RawInfo,
    _ndirs: usize,
    f: Option<OpFn>,
    ticket: *mut c_void,
) {
    // SAFETY: as above.
    let texts = unsafe { sys::slice(data, count) }
        .iter()
        .filter_map(|i| Some((i.name(), i.text()?)))
        .collect();
    // The return value carries no result: the callback delivers it later, from another thread.
    accept(|_| Upcall::Log {
        texts,
        reply: Done::new(f, ticket),
    });
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn job_control(
    _requestor: *const Proc,
    targets: *const Proc,
    ntargets: usize,
    directives: *const RawInfo,
    ndirs: usize,
    f: Option<InfoFn>,
    ticket: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (targets, directives) =
        unsafe { (all_named(targets, ntargets), sys::slice(directives, ndirs)) };
    let signal = directives.iter().find_map(|d| match d.name().as_str() {
        "pmix.jctrl.kill" if d.is_set() => Some(libc::SIGKILL),
        "pmix.jctrl.term" if d.is_set() => Some(libc::SIGTERM),
        "pmix.jctrl.pause" if d.is_set() => Some(libc::SIGSTOP),
        "pmix.jctrl.resume" if d.is_set() => Some(libc::SIGCONT),
        "pmix.jctrl.sig" => d.number().and_then(|n| i32::try_from(n).ok()),
        _ => None,
    });
    let Some(signal) = signal else {
        // The library removes files itself; the status must not tell it that removal is not supported.
        let own = |d: &RawInfo| {
            d.name().starts_with("pmix.reg.cleanup") || d.name().starts_with("pmix.clnup")
        };
        return if directives.iter().any(own) {
            status::OPERATION_SUCCEEDED
        } else {
            status::NOT_SUPPORTED
        };
    };
    accept(|_| Upcall::Control {
        targets,
        signal,
        reply: InfoReply::new(f, ticket),
    })
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn group(
    operation: c_int,
    name: *const c_char,
    procs: *const Proc,
    count: usize,
    directives: *const RawInfo,
    ndirs: usize,
    f: Option<InfoFn>,
    ticket: *mut c_void,
) -> c_int {
    // Only construction and destruction involve the hosts of all members; the library handles joining by invitation itself.
    if !(0..=1).contains(&operation) {
        return status::NOT_SUPPORTED;
    }
    // SAFETY: as above.
    let (name, procs, directives) = unsafe {
        (
            sys::copied(name),
            all_named(procs, count),
            sys::slice(directives, ndirs),
        )
    };
    let of = |key: &str| directives.iter().find(|d| d.name() == key);
    let wants_id = of("pmix.grp.actxid").is_some_and(RawInfo::is_set);
    let data = of("pmix.grp.endpt").and_then(RawInfo::bytes);
    accept(|_| Upcall::Group {
        name,
        destroy: operation == 1,
        procs,
        wants_id,
        data,
        reply: InfoReply::new(f, ticket),
    })
}

/// Callback with the data that [`crate::server::Server::fetch`] requested.
pub(crate) unsafe extern "C" fn fetched(
    status: c_int,
    data: *mut c_char,
    length: usize,
    ticket: *mut c_void,
) {
    // SAFETY: the library keeps the bytes until this returns.
    let data = unsafe { sys::slice(data.cast::<u8>(), length) }.to_vec();
    accept(|_| Upcall::Fetched {
        ticket: ticket as usize as u64,
        status,
        data,
    });
}

/// The table of all upcalls, in the order of `pmix_server_module_t`. Entries that stay null are not supported by the host;
/// the library then answers clients itself.
pub(crate) fn module() -> [UpcallPtr; sys::MODULE] {
    let mut table = [std::ptr::null(); sys::MODULE];
    let entries: [(usize, UpcallPtr); 19] = [
        (0, client_connected as UpcallPtr),
        (1, client_finalized as UpcallPtr),
        (2, abort as UpcallPtr),
        (3, fence as UpcallPtr),
        (4, direct_modex as UpcallPtr),
        (5, publish as UpcallPtr),
        (6, lookup as UpcallPtr),
        (7, unpublish as UpcallPtr),
        (8, spawn as UpcallPtr),
        (9, connect as UpcallPtr),
        (10, disconnect as UpcallPtr),
        (11, register_events as UpcallPtr),
        (12, deregister_events as UpcallPtr),
        (14, notify_event as UpcallPtr),
        (15, query as UpcallPtr),
        (17, log as UpcallPtr),
        (19, job_control as UpcallPtr),
        (25, group as UpcallPtr),
        (27, client_connected2 as UpcallPtr),
    ];
    for (index, entry) in entries {
        table[index] = entry;
    }
    table
}

/// Strings passed to C.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
