/** Generates batch scripts. Pure: settings in, text out. */
import { shellQuote } from '../../core/process.js';
import type { Resources } from './jobs.js';

/** Settings of every job of a submission. */
interface Job {
  readonly name: string;
  /** Absolute working folder of the job. Relative paths in the config are resolved against it. */
  readonly cwd: string;
  /** File for the job's output, in sbatch's notation. */
  readonly output: string;
  readonly account: string | null;
  readonly partition: string | null;
  readonly resources: Resources;
  readonly signalBeforeS: number;
  /** A dependency such as `afterok:12_0:12_1`. Null for none. */
  readonly dependency: string | null;
}

export interface ArrayJob extends Job {
  /** Number of tasks. */
  readonly tasks: number;
  /** Maximum number of tasks at once. Null for as many as fit. */
  readonly maxParallel: number | null;
  /** The program of one task. Its arguments are the file of cells and the task's index. */
  readonly program: readonly string[];
  /** Absolute path of the file of cells. */
  readonly cells: string;
}

/** The signal that Slurm sends before the time limit. */
const WARNING = 'USR1';

/** Forwards signals to the script's child. Signals that arrive before there is a child are forwarded later. */
const TRAPS = `requeue=
asked=
child=
ask_to_stop() { asked=yes; [[ -z "$child" ]] || kill -TERM "$child" 2>/dev/null; }
trap 'requeue=yes; ask_to_stop' ${WARNING}
trap ask_to_stop TERM`;

/**
 * Runs one cell per task.
 * On the warning signal, the cell stops after a checkpoint (exit code 130) and the task requeues itself. On SIGTERM,
 * the cell stops in the same way and the task ends.
 */
export function arrayScript(job: ArrayJob): string {
  const array = `0-${job.tasks - 1}${job.maxParallel === null ? '' : `%${job.maxParallel}`}`;
  return `#!/bin/bash
${directives(job, [`--array=${array}`])}

${TRAPS}

echo "Slurm job \${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID} on $(hostname), start \${SLURM_RESTART_COUNT:-0}"
${shellWords([...job.program, job.cells])} "$SLURM_ARRAY_TASK_ID" &
${waitForChild}

# 143: the signal came before the cell handled signals, so there is nothing to save.
if [[ -n "$requeue" && ( "$code" == 130 || "$code" == 143 ) ]]; then
  echo 'the time limit is near: checkpointed, back into the queue'
  # Slurm ends this script as soon as it has put the task back.
  scontrol requeue "\${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID}" && sleep 300
fi
exit "$code"
`;
}

/**
 * Waits for the child. A signal interrupts `wait`, so only the last call returns the child's exit code. A child that
 * has just started would miss an earlier signal.
 */
const waitForChild = `child=$!
[[ -z "$asked" ]] || { sleep 1; ask_to_stop; }
wait "$child"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?`;

function directives(job: Job, more: readonly string[]): string {
  const { resources } = job;
  const optional: readonly (readonly [string, string | number | null])[] = [
    ['account', job.account],
    ['partition', job.partition],
    ['gres', resources.gres],
    ['cpus-per-task', resources.cpus_per_task],
    ['mem', resources.mem],
    ['dependency', job.dependency],
  ];
  const flags = [
    `--job-name=${job.name}`,
    ...more,
    '--nodes=1',
    '--ntasks=1',
    `--time=${resources.time}`,
    ...optional.flatMap(([name, value]) => (value === null ? [] : [`--${name}=${value}`])),
    `--chdir=${job.cwd}`,
    `--output=${job.output}`,
    '--open-mode=append',
    '--requeue',
    `--signal=B:${WARNING}@${job.signalBeforeS}`,
    // A job that depends on a failed one would otherwise wait forever.
    '--kill-on-invalid-dep=yes',
    ...resources.extra,
  ];
  return flags.map((flag) => `#SBATCH ${directive(flag)}`).join('\n');
}

/** Quotes a directive. sbatch splits its words like a shell, without expansion. */
function directive(flag: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(flag) ? flag : `"${flag.replace(/["\\]/g, '\\$&')}"`;
}

function shellWords(texts: readonly string[]): string {
  return texts.map(shellQuote).join(' ');
}

/** Escapes a path, so that sbatch replaces no patterns in it. */
export function literalPath(path: string): string {
  return path.replaceAll('%', '%%');
}
