//! Through which proxies servers are reached.

use std::fmt;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

/// Through which proxies servers are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Proxies {
    /// Through none.
    #[default]
    None,
    /// Through those that the environment names: `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY`, but for the servers of
    /// `NO_PROXY`.
    Environment,
    /// All through this one.
    One(Proxy),
}

/// A proxy, perhaps with a login.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy(Url);

impl Proxy {
    /// The proxy at an address with `http` or `https`, which gets the login `user:password`; `None` if the address cannot be that
    /// of a proxy.
    #[must_use]
    pub fn new(address: &Url, login: Option<&str>) -> Option<Self> {
        let mut url = address.clone();
        if let Some((user, password)) = login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            url.set_username(&encoded(user)).ok()?;
            url.set_password(Some(&encoded(password))).ok()?;
        }
        let proxy = Self(url);
        // What the library cannot read it leaves out, and then requests would go past the proxy.
        proxy.matcher().intercept(&Uri::from_static("http://server.invalid/")).map(|_| proxy)
    }

    fn matcher(&self) -> Matcher {
        Matcher::builder().all(self.0.as_str()).build()
    }
}

/// A part of a login as it stands in a URL: read back it is the same, whatever is in it.
fn encoded(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.0.host_str()).finish()
    }
}

impl Proxies {
    /// What decides on the proxy of a request; `None` if there never is one.
    pub(super) fn matcher(&self) -> Option<Matcher> {
        match self {
            Self::None => None,
            Self::Environment => Some(Matcher::from_env()),
            Self::One(proxy) => Some(proxy.matcher()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_reaches_the_proxy_whatever_is_in_it_and_is_not_shown() {
        let address = "http://proxy.test:3128".parse().unwrap();
        for (login, sent) in
            [("ann:s3cret", "YW5uOnMzY3JldA=="), ("ann", "YW5uOg=="), ("a@b:p:/?#%41 ü", "YUBiOnA6Lz8jJTQxIMO8")]
        {
            let proxy = Proxy::new(&address, Some(login)).unwrap();
            let found = proxy.matcher().intercept(&Uri::from_static("https://models.test/")).unwrap();
            assert_eq!(found.uri(), "http://proxy.test:3128/");
            assert_eq!(found.basic_auth().unwrap(), &format!("Basic {sent}"), "{login}");
            assert!(!format!("{proxy:?}").contains("s3cret"));
        }
        assert_eq!(Proxy::new(&"socks9://proxy.test".parse().unwrap(), None), None);
    }
}
