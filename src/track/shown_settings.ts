/** A run's settings in the form that other machines may see. */
import type { Redact } from '../http/redact.js';

/** Leaves out the environment of a trainer, which may contain secrets, passwords in addresses, and what `redact` hides. */
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

/** Removes names and passwords from the addresses in a text. */
export function withoutPassword(text: string): string {
  return text.replace(/(\/\/)[^/@\s]*@/g, '$1');
}
