//! All workspaces of a server, and the one of a call.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::change::{Changes, Used, apply, most_entries};
use super::fault::Fault;
use super::owner::{Owner, tenant_directory};
use super::path::{self, FilePath};
use super::place::Address;
use super::probe::check;
use super::read::open;
use super::remove::{list_passing, remove, remove_if_unchanged};
use super::scan::{Found, scan};
use super::thread::{Stop, aside, begin};
use crate::config::{WorkspaceConfig, WorkspaceScope};
use crate::tools::CallContext;
use crate::types::{RunId, SessionId, Tenant};

/// Most calls that work on files at once: each has a thread.
const AT_ONCE: usize = 32;

/// All workspaces of a server.
#[derive(Debug)]
pub struct Workspaces {
    shared: Arc<Shared>,
    /// The runs without a session that changed a file here.
    runs: Mutex<HashSet<RunId>>,
}

#[derive(Debug)]
struct Shared {
    config: WorkspaceConfig,
    room: Arc<Semaphore>,
}

/// The workspace of a call.
#[derive(Debug, Clone)]
pub struct Workspace {
    shared: Arc<Shared>,
    tenant: String,
    own: String,
}

/// Part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How long the file is.
    pub length: u64,
}

impl Workspaces {
    /// Those of this directory, which must be there: one that a volume is yet to be mounted at would take files that nobody
    /// finds again.
    pub fn new(config: &WorkspaceConfig) -> Result<Self, String> {
        check(&config.directory)?;
        let shared = Shared { config: config.clone(), room: Arc::new(Semaphore::new(AT_ONCE)) };
        Ok(Self { shared: Arc::new(shared), runs: Mutex::default() })
    }

    /// What holds for each of them.
    #[must_use]
    pub fn config(&self) -> &WorkspaceConfig {
        &self.shared.config
    }

    /// The workspace of a call; `None` if users have workspaces and the call is made for none.
    #[must_use]
    pub fn of(&self, context: &CallContext) -> Option<Workspace> {
        let owner = match (self.config().scope, &context.session) {
            (WorkspaceScope::User, _) => Owner::User(context.user.clone().filter(|user| !user.is_empty())?),
            (WorkspaceScope::Session, Some(session)) => Owner::Session(session.clone()),
            (WorkspaceScope::Session, None) => {
                self.runs.lock().insert(context.run.clone());
                Owner::Run(context.run.clone())
            }
        };
        Some(self.workspace(&context.tenant, &owner))
    }

    /// Returns once no call works on files.
    #[cfg(test)]
    pub(super) async fn at_rest(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(AT_ONCE).expect("it is a small number");
        self.shared.room.clone().acquire_many_owned(all).await.expect("it is never closed")
    }

    fn workspace(&self, tenant: &Tenant, owner: &Owner) -> Workspace {
        Workspace { shared: self.shared.clone(), tenant: tenant_directory(tenant), own: owner.directory() }
    }

    /// Removes the workspace of a run without a session that has ended, if it was used here. Nobody waits for it.
    pub fn run_ended(&self, tenant: &Tenant, run: &RunId) {
        if self.runs.lock().remove(run) {
            let workspace = self.workspace(tenant, &Owner::Run(run.clone()));
            begin(move |stop| {
                if let Err(fault) = remove(workspace.address(), stop) {
                    tracing::warn!(?fault, "the workspace of a run is removed later");
                }
            });
        }
    }

    /// Forgets that a run was here, which goes on elsewhere or later.
    pub fn run_left(&self, run: &RunId) {
        self.runs.lock().remove(run);
    }

    /// Removes the workspace of a session. One that is not there is no error.
    pub async fn remove_session(&self, tenant: &Tenant, session: &SessionId) -> Result<(), Fault> {
        let workspace = self.workspace(tenant, &Owner::Session(session.clone()));
        aside(&self.shared.room, move |stop| remove(workspace.address(), stop)).await
    }

    /// Removes a workspace unless it changed after `since`, in seconds since 1970; whether it is gone.
    pub async fn remove_if_unchanged(&self, tenant: &Tenant, owner: &Owner, since: i64) -> Result<bool, Fault> {
        let workspace = self.workspace(tenant, owner);
        aside(&self.shared.room, move |stop| remove_if_unchanged(workspace.address(), since, stop)).await
    }

    /// The workspaces of sessions and runs. What removals left that broke off is removed.
    pub async fn passing(&self) -> Result<Vec<(Tenant, Owner)>, Fault> {
        let shared = self.shared.clone();
        aside(&self.shared.room, move |_| {
            let mut all = Vec::new();
            list_passing(&shared.config.directory, |tenant, owner| all.push((tenant, owner)))?;
            Ok(all)
        })
        .await
    }
}

impl Workspace {
    /// What holds for it.
    #[must_use]
    pub fn config(&self) -> &WorkspaceConfig {
        &self.shared.config
    }

    /// All of a file, unless it is longer than a file may be.
    pub async fn read(&self, path: FilePath) -> Result<Vec<u8>, Fault> {
        self.aside(move |own, _| {
            let files = own.files_with(&path)?;
            open(&files, &path)?.whole(&path, own.config().max_file)
        })
        .await
    }

    /// As many bytes of a file from a place on.
    pub async fn read_piece(&self, path: FilePath, from: u64, most: usize) -> Result<Piece, Fault> {
        self.aside(move |own, _| {
            let file = open(&own.files_with(&path)?, &path)?;
            Ok(Piece { bytes: file.piece(from, most)?, length: file.length })
        })
        .await
    }

    /// The files below a directory by their paths, and how many bytes each has; then what all of the workspace holds.
    pub async fn list(&self, directory: &str) -> Result<(BTreeMap<String, u64>, Used), Fault> {
        let directory = path::directory(directory).map_err(Fault::Refused)?;
        self.aside(move |own, _| {
            let Found { mut files, bytes, .. } = own.scan()?;
            let used = Used { files: files.len(), bytes, deleted: 0 };
            let below = format!("{directory}/");
            files.retain(|path, _| directory.is_empty() || path.starts_with(&below));
            Ok((files, used))
        })
        .await
    }

    /// All files, if they have no more than `most` bytes together.
    pub async fn read_all(&self, most: u64) -> Result<BTreeMap<String, Vec<u8>>, Fault> {
        self.aside(move |own, stop| {
            let Some(files) = own.files()? else { return Ok(BTreeMap::new()) };
            let (mut all, mut left) = (BTreeMap::new(), most);
            for path in scan(&files, most_entries(own.config()))?.files.into_keys() {
                stop.check()?;
                let file = FilePath::parse(&path).map_err(Fault::Refused)?;
                let too_many = || Fault::refused(format!("The files of the workspace have more than {most} bytes."));
                match open(&files, &file).and_then(|opened| opened.whole(&file, left)) {
                    Ok(bytes) => {
                        left = left.checked_sub(bytes.len() as u64).ok_or_else(too_many)?;
                        all.insert(path, bytes);
                    }
                    // It is too long, or was deleted since it was listed.
                    Err(Fault::Refused(_)) if open(&files, &file).is_ok_and(|opened| opened.length > left) => {
                        return Err(too_many());
                    }
                    Err(Fault::Refused(_)) => {}
                    Err(fault) => return Err(fault),
                }
            }
            Ok(all)
        })
        .await
    }

    /// Makes all of these changes, or none. Returns what the workspace holds then.
    pub async fn change(&self, changes: Changes) -> Result<Used, Fault> {
        self.aside(move |own, stop| {
            let locked = own.address().make_and_lock(stop)?;
            apply(&locked, &changes, own.config(), stop)
        })
        .await
    }

    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Stop) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let own = self.clone();
        aside(&self.shared.room, move |stop| work(&own, stop)).await
    }

    fn address(&self) -> Address<'_> {
        Address { root: &self.shared.config.directory, tenant: &self.tenant, own: &self.own }
    }

    /// Its files; `None` if nothing was ever written to it.
    fn files(&self) -> Result<Option<OwnedFd>, Fault> {
        self.address().find()?.map_or(Ok(None), |place| place.files())
    }

    fn files_with(&self, path: &FilePath) -> Result<OwnedFd, Fault> {
        let none = || Fault::refused(format!("There is no file {:?}: the workspace is empty.", path.as_str()));
        self.files()?.ok_or_else(none)
    }

    fn scan(&self) -> Result<Found, Fault> {
        self.files()?.map_or_else(|| Ok(Found::default()), |files| scan(&files, most_entries(self.config())))
    }
}
