/**
 * The base URL of an OpenAI-compatible server, as its clients have it: `/v1` stands for no path, any other path is the base (`/v1beta/openai`,
 * `/api/paas/v4`), and the path of chat completions below it is left out. The URL has to be one that can be parsed.
 */
export function openAiBaseUrl(url: string): string {
  const { origin, pathname } = new URL(url);
  const path = pathname.replace(/\/+$/, '').replace(/\/chat\/completions$/, '');
  return `${origin}${path === '' ? '/v1' : path}`;
}
