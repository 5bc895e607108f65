/**
 * The stand-in of a training server as a program: `--model`, `--rank`, `--port` and `--dir` as a run gives them, `--vocabulary N` besides. What it saves
 * is in its folder before it is told of, so that the program finds it again when it is started anew. Files beside it say what goes wrong, as
 * `TinkerProgram` writes them.
 */
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { StubTinker } from './stub_tinker.js';
import type { State } from './bigrams.js';

const beside = (name: string): string => join(import.meta.dirname, name);
const flags = new Map<string, string>();
const rest = process.argv.slice(2);
appendFileSync(beside('starts'), `${JSON.stringify({ pid: process.pid, args: rest, env: process.env })}\n`);
if (existsSync(beside('broken'))) {
  console.error('RuntimeError: no module of that name');
  process.exit(7);
}
for (let flag = rest.shift(); flag !== undefined; flag = rest.shift()) {
  if (!['--model', '--rank', '--port', '--dir', '--vocabulary'].includes(flag)) {
    console.error(`unknown option '${flag}'`);
    process.exit(2);
  }
  flags.set(flag, String(rest.shift()));
}
const value = (flag: string): string => {
  const found = flags.get(flag);
  if (found === undefined) throw new Error(`${flag} is missing`);
  return found;
};
const file = join(value('--dir'), 'saved.json');
const key = process.env['EDITRL_SERVER_TOKEN'];
const stub = new StubTinker({
  vocabulary: Number(value('--vocabulary')),
  dialect: 'proto',
  baseModel: value('--model'),
  mostRank: Number(value('--rank')),
  mostModels: 2,
  ...(key === undefined || existsSync(beside('open')) ? {} : { apiKey: key }),
});
mkdirSync(value('--dir'), { recursive: true });
const read = (): [string, State][] =>
  existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as [string, State][]) : [];
for (const [path, state] of read()) stub.saved.set(path, state);
let written = [...stub.saved.keys()].join();
/** A reply may tell of what was saved. */
const persist = (): void => {
  const now = [...stub.saved.keys()].join();
  if (now === written) return;
  writeFileSync(`${file}.tmp`, JSON.stringify([...stub.saved]));
  renameSync(`${file}.tmp`, file);
  written = now;
};
let [steps, models] = [0, 0];
stub.fault = ({ path }) => {
  persist();
  if (path === '/create_model') models += 1;
  // Three are scratch models, by which the server is looked at.
  if (path === '/optim_step' && models > 3) steps += 1;
  const most = existsSync(beside('stalled')) ? Number(readFileSync(beside('stalled'), 'utf8')) : Infinity;
  if (path !== '/optim_step' || steps <= most) return null;
  writeFileSync(beside('reached'), '');
  return { kind: 'stall' };
};
setInterval(persist, 5).unref();
const load = (): void => {
  if (existsSync(beside('slow'))) setTimeout(load, 20);
  else {
    stub.listen(Number(value('--port'))).then(
      () => console.log('up'),
      (error: unknown) => {
        console.error(String(error));
        process.exit(1);
      },
    );
  }
};
load();
