import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { arrayScript, literalPath, type ArrayJob } from '../../../src/launch/slurm/submit.js';

const dir = mkdtempSync(join(tmpdir(), 'editrl-batch-'));
afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
});

const job: ArrayJob = {
  name: 'table-20260101T000000_7-0',
  cwd: '/home/me/a b',
  output: '/runs/.slurm/x/array_0_%a.log',
  account: 'lab',
  partition: null,
  resources: {
    time: '04:00:00',
    gres: 'gpu:2',
    cpus_per_task: 8,
    mem: '64G',
    extra: ['--qos=long', '--comment=a "b"'],
  },
  signalBeforeS: 120,
  dependency: 'afterok:12_0,after:11',
  tasks: 6,
  maxParallel: 2,
  program: ['/opt/node', "/it's/main.js", 'cell'],
  cells: '/runs/.slurm/x/cells_0.jsonl',
};

function directives(script: string): string[] {
  return script.split('\n').flatMap((line) => (line.startsWith('#SBATCH ') ? [line.slice(8)] : []));
}

/** Runs a script as Slurm would; `signal` goes to the script alone once the child says that it is there. */
function play(child: string, signal: 'USR1' | 'TERM' | null): { code: number | null; out: string } {
  writeFileSync(join(dir, 'child.sh'), child);
  const script = arrayScript({ ...job, program: ['bash', join(dir, 'child.sh')] });
  writeFileSync(join(dir, 'script.sh'), script);
  const requeued = 'scontrol() { echo "scontrol $*"; return 1; }; export -f scontrol';
  const send = signal === null ? '' : `(until [ -e ready ]; do sleep 0.02; done; kill -${signal} $pid) &`;
  const driver = `${requeued}; rm -f ready; bash script.sh & pid=$!; ${send} wait $pid; exit $?`;
  const played = spawnSync('bash', ['-c', driver], {
    cwd: dir,
    encoding: 'utf8',
    env: { ...process.env, SLURM_ARRAY_JOB_ID: '12', SLURM_ARRAY_TASK_ID: '3' },
  });
  return { code: played.status, out: played.stdout };
}

/** Checkpoints when it is asked to stop. */
const STOPS = 'trap "echo checkpoint; exit 130" TERM; touch ready; while true; do sleep 0.02; done';

describe('the script of an array', () => {
  it('asks for what the settings say, quoted as sbatch reads it', () => {
    expect(directives(arrayScript(job))).toEqual([
      '--job-name=table-20260101T000000_7-0',
      '--array=0-5%2',
      '--nodes=1',
      '--ntasks=1',
      '--time=04:00:00',
      '--account=lab',
      '--gres=gpu:2',
      '--cpus-per-task=8',
      '--mem=64G',
      '--dependency=afterok:12_0,after:11',
      '"--chdir=/home/me/a b"',
      '--output=/runs/.slurm/x/array_0_%a.log',
      '--open-mode=append',
      '--requeue',
      '--signal=B:USR1@120',
      '--kill-on-invalid-dep=yes',
      '--qos=long',
      '"--comment=a \\"b\\""',
    ]);
    expect(arrayScript(job)).toContain(
      `/opt/node '/it'\\''s/main.js' cell /runs/.slurm/x/cells_0.jsonl "$SLURM_ARRAY_TASK_ID" &`,
    );
    expect(literalPath('/runs/100%')).toBe('/runs/100%%');
  });

  it('ends as its cell does', () => {
    expect(play('echo "$@"; exit 0', null)).toMatchObject({
      code: 0,
      out: expect.stringContaining('/runs/.slurm/x/cells_0.jsonl 3\n') as string,
    });
    expect(play('exit 3', null).code).toBe(3);
  });

  it('lets the cell checkpoint before the time limit, then goes back into the queue', () => {
    const { code, out } = play(STOPS, 'USR1');
    expect(out).toContain('checkpoint\n');
    expect(out).toContain('scontrol requeue 12_3\n');
    expect(code).toBe(130);
  });

  it('goes back into the queue when the signal came before the cell handled signals', () => {
    const { code, out } = play('touch ready; exec sleep 60', 'USR1');
    expect(out).toContain('scontrol requeue 12_3\n');
    expect(code).toBe(143);
  });

  it('keeps a warning that comes before there is a cell', () => {
    const script = arrayScript({ ...job, program: ['bash', join(dir, 'child.sh')] });
    const early = script.replace('echo "Slurm', () => 'kill -USR1 $$; echo "Slurm');
    writeFileSync(join(dir, 'child.sh'), 'exec sleep 60');
    writeFileSync(join(dir, 'early.sh'), early);
    const env = { ...process.env, SLURM_ARRAY_JOB_ID: '12', SLURM_ARRAY_TASK_ID: '3' };
    const driver = 'scontrol() { echo "scontrol $*"; return 1; }; export -f scontrol; exec bash early.sh';
    const played = spawnSync('bash', ['-c', driver], { cwd: dir, encoding: 'utf8', env });
    expect(played.stdout).toContain('scontrol requeue 12_3\n');
  });

  it('stays out of the queue when the cell finished or failed meanwhile', () => {
    expect(play(STOPS.replace('exit 130', 'exit 0'), 'USR1')).toEqual({
      code: 0,
      out: expect.not.stringContaining('scontrol') as string,
    });
    expect(play(STOPS.replace('exit 130', 'exit 1'), 'USR1')).toEqual({
      code: 1,
      out: expect.not.stringContaining('scontrol') as string,
    });
  });

  it('checkpoints and ends when it is asked to stop', () => {
    const { code, out } = play(STOPS, 'TERM');
    expect(out).toContain('checkpoint\n');
    expect(out).not.toContain('scontrol');
    expect(code).toBe(130);
  });
});
