/** The services of a run from which recipes build trainings, and the record of its datasets. */
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

/** Address and credentials of a server that editrl started. */
export interface ServerAddress {
  readonly url: string;
  readonly token: string;
}

/** A training server that editrl started. */
export interface StartedTrainer extends ServerAddress {
  /** Its command line without the port, which changes with each start. */
  readonly startedBy: readonly string[];
}

/** The services that open a training, on any rank. */
export interface TrainingContext {
  readonly group: ProcessGroup;
  /** The run directory. Null on ranks other than 0, which do not own it. */
  readonly handle: RunHandle | null;
  readonly log: RunLog;
  readonly resolveRun: RunResolver;
  /** Address of the judge. Null if none is configured. */
  readonly judge: JudgeAddress | null;
  /** The sampling server that was started with the run. Absent or null if there is none. */
  readonly sampler?: ServerAddress | null;
  /** The training server that was started with the run. Absent or null if there is none. */
  readonly trainer?: StartedTrainer | null;
  readonly stop: AbortSignal;
  /** Counts requests to a training server. Absent or null if they are not counted. */
  readonly spending?: Spending | null;
  /** The device of the reward's own models. Default: the CPU. */
  readonly rewardSession?: ModelFileOptions;
  /** The folder of the checkpoint to continue from. */
  readonly checkpoint: string | null;
}

/** Maximum numbers of training samples that are compared with held-out ones: read from files, and in memory. */
const COMPARED = { files: 10_000, memory: 1_000_000, images: 4_000 };

type OpenedSource = Pick<SampleSource<unknown>, 'remark' | 'digest' | 'length'>;

/** How samples of a recipe's datasets are compared. */
interface Comparing<S> {
  readonly at: (source: S, index: number) => ComparedSample;
  /** The source from which `at` reads the words. */
  readonly kept: 'files' | 'memory';
}

/**
 * On rank 0, logs each note about opening the datasets once and checks that the run still has the same datasets. All
 * ranks open the same ones.
 * `opened` contains the sources of `data`, training before validation. A new run also looks for held-out samples in the
 * training data, warns about them and records their number. Raises DataError when a dataset differs from the one at the
 * start of the run's first checkpoint.
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
  // A dataset that the config names for both is no surprise.
  const isAlsoTrained = (set: ComparedSet): boolean => training.some(({ name }) => name === set.name);
  const heldOut = sets.slice(data.train.length).filter((set) => !isAlsoTrained(set));
  const limits = { samples: COMPARED[comparing.kept], images: COMPARED.images };
  const overlap = await findOverlap(heldOut, training, limits);
  const message = describeOverlap(
    overlap,
    heldOut.reduce((sum, { length }) => sum + length, 0),
  );
  if (message !== null) log.logger[overlap.example === null ? 'info' : 'warn'](message);
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
