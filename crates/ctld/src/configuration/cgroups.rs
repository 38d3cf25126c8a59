//! Settings of control groups for nodes, from slurm.conf and the cgroup.conf beside it.

use log::warn;
use muster_conf::Config;
use muster_conf::files::{FlatSettings, PlainFile, load_flat};
use muster_proto::cgroup::{CgroupSettings, CgroupVersion};

/// The settings; none where slurm.conf asks for no control groups. `ProctrackType` counts where it is written down.
pub(super) fn settings(config: &Config) -> Option<Box<CgroupSettings>> {
    let is_given = |key: &str| config.raw.contains_key(key);
    let is_cgroup = |word: &str| word.rsplit('/').next() == Some("cgroup");
    let says = |key: &str| config.text(key).is_some_and(is_cgroup);
    let follows = is_given("ProctrackType") && says("ProctrackType");
    let confines = config.task_plugins.iter().any(|plugin| is_cgroup(plugin));
    let accounts = says("JobAcctGatherType");
    if !follows && !confines && !accounts {
        return None;
    }
    let path = config.path.with_file_name("cgroup.conf");
    let file = path.is_file().then(|| {
        let (file, found) = load_flat(PlainFile::Cgroup, &path);
        found.iter().for_each(|finding| warn!("{finding}"));
        file
    });
    let mut settings = CgroupSettings {
        accounts,
        ..CgroupSettings::default()
    };
    if let Some(file) = file {
        let version = file.text("CgroupPlugin").unwrap_or_default();
        settings.version = match version.to_ascii_lowercase().as_str() {
            "disabled" => return None,
            "cgroup/v1" => CgroupVersion::V1,
            "cgroup/v2" => CgroupVersion::V2,
            _ => CgroupVersion::Any,
        };
        fill(&mut settings, &file, confines);
    }
    Some(Box::new(settings))
}

/// Limits are `task/cgroup`'s.
fn fill(settings: &mut CgroupSettings, file: &FlatSettings, confines: bool) {
    let flag = |key: &str| {
        let word = file.text(key).unwrap_or_default().to_ascii_lowercase();
        confines
            && matches!(
                word.as_str(),
                "yes" | "true" | "1" | "y" | "t" | "on" | "up"
            )
    };
    settings.cores = flag("ConstrainCores");
    settings.ram = flag("ConstrainRAMSpace");
    settings.swap = flag("ConstrainSwapSpace");
    settings.devices = flag("ConstrainDevices");
    for (key, share) in [
        ("AllowedRAMSpace", &mut settings.allowed_ram),
        ("AllowedSwapSpace", &mut settings.allowed_swap),
        ("MaxRAMPercent", &mut settings.max_ram),
        ("MaxSwapPercent", &mut settings.max_swap),
    ] {
        if let Some(given) = file.text(key).and_then(thousandths) {
            *share = given;
        }
    }
    let number = |key: &str| {
        file.text(key)
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    if let Some(mib) = number("MinRAMSpace") {
        settings.min_ram_mib = mib;
    }
    let swappiness = number("MemorySwappiness").filter(|value| *value <= 100);
    settings.swappiness = swappiness.and_then(|value| u32::try_from(value).ok());
    let point = file.text("CgroupMountpoint").unwrap_or_default();
    // The default stands for wherever the kernel says that they are.
    if point.trim_end_matches('/') != "/sys/fs/cgroup" {
        point.clone_into(&mut settings.mount_point);
    }
}

/// Percent with a fraction, in thousandths of a percent.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let whole: u32 = whole.parse().ok()?;
    let digits = format!("{:0<3.3}", fraction);
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::load;

    fn of(slurm: &str, cgroup: Option<&str>) -> Option<Box<CgroupSettings>> {
        let name = format!(
            "muster-cgroup-conf.{}.{:x}",
            std::process::id(),
            slurm.len()
        );
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("slurm.conf");
        std::fs::write(&path, format!("ClusterName=c\n{slurm}")).unwrap();
        if let Some(text) = cgroup {
            std::fs::write(dir.join("cgroup.conf"), text).unwrap();
        }
        let found = settings(&load(&path).0);
        std::fs::remove_dir_all(&dir).unwrap();
        found
    }

    #[test]
    fn groups_are_used_where_slurm_conf_says_so() {
        assert_eq!(of("", Some("ConstrainRAMSpace=yes\n")), None);
        assert_eq!(of("TaskPlugin=task/affinity\n", None), None);
        let followed = of(
            "ProctrackType=proctrack/cgroup\n",
            Some("ConstrainCores=yes\n"),
        );
        assert!(!followed.unwrap().cores, "that is task/cgroup's");
        assert!(
            of("JobAcctGatherType=jobacct_gather/cgroup\n", None)
                .unwrap()
                .accounts
        );
        let off = of(
            "TaskPlugin=task/cgroup,task/affinity\n",
            Some("CgroupPlugin=disabled\n"),
        );
        assert_eq!(off, None);
    }

    #[test]
    fn cgroup_conf_is_read() {
        let text = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nConstrainCores=yes\nConstrainDevices=yes\nAllowedRAMSpace=98.5\nMaxRAMPercent=90\n\
                    MinRAMSpace=64\nMemorySwappiness=10\nCgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n";
        let found = of("TaskPlugin=task/cgroup\n", Some(text)).unwrap();
        let expected = CgroupSettings {
            version: CgroupVersion::V1,
            cores: true,
            devices: true,
            ram: true,
            swap: true,
            allowed_ram: 98_500,
            max_ram: 90_000,
            min_ram_mib: 64,
            swappiness: Some(10),
            ..CgroupSettings::default()
        };
        assert_eq!(*found, expected);
        assert_eq!(thousandths("12.3456"), Some(12_345));
        assert_eq!(thousandths("x"), None);
    }
}
