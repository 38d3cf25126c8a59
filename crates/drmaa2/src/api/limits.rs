//! The keys of resourceLimits, as strings that programs read.

use libc::c_char;

/// A string of the library's.
#[derive(Debug)]
#[repr(transparent)]
pub struct LimitName(*const c_char);

// SAFETY: nobody changes the strings.
unsafe impl Sync for LimitName {}

macro_rules! limits {
    ($($name:ident $text:literal;)*) => { $(
        /// A key of resourceLimits.
        #[unsafe(no_mangle)]
        pub static $name: LimitName = LimitName($text.as_ptr());
    )* };
}

limits! {
    DRMAA2_CORE_FILE_SIZE c"CORE_FILE_SIZE";
    DRMAA2_CPU_TIME c"CPU_TIME";
    DRMAA2_DATA_SIZE c"DATA_SIZE";
    DRMAA2_FILE_SIZE c"FILE_SIZE";
    DRMAA2_OPEN_FILES c"OPEN_FILES";
    DRMAA2_STACK_SIZE c"STACK_SIZE";
    DRMAA2_VIRTUAL_MEMORY c"VIRTUAL_MEMORY";
    DRMAA2_WALLCLOCK_TIME c"WALLCLOCK_TIME";
}
