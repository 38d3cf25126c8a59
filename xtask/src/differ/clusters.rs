//! The two clusters: how they start, how they come into the same state, what a line prints on each.

use super::compare::{NamesOfSide, TextReplacement};
use super::corpus::{CorpusLine, CorpusUser};
use super::{ComparedProduct, read};
use crate::build::{Profile, muster};
use crate::guard::Guard;
use crate::peer::{Product, start_slurm_of};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seconds that a line may take; after them it ends with status 124.
const LIMIT: &str = "20";

/// Bytes of an output that are compared.
const OUTPUT_MAX: u64 = 64 << 10;

/// A cluster, and its own names and paths.
struct ClusterSide {
    /// Its variables, PATH included.
    environment: Vec<(String, String)>,
    /// Where its lines run.
    folder: PathBuf,
    names: NamesOfSide,
}

/// Both clusters; with Slurm in the state of tests/differ/state.sh, with Grid Engine without jobs.
pub(super) struct BothClusters {
    other: ClusterSide,
    muster: ClusterSide,
    /// Bash text before each line.
    prelude: String,
    /// The daemons, which go with them.
    _other: OtherDaemons,
    _muster: Guard,
    _scratch: DifferScratch,
}

/// Daemons of the product that Muster is compared with.
enum OtherDaemons {
    Slurm { _product: Product },
    GridEngine { _guard: Guard },
}

/// A directory that goes away with its value. Clusters in it are stopped before.
struct DifferScratch(PathBuf);

impl Drop for DifferScratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl BothClusters {
    /// Starts both; nothing where the product is not installed.
    pub(super) fn start(product: ComparedProduct) -> Result<Option<BothClusters>> {
        ensure!(is_root()?, "only root can run lines of several users");
        let program = muster(Profile::Quick)?;
        let top = std::env::temp_dir().join(format!("muster-differ-{}", std::process::id()));
        fs::create_dir(&top).with_context(|| top.display().to_string())?;
        let scratch = DifferScratch(top.clone());
        let path = std::env::var("PATH")?;
        let started = match product {
            ComparedProduct::Slurm => start_slurm(&top, &path)?,
            ComparedProduct::GridEngine => start_grid_engine(&top, &path)?,
        };
        let Some((other, daemons)) = started else {
            return Ok(None);
        };
        let (guard, home) = start_muster(product, &program, &top)?;
        let conf = format!("{}/slurm.conf", home.display());
        let path = format!("{}/bin:{}", home.display(), without_others(&top, &path)?);
        let muster_side = ClusterSide::new(&top, "muster", &[("SLURM_CONF".into(), conf)], &path)?;
        let mut clusters = BothClusters {
            other,
            muster: muster_side,
            prelude: read(product, "prelude.sh")?,
            _other: daemons,
            _muster: guard,
            _scratch: scratch,
        };
        if product == ComparedProduct::Slurm {
            clusters.bring_into_state()?;
        }
        Ok(Some(clusters))
    }

    /// Runs state.sh on both at once, since times are compared.
    fn bring_into_state(&mut self) -> Result<()> {
        let script = fs::canonicalize("tests/differ/state.sh")?;
        let start = |side: &ClusterSide, name: &str, other: &str| -> Result<Child> {
            let mut command = Command::new("bash");
            command
                .arg(&script)
                .env("SIDE", name)
                .env("OTHER_SIDE", other)
                .envs(side.environment.iter().cloned())
                .current_dir(&side.folder)
                .stdin(Stdio::null())
                .stdout(File::create(side.folder.join("state.log"))?);
            Ok(command.spawn()?)
        };
        let children = [
            start(&self.other, "slurm", "muster")?,
            start(&self.muster, "muster", "slurm")?,
        ];
        for (mut child, side) in children
            .into_iter()
            .zip([&mut self.other, &mut self.muster])
        {
            let status = child.wait()?;
            let log = fs::read_to_string(side.folder.join("state.log"))?;
            ensure!(status.success(), "{}: {log}", side.folder.display());
            if !log.is_empty() {
                print!("{}: {log}", side.folder.display());
            }
            let ids = fs::read_to_string(side.folder.join("ids"))?;
            side.names.add_ids(&ids);
            let ids = ids.lines().filter_map(|line| line.split_once('='));
            side.environment
                .extend(ids.map(|(name, id)| (name.to_owned(), id.to_owned())));
        }
        Ok(())
    }

    /// Leaves both clusters until standard input ends, for lines that are typed by hand: target/differ-muster.sh and the file beside it
    /// of the other product, which bash reads, have the variables and functions that lines have.
    pub(super) fn hold(&self) -> Result<()> {
        let other = match self._other {
            OtherDaemons::Slurm { .. } => "slurm",
            OtherDaemons::GridEngine { .. } => "grid-engine",
        };
        for (side, name) in [(&self.other, other), (&self.muster, "muster")] {
            let mut text = format!("cd {}\n", side.folder.display());
            for (key, value) in &side.environment {
                text += &format!("export {key}='{value}'\n");
            }
            let file = format!("target/differ-{name}.sh");
            fs::write(&file, text + &self.prelude).context(file)?;
        }
        println!(
            "source target/differ-{other}.sh or target/differ-muster.sh; end of input ends both"
        );
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        Ok(())
    }

    /// Output of a line on the other product and on Muster.
    pub(super) fn answers(&self, line: &CorpusLine) -> Result<(Vec<String>, Vec<String>)> {
        let script = format!("{}\n{}\n", self.prelude, line.text);
        let other = self.other.start(line.user, &script)?;
        let muster = self.muster.start(line.user, &script)?;
        Ok((self.other.answer(other)?, self.muster.answer(muster)?))
    }
}

impl ClusterSide {
    fn new(
        top: &Path,
        name: &str,
        environment: &[(String, String)],
        path: &str,
    ) -> Result<ClusterSide> {
        let folder = top.join(format!("lines-{name}"));
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777))?;
        let host = String::from_utf8(Command::new("hostname").output()?.stdout)?;
        let mut environment = environment.to_vec();
        environment.push(("PATH".to_owned(), path.to_owned()));
        let texts = [
            (folder.display().to_string(), "LINES"),
            (top.join(name).display().to_string(), "CLUSTER"),
            (host.trim().to_owned(), "HOST"),
            ("localhost".to_owned(), "HOST"),
        ];
        let texts = texts.map(|(from, to)| TextReplacement { from, to }).into();
        let ids = Vec::new();
        Ok(ClusterSide {
            environment,
            folder,
            names: NamesOfSide { ids, texts },
        })
    }

    fn start(&self, user: CorpusUser, script: &str) -> Result<Child> {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "1", LIMIT, "bash", "-c", script])
            .env_clear()
            .envs(self.environment.iter().cloned())
            .env("USER", user.name())
            .env("LOGNAME", user.name())
            .env("HOME", "/")
            .env("LANG", "C.UTF-8")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(File::create(self.folder.join(".out"))?)
            .stderr(File::create(self.folder.join(".err"))?);
        if user != CorpusUser::Root {
            let (uid, gid) = ids(user)?;
            command.uid(uid).gid(gid);
        }
        Ok(command.spawn()?)
    }

    fn answer(&self, mut child: Child) -> Result<Vec<String>> {
        let status = child.wait()?;
        let text = |name: &str| -> Result<String> {
            // A command that asks nobody again and again writes until it is ended.
            let mut bytes = Vec::new();
            let file = File::open(self.folder.join(name))?;
            file.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let status = status.code().unwrap_or(-1);
        Ok(self.names.lines(&text(".out")?, &text(".err")?, status))
    }
}

/// Slurm's commands, and those of Grid Engine. One that Muster lacks must not be found for it.
const COMMANDS: [&str; 43] = [
    "qacct", "qalter", "qconf", "qdel", "qhold", "qhost", "qlogin", "qmake", "qmod", "qping",
    "qquota", "qrdel", "qresub", "qrls", "qrsh", "qrstat", "qrsub", "qselect", "qsh", "qstat",
    "qsub", "qtcsh", "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel",
    "scontrol", "scrontab", "sdiag", "seff", "sgather", "sh5util", "sinfo", "sprio", "squeue",
    "sreport", "srun", "sshare", "sstat", "strigger",
];

/// A PATH with links to all programs but those of other products.
fn without_others(top: &Path, path: &str) -> Result<String> {
    let folder = top.join("bin");
    fs::create_dir(&folder)?;
    for entry in path
        .split(':')
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
    {
        let entry = entry?;
        let name = entry.file_name();
        if !COMMANDS.iter().any(|known| name == *known) {
            // The first of a name counts.
            let _ = std::os::unix::fs::symlink(entry.path(), folder.join(&name));
        }
    }
    Ok(folder.display().to_string())
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output()?;
    Ok(output.stdout == b"0\n")
}

fn ids(user: CorpusUser) -> Result<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(user.name()));
    let mut fields = line
        .with_context(|| format!("there is no user {}", user.name()))?
        .split(':')
        .skip(2);
    let mut id = || fields.next().and_then(|id| id.parse().ok());
    id().zip(id()).context("/etc/passwd cannot be read")
}

fn start_slurm(top: &Path, path: &str) -> Result<Option<(ClusterSide, OtherDaemons)>> {
    let site = Path::new(ComparedProduct::Slurm.folder());
    let started = start_slurm_of(&top.join("slurm"), true, Some(site))?;
    let Some(product) = started else {
        return Ok(None);
    };
    let side = ClusterSide::new(top, "slurm", &product.env, path)?;
    Ok(Some((side, OtherDaemons::Slurm { _product: product })))
}

/// Directory of Grid Engine's commands in Debian.
const GRID_ENGINE_COMMANDS: &str = "/usr/lib/gridengine";

fn start_grid_engine(top: &Path, path: &str) -> Result<Option<(ClusterSide, OtherDaemons)>> {
    let script = "bench/gridengine-peer.sh";
    let cell = top.join("grid-engine");
    let cell_text = cell.display().to_string();
    let guard = Guard::new(&[script, "down", &cell_text], &[], None)?;
    let output = Command::new(script)
        .args(["up", &cell_text])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if output.status.code() == Some(3) {
        return Ok(None);
    }
    ensure!(
        output.status.success(),
        "the Grid Engine cell did not start"
    );
    let text = String::from_utf8(output.stdout)?;
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let path = format!("{GRID_ENGINE_COMMANDS}:{path}");
    let side = ClusterSide::new(top, "grid-engine", &pairs.collect::<Vec<_>>(), &path)?;
    Ok(Some((side, OtherDaemons::GridEngine { _guard: guard })))
}

/// Starts Muster with the configuration that the other product has.
fn start_muster(product: ComparedProduct, program: &Path, top: &Path) -> Result<(Guard, PathBuf)> {
    let home = top.join("muster");
    let home_text = home.display().to_string();
    let words = [&*program.to_string_lossy(), "down", "--purge"];
    let guard = Guard::new(&words, &[("MUSTER_HOME", &home_text)], None)?;
    let host = String::from_utf8(Command::new("hostname").output()?.stdout)?;
    let host = host.trim();
    let head = format!("ClusterName=peer\nSlurmctldHost={host}\n");
    let file = top.join("muster.conf");
    let place = format!("NodeHostname={host} NodeAddr=127.0.0.1 CPUs=");
    let text = match product {
        // As bench/slurm-peer.sh says of Slurm's nodes.
        ComparedProduct::Slurm => {
            head + HEAD + &read(product, "slurm.conf")?.replace("CPUs=", &place)
        }
        ComparedProduct::GridEngine => {
            let conf = read(product, "muster.conf")?.replace("=n1", &format!("={host}"));
            head + &conf.replace("CPUs=", &place)
        }
    };
    fs::write(&file, text)?;
    let folder = product.folder();
    fs::copy(format!("{folder}/gres.conf"), top.join("gres.conf"))?;
    let output = Command::new(program)
        .arg("up")
        .arg("-f")
        .arg(&file)
        .env("MUSTER_HOME", &home)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "muster up failed: {said}");
    if product == ComparedProduct::GridEngine {
        fs::copy(format!("{folder}/sge.conf"), home.join("sge.conf"))?;
    }
    Ok((guard, home))
}

/// Settings that `bench/slurm-peer.sh` gives Slurm beside tests/differ/slurm.conf and a user can see.
const HEAD: &str = "\
AccountingStorageType=accounting_storage/slurmdbd
ProctrackType=proctrack/pgid
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
KillWait=5
MessageTimeout=60
MpiDefault=none
TaskPlugin=task/none
TreeWidth=64
";
