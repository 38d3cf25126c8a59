//! `cargo xtask numa`: Muster on a machine of two sockets, each with four NUMA domains of four cores, that QEMU makes up.
//! Jobs of several sizes run there; where they are and where their memory is has to be as the rules say: the fewest
//! domains, one socket before two, best fit, memory of the same domains.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Of the machine, and of each socket.
const DOMAINS: u32 = 8;
const DOMAINS_OF_SOCKET: u32 = 4;
const CORES_OF_DOMAIN: u32 = 4;
/// Memory of a domain, MiB. Files of the first file system are in some of it.
const DOMAIN_MIB: u32 = 256;
/// Seconds; half a minute to boot, as much for jobs, on a quiet machine.
const PATIENCE: &str = "500";

const GUEST: [(&str, &str); 3] = [
    ("init", include_str!("numa/init")),
    ("probe", include_str!("numa/probe")),
    ("slurm.conf", include_str!("numa/slurm.conf")),
];

/// Expected output of `slurmd -C` there, but for the memory.
const FOUND: &str = "NodeName=node CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=";

/// A kernel that knows domains, and the file system that it begins with.
const KERNEL: &str = "\
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -1)
[ -e \"$package\" ] || { apt-get download -q \"$package\" && dpkg-deb -x \"$package\"_*.deb \"$package\" && rm \"$package\"_*.deb; }
ln -sf \"$package\"/boot/vmlinuz-* vmlinuz";
const IMAGE: &str = "\
rm -rf root; mkdir -p root/bin root/etc
strip --strip-debug \"$MUSTER\" -o root/bin/muster
cp \"$(command -v busybox)\" root/bin/busybox
for lib in $(ldd \"$MUSTER\" | grep -o '/[^ ]*'); do mkdir -p root/${lib%/*}; cp -L $lib root/$lib; done
echo root:x:0:0:root:/root:/bin/sh >root/etc/passwd
echo root:x:0: >root/etc/group
echo 127.0.0.1 localhost node >root/etc/hosts
cp init probe slurm.conf root/; chmod 755 root/init root/probe
(cd root; find . | busybox cpio -o -H newc) | gzip -1 >image";

/// A task: its CPUs, and pages of its own memory by domain.
#[derive(Debug, PartialEq)]
struct Task {
    cpus: BTreeSet<u32>,
    pages: BTreeMap<u32, u64>,
}

/// A requested case: its kind, its number of cores.
#[derive(Debug, PartialEq)]
struct Case {
    kind: String,
    cores: u32,
    tasks: Vec<Task>,
}

/// Boots it, with a program that is built, and reports deviations.
pub(crate) fn run(args: &[String]) -> Result<()> {
    match args {
        [] => {}
        [option, file] if option == "--muster" => crate::build::use_given(file)?,
        _ => bail!("there is --muster FILE, and nothing else"),
    }
    let muster = crate::build::muster(crate::build::Profile::Release)?;
    let place = crate::build::target().join("numa");
    fs::create_dir_all(&place)?;
    let place = fs::canonicalize(place)?;
    install()?;
    for (name, text) in GUEST {
        fs::write(place.join(name), text)?;
    }
    shell(KERNEL, &place, &muster).context("there is no kernel")?;
    shell(IMAGE, &place, &muster).context("there is no image")?;
    let said = boot(&place)?;
    let log = place.join("console");
    let said: Vec<&str> = said
        .lines()
        .filter_map(|l| Some(l.split_once("numa: ")?.1))
        .collect();
    let at = || format!("what the machine said is in {}", log.display());
    ensure!(
        said.last() == Some(&"end"),
        "it does not come to its end; {}",
        at()
    );
    let mut wrong = Vec::new();
    if !said.iter().any(|line| line.starts_with(FOUND)) {
        wrong.push(format!("slurmd -C does not say: {FOUND}"));
    }
    for case in cases(&said)? {
        println!("{}", case.report());
        wrong.extend(case.wrong());
    }
    ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), at());
    Ok(())
}

/// Installs the parts of machines, and the programs in this one.
fn install() -> Result<()> {
    let wanted = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    let missing = wanted.iter().filter(|(program, _)| !is_there(program));
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let status = Command::new("apt-get")
        .args(["install", "-qy", "--no-install-recommends"])
        .args(&packages)
        .stdout(Stdio::null())
        .status()
        .context("apt-get")?;
    ensure!(
        status.success(),
        "{} cannot be installed",
        packages.join(", ")
    );
    Ok(())
}

fn shell(script: &str, place: &Path, muster: &Path) -> Result<()> {
    let status = Command::new("bash")
        .args(["-ec", script])
        .current_dir(place)
        .env("MUSTER", muster)
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "{script}\n{status}");
    Ok(())
}

/// Runs the machine to its end, and returns the output on its console.
fn boot(place: &Path) -> Result<String> {
    let mut words: Vec<String> = Vec::new();
    let mut option = |name: &str, value: String| words.extend([format!("-{name}"), value]);
    option("accel", "tcg,thread=multi".into());
    option("machine", "q35".into());
    option("cpu", "EPYC".into());
    option("m", format!("{}M", DOMAIN_MIB * DOMAINS));
    let cpus = DOMAINS * CORES_OF_DOMAIN;
    option(
        "smp",
        format!("{cpus},sockets=2,dies={DOMAINS_OF_SOCKET},cores={CORES_OF_DOMAIN},threads=1"),
    );
    for domain in 0..DOMAINS {
        let first = domain * CORES_OF_DOMAIN;
        let last = first + CORES_OF_DOMAIN - 1;
        option(
            "object",
            format!("memory-backend-ram,id=m{domain},size={DOMAIN_MIB}M"),
        );
        option(
            "numa",
            format!("node,nodeid={domain},memdev=m{domain},cpus={first}-{last}"),
        );
    }
    for (domain, other) in (0..DOMAINS).flat_map(|d| (0..DOMAINS).map(move |o| (d, o))) {
        let distance = match other {
            _ if other == domain => 10,
            _ if socket(other) == socket(domain) => 16,
            _ => 32,
        };
        option(
            "numa",
            format!("dist,src={domain},dst={other},val={distance}"),
        );
    }
    option("kernel", "vmlinuz".into());
    option("initrd", "image".into());
    // The kernel's look for a broken timer counts ticks in a short loop, which an emulator on a loaded machine does not keep.
    option(
        "append",
        "console=ttyS0 panic=1 quiet no_timer_check".into(),
    );
    option("nic", "none".into());
    let console = place.join("console");
    let status = Command::new("timeout")
        .args([PATIENCE, "qemu-system-x86_64", "-nographic", "-no-reboot"])
        .args(words)
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&console)?)
        // It names all that it cannot do of a processor.
        .stderr(fs::File::create(place.join("qemu"))?)
        .status()
        .context("timeout and qemu-system-x86_64 are needed")?;
    ensure!(
        status.success(),
        "the machine ended with {status}: {}",
        console.display()
    );
    // The firmware's output is not all text.
    Ok(String::from_utf8_lossy(&fs::read(console)?).replace('\r', ""))
}

fn socket(domain: u32) -> u32 {
    domain / DOMAINS_OF_SOCKET
}

/// The lines of cases, each followed by those of its tasks.
fn cases(said: &[&str]) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for line in said {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["case", kind, cores] => cases.push(Case {
                kind: (*kind).to_owned(),
                cores: cores.parse()?,
                tasks: Vec::new(),
            }),
            ["task", cpus, pages @ ..] => {
                let case = cases.last_mut().context("a task of no case")?;
                case.tasks
                    .push(task(cpus, pages).with_context(|| (*line).to_owned())?);
            }
            _ => {}
        }
    }
    Ok(cases)
}

fn task(cpus: &str, pages: &[&str]) -> Option<Task> {
    let mut task = Task {
        cpus: BTreeSet::new(),
        pages: BTreeMap::new(),
    };
    for range in cpus.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        task.cpus
            .extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    for word in pages {
        let (domain, count) = word.split_once('=')?;
        task.pages.insert(domain.parse().ok()?, count.parse().ok()?);
    }
    Some(task)
}

fn domains(cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    cpus.iter().map(|cpu| cpu / CORES_OF_DOMAIN).collect()
}

impl Case {
    fn cpus(&self) -> BTreeSet<u32> {
        self.tasks
            .iter()
            .flat_map(|task| &task.cpus)
            .copied()
            .collect()
    }

    fn report(&self) -> String {
        let cpus = self.cpus();
        let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
        for (domain, count) in self.tasks.iter().flat_map(|task| &task.pages) {
            *pages.entry(*domain).or_default() += count;
        }
        let pages: Vec<String> = pages
            .iter()
            .map(|(d, count)| format!("{d}:{count}"))
            .collect();
        format!(
            "{:<6} {:>2} cores: domains {:?}, pages {}",
            self.kind,
            self.cores,
            domains(&cpus),
            pages.join(" ")
        )
    }

    /// Deviations from the rules.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut say = |what: &str| {
            wrong.push(format!(
                "{} {}: {what}: {:?}",
                self.kind, self.cores, self.tasks
            ))
        };
        let (cpus, count) = (self.cpus(), self.tasks.len());
        let tasks = if self.kind == "tasks" { self.cores } else { 1 };
        if u32::try_from(count) != Ok(tasks) || u32::try_from(cpus.len()) != Ok(self.cores) {
            say("not the tasks or the CPUs that were asked for");
            return wrong;
        }
        let of_socket = DOMAINS_OF_SOCKET * CORES_OF_DOMAIN;
        let sockets = self.cores.div_ceil(of_socket);
        let mut in_sockets: BTreeMap<u32, u32> = BTreeMap::new();
        for cpu in &cpus {
            *in_sockets.entry(cpu / of_socket).or_default() += 1;
        }
        // A step larger than one socket is half in each.
        let each = self.cores / sockets;
        let is_even = in_sockets.values().all(|count| *count == each);
        if u32::try_from(in_sockets.len()) != Ok(sockets) || !is_even {
            say("not the fewest sockets, or not the same of each");
        }
        if u32::try_from(domains(&cpus).len()) != Ok(sockets * each.div_ceil(CORES_OF_DOMAIN)) {
            say("not the fewest domains");
        }
        if self.kind == "beside" && self.cores > 1 {
            // The first of them has the first CPU.
            let best: BTreeSet<u32> = match self.cores {
                3 => (1..4).collect(),
                4 => (4..8).collect(),
                _ => (16..32).collect(),
            };
            if cpus != best {
                say("not the best fit");
            }
        }
        for task in &self.tasks {
            let own = domains(&task.cpus);
            let strays = task.pages.keys().any(|domain| match self.kind.as_str() {
                "spill" => own.iter().all(|own| socket(*own) != socket(*domain)),
                _ => !own.contains(domain),
            });
            let spills = self.kind != "spill" || task.pages.len() > 1;
            if strays || !spills || !own.iter().any(|own| task.pages.contains_key(own)) {
                say("memory of other domains");
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(lines: &[&str]) -> Vec<String> {
        let cases = cases(lines).unwrap();
        cases.iter().flat_map(Case::wrong).collect()
    }

    #[test]
    fn what_is_as_the_rules_say() {
        let good = [
            "case job 6",
            "task 0-5 1=1998",
            "case tasks 2",
            "task 3 0=1998",
            "task 2 0=1997",
            "case job 24",
            "task 0-11,16-27 6=1998",
            "case beside 3",
            "task 1-3 0=7",
            "case spill 1",
            "task 28 7=50000 4=9000",
        ];
        assert_eq!(wrong(&good), Vec::<String>::new());
    }

    #[test]
    fn what_is_not() {
        for lines in [
            // Two domains where one would do; two sockets; a CPU too few.
            ["case job 4", "task 2-5 0=1998"],
            ["case job 8", "task 0-3,16-19 0=1998"],
            ["case job 24", "task 0-15,16-23 0=1998"],
            ["case job 4", "task 0-2 0=1998"],
            // Memory from afar.
            ["case job 4", "task 0-3 0=1998 1=1"],
            ["case spill 1", "task 28 7=50000 0=9000"],
            ["case spill 1", "task 28 7=50000"],
            // The empty domain, where the rest of another would do.
            ["case beside 3", "task 4-6 1=7"],
        ] {
            assert_eq!(wrong(&lines).len(), 1, "{lines:?}");
        }
    }
}
