# shellcheck shell=bash
# What the scripts share. Sourced; installs what a bare Debian lacks.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
# Servers such as haproxy are installed where only root looks.
export PATH=$PATH:/usr/sbin

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

# need SCRIPT: installs the packages of those programs that SCRIPT needs, by scripts/programs, and that are missing.
need() {
    local programs bringers users name
    local -a names brought missing=()
    while read -r programs bringers users; do
        [[ -n $programs && $programs != '#'* && $bringers != - ]] || continue
        [[ $users == all || ,$users, == *,"$1",* ]] || continue
        IFS=, read -ra names <<<"$programs"
        IFS=, read -ra brought <<<"$bringers"
        for name in "${names[@]}"; do
            command -v "$name" >/dev/null || missing+=("${brought[@]}")
        done
    done <scripts/programs
    [ ${#missing[@]} -eq 0 ] || packages "${missing[@]}"
}

# need_certificates: what HTTPS is checked against.
need_certificates() {
    [ -e /etc/ssl/certs/ca-certificates.crt ] || packages ca-certificates
}

# need_toolchain: what every build needs besides a C compiler.
need_toolchain() {
    if ! command -v cargo >/dev/null && [ -f "$HOME/.cargo/env" ]; then
        # shellcheck source=/dev/null
        . "$HOME/.cargo/env"
    fi
    command -v cargo >/dev/null || fail "there is no cargo: install a Rust toolchain from https://rustup.rs"
}
