//! `[egress]`: which URLs may be asked that models, tools and callers name.

use std::net::IpAddr;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::proxy;
use super::reader::Section;
use super::value::{FromToml, Misread, parsed, whole};
use crate::net::client::Proxies;
use crate::net::guard::{HostPattern, Policy};

/// What the key `proxy` means.
const PROXY: &str = "URL of the proxy through which all of these URLs are asked, such as `\"http://proxy.internal:3128\"`. Names are \
     resolved and checked here, and the proxy is asked for a tunnel (`CONNECT`) to the checked address. If absent, there is none: \
     the environment does not count.";

/// Reads what may be asked.
pub(super) fn read(section: &mut Section<'_>) -> Policy {
    let ports: Vec<Port> = section.key("ports", "Ports that a URL may name.", vec![Port(80), Port(443)]);
    let allowed_hosts: Option<Vec<HostPattern>> = section.optional(
        "allowed_hosts",
        "If given, no other hosts are reached: names such as `\"example.com\"`, or `\"*.example.com\"` for all names below one. \
         Those of `private_hosts` and `private_addresses` are allowed as well.",
    );
    let denied_hosts: Vec<HostPattern> = section.key("denied_hosts", "Hosts that are never reached.", Vec::new());
    let private_hosts: Vec<HostPattern> = section.key(
        "private_hosts",
        "Names that may have private addresses, such as `\"wiki.internal\"`: the name servers are trusted with these names. \
         Addresses of the link itself and those at which clouds give machines their credentials are not reached by them either.",
        Vec::new(),
    );
    let private_addresses: Vec<Network> = section.key(
        "private_addresses",
        "Addresses that may be reached although they are not public, each one address or a network such as `\"10.1.0.0/16\"`. \
         Those at which clouds give machines their credentials, such as 169.254.169.254, are not meant, even if they lie in one of \
         these networks.",
        Vec::new(),
    );
    let allow_metadata = section.key(
        "allow_metadata",
        "Whether `private_addresses` means addresses at which clouds give machines their credentials as well. Who can name a URL can \
         then have these credentials.",
        false,
    );
    let denied_addresses: Vec<Network> = section.key(
        "denied_addresses",
        "Addresses and networks that are not reached although they are public, such as those of the operator's own services.",
        Vec::new(),
    );
    let proxy = match proxy::read(section, PROXY) {
        Some(Proxies::One(proxy)) => Some(proxy),
        Some(Proxies::None | Proxies::Environment) | None => None,
    };
    let proxy_resolves = section.key(
        "proxy_resolves",
        "Whether names are left to the proxy to resolve, where this machine cannot or the proxy decides by names. Then only names \
         are checked here, and what they lead to is for the proxy to bound.",
        false,
    );
    Policy {
        ports: ports.into_iter().map(|Port(port)| port).collect(),
        allowed_hosts: allowed_hosts.map(|hosts| hosts.into_iter().collect()),
        denied_hosts: denied_hosts.into_iter().collect(),
        private_hosts: private_hosts.into_iter().collect(),
        private_addresses: networks(private_addresses),
        denied_addresses: networks(denied_addresses),
        allow_metadata,
        proxy,
        proxy_resolves,
    }
}

fn networks(networks: Vec<Network>) -> Vec<IpNet> {
    networks.into_iter().map(|Network(network)| network).collect()
}

struct Port(u16);

impl FromToml for Port {
    fn form() -> String {
        "port".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        whole(value, u16::MAX).map(Self)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl FromToml for HostPattern {
    fn form() -> String {
        "host".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        parsed(
            value,
            "the name of a host such as \"example.com\", without a port, or \"*.example.com\" for all below one",
        )
    }

    fn show(&self) -> String {
        format!("{:?}", self.written())
    }
}

/// An address, or a network.
struct Network(IpNet);

impl FromToml for Network {
    fn form() -> String {
        "network".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "an address such as \"10.1.2.3\", or a network such as \"10.1.0.0/16\"";
        let network = match parsed::<IpAddr>(value, FORM) {
            Ok(address) => IpNet::from(address),
            Err(_) => parsed(value, FORM)?,
        };
        if network != network.trunc() {
            return Err(Misread::new(value, format!("the network begins at {}", network.trunc())));
        }
        Ok(Self(network))
    }

    fn show(&self) -> String {
        format!("{:?}", self.0.to_string())
    }
}
