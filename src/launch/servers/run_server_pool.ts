/** The servers that start with runs: embedded judges, gateways in front of judges, samplers and training servers. */
import { dirname, join } from 'node:path';
import type { EvaluatedWeights } from '../../config/load.js';
import { modelFolder } from '../../models/reference.js';
import { trainerServerOf } from '../../recipes/shared/tokens/rules.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf, rewardOf } from '../../recipes/settings.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import { asksJudge } from '../../rewards/score/choice.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import type { RunSettings } from '../../config/schema/run.js';
import { EmbeddedJudges, SharedGateways } from './gateway.js';
import type { Guardian } from '../processes/guardian.js';
import { hubEnvironmentOf, runResolver } from '../models/wanted.js';
import type { ManagedServer, ServerReporter, ServerUser } from './managed.js';
import type { StartedServer } from './training_server.js';
import type { RunServers } from '../worker/protocol.js';

export interface ServersOptions {
  readonly severalRuns: boolean;
  readonly say: ServerReporter;
  readonly guardian: Guardian;
}

/** The attempt that a server is started for. */
interface Serving {
  readonly attempt: number;
  /** GPUs of a sampling or training server. Null for all visible ones. */
  readonly served: readonly number[] | null;
  /** The evaluated weights, if nothing is trained. */
  readonly evaluation?: EvaluatedWeights | undefined;
}

export interface StartedServers {
  readonly addresses: RunServers;
  readonly close: () => Promise<void>;
}

export class RunServerPool {
  readonly #judges: EmbeddedJudges;
  readonly #gateways: SharedGateways;

  constructor(private readonly options: ServersOptions) {
    const { say, guardian } = options;
    this.#judges = new EmbeddedJudges({ say, guardian });
    this.#gateways = new SharedGateways(options);
  }

  /** Starts the servers of a run's attempt. `close` ends those that only this run uses. Raises the first problem. */
  async start(settings: RunSettings, serving: Serving, user: ServerUser): Promise<StartedServers> {
    const own: { close(): Promise<void> }[] = [];
    const close = async (): Promise<void> => {
      await Promise.all(own.map((server) => server.close()));
    };
    try {
      const judge = await this.#judgeOf(settings, user);
      const sampler = await this.#samplerOf(settings, serving, user);
      if (sampler !== null) own.push(sampler);
      const trainer = await this.#trainerOf(settings, serving, user);
      if (trainer !== null) own.push(trainer);
      const sampling = sampler === null ? null : { url: sampler.url, token: sampler.token };
      return { addresses: { judge, sampler: sampling, trainer: trainer?.address ?? null }, close };
    } catch (error) {
      await close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#judges.close();
    await this.#gateways.close();
  }

  async #judgeOf(settings: RunSettings, user: ServerUser): Promise<JudgeAddress | null> {
    const reward = rewardOf(settings);
    if (reward === null || reward.endpoint === '' || !asksJudge(reward)) return null;
    if (reward.endpoint === 'embedded') return this.#judges.addressOf(reward, user);
    return this.#gateways.addressFor(reward.endpoint, {
      runName: settings.run_name,
      baseExpDir: settings.base_exp_dir,
      reward,
      user,
    });
  }

  async #samplerOf(
    settings: RunSettings,
    { attempt, served }: Serving,
    user: ServerUser,
  ): Promise<ManagedServer | null> {
    const sampled = isTrainable(settings) ? recipeOf(settings).sampler(settings) : null;
    if (sampled === null || sampled.engine.serve === null) return null;
    const paths = RunPaths.of(settings);
    const resolve = runResolver(
      settings.base_exp_dir,
      () => readRecord(paths) ?? {},
      undefined,
      hubEnvironmentOf(settings),
    );
    const model = modelFolder(sampled.model, resolve);
    const { checkServable, startVllm } = await import('./vllm.js');
    checkServable(model);
    const { guardian, say } = this.options;
    const log = join(paths.attemptLogsDir(attempt), 'vllm.log');
    return startVllm({ sampled, devices: served, model, log, guardian, user, say });
  }

  async #trainerOf(
    settings: RunSettings,
    { attempt, served, evaluation }: Serving,
    user: ServerUser,
  ): Promise<StartedServer | null> {
    const trainer = trainerServerOf(settings);
    if (trainer === null || trainer.serve === null) return null;
    const { startTrainingServer } = await import('./training_server.js');
    const paths = RunPaths.of(settings);
    const { guardian, say } = this.options;
    return startTrainingServer({
      trainer,
      devices: served,
      folder: savedFolder(paths, evaluation),
      log: join(paths.attemptLogsDir(attempt), 'training_server.log'),
      guardian,
      user,
      say,
    });
  }
}

/**
 * Folder of a training server's saved state. An evaluation of a checkpoint uses a folder below the run that has the
 * checkpoint.
 */
function savedFolder(paths: RunPaths, evaluation: EvaluatedWeights | undefined): string {
  if ((evaluation?.checkpoint ?? null) === null) return paths.trainingServerDir;
  return RunPaths.ofDirectory(dirname(paths.baseExpDir)).trainingServerDir;
}
