import { existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { SlurmRun } from '../../src/launch/slurm/jobs.js';
import { describeJob, reconcile, reconcileState, stopJobs, type SlurmJob } from '../../src/launch/slurm/queue.js';
import { submitCells, type SubmitOptions, type Submitted } from '../../src/launch/slurm/submit.js';
import { RunPaths } from '../../src/run/paths.js';
import { readState } from '../../src/run/state.js';
import { externalRun, type Requested } from '../launch/slurm/support.js';
import { Place, ROOT, until } from './editrl.js';
import { slurmObstacle, TestSlurm } from './slurm_setup.js';

/**
 * A trainer that counts to 6. At iteration 3 it waits for its gate; asked to stop, it saves where it is. What it does is in its own
 * hands, so that a test sees every iteration that was repeated or lost.
 */
const TRAINER = `
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
const { EDITRL_METRICS, EDITRL_CHECKPOINTS, GATE, FAIL } = process.env;
const saved = EDITRL_CHECKPOINTS + '/iteration';
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let at = existsSync(saved) ? Number(readFileSync(saved, 'utf8')) : 0;
let stopped = false;
process.on('SIGTERM', () => (stopped = true));
if (FAIL !== undefined && existsSync(FAIL)) { console.error('told to fail'); process.exit(7); }
console.log('from ' + at);
while (at < 6 && !stopped) {
  if (at === 3 && GATE !== undefined && !existsSync(GATE)) { await sleep(20); continue; }
  at++;
  appendFileSync(EDITRL_METRICS, JSON.stringify({ iteration: at, loss: 1 / at }) + '\\n');
  writeFileSync(saved, String(at));
  await sleep(10);
}
process.exit(stopped && at < 6 ? 130 : 0);
`;

const obstacle = slurmObstacle();
if (obstacle !== null) console.warn(`the Slurm tests are skipped: ${obstacle}`);

describe.skipIf(obstacle !== null)('runs on Slurm', () => {
  let slurm: TestSlurm;
  let place: Place;
  beforeAll(() => {
    slurm = TestSlurm.start();
    place = Place.make();
    writeFileSync(join(place.dir, 'trainer.mjs'), TRAINER);
  });
  afterEach(() => {
    slurm.cancelAll();
  });
  afterAll(() => {
    slurm.stop();
    place.remove();
  });

  const file = (name: string): string => join(place.dir, name);
  const run = (name: string, asked: Requested & { gate?: string; fail?: string } = {}): SlurmRun => {
    const env = {
      ...(asked.gate === undefined ? {} : { GATE: file(asked.gate) }),
      ...(asked.fail === undefined ? {} : { FAIL: file(asked.fail) }),
    };
    const launch = { command: [process.execPath, file('trainer.mjs')], env, ...asked.launch };
    return externalRun(name, { base: place.runs, num_iterations: 6, ...asked, launch });
  };
  const open = (gate: string): void => {
    writeFileSync(file(gate), '');
  };
  const submit = (
    cells: readonly SlurmRun[],
    parents: readonly SlurmRun[] = [],
    more: Partial<SubmitOptions> = {},
  ): Promise<Submitted> => {
    const program = [process.execPath, join(ROOT, 'dist/src/cli/main.js')];
    return submitCells(cells, parents, { program, name: 'test', ...more });
  };
  const iterations = (name: string): number[] => place.metrics(name).map((line) => line.iteration);
  const atGate = (name: string): Promise<void> =>
    until(`${name} waits at its gate`, () => iterations(name).includes(3));
  const task = ({ arrays }: Submitted, name: string): string => {
    const array = arrays.find(({ runs }) => runs.includes(name));
    return `${array?.job_id ?? '?'}_${array?.runs.indexOf(name) ?? -1}`;
  };
  const stateNow = async (name: string): Promise<ReturnType<typeof reconcileState>> => {
    const job = (await reconcile(place.runs)).get(name);
    if (job === undefined) throw new Error(`${name} was never submitted`);
    return reconcileState(readState(new RunPaths(place.runs, name)), job);
  };
  const expectWhole = (name: string, attempts: number): void => {
    expect(place.state(name), slurmLog(name)).toMatchObject({ state: 'finished', iteration: 6 });
    expect(iterations(name)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(place.attempts(name)).toBe(attempts);
    expect(existsSync(join(place.run(name), 'lock.json'))).toBe(false);
  };
  /** While a job goes back into the queue, Slurm can show it as ended for a moment. */
  const finishes = async (name: string): Promise<void> => {
    try {
      await slurm.until(`${name} is finished`, () => place.state(name)?.state === 'finished', { hurry: true });
    } catch (cause) {
      throw new Error(`${name} did not finish; its log:\n${slurmLog(name)}`, { cause });
    }
  };
  const slurmLog = (name: string): string => {
    const log = join(place.run(name), 'logs/slurm.log');
    return existsSync(log) ? readFileSync(log, 'utf8') : 'no slurm.log';
  };

  it('are arrays by what they ask for, children wait for their parents, and nothing is submitted twice', async () => {
    const start = run('start', { gate: 'start' });
    const cells = [
      run('a', { parents: ['start'] }),
      run('gpu', { slurm: { gres: 'gpu:1', extra: ['--comment=a word'] } }),
      run('b', { parents: ['start'] }),
    ];
    const first = await submit(cells, [start]);
    expect(first.arrays.map(({ runs }) => runs)).toEqual([['start'], ['gpu'], ['a', 'b']]);
    await atGate('start');
    expect(slurm.task(task(first, 'b'))).toMatchObject({ state: 'PENDING', reason: 'Dependency' });
    expect(place.state('b')).toMatchObject({ state: 'queued', reason: `Slurm job ${task(first, 'b')}` });
    expect(await stateNow('b')).toEqual({ state: 'queued', reason: `Slurm ${task(first, 'b')} pending (Dependency)` });
    expect(describeJob((await reconcile(place.runs)).get('start') as SlurmJob)).toBe(
      `Slurm ${task(first, 'start')} on ${slurm.node}`,
    );

    const again = await submit(cells, [start]);
    expect(again).toMatchObject({ dir: null, arrays: [] });
    expect([...again.finished, ...again.underWay.map(({ run_name }) => run_name)].sort()).toEqual([
      'a',
      'b',
      'gpu',
      'start',
    ]);

    open('start');
    await slurm.idle();
    for (const name of ['start', 'a', 'b', 'gpu']) expectWhole(name, 1);
    expect(slurmLog('a')).toContain(`Slurm job ${task(first, 'a')} on ${hostname()}, start 0\n`);
    expect(await submit(cells, [start])).toMatchObject({
      dir: null,
      finished: ['start', 'a', 'gpu', 'b'],
      underWay: [],
    });
  });

  it('checkpoint when the time limit is near, go back into the queue, and lose nothing', async () => {
    const submitted = await submit([run('long', { gate: 'long' }), run('other')]);
    const id = task(submitted, 'long');
    await atGate('long');
    slurm.call('scancel', '--batch', '--signal=USR1', id);
    await slurm.until('it is back in the queue', () => slurm.task(id)?.state === 'PENDING');
    expect(place.state('long')).toMatchObject({ state: 'interrupted' });
    expect((await stateNow('long')).state).toBe('queued');
    expect(await submit([run('long', { gate: 'long' })])).toMatchObject({ dir: null });
    open('long');
    await finishes('long');
    await slurm.idle();
    expectWhole('long', 2);
    expectWhole('other', 1);
    expect(slurmLog('long')).toContain('the time limit is near: checkpointed, back into the queue');
    expect(slurmLog('long')).toContain(`Slurm job ${id} on ${hostname()}, start 1\n`);
  });

  it('are warned by Slurm itself when their time limit is near', async () => {
    const limited = { gate: 'limited', slurm: { time: '1', signal_before_s: 50 } };
    const submitted = await submit([run('limited', limited)]);
    const id = task(submitted, 'limited');
    // slurmctld looks at time limits every half a minute.
    const warned = (): boolean => slurmLog('limited').includes('the time limit is near: checkpointed');
    await slurm.until('Slurm has warned it', warned, { withinS: 100 });
    await slurm.until('it is back in the queue', () => slurm.task(id)?.state === 'PENDING');
    expect((await stateNow('limited')).state).toBe('queued');
    open('limited');
    await finishes('limited');
    await slurm.idle();
    expect(place.state('limited'), slurmLog('limited')).toMatchObject({ state: 'finished', iteration: 6 });
    expect(iterations('limited')).toEqual([1, 2, 3, 4, 5, 6]);
    // Its second start may be warned too, before it has ended.
    expect(place.attempts('limited')).toBeGreaterThanOrEqual(2);
    expect(existsSync(join(place.run('limited'), 'lock.json'))).toBe(false);
    expect(slurmLog('limited')).not.toContain('DUE TO TIME LIMIT');
  });

  it('survive a node that fails', async () => {
    const submitted = await submit([run('node', { gate: 'node' }), run('child', { parents: ['node'] })]);
    const id = task(submitted, 'node');
    await atGate('node');
    slurm.call('scontrol', 'update', `NodeName=${slurm.node}`, 'State=DOWN', 'Reason=test');
    await slurm.until('it is back in the queue', () => slurm.task(id)?.state === 'PENDING');
    expect((await stateNow('node')).state).toBe('queued');
    await slurm.resumeNode();
    open('node');
    await finishes('node');
    await slurm.idle();
    expectWhole('node', 2);
    expectWhole('child', 1);
  });

  it('are stopped with a checkpoint, leave the queue, and continue when they are submitted again', async () => {
    const cells = [run('stopped', { gate: 'stopped' }), run('waiting', { parents: ['stopped'] })];
    await submit(cells);
    await atGate('stopped');
    const jobs = await reconcile(place.runs);
    await stopJobs([...jobs.values()].filter(({ run_name }) => ['stopped', 'waiting'].includes(run_name)));
    await slurm.idle();
    expect(place.state('stopped')).toMatchObject({ state: 'interrupted', iteration: 3 });
    expect(await stateNow('stopped')).toMatchObject({ state: 'interrupted' });
    expect(await stateNow('waiting')).toMatchObject({ state: 'interrupted' });
    open('stopped');
    expect((await submit(cells)).arrays).toHaveLength(2);
    await slurm.idle();
    expectWhole('stopped', 2);
    expectWhole('waiting', 1);
  });

  it('that somebody cancels are interrupted, not lost', async () => {
    const submitted = await submit([run('cancelled', { gate: 'cancelled' })]);
    await atGate('cancelled');
    slurm.call('scancel', task(submitted, 'cancelled'));
    await slurm.idle();
    expect(await stateNow('cancelled')).toMatchObject({ state: 'interrupted' });
    open('cancelled');
    await submit([run('cancelled', { gate: 'cancelled' })]);
    await slurm.idle();
    expectWhole('cancelled', 2);
  });

  it('do not wait for a parent that failed, and are submitted again with it', async () => {
    const parent = run('fails', { fail: 'fails' });
    const child = run('orphan', { parents: ['fails'] });
    open('fails');
    const submitted = await submit([child], [parent]);
    await slurm.idle();
    expect(await stateNow('fails')).toMatchObject({ state: 'failed' });
    expect(slurm.task(task(submitted, 'orphan'))).toMatchObject({ state: 'CANCELLED' });
    expect(await stateNow('orphan')).toEqual({
      state: 'interrupted',
      reason: `Slurm job ${task(submitted, 'orphan')}: it was canceled`,
    });
    rmSync(file('fails'));
    expect((await submit([child], [parent])).arrays.map(({ runs }) => runs)).toEqual([['fails'], ['orphan']]);
    await slurm.idle();
    expect(place.state('fails')).toMatchObject({ state: 'finished' });
    expectWhole('orphan', 1);
  });

  it('are found by their name before they have ever begun', async () => {
    await submit([run('next', { parents: ['slow'] })], [run('slow', { gate: 'slow' })]);
    await atGate('slow');
    const { code, out } = await place.call(['status', 'next', '--json', '--exp-dir', place.runs]);
    expect(code).toBe(0);
    const { runs } = JSON.parse(out) as { runs: { run_name: string; state: string; reason: string }[] };
    expect(runs).toMatchObject([{ run_name: 'next', state: 'queued' }]);
    expect(runs[0].reason).toMatch(/^Slurm \d+_0 pending \(Dependency\)$/);
    open('slow');
    await slurm.idle();
    expectWhole('next', 1);
  });

  it('take over a lock that an ended job left on another host, and respect one of a job that continues', async () => {
    const leave = (name: string, job: string): void => {
      mkdirSync(place.run(name), { recursive: true });
      const lock = join(place.run(name), 'lock.json');
      const owner = {
        token: 'old',
        host: 'elsewhere',
        pid: 42,
        process_start: '1',
        slurm_job_id: job,
        acquired_at: '',
      };
      writeFileSync(lock, JSON.stringify(owner));
      const then = Date.now() / 1000 - 600;
      utimesSync(lock, then, then);
    };
    const live = slurm.call('sbatch', '--parsable', '--output=/dev/null', '--wrap=sleep 60').trim();
    leave('left', '1');
    leave('held', live);
    await submit([run('left'), run('held')]);
    await slurm.until('the one that is held has failed', () => /in use/.test(slurmLog('held')));
    expect(slurmLog('held')).toContain(`cancel it with \`scancel ${live}\``);
    slurm.call('scancel', live);
    await slurm.idle();
    expectWhole('left', 1);
    await submit([run('held')]);
    await slurm.idle();
    expectWhole('held', 1);
  });

  it("are rejected in sbatch's own words, and what was accepted is kept", async () => {
    const good = run('good', { gate: 'good' });
    const bad = run('bad', { slurm: { partition: 'nonsense' }, parents: ['good'] });
    await expect(submit([bad], [good])).rejects.toThrow(
      /sbatch refused: sbatch: error: invalid partition specified: nonsense\n/,
    );
    await expect(submit([bad], [good])).rejects.toThrow('sbatch refused');
    open('good');
    await slurm.idle();
    expectWhole('good', 1);
  });

  it('say where Slurm is when it is not here', async () => {
    vi.stubEnv('PATH', '/nowhere');
    try {
      await expect(
        submitCells([externalRun('x', { base: file('none') })], [], { program: ['node'], name: 'x' }),
      ).rejects.toThrow("sbatch was not found: Slurm's programs are not on this machine's PATH");
    } finally {
      vi.unstubAllEnvs();
    }
  });
});
