/** The one HTTP error: the reply of every server here to a request that it rejects. */
import { EditrlError } from '../errors.js';

/** Status and name of each kind. The names are vLLM's if it has one, because its clients know them. */
const kinds = {
  bad_request: [400, 'BadRequestError'],
  unauthorized: [401, 'AuthenticationError'],
  forbidden: [403, 'PermissionDeniedError'],
  not_found: [404, 'NotFoundError'],
  method_not_allowed: [405, 'MethodNotAllowedError'],
  too_slow: [408, 'RequestTimeoutError'],
  too_large: [413, 'RequestTooLargeError'],
  unsupported_media_type: [415, 'UnsupportedMediaTypeError'],
  no_such_model_anywhere: [424, 'FailedDependency'],
  busy: [429, 'RateLimitError'],
  caller_gone: [499, 'ClientClosedRequest'],
  internal: [500, 'InternalServerError'],
  upstream_failed: [502, 'UpstreamError'],
  unavailable: [503, 'ServiceUnavailable'],
  upstream_late: [504, 'UpstreamTimeout'],
} as const satisfies Readonly<Record<string, readonly [number, string]>>;

interface RefusalDetails {
  /** The field of the request that is at fault. */
  readonly param?: string;
  /** Seconds after which the same request may succeed. */
  readonly retryAfterS?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Rejects a request before any part of it runs. The message contains the value found and the allowed values. */
export class Refusal extends EditrlError {
  readonly code = 'refusal';
  readonly status: number;
  /** Stable, for programs. */
  readonly type: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly #param: string | null;

  constructor(
    readonly kind: keyof typeof kinds,
    message: string,
    { param, retryAfterS, headers }: RefusalDetails = {},
  ) {
    super(message);
    [this.status, this.type] = kinds[kind];
    this.headers = { ...headers, ...(retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) }) };
    this.#param = param ?? null;
  }

  /** In the form that OpenAI's clients read. */
  body(): unknown {
    const { message, type, status } = this;
    return { error: { message, type, param: this.#param, code: status } };
  }
}

export function badRequest(message: string, param?: string): Refusal {
  return new Refusal('bad_request', message, param === undefined ? {} : { param });
}
