//! Why a URL is refused.

/// Why a URL is refused, in a clause for the caller or model that wrote it. It names no address that a name server gave: that would tell how the
/// operator's network looks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no URL.
    #[error("this is not a URL")]
    Malformed,
    /// It is too long.
    #[error("the URL is too long")]
    TooLong,
    /// It has another scheme.
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    /// It has a user name or a password.
    #[error("the URL must not hold a user name or password")]
    Userinfo,
    /// It names no host.
    #[error("the URL names no host")]
    NoHost,
    /// It names a port that is not open to it.
    #[error("the port {0} is not one that may be reached")]
    Port(u16),
    /// The host is not one that may be reached.
    #[error("the host {0} is not one that may be reached")]
    Host(String),
    /// The host is or has an address that is not public.
    #[error("the host {0} has an address that is private, local or reserved, and such addresses are not reached")]
    Private(String),
    /// The host has no address.
    #[error("the name {0} cannot be resolved")]
    Unresolved(String),
}
