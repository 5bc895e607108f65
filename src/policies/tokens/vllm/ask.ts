/** How a vLLM server is asked for answers. */
import { createHash } from 'node:crypto';
import type { Deadline } from '../../../core/deadline.js';
import type { VllmClient } from '../../../engines/vllm/client.js';
import type { Completion, CompletionRequest } from '../../../engines/vllm/wire.js';
import type { TokenPrompt } from '../batch.js';
import type { WrittenRules } from '../format.js';
import type { PictureMail } from './pictures.js';
import type { ServedAs } from './shelf.js';

export interface Question {
  readonly prompt: TokenPrompt;
  /** What its tokens have to keep to; null for nothing. */
  readonly rules: WrittenRules | null;
  readonly sampling: Omit<CompletionRequest, 'model' | 'prompt'>;
}

/**
 * One answer; null where the server does not have these weights (any more). `mail` is null for a model that does not see. Raises EndpointError as the
 * client does, and where the server reads another prompt than it was sent; DataError for pictures that it would see otherwise than the trainer.
 */
export async function askUnder(
  client: VllmClient,
  { model, version }: ServedAs,
  { prompt, sampling, rules }: Question,
  mail: PictureMail | null,
  within: Deadline,
): Promise<Completion | null> {
  if (version === null && mail === null && rules === null) {
    return client.complete({ ...sampling, model, prompt: prompt.ids }, within);
  }
  const { ids, parts } = mail === null ? { ids: prompt.ids, parts: [] } : await mail.sent(prompt);
  const generated = await client.generate(
    { ...sampling, model, prompt: ids, parts, cacheSalt: saltOf(version ?? model), rules },
    within,
  );
  if (generated === null) return null;
  if (version !== null && generated.versions.some((one) => one !== version)) return null;
  mail?.requireSame(prompt, generated.promptIds, client.url);
  return generated;
}

/** A salt may have 128 characters, and no path. */
function saltOf(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}
