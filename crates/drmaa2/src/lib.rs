//! DRMAA 2 for C (GFD.230, the binding of GFD.231): a shared library by which programs submit jobs, wait for them,
//! control them, reserve cores and look at the cluster, as commands do: over the controller's socket, as the user that
//! the process is. The functions of the standard are in [`api`], [`collections`], [`abi`] and [`extensions`], which
//! turn pointers into values and results into numbers; their work is in the other modules. DRMAA 1.0 is a library of
//! its own.

/// Functions of the standard that give a value, or another one where they fail.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $out:ty, else $failed:expr, $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what the standard says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $out {
            $crate::error::guarded($failed, || {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

/// Functions of the standard that give an error's number.
macro_rules! procedures {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what the standard says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> libc::c_int {
            $crate::error::numbered(|| {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

pub mod abi;
pub mod api;
pub mod collections;
pub mod error;
pub mod events;
pub mod extensions;
pub mod job_ref;
pub mod jobs;
pub mod machines;
pub mod memory;
pub mod records;
pub mod reservations;
pub mod store;
pub mod submission;
pub mod values;
