//! The host that this process runs on.

/// The name of this host without its domain.
pub fn short_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
