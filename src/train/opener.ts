/** The contract of what stands in a recipe's open.ts. */
import type { RunResolver } from '../models/reference.js';
import type { PromptRoom } from '../scoring/prompt_room.js';
import type { TrainedSettings } from '../schema/run.js';
import type { SampledSet } from '../scoring/sample_rows.js';
import type { Prompt, Task } from '../scoring/task.js';
import type { TrainingContext } from './context.js';
import type { Training } from './loop.js';

/** How a recipe comes to life. Methods, so that recipes of different settings stand in one table. */
export interface OpenRecipe<S extends TrainedSettings = TrainedSettings> {
  /** Makes data that a config asks for and that is not there yet, from the finished runs that this needs. */
  makeData(settings: S, resolveRun: RunResolver, say: (line: string) => void): Promise<void>;
  /** Wires its parts and gives its training, on every rank. */
  open(settings: S, context: TrainingContext): Promise<Training>;
  /** Opens what its recorded episodes are scored again with; null where answers are not scored. Raises EditrlError where data or models are gone. */
  openTask(settings: S, resolveRun: RunResolver): Promise<Task<Prompt, unknown> | null>;
  /**
   * The first `count` rows of each dataset, with answers that need no model; none where answers are not scored, or no picture is there
   * without a model. Data of the tiny world that is not made yet is drawn. Raises DataError as opening the datasets does.
   */
  sampleRows(settings: S, count: number): Promise<readonly SampledSet[]>;
  /**
   * How much room the context leaves for answers, dataset by dataset; absent where no prompt of any length stands before an answer. Raises EditrlError
   * where data or models are gone, and DataError for a prompt that cannot be asked.
   */
  promptRoom?(settings: S, resolveRun: RunResolver): Promise<readonly PromptRoom[]>;
}
