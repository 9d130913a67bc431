//! The `loopgate` command.

fn main() -> std::process::ExitCode {
    loopgate::cli::main()
}
