//! The URL of a Redis deployment: one server, servers watched by Sentinels, or a cluster.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::secret::Secret;

/// Where a Redis deployment is and how to get in.
#[derive(Debug, Clone)]
pub struct RedisUrl {
    /// How the servers relate.
    pub layout: RedisLayout,
    /// The server, the Sentinels, or some nodes of the cluster.
    pub hosts: Vec<RedisHost>,
    /// Who logs in, and how.
    pub login: RedisLogin,
    /// The number of the database; 0 in a cluster.
    pub database: u16,
    /// Whether connections are encrypted, and whom they trust.
    pub tls: Option<RedisTls>,
}

impl RedisUrl {
    /// Its passwords.
    pub(super) fn passwords(&self) -> impl Iterator<Item = &Secret> {
        let sentinel = match &self.layout {
            RedisLayout::Sentinel { login, .. } => login.password.as_ref(),
            RedisLayout::Single | RedisLayout::Cluster => None,
        };
        self.login.password.iter().chain(sentinel)
    }
}

/// How the servers of a deployment relate.
#[derive(Debug, Clone)]
pub enum RedisLayout {
    /// One server, or something that leads to the primary.
    Single,
    /// Sentinels know the primary.
    Sentinel {
        /// What they call it.
        master: String,
        /// How to log in to them.
        login: RedisLogin,
    },
    /// Partitions are dealt out over several primaries.
    Cluster,
}

/// A host name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RedisHost {
    /// A name or an address, without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for RedisHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// A user and a password.
#[derive(Debug, Clone, Default)]
pub struct RedisLogin {
    /// The user; the default one if absent.
    pub user: Option<String>,
    /// The password, if one is asked for.
    pub password: Option<Secret>,
}

/// Encryption of connections.
#[derive(Debug, Clone)]
pub struct RedisTls {
    /// Certificates to trust instead of the system's, in PEM.
    pub ca: Option<PathBuf>,
}

/// The schemes, for sentences about URLs.
pub(super) const REDIS_FORMS: &str = "redis://, rediss://, redis-sentinel:// or redis-cluster://";

/// What a URL says behind its `?`.
#[derive(Default)]
struct Parameters {
    ca: Option<PathBuf>,
    tls: bool,
    database: Option<u16>,
    sentinel: RedisLogin,
}

impl FromStr for RedisUrl {
    type Err = String;

    /// Errors never repeat a part that may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        read_url(text).map_err(|mistake| {
            // A password with such a character ends too early, and the rest of it is taken for what it is not.
            let ends_early = text.split_once(['/', '?', '#']).map(|(_, rest)| rest.trim_start_matches('/'));
            let ends_early = ends_early.and_then(|rest| rest.split_once(['/', '?', '#']));
            if ends_early.is_some_and(|(_, rest)| rest.contains('@')) {
                format!("{mistake}; percent-encode the special characters of a password: / as %2F, @ as %40, ? as %3F")
            } else {
                mistake
            }
        })
    }
}

fn read_url(text: &str) -> Result<RedisUrl, String> {
    let (scheme, rest) = text.split_once("://").ok_or("a Redis URL has :// after its scheme")?;
    let (scheme, always_encrypted) = match scheme {
        "redis" | "valkey" => ("redis", false),
        "rediss" | "valkeys" => ("redis", true),
        "redis-sentinel" | "valkey-sentinel" => ("redis-sentinel", false),
        "redis-cluster" | "valkey-cluster" => ("redis-cluster", false),
        _ => return Err(format!("the scheme must be {REDIS_FORMS}")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let login = read_login(login)?;
    let default_port = if scheme == "redis-sentinel" { 26_379 } else { 6379 };
    let hosts = hosts.split(',').map(|host| read_host(host, default_port)).collect::<Result<Vec<_>, _>>()?;
    let Parameters { ca, tls, database, sentinel } = read_parameters(scheme, query)?;
    let encrypted = always_encrypted || tls;
    if ca.is_some() && !encrypted {
        return Err("ca is for encrypted connections, as rediss:// and tls=true ask for".to_owned());
    }
    let (layout, database) = match scheme {
        "redis" if hosts.len() > 1 => {
            return Err("redis:// is one server; several are redis-sentinel:// or redis-cluster://".to_owned());
        }
        "redis" if path.is_empty() => (RedisLayout::Single, database),
        "redis" => (RedisLayout::Single, Some(read_database(path)?)),
        "redis-sentinel" if path.is_empty() || path.contains('/') => {
            return Err("redis-sentinel:// ends with the name of the master, as in /mymaster".to_owned());
        }
        "redis-sentinel" => (RedisLayout::Sentinel { master: decoded(path)?, login: sentinel }, database),
        _ if path.is_empty() => (RedisLayout::Cluster, None),
        _ => return Err("a cluster has one database, so nothing follows its hosts".to_owned()),
    };
    let tls = encrypted.then_some(RedisTls { ca });
    Ok(RedisUrl { layout, hosts, login, database: database.unwrap_or(0), tls })
}

fn read_login(text: &str) -> Result<RedisLogin, String> {
    if text.is_empty() {
        return Ok(RedisLogin::default());
    }
    let (user, password) = text.split_once(':').ok_or("a user is followed by a colon and a password")?;
    let user = Some(decoded(user)?).filter(|user| !user.is_empty());
    Ok(RedisLogin { user, password: Some(Secret::new(decoded(password)?)) })
}

fn read_host(text: &str, default_port: u16) -> Result<RedisHost, String> {
    const FORM: &str = "a host is a name or an address, and a port such as :6379 if need be";
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(FORM)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| FORM)?,
        None if port.is_empty() => default_port,
        None => return Err(FORM.to_owned()),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(FORM.to_owned());
    }
    Ok(RedisHost { name: name.to_owned(), port })
}

fn read_parameters(scheme: &str, query: &str) -> Result<Parameters, String> {
    let mut read = Parameters::default();
    // A plus sign stands for itself here as in the login.
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        match (&*name, scheme) {
            ("ca", _) => read.ca = Some(PathBuf::from(value)),
            ("tls", "redis-sentinel" | "redis-cluster") => {
                read.tls = value.parse().map_err(|_| "tls is true or false")?;
            }
            ("db", "redis" | "redis-sentinel") => read.database = Some(read_database(&value)?),
            ("sentinel_user", "redis-sentinel") => read.sentinel.user = Some(value),
            ("sentinel_password", "redis-sentinel") => read.sentinel.password = Some(Secret::new(value)),
            _ => return Err(format!("{scheme}:// has no such parameter; it knows {}", known(scheme))),
        }
    }
    Ok(read)
}

fn known(scheme: &str) -> &'static str {
    match scheme {
        "redis" => "db and ca",
        "redis-cluster" => "tls and ca",
        _ => "db, tls, ca, sentinel_user and sentinel_password",
    }
}

fn read_database(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "a database is a number such as 0".to_owned())
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| "what is percent-encoded must be UTF-8".to_owned())
}

/// Where it is, without how to get in.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        let hosts = hosts.join(",");
        match &self.layout {
            RedisLayout::Single => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                write!(f, "{scheme}://{hosts}/{}", self.database)
            }
            RedisLayout::Sentinel { master, .. } => write!(f, "redis-sentinel://{hosts}/{master}"),
            RedisLayout::Cluster => write!(f, "redis-cluster://{hosts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RedisUrl {
        text.parse().unwrap()
    }

    fn exposed(login: &RedisLogin) -> (Option<&str>, Option<&str>) {
        (login.user.as_deref(), login.password.as_ref().map(Secret::expose))
    }

    #[test]
    fn every_layout_is_read() {
        let plain = read("redis://localhost");
        assert_eq!((plain.hosts[0].to_string().as_str(), plain.database), ("localhost:6379", 0));
        assert!(plain.tls.is_none() && matches!(plain.layout, RedisLayout::Single));

        let full = read("rediss://ann:p%40ss%2F@[::1]:7000/3?ca=/etc/ca.pem");
        assert_eq!((full.hosts[0].to_string().as_str(), full.database), ("[::1]:7000", 3));
        assert_eq!(exposed(&full.login), (Some("ann"), Some("p@ss/")));
        assert_eq!(full.tls.unwrap().ca.unwrap().to_str(), Some("/etc/ca.pem"));

        let watched =
            read("redis-sentinel://:pw@a:1,b/mymaster?db=2&sentinel_user=eve&sentinel_password=a+b%2B&tls=true");
        let RedisLayout::Sentinel { master, login } = &watched.layout else { panic!("{watched:?}") };
        assert_eq!((master.as_str(), exposed(login)), ("mymaster", (Some("eve"), Some("a+b+"))));
        assert_eq!((exposed(&watched.login), watched.database), ((None, Some("pw")), 2));
        assert_eq!(watched.to_string(), "redis-sentinel://a:1,b:26379/mymaster");
        assert!(watched.tls.is_some());

        let cluster = read("valkey-cluster://a:1,b:2");
        assert!(matches!(cluster.layout, RedisLayout::Cluster));
        assert_eq!(cluster.to_string(), "redis-cluster://a:1,b:2");
    }

    #[test]
    fn mistakes_are_told_without_secrets() {
        for (text, what) in [
            ("redis:x", "://"),
            ("http://x", "the scheme must be"),
            ("redis://", "a host is"),
            ("redis://s3cret@host", "a user is followed"),
            ("redis://u:s3cret@host:port", "a host is"),
            ("redis://u:s3/cret@host", "a host is"),
            ("redis://u:s3cret@host/x", "a database is"),
            ("redis://u:s3cret@a,b", "one server"),
            ("redis://u:s3cret@host?tls=true", "no such parameter"),
            ("redis://u:s3cret@host?ca=x", "encrypted"),
            ("redis-sentinel://u:s3cret@host", "name of the master"),
            ("redis-sentinel://host/m?sentinel_password=s3cret&x=1", "no such parameter"),
            ("redis-cluster://u:s3cret@host/1", "one database"),
            ("redis://u:s3cret%FF@host", "UTF-8"),
            ("rediss://:s3@ss/w@host", "percent-encode"),
            ("redis://u:s3cret?x@host", "percent-encode"),
            ("redis://u:s3cret#x/@host", "percent-encode"),
        ] {
            let error = text.parse::<RedisUrl>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
            assert!(!error.contains("s3"), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = read("redis-sentinel://u:s3cret@a/m?sentinel_password=s3cret");
        assert!(!format!("{url:?} {url}").contains("s3cret"));
    }
}
