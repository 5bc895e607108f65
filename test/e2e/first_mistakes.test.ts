/** Mistakes of somebody's first hour: each is told in one message, by the command that was given, before anything trains. */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Place, ROOT } from './editrl.js';

const WORDS = ['configs/text_plain.jsonnet', '--with', 'configs/lib/text_tiny.libsonnet'];
const EDITS = ['configs/edit_response.jsonnet', '--with', 'configs/lib/edit_tiny.libsonnet'];
const JUDGED = ['configs/sft_s__rl_s.jsonnet', '--with', 'configs/lib/tiny.libsonnet'];

let place: Place;
const folder = mkdtempSync(join(tmpdir(), 'editrl-first-'));
const at = (name: string): string => join(folder, name);

const files = {
  'column.jsonl': '{"question":"a","expected":"b"}\n',
  'broken.jsonl': '{"prompt":"a","expected":"b"}\nprompt,expected\n',
  'list.csv': 'prompt,expected\n',
  'picture.jsonl': '{"source":"gone.png","instruction":"make it red"}\n',
  'syntax.jsonnet': '{ run_name: "a" task: "text_answers" }',
  'variable.jsonnet': '{ run_name: std.extVar("APP__NOWHERE") }',
  'text.libsonnet': '"policy"',
  'experiment.jsonnet': `{ name: 'e', base: import '${ROOT}/configs/text_plain.jsonnet', axes: { seed: { a: { seed: 1 } } } }`,
  file: '',
  'bare/config.json': '{"model_type":"llama","architectures":["LlamaForCausalLM"]}',
};

beforeAll(() => {
  place = Place.make();
  mkdirSync(at('bare'));
  for (const [name, text] of Object.entries(files)) writeFileSync(at(name), text);
});
afterAll(() => {
  place.remove();
  rmSync(folder, { recursive: true, force: true });
});

const set = (...sets: string[]): string[] => sets.flatMap((one) => ['--set', one]);
const rows = (name: string): string[] =>
  set('data.tiny=null', `data.train=[{"path":"${at(name)}"}]`, 'data.validation=[]');

/** What was done wrongly, the command, its exit code, and what the message says. */
const mistakes: readonly (readonly [string, () => string[], number, RegExp])[] = [
  [
    'a column of another name',
    () => ['run', ...WORDS, ...rows('column.jsonl')],
    1,
    /no column 'prompt'; found: question, expected/,
  ],
  [
    'a path that is misspelt',
    () => ['run', ...WORDS, ...rows('gone.jsonl')],
    1,
    /gone\.jsonl: there is no such dataset\n.*Check the path/,
  ],
  [
    'a dataset of another kind',
    () => ['run', ...WORDS, ...rows('list.csv')],
    1,
    /kind '\.csv'; allowed: \.jsonl, \.parquet/,
  ],
  ['a line that is no row', () => ['run', ...WORDS, ...rows('broken.jsonl')], 1, /broken\.jsonl:2: is not JSON/],
  [
    'a picture that is not there',
    () => ['run', ...EDITS, ...rows('picture.jsonl')],
    1,
    /picture\.jsonl:1: column 'source': there is no file .*gone\.png/,
  ],
  [
    'an endpoint without a server',
    () => ['config', 'check', ...JUDGED, '--deep', ...set('reward.endpoint=http://127.0.0.1:1')],
    1,
    /127\.0\.0\.1:1\/v1: the judge is not ready: connect ECONNREFUSED/,
  ],
  [
    'a text for a number',
    () => ['run', ...WORDS, ...set('num_iterations="many"')],
    2,
    /num_iterations: found "many"; allowed: a number/,
  ],
  [
    'groups that are not whole',
    () => ['run', ...WORDS, ...set('rollout.generations_per_sample=7')],
    2,
    /found 256; allowed: a multiple of rollout\.generations_per_sample \(7\)/,
  ],
  [
    'a run name with a slash',
    () => ['run', ...WORDS, ...set('run_name=a/b')],
    2,
    /run_name: found "a\/b"; allowed: a name of letters/,
  ],
  [
    'a key that is misspelt',
    () => ['run', ...WORDS, ...set('optimizer.learning_rat=1')],
    2,
    /learning_rat: unknown key; did you mean optimizer\.learning_rate\?/,
  ],
  ['--set without a value', () => ['run', ...WORDS, ...set('seed')], 2, /--set seed: found no key=value/],
  [
    'an overlay that is none',
    () => ['run', WORDS[0], '--with', at('text.libsonnet')],
    2,
    /text\.libsonnet: found an overlay that evaluates to string; allowed: an object/,
  ],
  [
    'an experiment for `run`',
    () => ['run', at('experiment.jsonnet')],
    2,
    /found an experiment, which has 'base' and 'axes'; allowed: the config of one run\n.*editrl sweep/,
  ],
  ['a syntax error', () => ['run', at('syntax.jsonnet')], 2, /syntax\.jsonnet:1:17: expected a comma/],
  [
    'an external variable that is not set',
    () => ['run', at('variable.jsonnet')],
    2,
    /undefined external variable: APP__NOWHERE\n.*export APP__NOWHERE=/,
  ],
  ['a config that is not there', () => ['run', at('gone.jsonnet')], 2, /gone\.jsonnet: no such file/],
  [
    'a model that is not there',
    () => ['run', WORDS[0], ...set(`policy.model=${at('gone')}`)],
    1,
    /gone: there is no such model folder/,
  ],
  [
    'a model without a tokenizer',
    () => ['run', WORDS[0], ...set(`policy.model=${at('bare')}`)],
    2,
    /bare: there is no tokenizer/,
  ],
  [
    'a folder for runs that is a file',
    () => ['run', ...WORDS, '--exp-dir', at('file')],
    1,
    /file: is a file, not a folder/,
  ],
  ['a verb that is misspelt', () => ['trian', ...WORDS], 2, /unknown verb 'trian'/],
];

describe('a first mistake', () => {
  it.each(mistakes)('%s', async (_, command, code, message) => {
    const ended = await place.call(command());
    expect(ended.err).toMatch(message);
    expect(ended.err).not.toMatch(/\n\s+at /);
    expect(ended.code, ended.err).toBe(code);
    expect(existsSync(place.run('text_start'))).toBe(false);
  });

  it('is none: rows with a byte order mark and Windows line ends, and a config for `sweep`', async () => {
    writeFileSync(at('windows.jsonl'), '\uFEFF{"prompt":"a","expected":"b"}\r\n{"prompt":"c","expected":"d"}\r\n');
    expect(await place.call(['score', ...WORDS, ...rows('windows.jsonl')])).toMatchObject({ code: 0, err: '' });
    expect(await place.call(['sweep', ...WORDS, '--dry-run'])).toMatchObject({ code: 0, err: '' });
  });
});
