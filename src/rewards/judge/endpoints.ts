/** The judge's address: the forms of it in a config, and their base URLs. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError, EndpointError } from '../../core/errors.js';
import { openAiBaseUrl } from '../../core/http/base_url.js';

/** The model name of the tiny world's rule judge, which the endpoint 'embedded' starts. */
export const JUDGE_MODEL = 'editrl-rule-judge';

/** A file whose first line is the host of the judge's job, and the judge's port. */
export const nodeFileSchema = z.strictObject({
  node_file: z.string().min(1).describe('file with the host name of the judge'),
  port: z.number().int().min(1).max(65535).default(4877).describe('port of the judge'),
});

export const endpointSchema = z.union([z.string(), z.array(z.string()).min(1), nodeFileSchema]);

/** One URL, several URLs of equal judges, or a node file. */
export type Endpoint = z.infer<typeof endpointSchema>;

/** A judge's address and key. Plain data, which goes from process to process and into no file. */
export interface JudgeAddress {
  readonly endpoint: Endpoint;
  /** The token of a server that this program has started. Null for any other server. */
  readonly token: string | null;
}

/** Names that a judge may report in addition to the requested one. See `checkModel`. */
export const modelAliasSchema = z.union([z.boolean(), z.array(z.string().min(1)).min(1)]).default(false);

/**
 * Whether a reply's model is the requested one. Servers may name it without its folder or without the `:free` of a router, in other case,
 * or as the dated snapshot of a name (`gpt-5-mini-2025-08-07` for `gpt-5-mini`).
 */
export function isModel(answered: string, requested: string): boolean {
  const [found, wanted] = [answered, requested].map((name) => name.toLowerCase().replace(/^.*\/(?=.)|:free$/g, ''));
  if (found === '' || found === wanted) return true;
  const base = wanted.replace(/-latest$/, '');
  return found.startsWith(base) && /^(?:-\d{4}-\d{2}-\d{2}|-\d{3,8}|-latest)?$/.test(found.slice(base.length));
}

/** The advice that allows another name of a model, given as JSON. Null means any. */
export type AllowAlias = (name: string | null) => string;

/** Advice to change a setting of the config. */
export function allowBySetting(setting: string): AllowAlias {
  return (name) => `set ${setting}: ${name === null ? 'true' : `[${name}]`}`;
}

/**
 * The base URLs, see `openAiBaseUrl`. Raises ConfigError for an address of the wrong form, EndpointError for a node file that does not
 * exist yet or contains no host name.
 */
export function resolveEndpoints(endpoint: Endpoint): readonly string[] {
  if (typeof endpoint === 'string') return [normalizeUrl(endpoint)];
  if (Array.isArray(endpoint)) return [...new Set(endpoint.map(normalizeUrl))];
  return [`http://${readHost(endpoint.node_file)}:${endpoint.port}/v1`];
}

function normalizeUrl(text: string): string {
  if (text.trim() === '') {
    throw new ConfigError("the judge's address is empty", {
      where: 'reward.endpoint',
      next: 'Set APP__REWARD_FUNCTION_API_BASE, such as http://localhost:4877/v1, or reward.endpoint itself.',
    });
  }
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.host === '') {
    throw new ConfigError(`'${text}' is not a judge's address; allowed: http:// or https:// URLs`, {
      where: 'reward.endpoint',
      next: `Write it like http://${/^[\w.-]+(:\d+)?$/.test(text.trim()) ? text.trim() : 'localhost:4877'}/v1.`,
    });
  }
  return openAiBaseUrl(url.href);
}

function readHost(file: string): string {
  const next = 'Start the judge and let it write its host name there, or correct reward.endpoint.node_file.';
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new EndpointError("cannot read the judge's node file", { where: file, next, cause });
  }
  const host = text.split('\n', 1)[0].trim();
  if (/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host)) return host;
  throw new EndpointError(`the first line of the node file should be a host name, but is ${JSON.stringify(host)}`, {
    where: file,
    next,
  });
}
