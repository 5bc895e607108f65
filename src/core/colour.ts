/** Colour where a person is watching. */

const codes = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2, bold: 1 } as const;
export type Style = keyof typeof codes;

/** Gives a text a style, or leaves it as it is. */
export type Paint = (text: string, style: Style) => string;

/** Whether a stream gets colour: a terminal, unless NO_COLOR is set. */
export function hasColour(stream: Pick<NodeJS.WriteStream, 'isTTY'>, env: NodeJS.ProcessEnv = process.env): boolean {
  return stream.isTTY && (env['NO_COLOR'] ?? '') === '';
}

/** How texts are painted on a stream: on a terminal that wants it, in colour; else not at all. */
export function painter(stream: Pick<NodeJS.WriteStream, 'isTTY'>): Paint {
  return hasColour(stream) ? (text, style) => `\u001b[${codes[style]}m${text}\u001b[0m` : plainPaint;
}

export const plainPaint: Paint = (text) => text;
