//! The PMIx server in this process. It is started once, registers name spaces and tasks, and
//! returns the variables for the environment of tasks.
#![allow(unsafe_code)]

use crate::info::{Infos, Packed, Regex};
use crate::library::Library;
use crate::sys::{self, OpFn, Proc, RawCpuset, UpcallPtr};
use crate::upcall::{self, Queue, c_string};
use crate::{ProcName, status};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Time limit for a registration in the library.
const REGISTER_WAIT: Duration = Duration::from_secs(60);
/// Restricts an event from another host to this node's clients.
const RANGE_LOCAL: u8 = 2;

/// The server.
pub(crate) struct Server {
    library: &'static Library,
    /// Requests of clients.
    pub(crate) queue: &'static Queue,
}

/// Location of a task, in the format of the library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TaskLocation {
    /// CPUs of the task: `hwloc:0-1`.
    pub(crate) cpuset: String,
    /// Objects of each topology level that the task can use: `hwloc:SK0:L30:CR0:HT0`.
    pub(crate) levels: String,
}

/// A callback stores its status here.
type Slot = (Mutex<Option<c_int>>, Condvar);

unsafe extern "C" fn arrived(status: c_int, slot: *mut c_void) {
    // SAFETY: the pointer is the count that `Server::wait_for` gave away with this callback.
    let slot = unsafe { Arc::from_raw(slot.cast::<Slot>()) };
    *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    slot.1.notify_all();
}

impl Server {
    /// Starts the library's server with these attributes.
    pub(crate) fn start(library: &'static Library, infos: &mut Infos) -> io::Result<Server> {
        let queue = upcall::queue(library)?;
        // The library keeps a pointer to the table, so the table is leaked.
        let module: &'static mut [UpcallPtr; sys::MODULE] = Box::leak(Box::new(upcall::module()));
        // SAFETY: table and attributes are live; the table stays so.
        let rc = unsafe {
            (library.functions.server_init)(module.as_mut_ptr(), infos.as_mut_ptr(), infos.len())
        };
        let server = Server { library, queue };
        server.check(rc, "PMIx_server_init")?;
        Ok(server)
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// The node list `na,nb` in the library's packed form.
    pub(crate) fn node_list(&self, names: &str) -> io::Result<Regex> {
        self.packed(
            names,
            self.library.functions.generate_regex,
            "PMIx_generate_regex",
        )
    }

    /// The ranks of each node, `0,1;2,3`, in the library's packed form.
    pub(crate) fn rank_lists(&self, ranks: &str) -> io::Result<Regex> {
        self.packed(
            ranks,
            self.library.functions.generate_ppn,
            "PMIx_generate_ppn",
        )
    }

    fn packed(
        &self,
        text: &str,
        function: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
        name: &str,
    ) -> io::Result<Regex> {
        let text = c_string(text);
        let mut out = std::ptr::null_mut();
        // SAFETY: both pointers lead to live values; the result is the caller's to free.
        let rc = unsafe { function(text.as_ptr(), &raw mut out) };
        self.check(rc, name)?;
        Ok(Regex(out))
    }

    /// Registers a name space with the number of its tasks on this node.
    pub(crate) fn register_job(
        &self,
        nspace: &str,
        local: usize,
        infos: &mut Infos,
    ) -> io::Result<()> {
        let name: [c_char; sys::NSPACE] = sys::fixed(nspace);
        let local = c_int::try_from(local).unwrap_or(0);
        let (array, count) = (infos.as_mut_ptr(), infos.len());
        self.wait_for("PMIx_server_register_nspace", |f, slot| {
            // SAFETY: the arguments live until the callback has come.
            unsafe {
                (self.library.functions.register_nspace)(
                    name.as_ptr(),
                    local,
                    array,
                    count,
                    f,
                    slot,
                )
            }
        })
    }

    /// Registers a task of this node.
    pub(crate) fn register_client(&self, task: &ProcName, uid: u32, gid: u32) -> io::Result<()> {
        let proc = task.raw();
        self.wait_for("PMIx_server_register_client", |f, slot| {
            // SAFETY: the arguments live until the callback has come.
            unsafe {
                (self.library.functions.register_client)(
                    &raw const proc,
                    uid,
                    gid,
                    std::ptr::null_mut(),
                    f,
                    slot,
                )
            }
        })
    }

    /// Variables, as `NAME=value`, that a task needs to find this server.
    pub(crate) fn environment(&self, task: &ProcName) -> io::Result<Vec<Vec<u8>>> {
        let proc = task.raw();
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: the list grows by strings of malloc, which are this function's to free.
        let rc = unsafe { (self.library.functions.setup_fork)(&raw const proc, &raw mut list) };
        let mut out = Vec::new();
        if !list.is_null() {
            let mut at = list;
            // SAFETY: the list ends in null.
            unsafe {
                while !(*at).is_null() {
                    out.push(CStr::from_ptr(*at).to_bytes().to_vec());
                    libc::free((*at).cast());
                    at = at.add(1);
                }
                libc::free(list.cast());
            }
        }
        self.check(rc, "PMIx_server_setup_fork")?;
        Ok(out)
    }

    /// Requests from the library the data that a task of this node has put. The answer arrives as
    /// an upcall with this ticket.
    pub(crate) fn fetch(&self, task: &ProcName, ticket: u64) -> i32 {
        let proc = task.raw();
        let ticket = usize::try_from(ticket).unwrap_or(usize::MAX) as *mut c_void;
        // SAFETY: the process lives through the call; the ticket is never followed.
        unsafe { (self.library.functions.dmodex_request)(&raw const proc, upcall::fetched, ticket) }
    }

    /// The location of a task that is bound to these CPUs (`0-1,4`); `None` if the library cannot
    /// compute it.
    pub(crate) fn place(&self, cpus: &str) -> Option<TaskLocation> {
        let functions = &self.library.functions;
        let (parse, locality) = (functions.parse_cpuset?, functions.locality?);
        let cpuset = format!("hwloc:{cpus}");
        let text = c_string(&cpuset);
        let mut set = RawCpuset {
            source: std::ptr::null_mut(),
            bitmap: std::ptr::null_mut(),
        };
        let mut out = std::ptr::null_mut();
        // SAFETY: text and set are live; the set is destructed once and the result is the caller's to free.
        let (rc, levels) = unsafe {
            if parse(text.as_ptr(), &raw mut set) != status::SUCCESS {
                return None;
            }
            let rc = locality(&raw const set, &raw mut out);
            if let Some(destruct) = functions.destruct_cpuset {
                destruct(&raw mut set);
            }
            (rc, sys::taken(out))
        };
        (rc == status::SUCCESS && !levels.is_empty()).then_some(TaskLocation { cpuset, levels })
    }

    /// Passes an event on to this node's tasks.
    pub(crate) fn notify(&self, code: i32, source: &ProcName, packed: &Packed) {
        let mut infos = Infos::unpacked(self.library, packed);
        self.raise(code, source, &mut infos);
    }

    /// Raises an event among this node's tasks.
    pub(crate) fn raise(&self, code: i32, source: &ProcName, infos: &mut Infos) {
        let proc: Proc = source.raw();
        let (array, count) = (infos.as_mut_ptr(), infos.len());
        let outcome = self.wait_for("PMIx_Notify_event", |f, slot| {
            // SAFETY: the arguments live until the callback has come.
            unsafe {
                (self.library.functions.notify_event)(
                    code,
                    &raw const proc,
                    RANGE_LOCAL,
                    array,
                    count,
                    f,
                    slot,
                )
            }
        });
        if let Err(e) = outcome {
            eprintln!("an event cannot be passed on: {e}");
        }
    }

    /// Calls a library function that answers by a callback, and waits for the callback. Must not be
    /// called on the library's own thread.
    fn wait_for(
        &self,
        name: &str,
        call: impl FnOnce(OpFn, *mut c_void) -> c_int,
    ) -> io::Result<()> {
        let slot: Arc<Slot> = Arc::new((Mutex::new(None), Condvar::new()));
        let given = Arc::into_raw(Arc::clone(&slot)).cast_mut().cast();
        let rc = call(arrived, given);
        if rc != status::SUCCESS {
            // SAFETY: the callback will not come, so its count is taken back.
            drop(unsafe { Arc::from_raw(given.cast_const().cast::<Slot>()) });
            if rc == status::OPERATION_SUCCEEDED {
                return Ok(());
            }
            return self.check(rc, name);
        }
        let held = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (held, _) = slot
            .1
            .wait_timeout_while(held, REGISTER_WAIT, |s| s.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match *held {
            Some(status::OPERATION_SUCCEEDED) => Ok(()),
            Some(rc) => self.check(rc, name),
            None => Err(io::Error::other(format!(
                "{name} has not answered in {} s",
                REGISTER_WAIT.as_secs()
            ))),
        }
    }

    fn check(&self, rc: c_int, name: &str) -> io::Result<()> {
        if rc == status::SUCCESS {
            return Ok(());
        }
        // SAFETY: the function gives a string of the library's own for any number.
        let text = unsafe { sys::copied((self.library.functions.error_string)(rc)) };
        Err(io::Error::other(format!("{name}: {text} ({rc})")))
    }
}
