/** Opens `image_autoencoder`. */
import { openSelfBench } from '../../data/self_bench.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { noteDatasets, type Bench } from '../../train/bench.js';
import { ImageAutoencoderTraining } from '../../train/image_autoencoder.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { scheduleOf } from '../../train/schedule.js';
import { signData } from '../sign_data.js';
import type { ImageAutoencoderSettings } from './settings.js';

function open(settings: ImageAutoencoderSettings, bench: Bench): Promise<Training> {
  const { seed, environment, optimizer, algorithm, data, validation } = settings;
  const placed = signData.placesOf(settings);
  const [train, heldOut] = [data.train, data.validation].map((sources) =>
    sources.map(({ path }) => openSelfBench(placed(path))),
  );
  noteDatasets(bench, data, [...train, ...heldOut]);
  return ImageAutoencoderTraining.open({
    seed,
    init: environment.init,
    optimizer,
    schedule: scheduleOf(settings),
    klWeight: algorithm.kl_weight,
    sft: algorithm.sft,
    data: {
      train,
      coefficients: data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient])),
      validation: heldOut,
    },
    validation,
    session: sessionOptions(environment.engine),
  });
}

export const imageAutoencoder: OpenRecipe<ImageAutoencoderSettings> = {
  makeData: signData.make,
  open,
  openTask: async () => null,
  sampleRows: async () => [],
};
