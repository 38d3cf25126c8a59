//! Memory limits of a job by cgroup.conf(5), and parsing of the kernel's memory files.

use muster_proto::cgroup::{CgroupSettings, WHOLE};

const MIB: u64 = 1 << 20;

/// Limits of a group, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Memory.
    pub hard: Option<u64>,
    /// From which on the kernel takes memory back first.
    pub soft: Option<u64>,
    /// Memory and swap together.
    pub with_swap: Option<u64>,
}

impl MemoryLimits {
    /// Limits of a job or step with this allocated memory, on a machine with `machine` bytes. An allocation of 0 has no limit: memory
    /// is not allocated then.
    pub fn of(settings: &CgroupSettings, allocated_mib: u64, machine: u64) -> MemoryLimits {
        if allocated_mib == 0 {
            return MemoryLimits::default();
        }
        let allocated = allocated_mib.saturating_mul(MIB);
        let min = settings.min_ram_mib.saturating_mul(MIB);
        let max_ram = share(machine, settings.max_ram);
        let max_swap = share(machine, settings.max_swap).saturating_add(max_ram);
        // The lower bound counts before the upper one.
        let clamp = |value: u64, max: u64| if value < min { min } else { value.min(max) };
        let allowed = match settings.ram {
            true => settings.allowed_ram,
            false => WHOLE,
        };
        let ram = clamp(share(allocated, allowed), max_ram);
        let sum = ram.saturating_add(share(allocated, settings.allowed_swap));
        let with_swap = clamp(sum, max_swap).max(ram);
        MemoryLimits {
            hard: match (settings.ram, settings.swap) {
                (true, _) => Some(ram),
                (false, true) => Some(with_swap),
                (false, false) => None,
            },
            soft: settings.ram.then(|| clamp(allocated, max_ram).min(ram)),
            with_swap: settings.swap.then_some(with_swap),
        }
    }
}

/// A share of a number, in thousandths of a percent.
fn share(whole: u64, part: u32) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(WHOLE);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Processes of a group that the kernel has killed for want of memory: `oom_kill` of `memory.oom_control` (version 1) or
/// `memory.events` (version 2).
pub fn oom_kills(text: &str) -> u64 {
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

/// CPU time of a group of version 2 by its `cpu.stat`, microseconds: as users, and in the kernel.
pub fn cpu_times(text: &str) -> (u64, u64) {
    let of = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    (
        of("user_usec ").unwrap_or(0),
        of("system_usec ").unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: u64 = 16 << 30;

    fn settings(ram: bool, swap: bool) -> CgroupSettings {
        CgroupSettings {
            ram,
            swap,
            ..CgroupSettings::default()
        }
    }

    #[test]
    fn memory_is_limited_to_what_was_given() {
        let limits = MemoryLimits::of(&settings(true, false), 100, MACHINE);
        assert_eq!(limits.hard, Some(100 * MIB));
        assert_eq!(limits.with_swap, None);
        let limits = MemoryLimits::of(&settings(true, true), 100, MACHINE);
        assert_eq!(limits.with_swap, Some(100 * MIB));
        assert_eq!(
            MemoryLimits::of(&settings(false, false), 100, MACHINE),
            MemoryLimits::default()
        );
        assert_eq!(
            MemoryLimits::of(&settings(true, true), 0, MACHINE),
            MemoryLimits::default()
        );
    }

    #[test]
    fn shares_and_bounds_are_those_of_the_manual() {
        let site = CgroupSettings {
            allowed_ram: 150_000,
            allowed_swap: 50_000,
            max_ram: 50_000,
            ..settings(true, true)
        };
        let limits = MemoryLimits::of(&site, 1024, MACHINE);
        assert_eq!(limits.hard, Some(1536 * MIB));
        assert_eq!(limits.soft, Some(1024 * MIB));
        assert_eq!(limits.with_swap, Some(2048 * MIB));
        let least = MemoryLimits::of(&site, 1, MACHINE);
        assert_eq!(
            (least.hard, least.with_swap),
            (Some(30 * MIB), Some(30 * MIB + MIB / 2))
        );
        let most = MemoryLimits::of(&site, 1 << 20, MACHINE);
        assert_eq!(most.hard, Some(8 << 30));
        let swap_alone = MemoryLimits::of(&settings(false, true), 100, MACHINE);
        assert_eq!(swap_alone.hard, Some(100 * MIB));
    }

    #[test]
    fn times_of_a_group_are_read() {
        let text = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\n";
        assert_eq!(cpu_times(text), (20, 10));
        assert_eq!(cpu_times(""), (0, 0));
    }

    #[test]
    fn kills_are_read_from_both_versions() {
        assert_eq!(
            oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            2
        );
        assert_eq!(oom_kills("low 0\noom 4\noom_kill 3\noom_group_kill 1\n"), 3);
        assert_eq!(oom_kills(""), 0);
    }
}
