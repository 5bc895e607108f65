/** How a vLLM server is asked for answers. */
import type { Deadline } from '../../../core/deadline.js';
import type { VllmClient } from '../../../engines/vllm/client.js';
import type { Completion, CompletionRequest } from '../../../engines/vllm/wire.js';
import type { ServedAs } from './shelf.js';

/** One answer; null where the server does not have these weights (any more). */
export async function askUnder(
  client: VllmClient,
  { model, version }: ServedAs,
  request: Omit<CompletionRequest, 'model'>,
  within: Deadline,
): Promise<Completion | null> {
  if (version === null) return client.complete({ ...request, model }, within);
  const generated = await client.generate({ ...request, model, parts: [], cacheSalt: version }, within);
  if (generated === null) return null;
  return generated.versions.every((one) => one === version) ? generated : null;
}
