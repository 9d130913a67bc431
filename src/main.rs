//! The `loopgate` command.

/// Takes less time than the system's allocator, and returns the memory of large requests: `.cargo/config.toml` says
/// when.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    loopgate::cli::main()
}
