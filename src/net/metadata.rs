//! Where clouds tell machines about themselves, their credentials among it.
//!
//! Some of these addresses are public by their form, and others lie in networks that operators have for themselves. So a list of
//! what may be reached seldom means them, even if it holds them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::transition::embedded;

/// Azure, Alibaba, Oracle and Tencent; beside them the networks of AWS and of all that follow its example.
const V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(169, 254, 0, 23),
];

/// Names that clouds resolve to such addresses.
const NAMES: [&str; 7] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
    "metadata.oraclecloud.com",
];

/// Whether a cloud tells machines about themselves at this address, or at one that it embeds.
pub fn is_metadata(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_v4(address),
        IpAddr::V6(address) => is_v6(address) || embedded(address.into()).into_iter().any(is_v4),
    }
}

/// Whether a name is one that a cloud resolves to such an address.
pub fn is_metadata_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a URL leads there by its form. Its name is not resolved.
pub fn is_metadata_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_metadata(address.into()),
        Some(Host::Ipv6(address)) => is_metadata(address.into()),
        Some(Host::Domain(name)) => is_metadata_name(name),
        None => false,
    }
}

fn is_v4(address: Ipv4Addr) -> bool {
    V4.contains(&address) || matches!(address.octets(), [169, 254, 169 | 170, _])
}

fn is_v6(address: Ipv6Addr) -> bool {
    // AWS for instances and for containers, Google, OpenStack.
    matches!(
        address.segments(),
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x23]
            | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
            | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_clouds_are_known_in_every_form() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::ffff:100.100.100.200",
            "64:ff9b::168.63.129.16",
            "64:ff9b::192.0.0.192",
        ] {
            assert!(is_metadata(address.parse().unwrap()), "{address}");
        }
        for address in ["169.254.10.1", "100.100.100.201", "192.0.0.1", "fd00:ec2::253", "fd20:ce::1", "8.8.8.8", "::1"]
        {
            assert!(!is_metadata(address.parse().unwrap()), "{address}");
        }
        for name in ["metadata.google.internal", "METADATA.goog.", "instance-data"] {
            assert!(is_metadata_name(name), "{name}");
        }
        assert!(!is_metadata_name("metadata.example.com"));
    }
}
