//! Why a workspace did not do what it was asked, in words for a model: no path of the machine is among them.

use rustix::io::Errno;

use crate::tools::ToolError;

/// Why nothing came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// What was asked for is not allowed, or not there. Nothing changed.
    Refused(String),
    /// The directory of all workspaces failed. Nothing changed.
    Broken(&'static str, Errno),
    /// The same, after something had changed.
    Half(&'static str, Errno),
    /// Its caller is gone. Nothing changed.
    Stopped,
    /// There is no thread for it.
    NoThread,
    /// The work on it panicked.
    Crashed,
}

impl Fault {
    /// It must not be.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }

    /// For `map_err`: this failed while nothing had changed.
    pub(super) fn while_doing(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Broken(what, errno)
    }
}

impl From<Fault> for ToolError {
    /// What went wrong in the directory stands in the log: the model can do nothing about it.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(why) => Self::Failed(why),
            Fault::Stopped => Self::Failed("The call was given up. Nothing changed.".to_owned()),
            Fault::NoThread => Self::Failed("The server has no room for this call now. Nothing changed.".to_owned()),
            Fault::Crashed => Self::Lost("The call crashed.".to_owned()),
            Fault::Broken(what, errno) => {
                tracing::error!(what, %errno, "a workspace cannot be used");
                Self::Failed(format!("{} Nothing changed.", told(errno)))
            }
            Fault::Half(what, errno) => {
                tracing::error!(what, %errno, "a workspace failed while it was changed");
                Self::Lost(format!("{} Some of what was to change may have changed.", told(errno)))
            }
        }
    }
}

fn told(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => "The server has no room left for files.",
        Errno::NAMETOOLONG => "The server's disk takes no name as long as this.",
        _ => "The server's files cannot be used now.",
    }
}
