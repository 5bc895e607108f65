/** Opens `image_edit_tokens`: an autoregressive policy of text and vision tokens, trained by SFT or by GRPO against a judge (EARL). */
import { imageEditTokens as recipe, type ImageEditSettings } from './settings.js';
import { DataError, InternalError } from '../../core/errors.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { SamplerElsewhere } from '../../policies/tokens/elsewhere.js';
import { Emu3Format, type Emu3Prompt } from '../../policies/tokens/emu3/format.js';
import { initPolicy, loadPolicy } from '../../policies/tokens/load.js';
import { manners, samplingOf } from '../../policies/tokens/manners.js';
import type { PolicyModel } from '../../policies/tokens/model.js';
import { TokenPolicy } from '../../policies/tokens/policy.js';
import type { TokenSampling } from '../../policies/tokens/rollout.js';
import { asksJudge } from '../../rewards/score/choice.js';
import { openScorer } from '../../scoring/judge_scorer.js';
import { noteDatasets, openGrpo, openHeldOut, type Bench } from '../../train/bench.js';
import type { Collector } from '../../train/collect.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openSamplerElsewhere } from '../../train/elsewhere.js';
import { scheduleOf } from '../../train/schedule.js';
import { SupervisedTraining } from '../../train/supervised.js';
import { makeData } from './data.js';
import { heldOutBatch, trainingBatch } from './labelled.js';
import { ImageEditTask, type EditPrompt } from './task.js';
import { trainedTokens } from './trained_tokens.js';

/** Above this difference between the log-probabilities of rollout and training graph an alarm is raised. */
const MISMATCH_ALARM = 1e-3;

type EditCollector = Collector<EditPrompt, TokenAnswer, TokenSampling>;

async function open(settings: ImageEditSettings, bench: Bench): Promise<Training> {
  const task = ImageEditTask.open(settings, bench.resolveRun);
  noteDatasets(bench, settings.data, task.sources);
  const policy = openPolicy(settings, task, { ...bench, elsewhere: await sampleElsewhere(settings, task, bench) });
  const { algorithm, reward, validation } = settings;
  const { group, judge, checkpoint } = bench;
  const format = new Emu3Format(task.space);
  const schedule = scheduleOf(settings);
  // A supervised run without a judge reports losses only; GRPO cannot do without a reward.
  const scores = algorithm.type === 'grpo' || judge !== null || !asksJudge(reward);
  const scorer = scores ? await openScorer(settings, bench, judge) : null;
  const collector: EditCollector | null = scorer === null ? null : { task, policy, scorer, group };
  const heldOut = collector === null ? null : openHeldOut(settings, bench, collector, manners(settings));
  if (algorithm.type === 'sft') {
    return new SupervisedTraining<EditPrompt, TokenAnswer, TokenSampling>({
      policy,
      schedule,
      sft: algorithm.sft,
      batch: async (iteration) => trainingBatch(task, algorithm.sft, iteration),
      heldOutBatch: async () => heldOutBatch(task, algorithm.sft, validation.prompts),
      heldOut,
      checkpoint,
      dispose: async () => {
        if (heldOut !== null) return heldOut.dispose();
        await policy.dispose();
        await task.dispose();
      },
    });
  }
  if (collector === null || heldOut === null) throw new InternalError('GRPO without a reward');
  return openGrpo({ ...settings, algorithm }, bench, {
    ...collector,
    heldOut,
    how: samplingOf(settings),
    schedule,
    trained: (iteration, prompt, answer) =>
      trainedTokens(iteration, prompt, answer, { algorithm, policy: settings.policy }, format),
    mismatchAlarm: MISMATCH_ALARM,
  });
}

/** The policy that training starts from: the referenced model, or random weights. */
export function openPolicy(
  settings: ImageEditSettings,
  task: ImageEditTask,
  {
    group,
    resolveRun,
    elsewhere = null,
  }: Pick<Bench, 'group' | 'resolveRun'> & { elsewhere?: SamplerElsewhere<Emu3Prompt> | null },
): TokenPolicy<Emu3Prompt> {
  const { policy, optimizer, rollout, algorithm } = settings;
  const supervised = algorithm.type === 'sft';
  return new TokenPolicy({
    model: startingModel(settings, task, resolveRun),
    optimizer,
    contextSize: policy.model_context_size,
    constrained: policy.emu3_use_logit_processor,
    separateVocabularies: separateVocabularies(settings),
    learner: {
      temperature: supervised ? 1 : rollout.temperature,
      microBatch: optimizer.per_device_batch_size,
      gradientCheckpointing: optimizer.gradient_checkpointing,
    },
    sessions: { sampling: sessionOptions(policy.engine, rollout.threads), learning: sessionOptions(policy.engine) },
    peers: group,
    keepReference: !supervised,
    elsewhere,
  });
}

function sampleElsewhere(
  settings: ImageEditSettings,
  task: ImageEditTask,
  bench: Bench,
): Promise<SamplerElsewhere<Emu3Prompt> | null> {
  return openSamplerElsewhere(settings, bench, {
    sampled: recipe.sampler(settings),
    format: new Emu3Format(task.space),
    separateVocabularies: separateVocabularies(settings),
  });
}

/** Labels are learnt as language models learn them: over the whole vocabulary, untempered. */
function separateVocabularies({ algorithm, policy }: ImageEditSettings): boolean {
  return algorithm.type !== 'sft' && policy.separate_language_and_vision_vocabs;
}

export function startingModel(
  { policy, seed }: ImageEditSettings,
  { space }: ImageEditTask,
  resolveRun: RunResolver,
): PolicyModel<Emu3Prompt> {
  const format = new Emu3Format(space);
  if (policy.model !== null) {
    const fresh = policy.lora === null ? null : { lora: policy.lora, seed };
    return loadPolicy(modelFolder(policy.model, resolveRun), format, fresh);
  }
  if (policy.init === null) throw new DataError('policy.model and policy.init are both null');
  return initPolicy(policy.init, format, seed);
}

export const imageEditTokens: OpenRecipe<ImageEditSettings> = {
  makeData,
  open,
  openTask: (settings, resolveRun) => ImageEditTask.open(settings, resolveRun),
};
