/** A vLLM that answers with recorded replies, chosen by what a real one checks: key, model, images, lengths. */
import { readFileSync } from 'node:fs';
import type { Behaviour, StubRequest } from './stub_judge.js';
import { behaviourOf } from './server_kinds.js';

export interface Recorded {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** The replies by name, see fixtures/README.md. */
export const recorded = JSON.parse(
  readFileSync(new URL('fixtures/vllm_0_32.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, Recorded>>;

export function played(name: string): Behaviour {
  const { status, headers, body } = recorded[name];
  return behaviourOf([status, body, headers]);
}

export interface Served {
  readonly key?: string;
  /** Names of its models. */
  readonly models?: readonly string[];
  /** Images per prompt. */
  readonly images?: number;
  readonly context?: number;
  /** Characters of a prompt that its context has room for. */
  readonly room?: number;
}

/** The name of the reply to a request, in the order of vLLM's own checks. */
export function replyOf(request: StubRequest, served: Served): string {
  const { key, models = ['judge', 'judge-lora', 'other-name'], images = 2, context = 4096, room = Infinity } = served;
  if (key !== undefined && request.authorization !== `Bearer ${key}`) return 'wrong_key';
  if (!models.includes(String(request.body['model']))) return 'wrong_model';
  if (request.images.length > images) return 'one_image';
  if (Number(request.body['max_completion_tokens']) > context) return 'reply_over_context';
  if (request.text.length > room) return 'long_text';
  return 'logprobs' in request.body ? 'logprobs' : 'response_format' in request.body ? 'viescore' : 'plain';
}
