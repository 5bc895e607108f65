/** Keeps a run's secrets out of what is sent to other machines: the values of environment variables that hold keys. */
import { redactor, type Redact } from '../http/redact.js';

/** Variables that hold a key by their name, such as HF_TOKEN. */
const SECRET_NAME = /(?:KEY|TOKEN|SECRET|PASSWORD)$/i;
/** Settings that name such a variable: `api_key_env`, `token_env`. */
const NAMES_VARIABLE = /_env$/;

/** Replaces the secrets that the settings name, those of the environment, those of `launch.env`, and `others`. */
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
