//! `proxy`: through which proxy servers are reached, and who logs in there.

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use super::reader::Section;
use super::secret::Secret;
use super::secret_source;
use super::value::{FromToml, Misread, text};
use crate::net::client::{Proxies, Proxy};

/// Reads `proxy`, which means what `help` says, and the login at it; `None` if nothing is written that could be one.
pub(super) fn read(section: &mut Section<'_>, help: &'static str) -> Option<Proxies> {
    let asked: Option<AskedProxy> = section.optional("proxy", help);
    let in_env: Option<String> = section
        .optional("proxy_login_env", "Environment variable that holds the login at that proxy, `USER:PASSWORD`.");
    let in_file: Option<String> =
        section.optional("proxy_login_file", "File that holds the login at that proxy, `USER:PASSWORD`.");
    let (key, login) = match (in_env, in_file) {
        (Some(_), Some(_)) => {
            ("proxy_login_file", Some(Err("give proxy_login_env or proxy_login_file, not both".to_owned())))
        }
        (Some(variable), None) => ("proxy_login_env", Some(secret_source::from_env(section, &variable))),
        (None, path) => ("proxy_login_file", path.map(|path| secret_source::from_file(&path))),
    };
    let login = login.and_then(|login| secret_source::reported(section, key, login));
    if let Some(login) = &login {
        section.record_secret(key, login.expose());
    }
    match asked {
        Some(AskedProxy::At(url)) => match Proxy::new(&url, login.as_ref().map(Secret::expose)) {
            Some(proxy) => return Some(Proxies::One(proxy)),
            None => section.refuse("proxy", "this is not the address of a proxy"),
        },
        asked if login.is_some() && (asked.is_some() || !section.is_written("proxy")) => {
            section.refuse(key, "needs a `proxy` with a URL");
        }
        Some(AskedProxy::None) => return Some(Proxies::None),
        None => {}
    }
    None
}

/// What the key `proxy` holds.
enum AskedProxy {
    None,
    At(Url),
}

impl FromToml for AskedProxy {
    fn form() -> String {
        "URL or \"none\"".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"http://proxy.internal:3128\", or \"none\"";
        let text = text(value, FORM)?;
        if text == "none" {
            return Ok(Self::None);
        }
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Misread::new(
                value,
                "must not hold a user or password; name the login with proxy_login_env or proxy_login_file",
            ));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(Misread::new(value, "must end with the host or its port"));
        }
        Ok(Self::At(url))
    }

    fn show(&self) -> String {
        match self {
            Self::None => "\"none\"".to_owned(),
            Self::At(url) => format!("\"{url}\""),
        }
    }
}
