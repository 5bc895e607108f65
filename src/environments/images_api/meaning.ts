/** What a reply or an error of an images server means, and how to react. */
import OpenAI from 'openai';
import type { AttemptResult } from '../../balance/ask.js';
import { gotAnswer, noAnswer, misconfigured, type ReplyOutcome } from '../../balance/remote.js';
import { byStatus, retryAfterMs } from '../../http/meaning.js';
import { causeOf, isNotThere } from '../../http/request.js';
import { excerpt } from '../../rewards/judge/parse.js';
import { refusedField } from '../../rewards/judge/dialect.js';
import { PICTURE_STATUSES } from '../served/asking.js';
import type { PictureReply, ServedPicture } from '../served/picture.js';

export type ImagesAttempt = AttemptResult<ReplyOutcome<PictureReply>> & {
  /** The request field that the server refuses, if it names one. */
  readonly refusedField?: string;
  /** It cannot do what this request asks for, and does not say whether the reason is the prompt or the settings of all requests. */
  readonly unexplained?: true;
};

const STATUSES = { ...PICTURE_STATUSES, 409: 'failed' } as const;
/** Statuses by which a server says that it cannot do what this request asks for. */
const UNFIT: ReadonlySet<number> = new Set([400, 413, 422]);
/** Statuses by which a server may refuse a prompt. */
const REFUSING: ReadonlySet<number> = new Set([400, 403, 422]);
/** Codes and types of errors by which servers refuse to draw a prompt; messages are not searched, because they may quote prompts and models. */
const REFUSAL = /content[_ ]?(?:policy|filter|management)|moderation|safety|policy[_ ]violation|nsfw/i;

/**
 * @param result a picture; or a description of what came instead; or the client's error. Raises errors that are not about a request.
 */
export function meaningOf(result: ServedPicture | string | Error): ImagesAttempt {
  if (result instanceof Error) return meaningOfError(result);
  return typeof result === 'string' ? noAnswer('failed', result) : gotAnswer(result);
}

function meaningOfError(error: Error): ImagesAttempt {
  if (error instanceof OpenAI.APIConnectionError) {
    return noAnswer(isNotThere(error) ? 'away' : 'failed', causeOf(error));
  }
  if (error instanceof OpenAI.APIError) return meaningOfStatus(error as StatusError);
  if (error instanceof SyntaxError) return noAnswer('failed', `it answered with broken JSON (${error.message})`);
  throw error;
}

type StatusError = Pick<
  InstanceType<typeof OpenAI.APIError<number | undefined, Headers | undefined>>,
  'status' | 'headers' | 'code' | 'type' | 'param' | 'message'
>;

function meaningOfStatus(error: StatusError): ImagesAttempt {
  const status = Number(error.status);
  const found = excerpt(`HTTP ${error.message}`).slice(1, -1);
  const kind = `${error.code ?? ''} ${error.type ?? ''}`;
  const meaning = byStatus(STATUSES, status);
  if (meaning !== 'refused') {
    return noAnswer(
      meaning,
      found,
      retryAfterMs((name) => error.headers?.get(name)),
    );
  }
  if (REFUSING.has(status) && REFUSAL.test(kind)) return gotAnswer({ refused: found }, 'refused');
  const param = typeof error.param === 'string' ? error.param : null;
  const refused = refusedField({ status, param, words: `${kind} ${error.message}` });
  return {
    ...misconfigured(found, adviceFor(status)),
    ...(refused === null ? {} : { refusedField: refused }),
    ...(UNFIT.has(status) ? { unexplained: true } : {}),
  };
}

function adviceFor(status: number): string {
  if (status === 401 || status === 403) {
    return 'Export the key that it asks for (environment.api_key_env names the variable).';
  }
  if (status === 404) return 'Check the address (environment.base_url) and the model (environment.served_model).';
  return 'Check environment.served_model and environment.size, and the further fields that environment sends.';
}
