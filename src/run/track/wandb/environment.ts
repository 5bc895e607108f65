/** Reads W&B's settings from the environment variables of its SDK, so that both use the same account. */
import { mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { ConfigError, RunError } from '../../../core/errors.js';
import { writeFileAtomic } from '../../../core/files.js';
import { readPlainText } from '../../../core/plain_file.js';
import type { RunPaths } from '../../paths.js';

/** `online` sends, `offline` leaves everything to `editrl sync`, `disabled` does nothing. */
export type WandbMode = 'online' | 'offline' | 'disabled';

export interface WandbEnvironment {
  readonly mode: WandbMode;
  /** The server's address, without a trailing slash. */
  readonly baseUrl: string;
  /** The team or user in WANDB_ENTITY. Null if it is not set. */
  readonly entity: string | null;
  /** Null if there is none. It must not appear in any message. */
  readonly key: string | null;
}

const MODES: Readonly<Record<string, WandbMode>> = {
  online: 'online',
  run: 'online',
  offline: 'offline',
  dryrun: 'offline',
  disabled: 'disabled',
};

const CLOUD = 'https://api.wandb.ai';
const OLDEST_KEY_LENGTH = 40;

/**
 * Reads WANDB_MODE, WANDB_BASE_URL, WANDB_ENTITY and WANDB_API_KEY, or else the password in `~/.netrc`. Raises
 * ConfigError for an invalid value.
 */
export function wandbEnvironment(env: NodeJS.ProcessEnv = process.env): WandbEnvironment {
  const named = env['WANDB_MODE']?.trim() || 'online';
  const mode = Object.hasOwn(MODES, named) ? MODES[named] : undefined;
  if (mode === undefined) {
    throw new ConfigError(`found '${named}'; allowed: online, offline, disabled`, {
      where: 'WANDB_MODE',
      next: 'Unset it to upload the run to W&B.',
    });
  }
  const baseUrl = checkedAddress(env['WANDB_BASE_URL']?.trim() || CLOUD);
  const given = env['WANDB_API_KEY']?.trim() || null;
  const found = given ?? keyOfNetrc(new URL(baseUrl).host, env);
  return {
    mode,
    baseUrl,
    entity: env['WANDB_ENTITY']?.trim() || null,
    key: found === null ? null : checkedKey(found, given === null ? 'the netrc file' : 'WANDB_API_KEY'),
  };
}

/** Address of a server's web pages. */
export function pageAddress(baseUrl: string): string {
  return baseUrl.replace('://api.wandb.', '://').replace('://api.', '://app.');
}

function checkedAddress(text: string): string {
  const address = text.replace(/\/+$/, '');
  const url = URL.canParse(address) ? new URL(address) : null;
  const wrong =
    url === null || !['http:', 'https:'].includes(url.protocol)
      ? 'is not an http address'
      : /(^|\.)wandb\.ai$/.test(url.host) && address !== CLOUD
        ? `is not the API of wandb.ai, which is ${CLOUD}`
        : url.username !== '' || url.password !== ''
          ? 'contains a user name or password; use WANDB_API_KEY instead'
          : null;
  if (wrong === null) return address;
  throw new ConfigError(`the address ${wrong}`, {
    where: 'WANDB_BASE_URL',
    next: `Unset it for ${CLOUD}, or set the address of your own server, such as http://localhost:8080.`,
  });
}

/**
 * Checks a key. Keys of self-hosted servers begin with a word and a dash. Tokens with three parts are accepted
 * unchecked.
 */
function checkedKey(key: string, where: string): string {
  if (/^[\w-]+\.[\w-]+\.[\w-]+$/.test(key)) return key;
  const bare = key.replace(/^[^-]*-/, '');
  if (/^[\w-]+$/.test(bare) && bare.length >= OLDEST_KEY_LENGTH) return key;
  throw new ConfigError(
    `the W&B key has ${bare.length} characters; allowed: at least ${OLDEST_KEY_LENGTH} letters, digits, - or _`,
    { where, next: 'Copy the complete key from your account settings.' },
  );
}

/** The password of a host (with its port) in `$NETRC`, `~/.netrc` or `~/_netrc`. Null if there is none. */
function keyOfNetrc(host: string, env: NodeJS.ProcessEnv): string | null {
  const home = env['HOME'] ?? homedir();
  const files = env['NETRC'] === undefined ? [join(home, '.netrc'), join(home, '_netrc')] : [env['NETRC']];
  for (const file of files) {
    const password = passwordIn(readOrEmpty(file), host);
    if (password !== null) return password;
  }
  return null;
}

function passwordIn(netrc: string, host: string): string | null {
  const words = netrc.replaceAll(/^\s*#.*$/gm, '').split(/\s+/);
  let machine: string | null = null;
  for (const [at, word] of words.entries()) {
    if (word === 'machine') machine = words[at + 1] ?? null;
    else if (word === 'default') machine = null;
    else if (word === 'password' && machine === host) return words[at + 1] ?? null;
  }
  return null;
}

/**
 * The text of a file. Empty if it is missing or belongs to another account. Code that needs a key reports a missing
 * one.
 */
function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

const VARIABLE = 'WANDB_RUN_ID';
const MAX_ID_BYTES = 1024;
/** W&B's rule for ids. */
const ID = /^[^/\\#?%:\s]{1,128}$/;

/** The id in WANDB_RUN_ID. Null if it is not set. Raises ConfigError for an id that W&B does not accept. */
export function wandbIdOfEnvironment(env: NodeJS.ProcessEnv): string | null {
  const id = env[VARIABLE]?.trim() || null;
  if (id === null || ID.test(id)) return id;
  throw new ConfigError(`found '${id}'; allowed: 1 to 128 characters without blanks and / \\ # ? % :`, {
    where: VARIABLE,
    next: 'Unset it to use the run_name.',
  });
}

/** Stores the id for this and every later attempt. Raises RunError on a disk error. */
export function recordWandbId(paths: RunPaths, id: string): void {
  mkdirSync(paths.trackDir, { recursive: true });
  writeFileAtomic(paths.wandbId, `${id}\n`);
}

/** The id stored for the run. Null if there is none. Raises RunError for a file without a valid id. */
export function recordedWandbId(paths: RunPaths): string | null {
  const id = readPlainText(paths.wandbId, MAX_ID_BYTES)?.trim() ?? null;
  if (id === null || ID.test(id)) return id;
  throw new RunError('invalid W&B run id', {
    where: paths.wandbId,
    next: 'Remove the file to use the run_name.',
  });
}
