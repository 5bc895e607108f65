#!/usr/bin/env bash
# Serves Qwen2.5-VL as a judge with vLLM (0.12 or later), sized to the given GPUs.
#
#   scripts/serve_judge.sh                            one GPU, or the fewest that hold the model; training can use the others
#   scripts/serve_judge.sh --gpus 4 --memory 80       four GPUs of 80 GB
#   scripts/serve_judge.sh --node-file qwen_node.txt  also writes this host's name, for reward.endpoint.node_file
#   scripts/serve_judge.sh --gpus 8 --memory 80 --dry-run    only prints the command
#
# Without --model it chooses the largest model whose bfloat16 weights, caches and activations fit the GPUs: 72B from 173 GB of GPU
# memory, 32B from 90 GB, otherwise 7B. A model is split over the fewest GPUs that hold it (tensor parallel). The other GPUs hold further
# copies (data parallel), between which vLLM distributes requests.
#
# Options after -- go to vLLM unchanged. If VLLM_API_KEY is set, requests need this key (OPENAI_API_KEY for the run). Set it if other
# machines can reach the judge, as with --node-file.
set -euo pipefail

usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }
fail() {
  echo "serve_judge.sh: $1" >&2
  exit 2
}

gpus='' memory='' model='' port=4877 host='' node_file='' max_num_seqs=256 max_model_len=8192 dry_run=false
while (($# > 0)); do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --dry-run) dry_run=true; shift; continue ;;
    --) shift; break ;;
    --gpus | --memory | --model | --port | --host | --node-file | --max-num-seqs | --max-model-len)
      (($# > 1)) || fail "$1 needs a value"
      ;;
    *) fail "unknown option '$1'; --help lists them, and what is for vLLM goes after --" ;;
  esac
  case "$1" in
    --gpus) gpus=$2 ;;
    --memory) memory=$2 ;;
    --model) model=$2 ;;
    --port) port=$2 ;;
    --host) host=$2 ;;
    --node-file) node_file=$2 ;;
    --max-num-seqs) max_num_seqs=$2 ;;
    --max-model-len) max_model_len=$2 ;;
  esac
  shift 2
done

# The gigabytes that one copy needs.
need() {
  case "$1" in
    *-72B-*AWQ*) echo 48 ;;
    *-72B-*) echo 173 ;;
    *-32B-*) echo 90 ;;
    *-7B-*) echo 24 ;;
    *-3B-*) echo 16 ;;
    *) echo 0 ;;
  esac
}

if [[ -z $gpus || -z $memory ]]; then
  command -v nvidia-smi >/dev/null || fail 'there is no nvidia-smi here: say --gpus N and --memory GB (of one GPU)'
  # In MiB, one line for each GPU; the smallest decides.
  mapfile -t sizes < <(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | sort -n)
  ((${#sizes[@]} > 0)) || fail 'nvidia-smi lists no GPU'
  memory=${memory:-$((sizes[0] * 1048576 / 1000000000))}
  [[ $memory =~ ^[1-9][0-9]*$ ]] || fail "--memory $memory: should be the gigabytes of one GPU"
  if [[ -z $gpus ]]; then
    gpus=1
    least=$(need "${model:-Qwen/Qwen2.5-VL-7B-Instruct}")
    while ((gpus * memory < least && gpus * 2 <= ${#sizes[@]})); do gpus=$((gpus * 2)); done
  fi
fi
[[ $gpus =~ ^(1|2|4|8)$ ]] || fail "--gpus $gpus: a model is split over 1, 2, 4 or 8 GPUs"
[[ $memory =~ ^[1-9][0-9]*$ ]] || fail "--memory $memory: should be the gigabytes of one GPU"

if [[ -z $model ]]; then
  for model in Qwen/Qwen2.5-VL-{72B,32B,7B}-Instruct; do
    (($(need "$model") <= gpus * memory)) && break
  done
fi
needed=$(need "$model")
((needed <= gpus * memory)) || fail "$model needs about $needed GB, and $gpus x $memory GB are there"

# The smallest number of GPUs that holds one copy; an unknown model is split over all GPUs.
tensor=1
while ((tensor * memory < needed)); do tensor=$((tensor * 2)); done
((needed > 0)) || tensor=$gpus
data=$((gpus / tensor))

dtype=bfloat16
[[ $model == *AWQ* ]] && dtype=float16

# With --node-file, other machines can reach the server; otherwise only this machine can, unless --host is given.
host=${host:-$([[ -n $node_file ]] && echo 0.0.0.0 || echo 127.0.0.1)}
command=(
  vllm serve "$model"
  --host "$host" --port "$port"
  --dtype "$dtype"
  --tensor-parallel-size "$tensor"
  --max-model-len "$max_model_len"
  --max-num-seqs "$max_num_seqs"
  # A request has at most three images (reward term pairwise; two in all others); no memory is reserved for videos. An edit of several
  # images has one more than these in align_quality: if that is more than three, repeat this option after --.
  --limit-mm-per-prompt '{"image":3,"video":0}'
  # Requests set all sampling options themselves, so the checkpoint's near-greedy defaults are not used.
  --generation-config vllm
  # A JSON grammar allows white space without end, and some judges write it up to the token limit.
  --structured-outputs-config '{"backend":"xgrammar","disable_any_whitespace":true}'
)
# The vision encoder is small: each GPU runs all of it on its share of the images.
((tensor > 1)) && command+=(--mm-encoder-tp-mode data)
((data > 1)) && command+=(--data-parallel-size "$data")
command+=("$@")

if $dry_run; then
  printf '%q ' "${command[@]}"
  echo
  exit 0
fi
case "$host" in
  localhost | ::1 | 127.*) ;;
  *)
    key=${VLLM_API_KEY:-}
    ((${#key} >= 16)) || fail "other machines can reach $host, so callers need a key of at least 16 characters: \
export VLLM_API_KEY=\$(openssl rand -hex 32), and the same as OPENAI_API_KEY where the run is"
    # The key is passed in the environment, since every user of the machine can read arguments.
    export VLLM_API_KEY
    ;;
esac
command -v vllm >/dev/null || fail 'there is no vllm here: pip install vllm'

if [[ -n $node_file ]]; then
  # The file appears complete, since a run may be waiting for it.
  hostname >"$node_file.$$"
  mv "$node_file.$$" "$node_file"
  trap 'rm -f "$node_file"' EXIT
fi
"${command[@]}" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null || true' TERM INT
# A signal ends the first wait; the second one waits for the server to end.
wait "$server" || wait "$server"
