//! Addresses as those count that want something of a daemon.

use std::net::{IpAddr, Ipv4Addr};

/// The part of an address that names a host: an address of IPv4, or the first 64 bits of one of IPv6, of which a host has as
/// many as it likes. This host is one, whatever address it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress(IpAddr);

impl HostAddress {
    /// That of an address.
    pub fn of(address: IpAddr) -> HostAddress {
        HostAddress(match address.to_canonical() {
            own if own.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
            v4 => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_many_addresses() {
        let of = |text: &str| HostAddress::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert!(of("127.0.0.1") == of("127.200.0.9") && of("::1") == of("127.0.0.1"));
    }
}
