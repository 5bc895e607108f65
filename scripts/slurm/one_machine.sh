#!/usr/bin/env bash
# A Slurm of one machine, for tests: all of its files are in one folder, its daemons listen on loopback only, and it
# does not touch another Slurm of this machine. Needs root, and Debian's slurm-wlm and munge (no systemd).
#
#   scripts/slurm/one_machine.sh start DIR    prints the path of its slurm.conf; export it as SLURM_CONF
#   scripts/slurm/one_machine.sh stop DIR     ends the jobs and the daemons, by the process ids in DIR
#
# PORT (default 16817) is slurmctld's; slurmd takes the next one.
set -euo pipefail

export PATH="$PATH:/usr/sbin:/sbin"
usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
[[ $# == 2 ]] || usage
action="$1"
dir="$(realpath -m "$2")"
port="${PORT:-16817}"
export SLURM_CONF="$dir/slurm.conf"

write_config() {
  local host
  host="$(hostname -s)"
  mkdir -p "$dir"/{log,state,spool}
  # Any device file can stand for a GPU, since nothing opens it.
  ln -sf /dev/null "$dir/gpu0"
  ln -sf /dev/zero "$dir/gpu1"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=editrl_test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,defer_batch,bf_interval=1,requeue_delay=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
# squeue forgets finished jobs after this many seconds; tests query them shortly after they end.
MinJobAge=300
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=4096 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  cat >"$dir/gres.conf" <<CONF
NodeName=$host Name=gpu File=$dir/gpu[0-1]
CONF
}

start() {
  write_config
  head -c 128 /dev/urandom >"$dir/munge.key"
  chmod 700 "$dir"
  chmod 600 "$dir/munge.key"
  munged --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed" --force 2>>"$dir/log/start.log"
  slurmctld -c 2>>"$dir/log/start.log"
  slurmd 2>>"$dir/log/start.log"
  for _ in $(seq 200); do
    if [[ "$(sinfo --noheader --format=%T 2>/dev/null)" == idle ]]; then
      echo "$SLURM_CONF"
      return
    fi
    sleep 0.1
  done
  echo "the Slurm in $dir did not start:" >&2
  tail -n 20 "$dir"/log/*.log >&2
  stop
  exit 1
}

# Ends the process that a pid file names, and waits until it is gone.
end() {
  local pid
  [[ -s "$dir/$1.pid" ]] || return 0
  pid="$(cat "$dir/$1.pid")"
  kill -TERM "$pid" 2>/dev/null || return 0
  for _ in $(seq 100); do
    [[ -d "/proc/$pid" && "$(sed -n 's/^State:\s*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)" != Z ]] || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

stop() {
  if [[ -s "$dir/slurmctld.pid" ]]; then
    scancel --user=root --full --signal=KILL 2>/dev/null || true
    scancel --user=root 2>/dev/null || true
    for _ in $(seq 50); do
      [[ -n "$(squeue --noheader --states=RUNNING,COMPLETING 2>/dev/null)" ]] || break
      sleep 0.1
    done
  fi
  end slurmd
  end slurmctld
  end munged
}

case "$action" in
  start) start ;;
  stop) stop ;;
  *) usage ;;
esac
