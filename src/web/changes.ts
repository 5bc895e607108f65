/** Changes of held-out answers for the page. */
import { statSync } from 'node:fs';
import { LRUCache } from 'lru-cache';
import { listEpisodeFiles } from '../run/episodes.js';
import type { RunPaths } from '../run/paths.js';
import { gainOf, readHeldOutChanges, type ChangedAnswer, type HeldOutChanges } from '../run/report/held_out_changes.js';
import type { WireChanges } from './wire.js';

/** The changes of a run by its folder, with the files that they were read from. */
const known = new LRUCache<string, { readonly of: string; readonly changes: HeldOutChanges | null }>({ max: 50 });

/** Reads the changes of a run, once for each evaluation: the page asks again at every iteration, and the files may be large. */
export function changesOf(paths: RunPaths): HeldOutChanges | null {
  const files = listEpisodeFiles(paths).filter(({ heldOut }) => heldOut);
  const of = JSON.stringify(files.map(({ path }) => [path, statSync(path).mtimeMs]));
  const found = known.get(paths.dir);
  if (found?.of === of) return found.changes;
  const changes = readHeldOutChanges(paths);
  known.set(paths.dir, { of, changes });
  return changes;
}

/** `place` turns the name of an image in the run's media into the page's reference to it. */
export async function wireChanges(
  changes: HeldOutChanges,
  place: (name: string) => string | null | Promise<string | null>,
): Promise<WireChanges> {
  const { means, change, better, same, worse, examples } = changes;
  const shown = async (label: string, name: string | null, score: number | null) => ({
    label,
    score,
    at: name === null ? null : await place(name),
  });
  return {
    before: means[0],
    after: means[1],
    change,
    better,
    same,
    worse,
    examples: await Promise.all(
      examples.map(async (one: ChangedAnswer) => ({
        prompt: one.prompt,
        gain: gainOf(one),
        images: [
          ...(one.source === null ? [] : [await shown('source', one.source, null)]),
          await shown('before', one.before.image, one.before.score),
          await shown('after', one.after.image, one.after.score),
          ...(one.wanted === null ? [] : [await shown('wanted', one.wanted, null)]),
        ],
      })),
    ),
  };
}
