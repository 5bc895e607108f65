import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Place, ROOT } from './editrl.js';

let place: Place;
let clients: Client[];

beforeEach(() => {
  place = Place.make();
  clients = [];
});

afterEach(async () => {
  for (const client of clients) await client.close();
  place.remove();
});

/** An agent with a server of its own. */
async function connect(): Promise<Client> {
  const env = { ...process.env, APP__BASE_EXP_DIR: place.runs, APP__DATA_DIR: place.data } as Record<string, string>;
  const more = { SWEEP_STARTS: join(place.dir, 'starts'), SWEEP_CRASHES: place.dir, SWEEP_SECONDS: '1' };
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [join(ROOT, 'dist/src/cli/main.js'), 'mcp'],
      cwd: ROOT,
      env: { ...env, ...more },
      stderr: 'ignore',
    }),
  );
  clients.push(client);
  return client;
}

interface Status {
  readonly runs: readonly { run_name: string; state: string; iteration: number }[];
  readonly started: readonly { name: string; ended: string | null }[];
}

async function call<T>(client: Client, name: string, args: Record<string, unknown>): Promise<T> {
  const { isError, content, structuredContent } = await client.callTool({ name, arguments: args });
  expect(isError ?? false, JSON.stringify(content)).toBe(false);
  return structuredContent as T;
}

/** A config of another trainer. */
function config(name: string, script: string): string {
  const file = join(place.dir, `${name}.jsonnet`);
  const launch = { command: ['sh', '-c', script] };
  const settings = { run_name: name, base_exp_dir: place.runs, task: 'external', num_iterations: 1, launch };
  writeFileSync(file, JSON.stringify(settings));
  return file;
}

it('starts a run that outlives the server, and another server watches it by its name', async () => {
  const gate = join(place.dir, 'gate');
  // It ends when it is let, or after a minute: this machine may be slow.
  const waits = `i=0; until [ -e '${gate}' ] || [ $i -ge 600 ]; do sleep 0.1; i=$((i + 1)); done`;
  const file = config('own', `${waits}; echo '{"iteration": 1, "reward/mean": 0.5}' >> "$EDITRL_METRICS"`);
  const first = await connect();
  expect(first.getServerVersion()?.name).toBe('editrl');
  const started = await call(first, 'run', { config: file });
  expect(started).toEqual({ name: 'own', command: `editrl run ${file}`, ended: null, exp_dir: place.runs });
  const { runs, started: all } = await call<Status>(first, 'status', { runs: ['own'] });
  expect(runs).toMatchObject([{ run_name: 'own', state: 'running' }]);
  expect(all).toMatchObject([{ name: 'own', ended: null }]);
  // What holds the run refuses a second start, with the message of the command.
  const again = await first.callTool({ name: 'run', arguments: { config: file } });
  expect(again.isError).toBe(true);
  expect(JSON.stringify(again.content)).toContain('ended with exit code');
  await first.close();
  writeFileSync(gate, '');

  const second = await connect();
  const seen = (): Promise<Status> => call(second, 'status', { runs: ['own'] });
  await expect.poll(seen, { timeout: 60_000 }).toMatchObject({ runs: [{ state: 'finished' }], started: [] });
  expect(await call(second, 'report', { run: 'own' })).toMatchObject({ run: { state: 'finished', iteration: 1 } });
});
