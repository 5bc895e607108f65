/** A request that is not scored: the HTTP status, a stable type, and what a person can do about it. */
export type RefusalType =
  | 'bad_request'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'timeout'
  | 'too_large'
  | 'unsupported_media_type'
  | 'busy'
  | 'draining'
  | 'internal';

/** The HTTP status of each type of refusal. */
const statuses: Readonly<Record<RefusalType, number>> = {
  bad_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  timeout: 408,
  too_large: 413,
  unsupported_media_type: 415,
  busy: 429,
  draining: 503,
  internal: 500,
};

/** Refuses a whole request; nothing of it was scored. */
export class Refusal extends Error {
  constructor(
    readonly type: RefusalType,
    message: string,
    /** Headers of the reply besides its content's. */
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
    this.name = 'Refusal';
  }

  get status(): number {
    return statuses[this.type];
  }

  body(): { readonly error: { readonly message: string; readonly type: RefusalType } } {
    return { error: { message: this.message, type: this.type } };
  }
}
