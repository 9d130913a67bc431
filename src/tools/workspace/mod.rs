//! Workspaces: files that tools keep for a session, a run or a user, in a directory that the operator names.
//!
//! Models see virtual paths only. Who owns a workspace decides which directory it is ([`owner`]), a path cannot lead out of it
//! ([`path`], [`beneath`]), and whoever changes it holds its lock, so that its quota is exact ([`place`], [`change`]). Knows
//! nothing of how long sessions and runs last: others say which workspaces are to be removed.

mod beneath;
mod change;
mod fault;
pub mod offered;
mod owner;
mod path;
mod place;
mod probe;
mod read;
mod remove;
mod scan;
#[cfg(test)]
mod tests;
mod thread;
mod tree;
mod workspaces;

pub use change::{Changes, Used};
pub use fault::Fault;
pub use owner::Owner;
pub use path::FilePath;
pub use probe::probe;
pub use workspaces::{Piece, Workspace, Workspaces};
