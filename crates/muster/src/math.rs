//! The functions of libm that this program uses, linked into it. Only progress bars and the workload model call them,
//! but as a shared library libm is mapped and relocated whenever a command starts, which is a twentieth of what
//! sbatch costs. `tests/start.rs` watches that nothing brings it back.

macro_rules! functions {
    ($($name:ident($($argument:ident),+);)*) => {
        $(
            // SAFETY: the name, the arguments and the result are those of C's function (C17 7.12), and the
            // function is as good as the one it stands for.
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: f64),+) -> f64 {
                libm::$name($($argument),+)
            }
        )*
    };
}

functions! {
    cos(x);
    exp(x);
    exp2(x);
    log(x);
    log10(x);
    log2(x);
    pow(x, y);
}
