# shellcheck shell=bash
# The clients, generators and checkers that tests/sdk uses, in the versions that stand there. Sourced.

# need_clients: installs them under target, once for each set of versions.
need_clients() {
    local sdk
    sdk=$(realpath -m "${CARGO_TARGET_DIR:-target}")/sdk
    export LOOPGATE_TEST_PYTHON=$sdk/python/bin/python
    export LOOPGATE_TEST_NODE_MODULES=$sdk/node/node_modules
    if cat tests/sdk/requirements.txt tests/sdk/interpreters.txt tests/sdk/package.json | cmp -s - "$sdk/versions"; then
        return
    fi
    say "Installing the clients of tests/sdk (once)"
    python3 -c 'import ensurepip' 2>/dev/null || packages python3-venv
    rm -rf "$sdk"
    mkdir -p "$sdk/node"
    python3 -m venv "$sdk/python"
    "$LOOPGATE_TEST_PYTHON" -m pip install --quiet --disable-pip-version-check -r tests/sdk/requirements.txt
    # Of this package only the WebAssembly modules are used, so nothing that it depends on.
    "$LOOPGATE_TEST_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/sdk/interpreters.txt
    cp tests/sdk/package.json "$sdk/node/"
    npm install --prefix "$sdk/node" --silent --no-audit --no-fund
    cat tests/sdk/requirements.txt tests/sdk/interpreters.txt tests/sdk/package.json >"$sdk/versions"
}

# need_command_lines: installs the coding agents that are driven in a terminal, once for each set of versions. They take
# 320 MB, so only scripts/prove has them.
need_command_lines() {
    local place
    place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/command-lines
    command_lines=$place/node_modules/.bin
    if cmp -s tests/sdk/command_lines/package.json "$place/package.json" && [ -x "$command_lines/claude" ]; then
        return
    fi
    say "Installing Codex and Claude Code (once)"
    rm -rf "$place"
    mkdir -p "$place"
    cp tests/sdk/command_lines/package.json "$place/"
    npm install --prefix "$place" --silent --no-audit --no-fund
}
