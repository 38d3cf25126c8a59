//! Durable commits a second beside what the machine itself can do (a plain append and fdatasync)
//! in the same run, and the time to read a journal of a million records back.
//!
//!     cargo run --release -p muster-journal --example commit_rate -- DIRECTORY
//!
//! DIRECTORY must be on the disk in question (a tmpfs syncs nothing) and is filled with about
//! 1 GiB, which is removed at the end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_journal::{Batch, FileLog, Log, Options};

const RECORD: [u8; 300] = [0x5a; 300];
const MEASURE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arg = std::env::args_os()
        .nth(1)
        .ok_or("usage: commit_rate DIRECTORY")?;
    let dir = PathBuf::from(arg).join(format!("commit-rate-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    for records in [1, 16, 64, 512] {
        // Rounds alternate, so that both see the same moods of the disk.
        let (mut raw, mut journal) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            raw.push(raw_rate(&dir, records)?);
            journal.push(journal_rate(&dir, records)?);
        }
        let (raw, journal) = (median(&mut raw), median(&mut journal));
        println!(
            "{records:4} records of 300 B a commit: {:.2} of the raw rate \
             (journal {journal:.0} commits/s, append+fdatasync {raw:.0}/s, {:.0} records/s)",
            journal / raw,
            journal * records as f64,
        );
    }
    restart(&dir)?;
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Calls a second.
fn rate<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    for _ in 0..20 {
        call()?;
    }
    let start = Instant::now();
    let mut calls = 0.0;
    while start.elapsed() < MEASURE {
        call()?;
        calls += 1.0;
    }
    Ok(calls / start.elapsed().as_secs_f64())
}

fn raw_rate(dir: &Path, records: usize) -> std::io::Result<f64> {
    let path = dir.join("raw");
    let file = File::create(&path)?;
    let bytes = vec![0x5a; records * RECORD.len()];
    let mut offset = 0;
    let rate = rate(|| {
        file.write_all_at(&bytes, offset)?;
        offset += bytes.len() as u64;
        file.sync_data()
    })?;
    fs::remove_file(path)?;
    Ok(rate)
}

fn journal_rate(dir: &Path, records: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let path = dir.join("journal");
    let mut log = FileLog::create_dir(&path, "bench", Options::default())?;
    let batch: Batch = (0..records).map(|_| RECORD).collect();
    let rate = rate(|| log.append(&batch).map(drop))?;
    drop(log);
    fs::remove_dir_all(path)?;
    Ok(rate)
}

fn restart(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let path = dir.join("journal");
    let mut log = FileLog::create_dir(&path, "bench", Options::default())?;
    let batch: Batch = (0..1000).map(|_| RECORD).collect();
    for _ in 0..1000 {
        log.append(&batch)?;
    }
    drop(log);
    let start = Instant::now();
    let (log, mut recovered) = FileLog::open_dir(&path, "bench", Options::default())?;
    let opened = start.elapsed();
    let mut bytes = 0;
    while let Some((_, record)) = recovered.records.next_record()? {
        bytes += record.len();
    }
    println!(
        "restart with {} records of {bytes} bytes in all: {:.0} ms to check, {:.0} ms in all",
        log.last_position(),
        opened.as_secs_f64() * 1e3,
        start.elapsed().as_secs_f64() * 1e3,
    );
    Ok(())
}
