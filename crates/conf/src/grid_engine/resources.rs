//! Values of `-l`: times, amounts of memory, numbers, and what each complex stands for here.

use super::{ComplexTarget, CountedPer, Mapping};

/// Slurm's equivalent of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `h_rt`, seconds.
    pub limit_s: Option<u64>,
    /// `s_rt`, seconds.
    pub warn_after_s: Option<u64>,
    /// Memory of a slot, bytes.
    pub slot_bytes: u64,
    /// Generic resources with their counts, and what these are counted for.
    pub gres: Vec<(String, u64, CountedPer)>,
    /// Licenses.
    pub licenses: Vec<(String, u64)>,
    /// Features that nodes must have.
    pub features: Vec<String>,
    /// Patterns of host names.
    pub hosts: Option<String>,
    /// A queue.
    pub queue: Option<String>,
    /// Processors that a host must have.
    pub processors: Option<u64>,
    /// Nobody else's jobs beside.
    pub exclusive: bool,
}

/// Usual names and shortcuts of complexes that mean something without sge.conf.
const SHORTCUTS: [(&str, &str); 13] = [
    ("a", "arch"),
    ("e", "exclusive"),
    ("excl", "exclusive"),
    ("gpus", "gpu"),
    ("h", "hostname"),
    ("host", "hostname"),
    ("mf", "mem_free"),
    ("ngpus", "gpu"),
    ("p", "num_proc"),
    ("q", "qname"),
    ("rt", "h_rt"),
    ("vf", "virtual_free"),
    ("vmem", "h_vmem"),
];

/// The usual name of a complex that means something without sge.conf, for its shortcut.
pub fn usual_name(name: &str) -> &str {
    let found = SHORTCUTS.iter().find(|(short, _)| *short == name);
    found.map_or(name, |(_, usual)| usual)
}

/// Complexes that set limits of processes.
const PROCESS_LIMITS: [&str; 12] = [
    "h_core", "s_core", "h_cpu", "s_cpu", "h_data", "s_data", "h_fsize", "s_fsize", "h_stack",
    "s_stack", "s_rss", "s_vmem",
];

/// Splits a request list into names and values.
///
/// # Errors
/// A request without a name.
pub fn split(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut all = Vec::new();
    for word in text.split(',') {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        if name.is_empty() {
            return Err(format!("\"{text}\" has a request without a name"));
        }
        all.push((name.to_owned(), value));
    }
    Ok(all)
}

impl Resources {
    /// Adds a hard request. `known` are generic resources of slurm.conf.
    ///
    /// # Errors
    /// What Grid Engine says behind `Unable to run job:`.
    pub fn add(
        &mut self,
        (name, value): (&str, Option<&str>),
        mapping: &Mapping,
        known: &[String],
    ) -> Result<(), String> {
        if let Some(target) = mapping.complex(name) {
            return self.add_mapped(name, value, target);
        }
        let usual = usual_name(name);
        match usual {
            "h_rt" => self.limit_s = time(name, value)?,
            "s_rt" => self.warn_after_s = time(name, value)?,
            "h_vmem" | "mem_free" | "virtual_free" | "h_rss" | "mem" => {
                self.slot_bytes = self.slot_bytes.max(memory(name, value)?);
            }
            "gpu" => self.add_gres("gpu", amount(name, value)?, CountedPer::Host),
            "hostname" => self.hosts = Some(text(name, value)?.to_owned()),
            "qname" => self.queue = Some(text(name, value)?.to_owned()),
            "num_proc" => self.processors = Some(amount(name, value)?),
            "exclusive" => self.exclusive = boolean(name, value)?,
            "arch" => {
                let pattern = text(name, value)?;
                let older = ["lx24-amd64", "lx26-amd64"];
                if !older
                    .iter()
                    .chain([&super::ARCH])
                    .any(|own| super::fits(pattern, own))
                {
                    return Err(format!("no host has arch={pattern}"));
                }
            }
            _ if PROCESS_LIMITS.contains(&usual) => {
                return Err(format!(
                    "resource \"{name}\" is not supported: set the limit in the script, with ulimit"
                ));
            }
            _ if known.iter().any(|gres| gres == name) => {
                self.add_gres(name, amount(name, value)?, CountedPer::Host);
            }
            _ => return Err(format!("unknown resource \"{name}\"")),
        }
        Ok(())
    }

    fn add_mapped(
        &mut self,
        name: &str,
        value: Option<&str>,
        target: &ComplexTarget,
    ) -> Result<(), String> {
        match target {
            ComplexTarget::Gres(gres, per) => self.add_gres(gres, amount(name, value)?, *per),
            ComplexTarget::License(license) => {
                self.licenses.push((license.clone(), amount(name, value)?));
            }
            ComplexTarget::Feature(feature) => {
                self.features.retain(|own| own != feature);
                if boolean(name, value)? {
                    self.features.push(feature.clone());
                }
            }
            ComplexTarget::Memory => self.slot_bytes = self.slot_bytes.max(memory(name, value)?),
        }
        Ok(())
    }

    fn add_gres(&mut self, name: &str, count: u64, per: CountedPer) {
        self.gres.push((name.to_owned(), count, per));
    }
}

fn text<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, String> {
    let given = value.filter(|value| !value.is_empty());
    given.ok_or_else(|| format!("attribute \"{name}\" needs a value"))
}

/// Refuses a value that is there and empty.
fn not_empty<'a>(name: &str, value: Option<&'a str>) -> Result<Option<&'a str>, String> {
    match value {
        Some("") => Err(format!("denied: missing value for resource \"{name}\"")),
        value => Ok(value),
    }
}

/// `[[hours:]minutes:]seconds`, `INFINITY`.
pub fn time(name: &str, value: Option<&str>) -> Result<Option<u64>, String> {
    let wrong = || format!("attribute \"{name}\" is not a time value");
    let value = not_empty(name, value)?.ok_or_else(wrong)?;
    if value.eq_ignore_ascii_case("INFINITY") {
        return Ok(None);
    }
    let fields: Vec<&str> = value.split(':').collect();
    if fields.len() > 3 || fields.iter().all(|field| field.is_empty()) {
        return Err(wrong());
    }
    let mut seconds: u64 = 0;
    for field in fields {
        let digits = field.bytes().all(|b| b.is_ascii_digit());
        let number: u64 = match field {
            "" => 0,
            _ if digits => field.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        let sum = seconds.checked_mul(60).and_then(|s| s.checked_add(number));
        seconds = sum.ok_or_else(wrong)?;
    }
    Ok(Some(seconds))
}

/// Bytes: `K`, `M`, `G`, `T` are powers of 1024, `k`, `m`, `g`, `t` of 1000.
pub fn memory(name: &str, value: Option<&str>) -> Result<u64, String> {
    let wrong = || format!("attribute \"{name}\" is not a memory value");
    let value = not_empty(name, value)?.ok_or_else(wrong)?;
    let (number, unit) = match value.char_indices().next_back() {
        Some((at, c)) if c.is_ascii_alphabetic() => (&value[..at], Some(c)),
        _ => (value, None),
    };
    let unit: f64 = match unit {
        None => 1.0,
        Some('K') => 1024.0,
        Some('M') => 1024.0 * 1024.0,
        Some('G') => 1024.0 * 1024.0 * 1024.0,
        Some('T') => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        Some('k') => 1e3,
        Some('m') => 1e6,
        Some('g') => 1e9,
        Some('t') => 1e12,
        Some(_) => return Err(wrong()),
    };
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    let bytes = (number * unit).ceil();
    if !(0.0..1e18).contains(&bytes) {
        return Err(wrong());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(bytes as u64)
}

/// A whole number; 1 where a BOOL is meant.
fn amount(name: &str, value: Option<&str>) -> Result<u64, String> {
    let value = match value {
        None => "1",
        Some(value) if value.eq_ignore_ascii_case("true") => "1",
        Some(value) if value.eq_ignore_ascii_case("false") => "0",
        Some(value) => value,
    };
    let number = value
        .parse()
        .ok()
        .filter(|n: &u64| *n <= u64::from(u32::MAX) && !value.starts_with('+'));
    number.ok_or_else(|| format!("attribute \"{name}\" is not a integer value"))
}

fn boolean(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "t" | "1" | "yes" | "y") => Ok(true),
        Some("false" | "f" | "0" | "no" | "n") => Ok(false),
        Some(_) => Err(format!("attribute \"{name}\" is not a boolean value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(time("h_rt", Some("90")), Ok(Some(90)));
        assert_eq!(time("h_rt", Some("1:00:05")), Ok(Some(3605)));
        assert_eq!(time("h_rt", Some(":10:")), Ok(Some(600)));
        assert_eq!(time("h_rt", Some("INFINITY")), Ok(None));
        assert_eq!(memory("m", Some("1.5G")), Ok(3 << 29));
        assert_eq!(memory("m", Some("2k")), Ok(2000));
        assert_eq!(memory("m", Some("100")), Ok(100));
    }

    #[test]
    fn requests_that_cannot_be_are_named() {
        let mapping = Mapping::parse("complex big feature:bigmem\ncomplex lic license:x\n", "f").0;
        for (request, why) in [
            ("h_rt=abc", "attribute \"h_rt\" is not a time value"),
            ("h_rt=1:0:0:0", "attribute \"h_rt\" is not a time value"),
            ("h_rt", "attribute \"h_rt\" is not a time value"),
            ("h_rt=", "denied: missing value for resource \"h_rt\""),
            ("h_rt=::", "attribute \"h_rt\" is not a time value"),
            ("s_rt=-5", "attribute \"s_rt\" is not a time value"),
            ("rt=5s", "attribute \"rt\" is not a time value"),
            (
                "h_rt=99999999999999999999",
                "attribute \"h_rt\" is not a time value",
            ),
            ("h_vmem=2X", "attribute \"h_vmem\" is not a memory value"),
            ("h_vmem", "attribute \"h_vmem\" is not a memory value"),
            ("mem_free=G", "attribute \"mem_free\" is not a memory value"),
            ("mf=-1G", "attribute \"mf\" is not a memory value"),
            ("vf=1e3", "attribute \"vf\" is not a memory value"),
            ("h_vmem=1..5G", "attribute \"h_vmem\" is not a memory value"),
            ("gpu=two", "attribute \"gpu\" is not a integer value"),
            ("gpu=-1", "attribute \"gpu\" is not a integer value"),
            ("gpu=1.5", "attribute \"gpu\" is not a integer value"),
            ("num_proc=", "attribute \"num_proc\" is not a integer value"),
            (
                "exclusive=maybe",
                "attribute \"exclusive\" is not a boolean value",
            ),
            ("big=2", "attribute \"big\" is not a boolean value"),
            ("lic=x", "attribute \"lic\" is not a integer value"),
            ("hostname", "attribute \"hostname\" needs a value"),
            ("h=", "attribute \"h\" needs a value"),
            ("q", "attribute \"q\" needs a value"),
            ("arch=sparc", "no host has arch=sparc"),
            ("nosuch=1", "unknown resource \"nosuch\""),
            (
                "h_stack=8M",
                "resource \"h_stack\" is not supported: set the limit in the script, with ulimit",
            ),
            ("docker", "unknown resource \"docker\""),
        ] {
            let (name, value) = split(request).unwrap().remove(0);
            let mut resources = Resources::default();
            let got = resources.add((&name, value.as_deref()), &mapping, &[]);
            assert_eq!(got, Err(why.to_owned()), "{request}");
        }
        for text in ["", "=5", "gpu=1,,h_rt=5", "gpu=1,"] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_requests_come_to() {
        let mapping = Mapping::parse("complex gpu gres:gpu:a100 slot\n", "f").0;
        let mut resources = Resources::default();
        for (name, value) in split("h_rt=60,h_vmem=1G,mem_free=2G,gpu=1,h=n1*,fpga=2").unwrap() {
            let known = ["fpga".to_owned()];
            resources
                .add((&name, value.as_deref()), &mapping, &known)
                .unwrap();
        }
        assert_eq!(
            (resources.limit_s, resources.slot_bytes),
            (Some(60), 2 << 30)
        );
        let gres = [
            ("gpu:a100".to_owned(), 1, CountedPer::Slot),
            ("fpga".to_owned(), 2, CountedPer::Host),
        ];
        assert_eq!(resources.gres, gres);
        assert_eq!(resources.hosts.as_deref(), Some("n1*"));
    }
}
