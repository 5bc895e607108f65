/** What is done for runs before any of them starts or is submitted, in one order for all commands. */
import type { LoadedConfig } from '../../config/load.js';
import { printable } from '../../core/errors.js';
import { viewOn } from '../live/view.js';
import { HubModels } from '../models/hub.js';
import { AnswerRooms } from './answer_room.js';
import { lookBefore, obstacles, requireNone, tightRuns, unfinished, type Looks } from './preflight.js';

export interface Readying extends Looks {
  /** What fetches models; null for a rehearsal, which fetches nothing. */
  readonly models: Pick<HubModels, 'obstacles' | 'fetch'> | null;
  /** Results of earlier checks of prompts, which are not repeated. */
  readonly rooms?: AnswerRooms;
  /** Receives each warning as one sentence. */
  readonly warn: (warning: string) => void;
}

/**
 * Looks for what prevents runs, fetches the models that they need, checks the prompts by these models, and warns of memory that may be too little.
 * Raises what prevents a run, before any weights are fetched unless only the models tell.
 */
export async function makeReady(
  runs: readonly LoadedConfig[],
  { models, rooms = new AnswerRooms(), warn, ...looking }: Readying,
): Promise<void> {
  requireNone(await lookBefore(runs, looking));
  const left = unfinished(runs, looking.anew);
  if (models !== null) {
    requireNone(await models.obstacles(left, looking.anew));
    // The shapes of models of the Hub are known by now, and with them memory and disk space.
    requireNone(obstacles(runs, looking));
    await models.fetch(left, looking.anew);
  }
  const room = await rooms.of(left);
  requireNone(room.obstacles);
  for (const warning of [...room.warnings, ...tightRuns(runs, looking)]) warn(warning);
}

/** The same before jobs are submitted: compute nodes may have no network, but share the cache. Warnings are left to the workers' logs. */
export async function makeReadyToSubmit(runs: readonly LoadedConfig[], looks: Looks): Promise<void> {
  const view = viewOn(process.stderr);
  const models = new HubModels({ say: (line) => view.say(printable(line)), busy: (what) => view.busy(what) });
  try {
    await makeReady(runs, { ...looks, models, warn: () => {} });
  } finally {
    view.end();
    await models.close();
  }
}
