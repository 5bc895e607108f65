/**
 * Samples answers with vLLM. Each answer has its own request and seed, so that it does not depend on other requests.
 * Answers are stored before use and reused under the same weights. A resumed run therefore stays the same, although the
 * server does not guarantee it.
 */
import { createHash } from 'node:crypto';
import { lineForm, type RemoteExchange } from '../../../core/remote/exchange.js';
import { Deadline, systemClock } from '../../../core/clock.js';
import { EndpointError, must } from '../../../core/errors.js';
import type { VllmClient, LogProbsMode, Completion, CompletionRequest } from './client.js';
import { runOnRankZero } from '../../../core/group/rank_zero.js';
import type { ProcessGroup } from '../../../core/group/process_group.js';
import { Replay, type ReplayOptions } from '../../../core/group/replay.js';
import type { CheckpointFiles } from '../../../models/files.js';
import type { SampleRequest } from '../policy.js';
import type { TokenAnswer, TokenRequest } from '../tokens/batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { PublishedWeights, RemoteSampler } from '../tokens/language_policy.js';
import type { TokenFormat, WrittenRules } from '../../../models/tokenizer/format.js';
import type { TokenSampling } from '../tokens/sampling.js';
import { ImageUploads, type VisionSizes } from './images.js';
import type { WeightsLoader, ServedAs } from './weights_loader.js';

/** A server's answer to one request. */
export interface SampledAnswer extends RemoteExchange {
  /** The episode's key. */
  readonly key: string;
  /** SHA-256 of the weights, the prompt with its images, and the sampling options. */
  readonly requestHash: string;
  readonly ids: readonly number[];
  /** Null if the server's log-probabilities are not of the distribution that training uses. */
  readonly logProbs: readonly number[] | null;
  readonly finished: boolean;
}

/** An answer as a line of `answers.jsonl`. */
export const answerForm = lineForm<SampledAnswer>({
  key: 'key',
  requestHash: 'request_hash',
  ids: 'ids',
  logProbs: 'log_probs',
  finished: 'finished',
});

export interface VllmSamplerOptions<P extends TokenPrompt = TokenPrompt> extends ReplayOptions<SampledAnswer> {
  readonly client: VllmClient;
  readonly loader: WeightsLoader;
  readonly format: TokenFormat<P>;
  /** Number of rows of the model's vocabulary. */
  readonly vocabulary: number;
  /** Maximum length of prompt and answer together. */
  readonly contextSize: number;
  /** Whether training computes a token's log-probability over its own part of the vocabulary. The server does not. */
  readonly separateVocabularies: boolean;
  /** Whether only tokens that the format allows are sampled. */
  readonly constrained: boolean;
  readonly mode: LogProbsMode;
  /** Sizes of the vision encoder. Null without one. */
  readonly vision: VisionSizes | null;
  readonly group: Pick<ProcessGroup, 'rank' | 'broadcast' | 'barrier'>;
}

interface Loaded {
  readonly name: string;
  readonly version: string;
  /** SHA-256 of the files. */
  readonly digest: string;
}

/** The value of vLLM's flag for our logits processor. */
export const RULES_PROCESSOR = 'editrl_rules:Rules';

/** Milliseconds for cleaning up at the end of a run. */
const TIDY_MS = 5000;
/** Limit on how often a server may lose its weights during one request. */
const MAX_RELOADS = 5;

export class VllmSampler<P extends TokenPrompt = TokenPrompt> implements RemoteSampler<P> {
  #loaded: Loaded | null = null;
  /** In progress after a restart of the server. */
  #reloading: Promise<void> | null = null;
  /** Number of completed reloads. */
  #reloads = 0;
  readonly #replay: Replay<SampledAnswer>;
  readonly #uploads: ImageUploads | null;

  constructor(private readonly options: VllmSamplerOptions<P>) {
    this.#replay = new Replay(options);
    this.#uploads = options.vision === null ? null : new ImageUploads(options.vision);
  }

  async publish({ steps, of, files }: PublishedWeights): Promise<void> {
    const version = of === 'current' ? String(steps) : `${steps}-${of}`;
    const before = this.#loaded;
    if (before?.version === version) return;
    const made = files();
    const { loader, group } = this.options;
    const digest = digestOf(made);
    const next = { name: loader.nameOf(version, digest), version, digest };
    // No process may still sample under the weights that are replaced.
    await group.barrier();
    await runOnRankZero(group, () =>
      this.#replay.within(async (deadline) => {
        await loader.add(next.name, made, deadline);
        if (before !== null) await loader.remove(before.name, deadline);
      }),
    );
    this.#loaded = next;
  }

  async sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]> {
    const { prompts, answersPerPrompt, random } = request;
    const key = must(request.key, 'the name of an answer that is sampled elsewhere');
    const requests = prompts.flatMap(({ tokens }, p) =>
      Array.from({ length: answersPerPrompt }, (_, g) => (over: AbortSignal) => {
        const seed = random(p, g).uint32();
        return this.#answer(key(p, g), tokens, seed, request.how, over);
      }),
    );
    const answers = await this.#replay.all(requests);
    return prompts.map((_, p) => answers.slice(p * answersPerPrompt, (p + 1) * answersPerPrompt));
  }

  keep(): Promise<void> {
    return this.#replay.keep();
  }

  async dispose(): Promise<void> {
    const { loader, group, clock = systemClock } = this.options;
    const loaded = this.#loaded;
    this.#loaded = null;
    if (loaded !== null && group.rank === 0) {
      // A server that is gone has dropped its weights, and the run has ended for another reason.
      const brief = new Deadline(clock, TIDY_MS);
      await loader.remove(loaded.name, brief).catch((error: unknown) => {
        if (!(error instanceof EndpointError)) throw error;
      });
      brief.dispose();
    }
    await this.#replay.close();
  }

  async #answer(key: string, prompt: P, seed: number, how: TokenSampling, over: AbortSignal): Promise<TokenAnswer> {
    const { format, contextSize } = this.options;
    const loaded = must(this.#loaded, 'the weights that sample');
    const limit = Math.min(how.maxTokens, contextSize - prompt.ids.length);
    if (limit < 1) return { ids: new Int32Array(0), logProbs: new Float32Array(0), finished: false };
    const sampling: Question['sampling'] = {
      max_tokens: limit,
      temperature: how.temperature,
      top_p: how.topP,
      top_k: how.topK === -1 ? 0 : how.topK,
      seed,
      stop_token_ids: [...format.ends].sort((a, b) => a - b),
      logprobs: 0,
    };
    const rules = (this.options.constrained ? format.rules?.(prompt) : null) ?? null;
    const imageDigest = this.#uploads?.digestOf(prompt) ?? null;
    const named = [
      loaded.digest,
      { prompt: prompt.ids, ...sampling },
      ...(imageDigest === null ? [] : [imageDigest]),
      ...(rules === null ? [] : [rules]),
    ];
    const requestHash = createHash('sha256').update(JSON.stringify(named)).digest('hex');
    const ask = (within: Deadline) => this.#request({ prompt, rules, sampling }, loaded.name, how, within);
    const [{ ids, logProbs, finished }] = await this.#replay.answers([key], requestHash, ask, over);
    return {
      ids: Int32Array.from(ids),
      logProbs: logProbs === null ? new Float32Array(ids.length).fill(NaN) : Float32Array.from(logProbs),
      finished,
    };
  }

  async #request(
    question: Question & { readonly prompt: P },
    name: string,
    how: TokenSampling,
    within: Deadline,
  ): Promise<Omit<SampledAnswer, keyof RemoteExchange>> {
    const { client, vocabulary } = this.options;
    const { ids, logProbs, stopped: finished } = await this.#complete(question, name, within);
    const beyond = ids.find((id) => id >= vocabulary);
    if (beyond !== undefined) {
      throw new EndpointError(`vLLM sampled token ${beyond}, but the policy has ${vocabulary} tokens`, {
        where: client.url,
        next: 'Start vLLM with the model of policy.model.',
      });
    }
    if (question.rules !== null) this.#requireAllowed(question.prompt, ids);
    // Nine digits represent a float32 exactly.
    return {
      ids,
      logProbs:
        question.rules === null && this.#hasTrainedLogProbs(how) ? logProbs.map((x) => Number(x.toPrecision(9))) : null,
      finished,
    };
  }

  /** Raises EndpointError for an answer that violates its format, from a server that lacks our logits processor. */
  #requireAllowed(prompt: P, ids: readonly number[]): void {
    const state = this.options.format.start(prompt);
    ids.forEach((id, at) => {
      const allowed = state.next();
      const may = 'forced' in allowed ? allowed.forced === id : allowed.mask === null || allowed.mask[id] === 1;
      if (!may) {
        const found = 'forced' in allowed ? `, where only ${allowed.forced} is allowed` : '';
        throw new EndpointError(
          `vLLM sampled token ${id} at position ${at} of an answer${found}: it does not apply the rules of image blocks`,
          {
            where: this.options.client.url,
            next: `Start it with --logits-processors ${RULES_PROCESSOR} (docs/guide/gpus-and-servers.md, Image blocks), or set policy.emu3_use_logit_processor to false.`,
          },
        );
      }
      state.accept(id);
    });
  }

  /**
   * Whether the server's log-probabilities are of the temperature-scaled, untruncated distribution that training uses.
   */
  #hasTrainedLogProbs({ temperature, topP, topK, logProbTemperature }: TokenSampling): boolean {
    const { mode, separateVocabularies } = this.options;
    if (separateVocabularies || topP !== 1 || topK !== -1 || temperature !== logProbTemperature) return false;
    return mode === 'processed' || (mode === 'raw' && temperature === 1);
  }

  /** Reloads the weights and retries if a restart of the server has lost them. */
  async #complete(question: Question, name: string, deadline: Deadline): Promise<Completion> {
    const { client, loader } = this.options;
    for (let reloads = 0; reloads <= MAX_RELOADS; reloads++) {
      const before = this.#reloads;
      const completion = await askUnder(client, loader.servedAs(name), question, this.#uploads, deadline);
      if (completion !== null) return completion;
      if (this.#reloads === before) await (this.#reloading ??= this.#reload(name, deadline));
    }
    throw new EndpointError(`vLLM loaded the weights ${name} ${MAX_RELOADS} times and still does not have them`, {
      where: client.url,
      next: 'Use one server for one run. Servers behind a load balancer do not share weights.',
    });
  }

  async #reload(name: string, deadline: Deadline): Promise<void> {
    try {
      await this.options.loader.load(name, deadline);
      this.#reloads += 1;
    } finally {
      this.#reloading = null;
    }
  }
}

function digestOf(files: CheckpointFiles): string {
  const hash = createHash('sha256');
  for (const [name, content] of Object.entries(files)) {
    hash.update(name);
    for (const piece of typeof content === 'string' || content instanceof Uint8Array ? [content] : content) {
      hash.update(piece);
    }
  }
  return hash.digest('hex');
}

export interface Question {
  readonly prompt: TokenPrompt;
  /** Rules for its tokens. Null for none. */
  readonly rules: WrittenRules | null;
  readonly sampling: Omit<CompletionRequest, 'model' | 'prompt'>;
}

/**
 * Samples one answer. Null if the server does not have these weights (any more). `uploads` is null for a model without
 * vision.
 * Raises the EndpointErrors of the client, EndpointError if the server read another prompt, and DataError for images
 * that it would see differently from the trainer.
 */
export async function askUnder(
  client: VllmClient,
  { model, version }: ServedAs,
  { prompt, sampling, rules }: Question,
  uploads: ImageUploads | null,
  within: Deadline,
): Promise<Completion | null> {
  if (version === null && uploads === null && rules === null) {
    return client.complete({ ...sampling, model, prompt: prompt.ids }, within);
  }
  const { ids, parts } = uploads === null ? { ids: prompt.ids, parts: [] } : await uploads.sent(prompt);
  const generated = await client.generate(
    { ...sampling, model, prompt: ids, parts, cacheSalt: saltOf(version ?? model), rules },
    within,
  );
  if (generated === null) return null;
  if (version !== null && generated.versions.some((one) => one !== version)) return null;
  uploads?.requireSame(prompt, generated.promptIds, client.url);
  return generated;
}

/** A salt may have 128 characters and must not contain a path. */
function saltOf(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}
