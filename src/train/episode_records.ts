/** What is kept of every episode. */
import type { RgbImage } from '../core/image.js';
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { JudgeItem, Outcome } from '../rewards/types.js';
import { writeEpisodes } from '../run/episodes.js';
import { storeImage, storePng } from '../run/media.js';
import type { RunPaths } from '../run/paths.js';
import type { RenderedAnswer } from '../recipes/image_edit_tokens/task.js';
import type { IterationRecord } from './grpo.js';

/** Whether an iteration's images are kept. */
export function recordsImages(iteration: number, imagesEvery: number): boolean {
  return iteration % imagesEvery === 0;
}

/** The fields of an episode's line that training and held-out evaluation share. */
export function episodeLine(
  sample: string,
  { ids, finished }: Pick<TokenAnswer, 'ids' | 'finished'>,
  parsed: RenderedAnswer['parsed'],
  item: Pick<JudgeItem, 'key' | 'instruction'>,
  outcome: Outcome,
): object {
  const { grid, text } = parsed;
  return {
    key: item.key,
    sample,
    instruction: item.instruction,
    text,
    finished,
    tokens: [...ids],
    grid: grid === null ? null : { height: grid.height, width: grid.width, codes: [...grid.codes] },
    outcome,
  };
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
      lines.push({
        ...episodeLine(prompt.sample.id, answer, parsed, item, record.outcomes[g][i]),
        log_prob: answer.logProbs.reduce((sum, x) => sum + x, 0),
        advantage: record.advantages[g].advantages[i],
        ...(withImages ? { source, edited: await store(item.edited) } : {}),
      });
    }
  }
  writeEpisodes(paths, record.iteration, lines);
}
