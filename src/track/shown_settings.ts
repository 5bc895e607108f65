/** A run's settings as other machines may see them. */

/** Without what the environment of a trainer holds, which may be secret, and without passwords in addresses. */
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

/** A text without the names and passwords of its addresses. */
export function withoutPassword(text: string): string {
  return text.replace(/(\/\/)[^/@\s]*@/g, '$1');
}
