/** The one HTTP error: the answer of every server here when it does not do what it was asked to. */
import { EditrlError } from '../errors.js';

/** Status and name of each kind; the names are vLLM's if it has one, so that its clients know them. */
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

export type RefusalKind = keyof typeof kinds;

export interface RefusalDetails {
  /** The field of the request that is at fault. */
  readonly param?: string;
  /** Seconds after which the same request may be taken. */
  readonly retryAfterS?: number;
  /** Headers of the reply besides those of its content. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refuses a whole request: no part of it was done. The message says what was found and what is allowed. */
export class Refusal extends EditrlError {
  readonly code = 'refusal';

  constructor(
    readonly kind: RefusalKind,
    message: string,
    private readonly details: RefusalDetails = {},
  ) {
    super(message);
  }

  get status(): number {
    return kinds[this.kind][0];
  }

  /** Stable, for programs. */
  get type(): string {
    return kinds[this.kind][1];
  }

  get headers(): Readonly<Record<string, string>> {
    const { retryAfterS, headers } = this.details;
    return { ...headers, ...(retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) }) };
  }

  /** In the form that OpenAI's clients read. */
  body(): unknown {
    const { message, type, status } = this;
    return { error: { message, type, param: this.details.param ?? null, code: status } };
  }
}

export function badRequest(message: string, param?: string): Refusal {
  return new Refusal('bad_request', message, param === undefined ? {} : { param });
}
