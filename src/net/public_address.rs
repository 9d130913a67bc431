//! Which addresses are on the public internet.
//!
//! An upstream that fetches a caller's URL may stand inside the operator's network, so only public addresses pass.
//! Names are not resolved here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

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

/// Whether a URL's host is a private or local address, or a name of this machine.
pub fn is_private_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !is_public(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => !is_public(IpAddr::V6(address)),
        Some(Host::Domain(name)) => is_local_name(name),
        None => false,
    }
}

/// Whether a name stands for this machine. A dot at its end only says that it is whole.
fn is_local_name(name: &str) -> bool {
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
        || matches!((a, b, c), (0 | 224.., ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // Mapped and compatible addresses and those of NAT64 stand for an IPv4 address.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if (high, low) > (0, 1) => is_public_v4(embedded(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        // Teredo and what is kept for documentation.
        [0x2001, 0 | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Of all other addresses only these are given out for the public internet, so the prefix decides before what
        // an address embeds: 6to4 puts an IPv4 address into the prefix, ISATAP into the interface identifier.
        [first @ 0x2000..=0x3fff, second, third, _, kind, mark, high, low] => {
            let by_6to4 = (first == 0x2002).then(|| embedded(second, third));
            let by_isatap = matches!((kind, mark), (0 | 0x200, 0x5efe)).then(|| embedded(high, low));
            by_6to4.into_iter().chain(by_isatap).all(is_public_v4)
        }
        _ => false,
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
