/** Writing SVG, and turning it into PNG on machines with and without fonts. */
import sharp from 'sharp';
import { strokeGlyph, strokeWidth, UNITS_PER_SIZE } from './strokes.js';

/** How text is drawn: with the machine's fonts, or with our own strokes. */
export type TextStyle = 'fonts' | 'strokes';

export interface TextOptions {
  readonly size: number;
  readonly color: string;
  readonly anchor?: 'start' | 'middle' | 'end';
  readonly bold?: boolean;
  /** Turned by so many degrees about its own point. */
  readonly rotate?: number;
}

const FONT_FAMILY = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";

/** A text whose baseline begins (or has its middle or end) at a point. */
export function svgText(style: TextStyle, x: number, y: number, text: string, options: TextOptions): string {
  const turn = options.rotate === undefined ? '' : ` transform="rotate(${options.rotate} ${n(x)} ${n(y)})"`;
  if (style === 'fonts') {
    const anchor = options.anchor ?? 'start';
    const weight = options.bold === true ? ' font-weight="600"' : '';
    return `<text x="${n(x)}" y="${n(y)}" font-size="${options.size}" fill="${options.color}" text-anchor="${anchor}"${weight}${turn}>${escapeXml(text)}</text>`;
  }
  const width = strokeWidth(text, options.size);
  const shift = { start: 0, middle: width / 2, end: width }[options.anchor ?? 'start'];
  const scale = options.size / UNITS_PER_SIZE;
  const paths: string[] = [];
  let at = 0;
  for (const character of text) {
    const glyph = strokeGlyph(character);
    if (glyph.path !== '') paths.push(`<path transform="translate(${n(at)} 0)" d="${glyph.path}"/>`);
    at += glyph.advance;
  }
  const pen = options.bold === true ? 1.7 : 1.15;
  const place = `translate(${n(x - shift)} ${n(y - 10 * scale)}) scale(${scale.toFixed(4)})`;
  return `<g${turn}><g transform="${place}" fill="none" stroke="${options.color}" stroke-width="${pen}" stroke-linecap="round" stroke-linejoin="round">${paths.join('')}</g></g>`;
}

/** A whole SVG document on a white ground. */
export function svgDocument(width: number, height: number, body: string): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${FONT_FAMILY}">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    body,
    '</svg>\n',
  ].join('\n');
}

/** Draws an SVG document at `scale` pixels per unit. */
export async function svgToPng(svg: string, scale: number): Promise<Uint8Array> {
  return sharp(Buffer.from(svg), { density: 72 * scale })
    .flatten({ background: '#ffffff' })
    .png()
    .toBuffer();
}

let usable: Promise<boolean> | null = null;

/**
 * The style in which this machine can draw text. Without fonts every character comes out empty or as the same box, so two
 * different letters are drawn and compared.
 */
export async function availableTextStyle(): Promise<TextStyle> {
  usable ??= (async () => {
    const [wide, narrow, blank] = await Promise.all(
      ['W', 'i', ''].map(async (text) => {
        const body = svgText('fonts', 4, 30, text, { size: 24, color: '#000000' });
        return sharp(Buffer.from(svgDocument(40, 40, body)))
          .flatten({ background: '#ffffff' })
          .raw()
          .toBuffer();
      }),
    );
    return !wide.equals(narrow) && !wide.equals(blank) && !narrow.equals(blank);
  })();
  return (await usable) ? 'fonts' : 'strokes';
}

/** Breaks a text into lines of at most `width` pixels; the last of `maxLines` ends in an ellipsis when it had to be cut. */
export function wrapText(text: string, size: number, width: number, maxLines: number): string[] {
  // Common fonts are up to a tenth wider than our strokes.
  const fits = (line: string): boolean => strokeWidth(line, size) * 1.1 <= width;
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/).flatMap((item) => breakWord(item, fits))) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (line === '' || fits(longer)) line = longer;
    else {
      lines.push(line);
      line = word;
    }
  }
  if (line !== '') lines.push(line);
  if (lines.length <= maxLines) return lines;
  let last = lines[maxLines - 1];
  while (last !== '' && !fits(`${last}…`)) last = last.slice(0, -1);
  return [...lines.slice(0, maxLines - 1), `${last.trimEnd()}…`];
}

function breakWord(word: string, fits: (text: string) => boolean): string[] {
  const out: string[] = [];
  let rest = word;
  while (rest !== '' && !fits(rest)) {
    let length = rest.length - 1;
    while (length > 1 && !fits(rest.slice(0, length))) length--;
    out.push(rest.slice(0, length));
    rest = rest.slice(length);
  }
  if (rest !== '') out.push(rest);
  return out;
}

/** A number as SVG attributes carry it. */
export function n(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function escapeXml(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  // Control characters are not allowed in XML at all.
  return [...text]
    .filter((character) => character >= ' ')
    .map((character) => entities[character] ?? character)
    .join('');
}
