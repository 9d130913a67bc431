//! How a client reaches servers.

use std::time::Duration;

use super::tls::{Authorities, ClientCertificate};
use crate::net::guard::Guard;
use crate::net::proxies::Proxies;

/// How a client reaches servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reach {
    /// How long it may take to connect, with TLS and through a proxy; `None` leaves it to the operating system.
    pub connect_timeout: Option<Duration>,
    /// Through which proxies.
    pub proxies: Proxies,
    /// How long a connection is kept for the next request, where that is less than usual.
    pub keep_idle: Option<Duration>,
    /// Whether servers are spoken to in HTTP/2 alone, without TLS too; proxies are then asked for a tunnel to each.
    pub http2_only: bool,
    /// Which certificate authorities vouch for servers; `None` for those of the system. They always vouch for proxies.
    pub authorities: Option<Authorities>,
    /// What is shown to servers that ask for a certificate.
    pub certificate: Option<ClientCertificate>,
    /// What decides which servers are reached, and at which addresses; `None` for servers that the operator names.
    pub guard: Option<Guard>,
}
