/** How held-out answers changed, as the page shows it. */
import { gainOf, type ChangedAnswer, type HeldOutChanges } from '../run/report/held_out_changes.js';
import type { WireChanges } from './wire.js';

/** `place` turns the name of an image in the run's media into what the page finds it by. */
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
