/** What replies of a render server mean besides pictures. */
import type { Tried } from '../../balance/ask.js';
import { retryAfterMs } from '../../http/meaning.js';
import { causeOf, isNotThere, type WholeReply } from '../../http/request.js';
import { excerpt } from '../../rewards/judge/parse.js';
import { away, AWAY, busy, failed, refusal, wrong, type Found } from '../served/found.js';

/** The first version of the protocol, which every server answers. */
const PROTOCOL = 'editrl-render/1';
/** The second, in which a request may say how it is guided. */
export const GUIDED = 'editrl-render/2';

/** What the server has to be. */
interface Expected {
  readonly model: string;
  /** Of a hidden state; null: not known here. */
  readonly width: number | null;
  /** Whether it is asked to draw under guidance. */
  readonly guided: boolean;
}

/** Why a server that says of itself what `body` holds cannot be asked, in words; null where it can. */
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

/** What a reply without a picture means by its status; `redact` takes secrets out of its words. */
export function meaningOfStatus({ status, headers, body }: WholeReply, redact: (text: string) => string): Tried<Found> {
  const { refused, error, detail } = fieldsOf(body);
  const message = typeof error === 'string' ? error : (detail ?? body.toString('utf8'));
  const words = redact(typeof message === 'string' ? message : JSON.stringify(message));
  const found = excerpt(`HTTP ${status} ${words}`).slice(1, -1);
  const wait = retryAfterMs((name) => headers[name]);
  const retry = wait === null ? {} : { retryAfterMs: wait };
  if (status === 422 && typeof refused === 'string') return refusal(redact(refused));
  if (status === 429) return { ...busy(found), ...retry };
  if (AWAY.has(status)) return { ...away(found), ...retry };
  if (status >= 500 || status === 408) return failed(found);
  return wrong(found, adviceFor(status));
}

function adviceFor(status: number): string {
  if (status === 401 || status === 403) {
    return 'Export the key that it asks for (environment.api_key_env names the variable).';
  }
  if (status === 404) return 'Check the address (environment.base_url): a render server answers at /v1/render.';
  return 'Check environment.served_model, environment.max_pixels and environment.num_inference_steps, and the log of the server.';
}

/** Of a request without a reply. */
export function meaningOfError(error: Error): Tried<Found> {
  const found = causeOf(error);
  return isNotThere(error) ? away(found) : failed(found);
}

/** Those of a JSON object; none of anything else. */
function fieldsOf(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(body.toString('utf8'));
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {}; // Whatever it is, the caller says what it found.
  }
}
