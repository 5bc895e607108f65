/** The Hub's settings in the environment, in the variables of Python's `huggingface_hub`, so that both share a cache and an account. */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

export interface HubEnvironment {
  /** The Hub's address, without a slash at its end. */
  readonly endpoint: string;
  /** The folder in which models lie. */
  readonly cacheDir: string;
  /** Who asks; null: nobody in particular. */
  readonly token: string | null;
  /** Whether the Hub may not be asked. */
  readonly offline: boolean;
}

/** HF_ENDPOINT, HF_HUB_CACHE (else HF_HOME), HF_TOKEN (else the file that logging in leaves), HF_HUB_OFFLINE, and their older names. */
export function hubEnvironment(env: NodeJS.ProcessEnv = process.env): HubEnvironment {
  const first = (...names: string[]): string | undefined => names.map((name) => env[name]?.trim()).find(Boolean);
  const is = (...names: string[]): boolean => /^(1|on|yes|true)$/i.test(first(...names) ?? '');
  const path = (text: string): string => text.replace(/^~(?=\/|$)/, homedir());
  const home = path(first('HF_HOME') ?? join(first('XDG_CACHE_HOME') ?? '~/.cache', 'huggingface'));
  const tokenFile = path(first('HF_TOKEN_PATH') ?? join(home, 'token'));
  const implicit = is('HF_HUB_DISABLE_IMPLICIT_TOKEN') ? null : readToken(tokenFile);
  return {
    endpoint: (first('HF_ENDPOINT') ?? 'https://huggingface.co').replace(/\/+$/, ''),
    cacheDir: path(first('HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE') ?? join(home, 'hub')),
    token: first('HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN') ?? implicit,
    offline: is('HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE'),
  };
}

/** Null where nobody has logged in on this machine, or the file is another account's. */
function readToken(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim() || null;
  } catch {
    return null;
  }
}
