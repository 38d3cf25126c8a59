//! Where the controller listens, read from slurm.conf without parsing all of it: commands start thousands of times
//! an hour and need three keys of a file that may describe ten thousand nodes.

use crate::authentication::{Authentication, key_dir};
use crate::check::{DEFAULT_PATH, GIVEN_PATH};
use crate::communication::Communication;
use std::io;
use std::path::{Path, PathBuf};

/// Settings by which a command reaches the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The configuration file that this comes from.
    pub conf: PathBuf,
    /// `ClusterName`.
    pub cluster: String,
    /// The controller's socket on this host.
    pub socket: PathBuf,
    /// `SlurmctldHost` names, in order.
    pub hosts: Vec<String>,
    /// Addresses for connections from other hosts, in order: `SlurmctldAddr`, else the address of each `SlurmctldHost`,
    /// else its name.
    pub addresses: Vec<String>,
    /// `SlurmctldPort`, the first of a range.
    pub port: u16,
    /// `SlurmUser`.
    pub slurm_user: String,
    /// `AuthType` and `AuthInfo`.
    pub authentication: Authentication,
    /// `TCPTimeout`, seconds.
    pub tcp_timeout_s: u32,
    /// `CommunicationParameters`.
    pub communication: Communication,
    /// `SrunProlog`, which srun runs where it runs itself.
    pub srun_prolog: Option<String>,
    /// `SrunEpilog`.
    pub srun_epilog: Option<String>,
    /// `KillOnBadExit`.
    pub kill_on_bad_exit: bool,
    /// `WaitTime`, as it is written.
    pub wait_time: Option<String>,
    /// `KillWait`, seconds.
    pub kill_wait_s: u32,
    /// `GresTypes`.
    pub gres_types: Vec<String>,
    /// `CliFilterPlugins`, in order.
    pub cli_filters: Vec<String>,
    /// `MailDomain`.
    pub mail_domain: Option<String>,
    /// `DataParserParameters`: the value of `--json` and `--yaml` where they have none.
    pub data_parser: Option<String>,
    /// `BcastParameters`.
    pub bcast_parameters: Option<String>,
    /// `BcastExclude`.
    pub bcast_exclude: Option<String>,
}

/// `$SLURM_CONF`, else `/etc/slurm/slurm.conf`, else what the controller has given this host.
pub fn conf_path() -> PathBuf {
    if let Some(named) = std::env::var_os("SLURM_CONF").filter(|v| !v.is_empty()) {
        return PathBuf::from(named);
    }
    let (own, given) = (Path::new(DEFAULT_PATH), Path::new(GIVEN_PATH));
    match !own.exists() && given.exists() {
        true => given.to_owned(),
        false => own.to_owned(),
    }
}

/// The socket of a controller, by its pid file and port. It is in a directory of its own, which belongs to `SlurmUser`, beside
/// the pid file, whose directory may be one that only root can write to, such as /run.
pub fn controller_socket(pid_file: &Path, port: u16) -> PathBuf {
    pid_file
        .parent()
        .unwrap_or(Path::new("/run"))
        .join(format!("muster-ctld.{port}/socket"))
}

/// Reads the endpoint from a configuration file and the files it includes.
///
/// # Errors
/// When a file cannot be read; the message names it.
pub fn read(path: &Path) -> io::Result<Endpoint> {
    let mut scan = Scan::default();
    scan.file(path, 0)?;
    if let (true, Some(host)) = (scan.hosts.is_empty(), scan.old_host.take()) {
        let address = scan.old_address.take().unwrap_or_else(|| host.clone());
        (scan.hosts, scan.addresses) = (vec![host], vec![address]);
    }
    let port = scan.port.unwrap_or(6817);
    let pid_file = scan
        .pid_file
        .unwrap_or_else(|| PathBuf::from("/var/run/slurmctld.pid"));
    Ok(Endpoint {
        conf: path.to_owned(),
        cluster: scan.cluster.unwrap_or_else(|| "cluster".to_owned()),
        socket: controller_socket(&pid_file, port),
        addresses: match scan.address {
            Some(address) => vec![address],
            None => scan.addresses,
        },
        hosts: scan.hosts,
        port,
        slurm_user: scan.slurm_user.unwrap_or_else(|| "root".to_owned()),
        authentication: Authentication::parse(
            scan.auth_type.as_deref(),
            scan.auth_info.as_deref(),
            key_dir(path),
        ),
        tcp_timeout_s: scan.tcp_timeout_s.unwrap_or(TCP_TIMEOUT_S),
        communication: scan.communication,
        srun_prolog: scan.srun_prolog,
        srun_epilog: scan.srun_epilog,
        kill_on_bad_exit: scan.kill_on_bad_exit,
        wait_time: scan.wait_time,
        kill_wait_s: scan.kill_wait_s.unwrap_or(KILL_WAIT_S),
        gres_types: scan.gres_types,
        cli_filters: scan.cli_filters,
        mail_domain: scan.mail_domain,
        data_parser: scan.data_parser,
        bcast_parameters: scan.bcast_parameters,
        bcast_exclude: scan.bcast_exclude,
    })
}

#[derive(Default)]
struct Scan {
    cluster: Option<String>,
    pid_file: Option<PathBuf>,
    hosts: Vec<String>,
    addresses: Vec<String>,
    address: Option<String>,
    /// `ControlMachine` and `ControlAddr`, as old files have them in place of `SlurmctldHost`.
    old_host: Option<String>,
    old_address: Option<String>,
    port: Option<u16>,
    slurm_user: Option<String>,
    auth_type: Option<String>,
    auth_info: Option<String>,
    tcp_timeout_s: Option<u32>,
    communication: Communication,
    srun_prolog: Option<String>,
    srun_epilog: Option<String>,
    kill_on_bad_exit: bool,
    wait_time: Option<String>,
    kill_wait_s: Option<u32>,
    gres_types: Vec<String>,
    cli_filters: Vec<String>,
    mail_domain: Option<String>,
    data_parser: Option<String>,
    bcast_parameters: Option<String>,
    bcast_exclude: Option<String>,
}

const INCLUDE_DEPTH_MAX: u32 = 16;
/// Where slurm.conf does not say `KillWait`.
pub const KILL_WAIT_S: u32 = 30;
/// Where it does not say `TCPTimeout`.
const TCP_TIMEOUT_S: u32 = 2;
/// Letters that keys begin with which matter here, and `include`.
const FIRST_LETTERS: &str = "abcdgikmstw";

impl Scan {
    fn file(&mut self, path: &Path, depth: u32) -> io::Result<()> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        for line in text.lines() {
            self.line(line, path, depth)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str, path: &Path, depth: u32) -> io::Result<()> {
        let line = line.trim_start();
        // Only lines that begin with one of the letters that matter are looked at further.
        let first = line.chars().next().unwrap_or('#').to_ascii_lowercase();
        if !FIRST_LETTERS.contains(first) {
            return Ok(());
        }
        if depth < INCLUDE_DEPTH_MAX
            && line
                .get(..8)
                .is_some_and(|w| w.eq_ignore_ascii_case("include "))
        {
            let name = line[8..].split('#').next().unwrap_or("").trim();
            let included = path.parent().unwrap_or(Path::new("/")).join(name);
            return self.file(&included, depth + 1);
        }
        let Some((key, rest)) = line.split_once('=') else {
            return Ok(());
        };
        let value = rest
            .trim_start()
            .split(['#', ' ', '\t'])
            .next()
            .unwrap_or("")
            .trim_matches('"');
        match key.trim().to_ascii_lowercase().as_str() {
            "authtype" => self.auth_type = Some(value.to_owned()),
            "authinfo" => self.auth_info = Some(value.to_owned()),
            "clifilterplugins" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                self.cli_filters = names.map(str::to_owned).collect();
            }
            "dataparserparameters" => self.data_parser = Some(value.to_owned()),
            "bcastparameters" => self.bcast_parameters = Some(value.to_owned()),
            "bcastexclude" => self.bcast_exclude = Some(value.to_owned()),
            "communicationparameters" => self.communication = Communication::parse(value),
            "clustername" => self.cluster = Some(value.to_owned()),
            "killonbadexit" => {
                let yes = ["1", "yes", "true"];
                self.kill_on_bad_exit = yes.iter().any(|word| value.eq_ignore_ascii_case(word));
            }
            "grestypes" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                self.gres_types.extend(names.map(str::to_owned));
            }
            "maildomain" => self.mail_domain = Some(value.to_owned()),
            "killwait" => self.kill_wait_s = value.parse().ok(),
            "waittime" => self.wait_time = Some(value.to_owned()),
            "slurmctldpidfile" => self.pid_file = Some(PathBuf::from(value)),
            "slurmctldport" => self.port = value.split('-').next().and_then(|p| p.parse().ok()),
            "srunprolog" => self.srun_prolog = Some(value.to_owned()),
            "srunepilog" => self.srun_epilog = Some(value.to_owned()),
            "controlmachine" => self.old_host = value.split(',').next().map(str::to_owned),
            "controladdr" => self.old_address = Some(value.to_owned()),
            "slurmctldaddr" => self.address = Some(value.to_owned()),
            "slurmctldhost" => {
                let (host, address) = value.split_once('(').unwrap_or((value, value));
                self.hosts.push(host.to_owned());
                self.addresses
                    .push(address.trim_end_matches(')').to_owned());
            }
            "slurmuser" => self.slurm_user = Some(value.to_owned()),
            "tcptimeout" => self.tcp_timeout_s = value.parse().ok(),
            _ => {}
        }
        Ok(())
    }
}
