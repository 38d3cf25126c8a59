//! libslurm for programs that were written for Slurm 22.05 and are linked with its C library: they list jobs, nodes and
//! partitions, submit jobs, signal and change them, and read accounting, as commands do: over the controller's socket, as
//! the user of the process. Functions of the interface are in modules by their subject; a function that is not
//! implemented is in [`refused`], which says so by its name. Slurm's own protocol is not spoken, and no plugin is loaded.

/// Functions of the interface that give 0, or -1 and an error number where they fail.
macro_rules! status_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what slurm.h says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> libc::c_int {
            $crate::error::status(|| {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

/// Functions of the interface that give a value, or another one and an error number where they fail.
macro_rules! value_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $out:ty, else $failed:expr, $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what slurm.h says.
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

/// Functions of the interface that free, or set members: they cannot fail.
macro_rules! quiet_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or lead to what slurm.h says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) {
            $crate::error::quietly(|| {
                // SAFETY: as the program promises by calling it.
                #[allow(unused_unsafe)]
                unsafe { $body }
            });
        }
    )* };
}

pub mod abi;
pub mod accounting;
pub mod bits;
pub mod config;
pub mod connection;
pub mod control;
pub mod descriptions;
pub mod environment;
pub mod errno;
pub mod error;
pub mod hostlist;
pub mod jobs;
pub mod list;
pub mod memory;
pub mod names;
pub mod nodes;
pub mod numbers;
pub mod partitions;
pub mod print;
pub mod refused;
pub mod resources;
pub mod steps;
pub mod submit;
pub mod times;
pub mod update;
