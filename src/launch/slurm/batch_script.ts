/** The text of batch scripts. Pure: settings in, text out. */
import type { Resources } from './jobs.js';

/** What every job of a submission has. */
interface Job {
  readonly name: string;
  /** Absolute folder that the job works in: relative paths of the config count from it. */
  readonly cwd: string;
  /** File for what the job prints, in sbatch's notation. */
  readonly output: string;
  readonly account: string | null;
  readonly partition: string | null;
  readonly resources: Resources;
  readonly signalBeforeS: number;
  /** Such as `afterok:12_0:12_1`; null for none. */
  readonly dependency: string | null;
}

export interface ArrayJob extends Job {
  /** Number of tasks. */
  readonly tasks: number;
  /** At most this many tasks run at once; null means as many as fit. */
  readonly maxParallel: number | null;
  /** The program that runs one task: it is called with the file of cells and the task's index. */
  readonly program: readonly string[];
  /** Absolute path of the file of cells. */
  readonly cells: string;
}

export interface JudgeJob extends Job {
  readonly command: readonly string[];
  /** Absolute path of the file that gets the node's name. */
  readonly nodeFile: string;
}

/** The signal that Slurm sends before the time limit. */
const WARNING = 'USR1';

/**
 * Runs one cell per task. On the warning the cell is asked to stop, which it does after a checkpoint (exit code 130), and the task
 * puts itself back into the queue. On SIGTERM the cell stops in the same way, and the task ends.
 */
export function arrayScript(job: ArrayJob): string {
  const array = `0-${job.tasks - 1}${job.maxParallel === null ? '' : `%${job.maxParallel}`}`;
  return `#!/bin/bash
${directives(job, [`--array=${array}`])}

requeue=
child=
ask_to_stop() { [[ -z "$child" ]] || kill -TERM "$child" 2>/dev/null; }
trap 'requeue=yes; ask_to_stop' ${WARNING}
trap ask_to_stop TERM

echo "Slurm job \${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID} on $(hostname), start \${SLURM_RESTART_COUNT:-0}"
${words([...job.program, job.cells])} "$SLURM_ARRAY_TASK_ID" &
${waitForChild}

if [[ -n "$requeue" && "$code" == 130 ]]; then
  echo 'the time limit is near: checkpointed, back into the queue'
  # Slurm ends this script as soon as it has put the task back.
  scontrol requeue "\${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID}" && sleep 300
fi
exit "$code"
`;
}

/** Serves a judge, and says in a file on which node. Near its time limit it goes back into the queue too. */
export function judgeScript(job: JudgeJob): string {
  return `#!/bin/bash
${directives(job, [])}

node_file=${word(job.nodeFile)}
requeue=
child=
ask_to_stop() { [[ -z "$child" ]] || kill -TERM "$child" 2>/dev/null; }
trap 'requeue=yes; ask_to_stop' ${WARNING}
trap ask_to_stop TERM

# A reader finds no file, or a whole one.
hostname >"$node_file.$SLURM_JOB_ID"
mv "$node_file.$SLURM_JOB_ID" "$node_file"
${words(job.command)} &
${waitForChild}
rm -f "$node_file"

if [[ -n "$requeue" ]]; then
  scontrol requeue "$SLURM_JOB_ID" && sleep 300
fi
exit "$code"
`;
}

/** Ends a judge once nothing needs it any more. */
export function farewellScript(job: Job, judge: string): string {
  return `#!/bin/bash
${directives(job, [])}

scancel --batch --signal=TERM ${word(judge)} || true
sleep 1
scancel ${word(judge)} || true
`;
}

/** A signal cuts \`wait\` short; only the last one has the child's own exit code. */
const waitForChild = `child=$!
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
    // A job that waits for one that failed would wait for ever.
    '--kill-on-invalid-dep=yes',
    ...resources.extra,
  ];
  return flags.map((flag) => `#SBATCH ${directive(flag)}`).join('\n');
}

/** sbatch reads a directive's words as a shell does, without expanding anything. */
function directive(flag: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(flag) ? flag : `"${flag.replace(/["\\]/g, '\\$&')}"`;
}

/** One word for the shell. */
export function word(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function words(texts: readonly string[]): string {
  return texts.map(word).join(' ');
}

/** A path in which sbatch replaces nothing. */
export function literalPath(path: string): string {
  return path.replaceAll('%', '%%');
}
