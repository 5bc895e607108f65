/** Opens recipes that train a network for pictures on whole batches by its loss alone. */
import { Datasets } from '../data/datasets.js';
import type { ComparedSample } from '../data/overlap.js';
import type { SampleSource } from '../data/types.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { WordsSftSettings } from '../schema/algorithm.js';
import type { EngineSettings } from '../schema/model.js';
import type { TrainedSettings } from '../schema/run.js';
import { recordDatasets, type TrainingContext } from '../train/context.js';
import type { OpenRecipe } from '../train/opener.js';
import { Pretraining, type Network } from '../train/pretraining.js';
import { scheduleOf } from '../train/schedule.js';
import type { TinyData, TinyDataset } from '../tiny/world/door.js';

type WholeBatchSettings<T> = TrainedSettings &
  TinyData<T> & {
    readonly algorithm: WordsSftSettings;
    readonly data: NonNullable<TrainedSettings['data']>;
    readonly environment: { readonly engine: EngineSettings };
  };

/** A recipe whose datasets `open` opens, each by its path, and whose network `networkOf` makes. */
export function wholeBatchOpener<S extends WholeBatchSettings<D>, D, T, M>(
  tiny: Pick<TinyDataset<D>, 'make' | 'placesOf'>,
  open: (path: string, settings: S) => Promise<SampleSource<T>>,
  comparedAs: (source: SampleSource<T>, index: number) => ComparedSample,
  networkOf: (
    settings: S,
    data: Datasets<SampleSource<T>>,
    context: TrainingContext,
  ) => Promise<Network<T, M>> | Network<T, M>,
): OpenRecipe<S> {
  return {
    makeData: tiny.make,
    open: async (settings, context) => {
      const { optimizer, algorithm, validation, environment } = settings;
      const placed = tiny.placesOf(settings);
      const data = await Datasets.open(settings, ({ path }) => open(placed(path), settings));
      await recordDatasets(context, settings, data.sources, { at: comparedAs, kept: 'files' });
      const session = sessionOptions(environment.engine);
      const deps = { optimizer, schedule: scheduleOf(settings), sft: algorithm.sft, validation, data, session };
      return Pretraining.open(deps, await networkOf(settings, data, context));
    },
    openTask: async () => null,
    sampleRows: async () => [],
  };
}
