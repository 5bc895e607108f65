import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { gpus, nodeVersion } from '../../src/cli/doctor.js';
import { EngineError } from '../../src/core/errors.js';
import { main } from '../../src/cli/main.js';
import { testFolder } from '../support/folder.js';
import { emu3Folder } from '../recipes/image_edit_tokens/emu3_fixture.js';

const written = { out: '', error: '' };

beforeEach(() => {
  written.out = '';
  written.error = '';
  const sink = (name: 'out' | 'error') => (chunk: unknown) => {
    written[name] += String(chunk);
    return true;
  };
  vi.spyOn(process.stdout, 'write').mockImplementation(sink('out'));
  vi.spyOn(process.stderr, 'write').mockImplementation(sink('error'));
  vi.spyOn(console, 'log').mockImplementation((text: unknown) => void sink('out')(`${String(text)}\n`));
  vi.spyOn(console, 'error').mockImplementation((text: unknown) => void sink('error')(`${String(text)}\n`));
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

const tiny = ['--with', 'configs/lib/tiny.libsonnet'];

describe('editrl', () => {
  it('lists its verbs', async () => {
    expect(await main(['--help'])).toBe(0);
    expect(written.out).toMatch(/editrl judge exam +Test a judge/);
    expect(written.out).not.toMatch(/\[(string|boolean|array)\]|~/);
    expect(written.out).toContain('Exit codes: 0 success');
  });

  it.each([['config', 'show'], ['check'], ['config', 'diff'], ['config', 'schema'], ['data', 'pack'], ['doctor']])(
    'gives an example and --json for %s %s',
    async (...words) => {
      expect(await main([...words.filter((word) => typeof word === 'string'), '--help'])).toBe(0);
      expect(written.out).toMatch(/Examples:\n +editrl /);
      expect(written.out).toContain('--json');
    },
  );

  it.each([
    [
      ['confg'],
      expect.stringMatching(
        /unknown verb 'confg'; allowed: .*run, sweep, .*, config, data, serve, .*\n {2}Did you mean: editrl config\?/,
      ) as string,
    ],
    [
      ['config', 'check'],
      "editrl: unknown action 'config check'; allowed: show, diff, explain, schema\n  Did you mean: editrl check?\n",
    ],
    [['trian'], expect.stringMatching(/Did you mean: editrl run\?/) as string],
    [['list'], expect.stringMatching(/Did you mean: editrl ls\?/) as string],
    [['run', 'a', 'b'], expect.stringMatching(/^editrl: unknown argument 'b'\n {2}Usage: /) as string],
    [['config', 'shw'], expect.stringMatching(/Did you mean: editrl config show\?/) as string],
    [['data'], expect.stringMatching(/^editrl: Missing action. Allowed: pack, check, bench/) as string],
    [['config', 'diff', 'x'], expect.stringMatching(/^editrl: config diff needs <a> <b>\n {2}Usage: /) as string],
    [['doctor', '--jsn'], 'editrl: unknown flag --jsn\n  Did you mean --json?\n'],
    [
      ['sweep', 'x', '--max-paralel', '2', '--wiht', 'y'],
      'editrl: unknown flag --max-paralel and flag --wiht\n  Did you mean --max-parallel?\n',
    ],
    [['run'], 'editrl: run needs <config>\n  Usage: editrl run <config>. Add --help for its flags and examples.\n'],
    [['status', 'x', '--exp-dir'], expect.stringMatching(/^editrl: --exp-dir needs a value\n/) as string],
    [['plan', 'x', '-wit=a'], 'editrl: -wit=a: long flags start with two dashes\n  Did you mean --with?\n'],
    [
      ['config', 'show', '/dev/null'],
      expect.stringMatching(/^editrl: \/dev\/null: is a device or a pipe, not a/) as string,
    ],
    [
      ['config', 'show', 'a\u001b[31m\u0000b'],
      expect.stringMatching(/^editrl: a\\u001b\[31m\\u0000b: no such/) as string,
    ],
    [
      ['config', 'show', 'nope.jsonnet'],
      'editrl: nope.jsonnet: no such file\n  Name a Jsonnet file, such as one in configs/.\n',
    ],
    [
      ['plan', 'configs/tiny_vq.jsonnet', '--only', 'a', '--only', 'b'],
      'editrl: --only is given 2 times; allowed: once\n',
    ],
    ...[
      ['--port', 'two'],
      ['--timeout-s', '1e999'],
    ].map(([name, value]): [string[], string] => [
      ['serve', 'gateway', '--upstream', 'http://127.0.0.1:9', name, value],
      `editrl: ${name}: found ${value}; allowed: a number\n`,
    ]),
    ...[
      ['--port', '70000', 'a whole number from 0 to 65535'],
      ['--ocr-weight', 'much', 'a number'],
    ].map(([name, value, allowed]): [string[], string] => [
      ['serve', 'rewards', '--terms', 'jpeg_size', name, value],
      `editrl: ${name}: found ${value}; allowed: ${allowed}\n`,
    ]),
    [
      ['serve', 'rewards', '--terms', 'pairwise', '--endpoint', 'http://127.0.0.1:9'],
      expect.stringMatching(
        /the term 'pairwise', which compares the answers of a group; allowed: terms that/,
      ) as string,
    ],
  ])('rejects %j in one message', async (argv, message) => {
    expect(await main(argv)).toBe(2);
    expect(written.error).toEqual(message);
  });

  it.each([[['-h']], [['run', '-h']], [['config', 'show', '-h']]])('helps at %j as at --help', async (argv) => {
    expect(await main(argv)).toBe(0);
    const short = written.out;
    written.out = '';
    expect(await main([...argv.slice(0, -1), '--help'])).toBe(0);
    expect(short).toMatch(/^editrl .*-h, --help/s);
    expect(short).toBe(written.out);
  });

  it('prints what lets a shell complete, and completes', async () => {
    vi.stubEnv('SHELL', '/bin/bash');
    expect(await main(['completion'])).toBe(0);
    expect(written.out).toMatch(/complete .* editrl\n/);
    const completed = async (...words: string[]): Promise<string[]> => {
      written.out = '';
      expect(await main(['--get-yargs-completions', 'editrl', ...words])).toBe(0);
      return written.out.trimEnd().split('\n');
    };
    expect(await completed('')).toEqual(expect.arrayContaining(['run', 'sweep', 'config', 'serve', 'completion']));
    expect(await completed('swe')).not.toContain('cell');
    expect(await completed('sweep', '--max')).toEqual(expect.arrayContaining(['--max-parallel', '--set', '--with']));
    expect(await completed('config', '')).toEqual(['show', 'diff', 'explain', 'schema']);
    expect(await completed('config', 'show', '--')).toEqual(expect.arrayContaining(['--list', '--set']));
    // Files are the shell's own to complete.
    expect(await completed('run', 'configs/')).toEqual(['']);
  });

  it('prints a stack trace only with --debug', async () => {
    expect(await main(['config', 'show', 'nope.jsonnet', '--debug'])).toBe(2);
    expect(written.error).toMatch(/\n {4}at /);
  });
});

describe('editrl config', () => {
  it('shows settings as one JSON document, remarks apart', async () => {
    expect(
      await main([
        'config',
        'show',
        'configs/sft_s__rl_s.jsonnet',
        ...tiny,
        '--set',
        'seed=3',
        '--set',
        'track.push_to_hub={"every_n_iterations":7,"repo_id":"me/edits"}',
      ]),
    ).toBe(0);
    expect(JSON.parse(written.out)).toMatchObject({ run_name: 'sft_s__rl_s', seed: 3 });
    expect(written.error).toContain('warning: track.push_to_hub');
  });

  it('adds the hashes with --json', async () => {
    expect(await main(['config', 'show', 'configs/tiny_vq.jsonnet', '--json'])).toBe(0);
    const shown = JSON.parse(written.out) as Record<string, unknown>;
    expect(shown['resultHash']).toMatch(/^[0-9a-f]{64}$/);
    expect(shown).toMatchObject({ settings: { task: 'image_tokenizer' }, warnings: [], cannot_run_yet: [] });
  });

  it('lists keys with their effect', async () => {
    expect(await main(['config', 'show', 'configs/tiny_vq.jsonnet', '--list'])).toBe(0);
    expect(written.out).toMatch(/\noptimizer\.learning_rate +0\.003 +result\n/);
    expect(written.out).toMatch(/\nbase_exp_dir +"runs\/tiny" +operation\n/);
  });

  it('checks several files and says which are wrong', async () => {
    const files = ['configs/sft_s.jsonnet', 'configs/sft_s__rl_s.jsonnet'];
    expect(await main(['check', ...files, '--set', 'reward.endpoint='])).toBe(2);
    expect(written.out).toBe('blocked  configs/sft_s.jsonnet  sft_s\n');
    expect(written.error).toContain('wrong  configs/sft_s__rl_s.jsonnet:');
    expect(written.error).toContain('there is no list of samples here');
  });

  it('reports what is in the way of the run of a config that is right, beside those that are wrong', async () => {
    const folder = testFolder('blocked');
    vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
    const file = join(folder, 'other.jsonnet');
    writeFileSync(
      file,
      "{ run_name: 'other', task: 'external', num_iterations: 1, launch: { command: ['no-such-trainer'] } }",
    );
    const text = "launch.command: no program 'no-such-trainer' on PATH";
    expect(await main(['check', file, 'configs/tiny_vq.jsonnet'])).toBe(1);
    expect(written.out).toBe(`blocked  ${file}  other\nok  configs/tiny_vq.jsonnet  tiny_vq\n`);
    expect(written.error).toContain(`other: ${text}`);
    written.out = '';
    expect(await main(['check', file, '--json'])).toBe(1);
    expect(JSON.parse(written.out)).toMatchObject({
      configs: [{ file, ok: true, obstacles: [{ run: 'other', message: expect.stringContaining(text) as string }] }],
    });
    const wrong = join(folder, 'wrong.jsonnet');
    writeFileSync(wrong, '{ task: 1 }');
    expect(await main(['check', wrong, file])).toBe(2);
  });

  it('asks the judges with --deep alone', async () => {
    const folder = testFolder('deep');
    vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
    const file = 'configs/sft_s.jsonnet';
    // Nobody listens at port 9, which was given to discarding.
    const sets = ['--set', `environment.model=${emu3Folder('model')}`, '--set', 'reward.endpoint=http://127.0.0.1:9'];
    const request = ['check', file, ...tiny, ...sets];
    expect(await main(request)).toBe(0);
    expect(await main([...request, '--deep'])).toBe(1);
    expect(written.out).toBe(`ok  ${file}  sft_s\nblocked  ${file}  sft_s\n`);
    expect(written.error).toMatch(/^sft_s: http:\/\/127\.0\.0\.1:9\/v1: the judge is not ready: /m);
  });

  it('finds what is wrong with the configs that one starts from', async () => {
    const folder = testFolder('parents');
    vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
    const sets = ['--set', 'policy.init=null', '--set', 'policy.model={"run":"gone","config":"gone.jsonnet"}'];
    expect(await main(['check', 'configs/sft_s.jsonnet', ...tiny, ...sets])).toBe(2);
    expect(written.error).toMatch(/^wrong {2}.*gone\.jsonnet/m);
    expect(written.out).toBe('');
  });
});

describe('editrl doctor', () => {
  it('lists every GPU, and the remedy if the engine cannot use them', () => {
    const two = [0, 1].map((index) => ({
      index,
      uuid: `GPU-${index}`,
      name: 'NVIDIA H200',
      memoryBytes: index === 0 ? 140 * 2 ** 30 : null,
      usedBytes: null,
    }));
    const detail = '0: NVIDIA H200, 140.0 GiB; 1: NVIDIA H200';
    expect(gpus({ gpus: two }, null)).toMatchObject({ state: 'ok', detail, next: null });
    expect(gpus({ gpus: two }, new EngineError('idle', { next: 'Install it.' }))).toMatchObject({
      next: 'Install it.',
    });
    expect(gpus({ gpus: [] }, null)).toMatchObject({ state: 'absent' });
    expect(gpus({ gpus: [], problem: 'nvidia-smi is not on PATH' }, null)).toMatchObject({
      state: 'missing',
      detail: 'nvidia-smi is not on PATH',
    });
  });

  it('gives every prerequisite a state', async () => {
    const code = await main(['doctor', '--json']);
    const { ok, findings } = JSON.parse(written.out) as { ok: boolean; findings: { name: string; state: string }[] };
    expect(code).toBe(ok ? 0 : 1);
    expect(ok).toBe(findings.every(({ state }) => state !== 'missing'));
    expect(findings.map(({ name }) => name)).toEqual([
      'Node',
      'cmake',
      'C++ compiler',
      'libjsonnet',
      'ffmpeg',
      'onnxruntime',
      'memory',
      'GPU',
    ]);
  });

  it('knows which Node is too old', () => {
    expect(['18.20.0', '20.18.3', '20.19.0', '22.1.0'].map((version) => nodeVersion(version).state)).toEqual([
      'missing',
      'missing',
      'ok',
      'ok',
    ]);
  });
});
