//! A bound on the memory of a process that the kernel keeps: a process that needs more is killed.
//!
//! That takes a control group, which only root may make, and not everywhere. Without one a test looks at
//! what its process needed at most, as it does anyway.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where memory is controlled, and the file that holds the bound: the first version of control groups, and the second.
const CONTROLLERS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// How often a group is tried to be removed, whose process may not be quite gone.
const ATTEMPTS: u32 = 50;

/// A control group of its own.
#[derive(Debug)]
pub(super) struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// One of so many bytes, where there can be one.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        CONTROLLERS.iter().find_map(|(root, file)| {
            let path = Path::new(root).join(format!("loopgate-test-{}", uuid::Uuid::now_v7()));
            std::fs::create_dir(&path).ok()?;
            let limit = Self(path);
            // What is no place for control groups takes a directory, too.
            let file = limit.0.join(file);
            (file.exists() && std::fs::write(file, bytes.to_string()).is_ok()).then_some(limit)
        })
    }

    /// Bounds this process.
    pub(super) fn bound(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("the group is our own");
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let removed = (0..ATTEMPTS).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            std::fs::remove_dir(&self.0).is_ok()
        });
        assert!(removed || std::thread::panicking(), "{} is left behind", self.0.display());
    }
}
