//! Options of the site's own, as a job has them: a text by the name of its variable. Which there are, and which values they have,
//! is in the site's file (`muster_conf::site_options`); nothing here knows it.

use crate::spec::JobSpec;

/// Prefix of the variables of options (spank(8)); the plugin's name and the option's follow.
pub const PREFIX: &str = "_SLURM_SPANK_OPTION_";
/// Prefix before that for programs around jobs (prolog, epilog).
pub const PROGRAM_PREFIX: &str = "SPANK_";
/// Options that a site may have.
pub const COUNT_MAX: usize = 32;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 256;
/// Bytes of a plugin's name and an option's.
const NAME_BYTES_MAX: usize = 65;

/// Whether a text of a job's is an option of the site's: its key is the name of such a variable.
pub fn is_site_option(key: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    key.strip_prefix(PREFIX).is_some_and(|name| {
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_letter)
    })
}

/// The options that a job has: variables and values.
pub fn site_options(spec: &JobSpec) -> impl Iterator<Item = (&str, &str)> {
    let of_site = spec.shown.iter().filter(|(key, _)| is_site_option(key));
    of_site.map(|(key, value)| (key.as_str(), value.as_str()))
}

/// The options that a job has, for listings: `site_gpu_mode=shared,disk_scratch=5`; none if it has none.
pub fn site_options_text(spec: &JobSpec) -> Option<String> {
    let words = site_options(spec).map(|(key, value)| {
        let name = key.strip_prefix(PREFIX).unwrap_or(key);
        match value {
            "" => name.to_owned(),
            _ => format!("{name}={value}"),
        }
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_variables_of_options_are_none() {
        for key in ["_SLURM_SPANK_OPTION_a_b", "_SLURM_SPANK_OPTION_x9"] {
            assert!(is_site_option(key), "{key}");
        }
        for key in [
            "extra",
            "_SLURM_SPANK_OPTION_",
            "_SLURM_SPANK_OPTION_a=b",
            "_SLURM_SPANK_OPTION_a\0",
            "LD_PRELOAD",
        ] {
            assert!(!is_site_option(key), "{key:?}");
        }
        let long = format!("{PREFIX}{}", "a".repeat(66));
        assert!(!is_site_option(&long));
    }
}
