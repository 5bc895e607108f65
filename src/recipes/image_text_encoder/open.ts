/** Opens `image_text_encoder`. */
import { openCaptioned } from '../../data/captioned.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { noteDatasets, type Bench } from '../../train/bench.js';
import { ContrastiveTraining } from '../../train/contrastive.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { scheduleOf } from '../../train/schedule.js';
import { captionedData } from '../captioned_data.js';
import type { ImageTextEncoderSettings } from './settings.js';

async function open(settings: ImageTextEncoderSettings, bench: Bench): Promise<Training> {
  const { seed, environment, optimizer, algorithm, data, validation } = settings;
  const placed = captionedData.placesOf(settings);
  const opened = (sources: ImageTextEncoderSettings['data']['train']) =>
    Promise.all(sources.map(({ path }) => openCaptioned(placed(path))));
  const [train, heldOut] = [await opened(data.train), await opened(data.validation)];
  noteDatasets(bench, data, [...train, ...heldOut]);
  return ContrastiveTraining.open({
    seed,
    init: environment.init,
    optimizer,
    schedule: scheduleOf(settings),
    matchedCosine: algorithm.matched_cosine,
    sft: algorithm.sft,
    data: {
      train,
      coefficients: data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient])),
      validation: heldOut,
    },
    validation,
    session: sessionOptions(environment.engine),
    checkpoint: bench.checkpoint,
  });
}

export const imageTextEncoder: OpenRecipe<ImageTextEncoderSettings> = {
  makeData: captionedData.make,
  open,
  openTask: async () => null,
  sampleRows: async () => [],
};
