//! IPv6 addresses that stand for IPv4 addresses.

use std::net::{IpAddr, Ipv4Addr};

/// The IPv4 addresses that an IPv6 address leads to or may lead to: mapped and compatible addresses and those of NAT64 stand for one,
/// 6to4 puts one into the prefix, ISATAP into the interface identifier, and Teredo hides one by turning all its bits.
pub(super) fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return Vec::new() };
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if (high, low) > (0, 1) => vec![joined(high, low)],
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => vec![joined(high, low)],
        [0x2001, 0, .., high, low] => vec![joined(!high, !low)],
        [first, second, third, _, kind, mark, high, low] => {
            let by_6to4 = (first == 0x2002).then(|| joined(second, third));
            let by_isatap = matches!((kind, mark), (0 | 0x200, 0x5efe)).then(|| joined(high, low));
            by_6to4.into_iter().chain(by_isatap).collect()
        }
    }
}
