/** The meaning of a render server's replies other than pictures. */
import type { AttemptResult } from '../../balance/ask.js';
import { gotAnswer, noAnswer, misconfigured, type ReplyOutcome } from '../../balance/remote.js';
import { byStatus, retryAfterMs } from '../../http/meaning.js';
import type { WholeReply } from '../../http/request.js';
import { excerpt } from '../../rewards/judge/parse.js';
import { PICTURE_STATUSES } from '../served/asking.js';
import type { PictureReply } from '../served/picture.js';

/** The first version of the protocol, which every server answers. */
const PROTOCOL = 'editrl-render/1';
/** The second version, in which a request may set the guidance. */
export const GUIDED = 'editrl-render/2';

/** The required identity of the server. */
interface Expected {
  readonly model: string;
  /** Width of a hidden state; null if unknown here. */
  readonly width: number | null;
  /** Whether it is asked to draw under guidance. */
  readonly guided: boolean;
}

/** Why a server that describes itself with `body` cannot be used, in words; null if it can. */
export function identityProblem(body: Buffer, { model, width, guided }: Expected): string | null {
  const { protocol, protocols, model: served, states_width: wanted } = fieldsOf(body);
  if (protocol !== PROTOCOL) {
    return `it does not say that it is a render server (protocol '${PROTOCOL}'): ${excerpt(body.toString('utf8'))}`;
  }
  if (served !== model) return `it serves ${JSON.stringify(served)}, and no model '${model}'`;
  if (guided && !(Array.isArray(protocols) && protocols.includes(GUIDED))) {
    return `it draws without guidance (protocol '${PROTOCOL}' alone), and environment.guidance_scale asks for some: start a server of protocol '${GUIDED}', or set it to null`;
  }
  if (width === null || wanted === width) return null;
  return `its model ${model} is told by hidden states of width ${JSON.stringify(wanted)}, and those of the policy have ${width}`;
}

/** What a reply without a picture means, by its status; `redact` removes secrets from its words. */
export function meaningOfStatus(
  { status, headers, body }: WholeReply,
  redact: (text: string) => string,
): AttemptResult<ReplyOutcome<PictureReply>> {
  const { refused, error, detail } = fieldsOf(body);
  const message = typeof error === 'string' ? error : (detail ?? body.toString('utf8'));
  const words = redact(typeof message === 'string' ? message : JSON.stringify(message));
  const found = excerpt(`HTTP ${status} ${words}`).slice(1, -1);
  if (status === 422 && typeof refused === 'string') return gotAnswer({ refused: redact(refused) }, 'refused');
  const meaning = byStatus(PICTURE_STATUSES, status);
  if (meaning === 'refused') return misconfigured(found, adviceFor(status));
  return noAnswer(
    meaning,
    found,
    retryAfterMs((name) => headers[name]),
  );
}

function adviceFor(status: number): string {
  if (status === 401 || status === 403) {
    return 'Export the key that it asks for (environment.api_key_env names the variable).';
  }
  if (status === 404) return 'Check the address (environment.base_url): a render server answers at /v1/render.';
  return 'Check environment.served_model, environment.max_pixels and environment.num_inference_steps, and the log of the server.';
}

/** The fields of a JSON object; empty for anything else. */
function fieldsOf(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(body.toString('utf8'));
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {}; // Whatever it is, the caller reports what it found.
  }
}
