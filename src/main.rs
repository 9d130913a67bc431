//! The `loopgate` command.

fn main() {}
