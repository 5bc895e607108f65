/**
 * A token policy that a training server trains. The server has weights, gradients and the optimizer. This process
 * computes losses, masks and divisors.
 * It sends the derivative of each action, so that any loss trains on any server with an importance-weighted loss.
 */
import { createHash, type Hash } from 'node:crypto';
import { join } from 'node:path';
import type { Deadline } from '../../../core/clock.js';
import { CheckpointError, EndpointError, InternalError, must } from '../../../core/errors.js';
import { Replay, type ReplayOptions } from '../../../core/group/replay.js';
import { TinkerError } from './connection.js';
import { GENERATION_FILE, SERVED_FILE, type CheckpointFiles } from '../../../models/files.js';
import type { OptimizerSettings } from '../../../config/schema/training.js';
import { linearLoss } from '../losses/linear.js';
import type { LossSpec } from '../losses/table.js';
import type {
  Group,
  Capabilities,
  LearnReport,
  TrainGroup,
  ReleaseCheckpoint,
  SampleRequest,
  Statistics,
  StepReport,
  Target,
  WeightsOf,
} from '../policy.js';
import { type TokenAnswer, type TokenRequest, type TokenGroup, ImageDigests } from '../tokens/batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { TokenFormat } from '../../../models/tokenizer/format.js';
import { estimatedDivergence, type LanguagePolicy } from '../tokens/language_policy.js';
import type { TokenSampling } from '../tokens/sampling.js';
import type { SampledAnswer } from '../vllm/sampler.js';
import type { Sequence } from './prompts.js';
import type { GradientSequence, PromptRequest, Sampled, TinkerService } from './served.js';
import { readFileSync } from 'node:fs';
import { z } from 'zod';

/**
 * Number of weight versions of which answers may still be used for learning: the current one and the previous
 * iteration's.
 */
const KEPT_LINEAGES = 2;

export interface TinkerPolicyOptions<P extends TokenPrompt = TokenPrompt> extends ReplayOptions<SampledAnswer> {
  readonly service: TinkerService;
  readonly format: TokenFormat<P>;
  /** Base model, rank and everything else that determines the initial weights, as plain data. */
  readonly model: Readonly<Record<string, string | number | null>>;
  readonly optimizer: OptimizerSettings;
  /** Maximum length of prompt and answer together. */
  readonly contextSize: number;
  /** Prefix of the names of saved states. No other run or attempt uses it. */
  readonly prefix: string;
  /** Prefix of the names of all attempts. Names without it belong to other runs. */
  readonly ownNames: string;
  /** Whether checkpoints contain a copy of the adapter. */
  readonly downloadsAdapter: boolean;
  /** Receives notes for the user. */
  readonly note: (text: string) => void;
}

export class TinkerPolicy<P extends TokenPrompt = TokenPrompt> implements LanguagePolicy<P> {
  readonly actions = 'tokens';
  readonly capabilities: Capabilities = {
    losses: ['likelihood', 'reinforce', 'ratio', 'cispo'],
    reference: true,
    average: false,
    hiddenStates: false,
  };
  readonly #replay: Replay<SampledAnswer>;
  readonly #digests = new ImageDigests();
  #steps = 0;
  /** SHA-256 of all operations on the weights. It identifies the weights. */
  #lineage: string;
  /** Hash of the gradients since the last step. Null if there are none. */
  #pending: Hash | null = null;
  #isOpen = false;
  /** Lineage of the published weights. */
  #published: string | null = null;
  /** Lineages that sampled answers, the latest last. */
  #sampledFrom: readonly string[] = [];
  /** Log-probabilities under the weights of one lineage, by the tokens of the answer. */
  #known = { lineage: '', of: new WeakMap<Int32Array, Float32Array>() };
  #saved: { readonly lineage: string; readonly path: string } | null = null;
  #givesAdapter: boolean;
  /** Whether the server deletes saved states on request. */
  #removes = true;
  #downloaded: { readonly lineage: string; readonly files: CheckpointFiles } | null = null;

  constructor(private readonly options: TinkerPolicyOptions<P>) {
    this.#replay = new Replay(options);
    this.#lineage = digest(['start', options.model]);
    this.#givesAdapter = options.downloadsAdapter;
  }

  get steps(): number {
    return this.#steps;
  }

  async publish(of: Exclude<WeightsOf, 'reference'>): Promise<void> {
    if (of !== 'current') throw new InternalError(`the training service keeps no ${of} of its weights`);
    if (this.#published === this.#lineage) return;
    const lineage = this.#lineage;
    await this.#request((service, within) => service.publish(within));
    this.#published = lineage;
    this.#sampledFrom = [...this.#sampledFrom.filter((one) => one !== lineage), lineage].slice(-KEPT_LINEAGES);
  }

  keep(): Promise<void> {
    return this.#replay.keep();
  }

  /** Samples with the last published weights, whatever has been learned since. */
  async sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]> {
    const { prompts, answersPerPrompt: count, how, random, key } = request;
    return this.#replay.all(
      prompts.map(({ tokens: { ids, images = [] } }, p) => async (over: AbortSignal) => {
        const maxTokens = Math.min(how.maxTokens, this.options.contextSize - ids.length);
        if (maxTokens < 1) return Array.from({ length: count }, () => answerOf(NOTHING, this.#publishedNow));
        const stop = [...this.options.format.ends].sort((x, y) => x - y);
        const seed = random(p, 0).uint32();
        const ask = { prompt: ids, images, count, maxTokens, temperature: how.temperature, seed, stop };
        const keys = key === undefined ? null : Array.from({ length: count }, (_, g) => key(p, g));
        const { found, lineage } = await this.#answers(ask, keys, over);
        return found.map((one) => answerOf(one, lineage));
      }),
    );
  }

  statistics(groups: readonly TokenGroup[], of: WeightsOf): Promise<Statistics[][]> {
    const sequences = groups.flatMap(sequencesOf);
    return this.#request(async (service, within) => {
      if (of === 'average') throw new InternalError('the training service keeps no average of its weights');
      const found =
        of === 'current'
          ? await this.#logProbs(sequences, service, within)
          : await service.baseLogProbs(sequences, within);
      return grouped(groups, found);
    });
  }

  divergence(now: Statistics, reference: Statistics): Float64Array {
    return estimatedDivergence(now, reference);
  }

  async learn(trainGroups: readonly TrainGroup<TokenRequest<P>, TokenAnswer>[], loss: LossSpec): Promise<LearnReport> {
    const sequences = trainGroups.flatMap(sequencesOf);
    const targets = trainGroups.flatMap((trainGroup) => trainGroup.targets);
    const { at, pushes } = await this.#pushes(sequences, trainGroups, targets, loss);
    const pushed = sequences.map((one, i): GradientSequence => ({ ...one, push: pushes[i], at: at[i] }));
    const found = await this.#request((service, within) => service.learn(pushed, within));
    const gradients = (this.#pending ??= createHash('sha256'));
    for (const { prompt, images = [], answer, push } of pushed) {
      // Each part is preceded by its length, so that another division of the same numbers has another hash.
      for (const part of [Int32Array.from(prompt), answer, push]) {
        gradients.update(`${part.length};`).update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
      }
      gradients.update(this.#digests.of({ images }) ?? '');
    }
    let [sum, klClamped] = [0, 0];
    targets.forEach((target, i) => {
      const linear = linearLoss(loss, found[i], target);
      sum += linear.loss;
      klClamped += linear.klClamped;
    });
    return { loss: sum, statistics: grouped(trainGroups, found), klClamped };
  }

  async step(learningRate: number): Promise<StepReport> {
    const gradients = this.#pending;
    if (gradients === null) throw new InternalError('a step without a gradient');
    const { optimizer } = this.options;
    // The server may have taken the step even if its reply is lost.
    this.#steps += 1;
    this.#pending = null;
    this.#lineage = digest([this.#lineage, gradients.digest('hex'), learningRate, optimizer]);
    const gradNorm = await this.#request((service, within) => service.step(learningRate, optimizer, within));
    return { gradNorm, applied: true };
  }

  /** The lineage. Weights of one lineage are equal except for the server's rounding, which this process cannot see. */
  async checksum(): Promise<string> {
    return this.#lineage;
  }

  async files(): Promise<CheckpointFiles> {
    const lineage = this.#lineage;
    if (this.#saved?.lineage !== lineage) {
      const name = `${this.options.prefix}${this.#steps}`;
      this.#saved = { lineage, path: await this.#request((service, within) => service.save(name, within)) };
    }
    const saved: SavedRecord = {
      path: this.#saved.path,
      model: this.options.model,
      lineage,
      sampled_from: this.#sampledFrom.filter((one) => one !== lineage),
    };
    return {
      [SERVED_FILE]: `${JSON.stringify(saved, null, 2)}\n`,
      ...(await this.#adapter()),
      [GENERATION_FILE]: `${JSON.stringify({ eos_token_id: [...this.options.format.ends] })}\n`,
      ...this.options.format.tokenizerFiles,
    };
  }

  release(folder: string): ReleaseCheckpoint | null {
    const path = pathIn(folder);
    if (!this.#removes || path?.split('/').at(-1)?.startsWith(this.options.ownNames) !== true) return null;
    return async (others) => {
      // Without a step in between, several checkpoints name the same state.
      if (others.some((other) => pathIn(other) === path)) return;
      try {
        await this.#request((service, within) => service.remove(path, within));
      } catch (error) {
        if (!(error instanceof EndpointError)) throw error;
        // An unreachable server may delete it next time. A server that rejects the request is not asked again.
        this.#removes = error instanceof TinkerError && error.kind === 'failed';
        this.options.note(`the server did not delete its data of a removed checkpoint: ${error.message}`);
      }
    };
  }

  async restore(folder: string, steps: number): Promise<void> {
    const file = join(folder, SERVED_FILE);
    const { path, model, lineage, sampled_from: sampledFrom } = readRecord(file);
    if (JSON.stringify(model) !== JSON.stringify(this.options.model)) {
      throw new CheckpointError(
        `found weights of ${JSON.stringify(model)}, but policy.trainer is ${JSON.stringify(this.options.model)}`,
        { where: file, next: 'Restore the earlier policy.trainer, or use another run_name.' },
      );
    }
    await this.#replay.within((within) => this.options.service.begin(path, within));
    this.#isOpen = true;
    this.#steps = steps;
    this.#lineage = lineage;
    this.#pending = null;
    this.#published = null;
    this.#sampledFrom = sampledFrom;
    this.#saved = { lineage, path };
  }

  read(): never {
    throw new InternalError('the training service returns no hidden states');
  }

  async dispose(): Promise<void> {
    try {
      await this.options.service.close();
    } finally {
      await this.#replay.close();
    }
  }

  /** Calls the server. Opens a new model first, unless restoring a checkpoint has opened one. */
  #request<R>(work: (service: TinkerService, within: Deadline) => Promise<R>, over?: AbortSignal): Promise<R> {
    return this.#replay.within(async (within) => {
      const { service } = this.options;
      if (!this.#isOpen) {
        await service.begin(null, within);
        this.#isOpen = true;
      }
      return work(service, within);
    }, over);
  }

  /**
   * The adapter's files. Empty, with a note, if the server returns none. Training continues from the state on the
   * server.
   */
  async #adapter(): Promise<CheckpointFiles> {
    const lineage = this.#lineage;
    if (!this.#givesAdapter) return {};
    if (this.#downloaded?.lineage === lineage) return this.#downloaded.files;
    try {
      const files = await this.#request((service, within) =>
        service.adapter(`${this.options.prefix}${this.#steps}`, within),
      );
      this.#downloaded = { lineage, files };
      return files;
    } catch (error) {
      if (!(error instanceof EndpointError || error instanceof CheckpointError)) throw error;
      // A server that was unreachable may return it next time.
      this.#givesAdapter = error instanceof TinkerError && error.kind === 'failed';
      this.options.note(`checkpoints do not contain the adapter: ${error.message}`);
      return {};
    }
  }

  /** The log-probabilities at which a loss is evaluated, and its derivatives there. */
  async #pushes(
    sequences: readonly Sequence[],
    trainGroups: readonly Group<TokenRequest<P>, TokenAnswer>[],
    targets: readonly Target[],
    loss: LossSpec,
  ): Promise<{ readonly at: readonly Float32Array[]; readonly pushes: readonly Float32Array[] }> {
    // Then the derivative is the same everywhere. The sampler's values are for the same weights and save a pass.
    const answers = trainGroups.flatMap((trainGroup) => trainGroup.answers);
    const usesResponse = ({ sampledBy, logProbs }: TokenAnswer): boolean =>
      sampledBy === this.#lineage && !logProbs.some(Number.isNaN);
    const isKnown = loss.policy === 'reinforce' && loss.kl === null && answers.every(usesResponse);
    const at = isKnown
      ? answers.map(({ logProbs }) => logProbs)
      : await this.#request((service, within) => this.#logProbs(sequences, service, within));
    return { at, pushes: targets.map((target, i) => linearLoss(loss, at[i], target).push) };
  }

  /** Log-probabilities of answers under the current weights, computed once per lineage. */
  async #logProbs(
    sequences: readonly Sequence[],
    service: TinkerService,
    within: Deadline,
  ): Promise<readonly Float32Array[]> {
    if (this.#known.lineage !== this.#lineage) this.#known = { lineage: this.#lineage, of: new WeakMap() };
    const { of } = this.#known;
    const missing = sequences.filter(({ answer }) => !of.has(answer));
    const found = missing.length === 0 ? [] : await service.logProbs(missing, within);
    missing.forEach(({ answer }, i) => of.set(answer, found[i]));
    return sequences.map(({ answer }) => must(of.get(answer), 'the log-probabilities of an answer'));
  }

  /**
   * The answers to one request, and the lineage that sampled them. Stores each answer under its key before use. Samples
   * a group again if some of its answers are missing.
   */
  async #answers(
    ask: PromptRequest,
    keys: readonly string[] | null,
    over: AbortSignal,
  ): Promise<{ readonly found: readonly Sampled[]; readonly lineage: string }> {
    const { store } = this.options;
    const now = this.#publishedNow;
    const { images = [], ...plain } = ask;
    const imageDigest = this.#digests.of({ images });
    const hashOf = (lineage: string): string =>
      digest([lineage, plain, ...(imageDigest === null ? [] : [imageDigest])]);
    // Before it was resumed, a run that samples ahead may have sampled these with the previous iteration's weights.
    for (const lineage of keys === null ? [] : [...this.#sampledFrom].reverse()) {
      const stored = await Promise.all((keys ?? []).map(async (key) => store.find(key, hashOf(lineage))));
      const found = stored.flatMap((one) => one ?? []);
      if (found.length === ask.count) return { found, lineage };
    }
    const found = await this.#request((service, within) => service.sample(ask, within), over);
    this.#check(found, ask);
    const requestHash = hashOf(now);
    for (const [g, key] of (keys ?? []).entries()) await store.put({ ...found[g], key, requestHash });
    return { found, lineage: now };
  }

  get #publishedNow(): string {
    if (this.#published === null) throw new InternalError('no weights were published for sampling');
    return this.#published;
  }

  #check(found: readonly Sampled[], { count, maxTokens }: PromptRequest): void {
    const { service, format } = this.options;
    const refuse = (problem: string, next: string): never => {
      throw new EndpointError(problem, { where: service.url, next });
    };
    if (found.length !== count) refuse(`found ${found.length} answers to a prompt; requested: ${count}`, SERVER_LOG);
    for (const { ids } of found) {
      const beyond = ids.find((id) => id < 0 || id >= format.size);
      if (beyond !== undefined) {
        refuse(
          `the server sampled token ${beyond}; the tokenizer has tokens 0 to ${format.size - 1}`,
          'Set policy.tokenizer to the tokenizer of policy.trainer.base_model.',
        );
      }
      if (ids.length > maxTokens) refuse(`found an answer of ${ids.length} tokens; allowed: ${maxTokens}`, SERVER_LOG);
    }
  }
}

const SERVER_LOG = 'Look for the reason in the log of the server, and check its version.';
const NOTHING: Sampled = { ids: [], logProbs: [], finished: false };

function answerOf({ ids, logProbs, finished }: Sampled, sampledBy: string): TokenAnswer {
  return {
    ids: Int32Array.from(ids),
    logProbs: logProbs === null ? new Float32Array(ids.length).fill(NaN) : Float32Array.from(logProbs),
    finished,
    sampledBy,
  };
}

function sequencesOf({ prompt, answers }: TokenGroup): Sequence[] {
  const { ids, images = [] } = prompt.tokens;
  return answers.map(({ ids: answer }) => ({ prompt: ids, images, answer }));
}

/** The values of each answer, grouped by prompt. */
function grouped(groups: readonly TokenGroup[], found: readonly Float32Array[]): Statistics[][] {
  let at = 0;
  return groups.map(({ answers }) => answers.map(() => ({ logProbs: found[at++] })));
}

function digest(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}

const record = z.object({
  /** The server's path for weights and optimizer. */
  path: z.string().min(1),
  /** The model that the state belongs to, according to the settings. */
  model: z.json(),
  lineage: z.string().min(1),
  /** Lineages of earlier samples. The next iteration may learn from answers of these. */
  sampled_from: z.array(z.string().min(1)).default([]),
});

export type SavedRecord = z.input<typeof record>;

/** A checkpoint's path on the server. Null if its folder contains none. */
export function pathIn(folder: string): string | null {
  try {
    return readRecord(join(folder, SERVED_FILE)).path;
  } catch (error) {
    if (error instanceof CheckpointError) return null;
    throw error;
  }
}

/** Raises CheckpointError. */
export function readRecord(file: string): z.output<typeof record> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new CheckpointError('this file names no checkpoint of the training service', { where: file, cause });
  }
  try {
    return record.parse(JSON.parse(text));
  } catch (cause) {
    throw new CheckpointError('this file was not written by editrl', { where: file, cause });
  }
}
