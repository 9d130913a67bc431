#!/usr/bin/env bash
# The client of a published conformance scenario: uses the scenario's server through the command line of Loopgate.
# usage: conformance.sh LOOPGATE DIRECTORY SCENARIO URL
set -eu
loopgate=$1 directory=$2 scenario=$3 url=$4
cd "$directory"
printf '[mcp.test]\nurl = "%s"\n' "$url" >loopgate.toml
case $scenario in
initialize) "$loopgate" tools list 'test__*' ;;
tools_call) "$loopgate" tools call test__add_numbers '{"a": 5, "b": 3}' ;;
sse-retry) "$loopgate" tools call test__test_reconnection ;;
*) printf 'no way is known to play %s\n' "$scenario" >&2 && exit 2 ;;
esac
