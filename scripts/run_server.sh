#!/usr/bin/env bash
# Starts several reward servers and keeps them together: free ports, one log each, a list of their addresses; Ctrl-C stops them all.
#
#   scripts/run_server.sh --terms ocr_confidence=0.6,align_quality=0.4 --endpoint http://127.0.0.1:4877
#   COUNT=4 scripts/run_server.sh --config configs/my_run.jsonnet
#
# COUNT    how many; default: one for each GPU in CUDA_VISIBLE_DEVICES, each seeing its own; else 1
# OUT      the folder for server_0.log, ... and urls.txt (one address a line, whole once all are ready); default: reward_servers
# WAIT_S   how long the servers may take to get ready, in seconds; default: 7200 (a judge may still be loading)
# EDITRL   the command; default: node with the built command line of this checkout
# All arguments go to `editrl reward-server`; the port is its own choice, so that no two of them want the same.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${OUT:-reward_servers}
wait_s=${WAIT_S:-7200}
read -r -a editrl <<<"${EDITRL:-node $root/dist/src/cli/main.js}"

devices=()
if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then IFS=, read -r -a devices <<<"$CUDA_VISIBLE_DEVICES"; fi
count=${COUNT:-${#devices[@]}}
if [[ ! $count =~ ^[0-9]+$ ]]; then
  echo "run_server.sh: COUNT is '$count'; allowed: a whole number" >&2
  exit 2
fi
if ((count == 0)); then count=1; fi

mkdir -p "$out"
rm -f "$out"/urls.txt "$out"/server_*.url
pids=()

stop() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -f "$out"/urls.txt "$out"/server_*.url
}
trap stop EXIT
trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM

for ((i = 0; i < count; i++)); do
  if ((${#devices[@]} > 0)); then export CUDA_VISIBLE_DEVICES=${devices[i % ${#devices[@]}]}; fi
  "${editrl[@]}" reward-server "$@" --port 0 --url-file "$out/server_$i.url" >"$out/server_$i.log" 2>&1 &
  pids+=("$!")
done

# Fails as soon as a server ends, with the last lines of its log.
check() {
  local i
  for ((i = 0; i < count; i++)); do
    if kill -0 "${pids[i]}" 2>/dev/null; then continue; fi
    local code=0
    wait "${pids[i]}" || code=$?
    echo "run_server.sh: server $i ended with code $code; the end of $out/server_$i.log:" >&2
    tail -n 5 "$out/server_$i.log" >&2
    exit $((code == 0 ? 1 : code))
  done
}

deadline=$((SECONDS + wait_s))
for ((i = 0; i < count; i++)); do
  until [[ -s $out/server_$i.url ]]; do
    check
    if ((SECONDS >= deadline)); then
      echo "run_server.sh: server $i is not ready after $wait_s s; see $out/server_$i.log" >&2
      exit 3
    fi
    sleep 0.2
  done
done

for ((i = 0; i < count; i++)); do cat "$out/server_$i.url"; done >"$out/urls.txt.part"
mv "$out/urls.txt.part" "$out/urls.txt"
echo "$count reward servers are ready; their addresses are in $out/urls.txt. Ctrl-C stops them."
cat "$out/urls.txt"

while true; do
  check
  # In the background, so that a signal is not kept waiting.
  sleep 1 &
  wait $! || true
done
