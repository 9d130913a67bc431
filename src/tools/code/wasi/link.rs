//! Gives a program the system interface, under the names that it imports.

use wasmi::{Caller, Error, Extern, ExternType, Linker, Module};

use super::Host;
use super::errno::Errno;
use super::files;
use super::guest::Guest;
use super::paths::{self, PathAt};
use super::process::{self, Texts};

/// The name that programs import it by.
const INTERFACE: &str = "wasi_snapshot_preview1";
/// What a call costs beside its work, in units of fuel.
const CALL: u64 = 50;
/// How many bytes are moved for a unit of fuel.
const BYTES_FOR_FUEL: u64 = 16;

/// What a call answers.
type Answer = Result<i32, Error>;

/// Does a call for a program, which pays for it.
fn call(mut caller: Caller<'_, Host>, act: impl FnOnce(&mut Guest<'_>) -> Result<(), Errno>) -> Answer {
    let Some(memory) = caller.get_export("memory").and_then(Extern::into_memory) else {
        return Ok(Errno::Fault.code());
    };
    let (memory, host) = memory.data_and_store_mut(&mut caller);
    let done = act(&mut Guest { memory, host });
    let price = CALL + caller.data_mut().take_work() / BYTES_FOR_FUEL;
    let fuel = caller.get_fuel()?;
    caller.set_fuel(fuel.saturating_sub(price))?;
    Ok(done.err().map_or(0, Errno::code))
}

/// Defines functions: a name, the types of the arguments, and what is done.
macro_rules! define {
    ($linker:ident; $($name:literal ($($arg:ident: $kind:ty),*) $act:expr;)*) => {
        $($linker.func_wrap(INTERFACE, $name, |caller: Caller<'_, Host>, $($arg: $kind),*| -> Answer {
            call(caller, |guest| $act(guest, $($arg),*))
        })?;)*
    };
}

/// Defines everything that a program can import; what else it imports fails when it is called.
pub fn link(linker: &mut Linker<Host>, module: &Module) -> Result<(), Error> {
    for import in module.imports() {
        if let ExternType::Func(kind) = import.ty() {
            let name = format!("{}.{}", import.module(), import.name());
            linker.func_new(import.module(), import.name(), kind.clone(), move |_, _, _| {
                Err(Error::new(format!("it called {name}, which is not there")))
            })?;
        }
    }
    linker.allow_shadowing(true);
    link_process(linker)?;
    link_files(linker)?;
    link_paths(linker)?;
    link_absent(linker)
}

fn link_process(linker: &mut Linker<Host>) -> Result<(), Error> {
    define! { linker;
        "args_get" (list: u32, at: u32) |g: &mut Guest<'_>, list, at| process::put_texts(g, Texts::Arguments, list, at);
        "args_sizes_get" (count: u32, bytes: u32)
            |g: &mut Guest<'_>, count, bytes| process::text_sizes(g, Texts::Arguments, count, bytes);
        "environ_get" (list: u32, at: u32)
            |g: &mut Guest<'_>, list, at| process::put_texts(g, Texts::Environment, list, at);
        "environ_sizes_get" (count: u32, bytes: u32)
            |g: &mut Guest<'_>, count, bytes| process::text_sizes(g, Texts::Environment, count, bytes);
        "clock_res_get" (clock: u32, at: u32) process::clock_step;
        "clock_time_get" (clock: u32, precision: u64, at: u32)
            |g: &mut Guest<'_>, clock, _: u64, at| process::clock_time(g, clock, at);
        "random_get" (at: u32, length: u32) process::random;
        "poll_oneoff" (list: u32, told: u32, count: u32, happened: u32) process::wait;
        "sched_yield" () |_: &mut Guest<'_>| Ok(());
    }
    linker.func_wrap(INTERFACE, "proc_exit", |code: i32| -> Result<(), Error> { Err(Error::i32_exit(code)) })?;
    Ok(())
}

fn link_files(linker: &mut Linker<Host>) -> Result<(), Error> {
    define! { linker;
        "fd_advise" (fd: u32, at: u64, length: u64, advice: u32)
            |g: &mut Guest<'_>, fd, _: u64, _: u64, _: u32| files::exists(g, fd);
        "fd_allocate" (fd: u32, at: u64, length: u64) files::allocate;
        "fd_close" (fd: u32) files::close;
        "fd_datasync" (fd: u32) files::exists;
        "fd_sync" (fd: u32) files::exists;
        "fd_fdstat_get" (fd: u32, at: u32) files::state;
        "fd_fdstat_set_flags" (fd: u32, flags: u32) files::set_flags;
        "fd_fdstat_set_rights" (fd: u32, own: u64, inherited: u64)
            |g: &mut Guest<'_>, fd, _: u64, _: u64| files::exists(g, fd);
        "fd_filestat_get" (fd: u32, at: u32) files::status;
        "fd_filestat_set_size" (fd: u32, size: u64) files::set_size;
        "fd_filestat_set_times" (fd: u32, read: u64, written: u64, flags: u32)
            |g: &mut Guest<'_>, fd, _: u64, _: u64, _: u32| files::exists(g, fd);
        "fd_pread" (fd: u32, list: u32, count: u32, at: u64, told: u32) files::read_at;
        "fd_prestat_get" (fd: u32, at: u32) files::given_kind;
        "fd_prestat_dir_name" (fd: u32, at: u32, length: u32) files::given_name;
        "fd_pwrite" (fd: u32, list: u32, count: u32, at: u64, told: u32) files::write_at;
        "fd_read" (fd: u32, list: u32, count: u32, told: u32) files::read;
        "fd_readdir" (fd: u32, at: u32, room: u32, from: u64, told: u32) files::list;
        "fd_renumber" (from: u32, to: u32) files::renumber;
        "fd_seek" (fd: u32, by: i64, from: u32, told: u32) files::seek;
        "fd_tell" (fd: u32, told: u32) |g: &mut Guest<'_>, fd, told| files::seek(g, fd, 0, 1, told);
        "fd_write" (fd: u32, list: u32, count: u32, told: u32) files::write;
    }
    Ok(())
}

fn link_paths(linker: &mut Linker<Host>) -> Result<(), Error> {
    define! { linker;
        "path_create_directory" (fd: u32, at: u32, length: u32)
            |g: &mut Guest<'_>, fd, at, length| paths::create_directory(g, PathAt { fd, at, length });
        "path_filestat_get" (fd: u32, links: u32, at: u32, length: u32, told: u32)
            |g: &mut Guest<'_>, fd, _: u32, at, length, told| paths::status(g, PathAt { fd, at, length }, told);
        "path_filestat_set_times" (fd: u32, links: u32, at: u32, length: u32, read: u64, written: u64, flags: u32)
            |g: &mut Guest<'_>, fd, _: u32, at, length, _: u64, _: u64, _: u32| {
                paths::exists(g, PathAt { fd, at, length })
            };
        "path_open" (fd: u32, links: u32, at: u32, length: u32, how: u32, rights: u64, passed: u64, flags: u32, told: u32)
            |g: &mut Guest<'_>, fd, _: u32, at, length, how, rights, _: u64, flags, told| {
                paths::open(g, PathAt { fd, at, length }, how, rights, flags, told)
            };
        "path_readlink" (fd: u32, at: u32, length: u32, to: u32, room: u32, told: u32)
            |g: &mut Guest<'_>, fd, at, length, _: u32, _: u32, _: u32| paths::read_link(g, PathAt { fd, at, length });
        "path_remove_directory" (fd: u32, at: u32, length: u32)
            |g: &mut Guest<'_>, fd, at, length| paths::remove_directory(g, PathAt { fd, at, length });
        "path_rename" (fd: u32, at: u32, length: u32, to_fd: u32, to_at: u32, to_length: u32)
            |g: &mut Guest<'_>, fd, at, length, to_fd, to_at, to_length| {
                paths::rename(g, PathAt { fd, at, length }, PathAt { fd: to_fd, at: to_at, length: to_length })
            };
        "path_unlink_file" (fd: u32, at: u32, length: u32)
            |g: &mut Guest<'_>, fd, at, length| paths::unlink(g, PathAt { fd, at, length });
    }
    Ok(())
}

/// What programs may try and cannot do here: links, signals and sockets.
fn link_absent(linker: &mut Linker<Host>) -> Result<(), Error> {
    define! { linker;
        "path_link" (fd: u32, links: u32, at: u32, length: u32, to_fd: u32, to_at: u32, to_length: u32)
            |_: &mut Guest<'_>, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32| Err(Errno::NotSupported);
        "path_symlink" (at: u32, length: u32, fd: u32, to_at: u32, to_length: u32)
            |_: &mut Guest<'_>, _: u32, _: u32, _: u32, _: u32, _: u32| Err(Errno::NotSupported);
        "proc_raise" (signal: u32) |_: &mut Guest<'_>, _: u32| Err(Errno::NoSystem);
        "sock_accept" (fd: u32, flags: u32, told: u32)
            |_: &mut Guest<'_>, _: u32, _: u32, _: u32| Err(Errno::NoSystem);
        "sock_recv" (fd: u32, list: u32, count: u32, flags: u32, told: u32, kept: u32)
            |_: &mut Guest<'_>, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32| Err(Errno::NoSystem);
        "sock_send" (fd: u32, list: u32, count: u32, flags: u32, told: u32)
            |_: &mut Guest<'_>, _: u32, _: u32, _: u32, _: u32, _: u32| Err(Errno::NoSystem);
        "sock_shutdown" (fd: u32, how: u32) |_: &mut Guest<'_>, _: u32, _: u32| Err(Errno::NoSystem);
    }
    Ok(())
}
