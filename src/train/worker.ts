/** The worker: builds a run's training from its settings and goes round the loop. */
import { InternalError } from '../core/errors.js';
import type { EngineSettings, ImageEditSettings, ImageTokenizerSettings, TrainedSettings } from '../config/settings.js';
import { resolveProvider } from '../engines/onnx/provider.js';
import { Sampler } from '../policies/tokens/rollout.js';
import type { Weights } from '../policies/tokens/model.js';
import type { RunHandle } from '../run/claim.js';
import type { RunLog } from '../run/logs.js';
import { writeContactSheet } from '../run/report/contact_sheet.js';
import { jointTokenizerJson, startingTokenizer } from '../tasks/image_tokenizer.js';
import { ImageEditTask, sessionOptions } from '../tasks/image_edit_tokens.js';
import type { RunResolver } from '../tasks/models.js';
import type { Tracker } from '../track/tracker.js';
import { recordEpisodes } from './episode_records.js';
import { GrpoTraining } from './grpo.js';
import { HeldOut } from './held_out.js';
import { openScorer } from './judge_scorer.js';
import { ImageTokenizerTraining } from './image_tokenizer.js';
import type { LoopEnd, Training } from './loop.js';
import { Abandoned, runLoop } from './loop.js';
import { TrainState } from './policy_state.js';
import { SupervisedTraining } from './supervised.js';

export interface WorkerServices {
  readonly handle: RunHandle;
  readonly log: RunLog;
  readonly tracker: Tracker;
  readonly resolveRun: RunResolver;
  /** The judge's base URL; null where none is configured. */
  readonly judgeEndpoint: string | null;
  readonly stop: AbortSignal;
}

/** Trains a claimed run to its end, or until it is asked to stop. */
export async function trainRun(asked: TrainedSettings, services: WorkerServices): Promise<LoopEnd> {
  const settings = await withProviders(asked);
  let training: Training;
  try {
    training = await buildTraining(settings, services);
  } catch (error) {
    if (!(error instanceof Abandoned)) throw error;
    services.handle.setState({ state: 'interrupted', reason: 'stopped on request' });
    return { kind: 'interrupted' };
  }
  try {
    return await runLoop(
      training,
      {
        numIterations: settings.num_iterations,
        evaluateEvery: settings.validation.every_n_iterations,
        checkpoint: settings.checkpoint,
        stop: services.stop,
      },
      services,
    );
  } finally {
    await training.dispose();
  }
}

/** The same settings with `auto` replaced by what this machine has. Raises EngineError for a provider that it lacks. */
async function withProviders(settings: TrainedSettings): Promise<TrainedSettings> {
  const resolved = async <T extends { readonly engine: EngineSettings }>(part: T): Promise<T> => {
    return { ...part, engine: { ...part.engine, provider: await resolveProvider(part.engine.provider) } };
  };
  switch (settings.task) {
    case 'image_tokenizer':
      return { ...settings, environment: await resolved(settings.environment) };
    case 'image_edit_tokens':
      return {
        ...settings,
        environment: await resolved(settings.environment),
        policy: await resolved(settings.policy),
      };
  }
}

function buildTraining(settings: TrainedSettings, services: WorkerServices): Promise<Training> {
  switch (settings.task) {
    case 'image_tokenizer':
      return buildTokenizerTraining(settings, services);
    case 'image_edit_tokens':
      return buildEditTraining(settings, services);
  }
}

async function buildTokenizerTraining(settings: ImageTokenizerSettings, { handle }: WorkerServices): Promise<Training> {
  const state = new TrainState(
    startingTokenizer(settings),
    settings.optimizer,
    settings.algorithm.warmup_steps,
    jointTokenizerJson(settings),
  );
  if (handle.checkpoint !== null) state.restore(handle.checkpoint.dir);
  return ImageTokenizerTraining.open(settings, state);
}

async function buildEditTraining(settings: ImageEditSettings, services: WorkerServices): Promise<Training> {
  const task = ImageEditTask.open(settings, services.resolveRun);
  const model = task.startingPolicy();
  const reference: Weights = new Map(
    [...model.weights].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]),
  );
  const policy = new TrainState(model, settings.optimizer, settings.algorithm.warmup_steps, task.tokenizer.json);
  if (services.handle.checkpoint !== null) policy.restore(services.handle.checkpoint.dir);
  const sampler = new Sampler(
    model,
    settings.policy.emu3_use_logit_processor,
    settings.policy.separate_language_and_vision_vocabs,
    sessionOptions(settings.policy.engine),
  );
  const scorer = services.judgeEndpoint === null ? null : await openScorer(settings, services, services.judgeEndpoint);
  const heldOut =
    scorer === null
      ? null
      : new HeldOut({
          settings,
          task,
          sampler,
          scorer,
          show: (_iteration, rows) => writeContactSheet(services.handle.paths.contactSheet, rows),
        });
  if (settings.algorithm.type === 'sft') return new SupervisedTraining(settings, task, policy, heldOut);
  if (scorer === null || heldOut === null) throw new InternalError('GRPO without a judge');
  return new GrpoTraining({
    settings,
    task,
    policy,
    reference,
    sampler,
    scorer,
    heldOut,
    record: (record) => recordEpisodes(services.handle.paths, record, settings.track.log_episodes_every_n_iterations),
    alarm: (message) => services.log.logger.warn(message),
  });
}
