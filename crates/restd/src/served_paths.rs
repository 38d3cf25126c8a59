//! The paths of Slurm's API that are served (`-s`, `-d`): all, or those of some parts and versions.

use crate::identity::Authentication;
use muster_cli::rest::{self, ApiDescription, HttpStatus, RestReply};

/// Ways of authentication, and the paths that are served.
#[derive(Clone, Debug)]
pub struct RestAccess {
    /// The proof of a request's user (`-a`).
    pub authentication: Authentication,
    /// The paths of Slurm's API that are served (`-s`, `-d`).
    pub served: ServedPaths,
}

/// A part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiPart {
    /// `openapi/slurmctld`: paths of `slurm` and `util`.
    Slurmctld,
    /// `openapi/slurmdbd`: paths of `slurmdb`.
    Slurmdbd,
}

/// A part, of one version or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServedPart {
    part: ApiPart,
    version: Option<String>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedPaths {
    /// Empty for all.
    parts: Vec<ServedPart>,
    /// Empty for all.
    versions: Vec<String>,
}

impl ServedPaths {
    /// Adds the parts of a list such as `openapi/slurmctld,dbv0.0.43` (`-s`).
    ///
    /// # Errors
    /// The word that is not known.
    pub fn add_parts(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let name = word.strip_prefix("openapi/").unwrap_or(word);
            let (part, version) = match name {
                "slurmctld" => (ApiPart::Slurmctld, None),
                "slurmdbd" => (ApiPart::Slurmdbd, None),
                _ => match name.strip_prefix("db") {
                    Some(version) => (ApiPart::Slurmdbd, Some(version.to_owned())),
                    None => (ApiPart::Slurmctld, Some(name.to_owned())),
                },
            };
            if version.as_ref().is_some_and(|version| !is_version(version)) {
                return Err(word.to_owned());
            }
            self.parts.push(ServedPart { part, version });
        }
        Ok(())
    }

    /// Adds the versions of a list such as `data_parser/v0.0.43,v0.0.44+fast` (`-d`); `latest` is the newest.
    ///
    /// # Errors
    /// The word that is not known.
    pub fn add_versions(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let name = word.strip_prefix("data_parser/").unwrap_or(word);
            let name = name.split('+').next().unwrap_or(name);
            let version = match name {
                "latest" => rest::versions().last(),
                name => Some(name.to_owned()).filter(|name| is_version(name)),
            };
            self.versions.push(version.ok_or_else(|| word.to_owned())?);
        }
        Ok(())
    }

    /// The description of the paths that are served.
    pub fn description(&self) -> ApiDescription {
        let served = self.clone();
        ApiDescription::of(move |path| served.has(path))
    }

    /// Whether a path is served. Paths that are not Slurm's always are, but for descriptions of versions that are not.
    fn has(&self, path: &str) -> bool {
        if self.parts.is_empty() && self.versions.is_empty() {
            return true;
        }
        let mut words = path.split('/').filter(|word| !word.is_empty());
        let (first, version) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        // Names may be written in other ways; these have no need for it.
        if first.contains('%') || version.contains('%') {
            return false;
        }
        let part = match first {
            "slurm" | "util" => ApiPart::Slurmctld,
            "slurmdb" => ApiPart::Slurmdbd,
            "openapi" if is_version(version) => {
                let areas = ["slurm", "slurmdb"].iter();
                return areas
                    .into_iter()
                    .any(|area| self.has(&format!("/{area}/{version}")));
            }
            _ => return true,
        };
        let of = |served: &ServedPart| {
            served.part == part && served.version.as_ref().is_none_or(|own| own == version)
        };
        let has_part = self.parts.is_empty() || self.parts.iter().any(of);
        let is_of_version = self.versions.is_empty() || self.versions.iter().any(|v| v == version);
        has_part && is_of_version
    }

    /// Refuses a path that is not served.
    pub(crate) fn check(&self, path: &str) -> Result<(), RestReply> {
        match self.has(path) {
            true => Ok(()),
            false => Err(RestReply::text(
                HttpStatus::NOT_FOUND,
                "This part of the API is not served here (slurmrestd -s, -d).",
            )),
        }
    }
}

fn is_version(name: &str) -> bool {
    rest::versions().any(|version| version == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(parts: &str, versions: &str) -> ServedPaths {
        let mut served = ServedPaths::default();
        served.add_parts(parts).unwrap();
        served.add_versions(versions).unwrap();
        served
    }

    const PATHS: [&str; 5] = [
        "/slurm/v0.0.43/jobs",
        "/slurmdb/v0.0.43/jobs",
        "/slurm/v0.0.41/ping",
        "/util/v0.0.44/hostnames",
        "/muster/v1/queue",
    ];

    #[test]
    fn parts_and_versions_choose_paths() {
        let of = |parts: &str, versions: &str| PATHS.map(|path| served(parts, versions).has(path));
        assert_eq!(of("", ""), [true; 5]);
        assert_eq!(of("openapi/slurmctld", ""), [true, false, true, true, true]);
        assert_eq!(of("slurmdbd", ""), [false, true, false, false, true]);
        assert_eq!(of("v0.0.41", ""), [false, false, true, false, true]);
        assert_eq!(
            of("dbv0.0.43,v0.0.44", ""),
            [false, true, false, true, true]
        );
        assert_eq!(of("", "v0.0.43+fast"), [true, true, false, false, true]);
        assert_eq!(
            of("slurmctld", "data_parser/v0.0.43"),
            [true, false, false, false, true]
        );
        let latest = rest::versions().last().unwrap();
        assert!(served("", "latest").has(&format!("/slurm/{latest}/jobs")));
        assert!(!served("", "latest").has("/slurm/v0.0.41/jobs"));
        for path in ["//slurmdb//v0.0.43/jobs", "/slurm%64b/v0.0.43/jobs"] {
            assert!(!served("slurmctld", "").has(path), "{path}");
        }
        assert!(served("", "").has("/slurm%64b/v0.0.43/jobs"));
        assert!(!served("", "v0.0.43").has("/slurm/v0.0.4%31/ping"));
    }

    #[test]
    fn what_is_served_is_described() {
        let described = |served: &ServedPaths, path: &str| {
            let answer = served.description().at(path).unwrap();
            let document: String = answer.body.into_owned();
            PATHS.map(|path| document.contains(&format!("\"{path}\":")))
        };
        for (parts, versions) in [
            ("", ""),
            ("openapi/slurmctld", ""),
            ("dbv0.0.43,v0.0.44", ""),
            ("slurmctld", "data_parser/v0.0.43"),
        ] {
            let served = served(parts, versions);
            let expected = PATHS.map(|path| served.has(path));
            assert_eq!(
                described(&served, "/openapi/v3"),
                expected,
                "{parts} {versions}"
            );
        }
        let one = served("", "v0.0.43");
        assert!(one.has("/openapi/v3") && one.has("/openapi/v0.0.43"));
        assert!(!one.has("/openapi/v0.0.41"));
    }

    #[test]
    fn words_that_are_not_known_are_named() {
        let mut served = ServedPaths::default();
        for word in ["nosuch", "openapi/v0.0.1", "dbslurmctld", "db"] {
            assert_eq!(served.add_parts(word), Err(word.to_owned()));
        }
        assert_eq!(served.add_versions("v0.0.43,v1"), Err("v1".to_owned()));
    }
}
