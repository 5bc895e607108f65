/** The contract for a recipe's open.ts. */
import type { RunResolver } from '../models/reference.js';
import type { TokenPrompt } from '../policies/tokens/batch.js';
import type { TokenFormat } from '../policies/tokens/format.js';
import type { PromptRoom } from '../scoring/prompt_room.js';
import type { TrainedSettings } from '../schema/run.js';
import type { SampledSet } from '../scoring/sample_rows.js';
import type { Prompt, Task } from '../scoring/task.js';
import type { TrainingContext } from './context.js';
import type { Training } from './loop.js';

/** How a recipe is opened. Methods, so that recipes with different settings fit into one table. */
export interface OpenRecipe<S extends TrainedSettings = TrainedSettings> {
  /** Makes data that a config needs and that does not exist yet, from the finished runs that it depends on. */
  makeData(settings: S, resolveRun: RunResolver, say: (line: string) => void): Promise<void>;
  /** Wires the recipe's parts and returns its training, on every rank. */
  open(settings: S, context: TrainingContext): Promise<Training>;
  /**
   * Opens what is needed to score its recorded episodes again; null if its answers are not scored. Raises EditrlError when data or models are gone.
   */
  openTask(settings: S, resolveRun: RunResolver): Promise<Task<Prompt, unknown> | null>;
  /**
   * The first `count` rows of each dataset, with answers that need no model; none if answers are not scored, or if pictures need a model. Draws data
   * of the tiny world that is not made yet. Raises DataError as opening the datasets does.
   */
  sampleRows(settings: S, count: number): Promise<readonly SampledSet[]>;
  /**
   * How much room the context leaves for answers, dataset by dataset; absent if answers have no prompt before them in the context. Raises EditrlError
   * when data or models are gone, and DataError for a prompt that cannot be asked.
   */
  promptRoom?(settings: S, resolveRun: RunResolver): Promise<readonly PromptRoom[]>;
  /** The tokens of answers that a training server samples; absent if they are words. Raises EditrlError when its tokenizer is gone. */
  servedFormat?(settings: S, resolveRun: RunResolver): TokenFormat<TokenPrompt>;
}
