//! Which host this is.

use std::net::{TcpListener, ToSocketAddrs};

/// Whether a name or an address is this host's.
pub fn is_own(given: &str) -> bool {
    let own = nix::unistd::gethostname().unwrap_or_default();
    is_name(given, &own.to_string_lossy()) || has_own_address(given)
}

/// Whether a host is called so, with or without its domain.
fn is_name(given: &str, name: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or("").to_ascii_lowercase();
    match given.contains('.') && name.contains('.') {
        true => given.eq_ignore_ascii_case(name),
        false => short(given) == short(name),
    }
}

/// Whether a name or address is one of this host's: only such can be bound.
fn has_own_address(name: &str) -> bool {
    let addresses = (name, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| TcpListener::bind(address).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_far_as_both_are_written() {
        for (given, name, same) in [
            ("head", "head", true),
            ("HEAD", "head.site.org", true),
            ("head.site.org", "head", true),
            ("head.site.org", "head.other.org", false),
            ("head2", "head", false),
        ] {
            assert_eq!(is_name(given, name), same, "{given} {name}");
        }
        assert!(has_own_address("localhost") && !has_own_address("192.0.2.7"));
    }
}
