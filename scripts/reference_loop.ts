/**
 * GRPO on image edits in one file, to be read from top to bottom and to be changed.
 *
 *   npm run build && node dist/scripts/reference_loop.js configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet
 *
 * It does what `editrl run` does in its training iterations, on the same modules, with the same random numbers, and comes to the same
 * losses (test/scripts/reference_loop.test.ts). It leaves out everything around them:
 * - no run directory: no checkpoints, no resuming, no records, no held-out evaluation; the trained weights are gone at the end;
 * - the run that the config starts from is not made, but taken as it stands: `editrl run` with its own config makes it;
 * - sampling and judging take turns, where the trainer judges one chunk while it samples the next;
 * - a judge that is away is not waited for: its episodes stay unscored and carry no loss;
 * - gradients accumulate one group at a time, whatever optimizer.per_device_batch_size says;
 * - EARL's form of the algorithm alone: k3 and the standard deviation of the group; one optimizer step an iteration, so that the policy
 *   that learns is the policy that sampled and the ratio between them is 1. A config that asks for more is refused.
 */
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { loadConfig } from '../src/config/load.js';
import type { GrpoSettings, ImageEditSettings, ModelReference } from '../src/config/settings.js';
import { ConfigError, EditrlError, must, UsageError } from '../src/core/errors.js';
import { RandomStream } from '../src/core/random.js';
import { accumulate, AdamW, clipGradientNorm, learningRateAt } from '../src/engines/onnx/optimizer.js';
import { exp, mul, sub, sumAll } from '../src/graph/build.js';
import { gradients } from '../src/graph/differentiate.js';
import type { Graph, Value } from '../src/graph/ir.js';
import { runResolver } from '../src/launch/run.js';
import { sequenceInputs, sequenceLogits, type BatchShape } from '../src/nets/decoder/decoder.js';
import { tokenDistribution } from '../src/nets/layers.js';
import {
  packSequences,
  promptColumns,
  roundUp,
  type TokenAnswer,
  type TokenPrompt,
} from '../src/policies/tokens/batch.js';
import { Learner, type TokenStatistics } from '../src/policies/tokens/learner.js';
import { SessionCache, type PolicyModel, type Weights } from '../src/policies/tokens/model.js';
import { Sampler } from '../src/policies/tokens/rollout.js';
import { asksJudge } from '../src/rewards/choice.js';
import { createReward } from '../src/rewards/combined.js';
import { resolveEndpoints } from '../src/rewards/endpoints.js';
import { JudgeClient } from '../src/rewards/judge_client.js';
import { JudgeImages } from '../src/rewards/judge_images.js';
import { MemoryJudgementStore } from '../src/rewards/memory_store.js';
import { loadPrompts } from '../src/rewards/prompts.js';
import { scoreChunk } from '../src/rewards/score_iteration.js';
import type { JudgeItem, Outcome } from '../src/rewards/types.js';
import { ImageEditTask, sessionOptions } from '../src/tasks/image_edit_tokens.js';
import { modelFolder, type RunResolver } from '../src/tasks/models.js';
import { startJudge } from '../src/tiny/judge/server.js';
import { scheduleOf } from '../src/train/schedule.js';

/** What the loop is made of. */
export interface LoopParts {
  readonly settings: ImageEditSettings;
  readonly task: ImageEditTask;
  /** Gives each edit a score, or says why it has none. */
  readonly judge: (items: readonly JudgeItem[]) => Promise<Outcome[]>;
}

/** What one iteration came to; loss, KL and gradient norm are null where no group could be learnt from. */
export interface IterationReport {
  readonly iteration: number;
  /** Mean reward of the scored episodes. */
  readonly reward: number;
  readonly scored: number;
  readonly loss: number | null;
  /** Mean KL to the start per token, in nats. */
  readonly kl: number | null;
  readonly gradNorm: number | null;
}

/** A prompt, its answers, and for each how much better than the others it did (null: it has no score and carries no loss). */
interface Group {
  readonly prompt: TokenPrompt;
  readonly answers: readonly TokenAnswer[];
  readonly advantages: readonly (number | null)[];
}

/** The whole algorithm. Returns the trained weights. */
export async function referenceLoop(
  { settings, task, judge }: LoopParts,
  iterations: number,
  report: (iteration: IterationReport) => void,
): Promise<Weights> {
  const { seed, rollout, optimizer: optimization } = settings;
  const algorithm = requireSimpleGrpo(settings);

  // The policy learns in place; a copy of its start stays frozen, and KL is measured to that.
  const policy = task.startingPolicy();
  const start = structuredClone(policy.weights);
  const session = sessionOptions(settings.policy.engine);
  const { emu3_use_logit_processor: constrained, separate_language_and_vision_vocabs: separate } = settings.policy;
  const sampler = new Sampler(policy, constrained, separate, session);
  const groupSize = rollout.generations_per_sample;
  const learner = new Learner(policy, {
    temperature: rollout.temperature,
    separateVocabularies: separate,
    microBatch: groupSize,
    gradientCheckpointing: false,
    session,
  });
  const training = new SessionCache('GRPO', session);
  const optimizer = new AdamW(policy.weights, {
    betas: optimization.betas,
    eps: optimization.eps,
    weightDecay: optimization.weight_decay,
  });

  try {
    for (let iteration = 1; iteration <= iterations; iteration++) {
      // 1. Prompts: the next ones of an endless shuffled order, so that nothing has to be remembered between iterations.
      const count = rollout.episodes_per_iteration / groupSize;
      const prompts = Array.from({ length: count }, (_, p) =>
        task.prompt(task.trainingSample((iteration - 1) * count + p)),
      );

      // 2. Answers: a group for each prompt, every answer with random numbers of its own.
      const answers = await sampler.sample(
        prompts.map(({ tokens }) => tokens),
        {
          answersPerPrompt: groupSize,
          maxTokens: rollout.max_response_tokens,
          temperature: rollout.temperature,
          topP: rollout.top_p,
          topK: rollout.top_k,
          logProbTemperature: rollout.temperature,
        },
        (p, g) => new RandomStream(seed, 'rollout', iteration, p, g),
      );

      // 3. Images: the vision tokens of each answer, decoded.
      const items: JudgeItem[] = [];
      for (const [p, prompt] of prompts.entries()) {
        const keys = answers[p].map((_, g) => `${iteration}/${p}/${g}`);
        items.push(...(await task.render(prompt, answers[p], keys)).map(({ item }) => item));
      }

      // 4. Rewards: an answer that did not finish or holds no image is worth 0; one that the judge did not score has none.
      const outcomes = await judge(items);
      const rewards = outcomes.map(rewardOf);

      // 5. Advantages: how far above its group's mean each answer is. Groups with fewer than two scores teach nothing.
      const groups: Group[] = prompts
        .map((prompt, p) => ({
          prompt: prompt.tokens,
          answers: answers[p],
          advantages: advantagesOf(rewards.slice(p * groupSize, (p + 1) * groupSize), algorithm),
        }))
        .filter(({ advantages }) => advantages.some((a) => a !== null));

      const scored = rewards.filter((reward) => reward !== null);
      const outcome = { iteration, reward: mean(scored), scored: scored.length };
      if (groups.length === 0) {
        report({ ...outcome, loss: null, kl: null, gradNorm: null });
        continue;
      }

      // 6. The start's log-probability of every token, to which KL is measured.
      const frozen = await learner.statistics(groups, start);

      // 7. The loss and its gradient, clipped to a norm.
      const { loss, kl, gradient } = await gradientOf(groups, frozen, policy, settings, algorithm, training);
      const gradNorm = clipGradientNorm(gradient, optimization.max_grad_norm);

      // 8. One step along it.
      const learningRate = learningRateAt(optimizer.steps, scheduleOf(settings));
      if (Number.isFinite(gradNorm)) optimizer.step(gradient, learningRate);
      report({ ...outcome, loss, kl, gradNorm });
    }
  } finally {
    await sampler.dispose();
    await learner.dispose();
    await training.dispose();
  }
  return policy.weights;
}

/** What an outcome is worth on the reward's own scale; null where the judge gave nothing. */
function rewardOf(outcome: Outcome): number | null {
  if (outcome.kind === 'scored') return outcome.value;
  return outcome.kind === 'zero_by_rule' ? 0 : null;
}

/** (r - mean) / (std + eps) over the scored answers of one prompt; all null where there are fewer than two. */
function advantagesOf(rewards: readonly (number | null)[], algorithm: GrpoSettings): (number | null)[] {
  const scored = rewards.filter((reward) => reward !== null);
  if (scored.length < 2) return rewards.map(() => null);
  const centre = mean(scored);
  const spread = Math.sqrt(mean(scored.map((reward) => (reward - centre) ** 2)));
  return rewards.map((reward) =>
    reward === null ? null : (algorithm.reward_scale * (reward - centre)) / (spread + algorithm.advantage.eps),
  );
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The loss of an iteration and its gradient, summed group by group; sessions are compiled once for each size of a group. */
async function gradientOf(
  groups: readonly Group[],
  frozen: readonly (readonly TokenStatistics[])[],
  policy: PolicyModel,
  settings: ImageEditSettings,
  algorithm: GrpoSettings,
  sessions: SessionCache,
): Promise<{ gradient: Map<string, Float32Array>; loss: number; kl: number }> {
  const shape: BatchShape = {
    prompts: 1,
    answersPerPrompt: settings.rollout.generations_per_sample,
    promptColumns: promptColumns(groups.map(({ prompt }) => prompt)),
    answerColumns: roundUp(Math.max(...groups.flatMap(({ answers }) => answers.map(({ ids }) => ids.length)))),
  };
  const build = (graph: Graph): Record<string, Value> => lossGraph(graph, shape, policy, settings, algorithm);
  // Every token of every scored answer weighs the same: 1 / (all of them), as EARL does, and not 1 / (the answer's length).
  const tokens = groups
    .flatMap(({ answers, advantages }) => answers.map(({ ids }, g) => (advantages[g] === null ? 0 : ids.length)))
    .reduce((a, b) => a + b, 0);

  const gradient = new Map<string, Float32Array>();
  let [lossSum, klSum] = [0, 0];
  for (const [at, group] of groups.entries()) {
    const feeds = { ...packSequences([group], shape), ...tokenValues(group, frozen[at], shape, 1 / tokens) };
    const result = await sessions.use(shape, build, (session) => session.run(feeds, policy.weights));
    const { loss, kl, ...part } = result as Record<string, Float32Array>;
    lossSum += loss[0];
    klSum += kl[0];
    accumulate(gradient, part);
  }
  return { gradient, loss: lossSum, kl: klSum };
}

/** sum over tokens of weight * (beta * KL - advantage * log p), and its gradient under the name of every parameter. */
function lossGraph(
  graph: Graph,
  shape: BatchShape,
  { config, space }: PolicyModel,
  settings: ImageEditSettings,
  { kl_coeff }: GrpoSettings,
): Record<string, Value> {
  const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));
  const targets = graph.input('targets', [logits.shape[0]], 'int64');
  // A vision token competes with vision tokens alone, a word with words alone.
  const separate = settings.policy.separate_language_and_vision_vocabs;
  const modality = separate ? graph.constant(space.modality, [space.size]) : null;
  const { logProbs } = tokenDistribution(logits, targets, settings.rollout.temperature, modality);

  const perToken = (name: string): Value => graph.input(name, [logProbs.size]);
  const weights = perToken('weights');
  // k3 (Schulman, 2020): exp(d) - d - 1 with d = log p_start - log p; never negative, 0 where the policies agree.
  const d = sub(perToken('reference'), logProbs);
  const kl = sub(sub(exp(d), d), graph.scalar(1));
  const penalty = mul(graph.scalar(kl_coeff), kl);
  const loss = sumAll(mul(weights, sub(penalty, mul(perToken('advantages'), logProbs))));
  const found = gradients(loss, [...graph.parameters.values()]);
  const named = [...graph.parameters.keys()].map((name, i) => [name, found[i]] as const);
  return { loss, kl: sumAll(mul(weights, kl)), ...Object.fromEntries(named) };
}

/** What the loss reads, laid out as the answers' tokens are; padding and unscored answers weigh nothing. */
function tokenValues(
  { answers, advantages }: Group,
  frozen: readonly TokenStatistics[],
  shape: BatchShape,
  weight: number,
): Record<string, Float32Array> {
  const rows = (): Float32Array => new Float32Array(shape.answersPerPrompt * shape.answerColumns);
  // What carries no weight has a reference so far below any log-probability that exp(d) is 0: 0 times an overflow is no number.
  const out = { weights: rows(), advantages: rows(), reference: rows().fill(-1e15) };
  answers.forEach(({ ids }, g) => {
    const from = g * shape.answerColumns;
    const advantage = advantages[g];
    if (advantage === null) return;
    out.reference.set(frozen[g].logProbs, from);
    out.weights.fill(weight, from, from + ids.length);
    out.advantages.fill(advantage, from, from + ids.length);
  });
  return out;
}

/** The algorithm's settings, where they ask for nothing that this file leaves out. */
function requireSimpleGrpo({ algorithm }: ImageEditSettings): GrpoSettings {
  if (algorithm.type !== 'grpo') throw new ConfigError(`algorithm.type is '${algorithm.type}'; allowed here: 'grpo'`);
  const { advantage, clip_range, inner_epochs, kl_estimator, train_tokens } = algorithm;
  const leftOut = {
    'algorithm.advantage.scale': advantage.scale !== 'std',
    'algorithm.advantage.per_term': advantage.per_term,
    'algorithm.advantage.clip': advantage.clip !== null,
    'algorithm.clip_range': clip_range !== null,
    'algorithm.inner_epochs': inner_epochs !== 1,
    'algorithm.kl_estimator': kl_estimator !== 'k3',
    'algorithm.train_tokens': train_tokens !== 'all',
  };
  const asked = Object.entries(leftOut).flatMap(([key, set]) => (set ? [key] : []));
  if (asked.length > 0) {
    throw new ConfigError(`the reference loop leaves out what ${asked.join(', ')} asks for`, {
      next: 'Use `editrl run`, or leave these at their defaults.',
    });
  }
  return algorithm;
}

/** Scores as the trainer does; the tiny world's rule judge is started in this process where the config says so. */
async function openJudge(
  { reward, data }: ImageEditSettings,
  resolveRun: RunResolver,
): Promise<{
  judge: LoopParts['judge'];
  close: () => Promise<void>;
}> {
  const { tiny } = data;
  const geometry = tiny === null ? {} : { geometry: { columns: tiny.grid, rows: tiny.grid, cell: tiny.cell } };
  const embedded =
    reward.endpoint === 'embedded' && asksJudge(reward)
      ? await startJudge({ port: 0, host: '127.0.0.1', models: [reward.model], ...geometry })
      : null;
  const store = new MemoryJudgementStore();
  const clients: JudgeClient[] = [];
  const scored = await createReward(reward, {
    judge: (model = reward.model) => {
      const endpoints = embedded === null ? resolveEndpoints(reward.endpoint) : [embedded.url];
      const client = new JudgeClient({ endpoints, model, store, concurrency: reward.concurrency });
      clients.push(client);
      return client;
    },
    images: new JudgeImages(),
    prompts: loadPrompts(reward.prompts),
    modelFolder: (reference) => modelFolder(reference as ModelReference, resolveRun),
  });
  return {
    judge: (items) => scoreChunk(scored, items),
    close: async () => {
      await scored.close();
      await Promise.all(clients.map((client) => client.close()));
      await embedded?.close();
    },
  };
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      with: { type: 'string', multiple: true, default: [] },
      set: { type: 'string', multiple: true, default: [] },
    },
  });
  if (positionals.length !== 1) throw new UsageError('usage: reference_loop CONFIG [--with FILE]… [--set KEY=VALUE]…');
  const { settings } = await loadConfig({ file: positionals[0], overlays: values.with, sets: values.set });
  if (settings.task !== 'image_edit_tokens') {
    throw new ConfigError(`task is '${settings.task}'; allowed here: 'image_edit_tokens'`);
  }
  const resolveRun = runResolver(settings.base_exp_dir);
  const task = ImageEditTask.open(settings, resolveRun);
  const { judge, close } = await openJudge(settings, resolveRun);
  try {
    await referenceLoop({ settings, task, judge }, settings.num_iterations, (it) => console.log(JSON.stringify(it)));
  } finally {
    await close();
    await task.dispose();
  }
}

if (realpathSync(must(process.argv[1], 'the script')) === fileURLToPath(import.meta.url)) {
  try {
    await main();
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    console.error(error.toText());
    process.exitCode = error.exitCode;
  }
}
