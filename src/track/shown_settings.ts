/** A run's settings in the form that other machines may see. */

/** Leaves out the environment of a trainer, which may contain secrets, and passwords in addresses. */
export function shownSettings(settings: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const launch = Object.entries(settings['launch'] ?? {}).filter(([key]) => key !== 'env');
  return withoutPasswords({ ...settings, launch: Object.fromEntries(launch) }) as Record<string, unknown>;
}

function withoutPasswords(value: unknown): unknown {
  if (typeof value === 'string') return withoutPassword(value);
  if (Array.isArray(value)) return value.map(withoutPasswords);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutPasswords(item)]));
}

/** Removes names and passwords from the addresses in a text. */
export function withoutPassword(text: string): string {
  return text.replace(/(\/\/)[^/@\s]*@/g, '$1');
}
