//! Lists of hosts, by name or by pattern.

use std::str::FromStr;

use url::Host;

/// A name, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// As a URL has it: in lower case, with `xn--` where it has other letters.
    name: String,
    /// Whether the names below it are meant.
    is_below: bool,
}

/// This is neither a name nor `*.` and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is neither the name of a host nor `*.` followed by one")]
pub struct NoHostPattern;

impl HostPattern {
    /// Whether a host of a URL is meant. An address never is.
    fn matches(&self, host: &str) -> bool {
        if self.is_below {
            host.strip_suffix(&self.name).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| !rest.is_empty())
        } else {
            host == self.name
        }
    }

    /// As it is written.
    #[must_use]
    pub fn written(&self) -> String {
        if self.is_below { format!("*.{}", self.name) } else { self.name.clone() }
    }
}

impl FromStr for HostPattern {
    type Err = NoHostPattern;

    fn from_str(text: &str) -> Result<Self, NoHostPattern> {
        let (name, is_below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        match Host::parse(whole(name)) {
            Ok(Host::Domain(name)) if !name.contains('*') && !name.is_empty() => Ok(Self { name, is_below }),
            Ok(_) | Err(_) => Err(NoHostPattern),
        }
    }
}

/// A list of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Hosts(Vec<HostPattern>);

impl Hosts {
    /// Whether one of them is this host, as a URL has it.
    #[must_use]
    pub fn name(&self, host: &str) -> bool {
        let host = whole(host);
        self.0.iter().any(|pattern| pattern.matches(host))
    }
}

impl FromIterator<HostPattern> for Hosts {
    fn from_iter<T: IntoIterator<Item = HostPattern>>(patterns: T) -> Self {
        Self(patterns.into_iter().collect())
    }
}

/// A name without the dot at its end, which only says that the name is whole.
pub(super) fn whole(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_a_name_or_those_below_it() {
        let hosts: Hosts =
            ["example.com", "*.example.org", "BÜCHER.example"].map(|text| text.parse().unwrap()).into_iter().collect();
        for named in ["example.com", "example.com.", "a.example.org", "a.b.example.org", "xn--bcher-kva.example"] {
            assert!(hosts.name(named), "{named}");
        }
        for other in ["a.example.com", "example.org", "badexample.org", ".example.org", "example.com.evil.test", ""] {
            assert!(!hosts.name(other), "{other}");
        }
        for bad in ["", "*", "*.", "a.*.com", "10.0.0.1", "[::1]", "a b", "https://a.test", "a.test:80", "*.*.a"] {
            assert_eq!(bad.parse::<HostPattern>(), Err(NoHostPattern), "{bad}");
        }
    }
}
