/** The worker: builds a run's training from its settings and goes round the loop. */
import { InternalError, must } from '../core/errors.js';
import type { EngineSettings, ImageEditSettings, ImageTokenizerSettings, TrainedSettings } from '../config/settings.js';
import { resolveProvider } from '../engines/onnx/provider.js';
import { Sampler } from '../policies/tokens/rollout.js';
import type { Weights } from '../models/files.js';
import { asksJudge } from '../rewards/choice.js';
import type { Endpoint } from '../rewards/endpoints.js';
import type { OpenSender } from '../rewards/sender.js';
import type { JudgementStore } from '../rewards/types.js';
import type { RunHandle } from '../run/claim.js';
import { writeHeldOutEpisodes } from '../run/episodes.js';
import type { RunLog } from '../run/logs.js';
import { readMetrics } from '../run/metrics.js';
import { writeContactSheet } from '../run/report/contact_sheet.js';
import { jointTokenizerJson, startingTokenizer } from '../recipes/image_tokenizer/start.js';
import { ImageEditTask } from '../recipes/image_edit_tokens/task.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { RunResolver } from '../models/reference.js';
import type { Tracker } from '../track/tracker.js';
import { recordEpisodes } from './episode_records.js';
import { GrpoTraining } from './grpo.js';
import { HackAlarms } from './hack_alarms.js';
import { HeldOut } from './held_out.js';
import { openHeldOutJudge, type HeldOutJudge } from '../scoring/held_out_judge.js';
import { openScorer } from '../scoring/judge_scorer.js';
import { IdleTraining, ImageTokenizerTraining } from './image_tokenizer.js';
import type { LoopEnd, Training } from './loop.js';
import { Abandoned } from '../group/lead.js';
import { runLoop } from './loop.js';
import { TrainState } from '../engines/onnx/trained_weights.js';
import { soloGroup, type ProcessGroup } from '../group/process_group.js';
import { scheduleOf } from './schedule.js';
import { SupervisedTraining } from './supervised.js';

interface CommonServices {
  /** The run's processes. Default: this one alone. */
  readonly group?: ProcessGroup;
  readonly log: RunLog;
  readonly resolveRun: RunResolver;
  /** The judge's base URL; null where none is configured. */
  readonly judgeEndpoint: Endpoint | null;
  readonly stop: AbortSignal;
  /** From where judges are asked. */
  readonly openSender: OpenSender;
}

/** Rank 0 owns the run: it writes its records and checkpoints. */
export interface LeaderServices extends CommonServices {
  readonly handle: RunHandle;
  readonly tracker: Tracker;
}

/** The other ranks only take part in its process group; rank 0 tells them which checkpoint to start from. */
export interface FollowerServices extends CommonServices {
  readonly handle: null;
}

export type WorkerServices = LeaderServices | FollowerServices;

/** What building a training needs, on any rank. */
interface Bench {
  readonly group: ProcessGroup;
  readonly handle: RunHandle | null;
  readonly log: RunLog;
  readonly resolveRun: RunResolver;
  readonly judgeEndpoint: Endpoint | null;
  readonly stop: AbortSignal;
  readonly openSender: OpenSender;
  /** The folder of the checkpoint to go on from. */
  readonly checkpoint: string | null;
}

/**
 * Trains a run to its end, or until rank 0 is asked to stop. Every rank of `services.group` calls it, with the same settings; they
 * need not know what rank 0 decides. Raises ProcessGroupError where a rank goes away.
 */
export async function trainRun(asked: TrainedSettings, services: WorkerServices): Promise<LoopEnd> {
  const settings = await withProviders(asked);
  const { group = soloGroup(), handle, log, resolveRun, judgeEndpoint, stop, openSender } = services;
  // Also what lets the others open datasets and parents: rank 0 comes here when they are there.
  const checkpoint = await group.broadcast(handle?.checkpoint?.dir ?? null);
  if (handle !== null) warnOfIdleRanks(settings, group.size, log);
  let training: Training;
  try {
    const bench = { group, handle, log, resolveRun, judgeEndpoint, stop, openSender, checkpoint };
    training = await buildTraining(settings, bench);
  } catch (error) {
    if (!(error instanceof Abandoned)) throw error;
    handle?.setState({ state: 'interrupted', reason: 'stopped on request' });
    return { kind: 'interrupted' };
  }
  try {
    return await runLoop(
      training,
      {
        numIterations: settings.num_iterations,
        evaluateEvery: settings.validation.every_n_iterations,
        checkpoint: settings.checkpoint,
        stop,
      },
      services.handle === null ? null : services,
      group,
    );
  } finally {
    await training.dispose();
  }
}

function warnOfIdleRanks(settings: TrainedSettings, ranks: number, log: RunLog): void {
  const microBatches = microBatchesOf(settings);
  if (microBatches >= ranks) return;
  const next =
    settings.task === 'image_tokenizer'
      ? 'Set launch.processes to 1.'
      : 'Lower optimizer.per_device_batch_size or launch.processes.';
  log.logger.warn(
    `a step has ${microBatches} micro-batch${microBatches === 1 ? '' : 'es'} for ${ranks} processes: ${ranks - microBatches} idle while gradients are computed. ${next}`,
  );
}

/** Micro-batches of one step, at most. */
function microBatchesOf(settings: TrainedSettings): number {
  if (settings.task === 'image_tokenizer') return 1;
  const { algorithm, rollout, optimizer } = settings;
  const answers = algorithm.type === 'sft' ? algorithm.sft.batch_size : rollout.episodes_per_iteration;
  return Math.ceil(answers / optimizer.per_device_batch_size);
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

function buildTraining(settings: TrainedSettings, services: Bench): Promise<Training> {
  switch (settings.task) {
    case 'image_tokenizer':
      return buildTokenizerTraining(settings, services);
    case 'image_edit_tokens':
      return buildEditTraining(settings, services);
  }
}

async function buildTokenizerTraining(settings: ImageTokenizerSettings, bench: Bench): Promise<Training> {
  if (bench.group.rank > 0) return new IdleTraining();
  const state = new TrainState(
    startingTokenizer(settings),
    settings.optimizer,
    scheduleOf(settings),
    jointTokenizerJson(settings),
  );
  if (bench.checkpoint !== null) state.restore(bench.checkpoint);
  return ImageTokenizerTraining.open(settings, state);
}

async function buildEditTraining(settings: ImageEditSettings, services: Bench): Promise<Training> {
  const task = ImageEditTask.open(settings, services.resolveRun);
  const model = task.startingPolicy();
  const reference: Weights = new Map(
    [...model.weights].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]),
  );
  const policy = new TrainState(model, settings.optimizer, scheduleOf(settings), task.tokenizer.json);
  const { group, handle } = services;
  if (services.checkpoint !== null) policy.restore(services.checkpoint);
  const sampler = new Sampler(
    model,
    settings.policy.emu3_use_logit_processor,
    settings.policy.separate_language_and_vision_vocabs,
    sessionOptions(settings.policy.engine, settings.rollout.threads),
  );
  // A supervised run without a judge reports losses only; GRPO cannot do without a reward.
  const scores = settings.algorithm.type === 'grpo' || services.judgeEndpoint !== null || !asksJudge(settings.reward);
  const scorer = scores ? await openScorer(settings, services, services.judgeEndpoint) : null;
  const heldOut =
    scorer === null
      ? null
      : new HeldOut({
          settings,
          task,
          sampler,
          scorer,
          group,
          show: (_iteration, rows) => writeContactSheet(must(handle, 'the handle').paths.contactSheet, rows),
          record: (iteration, episodes) => writeHeldOutEpisodes(must(handle, 'the handle').paths, iteration, episodes),
        });
  if (settings.algorithm.type === 'sft') return new SupervisedTraining(settings, task, policy, heldOut, group);
  if (scorer === null || heldOut === null) throw new InternalError('GRPO without a reward');
  return new GrpoTraining({
    settings,
    task,
    policy,
    reference,
    sampler,
    scorer,
    heldOut,
    group,
    record: (record) =>
      recordEpisodes(must(handle, 'the handle').paths, record, settings.track.log_episodes_every_n_iterations),
    // All ranks see the same; one of them says it.
    alarm: (message) => void (group.rank === 0 && services.log.logger.warn(message)),
    hackAlarms: openAlarms(settings, services),
    heldOutJudge: scorer.judgements === undefined ? null : await openSecond(settings, services, scorer.judgements),
  });
}

function openSecond(
  settings: ImageEditSettings,
  { resolveRun, openSender, log }: Bench,
  store: JudgementStore,
): Promise<HeldOutJudge | null> {
  const warn = (message: string): void => void log.logger.warn(message);
  return openHeldOutJudge(settings, { store, resolveRun, openSender, warn });
}

/** Rank 0 watches for all: it has every rank's statistics, and the run's earlier ones. */
function openAlarms(settings: ImageEditSettings, { handle, log }: Bench): HackAlarms | null {
  const { alarms } = settings.track;
  if (alarms === null || handle === null) return null;
  return new HackAlarms(alarms, readMetrics(handle.paths), (message) => void log.logger.warn(message));
}
