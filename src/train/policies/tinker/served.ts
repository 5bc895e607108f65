/** A policy's requests to a server of the Tinker training API: token sequences in, log-probabilities out. */
import pLimit from 'p-limit';
import { Deadline } from '../../../core/clock.js';
import { InternalError, CheckpointError } from '../../../core/errors.js';
import type { TinkerConnection } from './connection.js';
import type { SampleRequest, TinkerSession } from './session.js';
import type { CheckpointFiles } from '../../../models/files.js';
import type { OptimizerSettings } from '../../../config/schema/training.js';
import type { PromptChunks, Sequence } from './prompts.js';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { unpackTar } from 'modern-tar';
import { basename } from 'node:path/posix';
import { tensorNamesIn } from '../../../core/safetensors.js';
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE, layersIn, loraConfigJson } from '../../../models/adapters/files.js';
import { readPeftConfig } from '../../../models/adapters/peft_config.js';

/** An answer with a derivative for each token: the gradient of -sum_t push_t log p_t, taken at log p = `at`. */
export interface GradientSequence extends Sequence {
  readonly push: Float32Array;
  readonly at: Float32Array;
}

/** A sampling request with the policy's prompt. */
export interface PromptRequest extends Omit<SampleRequest, 'prompt'>, Pick<Sequence, 'prompt' | 'images'> {}

export interface Sampled {
  readonly ids: readonly number[];
  readonly logProbs: readonly number[] | null;
  /** Whether it ended before the length limit. */
  readonly finished: boolean;
}

/** A server's reduction of token losses: their sum, or the mean over datums of the weighted means over tokens. */
export type Reduction = 'sum' | 'mean_per_datum';

export interface ServedOptions {
  readonly connection: TinkerConnection;
  readonly session: TinkerSession;
  readonly reduction: Reduction;
  readonly concurrency: number;
  readonly chunks: PromptChunks;
  /** The server's name of the base model. */
  readonly baseModel: string;
  /** Receives notes for the user. */
  readonly note: (text: string) => void;
}

const CUT =
  'an answer contained an image token, which no trainer accepts without an image. It is cut there and counts as unfinished, like all such answers';

/** Milliseconds for cleaning up at the end of a run. */
export const TIDY_MS = 5000;

/**
 * Methods raise EndpointError if the server stays unreachable or rejects a request, CheckpointError if a saved state no longer
 * exists.
 */
export class TinkerService {
  /** Whether there is a gradient for the next step. */
  #hasLearned = false;
  /** Whether an answer was cut off. */
  #hasCut = false;

  constructor(private readonly options: ServedOptions) {}

  get url(): string {
    return this.options.connection.url;
  }

  /** Opens a model: a new adapter, or a saved state with its optimizer. Releases the model that was open. */
  begin(from: string | null, within: Deadline): Promise<void> {
    this.#hasLearned = false;
    return this.options.session.begin(from, within);
  }

  /** Log-probabilities of the answers' tokens under the current weights, per sequence. */
  logProbs(sequences: readonly Sequence[], within: Deadline): Promise<Float32Array[]> {
    const { chunks } = this.options;
    return ofWritten(sequences, async (written) => {
      // A forward pass learns nothing, so the loss does not matter.
      const data = await chunks.data(written, ({ answer }) => ({ weights: new Float32Array(answer.length).fill(1) }));
      return this.options.session.train(data, 'cross_entropy', within, { forwardOnly: true });
    });
  }

  /** Log-probabilities under the base model, per sequence. */
  baseLogProbs(sequences: readonly Sequence[], within: Deadline): Promise<Float32Array[]> {
    const { session, connection, concurrency, chunks } = this.options;
    const slots = pLimit(concurrency);
    const one = async (sequence: Sequence): Promise<Float32Array> => {
      const { prompt, answer } = sequence;
      const request = { count: 1, maxTokens: 1, temperature: 1, seed: 0, stop: [], promptLogProbs: true };
      const whole = await chunks.whole(sequence);
      const { promptLogProbs } = await session.sampleBase({ ...request, prompt: whole }, within);
      // Some servers leave out the first token, which has no log-probability. So they are aligned at the end.
      const all = Array.from(promptLogProbs ?? []).slice(-(prompt.length - 1 + answer.length));
      // Image tokens have none either.
      const own = all.slice(-answer.length);
      if (all.length === prompt.length - 1 + answer.length && own.every(Number.isFinite)) return Float32Array.from(all);
      throw connection.error(
        `/asample: found ${all.length} log-probabilities of a prompt of ${prompt.length + answer.length} tokens`,
        'The server returns no log-probabilities of prompts. Set algorithm.kl_coeff to 0.',
      );
    };
    return ofWritten(sequences, (written) => Promise.all(written.map((sequence) => slots(() => one(sequence)))));
  }

  /** Adds to the gradient. Returns the same values as `logProbs`. */
  learn(sequences: readonly GradientSequence[], within: Deadline): Promise<Float32Array[]> {
    const { reduction, session, chunks } = this.options;
    if (reduction === 'mean_per_datum' && this.#hasLearned) {
      throw new InternalError('a server that averages over all that a step learns is given it at once');
    }
    return ofWritten(sequences, async (written) => {
      this.#hasLearned = true;
      const scaled = scales[reduction](written);
      const data = await chunks.data(written, (one, i) => ({
        advantages: one.push.map((push) => push * scaled[i]),
        logprobs: one.at,
        // If the server averages over tokens, these weights select the tokens.
        weights: new Float32Array(one.answer.length).fill(1),
      }));
      return session.train(data, 'importance_sampling', within);
    });
  }

  /**
   * Takes an optimizer step. Returns the norm of the gradient before clipping, or null if the server does not report
   * it.
   */
  step(learningRate: number, optimizer: OptimizerSettings, within: Deadline): Promise<number | null> {
    const { betas, eps, weight_decay, max_grad_norm } = optimizer;
    this.#hasLearned = false;
    return this.options.session.step(
      {
        learning_rate: learningRate,
        beta1: betas[0],
        beta2: betas[1],
        eps,
        weight_decay,
        grad_clip_norm: max_grad_norm ?? 0,
      },
      within,
    );
  }

  /** Publishes the current weights for `sample`. */
  publish(within: Deadline): Promise<void> {
    return this.options.session.publish(within);
  }

  /** Samples answers. An answer that writes an image token ends before it, unfinished. */
  async sample(request: PromptRequest, within: Deadline): Promise<readonly Sampled[]> {
    const { chunks, session, note } = this.options;
    const { prompt: ids, images = [], ...how } = request;
    const prompt = await chunks.of({ ids, images });
    const { sequences } = await session.sample({ ...how, prompt }, within);
    return sequences.map(({ tokens, logProbs, stopped }) => {
      const words = chunks.wordsOf(tokens);
      const isCut = words < tokens.length;
      if (isCut && !this.#hasCut) note(CUT);
      this.#hasCut ||= isCut;
      return {
        ids: Array.from(tokens.subarray(0, words)),
        logProbs: logProbs === null ? null : Array.from(logProbs.subarray(0, words)),
        finished: stopped && !isCut,
      };
    });
  }

  /** Saves weights and optimizer under a name. Returns the path for loading them. */
  save(name: string, within: Deadline): Promise<string> {
    return this.options.session.save(name, within);
  }

  /** Deletes the state that `save` has stored at this path. */
  remove(path: string, within: Deadline): Promise<void> {
    return this.options.session.remove(path, within);
  }

  /**
   * The adapter's files in PEFT's layout. Raises EndpointError if the server returns none, CheckpointError if they are
   * not a supported adapter.
   */
  async adapter(name: string, within: Deadline): Promise<CheckpointFiles> {
    const { session, baseModel } = this.options;
    return adapterFilesIn(await session.archive(name, within), baseModel, this.url);
  }

  async close(): Promise<void> {
    const { connection, session } = this.options;
    const brief = new Deadline(connection.clock, TIDY_MS);
    try {
      await session.close(brief);
    } finally {
      brief.dispose();
      await connection.close();
    }
  }
}

/** Factors of the answers' advantages that make the gradient equal to that of the sum over tokens. */
const scales: Readonly<Record<Reduction, (sequences: readonly Sequence[]) => number[]>> = {
  sum: (sequences) => sequences.map(() => 1),
  mean_per_datum: (sequences) => sequences.map(({ answer }) => answer.length * sequences.length),
};

/** Calls `work` with all targets and cuts the results to the answers. Empty answers are not sent. */
async function ofWritten<S extends Sequence>(
  sequences: readonly S[],
  work: (written: readonly S[]) => Promise<readonly Float32Array[]>,
): Promise<Float32Array[]> {
  const written = sequences.filter(({ answer }) => answer.length > 0);
  const found = written.length === 0 ? [] : await work(written);
  let at = 0;
  return sequences.map(({ prompt, answer }) =>
    answer.length === 0 ? new Float32Array(0) : found[at++].slice(prompt.length - 1),
  );
}

/** The first bytes of every gzip file. */
const GZIP = Buffer.of(0x1f, 0x8b);
const WHOLE_MODEL = /^model.*\.safetensors$/;

/**
 * Reads an adapter from an archive. Some servers do not list the adapted layers, which are then derived from the
 * tensors. Raises CheckpointError for an archive without an adapter or with an unsupported one.
 *
 * @param base the model that it was trained over, by its public name
 * @param where its origin, for messages
 */
export async function adapterFilesIn(archive: Uint8Array, base: string, where: string): Promise<CheckpointFiles> {
  const files = await unpacked(archive, where);
  const [config, weights] = [ADAPTER_CONFIG_FILE, ADAPTER_FILE].map((name) => files.get(name));
  if (config === undefined || weights === undefined) throw noAdapter([...files.keys()], where);
  const layers = layersIn(tensorNamesIn(weights, `${where}: ${ADAPTER_FILE}`), `${where}: ${ADAPTER_FILE}`);
  const found = Object(jsonIn(config, where)) as Readonly<Record<string, unknown>>;
  const described = { ...found, base_model_name_or_path: base, target_modules: found['target_modules'] ?? layers };
  const { lora } = readPeftConfig(described, `${where}: ${ADAPTER_CONFIG_FILE}`);
  return { [ADAPTER_CONFIG_FILE]: loraConfigJson(lora, { base }, 'CAUSAL_LM'), [ADAPTER_FILE]: weights };
}

/** The archive's regular files by base name, whatever their folder. */
async function unpacked(archive: Uint8Array, where: string): Promise<Map<string, Uint8Array>> {
  try {
    const isZipped = GZIP.equals(archive.subarray(0, GZIP.length));
    const entries = await unpackTar(isZipped ? await promisify(gunzip)(archive) : archive);
    return new Map(entries.flatMap(({ header, data }) => (data === undefined ? [] : [[basename(header.name), data]])));
  } catch (cause) {
    throw new CheckpointError('the server returned an adapter archive that cannot be read', { where, cause });
  }
}

function noAdapter(names: readonly string[], where: string): CheckpointError {
  const isModel = names.some((name) => WHOLE_MODEL.test(name));
  const given = isModel ? 'the whole model, with the adapter merged into it,' : names.join(', ');
  return new CheckpointError(`the server returned ${given} instead of ${ADAPTER_FILE}`, { where });
}

function jsonIn(bytes: Uint8Array, where: string): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8')) as unknown;
  } catch (cause) {
    throw new CheckpointError('not valid JSON', { where: `${where}: ${ADAPTER_CONFIG_FILE}`, cause });
  }
}
