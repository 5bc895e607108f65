/**
 * The base URL of an OpenAI-compatible server, as its clients expect it. No path means `/v1`. Any other path is kept (`/v1beta/openai`,
 * `/api/paas/v4`) without `/chat/completions`. The URL must be valid.
 */
export function openAiBaseUrl(url: string): string {
  const { origin, pathname } = new URL(url);
  const path = pathname.replace(/\/+$/, '').replace(/\/chat\/completions$/, '');
  return `${origin}${path === '' ? '/v1' : path}`;
}
