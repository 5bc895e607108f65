/** Code that all tracking destinations share: messages, the check that the run still exists, and redaction. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import { RunError } from '../../core/errors.js';
import { redactor, type Redact } from '../../core/http/key.js';
import type { RunPaths } from '../paths.js';

/** Receives messages about tracking. Messages that need action are warnings. */
export type Say = (line: string, level: 'info' | 'warn') => void;

/** Raises RunError if the run directory was removed or moved. Writing derived files must not recreate it. */
export function requireRun(paths: RunPaths): void {
  if (existsSync(paths.record)) return;
  throw new RunError('the run directory was removed', { where: paths.dir, next: 'Tracking stops.' });
}

/** Names of variables that contain a secret, such as HF_TOKEN. */
const SECRET_NAME = /(?:KEY|TOKEN|SECRET|PASSWORD)$/i;
/** Settings that name such a variable: `api_key_env`, `token_env`. */
const NAMES_VARIABLE = /_env$/;

/** Redacts the secrets that the settings name, those in the environment and in `launch.env`, and `others`. */
export function redactorOfRun(
  settings: Readonly<Record<string, unknown>>,
  env: NodeJS.ProcessEnv,
  ...others: readonly (string | null)[]
): Redact {
  const { env: launched } = (settings['launch'] ?? {}) as { readonly env?: NodeJS.ProcessEnv | null };
  const named = new Set(namedVariables(settings));
  const secrets = [env, launched ?? {}].flatMap((variables) =>
    Object.entries(variables).flatMap(([name, value]) => (named.has(name) || SECRET_NAME.test(name) ? [value] : [])),
  );
  const redactors = [...new Set([...secrets, ...others])].map(redactor);
  return (text) => redactors.reduce((clean, redact) => redact(clean), text);
}

function namedVariables(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, item]: [string, unknown]) =>
    NAMES_VARIABLE.test(key) && typeof item === 'string' ? [item] : namedVariables(item),
  );
}

/**
 * The settings without a trainer's environment, which may contain secrets, and without passwords in addresses. Also
 * redacts with `redact`.
 */
export function shownSettings(
  settings: Readonly<Record<string, unknown>>,
  redact: Redact = (text) => text,
): Record<string, unknown> {
  const launch = Object.entries(settings['launch'] ?? {}).filter(([key]) => key !== 'env');
  const shown = { ...settings, launch: Object.fromEntries(launch) };
  return withTexts(shown, (text) => redact(withoutPassword(text))) as Record<string, unknown>;
}

function withTexts(value: unknown, change: Redact): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item) => withTexts(item, change));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withTexts(item, change)]));
}

/** Removes user names and passwords from addresses in a text. */
export function withoutPassword(text: string): string {
  return text.replace(/(\/\/)[^/@\s]*@/g, '$1');
}

export interface CodeRevision {
  readonly commit: string;
  /** The repository's address, without user names and passwords. Null if there is none. */
  readonly repository: string | null;
}

/** Revision of this program's folder. Null without version control or without git. */
export async function codeRevision(folder = import.meta.dirname): Promise<CodeRevision | null> {
  const commit = await git(folder, 'rev-parse', 'HEAD');
  if (commit === null) return null;
  const remote = await git(folder, 'remote', 'get-url', 'origin');
  const onServer = remote !== null && /^(https?|ssh|git):\/\/|^[\w.-]+@[\w.-]+:/.test(remote);
  return { commit, repository: onServer ? withoutPassword(remote) : null };
}

async function git(folder: string, ...args: readonly string[]): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)('git', ['-C', folder, ...args], { timeout: 5000 });
    return stdout.trim() || null;
  } catch {
    return null;
  }
}
