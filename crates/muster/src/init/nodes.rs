//! Lines of nodes, as `slurmd -C` prints them on each host. Hosts that were asked by ssh are believed about their hardware, and nothing
//! else.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};

/// Keys of such a line.
const KEYS: [&str; 7] = [
    "CPUs",
    "Boards",
    "SocketsPerBoard",
    "CoresPerSocket",
    "ThreadsPerCore",
    "RealMemory",
    "TmpDisk",
];
/// Most bytes read.
const BYTES_MAX: u64 = 16 << 20;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeLine {
    /// `NodeName`.
    pub(super) name: String,
    /// All of it, as slurm.conf has it.
    pub(super) text: String,
}

/// Whether a text can be the name of a host, a node, a user or a cluster.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins && text.len() <= 253 && text.chars().all(plain)
}

/// The nodes of a file, or of standard input (`-`).
pub(super) fn from_file(path: &str) -> Result<Vec<NodeLine>> {
    let mut text = String::new();
    match path {
        "-" => io::stdin().take(BYTES_MAX).read_to_string(&mut text),
        path => {
            fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
        }
    }
    .with_context(|| format!("--node-from {path}"))?;
    let nodes = parse(&text).with_context(|| format!("--node-from {path}"))?;
    ensure!(
        !nodes.is_empty(),
        "--node-from {path}: there is no line of 'slurmd -C' in it"
    );
    Ok(nodes)
}

/// The node that a host says it is.
pub(super) fn from_host(host: &str) -> Result<NodeLine> {
    ensure!(is_name(host), "'{host}' is not a valid host name");
    let mut child = Command::new("ssh")
        .args([
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=10",
            "--",
            host,
            "slurmd",
            "-C",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot run ssh")?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Further output of a host gets no reader.
        stdout.take(BYTES_MAX).read_to_end(&mut said)?;
    }
    ensure!(
        child.wait()?.success(),
        "'ssh {host} slurmd -C' failed: install slurmd there, and give ssh a key"
    );
    let text = String::from_utf8_lossy(&said);
    let mut nodes = parse(&text).with_context(|| format!("slurmd -C on {host}"))?;
    let short = host.split('.').next().unwrap_or(host);
    match (nodes.pop(), nodes.is_empty()) {
        (Some(node), true) if node.name == short => Ok(node),
        _ => bail!("'slurmd -C' on {host} does not say that it is {short}"),
    }
}

/// Reads lines `NodeName=...`; others, such as `UpTime=`, are none.
fn parse(text: &str) -> Result<Vec<NodeLine>> {
    let lines = text.lines().map(str::trim);
    let nodes = lines.filter(|line| line.starts_with("NodeName="));
    nodes.map(read_line).collect()
}

fn read_line(line: &str) -> Result<NodeLine> {
    let mut pairs = line
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    let (_, name) = pairs.next().context("a line has no node")?;
    ensure!(
        is_name(name),
        "'{}' is not a valid node name",
        name.escape_default()
    );
    let mut text = format!("NodeName={name}");
    for (key, value) in pairs {
        if !KEYS.contains(&key) {
            complain!("muster: node {name}: {}= is left out", key.escape_default());
            continue;
        }
        let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit());
        ensure!(is_number, "node {name}: {key}= has no number");
        text += &format!(" {key}={value}");
    }
    Ok(NodeLine {
        name: name.to_owned(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_hardware_is_taken_and_nothing_else() {
        let text = "NodeName=n1 CPUs=2 Gres=gpu:1 RealMemory=9 Prolog=/tmp/x\nUpTime=1\n\n NodeName=n2 CPUs=4\n";
        let nodes = parse(text).unwrap();
        assert_eq!(nodes[0].text, "NodeName=n1 CPUs=2 RealMemory=9");
        assert_eq!((nodes[1].name.as_str(), nodes.len()), ("n2", 2));
        for wrong in [
            "NodeName=a;b CPUs=1",
            "NodeName=n1 CPUs=x",
            "NodeName= CPUs=1",
            "NodeName=n1 CPUs=",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
