/**
 * Runs a reward module in its own process, so that one that never ends, or ends its process, harms nothing else. For trying a module; a run loads it
 * in its workers, which avoids copying.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { Deadline } from '../../../core/deadline.js';
import { systemClock, type Clock } from '../../../core/clock.js';
import type { JudgeItem } from '../../score/types.js';
import type { Term } from '../term.js';
import { chosenExport, endedEarly, members, requireNoProblem, requireShape, requireSyntax } from './exports.js';
import { shapeOf, describeThrown, moduleError, wrongResult, type Shape } from './exports.js';
import { termOf, type CallResult, type ModuleSettings } from './term.js';

/** Messages from the process. */
type ProcessMessage =
  | { readonly kind: 'shape'; readonly shape: Shape; readonly problem: unknown }
  | { readonly kind: 'made'; readonly problem: string | null }
  | { readonly kind: 'failed'; readonly error: string }
  | { readonly kind: 'scored'; readonly id: number; readonly given: CallResult };

/** Imports the module and makes what scores. Raises ConfigError as `openModule` does. */
export async function openModuleInProcess(settings: ModuleSettings, clock: Clock = systemClock): Promise<Term> {
  const { module: file, start_s } = settings;
  requireSyntax(file);
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    serialization: 'advanced',
  });
  try {
    const shape = await opened(child, settings, clock);
    return scoring(child, settings, shape, clock);
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }

  function opened(from: ChildProcess, source: ModuleSettings, time: Clock): Promise<Shape> {
    let errors = '';
    from.stderr?.setEncoding('utf8').on('data', (text: string) => (errors = (errors + text).slice(-100_000)));
    return new Promise((resolve, reject) => {
      const deadline = new Deadline(time, start_s * 1000);
      const fail = (error: Error): void => {
        deadline.dispose();
        reject(error);
      };
      let shape: Shape | null = null;
      deadline.onOver(() => fail(moduleError(file, `it does not start within ${start_s} s (start_s)`)));
      from.once('error', fail);
      from.once('close', (status, signal) => fail(moduleError(file, endedEarly({ status, signal, stderr: errors }))));
      from.on('message', (said: ProcessMessage) => {
        try {
          if (said.kind === 'failed') throw moduleError(file, said.error);
          if (said.kind === 'shape') {
            shape = said.shape;
            requireShape(file, shape);
            requireNoProblem(file, said.problem);
          }
          if (said.kind !== 'made') return;
          if (said.problem !== null) throw wrongResult(file, said.problem);
          deadline.dispose();
          if (shape !== null) resolve(shape);
        } catch (error) {
          fail(error as Error);
        }
      });
      const url = pathToFileURL(file).href;
      const sharp = pathToFileURL(createRequire(import.meta.url).resolve('sharp')).href;
      from.send({ kind: 'open', url, sharp, settings: structuredClone(source.settings) });
    });
  }
}

function scoring(child: ChildProcess, settings: ModuleSettings, shape: Shape, clock: Clock): Term {
  const waiting = new Map<number, (given: CallResult) => void>();
  let [asked, ended] = [0, ''];
  child.on('message', (said: ProcessMessage) => {
    if (said.kind !== 'scored') return;
    waiting.get(said.id)?.(said.given);
    waiting.delete(said.id);
  });
  child.once('close', (status, signal) => {
    ended = `it ended the process (${signal ?? `code ${String(status)}`})`;
    for (const settle of waiting.values()) settle({ threw: ended });
    waiting.clear();
  });
  const score = (item: JudgeItem): Promise<CallResult> =>
    new Promise((settle) => {
      if (ended !== '') return settle({ threw: ended });
      const id = asked++;
      waiting.set(id, settle);
      // A process that is gone cannot be sent to; its end settles whoever waits.
      child.send({ kind: 'score', id, item }, () => {});
    });
  const close = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const closed = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await closed;
  };
  const needs = shape.needs as Parameters<typeof termOf>[0]['needs'];
  return termOf({ settings, needs: needs ?? {}, score, close }, clock);
}

/** The program of the process; it needs no file of its own. */
const program = `
const members = ${JSON.stringify(members)};
const chosenExport = ${chosenExport.toString()};
const shapeOf = ${shapeOf.toString()};
const thrown = ${describeThrown.toString()};
let scorer;
let settings;
const png = (sharp) => async ({ width, height, data }) =>
  (await import(sharp)).default(data, { raw: { width, height, channels: 3 } }).png().toBuffer();
async function open(message) {
  settings = message.settings;
  const exported = chosenExport(await import(message.url));
  const shape = shapeOf(exported);
  const copy = () => structuredClone(settings);
  process.send({ kind: 'shape', shape, problem: shape.has.check === 'function' ? await exported.check(copy()) : undefined });
  scorer = exported;
  if (shape.has.create === 'function') scorer = await exported.create(copy(), { png: png(message.sharp), processes: 1 });
  if (typeof scorer === 'function') scorer = { score: scorer };
  const right = typeof scorer === 'object' && scorer !== null && typeof scorer.score === 'function';
  process.send({ kind: 'made', problem: right ? null : String(scorer) });
}
async function score({ id, item }) {
  let given;
  try {
    given = { value: await scorer.score(item, { settings: structuredClone(settings), signal: new AbortController().signal }) };
  } catch (error) {
    given = { threw: thrown(error) };
  }
  try {
    process.send({ kind: 'scored', id, given });
  } catch {
    process.send({ kind: 'scored', id, given: { threw: 'returned what cannot be copied, such as a function' } });
  }
}
process.on('message', async (message) => {
  if (message.kind === 'score') return score(message);
  try {
    await open(message);
  } catch (error) {
    // Only where nothing catches it does Node tell the place.
    if (error instanceof SyntaxError) throw error;
    process.send({ kind: 'failed', error: thrown(error) });
  }
});
process.on('disconnect', () => process.exit(0));
`;
