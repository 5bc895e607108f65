/** Where the judge is: the forms in which a config may say so, and the base URLs that they stand for. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError, EndpointError } from '../../core/errors.js';
import { openAiBaseUrl } from '../../core/http/base_url.js';

/** The name by which the rule judge of the tiny world answers, which the endpoint 'embedded' starts. */
export const JUDGE_MODEL = 'editrl-rule-judge';

/** A file whose first line is the name of the host that the judge's job runs on, and the port it serves. */
export const nodeFileSchema = z.strictObject({
  node_file: z.string().min(1).describe('file that holds the name of the host on which the judge runs'),
  port: z.number().int().min(1).max(65535).default(4877).describe('port that the judge serves'),
});

export const endpointSchema = z.union([z.string(), z.array(z.string()).min(1), nodeFileSchema]);

/** One URL, several URLs of equal judges, or a node file. */
export type Endpoint = z.infer<typeof endpointSchema>;

/** Where a judge is, and who may ask it; plain data, which goes from process to process and into no file. */
export interface JudgeAddress {
  readonly endpoint: Endpoint;
  /** The token of a server that this program has started; null for one that somebody else runs. */
  readonly token: string | null;
}

/** Names that a judge may answer by besides the one that it is asked by; see `checkModel`. */
export const modelAliasSchema = z.union([z.boolean(), z.array(z.string().min(1)).min(1)]).default(false);

/**
 * Whether a reply's model is the one that was asked. Servers may name it without its folder, or the `:free` of a router, in other case, or as
 * the dated snapshot that a name stands for (`gpt-5-mini-2025-08-07` for `gpt-5-mini`).
 */
export function isModel(answered: string, asked: string): boolean {
  const [found, wanted] = [answered, asked].map((name) => name.toLowerCase().replace(/^.*\/(?=.)|:free$/g, ''));
  if (found === '' || found === wanted) return true;
  const base = wanted.replace(/-latest$/, '');
  return found.startsWith(base) && /^(?:-\d{4}-\d{2}-\d{2}|-\d{3,8}|-latest)?$/.test(found.slice(base.length));
}

/** What a person does to allow another name of a model, given as JSON; null stands for any. */
export type AllowAlias = (name: string | null) => string;

/** By a setting of a config. */
export function allowBySetting(setting: string): AllowAlias {
  return (name) => `set ${setting}: ${name === null ? 'true' : `[${name}]`}`;
}

/**
 * The base URLs, see `openAiBaseUrl`. Raises ConfigError for an address of the wrong form, EndpointError for a node file that
 * is not there yet or holds no host name.
 */
export function resolveEndpoints(endpoint: Endpoint): readonly string[] {
  if (typeof endpoint === 'string') return [normalizeUrl(endpoint)];
  if (Array.isArray(endpoint)) return [...new Set(endpoint.map(normalizeUrl))];
  return [`http://${readHost(endpoint.node_file)}:${endpoint.port}/v1`];
}

function normalizeUrl(text: string): string {
  if (text.trim() === '') {
    throw new ConfigError('the address of the judge is empty', {
      where: 'reward.endpoint',
      next: 'Set APP__REWARD_FUNCTION_API_BASE, such as http://localhost:4877/v1, or reward.endpoint itself.',
    });
  }
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.host === '') {
    throw new ConfigError(`'${text}' is not the address of a judge; allowed: http:// or https:// URLs`, {
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
    throw new EndpointError('cannot read the node file of the judge', { where: file, next, cause });
  }
  const host = text.split('\n', 1)[0].trim();
  if (/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(host)) return host;
  throw new EndpointError(`the node file's first line should be a host name, but is ${JSON.stringify(host)}`, {
    where: file,
    next,
  });
}
