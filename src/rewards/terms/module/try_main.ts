/** The process that tries a reward module: imports it, checks its settings and, if it is given items, scores them. */
import { readFileSync, writeSync } from 'node:fs';
import { deserialize, serialize } from 'node:v8';
import type { RgbImage } from '../../../core/images/image.js';
import type { JudgeItem } from '../../score/types.js';
import { chosenExport, describeThrown, shapeOf } from './exported.js';
import type { CallResult, FromTrial, ToTrial } from './trial.js';
import type { ModuleObject, Scorer } from './types.js';

const { getOwnPropertyDescriptor, ownKeys } = Reflect;

interface Member {
  readonly holder: object;
  readonly key: PropertyKey;
  readonly name: string;
  readonly value: unknown;
}

/** Takes note of all built-in functions; the result names the first one that is not the same any more, or null. */
export function watchBuiltins(): () => string | null {
  const members: Member[] = [];
  const note = (holder: object, name: string): void => {
    for (const key of ownKeys(holder)) {
      const value: unknown = getOwnPropertyDescriptor(holder, key)?.value;
      if (typeof value === 'function') members.push({ holder, key, name: `${name}.${String(key)}`, value });
    }
  };
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    // Reading a getter would load what it stands for.
    const value: unknown = getOwnPropertyDescriptor(globalThis, name)?.value;
    const isHolder = (typeof value === 'object' && value !== null) || typeof value === 'function';
    if (!isHolder || value === globalThis) continue;
    note(value, name);
    const prototype: unknown = getOwnPropertyDescriptor(value, 'prototype')?.value;
    if (typeof prototype === 'object' && prototype !== null) note(prototype, `${name}.prototype`);
  }
  return () => {
    // By counting: the iterator of arrays is one of the functions that may have been replaced.
    for (let i = 0; i < members.length; i++) {
      const { holder, key, name, value } = members[i];
      if (getOwnPropertyDescriptor(holder, key)?.value !== value) return name;
    }
    return null;
  };
}

const { url, settings, items, concurrency } = deserialize(readFileSync(0)) as ToTrial;

/** Says something on a pipe that the module does not write to. */
function tell(said: FromTrial): void {
  writeSync(3, `${serialize(said).toString('base64')}\n`);
}

async function png(image: RgbImage): Promise<Uint8Array> {
  return (await import('../../../core/images/image.js')).encodePng(image);
}

async function resultOf(scorer: Scorer, item: JudgeItem): Promise<CallResult> {
  try {
    const context = { settings: structuredClone(settings), signal: new AbortController().signal };
    return { value: await scorer.score(item, context) };
  } catch (error) {
    return { threw: describeThrown(error) };
  }
}

async function scoreAll(scorer: Scorer, asked: NonNullable<ToTrial['items']>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < asked.length) {
      const id = next++;
      const given = await resultOf(scorer, asked[id]);
      try {
        tell({ kind: 'scored', id, given });
      } catch {
        tell({ kind: 'scored', id, given: { threw: 'returned what cannot be copied, such as a function' } });
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

const replaced = watchBuiltins();
tell({ kind: 'started' });
try {
  const exported = chosenExport((await import(url)) as Record<string, unknown>);
  const builtin = replaced();
  if (builtin !== null) {
    tell({ kind: 'failed', error: `it replaces ${builtin}, which the whole process uses` });
    process.exit(0);
  }
  const shape = shapeOf(exported);
  const module = exported as ModuleObject & Scorer;
  const problem = shape.has.check === 'function' ? await module.check!(structuredClone(settings)) : undefined;
  tell({ kind: 'imported', shape, problem });
  if (items !== null) {
    const isFactory = shape.has.create === 'function';
    const made: unknown = isFactory ? await module.create!(structuredClone(settings), { png, processes: 1 }) : module;
    const scorer =
      typeof made === 'function' ? { score: made as Scorer['score'] } : (made as Scorer | null | undefined);
    const isRight = typeof scorer?.score === 'function';
    tell({ kind: 'made', problem: isRight ? null : String(made) });
    if (isRight) await scoreAll(scorer, items);
  }
} catch (error) {
  // Node says the place of a syntax error only if nothing catches it.
  if (error instanceof SyntaxError) throw error;
  tell({ kind: 'failed', error: describeThrown(error) });
}
process.exit(0);

/** Finds built-in functions that a module has replaced: everything else in its process uses them, too. */
