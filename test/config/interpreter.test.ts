import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { evaluateJsonnet, LimitError, JsonnetError, type Evaluate } from '../../src/config/interpreter.js';
import { evaluateSnippet } from '../../src/config/jsonnet.js';
import { evaluate } from '../../src/config/load.js';
import { programPath } from '../../src/core/files.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('interpreter');
const small = { EDITRL_JSONNET_MEMORY_MB: '250', EDITRL_JSONNET_SECONDS: '1' };
const doubling = "local d(s, n) = if n == 0 then s else d(s + s, n - 1) tailstrict; { a: std.length(d('x', 40)) }";
const endless = 'local f(n) = f(n + 1) tailstrict; { a: f(0) }';

function fileOf(text: string, name = 'mine.jsonnet'): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

async function textOf(text: string, env: Readonly<Record<string, string>> = small): Promise<string> {
  const error: unknown = await evaluate({ file: fileOf(text), env }).catch((cause: unknown) => cause);
  if (!(error instanceof LimitError)) throw error;
  expect(error.exitCode).toBe(2);
  return error.toText().replaceAll(folder, '/tmp');
}

/** The processes that evaluate Jsonnet below this one, those that have ended left out. */
function interpreters(): number[] {
  return readdirSync('/proc')
    .filter((name) => {
      try {
        const [, state, parent] = /\) (\S) (\d+) /.exec(readFileSync(`/proc/${name}/stat`, 'utf8')) ?? [];
        const command = readFileSync(`/proc/${name}/cmdline`, 'utf8');
        return Number(parent) === process.pid && state !== 'Z' && command.includes('interpreter_main.js');
      } catch {
        return false;
      }
    })
    .map(Number);
}

function evaluated(snippet: string, seconds = 60, variables: Readonly<Record<string, string>> = {}): Promise<string> {
  return evaluateJsonnet({ snippet, name: 'it', variables, library: [] }, { megabytes: 1000, seconds }, 'x.jsonnet');
}

it('ends its process when it is idle, and starts another for the next evaluation', async () => {
  expect(JSON.parse(await evaluated('{ a: 1 }'))).toEqual({ a: 1 });
  expect(interpreters()).toHaveLength(1);
  await vi.waitFor(() => expect(interpreters()).toEqual([]), { timeout: 10_000, interval: 50 });
  expect(JSON.parse(await evaluated('{ a: 2 }'))).toEqual({ a: 2 });
});

describe('an evaluation without bounds', () => {
  it('ends when it takes too much memory', async () => {
    const text = await textOf(doubling, { EDITRL_JSONNET_MEMORY_MB: '250' });
    expect(text).toContain('/tmp/mine.jsonnet: the evaluation exceeds the limit of 250 MB of memory');
    expect(text).toContain('export EDITRL_JSONNET_MEMORY_MB=500');
    await vi.waitFor(() => expect(interpreters()).toEqual([]), { timeout: 10_000, interval: 50 });
  });

  it('ends when it takes too long', async () => {
    const text = await textOf(endless);
    expect(text).toContain('/tmp/mine.jsonnet: the evaluation exceeds the limit of 1 s');
    expect(text).toContain('export EDITRL_JSONNET_SECONDS=2');
    await vi.waitFor(() => expect(interpreters()).toEqual([]), { timeout: 10_000, interval: 50 });
  });

  it('leaves the next one as it is', async () => {
    // Even the start of a process takes long on a busy machine: what is to end has little time, what is to be left much.
    const all = [endless, '1 + 1', endless, '2 + 2'].map((text) => evaluated(text, text === endless ? 0.2 : 60));
    const [first, second, third, fourth] = await Promise.allSettled(all);
    expect([first.status, third.status]).toEqual(['rejected', 'rejected']);
    expect([second, fourth]).toMatchObject([{ value: '2\n' }, { value: '4\n' }]);
  });

  it('has limits that are whole numbers', async () => {
    const load = evaluate({ file: fileOf('{}'), env: { EDITRL_JSONNET_SECONDS: '1.5' } });
    await expect(load).rejects.toThrow('EDITRL_JSONNET_SECONDS: found 1.5; allowed: a whole number >= 1');
    await expect(evaluate({ file: fileOf('{}'), env: { EDITRL_JSONNET_MEMORY_MB: '' } })).resolves.toMatchObject({
      value: {},
    });
  });
});

describe('the process that evaluates', () => {
  it('is one for all evaluations', async () => {
    const pids = new Set<number>();
    for (let i = 0; i < 3; i++) {
      expect(await evaluated(`${i}`)).toBe(`${i}\n`);
      for (const pid of interpreters()) pids.add(pid);
    }
    expect(pids.size).toBe(1);
  });

  it('is another one after a large evaluation, which gives no memory back', async () => {
    await evaluated('1');
    const [before] = interpreters();
    await evaluated('std.length(std.range(1, 3000000))');
    expect(await evaluated('1')).toBe('1\n');
    expect(interpreters()).not.toContain(before);
  });

  it('gives what Jsonnet says, and values as they are', async () => {
    await expect(evaluated("error 'no'")).rejects.toThrow(JsonnetError);
    const value = await evaluated("[std.extVar('v'), 1, null]", 60, { v: 'ä"\n\u{1f600}' });
    expect(JSON.parse(value)).toEqual(['ä"\n\u{1f600}', 1, null]);
  });

  it('does not take this one along when it crashes', async () => {
    const killed = evaluated(endless);
    await expect.poll(() => interpreters().length).toBeGreaterThan(0);
    for (const pid of interpreters()) process.kill(pid, 'SIGSEGV');
    await expect(killed).rejects.toThrow('Jsonnet crashed on this file (SIGSEGV)');
    const ended = evaluated(endless);
    await expect.poll(() => interpreters().length).toBeGreaterThan(0);
    for (const pid of interpreters()) process.kill(pid, 'SIGKILL');
    await expect(ended).rejects.toThrow('the process that evaluates Jsonnet ended (SIGKILL)');
    expect(await evaluated('1')).toBe('1\n');
  });

  it('ends with the one that started it, even while it computes', async () => {
    const order: Evaluate = { snippet: endless, name: 'it', variables: {}, library: [], bytes: 1e9 };
    const starter = `
      const { fork } = require('node:child_process');
      const child = fork(${JSON.stringify(programPath('config/interpreter_main'))}, { detached: true });
      child.send({ ...${JSON.stringify(order)}, snippet: '1' });
      child.once('message', () => child.send(${JSON.stringify(order)}, () => console.log(child.pid)));
    `;
    const parent = spawn(process.execPath, ['-e', starter], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await new Promise<string[]>((resolve) =>
      createInterface({ input: parent.stdout }).once('line', (...words) => resolve(words)),
    );
    const lives = (): boolean => {
      try {
        return !/\) Z /.test(readFileSync(`/proc/${line}/stat`, 'utf8'));
      } catch {
        return false;
      }
    };
    expect(lives()).toBe(true);
    parent.kill('SIGKILL');
    await expect.poll(lives).toBe(false);
  });

  it('reads files, texts and imports as they are', async () => {
    mkdirSync(join(folder, 'lib'), { recursive: true });
    writeFileSync(join(folder, 'lib', 'note.txt'), 'grüße\n');
    fileOf("{ note: importstr 'lib/note.txt', name:: 'hidden' }", 'part.libsonnet');
    const file = fileOf("(import 'part.libsonnet') + { shown: super.name, run: std.extVar('APP__RUN_NAME') }");
    const { value, sources } = await evaluateSnippet({
      file,
      roots: [file],
      snippet: `(import ${JSON.stringify(file)})`,
      environment: {},
    });
    expect(value).toEqual({ note: 'grüße\n', shown: 'hidden', run: 'mine' });
    expect(sources.size).toBe(3);
  });
});
