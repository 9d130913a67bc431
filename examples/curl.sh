#!/usr/bin/env bash
# Loopgate with curl: a plain answer, a stream, a session, and a run in the background that is read twice.
#
#   loopgate serve                                  in another terminal
#   examples/curl.sh
#   MODEL=gpt-5-mini examples/curl.sh               if the server has OPENAI_API_KEY
#   LOOPGATE_URL=https://… LOOPGATE_KEY=… MODEL=… examples/curl.sh
set -euo pipefail

url=${LOOPGATE_URL-http://127.0.0.1:8080}
model=${MODEL-demo}
headers=(-H 'content-type: application/json')
[ -z "${LOOPGATE_KEY-}" ] || headers+=(-H "authorization: Bearer $LOOPGATE_KEY")

# post PATH BODY: sends a request; an error status ends the script, and shows what the server says.
post() { curl -sSN --fail-with-body "${headers[@]}" "$url$1" -d "$2" && echo; }
get() { curl -sSN --fail-with-body "${headers[@]}" "$url$1" && echo; }

echo "# One answer. The server has called its tool \`calculator\` before it answers."
post /v1/chat/completions '{"model": "'"$model"'", "messages": [{"role": "user", "content": "What is 1234 * 5678?"}]}'

echo "# The same as a stream with the events of the tools"
post /v1/agent/completions '{"model": "'"$model"'", "stream": true,
  "messages": [{"role": "user", "content": "What is 1234 * 5678?"}], "agent": {"include_report": false}}'

echo "# A session: the second request sends only what is new"
session=sess_curl_$$
post /v1/agent/completions '{"model": "'"$model"'", "agent": {"session_id": "'"$session"'"},
  "messages": [{"role": "user", "content": "My name is Ada."}]}'
post /v1/agent/completions '{"model": "'"$model"'", "agent": {"session_id": "'"$session"'"},
  "messages": [{"role": "user", "content": "What is my name?"}]}'
get "/v1/sessions/$session/messages"

echo "# A run in the background: the answer is its id, and its events can be read at any time"
accepted=$(post /v1/agent/completions '{"model": "'"$model"'", "agent": {"background": true},
  "messages": [{"role": "user", "content": "What is 6 * 7?"}]}')
echo "$accepted"
run=$(grep -o 'run_[0-9a-f]*' <<<"$accepted")
echo "# … from the beginning, until it ends"
get "/v1/runs/$run/events" | grep '^event'
echo "# … and what came after event 4"
get "/v1/runs/$run/events?after=4" | grep '^id'
