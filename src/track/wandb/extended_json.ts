/** JSON as in W&B's files: numbers that are not finite are bare words, where JSON itself would write null. */

/** Supports lists, plain objects, texts, numbers, booleans and null; leaves out undefined values. */
export function extendedJson(value: unknown): string {
  if (typeof value === 'number') return Number.isFinite(value) ? JSON.stringify(value) : String(value);
  if (Array.isArray(value)) return `[${value.map(extendedJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const fields = Object.entries(value).flatMap(([key, item]) =>
    item === undefined ? [] : [`${JSON.stringify(key)}:${extendedJson(item)}`],
  );
  return `{${fields.join(',')}}`;
}

/** Parses it; returns an object, or null for anything else. */
export function parseExtendedJson(text: string): Record<string, unknown> | null {
  const words = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  const marked = text.replace(words, (word) => (word.startsWith('"') ? word : `"\\u0000${word}"`));
  try {
    const value = JSON.parse(marked, (_key, item: unknown) =>
      typeof item === 'string' && item.startsWith('\0') ? Number(item.slice(1)) : item,
    ) as unknown;
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
