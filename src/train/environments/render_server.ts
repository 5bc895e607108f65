/**
 * A client of one or several equal render servers (docs/reference/protocols.md).
 * It sends hidden states and the source image as one safetensors file and receives the edited image as a PNG file, one
 * image at a time.
 */
import type { AttemptResult } from '../../core/remote/remote.js';
import type { OutageListener } from '../../core/remote/remote.js';
import {
  AwaitedMember,
  type AwaitedRemote,
  gotAnswer,
  misconfigured,
  noAnswer,
  type ReplyOutcome,
  requestFailed,
} from '../../core/remote/remote.js';
import { type Clock, type Deadline, systemClock } from '../../core/clock.js';
import { encodePng, sha256 } from '../../core/images/image.js';
import { storedSafetensors, type StoredTensor, toStoredBytes } from '../../core/safetensors.js';
import { checkedKey } from '../../core/http/key.js';
import { byStatus, retryAfterMs } from '../../core/http/status.js';
import { createHttpPool, type HttpPool } from '../../core/http/pool.js';
import type { WholeReply } from '../../core/http/request.js';
import { resolveEndpoints } from '../../rewards/judge/endpoints.js';
import { excerpt } from '../../rewards/judge/parse.js';
import { largestSquare, type RenderEditor } from '../../config/schema/editor.js';
import type { ImageSize } from '../../config/schema/images_api.js';
import {
  blankImage,
  FIRST_ATTEMPTS,
  maxReplyBytes,
  IMAGE_STATUSES,
  imageIn,
  imageRemote,
  type ImageReply,
} from './served.js';

/** The identity of an edit and of its stored image. */
export interface RenderIdentity {
  /** SHA-256 of the states' bytes as sent. */
  readonly statesDigest: string;
  /** SHA-256 of the states of a blank instruction. Absent without guidance. */
  readonly blankDigest?: string;
  /** The source image as a PNG file. */
  readonly source: Uint8Array;
  /** Size of the source and of the edited image. */
  readonly size: ImageSize;
  /** Seed of the initial noise. */
  readonly seed: number;
}

/** A request for an image. */
export interface RenderRequest extends RenderIdentity {
  /** Hidden states [tokens, width], in the order of the tokens, without padding. */
  readonly states: StoredTensor;
  /** Hidden states of a blank instruction with the same image, for classifier-free guidance. Null without guidance. */
  readonly blank: StoredTensor | null;
}

/** Token counts of a run's longest possible edit, and of a blank instruction with its image. */
export interface LongestStates {
  readonly edit: number;
  readonly blank: number;
}

/** The settings that determine requests and the meaning of replies. */
export type RenderClientSettings = Pick<
  RenderEditor,
  | 'base_url'
  | 'served_model'
  | 'num_inference_steps'
  | 'guidance_scale'
  | 'max_pixels'
  | 'states_dtype'
  | 'concurrency'
  | 'timeout_s'
  | 'max_attempts'
>;

export interface RenderClientOptions extends OutageListener {
  readonly settings: RenderClientSettings;
  /** Width of the states that are sent. Null if unknown. */
  readonly width: number | null;
  readonly apiKey?: string | undefined;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** By `environment.states_dtype`. */
export const STATES_DTYPES = { float32: 'F32', bfloat16: 'BF16' } as const;

class RenderMember extends AwaitedMember {
  /** Whether it has confirmed that it serves the wanted model. */
  isKnown = false;
}

/** SHA-256 of everything that determines an image. */
export function renderHash(
  settings: Pick<RenderEditor, 'served_model' | 'num_inference_steps' | 'guidance_scale'>,
  { statesDigest, blankDigest, source, size: { width, height }, seed }: RenderIdentity,
): string {
  const { served_model, num_inference_steps, guidance_scale: guidance } = settings;
  const decides = ['render', served_model, num_inference_steps, statesDigest, sha256(source), width, height, seed];
  return sha256(JSON.stringify(guidance === null ? decides : [...decides, guidance, blankDigest]));
}

export class RenderClient {
  readonly #http: HttpPool;
  readonly #remote: AwaitedRemote<RenderMember, RenderRequest, ImageReply>;
  readonly #headers: Record<string, string>;

  /** Raises ConfigError for an unusable address or key. */
  constructor(private readonly options: RenderClientOptions) {
    const { settings, apiKey, clock = systemClock } = options;
    const { concurrency, base_url } = settings;
    const key = checkedKey(apiKey, 'the API key of the render server');
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    this.#http = createHttpPool({
      connections: concurrency + 1,
      secret: key ?? null,
      maxResponseBytes: maxReplyBytes(largestSquare(settings)),
    });
    const urls = resolveEndpoints(base_url);
    this.#remote = imageRemote({
      ...options,
      name: 'render server',
      members: urls.map((url) => new RenderMember(url, clock, { cap: concurrency, alone: urls.length === 1 })),
      attempt: (member, imageRequest, attempt) => this.#attempt(member, imageRequest, attempt),
    });
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.#remote.urls;
  }

  /** Why servers are not ready now, one sentence for each of them. Failures of a server never reject the promise. */
  async problems(within: Deadline): Promise<readonly string[]> {
    const found = await Promise.all(
      this.#remote.members.map(async (member) => {
        const tried = await this.#unknown(member, within);
        if (tried === null || tried.reply.kind === 'answered') return null;
        return `${member.url}: ${within.over ? 'no answer in time' : tried.reply.found}`;
      }),
    );
    return found.filter((one) => one !== null);
  }

  /**
   * Waits until a server with the wanted model has generated one unused image from as many states as the run's longest
   * edit. Everything that the server rejects is thus reported before anything else. Raises EndpointError.
   */
  async ready(within: Deadline, longest: LongestStates): Promise<void> {
    const { settings, width } = this.options;
    const size = largestSquare(settings);
    const zeros = (tokens: number): StoredTensor => {
      const dtype = STATES_DTYPES[settings.states_dtype];
      const shape = [tokens, width ?? 1];
      return { dtype, shape, bytes: toStoredBytes(new Float32Array(shape[0] * shape[1]), dtype) };
    };
    const states = zeros(longest.edit);
    const source = await encodePng(blankImage(size));
    const request = { states, statesDigest: sha256(states.bytes), source, size, seed: 0 };
    const probe = { ...request, blank: settings.guidance_scale === null ? null : zeros(longest.blank) };
    const drawn = await this.#remote.answer(probe, within, { maxAttempts: FIRST_ATTEMPTS });
    if ('refused' in drawn) throw this.#remote.error(probe, `it rejects a gray test image: ${drawn.refused}`);
  }

  /**
   * Generates one image. Raises EndpointError when no server returns one before the deadline or within the attempts.
   */
  draw(imageRequest: RenderRequest, within: Deadline): Promise<ImageReply> {
    return this.#remote.answer(imageRequest, within);
  }

  /** Closes the connections. The client must not be used afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  async #attempt(
    member: RenderMember,
    imageRequest: RenderRequest,
    attempt: Deadline,
  ): Promise<AttemptResult<ReplyOutcome<ImageReply>>> {
    return (await this.#unknown(member, attempt)) ?? (await this.#send(member, imageRequest, attempt));
  }

  /** Why a server cannot be used. Null if it is known to be the wanted one. */
  async #unknown(member: RenderMember, attempt: Deadline): Promise<AttemptResult<ReplyOutcome<ImageReply>> | null> {
    if (member.isKnown) return null;
    const { settings, width } = this.options;
    const reply = await this.#exchange(member, attempt, null);
    if (!('body' in reply)) return reply;
    if (reply.status !== 200) return reply.meaning;
    const guided = settings.guidance_scale !== null;
    const problem = identityProblem(reply.body, { model: settings.served_model, width, guided });
    if (problem !== null) {
      return misconfigured(
        this.#http.redact(problem),
        'Check environment.base_url, environment.served_model and environment.guidance_scale, and that the server expects the hidden states of policy.model.',
      );
    }
    member.isKnown = true;
    return null;
  }

  async #send(
    member: RenderMember,
    imageRequest: RenderRequest,
    attempt: Deadline,
  ): Promise<AttemptResult<ReplyOutcome<ImageReply>>> {
    const reply = await this.#exchange(member, attempt, this.#body(imageRequest));
    if (!('body' in reply)) return reply;
    if (reply.status !== 200) return reply.meaning;
    const image = await imageIn(reply.body, imageRequest.size);
    return typeof image === 'string' ? noAnswer('failed', image) : gotAnswer({ image, revised: null });
  }

  /** The body of a request. Without guidance it uses the first version of the protocol, which every server supports. */
  #body({ states, blank, source, size, seed }: RenderRequest): Buffer {
    const { served_model: model, num_inference_steps, guidance_scale } = this.options.settings;
    const tensors = new Map<string, StoredTensor>([
      ['prompt_embeds', states],
      ['source', { dtype: 'U8', shape: [source.length], bytes: source }],
    ]);
    const request = { model, ...size, seed, num_inference_steps };
    if (blank === null) return storedSafetensors(tensors, { request: JSON.stringify(request) });
    tensors.set('negative_prompt_embeds', blank);
    return storedSafetensors(tensors, { request: JSON.stringify({ ...request, protocol: GUIDED, guidance_scale }) });
  }

  /**
   * A whole reply, the meaning of a status other than 200, or the error that prevented a reply. A null body requests
   * the server's identity.
   */
  async #exchange(
    { url }: RenderMember,
    attempt: Deadline,
    body: Buffer | null,
  ): Promise<
    | { status: number; body: Buffer; meaning: AttemptResult<ReplyOutcome<ImageReply>> }
    | AttemptResult<ReplyOutcome<ImageReply>>
  > {
    const type = body === null ? {} : { 'content-type': 'application/octet-stream' };
    try {
      const reply = await this.#http.exchange(`${url}/render`, {
        method: body === null ? 'GET' : 'POST',
        headers: { ...this.#headers, ...type },
        body,
        signal: attempt.signal,
      });
      return { ...reply, meaning: meaningOfStatus(reply, this.#http.redact) };
    } catch (error) {
      return requestFailed(error, attempt, this.options.settings.timeout_s * 1000);
    }
  }
}

/** The first version of the protocol, which every server supports. */
const PROTOCOL = 'editrl-render/1';
/** The second version, in which a request may set the guidance. */
export const GUIDED = 'editrl-render/2';

/** The identity that the server must have. */
interface Expected {
  readonly model: string;
  /** Width of a hidden state. Null if unknown here. */
  readonly width: number | null;
  /** Whether requests use guidance. */
  readonly guided: boolean;
}

/** Why a server with the description `body` cannot be used, in words. Null if it can. */
export function identityProblem(body: Buffer, { model, width, guided }: Expected): string | null {
  const { protocol, protocols, model: served, states_width: wanted } = fieldsOf(body);
  if (protocol !== PROTOCOL) {
    return `not a render server (protocol '${PROTOCOL}'): ${excerpt(body.toString('utf8'))}`;
  }
  if (served !== model) return `it serves ${JSON.stringify(served)}, not '${model}'`;
  if (guided && !(Array.isArray(protocols) && protocols.includes(GUIDED))) {
    return `it has no guidance (only protocol '${PROTOCOL}'), but environment.guidance_scale is set: start a server with protocol '${GUIDED}', or set it to null`;
  }
  if (width === null || wanted === width) return null;
  return `its model ${model} expects hidden states of width ${JSON.stringify(wanted)}, got ${width}`;
}

/** The meaning of a reply without an image, by its status. `redact` removes secrets from its text. */
export function meaningOfStatus(
  { status, headers, body }: WholeReply,
  redact: (text: string) => string,
): AttemptResult<ReplyOutcome<ImageReply>> {
  const { refused, error, detail } = fieldsOf(body);
  const message = typeof error === 'string' ? error : (detail ?? body.toString('utf8'));
  const words = redact(typeof message === 'string' ? message : JSON.stringify(message));
  const found = excerpt(`HTTP ${status} ${words}`).slice(1, -1);
  if (status === 422 && typeof refused === 'string') return gotAnswer({ refused: redact(refused) }, 'refused');
  const meaning = byStatus(IMAGE_STATUSES, status);
  if (meaning === 'refused') return misconfigured(found, adviceOnRender(status));
  return noAnswer(
    meaning,
    found,
    retryAfterMs((name) => headers[name]),
  );
}

function adviceOnRender(status: number): string {
  if (status === 401 || status === 403) {
    return 'Export the key that it asks for (environment.api_key_env names the variable).';
  }
  if (status === 404) return 'Check the address (environment.base_url): a render server answers at /v1/render.';
  return 'Check environment.served_model, environment.max_pixels and environment.num_inference_steps, and the log of the server.';
}

/** The fields of a JSON object. Empty for anything else. */
function fieldsOf(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(body.toString('utf8'));
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {}; // Whatever it is, the caller reports what it found.
  }
}
