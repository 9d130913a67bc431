//! Which URLs a caller may make others fetch.
//!
//! An image URL is fetched by the upstream, which may stand inside the operator's network, so only
//! public addresses pass. Names are not resolved here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Checks an `image_url`: `https`, `http` or an image in a `data:` URL, and no private address.
pub fn check_image_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    match url.scheme() {
        "data" if url.path().starts_with("image/") => Ok(()),
        "data" => Err("must be an image where it is a data: URL".to_owned()),
        "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
            Err("must not hold a user name or password".to_owned())
        }
        "http" | "https" => match url.host() {
            Some(Host::Ipv4(address)) if !is_public(IpAddr::V4(address)) => Err(private()),
            Some(Host::Ipv6(address)) if !is_public(IpAddr::V6(address)) => Err(private()),
            Some(Host::Domain(name)) if name == "localhost" || name.ends_with(".localhost") => Err(private()),
            Some(_) => Ok(()),
            None => Err("names no host".to_owned()),
        },
        scheme => Err(format!("must begin with https:, http: or data:, not {scheme}:")),
    }
}

fn private() -> String {
    "must not be a private or local address".to_owned()
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
        // Mapped and compatible addresses, NAT64 and 6to4 stand for an IPv4 address.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if (high, low) > (0, 1) => is_public_v4(embedded(high, low)),
        // ISATAP puts one into the interface identifier.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => is_public_v4(embedded(high, low)),
        [0, 0, 0, 0, 0, 0, 0, _] | [0x2001, 0 | 0xdb8, ..] => false,
        [first, ..] => {
            !matches!(first & 0xfe00, 0xfc00) && !matches!(first & 0xffc0, 0xfe80) && first & 0xff00 != 0xff00
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_however_they_are_written() {
        for bad in [
            "file:///etc/passwd",
            "gopher://example.com/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://[::ffff:10.0.0.1]/",
            "http://[64:ff9b::a00:1]/",
            "http://[2002:a00:1::]/",
            "http://[fe80::5efe:10.0.0.1]/",
            "http://[2001:db8::5efe:10.0.0.1]/",
            "http://[::1]/",
            "http://[fd00::1]/",
            "http://localhost/",
            "http://169.254.169.254/latest",
            "https://user:pass@example.com/a.png",
            "data:text/html,x",
            "nonsense",
        ] {
            assert!(check_image_url(bad).is_err(), "{bad}");
        }
        for good in ["https://example.com/a.png", "http://93.184.216.34/", "data:image/png;base64,AAAA"] {
            assert_eq!(check_image_url(good), Ok(()), "{good}");
        }
    }
}
