/**
 * Checks whether the judges of runs and the servers of reward terms are ready. A run makes the same checks before it
 * scores anything, but repeats them and waits.
 */
import type { LoadedConfig } from '../../config/load.js';
import { EndpointError, type EditrlError } from '../../core/errors.js';
import { trainerServeOf } from '../../recipes/shared/tokens/rules.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf, rewardOf } from '../../recipes/settings.js';
import { asksJudge } from '../../rewards/score/choice.js';
import { createReward } from '../../rewards/score/combined.js';
import { resolveEndpoints, type Endpoint } from '../../rewards/judge/endpoints.js';
import { waitUntilReady, type ReadinessOptions } from '../../rewards/judge/readiness.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import type { ImageServer } from '../../config/schema/editor.js';
import type { RunSettings } from '../../config/schema/run.js';
import { judgeKey, Judges, requestsOf, termServices } from '../../train/scoring/judges.js';
import { checkVllm } from '../../train/remote/remote_sampler.js';
import { checkImagesServer, checkRenderServer } from '../../train/remote/remote_images.js';
import { computeOnce, failureOf, type Obstacle } from './obstacle.js';
import { runResolver, unfinishedRun } from '../models/wanted.js';
import { urlsToShare } from '../servers/gateway.js';

export interface ServerCheckResult {
  /** Problems that prevent runs. */
  readonly obstacles: readonly Obstacle[];
  /** Notes, one sentence each. */
  readonly notes: readonly string[];
}

/** The result of one check: nothing, an error, or a note. */
type Found = { readonly what: string; readonly error?: EditrlError; readonly note?: string };

/** The result of creating and closing a reward as a run does. */
interface RewardCheck {
  /** The models that it requests from `reward.endpoint`. */
  readonly models: readonly string[];
  /** The error of creating it, or of a term's server that is not ready. */
  readonly error: EditrlError | null;
  /** Unfinished runs whose models its terms need. These terms were skipped. */
  readonly unmade: readonly string[];
}

/** Checks the servers of configs one after another. Shared servers are checked once. */
export class ServerChecks {
  readonly #judges = new Map<string, Promise<EditrlError | null>>();
  readonly #rewards = new Map<string, Promise<RewardCheck>>();
  readonly #images = new Map<
    string,
    Promise<{ readonly error: EditrlError | null; readonly left: readonly string[] }>
  >();

  /** The problems of runs that still have to be trained. Each problem is reported for the first run that has it. */
  async of(runs: readonly LoadedConfig[]): Promise<ServerCheckResult> {
    const reported = new Set<string>();
    const [obstacles, notes]: [Obstacle[], string[]] = [[], []];
    for (const { settings } of runs) {
      for (const { what, error, note } of await this.#ofRun(settings)) {
        if (reported.has(what)) continue;
        reported.add(what);
        if (error !== undefined) obstacles.push({ run: settings.run_name, error });
        if (note !== undefined) notes.push(`${settings.run_name}: ${note}`);
      }
    }
    return { obstacles, notes };
  }

  async #ofRun(settings: RunSettings): Promise<Found[]> {
    return [
      ...(await this.#ofReward(settings)),
      ...(await this.#ofSampler(settings)),
      ...ofTrainer(settings),
      ...(await this.#ofImages(settings)),
    ];
  }

  async #ofReward(settings: RunSettings): Promise<Found[]> {
    const reward = rewardOf(settings);
    if (reward === null || settings.launch.command !== null) return [];
    // A supervised run without an endpoint for its judge only reports losses.
    if (reward.endpoint === '' && asksJudge(reward)) return [];
    const { models, error, unmade } = await this.#make(reward, settings.base_exp_dir);
    return [
      ...(error === null ? [] : [{ what: `reward ${error.toText()}`, error }]),
      ...unmade.map((run) => ({
        what: run,
        note: `the run ${run} is not finished, so a term that uses its model was not checked`,
      })),
      ...(models.length === 0 ? [] : await this.#ofJudges(reward, models)),
    ];
  }

  /** The judges at `reward.endpoint`. */
  async #ofJudges(reward: RewardSettings, models: readonly string[]): Promise<Found[]> {
    const { endpoint } = reward;
    const requests = requestsOf(reward);
    if (endpoint === 'embedded') {
      return [{ what: endpoint, note: 'its embedded judge starts with the run and was not checked' }];
    }
    const missing = missingNodeFile(endpoint);
    if (missing !== null) {
      return [
        {
          what: missing.toText(),
          note: `its judge is not running yet, and the run will wait for it: ${missing.toText()}`,
        },
      ];
    }
    // A gateway fails over between judges, so one ready judge is enough.
    const shared = urlsToShare(endpoint, false);
    const places: readonly Endpoint[] = shared === null ? [endpoint] : [...new Set(shared)];
    const pairs = models.flatMap((model) => places.map((place) => ({ model, place })));
    const found = await Promise.all(
      pairs.map(async (pair) => ({ ...pair, error: await this.#ask(pair.place, pair.model, requests) })),
    );
    return found.flatMap(({ model, place, error }): Found[] => {
      if (error === null) return [];
      const what = `${JSON.stringify(place)} ${model}`;
      const spare = found.some((other) => other.model === model && other.error === null);
      return [
        spare ? { what, note: `one of its judges is not ready, but others are: ${error.toText()}` } : { what, error },
      ];
    });
  }

  /** The server that samples its answers. */
  async #ofSampler(settings: RunSettings): Promise<Found[]> {
    const sampled = isTrainable(settings) ? recipeOf(settings).sampler(settings) : null;
    if (sampled === null) return [];
    const { base_url: url } = sampled.engine;
    if (url === null) return [{ what: 'vllm', note: 'its vLLM starts with the run and was not checked' }];
    const what = `vllm ${url} ${sampled.contextSize}`;
    const error = await computeOnce(this.#judges, what, () => failureOf(() => checkVllm(sampled, url)));
    return error === null ? [] : [{ what, error }];
  }

  /** The servers that make images of its answers. One ready server is enough. */
  async #ofImages(settings: RunSettings): Promise<Found[]> {
    const server = isTrainable(settings) ? recipeOf(settings).images(settings) : null;
    if (server === null) return [];
    const { base_url, served_model, api_key_env } = server.settings;
    const what = `${server.kind} ${JSON.stringify([base_url, served_model, api_key_env, widthOf(server)])}`;
    const { error, left } = await computeOnce(this.#images, what, async () => {
      let left: readonly string[] = [];
      const error = await failureOf(async () => void (left = await lookAt(server)));
      return { error, left };
    });
    const notes = left.map((found) => ({
      what: `${what} ${found}`,
      note: `an image server is not ready, but others are: ${found}`,
    }));
    return [...(error === null ? [] : [{ what, error }]), ...notes];
  }

  #ask(
    place: Endpoint,
    model: string,
    options: Pick<ReadinessOptions, 'alias' | 'names' | 'shown' | 'leaveOut' | 'replyTokens'>,
  ): Promise<EditrlError | null> {
    return computeOnce(this.#judges, JSON.stringify([place, model, { ...options, names: null }]), () =>
      failureOf(() => waitUntilReady(place, model, { ...judgeKey({ token: null }), maxWaitS: 0, ...options })),
    );
  }

  #make(reward: RewardSettings, baseExpDir: string): Promise<RewardCheck> {
    return computeOnce(this.#rewards, JSON.stringify([reward, baseExpDir]), () => makeReward(reward, baseExpDir));
  }
}

function lookAt(server: ImageServer): Promise<readonly string[]> {
  switch (server.kind) {
    case 'images_api':
      return checkImagesServer(server.settings);
    case 'render_server':
      return checkRenderServer(server.settings, server.width);
  }
}

function widthOf(server: ImageServer): number | null {
  return server.kind === 'render_server' ? server.width : null;
}

/** The run itself and `editrl check --launch` check a training server. */
function ofTrainer(settings: RunSettings): Found[] {
  if (settings.launch.command !== null || trainerServeOf(settings) === null) return [];
  const note = 'its training server starts with the run and was not checked; `editrl check --launch` starts it';
  return [{ what: 'training server', note }];
}

/** Creates a reward's terms, checks their own servers, and closes everything. */
async function makeReward(reward: RewardSettings, baseExpDir: string): Promise<RewardCheck> {
  const judges = new Judges();
  const unmade = reward.terms.flatMap((term) => unfinishedRun(term, baseExpDir) ?? []);
  // A check does not wait for servers.
  const terms = reward.terms
    .filter((term) => unfinishedRun(term, baseExpDir) === null)
    .map((term) => ('wait_s' in term ? { ...term, wait_s: 0 } : term));
  const error = await failureOf(async () => {
    const settings = { ...reward, terms };
    const made = await createReward(settings, termServices(settings, judges, runResolver(baseExpDir)));
    try {
      await made.untilReady({ maxWaitS: 0 });
    } finally {
      await made.close();
    }
  });
  return { models: judges.models, error, unmade };
}

function missingNodeFile(endpoint: Endpoint): EndpointError | null {
  try {
    resolveEndpoints(endpoint);
    return null;
  } catch (error) {
    // The user of a malformed address reports it.
    return error instanceof EndpointError ? error : null;
  }
}
