//! Which addresses are on the public internet.
//!
//! An upstream that fetches a caller's URL may stand inside the operator's network, so only public addresses pass.
//! Names are not resolved here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::metadata::{is_metadata, is_metadata_name};
use super::transition::embedded;

/// Checks that an `http` or `https` URL names a host and no private address, and bears no credentials.
pub fn check_host(url: &Url) -> Result<(), &'static str> {
    const PRIVATE: &str = "must not be a private or local address";
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password");
    }
    match url.host() {
        Some(_) if is_private_host(url) => Err(PRIVATE),
        Some(_) => Ok(()),
        None => Err("names no host"),
    }
}

/// Whether a URL's host is a private or local address, or a name of this machine or of what a cloud tells it about itself.
pub fn is_private_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => !is_public(IpAddr::V6(address)),
        Some(Host::Domain(name)) => is_local_name(name) || is_metadata_name(name),
        None => false,
    }
}

/// Whether a name stands for this machine. A dot at its end only says that it is whole.
pub(super) fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether an address is reachable on the public internet: none of the special ranges of the IANA
/// registries, and no IPv6 form that embeds such an IPv4 address.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_metadata(address.into())
        || matches!((a, b, c), (0 | 224.., ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = embedded(address.into());
    let has_public = || embedded.iter().copied().all(is_public_v4);
    match address.segments() {
        // These stand for an IPv4 address, which decides.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => !embedded.is_empty() && has_public(),
        // What protocols such as Teredo have for themselves, and what is kept for documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Of all other addresses only these are given out for the public internet, so the prefix decides before what
        // an address embeds.
        [0x2000..=0x3fff, ..] => has_public(),
        _ => false,
    }
}

/// Whether an address is none that a server of an operator's own network has: it is of this link alone, of a group, or of nothing.
pub(super) fn is_never_a_server(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_link_local() || address.is_broadcast() || address.is_multicast() || address.octets()[0] == 0
        }
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address.is_multicast()
                || address.is_unspecified()
                || embedded(address.into()).into_iter().any(|form| is_never_a_server(form.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_however_they_are_written() {
        for bad in [
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://[::ffff:10.0.0.1]/",
            "http://[64:ff9b::a00:1]/",
            "http://[2002:a00:1::]/",
            "http://[fe80::5efe:10.0.0.1]/",
            "http://[2001:db8::5efe:10.0.0.1]/",
            "http://[fd00::5efe:8.8.8.8]/",
            "http://[fe80::5efe:8.8.8.8]/",
            "http://[fe80::200:5efe:8.8.8.8]/",
            "http://[ff02::5efe:8.8.8.8]/",
            "http://[2001:db8::5efe:8.8.8.8]/",
            "http://[64:ff9b:1:a00:0:5efe:808:808]/",
            "http://[2002:a00:1::5efe:8.8.8.8]/",
            "http://[2002:808:808::5efe:10.0.0.1]/",
            "http://[2600::5efe:10.0.0.1]/",
            "http://[::1]/",
            "http://[fd00::1]/",
            "http://metadata.google.internal/",
            "http://[fd20:ce::254]/",
            "http://localhost/",
            "http://localhost.:8000/x",
            "http://a.localhost./x",
            "http://[64:ff9b:1::a00:1]/",
            "http://169.254.169.254/latest",
            "https://user:pass@example.com/a.png",
        ] {
            assert!(check_host(&Url::parse(bad).unwrap()).is_err(), "{bad}");
        }
        for good in [
            "https://example.com/a.png",
            "http://93.184.216.34/",
            "http://[2606:2800:220:1::1]/",
            "http://[2600::5efe:8.8.8.8]/",
            "http://[2002:808:808::1]/",
            "http://[64:ff9b::8.8.8.8]/",
            "http://[::ffff:8.8.8.8]/",
        ] {
            assert_eq!(check_host(&Url::parse(good).unwrap()), Ok(()), "{good}");
        }
    }
}
