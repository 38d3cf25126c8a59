//! Compiles this crate once more, as the small static program in `muster_script::PROGRAM`: without the standard and the C library,
//! at a fixed address. The compiler is called directly, because cargo neither includes a program in a library nor has a `panic`
//! setting for one package. It takes half a second and needs no target but the present one.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=program.ld");
    println!("cargo:rustc-check-cfg=cfg(freestanding)");
    let program = PathBuf::from(variable("OUT_DIR")).join("program");
    let is_known = matches!(
        variable("CARGO_CFG_TARGET_ARCH").as_str(),
        "x86_64" | "aarch64"
    );
    let system = ["OS", "ENV"].map(|part| variable(&format!("CARGO_CFG_TARGET_{part}")));
    let built = match is_known && system == ["linux", "gnu"] {
        true => compile(&program),
        false => Err("it is not made for this target".to_owned()),
    };
    if let Err(e) = built {
        // Batch scripts are then started by Muster's own program, which is slower.
        println!("cargo:warning=no small program to start batch scripts: {e}");
        std::fs::write(&program, "").expect("cargo's output directory can be written");
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn compile(program: &Path) -> Result<(), String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut rustc = Command::new(rustc);
    rustc
        .args([
            "src/lib.rs",
            "--crate-name=muster_script",
            "--crate-type=bin",
        ])
        .args(["--edition=2024", "--cfg=freestanding", "--target"])
        .arg(variable("TARGET"))
        .args(["-Copt-level=2", "-Cpanic=abort", "-Cstrip=symbols"])
        .args(["-Ccodegen-units=1", "-Cdebuginfo=0"])
        // All addresses are known when it is linked; nothing is relocated at its start.
        .args(["-Crelocation-model=static", "-Ctarget-feature=+crt-static"])
        .args(["-Clink-arg=-nostartfiles"])
        .args(["-Clink-arg=-nostdlib", "-Clink-arg=-static"])
        .args(["-Clink-arg=-no-pie", "-Clink-arg=-Wl,--gc-sections"])
        .args([
            "-Clink-arg=-Wl,--build-id=none",
            "-Clink-arg=-Wl,--no-eh-frame-hdr",
        ])
        .args(["-Cforce-unwind-tables=no", "-Clink-arg=-Wl,-T,program.ld"])
        .arg("-o")
        .arg(program);
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg({
            let mut option = std::ffi::OsString::from("linker=");
            option.push(linker);
            option
        });
    }
    let output = rustc.output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(text.lines().take(20).collect::<Vec<_>>().join(" "))
        }
    }
}
