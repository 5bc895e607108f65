/**
 * A token policy that a training service trains: weights, gradients and the optimizer are there; losses, masks and divisors are decided here. The
 * service is told each action's derivative, so that any loss trains on any server that has an importance-weighted one.
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

/** Weights that answers may be of which are yet to be learned from: those of now, and those of an iteration before. */
const KEPT_LINEAGES = 2;

export interface TinkerPolicyOptions<P extends TokenPrompt = TokenPrompt> extends ReplayOptions<SampledAnswer> {
  readonly service: TinkerService;
  readonly format: TokenFormat<P>;
  /** Base model, rank and whatever else decides what the weights are before training, as plain data. */
  readonly model: Readonly<Record<string, string | number | null>>;
  readonly optimizer: OptimizerSettings;
  /** The longest sequence of prompt and answer. */
  readonly contextSize: number;
  /** How the names of what is saved begin. No other run's do, and no other attempt's at this run. */
  readonly prefix: string;
  /** How they begin whatever the attempt: what is called otherwise is another run's. */
  readonly ownNames: string;
  /** Whether checkpoints hold a copy of the adapter. */
  readonly downloadsAdapter: boolean;
  /** Called with what a person should know. */
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
  /** SHA-256 of all that has been done to the weights, which stands for the weights themselves. */
  #lineage: string;
  /** Hash of what was learned since the last step. Null if nothing was. */
  #pending: Hash | null = null;
  #isOpen = false;
  /** The lineage of what the service samples with. */
  #published: string | null = null;
  /** Lineages of what answers were sampled with, the last one last. */
  #sampledFrom: readonly string[] = [];
  /** Log-probabilities under the weights of one lineage, by the tokens of the answer. */
  #known = { lineage: '', of: new WeakMap<Int32Array, Float32Array>() };
  #saved: { readonly lineage: string; readonly path: string } | null = null;
  #givesAdapter: boolean;
  /** Whether the server removes what it has saved. */
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
    await this.#asked((service, within) => service.publish(within));
    this.#published = lineage;
    this.#sampledFrom = [...this.#sampledFrom.filter((one) => one !== lineage), lineage].slice(-KEPT_LINEAGES);
  }

  keep(): Promise<void> {
    return this.#replay.keep();
  }

  /** Samples with the weights that were published last, whatever has been learned since. */
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
    return this.#asked(async (service, within) => {
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
    const found = await this.#asked((service, within) => service.learn(pushed, within));
    const learnt = (this.#pending ??= createHash('sha256'));
    for (const { prompt, images = [], answer, push } of pushed) {
      // Each part after its length: the same numbers cut otherwise are something else.
      for (const part of [Int32Array.from(prompt), answer, push]) {
        learnt.update(`${part.length};`).update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
      }
      learnt.update(this.#digests.of({ images }) ?? '');
    }
    let [sum, klClamped] = [0, 0];
    targets.forEach((target, i) => {
      const told = linearLoss(loss, found[i], target);
      sum += told.loss;
      klClamped += told.klClamped;
    });
    return { loss: sum, statistics: grouped(trainGroups, found), klClamped };
  }

  async step(learningRate: number): Promise<StepReport> {
    const learnt = this.#pending;
    if (learnt === null) throw new InternalError('a step without a gradient');
    const { optimizer } = this.options;
    // It may be taken though its reply is lost.
    this.#steps += 1;
    this.#pending = null;
    this.#lineage = digest([this.#lineage, learnt.digest('hex'), learningRate, optimizer]);
    const gradNorm = await this.#asked((service, within) => service.step(learningRate, optimizer, within));
    return { gradNorm, applied: true };
  }

  /** Weights of one lineage are equal but for what the service rounds otherwise, which nobody here can see. */
  async checksum(): Promise<string> {
    return this.#lineage;
  }

  async files(): Promise<CheckpointFiles> {
    const lineage = this.#lineage;
    if (this.#saved?.lineage !== lineage) {
      const name = `${this.options.prefix}${this.#steps}`;
      this.#saved = { lineage, path: await this.#asked((service, within) => service.save(name, within)) };
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
      // Where no step was taken in between, several checkpoints name the same state.
      if (others.some((other) => pathIn(other) === path)) return;
      try {
        await this.#asked((service, within) => service.remove(path, within));
      } catch (error) {
        if (!(error instanceof EndpointError)) throw error;
        // A server that was away may do so next time.
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

  /** Opens the model first, where nothing has: a checkpoint to begin with would have done so. */
  #asked<R>(work: (service: TinkerService, within: Deadline) => Promise<R>, over?: AbortSignal): Promise<R> {
    return this.#replay.within(async (within) => {
      const { service } = this.options;
      if (!this.#isOpen) {
        await service.begin(null, within);
        this.#isOpen = true;
      }
      return work(service, within);
    }, over);
  }

  /** The files of the adapter. None where the server gives none, which is said once: the state that it keeps is what training goes on from. */
  async #adapter(): Promise<CheckpointFiles> {
    const lineage = this.#lineage;
    if (!this.#givesAdapter) return {};
    if (this.#downloaded?.lineage === lineage) return this.#downloaded.files;
    try {
      const files = await this.#asked((service, within) =>
        service.adapter(`${this.options.prefix}${this.#steps}`, within),
      );
      this.#downloaded = { lineage, files };
      return files;
    } catch (error) {
      if (!(error instanceof EndpointError || error instanceof CheckpointError)) throw error;
      // A server that was away may give it next time.
      this.#givesAdapter = error instanceof TinkerError && error.kind === 'failed';
      this.options.note(`checkpoints do not contain the adapter: ${error.message}`);
      return {};
    }
  }

  /** Where the log-probabilities are that a loss is taken at, and how it pushes them there. */
  async #pushes(
    sequences: readonly Sequence[],
    trainGroups: readonly Group<TokenRequest<P>, TokenAnswer>[],
    targets: readonly Target[],
    loss: LossSpec,
  ): Promise<{ readonly at: readonly Float32Array[]; readonly pushes: readonly Float32Array[] }> {
    // Then the derivative is the same everywhere; what the sampler told is of the same weights, and spares a pass.
    const answers = trainGroups.flatMap((trainGroup) => trainGroup.answers);
    const usesResponse = ({ sampledBy, logProbs }: TokenAnswer): boolean =>
      sampledBy === this.#lineage && !logProbs.some(Number.isNaN);
    const isKnown = loss.policy === 'reinforce' && loss.kl === null && answers.every(usesResponse);
    const at = isKnown
      ? answers.map(({ logProbs }) => logProbs)
      : await this.#asked((service, within) => this.#logProbs(sequences, service, within));
    return { at, pushes: targets.map((target, i) => linearLoss(loss, at[i], target).push) };
  }

  /** Log-probabilities of answers under the weights being trained, computed once per lineage. */
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
   * The answers to one request, each stored under its key before any is used, and the lineage of what sampled them. A group of which some are missing is
   * asked for again.
   */
  async #answers(
    ask: PromptRequest,
    keys: readonly string[] | null,
    over: AbortSignal,
  ): Promise<{ readonly found: readonly Sampled[]; readonly lineage: string }> {
    const { store } = this.options;
    const now = this.#publishedNow;
    const { images = [], ...plain } = ask;
    const seen = this.#digests.of({ images });
    const hashOf = (lineage: string): string => digest([lineage, plain, ...(seen === null ? [] : [seen])]);
    // Before it was resumed, a run that samples ahead may have sampled these with the weights of an iteration before.
    for (const lineage of keys === null ? [] : [...this.#sampledFrom].reverse()) {
      const stored = await Promise.all((keys ?? []).map(async (key) => store.find(key, hashOf(lineage))));
      const found = stored.flatMap((one) => one ?? []);
      if (found.length === ask.count) return { found, lineage };
    }
    const found = await this.#asked((service, within) => service.sample(ask, within), over);
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
  /** The path that the service gave for weights and optimizer. */
  path: z.string().min(1),
  /** What model it is of, as settings say it. */
  model: z.json(),
  lineage: z.string().min(1),
  /** Lineages of what was sampled with before: answers that the next iteration learns from may be of these. */
  sampled_from: z.array(z.string().min(1)).default([]),
});

export type SavedRecord = z.input<typeof record>;

/** The path of a checkpoint on the server. Null if its folder does not have it. */
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
