/** What is done for runs before any of them starts or is submitted, in one order for all commands. */
import type { LoadedConfig } from '../../config/load.js';
import { printable } from '../../core/errors.js';
import { openView } from '../live/view.js';
import { HubModels } from '../models/hub.js';
import { AnswerRoomChecks } from './answer_room.js';
import { examWarnings } from './exam_warnings.js';
import {
  findObstacles,
  fileObstacles,
  throwObstacles,
  memoryWarnings,
  modelWarnings,
  unfinished,
  type PreflightCheckOptions,
} from './preflight.js';

export interface ReadyOptions extends PreflightCheckOptions {
  /** What fetches models; null for a rehearsal, which fetches nothing. */
  readonly models: Pick<HubModels, 'obstacles' | 'fetch'> | null;
  /** Results of earlier checks of prompts, which are not repeated. */
  readonly rooms?: AnswerRoomChecks;
  /** Receives each warning as one sentence. */
  readonly warn: (warning: string) => void;
}

/**
 * Looks for what prevents runs, fetches the models that they need, checks the prompts by these models, and warns of memory that may be too little.
 * Raises what prevents a run, before any weights are fetched unless only the models tell.
 */
export async function makeReady(
  runs: readonly LoadedConfig[],
  { models, rooms = new AnswerRoomChecks(), warn, ...looking }: ReadyOptions,
): Promise<void> {
  throwObstacles(await findObstacles(runs, looking));
  const left = unfinished(runs, looking.anew);
  if (models !== null) {
    throwObstacles(await models.obstacles(left, looking.anew));
    // The shapes of models of the Hub are known by now, and with them memory and disk space.
    throwObstacles(fileObstacles(runs, looking));
    await models.fetch(left, looking.anew);
  }
  const room = await rooms.of(left);
  throwObstacles(room.obstacles);
  const warnings = [...room.warnings, ...modelWarnings(left), ...memoryWarnings(runs, looking), ...examWarnings(runs)];
  for (const warning of warnings) warn(warning);
}

/** The same before jobs are submitted: compute nodes may have no network, but share the cache. Warnings are left to the workers' logs. */
export async function makeReadyToSubmit(runs: readonly LoadedConfig[], looks: PreflightCheckOptions): Promise<void> {
  const view = openView(process.stderr);
  const models = new HubModels({ say: (line) => view.say(printable(line)), busy: (what) => view.busy(what) });
  try {
    await makeReady(runs, { ...looks, models, warn: () => {} });
  } finally {
    view.end();
    await models.close();
  }
}
