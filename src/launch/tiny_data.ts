/** Makes the tiny world's datasets where a config asks for them and they are not there yet. */
import { join } from 'node:path';
import type { TinyWorldSettings, TrainedSettings } from '../config/settings.js';
import { loadVisionTokenizer } from '../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../models/reference.js';
import { hasTinyEdits, makeTinyEdits, makeTinyImages, type TinyEditOptions } from '../tiny/world/dataset.js';
import type { Geometry } from '../tiny/world/world.js';

function geometryOf(tiny: TinyWorldSettings): Geometry {
  return { columns: tiny.grid, rows: tiny.grid, cell: tiny.cell };
}

/** Makes what this run reads; edits need the finished image tokenizer that `environment.model` names. */
export async function ensureTinyData(
  settings: TrainedSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  const { tiny, dir } = settings.data;
  if (tiny === null) return;
  const root = join(dir, tiny.folder);
  if (settings.task === 'image_tokenizer') {
    await makeTinyImages(root, { seed: tiny.seed, geometry: geometryOf(tiny), count: tiny.counts.images });
    return;
  }
  const { train, prompts, validation, truth } = tiny.counts;
  const options: Partial<TinyEditOptions> = {
    seed: tiny.seed,
    geometry: geometryOf(tiny),
    sizes: { train, prompts, validation, truth },
  };
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    if (hasTinyEdits(root, options, tokenizer.id)) return;
    say(`making the tiny world's edits in ${root}`);
    await makeTinyEdits(root, options, tokenizer);
  } finally {
    await tokenizer.dispose();
  }
}
