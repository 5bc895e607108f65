/** What the gateway itself answers when it does not pass on an upstream's reply: HTTP errors with the bodies that OpenAI's clients read. */
import { EditrlError } from '../../core/errors.js';

export class GatewayProblem extends EditrlError {
  readonly code = 'gateway';

  constructor(
    readonly status: number,
    /** vLLM's or OpenAI's name of the error's kind. */
    readonly type: string,
    message: string,
    readonly extra: { readonly param?: string; readonly retryAfterS?: number } = {},
  ) {
    super(message);
  }

  body(): unknown {
    return { error: { message: this.message, type: this.type, param: this.extra.param ?? null, code: this.status } };
  }

  headers(): Record<string, string> {
    const { retryAfterS } = this.extra;
    return retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) };
  }
}

export function badRequest(message: string, param?: string): GatewayProblem {
  return new GatewayProblem(400, 'BadRequestError', message, param === undefined ? {} : { param });
}
