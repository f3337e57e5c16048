//! Decides which addresses a message may name as its endpoint.
//!
//! A customer who chooses an endpoint must not reach what only this host can reach: its own services, its private
//! network, the metadata service of its cloud. The answer of such a call would come back to them in an error text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether addresses are checked before connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    On,
    Off,
}

/// A blocked address, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint's address is blocked ({0})")]
pub struct Blocked(pub &'static str);

/// Blocked IPv4 networks: start, prefix length, kind. From the IANA registry of special-purpose addresses.
const V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local or cloud metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private network"),
    // Contains Oracle's metadata service.
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
    // A public address, but every virtual machine in Azure reaches the platform through it.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud metadata"),
];

/// Named blocked IPv6 networks. Everything outside of 2000::/3, the only global unicast range, is blocked as well.
const V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "IPv4 in IPv6"),
    (Ipv6Addr::UNSPECIFIED, 96, "IPv4 in IPv6"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "NAT64"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "NAT64"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "Teredo"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved for protocols"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

impl Guard {
    pub fn check(self, address: IpAddr) -> Result<(), Blocked> {
        match self {
            Self::Off => Ok(()),
            Self::On => blocked(address).map_or(Ok(()), |kind| Err(Blocked(kind))),
        }
    }
}

/// The kind of a blocked address.
pub fn blocked(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => {
            let within = |net: Ipv4Addr, prefix: u8| {
                (u32::from(v4) ^ u32::from(net)).leading_zeros() >= u32::from(prefix)
            };
            V4.iter().find(|(net, prefix, _)| within(*net, *prefix)).map(|(_, _, kind)| *kind)
        }
        IpAddr::V6(v6) => {
            let within = |net: Ipv6Addr, prefix: u8| {
                (u128::from(v6) ^ u128::from(net)).leading_zeros() >= u32::from(prefix)
            };
            let named = V6.iter().find(|(net, prefix, _)| within(*net, *prefix)).map(|(_, _, kind)| *kind);
            let global = within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
            named.or((!global).then_some("not a global address"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> Option<&'static str> {
        blocked(address.parse().unwrap())
    }

    #[test]
    fn addresses_that_only_this_host_can_reach_are_blocked() {
        for (address, expected) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private network"),
            ("10.255.255.255", "private network"),
            ("100.64.0.1", "carrier network"),
            ("100.100.100.200", "carrier network"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("169.254.169.254", "link-local or cloud metadata"),
            ("169.254.170.2", "link-local or cloud metadata"),
            ("172.16.0.1", "private network"),
            ("172.31.255.255", "private network"),
            ("192.0.0.192", "reserved for protocols"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.0.1", "private network"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.7", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("168.63.129.16", "cloud metadata"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "IPv4 in IPv6"),
            ("::ffff:8.8.8.8", "IPv4 in IPv6"),
            ("::127.0.0.1", "IPv4 in IPv6"),
            ("64:ff9b::7f00:1", "NAT64"),
            ("64:ff9b::a9fe:a9fe", "NAT64"),
            ("64:ff9b:1::a00:1", "NAT64"),
            ("100::1", "discard"),
            ("2001::1", "Teredo"),
            ("2001:10::1", "reserved for protocols"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "6to4"),
            ("2002:a9fe:a9fe::1", "6to4"),
            ("3fff::1", "documentation"),
            ("fc00::1", "private network"),
            ("fd00:ec2::254", "private network"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("5f00::1", "not a global address"),
            ("4000::1", "not a global address"),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn public_addresses_just_outside_of_the_networks_pass() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "168.63.129.15",
            "168.63.129.17",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700:4700::1111",
            "2a00::1",
            "3ffe::1",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn a_guard_that_is_off_lets_everything_pass() {
        assert_eq!(Guard::Off.check(Ipv4Addr::LOCALHOST.into()), Ok(()));
        let refused = Guard::On.check(Ipv4Addr::LOCALHOST.into()).unwrap_err();
        assert_eq!(refused.to_string(), "the endpoint's address is blocked (loopback)");
    }
}
