//! The library's name for programs that are linked with it: that of Slurm 22.05, whose programs load it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libslurm.so.38");
    println!("cargo:rerun-if-changed=build.rs");
}
