import { mkdirSync, writeFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/client';
import { InMemoryTransport } from '@modelcontextprotocol/server';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { mcpServer, protocolStream, StartedCommands } from '../../src/cli/mcp.js';
import { experiment } from './mcp_experiment.js';
import { capture, RunFolder } from './run_directory.js';

let folder: RunFolder;
let client: Client;

beforeEach(async () => {
  folder = new RunFolder();
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await mcpServer(new StartedCommands([process.execPath, '-e', ''])).connect(ours);
  client = new Client({ name: 'test', version: '1' });
  await client.connect(theirs);
});

afterEach(async () => {
  vi.restoreAllMocks();
  await client.close();
  folder.remove();
});

async function call(name: string, args: Record<string, unknown>) {
  const { isError = false, content, structuredContent } = await client.callTool({ name, arguments: args });
  const [{ text }] = content as { text: string }[];
  return { isError, text, result: structuredContent };
}

/** What the same command prints as its error. */
async function refusal(...command: readonly string[]): Promise<string> {
  const written = capture();
  await main([...command]);
  vi.restoreAllMocks();
  return written.error.replace(/^editrl: /, '').trimEnd();
}

describe('the tools', () => {
  it('are verbs that read, and two that start; each says what it takes', async () => {
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      'plan',
      'run',
      'sweep',
      'status',
      'report',
      'compare',
      'check',
      'config_schema',
    ]);
    const starting = tools.filter(({ annotations }) => annotations?.readOnlyHint !== true).map(({ name }) => name);
    expect(starting).toEqual(['run', 'sweep']);
    for (const { annotations, inputSchema } of tools) {
      expect(annotations?.destructiveHint).toBe(false);
      expect(inputSchema['additionalProperties']).toBe(false);
    }
  });

  it('give the documents that the verbs print', async () => {
    experiment(folder);
    const dir = { 'exp-dir': folder.dir };
    const printed = async (...command: string[]): Promise<unknown> => {
      const written = capture();
      expect(await main([...command, '--exp-dir', folder.dir, '--json'])).toBe(0);
      vi.restoreAllMocks();
      return JSON.parse(written.out);
    };
    const [full, empty] = ['x__kl-0__seed-1', 'x__kl-1__seed-1'];
    // The verb draws the curve anew, which is then one of the run's paths.
    const run = await printed('report', full);
    expect((await call('report', { run: full, ...dir })).result).toEqual({ run });
    expect((await call('report', { run: 'x', ...dir })).result).toEqual({ experiment: await printed('report', 'x') });
    expect((await call('compare', { runs: [full, empty], ...dir })).result).toEqual(
      await printed('compare', full, empty),
    );
    const status = (await call('status', { runs: ['x'], ...dir })).result as { runs: { run_name: string }[] };
    expect(status).toMatchObject({ problems: [], started: [] });
    expect(status.runs.map(({ run_name }) => run_name)).toEqual([full, empty]);
  });

  it('have the reports of runs that are not finite', async () => {
    experiment(folder);
    const { isError, result } = await call('report', { run: 'x__kl-0__seed-1', 'exp-dir': folder.dir });
    expect(isError).toBe(false);
    expect(result).toMatchObject({ run: { run_name: 'x__kl-0__seed-1', training_loss: 'Infinity' } });
  });

  it('plan, check and explain', async () => {
    const file = `${folder.dir}/own.jsonnet`;
    const launch = { command: ['true'] };
    const settings = { run_name: 'own', base_exp_dir: folder.dir, task: 'external', num_iterations: 1, launch };
    writeFileSync(file, JSON.stringify(settings));
    expect((await call('plan', { experiment: file })).result).toMatchObject({
      experiment: 'own',
      cells: [{ run_name: 'own', state: 'new' }],
    });
    const checked = (await call('check', { config: [file, 'lost.jsonnet'], set: ['seed=3'] })).result;
    expect(checked).toMatchObject({ configs: [{ file, ok: true, run_name: 'own' }, { ok: false }] });
    const explained = (await call('config_schema', { key: 'num_iterations' })).result;
    expect(explained).toMatchObject({ explanations: [{ key: 'num_iterations' }] });
    const { schema } = (await call('config_schema', { task: 'external' })).result as { schema: { oneOf: object[] } };
    expect(schema.oneOf).toMatchObject([{ properties: { task: { const: 'external' } } }]);
    const ofExperiment = (await call('config_schema', { experiment: true })).result;
    expect(ofExperiment).toMatchObject({ schema: { properties: { axes: {} } } });
  });
});

describe('an agent that asks for what is missing', () => {
  it.each([
    ['status', { runs: ['y'] }, ['status', 'y']],
    ['report', { run: 'y' }, ['report', 'y']],
    ['compare', { runs: ['y', 'z'] }, ['compare', 'y', 'z']],
    ['compare', { runs: [] }, null],
    ['plan', { experiment: 'lost.jsonnet' }, ['plan', 'lost.jsonnet']],
    ['run', { config: 'lost.jsonnet' }, ['run', 'lost.jsonnet']],
    ['sweep', { experiment: 'lost.jsonnet' }, ['sweep', 'lost.jsonnet']],
    ['config_schema', { task: 'y' }, ['config', 'schema', '--task', 'y']],
    ['config_schema', { key: 'nothing_of_this' }, ['config', 'explain', 'nothing_of_this']],
  ] as const)('%s %j: the message of the command', async (name, args, command) => {
    mkdirSync(folder.dir, { recursive: true });
    const takesDir = !name.startsWith('config');
    const { isError, text } = await call(name, { ...args, ...(takesDir ? { 'exp-dir': folder.dir } : {}) });
    expect(isError).toBe(true);
    if (command === null) expect(text).toContain('allowed: two or more different runs');
    else expect(text).toBe(await refusal(...command, ...(takesDir ? ['--exp-dir', folder.dir] : [])));
  });

  it('reports an argument that a tool does not have', async () => {
    const { isError, text } = await call('status', { run: ['y'] });
    expect(isError).toBe(true);
    expect(text).toContain('"run"');
  });
});

describe('commands that are started', () => {
  const program = (code: string, longestStartMs: number): StartedCommands =>
    new StartedCommands([process.execPath, '-e', code], longestStartMs);

  it('raise what they printed where they reject at once', async () => {
    const started = program('console.error("no such thing"); process.exitCode = 2', 60_000);
    await expect(started.start('a', ['run', 'a'], () => false)).rejects.toThrow(
      /^editrl run a\nended with exit code 2:\nno such thing$/,
    );
    expect(started.all).toMatchObject([{ name: 'a', command: 'editrl run a', ended: expect.any(String) as string }]);
  });

  it('continue when they are under way, and when that takes long; their end is known later', async () => {
    const started = program('setTimeout(() => {}, 900)', 500);
    expect(await started.start('a', [], () => true)).toMatchObject({ ended: null });
    expect(await started.start('b', [], () => false)).toMatchObject({ ended: null });
    await vi.waitFor(() => expect(started.all.map(({ ended }) => ended)).toEqual(['ended', 'ended']), 5000);
  });
});

it('whatever else is printed goes to standard error', async () => {
  const [out, error]: string[][] = [[], []];
  const sink = (lines: string[]) => ({
    write: (chunk: unknown, done?: unknown) => {
      lines.push(String(chunk));
      if (typeof done === 'function') (done as () => void)();
      return true;
    },
  });
  const [stdout, stderr] = [sink(out), sink(error)];
  const protocol = protocolStream(stdout, stderr);
  stdout.write('progress');
  await new Promise((done) => protocol.write('{}', done));
  expect([out, error]).toEqual([['{}'], ['progress']]);
});
