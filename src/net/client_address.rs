//! What tells clients apart by their addresses.

use std::net::{IpAddr, Ipv6Addr};

/// Whom an address is counted as: hosts have a whole /64 of IPv6 to themselves.
#[must_use]
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}
