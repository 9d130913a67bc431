# shellcheck shell=bash
# What scripts/run and scripts/test share. Sourced; installs what a bare Debian lacks.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "this needs root or sudo: $*"
    fi
}

# packages NAME…: installs Debian packages.
packages() {
    command -v apt-get >/dev/null || fail "install these yourself, there is no apt-get here: $*"
    say "Installing $*"
    if [ -z "${packages_are_listed-}" ]; then
        as_root apt-get update -qq
        packages_are_listed=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need COMMAND PACKAGE…: installs the packages unless the command is there.
need() {
    local command=$1
    shift
    command -v "$command" >/dev/null || packages "$@"
}

# What every build needs.
need_toolchain() {
    if ! command -v cargo >/dev/null && [ -f "$HOME/.cargo/env" ]; then
        # shellcheck source=/dev/null
        . "$HOME/.cargo/env"
    fi
    command -v cargo >/dev/null || fail "there is no cargo: install a Rust toolchain from https://rustup.rs"
    need cc gcc libc6-dev
}
