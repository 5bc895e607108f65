/** Checks whether prompts leave enough context for answers. An answer that the context cuts is scored as it is. */
import { existsSync } from 'node:fs';
import type { LoadedConfig } from '../../config/load.js';
import { ConfigError, EditrlError } from '../../core/errors.js';
import { modelFolder } from '../../models/reference.js';
import { sourcesOf } from '../../recipes/recipe.js';
import { isTrainable } from '../../config/recipes.js';
import { openRecipeOf } from '../../recipes/open.js';
import { recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { readState } from '../../run/state.js';
import type { ModelReference } from '../../config/schema/model.js';
import { getPath } from '../../core/schema/walk.js';
import type { TrainedSettings } from '../../config/schema/run.js';
import { describeRoom, leavesNoRoom, type PromptRoom, type RoomLimits } from '../../train/scoring/prompt_room.js';
import { computeOnce, type Obstacle } from './obstacle.js';
import { runResolver } from '../models/wanted.js';

/** Problems that prevent runs, and warnings. */
export interface AnswerRoomResult {
  readonly obstacles: readonly Obstacle[];
  readonly warnings: readonly string[];
}

/** Checks the prompts of several runs. Shared prompts are checked once. */
export class AnswerRoomChecks {
  readonly #known = new Map<string, Promise<readonly PromptRoom[]>>();

  /**
   * Skips runs whose data or models do not exist yet. Their workers check later. A run that has already started continues with a warning.
   */
  async of(runs: readonly LoadedConfig[]): Promise<AnswerRoomResult> {
    const obstacles: Obstacle[] = [];
    const warnings = new Set<string>();
    for (const { settings } of runs) {
      const { run_name: run, launch } = settings;
      if (!isTrainable(settings) || launch.command !== null || !isThere(settings)) continue;
      const limits = limitsOf(settings);
      if (limits === null) continue;
      try {
        const rooms = await computeOnce(this.#known, keyOf(settings), () => promptRooms(settings));
        for (const room of rooms) {
          const text = describeRoom(room, limits);
          if (text === null) continue;
          if (leavesNoRoom(room, limits) && !hasBegun(settings)) obstacles.push({ run, error: refusal(text, limits) });
          else warnings.add(text);
        }
      } catch (error) {
        if (!(error instanceof EditrlError)) throw error;
        obstacles.push({ run, error });
      }
    }
    return { obstacles: withoutRepeats(obstacles), warnings: [...warnings] };
  }
}

async function promptRooms(settings: TrainedSettings): Promise<readonly PromptRoom[]> {
  return (await openRecipeOf(settings).promptRoom?.(settings, runResolver(settings.base_exp_dir))) ?? [];
}

function refusal(text: string, { context, answer }: RoomLimits): ConfigError {
  return new ConfigError(text, {
    where: 'policy.model_context_size',
    next: `Raise policy.model_context_size above ${context}, or set rollout.max_response_tokens below ${answer}.`,
  });
}

/** Runs with the same dataset have the same problem, which is reported once. */
function withoutRepeats(obstacles: readonly Obstacle[]): Obstacle[] {
  return [...new Map(obstacles.map((one) => [one.error.toText(), one])).values()];
}

function limitsOf(settings: TrainedSettings): RoomLimits | null {
  const context = getPath(settings, 'policy.model_context_size');
  const answer = getPath(settings, 'rollout.max_response_tokens');
  return typeof context === 'number' && typeof answer === 'number' ? { context, answer } : null;
}

function hasBegun(settings: TrainedSettings): boolean {
  return (readState(RunPaths.of(settings))?.iteration ?? 0) > 0;
}

/** Whether its datasets and models exist on this machine already. */
function isThere(settings: TrainedSettings): boolean {
  if (!sourcesOf(settings.data).every(({ path }) => existsSync(path))) return false;
  const resolveRun = runResolver(settings.base_exp_dir);
  return recipeOf(settings).models.every((key) => {
    const reference = getPath(settings, key) as ModelReference | null | undefined;
    if (reference === null || reference === undefined) return true;
    try {
      return existsSync(modelFolder(reference, resolveRun));
    } catch (error) {
      // A missing folder is reported by the checks of models.
      if (error instanceof EditrlError) return false;
      throw error;
    }
  });
}

/** Everything that affects the length of prompts and the room for answers. */
function keyOf(settings: TrainedSettings): string {
  const { task, data, validation, prompt } = settings as TrainedSettings & { validation?: unknown; prompt?: unknown };
  const policy = ['tokenizer', 'model', 'init', 'pixels', 'assistant_prefill'].map((key) =>
    getPath(settings, `policy.${key}`),
  );
  const supervised = getPath(settings, 'algorithm.type') === 'sft';
  return JSON.stringify([task, data, validation, prompt, policy, supervised, limitsOf(settings)]);
}
