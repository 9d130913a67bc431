//! The egress guard: which URLs of models, tools and callers may be asked, and at which addresses.
//!
//! A URL is parsed once, by one parser. A name is resolved once for each connection, every answer must be allowed, and the connection
//! goes to an answer that was checked: so a name that is answered otherwise the next time leads nowhere else. What the operator's file
//! names, such as upstreams and services of tools, does not pass through here: the operator vouches for that.
//!
//! | file | holds |
//! | --- | --- |
//! | `policy` | what is allowed (pure) |
//! | `hosts` | patterns of names (pure) |
//! | `refusal` | why something is refused |
//! | `lookup` | asks name servers |

#[cfg(test)]
pub(crate) mod corpus;
mod hosts;
mod lookup;
mod policy;
mod refusal;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use url::{Host, Url};

pub use self::hosts::{HostPattern, Hosts};
use self::lookup::Lookup;
pub use self::policy::Policy;
pub use self::refusal::Refusal;

/// Longest name of a host: name servers know no longer one.
const MAX_HOST: usize = 253;

/// Longest URL: most servers refuse a longer request line.
const MAX_URL: usize = 16 << 10;

/// Decides by a policy, and asks name servers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Guard {
    policy: Arc<Policy>,
    lookup: Lookup,
}

impl Guard {
    /// Decides by `policy`, and asks the name servers of the system.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy: Arc::new(policy), lookup: Lookup::system() }
    }

    /// What it decides by.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Parses a URL and decides all that takes no name server.
    pub fn parse(&self, url: &str) -> Result<Url, Refusal> {
        if url.len() > MAX_URL {
            return Err(Refusal::TooLong);
        }
        let url = Url::parse(url).map_err(|_| Refusal::Malformed)?;
        self.check(&url).map(|()| url)
    }

    /// Decides all that takes no name server.
    pub fn check(&self, url: &Url) -> Result<(), Refusal> {
        // A name that is too long is none, and would fill the sentence that refuses it.
        if url.as_str().len() > MAX_URL || url.host_str().is_some_and(|host| host.len() > MAX_HOST) {
            return Err(Refusal::TooLong);
        }
        self.policy.check(url)
    }

    /// Decides the same of a URL as the HTTP client writes it.
    pub(super) fn check_uri(&self, uri: &Uri) -> Result<(), Refusal> {
        self.parse(&uri.to_string()).map(drop)
    }

    /// Resolves a name, or takes an address as it is. Every answer must be allowed; no answer is a refusal.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Refusal> {
        let literal: Option<IpAddr> = match Host::parse(host).map_err(|_| Refusal::Malformed)? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        };
        let answers = match literal {
            Some(address) => vec![address],
            None => self.lookup.ask(host).await.map_err(|error| {
                tracing::debug!(host, %error, "a name cannot be resolved");
                Refusal::Unresolved(host.to_owned())
            })?,
        };
        self.policy.check_answers(host, &answers)?;
        Ok(answers)
    }
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy
    }
}

impl Eq for Guard {}

impl Hash for Guard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.policy.hash(state);
    }
}
