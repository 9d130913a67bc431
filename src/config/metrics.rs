//! `[metrics]`: what is counted, and who may read it.

use std::net::SocketAddr;

use super::options::Options;
use super::reader::Section;
use super::server::exposure;

/// What is counted, and who may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Whether anything is.
    pub enabled: bool,
    /// Whether they are read without a key.
    pub open: bool,
    /// Where they are read, if not where requests are answered.
    pub listen: Option<SocketAddr>,
    /// Whether runs, tokens and cost are counted by tenant too.
    pub tenants: bool,
}

impl MetricsConfig {
    pub(super) fn read(section: &mut Section<'_>, options: &Options, has_keys: bool) -> Self {
        section.read_at_start();
        let enabled = section.key("enabled", "Whether metrics are counted, and read at `/metrics`.", true);
        let open = section.key(
            "open",
            "Whether `/metrics` is answered without a key. Otherwise it takes one with the scope `metrics`, where keys are \
             declared. Metrics hold no content and no secret, but the load of all tenants and the names of agents, models and \
             tools.",
            false,
        );
        let listen: Option<SocketAddr> = section.optional(
            "listen",
            "Address and port of their own for `/metrics`, such as `\"0.0.0.0:9464\"`, in place of the server's.",
        );
        let tenants = section.key(
            "tenants",
            "Whether runs, tokens and cost are also counted by tenant: the first 50 by name, the others together.",
            false,
        );
        if let Some(what) = listen.filter(|_| !open).and_then(|listen| exposure(listen, options, has_keys)) {
            section.refuse("listen", format!("{what}; or set metrics.open"));
        }
        Self { enabled, open, listen, tenants }
    }
}
