/** The process that tries a reward module: imports it, checks its settings and scores items. */
import { readFileSync, writeSync } from 'node:fs';
import { deserialize, serialize } from 'node:v8';
import type { RgbImage } from '../../../core/images/image.js';
import type { JudgeItem } from '../../score/types.js';
import { chosenExport, describeThrown, shapeOf } from './exported.js';
import type { CallResult, FromTrial, ToTrial } from './trial.js';
import type { ModuleObject, Scorer } from './types.js';

const { url, settings, items, concurrency } = deserialize(readFileSync(0)) as ToTrial;

/** Writes to a pipe that the module does not use. */
function send(message: FromTrial): void {
  writeSync(3, `${serialize(message).toString('base64')}\n`);
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

async function scoreAll(scorer: Scorer): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < items.length) {
      const id = next++;
      const given = await resultOf(scorer, items[id]);
      try {
        send({ kind: 'scored', id, given });
      } catch {
        send({ kind: 'scored', id, given: { threw: 'returned a value that cannot be copied, such as a function' } });
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

try {
  const exported = chosenExport((await import(url)) as Record<string, unknown>);
  const shape = shapeOf(exported);
  const module = exported as ModuleObject & Scorer;
  const problem = shape.has.check === 'function' ? await module.check!(structuredClone(settings)) : undefined;
  send({ kind: 'imported', shape, problem });
  const isFactory = shape.has.create === 'function';
  const made: unknown = isFactory ? await module.create!(structuredClone(settings), { png, processes: 1 }) : module;
  const scorer = typeof made === 'function' ? { score: made as Scorer['score'] } : (made as Scorer | null | undefined);
  const isScorer = typeof scorer?.score === 'function';
  send({ kind: 'made', problem: isScorer ? null : String(made) });
  if (isScorer) await scoreAll(scorer);
} catch (error) {
  // Node reports the place of a syntax error only if nothing catches it.
  if (error instanceof SyntaxError) throw error;
  send({ kind: 'failed', error: describeThrown(error) });
}
process.exit(0);
