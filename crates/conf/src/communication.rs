//! `CommunicationParameters`.

use crate::Config;

/// Supported settings of `CommunicationParameters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communication {
    /// `DisableIPv4`: daemons serve other hosts by IPv6 alone.
    pub ipv6_only: bool,
    /// `NoCtldInAddrAny`: the controller listens at its own address alone.
    pub at_own_address: bool,
    /// `disable_http`: daemons answer no requests of HTTP.
    pub without_http: bool,
    /// `keepalivetime`: seconds after which an idle connection between hosts is probed.
    pub idle_s: Option<u32>,
    /// `keepaliveinterval`: seconds between probes.
    pub interval_s: Option<u32>,
    /// `keepaliveprobes`: probes without answer after which it is given up.
    pub probes: Option<u32>,
}

impl Communication {
    /// Reads the words of the key.
    pub fn parse(text: &str) -> Communication {
        let mut all = Communication::default();
        for word in text.split(',').map(str::trim) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            // 0 is what the kernel has.
            let number = || value.trim().parse().ok().filter(|number| *number > 0);
            match name.trim().to_ascii_lowercase().as_str() {
                "disableipv4" => all.ipv6_only = true,
                "noctldinaddrany" => all.at_own_address = true,
                "disable_http" => all.without_http = true,
                "keepalivetime" => all.idle_s = number(),
                "keepaliveinterval" => all.interval_s = number(),
                "keepaliveprobes" => all.probes = number(),
                _ => {}
            }
        }
        all
    }
}

impl Config {
    /// Parses `CommunicationParameters`.
    pub fn communication(&self) -> Communication {
        Communication::parse(self.text("CommunicationParameters").unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_any_case() {
        let all =
            Communication::parse("EnableIPv6, DisableIPV4,keepalivetime=30,keepaliveprobes=x");
        let expected = Communication {
            ipv6_only: true,
            idle_s: Some(30),
            ..Communication::default()
        };
        assert_eq!(all, expected);
    }
}
