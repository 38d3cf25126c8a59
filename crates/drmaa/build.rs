//! The library's name for programs that are linked with it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdrmaa.so.1.0");
    println!("cargo:rerun-if-changed=build.rs");
}
