//! The library's name for programs that are linked with it. It stays loaded once it is: its thread may wait for events.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdrmaa2.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
