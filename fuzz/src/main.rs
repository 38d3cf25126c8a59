//! All fuzz targets in one program, by libFuzzer; the environment variable `FUZZ_TARGET` says which one runs.
//! `cargo xtask fuzz` builds and runs it.
#![no_main]

mod targets;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use muster_hostile::cbor::Value;
use muster_hostile::mutate;
use muster_hostile::random::Random;
use nix::sys::resource::{UsageWho, getrusage};
use std::sync::LazyLock;
use targets::{Form, TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let named = TARGETS.iter().find(|target| target.name == name);
    named.unwrap_or_else(|| panic!("FUZZ_TARGET={name}: no such target"))
});

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    let before = peak_mib();
    (TARGET.run)(data);
    // The engine looks at memory now and then, and would name another input.
    let took = peak_mib().saturating_sub(before);
    assert!(took < INPUT_MIB, "this input took {took} MiB");
});

/// Memory that one input may take, MiB.
const INPUT_MIB: u64 = 200;

/// The most memory that this process has had, MiB.
fn peak_mib() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel counts memory");
    u64::try_from(usage.max_rss()).unwrap_or(0) >> 10
}

/// Writes the inputs that targets begin with, for a directory that the environment names, and ends.
fn write_seeds() {
    let Some(dir) = std::env::var_os("FUZZ_WRITE_SEEDS") else {
        return;
    };
    for target in TARGETS {
        let dir = std::path::Path::new(&dir).join(target.name);
        std::fs::create_dir_all(&dir).expect("a directory for inputs");
        for (number, input) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(number.to_string()), input).expect("an input");
        }
    }
    std::process::exit(0);
}

// A message stays one if its values are changed, not its bytes; those are changed, too.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let head = match TARGET.form {
        Form::Bytes => return fuzzer_mutate(data, size, max_size),
        Form::Cbor { head } => head.min(size),
    };
    let tree = match seed % 8 {
        0 => return fuzzer_mutate(data, size, max_size),
        _ => Value::decode(&data[head..size]),
    };
    let Ok(tree) = tree else {
        return fuzzer_mutate(data, size, max_size);
    };
    let mut random = Random::new(seed.into());
    let bytes = mutate::by_engine(&tree, &mut random, &mut |part| {
        // The engine knows the constants that the program compares with.
        let mut room = part.clone();
        let most = part.len() + 16;
        room.resize(most, 0);
        let size = fuzzer_mutate(&mut room, part.len(), most);
        room.truncate(size);
        *part = room;
    });
    let bytes = bytes.encode();
    match head + bytes.len() <= max_size {
        true => {
            data[head..head + bytes.len()].copy_from_slice(&bytes);
            head + bytes.len()
        }
        false => fuzzer_mutate(data, size, max_size),
    }
});
