//! Checking a file of slurm.conf's directory without slurm.conf: `muster config check gres.conf`.

use super::unreadable_file;
use crate::diagnostic::{Diagnostic, Findings, Origin, Severity};
use crate::grid_engine::{self, Mapping};
use crate::job_classes::{self, JobClasses};
use crate::site_options::{self, SiteOptions};
use crate::source::ReadFile;
use crate::verifier::{self, VerifierBounds};
use crate::{files, job_container, topology, webhooks};
use std::path::Path;

/// Files of Slurm's that nothing here reads.
const UNREAD: [&str; 8] = [
    "acct_gather.conf",
    "burst_buffer.conf",
    "ext_sensors.conf",
    "helpers.conf",
    "knl.conf",
    "knl_generic.conf",
    "oci.conf",
    "plugstack.conf",
];

/// Findings in a file, by its name; absent for slurm.conf, for files with other names, which may be one, and for topology.yaml,
/// whose networks are those of nodes in slurm.conf. Names of nodes and devices are not looked up.
pub fn check_alone(path: &Path, read: ReadFile<'_>) -> Option<Vec<Diagnostic>> {
    let name = path.file_name()?.to_str()?;
    let file = path.display().to_string();
    let text = |check: fn(&str, &str) -> Vec<Diagnostic>| match read(path) {
        Ok(bytes) => check(&String::from_utf8_lossy(&bytes), &file),
        Err(error) => vec![unreadable_file(path, Severity::Error, &error)],
    };
    let flat = |kind| files::load_flat_with(kind, path, read).1;
    Some(match name {
        "gres.conf" => files::load_gres_with(path, read).1,
        "topology.conf" => topology::load_with(path, read).1,
        "cgroup.conf" => flat(files::PlainFile::Cgroup),
        "mpi.conf" => flat(files::PlainFile::Mpi),
        "slurmdbd.conf" => flat(files::PlainFile::Slurmdbd),
        job_container::FILE => job_container::load_with(path, read).1,
        verifier::FILE => text(|text, file| VerifierBounds::parse(text, file).1),
        grid_engine::FILE => text(|text, file| Mapping::parse(text, file).1),
        site_options::FILE => text(|text, file| SiteOptions::parse(text, file).1),
        webhooks::FILE => text(|text, file| webhooks::parse(text, file).1),
        job_classes::FILE => text(|text, file| JobClasses::parse(text, file).1),
        _ if UNREAD.contains(&name) => unread(&file),
        _ => return None,
    })
}

fn unread(file: &str) -> Vec<Diagnostic> {
    let origin = Origin {
        file: file.into(),
        line: 0,
        column: 0,
    };
    let mut findings = Findings::default();
    let message = "Muster does not read this file";
    findings.add(Severity::NoEffect, &origin, "", message, "");
    findings.sorted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn each_file_is_checked_by_its_own_rules() {
        let check = |name: &str, text: &'static str| {
            let read = |_: &Path| Ok(text.as_bytes().to_vec());
            let found = check_alone(Path::new(name), &read);
            found.map(|found| {
                let texts = found
                    .iter()
                    .map(|f| format!("{}: {}", f.severity, f.message));
                texts.collect::<Vec<_>>().join("\n")
            })
        };
        let unknown = |file: &str| Some(format!("error: unknown key `Bogus` in {file}"));
        for (name, line) in [
            (
                "gres.conf",
                "NodeName=n1 Name=gpu File=/dev/nvidia0 Bogus=1\n",
            ),
            ("topology.conf", "SwitchName=s1 Nodes=n1 Bogus=1\n"),
            (
                "job_container.conf",
                "AutoBasePath=true\nBasePath=/x Bogus=1\n",
            ),
            ("cgroup.conf", "Bogus=1\n"),
            ("mpi.conf", "Bogus=1\n"),
            (
                "slurmdbd.conf",
                "StorageType=accounting_storage/mysql\nBogus=1\n",
            ),
        ] {
            assert_eq!(check(name, line), unknown(name), "{name}");
        }
        for name in [
            "verifier.conf",
            "sge.conf",
            "webhooks.conf",
            "job_classes.conf",
        ] {
            let found = check(name, "bogus 1\n").unwrap();
            assert!(found.contains("bogus"), "{name}: {found}");
        }
        let note = check("acct_gather.conf", "EnergyIPMIFrequency=10\n").unwrap();
        assert_eq!(note, "no effect: Muster does not read this file");
        assert_eq!(check("slurm.conf", ""), None);
        assert_eq!(check("new.conf", ""), None);
        let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let found = check_alone(Path::new("webhooks.conf"), &absent).unwrap();
        assert_eq!(found[0].severity, Severity::Error);
    }
}
