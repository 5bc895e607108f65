/** What is kept of every episode. */
import type { RgbImage } from '../core/image.js';
import { writeEpisodes } from '../run/episodes.js';
import { storeImage, storePng } from '../run/media.js';
import type { RunPaths } from '../run/paths.js';
import type { IterationRecord } from './grpo.js';

/** Whether an iteration's images are kept. */
export function recordsImages(iteration: number, imagesEvery: number): boolean {
  return iteration % imagesEvery === 0;
}

/** Writes one line per episode; images only every `imagesEvery` iterations, else the token grids that they decode from. */
export async function recordEpisodes(paths: RunPaths, record: IterationRecord, imagesEvery: number): Promise<void> {
  const withImages = recordsImages(record.iteration, imagesEvery);
  const store = async (image: RgbImage | null): Promise<string | null> =>
    image === null ? null : storeImage(paths, image);
  const lines: object[] = [];
  for (const [g, { prompt, answers, rendered }] of record.groups.entries()) {
    const source = withImages ? storePng(paths, prompt.sample.sourcePng) : null;
    for (const [i, answer] of answers.entries()) {
      const { parsed, item } = rendered[i];
      const outcome = record.outcomes[g][i];
      lines.push({
        key: item.key,
        sample: prompt.sample.id,
        instruction: item.instruction,
        text: parsed.text,
        finished: answer.finished,
        tokens: [...answer.ids],
        log_prob: answer.logProbs.reduce((sum, x) => sum + x, 0),
        grid:
          parsed.grid === null
            ? null
            : { height: parsed.grid.height, width: parsed.grid.width, codes: [...parsed.grid.codes] },
        outcome,
        advantage: record.advantages[g].advantages[i],
        ...(withImages ? { source, edited: await store(item.edited) } : {}),
      });
    }
  }
  writeEpisodes(paths, record.iteration, lines);
}
