/** The services of a run that recipes build trainings from, and the record of its datasets. */
import { belowFolder } from '../config/hash.js';
import type { TrainedSettings } from '../config/schema/run.js';
import type { ModelFileOptions } from '../compute/onnx/model_file.js';
import type { ProcessGroup } from '../core/group/process_group.js';
import { describeOverlap, findOverlap, type ComparedSample, type ComparedSet } from '../data/overlap.js';
import type { SampleSource } from '../data/types.js';
import type { RunResolver } from '../models/reference.js';
import type { JudgeAddress } from '../rewards/judge/endpoints.js';
import type { RunHandle } from '../run/claim/claim.js';
import type { RunLog } from '../run/logs.js';
import type { Spending } from '../run/spending.js';

/** Address of a server that this program started, and the credentials it expects. */
export interface ServerAddress {
  readonly url: string;
  readonly token: string;
}

/** A training server that this program started. */
export interface StartedTrainer extends ServerAddress {
  /** Its command line without its port, which is another one at each start. */
  readonly startedBy: readonly string[];
}

/** The services that open a training, on any rank. */
export interface TrainingContext {
  readonly group: ProcessGroup;
  /** The run directory, which only rank 0 owns. Null on other ranks. */
  readonly handle: RunHandle | null;
  readonly log: RunLog;
  readonly resolveRun: RunResolver;
  /** Address of the judge. Null if none is configured. */
  readonly judge: JudgeAddress | null;
  /** The server that was started with the run to sample its answers. Absent or null if there is none. */
  readonly sampler?: ServerAddress | null;
  /** The server that was started with the run to train its policy. Absent or null if there is none. */
  readonly trainer?: StartedTrainer | null;
  readonly stop: AbortSignal;
  /** Counts what a training server is asked. Absent or null where nobody counts. */
  readonly spending?: Spending | null;
  /** Where the reward's own models run. Default: the CPU. */
  readonly rewardSession?: ModelFileOptions;
  /** The folder of the checkpoint to continue from. */
  readonly checkpoint: string | null;
}

/** Limits of the search for held-out samples among those that are trained on: of samples that are read from files, and of those in memory. */
const COMPARED = { files: 10_000, memory: 1_000_000, images: 4_000 };

type OpenedSource = Pick<SampleSource<unknown>, 'remark' | 'digest' | 'length'>;

/** How samples of a recipe's datasets are compared. */
interface Comparing<S> {
  readonly at: (source: S, index: number) => ComparedSample;
  /** Where `at` finds the words. */
  readonly kept: 'files' | 'memory';
}

/**
 * On rank 0, logs notes about how the datasets were opened, each once, and checks that the run still has the same datasets. Every rank opens the same
 * ones. `opened` are those of `data`, train before validation. Where a run begins, it looks for held-out samples among those that are trained on,
 * warns, and records how many there are. Raises DataError when a dataset is not what it was when the run's first checkpoint was begun.
 */
export async function recordDatasets<S extends OpenedSource>(
  { handle, log }: Pick<TrainingContext, 'handle' | 'log'>,
  { data, validation }: { readonly data: NonNullable<TrainedSettings['data']> } & Pick<TrainedSettings, 'validation'>,
  opened: readonly S[],
  comparing: Comparing<S>,
): Promise<void> {
  if (handle === null) return;
  const remarks = opened.flatMap(({ remark }) => remark ?? []);
  for (const remark of new Set(remarks)) log.logger.warn(remark);
  const paths = [...data.train, ...data.validation].map(({ path }) => belowFolder(data.dir, path));
  const noted = opened.map(({ length, digest }, i) => [paths[i], { samples: length, ...digest }] as const);
  handle.noteData(Object.fromEntries(noted));
  if (handle.checkpoint !== null) return;
  const sets = opened.map((source, i): ComparedSet => {
    const isHeldOut = i >= data.train.length;
    const length = isHeldOut ? Math.min(source.length, validation.prompts) : source.length;
    return { name: paths[i], length, at: (index) => comparing.at(source, index) };
  });
  const training = sets.slice(0, data.train.length);
  // A dataset that the config names twice is no surprise to anybody.
  const isAlsoTrained = (set: ComparedSet): boolean => training.some(({ name }) => name === set.name);
  const heldOut = sets.slice(data.train.length).filter((set) => !isAlsoTrained(set));
  const limits = { samples: COMPARED[comparing.kept], images: COMPARED.images };
  const overlap = await findOverlap(heldOut, training, limits);
  const said = describeOverlap(
    overlap,
    heldOut.reduce((sum, { length }) => sum + length, 0),
  );
  if (said !== null) log.logger[overlap.example === null ? 'info' : 'warn'](said);
  const counts = sets.slice(data.train.length).map((set) => overlap.found[heldOut.indexOf(set)] ?? set.length);
  handle.noteData(
    Object.fromEntries(
      noted.map(([path, one], i) => {
        const count = i < data.train.length ? 0 : counts[i - data.train.length];
        return [path, count === 0 ? one : { ...one, in_training: count }];
      }),
    ),
  );
}
