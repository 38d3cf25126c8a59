//! Variables that save MPI libraries a search or a guess: the directory for shared memory, networks that a node
//! lacks, and that there are more ranks than CPUs. A variable that the user or the site has set stays unchanged.

use crate::cross_memory::switches;
use muster_node_core::messages::PmixOrder;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

/// Variables with the directory in which ranks of Open MPI 4 and 5 share memory.
const SHARED_MEMORY: [&str; 2] = [
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
];
/// Keeps hwloc, which libpmix and Open MPI use, from loading plugins and their libraries. Those for GPUs and displays take a
/// tenth of the time of MPI_Init in Open MPI, libxml2 another tenth; hwloc reads and writes XML without it, too.
const NO_PLUGINS: (&str, &str) = (
    "HWLOC_PLUGINS_BLACKLIST",
    "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so,hwloc_xml_libxml.so",
);
/// Another, where nothing that MPI looks for can be on the PCI bus.
const PCI_PLUGIN: &str = "hwloc_pci.so";
/// A hint that mpirun, too, gives to ranks after probing: ranks share memory by mapped files.
const SHARED_BY_FILES: (&str, &str) = ("OMPI_MCA_shmem_RUNTIME_QUERY_hint", "mmap");
/// Keeps hwloc from reading the PCI bus, which takes four fifths of its discovery time on a virtual machine.
const NO_PCI: (&str, &str) = ("HWLOC_COMPONENTS", "-pci,-linux:pci");
/// Makes MPICH connect by PMI-1.
const MPICH_BY_PMI: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");
/// Transports (`btl`) of Open MPI 4 and 5 for special networks. In each rank their libraries look for devices and
/// read the kernel's symbol table before they report that there is no such network.
const FABRICS: [&str; 4] = ["ofi", "openib", "uct", "usnic"];
/// A file of parameters that is longer is none.
const PARAMS_LIMIT: u64 = 1 << 20;

/// Variables of the host's environment.
pub(super) fn of_host(order: &PmixOrder) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let plugins = Some(NO_PLUGINS).filter(|_| order.no_gpus);
    let pci =
        Some(NO_PCI).filter(|(name, _)| order.no_gpus && order.plain_network && !is_set(name));
    plugins.into_iter().chain(pci)
}

/// Adds to a task's environment. `memory` is for what ranks of the node share.
pub(super) fn add(
    order: &PmixOrder,
    memory: Option<&PathBuf>,
    crowded: bool,
    env: &mut Vec<CString>,
) {
    for variable in &order.env {
        if let Some((name, value)) = variable.split_once('=') {
            set_default(env, name, value);
        }
    }
    if let Some(memory) = memory {
        for name in SHARED_MEMORY {
            // The directory of a step around this one may be on another node.
            if value(env, name).is_none_or(|dir| muster_node_core::launcher::is_step_dir(&dir)) {
                set(env, name, &memory.to_string_lossy());
            }
        }
    }
    for (name, value) in order.cross_memory.into_iter().flat_map(switches) {
        set_default(env, name, value);
    }
    if order.plain_network {
        let files = params_files(env);
        skip_fabrics(&files, env);
    }
    // MPICH 5 does not choose between the two by itself.
    if order.any {
        let (name, value) = MPICH_BY_PMI;
        set_default(env, name, value);
    }
    if order.no_gpus {
        let (name, value) = NO_PLUGINS;
        let pci = if order.plain_network {
            format!(",{PCI_PLUGIN}")
        } else {
            String::new()
        };
        set_default(env, name, &format!("{value}{pci}"));
    }
    let (name, value) = SHARED_BY_FILES;
    set_default(env, name, value);
    // Ranks wait for each other without giving up the CPU unless a variable says so.
    if crowded {
        set_default(env, "OMPI_MCA_mpi_yield_when_idle", "1");
    }
}

/// Keeps Open MPI from looking for networks other than TCP, unless a variable selects transports.
fn skip_fabrics(files: &[String], env: &mut Vec<CString>) {
    let said = |name: &str| {
        let variable = value(env, &format!("OMPI_MCA_{name}"));
        variable.or_else(|| files.iter().find_map(|text| parameter(text, name)))
    };
    let names_some = |list: &Option<String>| list.as_ref().is_some_and(|l| !l.starts_with('^'));
    let (pml, mtl, btl) = (said("pml"), said("mtl"), said("btl"));
    let unwanted = pml.as_ref().is_some_and(|l| items(l).any(|i| i == "ob1"));
    if !names_some(&pml) && !names_some(&mtl) && !unwanted {
        set(env, "OMPI_MCA_pml", "ob1");
    }
    if !names_some(&btl) {
        let list = leave_out(btl.as_deref().unwrap_or_default());
        set(env, "OMPI_MCA_btl", &list);
    }
}

/// Extends a list of excluded transports (`^vader`) by those networks.
fn leave_out(said: &str) -> String {
    let mut all: Vec<&str> = items(said).collect();
    let more = FABRICS
        .iter()
        .filter(|name| !items(said).any(|i| i == **name));
    all.extend(more);
    format!("^{}", all.join(","))
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    let list = list.strip_prefix('^').unwrap_or(list);
    list.split(',').map(str::trim).filter(|i| !i.is_empty())
}

/// Contents of Open MPI's parameter files in order of precedence: the user's file, then that of the installation that
/// is first on the task's path. Read as the user.
fn params_files(env: &[CString]) -> Vec<String> {
    let home = value(env, "HOME").map(|home| format!("{home}/.openmpi/mca-params.conf"));
    let path = value(env, "PATH").unwrap_or_default();
    let has_it = |dir: &&str| dir.starts_with('/') && Path::new(dir).join("ompi_info").exists();
    let beside = path.split(':').find(has_it).and_then(|dir| {
        let root = Path::new(dir).parent()?;
        Some(root.display().to_string())
    });
    let root = value(env, "OPAL_PREFIX").or(beside);
    let own = root.map(|root| format!("{root}/etc/openmpi-mca-params.conf"));
    // Where distributions keep it.
    let shared = [
        "/etc/openmpi/openmpi-mca-params.conf",
        "/etc/openmpi-x86_64/openmpi-mca-params.conf",
    ];
    let paths = home.into_iter().chain(own);
    paths
        .chain(shared.map(str::to_owned))
        .filter(|p| fs::metadata(p).is_ok_and(|m| m.is_file() && m.len() <= PARAMS_LIMIT))
        .filter_map(|p| fs::read_to_string(p).ok())
        .collect()
}

/// The value of a parameter in such a file: its last line counts.
fn parameter(text: &str, name: &str) -> Option<String> {
    text.lines().rev().find_map(|line| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn value(env: &[CString], name: &str) -> Option<String> {
    let mut all = env.iter().filter_map(|v| v.to_str().ok()?.split_once('='));
    all.find(|(n, _)| *n == name).map(|(_, v)| v.to_owned())
}

fn set(env: &mut Vec<CString>, name: &str, value: &str) {
    env.retain(|v| !is_of(v, name));
    set_default(env, name, value);
}

fn set_default(env: &mut Vec<CString>, name: &str, value: &str) {
    if !env.iter().any(|v| is_of(v, name)) {
        env.extend(CString::new(format!("{name}={value}")).ok());
    }
}

fn is_of(variable: &CString, name: &str) -> bool {
    let rest = variable.as_bytes().strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| rest.first() == Some(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(files: &[&str], lines: &[&str]) -> Vec<CString> {
        let files: Vec<String> = files.iter().map(|&f| f.to_owned()).collect();
        let mut env = lines.iter().map(|l| CString::new(*l).unwrap()).collect();
        skip_fabrics(&files, &mut env);
        env
    }

    #[test]
    fn networks_are_left_out_beside_what_the_user_leaves_out() {
        let env = after(&[], &["OMPI_MCA_btl=^openib", "A=1"]);
        let btl = value(&env, "OMPI_MCA_btl");
        assert_eq!(btl.as_deref(), Some("^openib,ofi,uct,usnic"));
        assert_eq!(value(&env, "OMPI_MCA_pml").as_deref(), Some("ob1"));
        assert_eq!(value(&env, "A").as_deref(), Some("1"));
        let site = "btl = ^uct,openib,ofi\npml = ^ucx\nmtl = ^ofi\n";
        let env = after(&["btl=^vader # slow here\n", site], &[]);
        let btl = value(&env, "OMPI_MCA_btl");
        assert_eq!(btl.as_deref(), Some("^vader,ofi,openib,uct,usnic"));
        assert_eq!(value(&env, "OMPI_MCA_pml").as_deref(), Some("ob1"));
    }

    #[test]
    fn what_was_named_is_used() {
        let env = after(&[], &["OMPI_MCA_btl=self,tcp", "OMPI_MCA_pml=ucx"]);
        assert_eq!(value(&env, "OMPI_MCA_btl").as_deref(), Some("self,tcp"));
        assert_eq!(value(&env, "OMPI_MCA_pml").as_deref(), Some("ucx"));
        assert!(after(&["btl = ofi,self\nmtl = ofi\n"], &[]).is_empty());
        let env = after(&["pml = ^ob1\n"], &[]);
        assert_eq!(value(&env, "OMPI_MCA_pml"), None);
    }

    #[test]
    fn the_last_line_of_a_file_counts() {
        let text = "# btl = a\nbtl_base_verbose = 1\nbtl = b\n btl= c # d\n";
        assert_eq!(parameter(text, "btl").as_deref(), Some("c"));
        assert_eq!(parameter(text, "pml"), None);
    }
}
