//! Opens what lies below a directory. The kernel refuses every way out of it: links and, with them, whatever a link could lead to.
//!
//! Linux resolves a whole path so (`openat2`). Where it cannot, as in some sandboxes, and on other systems each name of the path is
//! opened in the directory before it, and none may be a link. Either way a link that takes the place of a directory while a
//! path is resolved is refused as well.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
#[cfg(target_os = "linux")]
use rustix::fs::{ResolveFlags, openat2};
use rustix::io::{Errno, Result};

/// How often a path is resolved again that changed meanwhile.
#[cfg(target_os = "linux")]
const TRIES: usize = 8;

/// Opens what is at this path below a directory; `""` is the directory itself. The path has no `..`.
pub(super) fn open(directory: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let whole = if path.is_empty() { "." } else { path };
        for _ in 0..TRIES {
            match openat2(&directory, whole, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return walk(directory, path, flags),
                opened => return opened,
            }
        }
    }
    walk(directory, path, flags)
}

/// Opens a directory.
pub(super) fn open_directory(directory: impl AsFd, path: &str) -> Result<OwnedFd> {
    open(directory, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// `None` for what is not there.
pub(super) fn if_there<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The same, name by name.
fn walk(directory: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let on_the_way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((way, last)) = path.rsplit_once('/') else {
        return step(directory, if path.is_empty() { "." } else { path }, flags);
    };
    let mut names = way.split('/');
    let mut at = step(directory, names.next().unwrap_or("."), on_the_way)?;
    for name in names {
        at = step(&at, name, on_the_way)?;
    }
    step(&at, last, flags)
}

fn step(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd> {
    if matches!(name, ".." | "") || name.contains('/') {
        return Err(Errno::XDEV);
    }
    openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, create_dir_all, rename, write};
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    type Open = fn(&File, &str, OFlags) -> Result<OwnedFd>;

    /// Each way to open a path.
    const WAYS: [(&str, Open); 2] = [("whole", whole), ("by name", by_name)];

    fn whole(at: &File, path: &str, flags: OFlags) -> Result<OwnedFd> {
        open(at, path, flags)
    }

    fn by_name(at: &File, path: &str, flags: OFlags) -> Result<OwnedFd> {
        walk(at, path, flags)
    }

    fn text(opened: OwnedFd) -> String {
        let mut text = String::new();
        File::from(opened).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_below_is_opened_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("in");
        create_dir_all(inside.join("a/b")).unwrap();
        write(inside.join("a/b/c"), "c").unwrap();
        write(root.path().join("secret"), "secret").unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink(root.path(), inside.join("up")).unwrap();
        symlink("a", inside.join("within")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        let at = File::open(&inside).unwrap();
        for (how, open) in WAYS {
            assert_eq!(text(open(&at, "a/b/c", OFlags::RDONLY).unwrap()), "c", "{how}");
            assert!(open(&at, "", OFlags::RDONLY | OFlags::DIRECTORY).is_ok(), "{how}");
            for path in [
                "out",
                "up",
                "up/secret",
                "within/b/c",
                "within",
                "magic/etc/passwd",
                "..",
                "../secret",
                "a/../../secret",
                "/etc/passwd",
            ] {
                assert!(open(&at, path, OFlags::RDONLY).is_err(), "{how}: {path}");
            }
            assert_eq!(open(&at, "a/b/d", OFlags::RDONLY).unwrap_err(), Errno::NOENT, "{how}");
        }
    }

    #[test]
    fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("outside"));
        create_dir_all(inside.join("a")).unwrap();
        create_dir_all(&outside).unwrap();
        write(inside.join("a/f"), "inside").unwrap();
        write(outside.join("f"), "secret").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        let (at, done) = (File::open(&inside).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for (from, to) in [("a", "dir"), ("link", "a"), ("a", "link"), ("dir", "a")] {
                        rename(inside.join(from), inside.join(to)).unwrap();
                    }
                }
            });
            let mut read = 0;
            for round in 0..20_000 {
                let (_, open) = WAYS[round % WAYS.len()];
                if let Ok(opened) = open(&at, "a/f", OFlags::RDONLY) {
                    read += 1;
                    assert_eq!(text(opened), "inside");
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(read > 0);
        });
    }
}
