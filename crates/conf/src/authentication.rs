//! Authentication of users and daemons of different hosts: `AuthType` and `AuthInfo`.

use crate::check::DEFAULT_PATH;
use crate::model::Config;
use std::path::{Path, PathBuf};

/// `AuthType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// Credentials of munge.
    #[default]
    Munge,
    /// Tokens made with the cluster's own key.
    Slurm,
    /// Not at all: nobody from another host is served.
    None,
}

/// `AuthType` with its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The method.
    pub method: AuthMethod,
    /// `socket=`: where munged listens; its usual place if absent.
    pub socket: Option<PathBuf>,
    /// `ttl=`: how long a credential is good for, seconds; the method's own time if absent.
    pub ttl_s: Option<u32>,
    /// `cred_expire=`: how long a requeued job waits before it starts again, seconds.
    pub cred_expire_s: Option<u32>,
    /// Where slurm.key or slurm.jwks is: the directory of slurm.conf.
    pub key_dir: PathBuf,
}

impl Authentication {
    /// Reads both values as the slurm.conf of this directory has them. What cannot be is what `muster config check` finds; here
    /// it is left out.
    pub fn parse(
        auth_type: Option<&str>,
        auth_info: Option<&str>,
        key_dir: &Path,
    ) -> Authentication {
        let method = auth_type.map_or("munge", |text| text.strip_prefix("auth/").unwrap_or(text));
        let mut found = Authentication {
            method: match method.to_ascii_lowercase().as_str() {
                "slurm" => AuthMethod::Slurm,
                "none" => AuthMethod::None,
                _ => AuthMethod::Munge,
            },
            key_dir: key_dir.to_owned(),
            ..Authentication::default()
        };
        for option in auth_info.unwrap_or("").split(',') {
            match option.split_once('=') {
                Some((key, value)) if key.eq_ignore_ascii_case("socket") => {
                    found.socket = Some(PathBuf::from(value));
                }
                Some((key, value)) if key.eq_ignore_ascii_case("ttl") => {
                    found.ttl_s = value.parse().ok();
                }
                Some((key, value)) if key.eq_ignore_ascii_case("cred_expire") => {
                    found.cred_expire_s = value.parse().ok();
                }
                // The value alone is munged's socket, as in old files.
                None if option.starts_with('/') => found.socket = Some(PathBuf::from(option)),
                _ => {}
            }
        }
        found
    }
}

/// `AuthAltTypes=auth/jwt` with its options: tokens by which commands connect as a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserTokenSettings {
    /// `jwt_key=`: the key, else `jwt_hs256.key` in `StateSaveLocation`.
    pub key: PathBuf,
    /// `jwks=` is given: keys of others.
    pub has_jwks: bool,
    /// `max_token_lifespan=`: for how long ordinary users' tokens may be good, seconds.
    pub max_lifespan_s: Option<u32>,
    /// `disable_token_creation`: only root and `SlurmUser` make tokens.
    pub is_creation_disabled: bool,
}

impl UserTokenSettings {
    fn parse(alt_parameters: Option<&str>, state_save_location: &Path) -> UserTokenSettings {
        let mut found = UserTokenSettings {
            key: state_save_location.join("jwt_hs256.key"),
            ..UserTokenSettings::default()
        };
        for option in alt_parameters.unwrap_or("").split(',') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key.trim().to_ascii_lowercase().as_str() {
                "jwt_key" => found.key = PathBuf::from(value),
                "jwks" => found.has_jwks = true,
                "max_token_lifespan" => found.max_lifespan_s = value.parse().ok(),
                "disable_token_creation" => found.is_creation_disabled = true,
                _ => {}
            }
        }
        found
    }
}

impl Config {
    /// `AuthAltTypes=auth/jwt` with its options; none if there are no such tokens.
    pub fn user_tokens(&self) -> Option<UserTokenSettings> {
        let mut types = self.text("AuthAltTypes").unwrap_or("").split(',');
        let jwt = ["auth/jwt", "jwt"];
        let has_jwt = types.any(|own| jwt.iter().any(|name| own.trim().eq_ignore_ascii_case(name)));
        let parameters = self.text("AuthAltParameters");
        has_jwt.then(|| UserTokenSettings::parse(parameters, &self.paths.state_save_location))
    }

    /// Whether everybody who reaches the controller's port gets metrics (`MetricsType=metrics/openmetrics`).
    pub fn has_metrics(&self) -> bool {
        let kind = self.text("MetricsType").unwrap_or("");
        kind.trim_start_matches("metrics/") == "openmetrics"
    }

    /// `AuthType` with its options.
    pub fn authentication(&self) -> Authentication {
        Authentication::parse(
            self.text("AuthType"),
            self.text("AuthInfo"),
            key_dir(&self.path),
        )
    }
}

/// Where the cluster's key is: beside slurm.conf, or in `/etc/slurm` if the controller gave that, as it gives no keys.
pub(crate) fn key_dir(conf: &Path) -> &Path {
    let conf = match conf.starts_with("/run") {
        true => Path::new(DEFAULT_PATH),
        false => conf,
    };
    conf.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_tokens_are_read() {
        let parse = |text| UserTokenSettings::parse(text, Path::new("/state"));
        assert_eq!(parse(None).key, Path::new("/state/jwt_hs256.key"));
        let all = parse(Some(
            "jwt_key=/etc/k,max_token_lifespan=60,disable_token_creation,jwks=/x",
        ));
        let expected = UserTokenSettings {
            key: "/etc/k".into(),
            has_jwks: true,
            max_lifespan_s: Some(60),
            is_creation_disabled: true,
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn both_keys_are_read_as_slurm_reads_them() {
        let parse = |kind, info| Authentication::parse(kind, info, Path::new("/etc/slurm"));
        assert_eq!(parse(None, None).method, AuthMethod::Munge);
        assert_eq!(parse(None, None).key_dir, Path::new("/etc/slurm"));
        assert_eq!(parse(Some("auth/slurm"), None).method, AuthMethod::Slurm);
        assert_eq!(parse(Some("auth/none"), None).method, AuthMethod::None);
        let munge = parse(
            Some("auth/munge"),
            Some("ttl=60,socket=/run/m.socket,cred_expire=9"),
        );
        assert_eq!(munge.method, AuthMethod::Munge);
        assert_eq!(munge.socket, Some("/run/m.socket".into()));
        assert_eq!(munge.ttl_s, Some(60));
        assert_eq!(munge.cred_expire_s, Some(9));
        assert_eq!(parse(None, Some("/run/m")).socket, Some("/run/m".into()));
    }
}
