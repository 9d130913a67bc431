//! What is allowed, as pure decisions.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use super::hosts::{Hosts, whole};
use super::refusal::Refusal;
use crate::net::metadata::{is_metadata, is_metadata_name};
use crate::net::proxies::Proxy;
use crate::net::public_address::{is_local_name, is_never_a_server, is_public};
use crate::net::transition::embedded;

/// Names that only the operator's own network knows. Looked at where a proxy resolves names, as nothing else then tells what a name
/// stands for.
const PRIVATE_NAMES: [&str; 7] = ["local", "internal", "localdomain", "lan", "home", "corp", "home.arpa"];

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Ports that a URL may name.
    pub ports: Vec<u16>,
    /// If given, no others.
    pub allowed_hosts: Option<Hosts>,
    /// Never these.
    pub denied_hosts: Hosts,
    /// These may have private addresses.
    pub private_hosts: Hosts,
    /// Addresses that may be reached although they are not public.
    pub private_addresses: Vec<IpNet>,
    /// Addresses that may not be reached although they are public.
    pub denied_addresses: Vec<IpNet>,
    /// Whether the lists above may mean addresses at which clouds give machines their credentials.
    pub allow_metadata: bool,
    /// Through which proxy everything goes.
    pub proxy: Option<Proxy>,
    /// Whether names are left to the proxy, so that their addresses are not checked.
    pub proxy_resolves: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ports: vec![80, 443],
            allowed_hosts: None,
            denied_hosts: Hosts::default(),
            private_hosts: Hosts::default(),
            private_addresses: Vec::new(),
            denied_addresses: Vec::new(),
            allow_metadata: false,
            proxy: None,
            proxy_resolves: false,
        }
    }
}

impl Policy {
    /// Whether names are resolved elsewhere.
    pub(in crate::net) fn leaves_names_to_the_proxy(&self) -> bool {
        self.proxy.is_some() && self.proxy_resolves
    }

    /// Decides all of a URL but which addresses its name has.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refusal> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refusal::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Userinfo);
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !self.ports.contains(&port) {
            return Err(Refusal::Port(port));
        }
        match url.host() {
            None => Err(Refusal::NoHost),
            Some(Host::Domain(name)) => self.check_name(name),
            Some(Host::Ipv4(address)) => self.check_literal(address.into()),
            Some(Host::Ipv6(address)) => self.check_literal(address.into()),
        }
    }

    /// Decides whether all addresses of a host may be reached.
    pub(super) fn check_answers(&self, host: &str, answers: &[IpAddr]) -> Result<(), Refusal> {
        if answers.is_empty() {
            return Err(Refusal::Unresolved(host.to_owned()));
        }
        let may_be_private = self.private_hosts.name(host);
        // One answer that leads inside among others is how a name is made to lead there at the second attempt.
        if answers.iter().all(|answer| self.allows(*answer, may_be_private)) {
            return Ok(());
        }
        tracing::warn!(host, ?answers, "a name has an address that may not be reached");
        Err(Refusal::Private(host.to_owned()))
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let refused = || Err(Refusal::Host(name.to_owned()));
        let is_empty = whole(name).split('.').any(str::is_empty);
        let is_private = self.private_hosts.name(name);
        if is_empty || self.denied_hosts.name(name) {
            return refused();
        }
        if self.allowed_hosts.as_ref().is_some_and(|allowed| !allowed.name(name)) && !is_private {
            return refused();
        }
        // Who else resolves names may resolve this one as the cloud does.
        if is_metadata_name(name) && !(self.allow_metadata && is_private) {
            return Err(Refusal::Private(name.to_owned()));
        }
        let is_inside = is_local_name(name) || (self.leaves_names_to_the_proxy() && is_private_name(name));
        if is_inside && !is_private { Err(Refusal::Private(name.to_owned())) } else { Ok(()) }
    }

    /// An address in the place of a name. A list of hosts names none.
    fn check_literal(&self, address: IpAddr) -> Result<(), Refusal> {
        if self.allowed_hosts.is_some() && !self.is_listed(address) {
            return Err(Refusal::Host(address.to_string()));
        }
        if self.allows(address, false) { Ok(()) } else { Err(Refusal::Private(address.to_string())) }
    }

    /// Whether an address may be reached, perhaps for a name that may have private ones.
    fn allows(&self, address: IpAddr, may_be_private: bool) -> bool {
        let denied = |form: IpAddr| self.denied_addresses.iter().any(|network| network.contains(&form));
        if denied(address.to_canonical()) || embedded(address).into_iter().any(|form| denied(form.into())) {
            return false;
        }
        if is_metadata(address) {
            return self.allow_metadata && self.is_listed(address);
        }
        is_public(address) || self.is_listed(address) || (may_be_private && !is_never_a_server(address))
    }

    fn is_listed(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.private_addresses.iter().any(|network| network.contains(&address))
    }
}

/// Whether a name is one of the operator's own network by its form.
fn is_private_name(name: &str) -> bool {
    let name = whole(name);
    let is_below =
        |suffix: &&str| name.strip_suffix(*suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !name.contains('.') || PRIVATE_NAMES.iter().any(is_below)
}
