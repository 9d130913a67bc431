//! The embedded store: its directory, its disk, its lock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::super::client::{Client, local_url};
use super::attempt::{AREA, try_out};
use super::finding::Finding;
use crate::config::Settings;
use crate::store::embedded::EmbeddedStore;

/// How long the server that has the directory may take to answer.
const MOST_TIME: Duration = Duration::from_secs(3);
/// With less free space than this, writes are about to fail.
const NO_SPACE: u64 = 64 << 20;
/// With less free space than this it is time to do something.
const LITTLE_SPACE: u64 = 1 << 30;

/// The name of the database's file: without it the store is yet to be made.
const DATABASE: &str = "store.redb";

/// What to do about a store that cannot be opened.
const ADVICE: &str = "Check that this user may write to the directory, and that a server of this version made it.";

/// The store in this directory.
pub(super) async fn check(settings: &Settings, directory: &Path) -> Vec<Finding> {
    let shown = directory.display();
    let Some(place) = existing(directory) else {
        let advice = "Choose a directory with `store.url = \"embedded:DIR\"`.";
        return vec![Finding::fail(AREA, format!("embedded:{shown}: no directory can be made there")).advice(advice)];
    };
    let mut findings = Vec::new();
    if directory.join(DATABASE).exists() && EmbeddedStore::needs_repair(directory) {
        findings.push(crashed(&place));
    } else if directory.join(DATABASE).exists() {
        findings.push(match try_out(settings).await {
            Ok(finding) => finding,
            Err(error) if error.contains("is in use") => in_use(settings, &error).await,
            Err(error) => Finding::fail(AREA, error).advice(ADVICE),
        });
    } else {
        findings.push(match tempfile_in(&place) {
            Ok(()) => Finding::ok(AREA, format!("embedded:{shown} will be made by the first start")),
            Err(error) => {
                Finding::fail(AREA, format!("embedded:{shown}: {} cannot be written to: {error}", place.display()))
                    .advice("Give this user the right to write there, or choose another directory.")
            }
        });
    }
    match rustix::fs::statvfs(&place) {
        Ok(disk) => {
            findings.push(judge_space(disk.f_bavail.saturating_mul(disk.f_frsize), settings.store.tenant_limit));
        }
        Err(error) => findings.push(Finding::warn("disk", format!("its free space is not known: {error}"))),
    }
    findings
}

/// The store was not closed. Opening it here would repair it, and might hide why it was not.
fn crashed(place: &Path) -> Finding {
    let shown = place.display();
    if let Err(error) = tempfile_in(place) {
        return Finding::fail(AREA, format!("embedded:{shown} cannot be written to: {error}")).advice(ADVICE);
    }
    let message = format!("embedded:{shown} was not closed by its last server, so it was not opened here");
    Finding::warn(AREA, message)
        .advice("The next start repairs it. The end of the last server's log may say what ended it.")
}

/// A server has the directory: what it says of its store.
async fn in_use(settings: &Settings, error: &str) -> Finding {
    let url = local_url(settings.server.listen);
    let ready = match Client::new(&url, None) {
        Ok(client) => timeout(MOST_TIME, client.get::<Value>(&["readyz"], &[])).await.is_ok_and(|asked| asked.is_ok()),
        Err(_) => false,
    };
    if ready {
        let message = format!("the server at {url} has it open, and says that it can be used");
        return Finding::ok(AREA, message);
    }
    let advice = "Only one process can open the directory. If that is your server, all is well; else stop it.";
    Finding::warn(AREA, error).advice(advice)
}

/// The directory, or the nearest above it that exists; `None` if that is a file.
fn existing(directory: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(directory).ok()?;
    whole.ancestors().find(|place| place.exists()).filter(|place| place.is_dir()).map(Path::to_path_buf)
}

/// Makes a file there and removes it.
fn tempfile_in(place: &Path) -> std::io::Result<()> {
    let path = place.join(format!(".loopgate-doctor-{}", uuid::Uuid::now_v7().simple()));
    std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)
}

/// What the free space means. Pure.
fn judge_space(free: u64, tenant_limit: u64) -> Finding {
    let mib = free >> 20;
    let advice = "Free some, or move the store to a larger disk: writes fail when it is full.";
    match free {
        _ if free < NO_SPACE => Finding::fail("disk", format!("{mib} MiB are free")).advice(advice),
        _ if free < LITTLE_SPACE => Finding::warn("disk", format!("{mib} MiB are free")).advice(advice),
        _ if free < tenant_limit => {
            let message = format!("{mib} MiB are free, less than store.tenant_limit ({} MiB)", tenant_limit >> 20);
            Finding::warn("disk", message).advice("Choose a tenant_limit that the disk has room for.")
        }
        _ => Finding::ok("disk", format!("{mib} MiB are free")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn free_space_is_judged() {
        let level = |free| judge_space(free, 4 << 30).level;
        let levels = [8 << 30, 2 << 30, 500 << 20, 1 << 20].map(level);
        assert_eq!(levels, [Level::Ok, Level::Warn, Level::Warn, Level::Fail]);
        assert!(judge_space(2 << 30, 4 << 30).message.contains("tenant_limit (4096 MiB)"));
    }
}
