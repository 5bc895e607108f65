/** Runs that start their training server themselves: killed and resumed, with a server that dies, and with one that does not start. */
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TinkerProgram } from '../train/policies/tinker/program.js';
import { childrenOf, isRunning, Place, until, type Ended } from './editrl.js';

const CONFIG = 'configs/text_plain.jsonnet';
const SMALL = ['configs/lib/text_tiny.libsonnet', 'test/e2e/recipes/text_small.libsonnet'];
const ITERATIONS = 6;

let place: Place;
let program: TinkerProgram;
/** A run whose checkpoint has the tokenizer. */
let tokenizer: string;

beforeAll(async () => {
  place = Place.make(null);
  const overlays = SMALL.flatMap((file) => ['--with', file]);
  expect(await place.call(['run', 'configs/text_start.jsonnet', ...overlays])).toMatchObject({ code: 0, err: '' });
  tokenizer = join(place.run('text_start'), 'checkpoints/000008');
  const { model } = JSON.parse(readFileSync(join(tokenizer, 'tokenizer.json'), 'utf8')) as { model: { vocab: object } };
  mkdirSync(join(place.dir, 'server'));
  program = await TinkerProgram.make(join(place.dir, 'server'), Object.keys(model.vocab).length);
});
afterAll(() => place.remove());

function args(name: string, serve: object = {}, ...more: readonly string[]): string[] {
  const trainer = { type: 'tinker', base_model: 'base', serve: { command: program.command, ...serve } };
  const sets = [
    `run_name=${name}`,
    'policy.model=null',
    `policy.tokenizer=${tokenizer}`,
    `policy.trainer=${JSON.stringify(trainer)}`,
    'reward.terms=[]',
    'reward.mode=word_overlap',
    `num_iterations=${ITERATIONS}`,
    'checkpoint.save_every_n_iterations=2',
    'optimizer.learning_rate=0.3',
    'rollout.episodes_per_iteration=16',
    'validation.every_n_iterations=null',
    'validation.prompts=4',
    ...more,
  ];
  return ['run', CONFIG, ...[...SMALL.map((file) => ['--with', file]), ...sets.map((set) => ['--set', set])].flat()];
}

/** What `resume` says before it starts the server. */
const announced = (): string => `policy.trainer.serve.command: ${program.command.join(' ')}\n`;
const lineageOf = (name: string): string =>
  (JSON.parse(place.checkpointFile(name, ITERATIONS, 'remote.json').toString('utf8')) as { lineage: string }).lineage;
const logOf = (name: string, attempt = 1): string =>
  readFileSync(join(place.run(name), `logs/attempt_00${attempt}/training_server.log`), 'utf8');

describe('a run that starts its training server', () => {
  let whole: Ended;
  beforeAll(async () => {
    whole = await place.call(args('whole'));
  });

  it('trains there, keeps what the server saves, and leaves nothing running', () => {
    expect(whole).toMatchObject({ code: 0, err: '' });
    expect(whole.out).toContain('starting the training server; its log is ');
    expect(whole.out).toContain('trains adapters of rank 32 over base');
    expect(whole.out).not.toContain('without the key');
    expect(place.state('whole')).toMatchObject({ state: 'finished', iteration: ITERATIONS });
    expect(logOf('whole')).toBe('up\n');
    const [{ pid, args: given, env }] = program.starts;
    expect(isRunning(pid)).toBe(false);
    const dir = join(place.run('whole'), 'training_server');
    expect(given.join(' ')).toMatch(new RegExp(`--model base --rank 32 --port \\d+ --dir ${dir}$`));
    expect(readdirSync(dir)).toEqual(['saved.json']);
    // Its key is in the environment alone, and in no record.
    const key = env['EDITRL_SERVER_TOKEN'];
    expect(key).toMatch(/^[0-9a-f]{64}$/);
    expect(readFileSync(join(place.run('whole'), 'run.json'), 'utf8')).not.toContain(key);
  });

  it('killed in the middle continues at a server that is started again, to the same steps', async () => {
    program.stall(4);
    const before = program.starts.length;
    const live = place.start(args('killed'));
    await until('a step waits', () => program.isStalled || !live.isAlive());
    const started = childrenOf(live.pid);
    live.kill('SIGKILL');
    expect(await live.ended).toMatchObject({ signal: 'SIGKILL' });
    await until('everything that it started has ended', () => !started.some(isRunning));
    expect(isRunning(program.starts[before].pid)).toBe(false);
    program.mend();
    const resumed = await place.call(['resume', 'killed']);
    expect(resumed).toMatchObject({ code: 0, err: announced() });
    expect(resumed.out).toContain('resuming killed from iteration 4');
    expect(resumed.out).toContain('the training server passed its probe');
    expect(lineageOf('killed')).toBe(lineageOf('whole'));
    expect(program.starts.length - before).toBe(2);
  });

  it('whose server dies ends with what happened, and continues by the same command', async () => {
    program.stall(4);
    const before = program.starts.length;
    const live = place.start(args('bereft'));
    await until('a step waits', () => program.isStalled || !live.isAlive());
    process.kill(program.starts[before].pid, 'SIGKILL');
    const ended = await live.ended;
    expect(ended.code).toBe(3);
    expect(ended.err).toContain('the training server that was started with the run was ended by SIGKILL');
    expect(ended.err).toContain('training_server.log');
    expect(ended.err).toContain('launch.max_restarts does so by itself');
    expect(place.state('bereft')?.state).toBe('failed');
    program.mend();
    expect(await place.call(args('bereft'))).toMatchObject({ code: 0, err: '' });
    expect(lineageOf('bereft')).toBe(lineageOf('whole'));
  });

  it('is stopped while its server starts, and while it trains, and ends it', async () => {
    program.spoil('slow');
    const before = program.starts.length;
    const loading = place.start(args('loading'));
    await until('the server is started', () => program.starts.length > before || !loading.isAlive());
    loading.kill('SIGINT');
    expect(await loading.ended).toMatchObject({ code: 130 });
    expect(place.state('loading')).toMatchObject({ state: 'interrupted', reason: 'stopped on request' });
    program.mend();
    const live = place.start(args('stopped', {}, 'num_iterations=2000'));
    await until('it trains', () => place.metrics('stopped').length > 2 || !live.isAlive());
    live.kill('SIGTERM');
    const ended = await live.ended;
    expect(ended.code).toBe(130);
    expect(place.state('stopped')?.state).toBe('interrupted');
    for (const { pid } of program.starts) expect(isRunning(pid)).toBe(false);
    // What it had is saved, and found by the next server. A stop while the server saves leaves the checkpoint before.
    const kept = Math.max(...readdirSync(join(place.run('stopped'), 'checkpoints')).map(Number));
    const { iteration } = place.state('stopped')!;
    const resumed = place.start(['resume', 'stopped']);
    await until('it trains on', () => place.metrics('stopped').at(-1)!.iteration > iteration || !resumed.isAlive());
    resumed.kill('SIGINT');
    const again = await resumed.ended;
    expect(again.code).toBe(130);
    expect(again.out).toContain(`resuming stopped from iteration ${kept}`);
  });
});

describe('a run that has ended', () => {
  it('is evaluated, forked and made longer at a server that finds what was saved', async () => {
    const evaluated = await place.call(['evaluate', place.run('whole')]);
    expect(evaluated).toMatchObject({ code: 0 });
    expect(evaluated.out).toContain('whole at iteration 6');
    const forked = await place.call(['fork', `${place.run('whole')}@4`, '--as', 'forked']);
    expect(forked).toMatchObject({ code: 0, err: announced() });
    expect(forked.out).toContain('resuming forked from iteration 4');
    expect(lineageOf('forked')).toBe(lineageOf('whole'));
    const dirs = program.starts.slice(-2).map(({ args: given }) => given[given.indexOf('--dir') + 1]);
    expect(dirs).toEqual(['whole', 'forked'].map((name) => join(place.run(name), 'training_server')));
    for (const { pid } of program.starts) expect(isRunning(pid)).toBe(false);
  });
});

describe('a server that does not start', () => {
  const refused = async (name: string, serve: object): Promise<string> => {
    const ended = await place.call(args(name, serve));
    expect(ended.code).not.toBe(0);
    return ended.err;
  };

  it('is reported in one message', async () => {
    program.spoil('broken');
    const broken = await refused('broken', {});
    expect(broken).toMatch(
      /the training server did not start: it ended with exit code 7\n {2}\| RuntimeError: no module of that name/,
    );
    expect(broken).toContain('training_server.log');
    program.mend();
    program.spoil('slow');
    expect(await refused('slow', { start_timeout_s: 1 })).toContain(
      'the training server did not start: it was not up within 1 s',
    );
    program.mend();
    expect(await refused('absent', { command: ['no-such-server'] })).toContain("no program 'no-such-server'");
    expect(existsSync(place.run('absent'))).toBe(false);
    for (const { pid } of program.starts) expect(isRunning(pid)).toBe(false);
  });
});
