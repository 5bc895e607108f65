/**
 * GRPO on image edits in one file, to be read from top to bottom and to be changed.
 *
 *   npm run build && node dist/scripts/reference_loop.js configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet --iterations 20
 *
 * It does what `editrl run` does in its training iterations, on the same modules, with the same random numbers, and comes to the same
 * losses (test/scripts/reference_loop.test.ts). It leaves out everything around them:
 * - no run directory: no checkpoints, no resuming, no records, no held-out evaluation; the trained weights are gone at the end;
 * - sampling and judging take turns, where the trainer judges one chunk while it samples the next;
 * - a judge that is away is not waited for: its episodes stay unscored and carry no loss;
 * - gradients accumulate one group at a time, whatever optimizer.per_device_batch_size says;
 * - EARL's form of the algorithm alone: k3 and the standard deviation of the group; one optimizer step an iteration, so that the policy
 *   that learns is the policy that sampled and the ratio between them is 1. A config that asks for more is refused.
 */
import { realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { dependencies, loadConfig, type LoadedConfig } from '../src/config/load.js';
import type { GrpoSettings, ImageEditSettings } from '../src/config/settings.js';
import { CheckpointError, ConfigError, EditrlError, must, UsageError } from '../src/core/errors.js';
import { RandomStream } from '../src/core/random.js';
import { AdamW, clipGradientNorm, learningRateAt } from '../src/engines/onnx/optimizer.js';
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
import { SessionCache, type PolicyModel, type Weights } from '../src/policies/tokens/model.js';
import { Sampler } from '../src/policies/tokens/rollout.js';
import { createReward } from '../src/rewards/combined.js';
import { JudgeClient } from '../src/rewards/judge_client.js';
import { MemoryJudgementStore } from '../src/rewards/memory_store.js';
import { scoreChunk } from '../src/rewards/score_iteration.js';
import type { JudgeItem, Outcome } from '../src/rewards/types.js';
import { RunPaths } from '../src/run/paths.js';
import { readState } from '../src/run/state.js';
import { ImageEditTask, sessionOptions } from '../src/tasks/image_edit_tokens.js';
import { startJudge } from '../src/tiny/judge/server.js';

/** What the loop is made of. */
export interface LoopParts {
  readonly settings: ImageEditSettings;
  readonly task: ImageEditTask;
  /** Gives each edit a score, or says why it has none. */
  readonly judge: (items: readonly JudgeItem[]) => Promise<Outcome[]>;
}

/** What one iteration came to. */
export interface IterationReport {
  readonly iteration: number;
  /** Mean reward of the scored episodes. */
  readonly reward: number;
  /** Null where no group could be learnt from. */
  readonly loss: number | null;
  readonly gradNorm: number | null;
  /** Mean KL to the start per token, in nats. */
  readonly kl: number | null;
  readonly scored: number;
  readonly episodes: number;
  readonly seconds: number;
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
  const start: Weights = new Map(
    [...policy.weights].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]),
  );
  const sampler = new Sampler(
    policy,
    settings.policy.emu3_use_logit_processor,
    settings.policy.separate_language_and_vision_vocabs,
    sessionOptions(settings.policy.engine),
  );
  const loss = new GroupLoss(settings, algorithm, policy);
  const optimizer = new AdamW(policy.weights, {
    betas: optimization.betas,
    eps: optimization.eps,
    weightDecay: optimization.weight_decay,
  });

  try {
    for (let iteration = 1; iteration <= iterations; iteration++) {
      const started = performance.now();

      // 1. Prompts: the next ones of an endless shuffled order, so that nothing has to be remembered between iterations.
      const groupSize = rollout.generations_per_sample;
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

      // 6. and 7. The gradient of the loss, and one step along it.
      let learnt: { loss: number; kl: number; gradNorm: number } | null = null;
      if (groups.length > 0) {
        const { gradient, ...values } = await loss.gradient(groups, start);
        const gradNorm = clipGradientNorm(gradient, optimization.max_grad_norm);
        const learningRate = learningRateAt(optimizer.steps, {
          schedule: optimization.schedule,
          learningRate: optimization.learning_rate,
          warmupSteps: algorithm.warmup_steps,
        });
        if (Number.isFinite(gradNorm)) optimizer.step(gradient, learningRate);
        learnt = { ...values, gradNorm };
      }

      const scored = rewards.filter((reward) => reward !== null);
      report({
        iteration,
        reward: mean(scored),
        loss: learnt?.loss ?? null,
        kl: learnt?.kl ?? null,
        gradNorm: learnt?.gradNorm ?? null,
        scored: scored.length,
        episodes: rewards.length,
        seconds: (performance.now() - started) / 1000,
      });
    }
  } finally {
    await sampler.dispose();
    await loss.dispose();
  }
  return policy.weights;
}

/** What an outcome is worth on the reward's own scale; null where the judge gave nothing. */
function rewardOf(outcome: Outcome): number | null {
  const worth = { scored: outcome.kind === 'scored' ? outcome.value : null, zero_by_rule: 0, unscored: null };
  return worth[outcome.kind];
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

/** Two graphs for one group of answers: their log-probabilities, and the loss with its gradient. Compiled once for each size. */
class GroupLoss {
  readonly #forward: SessionCache;
  readonly #training: SessionCache;

  constructor(
    private readonly settings: ImageEditSettings,
    private readonly algorithm: GrpoSettings,
    private readonly policy: PolicyModel,
  ) {
    const options = sessionOptions(settings.policy.engine);
    this.#forward = new SessionCache('log-probabilities', options);
    this.#training = new SessionCache('GRPO', options);
  }

  /** The gradient for all groups of an iteration, summed group by group. */
  async gradient(
    groups: readonly Group[],
    start: Weights,
  ): Promise<{ gradient: Map<string, Float32Array>; loss: number; kl: number }> {
    const shape: BatchShape = {
      prompts: 1,
      answersPerPrompt: this.settings.rollout.generations_per_sample,
      promptColumns: promptColumns(groups.map(({ prompt }) => prompt)),
      answerColumns: roundUp(Math.max(...groups.flatMap(({ answers }) => answers.map(({ ids }) => ids.length)))),
    };
    const forward = await this.#forward.get(shape, (graph) => ({ logProbs: this.#logProbs(graph, shape) }));
    const training = await this.#training.get(shape, (graph) => this.#loss(graph, shape));
    // Every token of every scored answer weighs the same: 1 / (all of them), as EARL does, and not 1 / (the answer's length).
    const tokens = groups
      .flatMap(({ answers, advantages }) => answers.map(({ ids }, g) => (advantages[g] === null ? 0 : ids.length)))
      .reduce((a, b) => a + b, 0);

    const gradient = new Map<string, Float32Array>();
    let [loss, kl] = [0, 0];
    for (const group of groups) {
      const feeds = { ...packSequences([group], shape), ...tokenValues(group, shape, 1 / tokens) };
      const frozen = await forward.run(feeds, start);
      const out = await training.run({ ...feeds, reference: frozen.logProbs }, this.policy.weights);
      loss += (out.loss as Float32Array)[0];
      kl += (out.kl as Float32Array)[0];
      for (const name of this.policy.weights.keys()) {
        const part = out[`d:${name}`] as Float32Array;
        const sum = gradient.get(name);
        if (sum === undefined) gradient.set(name, part);
        else for (let i = 0; i < sum.length; i++) sum[i] += part[i];
      }
    }
    return { gradient, loss, kl };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#forward.dispose(), this.#training.dispose()]);
  }

  /** log p of each answer token [rows], rows = answers * columns, padding included. */
  #logProbs(graph: Graph, shape: BatchShape): Value {
    const { config, space } = this.policy;
    const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));
    const targets = graph.input('targets', [logits.shape[0]], 'int64');
    // A vision token competes with vision tokens alone, a word with words alone.
    const modality = this.settings.policy.separate_language_and_vision_vocabs
      ? graph.constant(space.modality, [space.size])
      : null;
    return tokenDistribution(logits, targets, this.settings.rollout.temperature, modality).logProbs;
  }

  /** sum over tokens of weight * (beta * KL - advantage * log p), and its gradient for every parameter. */
  #loss(graph: Graph, shape: BatchShape): Record<string, Value> {
    const logProbs = this.#logProbs(graph, shape);
    const perToken = (name: string): Value => graph.input(name, [logProbs.size]);
    const weights = perToken('weights');
    // k3 (Schulman, 2020): exp(d) - d - 1 with d = log p_start - log p; never negative, 0 where the policies agree.
    const d = sub(perToken('reference'), logProbs);
    const kl = sub(sub(exp(d), d), graph.scalar(1));
    const penalty = mul(graph.scalar(this.algorithm.kl_coeff), kl);
    const loss = sumAll(mul(weights, sub(penalty, mul(perToken('advantages'), logProbs))));
    const names = [...graph.parameters.keys()];
    const found = gradients(loss, [...graph.parameters.values()]);
    return {
      loss,
      kl: sumAll(mul(weights, kl)),
      ...Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]])),
    };
  }
}

/** Weights and advantages laid out as the answers' tokens are; padding and unscored answers weigh nothing. */
function tokenValues({ answers, advantages }: Group, shape: BatchShape, weight: number): Record<string, Float32Array> {
  const rows = shape.answersPerPrompt * shape.answerColumns;
  const out = { weights: new Float32Array(rows), advantages: new Float32Array(rows) };
  answers.forEach(({ ids }, g) => {
    const advantage = advantages[g];
    if (advantage === null) return;
    const from = g * shape.answerColumns;
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

/** Judges over HTTP, as the trainer does; the tiny world's rule judge is started in this process where the config says so. */
async function openJudge({ reward, data }: ImageEditSettings): Promise<{
  judge: LoopParts['judge'];
  close: () => Promise<void>;
}> {
  const { tiny } = data;
  const geometry = tiny === null ? {} : { geometry: { columns: tiny.grid, rows: tiny.grid, cell: tiny.cell } };
  const embedded =
    reward.endpoint === 'embedded'
      ? await startJudge({ port: 0, host: '127.0.0.1', models: [reward.model], ...geometry })
      : null;
  const client = new JudgeClient({
    endpoints: [embedded?.url ?? reward.endpoint],
    model: reward.model,
    store: new MemoryJudgementStore(),
    concurrency: reward.concurrency,
  });
  const { viescore_sc: sc, viescore_pq: pq, ground_score: ground } = reward.prompts;
  const scored = createReward({ ...reward, prompts: { sc, pq, ground } }, { judge: client });
  return { judge: (items) => scoreChunk(scored, items), close: async () => embedded?.close() };
}

/** Raises CheckpointError with the command that makes what the config starts from, where it is not there. */
function requireStart({ settings, file, overlays }: LoadedConfig): void {
  // The policy's own start comes last, and making it makes what that needs.
  for (const { run, config } of dependencies(settings).toReversed()) {
    const paths = new RunPaths(settings.base_exp_dir, run);
    if (readState(paths)?.state === 'finished') continue;
    const overlaid = overlays.map((overlay) => ` --with ${overlay}`).join('');
    throw new CheckpointError(`run ${run}, which this config starts from, is not finished or not there`, {
      where: paths.dir,
      next: `Make it with: node dist/src/cli/main.js run ${join(dirname(file), config)}${overlaid}`,
    });
  }
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      with: { type: 'string', multiple: true, default: [] },
      set: { type: 'string', multiple: true, default: [] },
      iterations: { type: 'string', default: '20' },
    },
  });
  const iterations = Number(values.iterations);
  if (positionals.length !== 1 || !Number.isInteger(iterations) || iterations < 1) {
    throw new UsageError('usage: reference_loop CONFIG [--with FILE]… [--set KEY=VALUE]… [--iterations N]');
  }
  const config = await loadConfig({ file: positionals[0], overlays: values.with, sets: values.set });
  const { settings } = config;
  if (settings.task !== 'image_edit_tokens') {
    throw new ConfigError(`task is '${settings.task}'; allowed here: 'image_edit_tokens'`);
  }
  requireStart(config);
  const task = ImageEditTask.open(settings, runResolver(settings.base_exp_dir));
  const { judge, close } = await openJudge(settings);
  const show = (value: number | null, digits: number): string => value?.toFixed(digits) ?? 'none';
  try {
    await referenceLoop({ settings, task, judge }, iterations, (it) =>
      console.log(
        `${it.iteration}/${iterations}  reward ${show(it.reward, 3)}  loss ${show(it.loss, 5)}  KL ${show(it.kl, 4)}  ` +
          `gradient ${show(it.gradNorm, 3)}  scored ${it.scored}/${it.episodes}  ${show(it.seconds, 2)} s`,
      ),
    );
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
