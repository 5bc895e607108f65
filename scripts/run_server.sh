#!/usr/bin/env bash
# Starts several reward servers and supervises them: free ports, one log each, and a list of their addresses. A server that ends is restarted
# at its address; Ctrl-C stops all of them.
#
#   scripts/run_server.sh --terms ocr_confidence=0.6,align_quality=0.4 --endpoint http://127.0.0.1:4877
#   COUNT=4 scripts/run_server.sh --config configs/my_run.jsonnet
#
# COUNT    the number of servers; default: one for each GPU in CUDA_VISIBLE_DEVICES, and each server uses only its GPU; otherwise 1
# OUT      the folder for server_0.log, ... and urls.txt (one address per line, written when all are ready); default: reward_servers
# WAIT_S   the most seconds until the servers are ready; default: 7200 (a judge may still be loading)
# EDITRL   the command; default: node with the built command line of this checkout
# All arguments are passed to `editrl serve rewards`. Each server chooses its own port, so that no two conflict.
set -euo pipefail

usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  usage
  exit 0
fi
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
begun=()
failures=()

stop() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -f "$out"/urls.txt "$out"/server_*.url
}
trap stop EXIT
trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM

# launch SERVER PORT ARGUMENT...
launch() {
  local i=$1 port=$2
  shift 2
  if ((${#devices[@]} > 0)); then export CUDA_VISIBLE_DEVICES=${devices[i % ${#devices[@]}]}; fi
  "${editrl[@]}" serve rewards "$@" --port "$port" --url-file "$out/server_$i.url" >>"$out/server_$i.log" 2>&1 &
  pids[i]=$!
  begun[i]=$SECONDS
}

for ((i = 0; i < count; i++)); do
  : >"$out/server_$i.log"
  failures[i]=0
  launch "$i" 0 "$@"
done

# ended SERVER: whether the server has ended; sets `code`. It must run in this shell, since a subshell cannot wait for the code.
ended() {
  if kill -0 "${pids[$1]}" 2>/dev/null; then return 1; fi
  code=0
  wait "${pids[$1]}" || code=$?
}

# give_up SERVER CODE: ends with the last lines of its log.
give_up() {
  echo "run_server.sh: server $1 ended with code $2; the end of $out/server_$1.log:" >&2
  tail -n 5 "$out/server_$1.log" >&2
  exit $(($2 == 0 ? 1 : $2))
}

# Fails as soon as a server ends.
check() {
  local i code
  for ((i = 0; i < count; i++)); do
    if ended "$i"; then give_up "$i" "$code"; fi
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

# A server that ends `most` times in a row within `soon_s` seconds of its start does not work.
most=5
soon_s=10

# Restarts the servers that have ended, at their addresses in the list.
replace() {
  local i code port
  for ((i = 0; i < count; i++)); do
    if ! ended "$i"; then continue; fi
    if ((SECONDS - begun[i] < soon_s)); then failures[i]=$((failures[i] + 1)); else failures[i]=1; fi
    if ((failures[i] >= most)); then give_up "$i" "$code"; fi
    port=$(sed -n "$((i + 1))p" "$out/urls.txt")
    echo "run_server.sh: server $i ended with code $code and restarts" >&2
    launch "$i" "${port##*:}" "$@"
  done
}

while true; do
  replace "$@"
  # Sleeps in the background, so that a signal is handled at once.
  sleep 1 &
  wait $! || true
done
