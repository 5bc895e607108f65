/**
 * Renders SVG with text as PNG, also on machines without fonts. The package includes the font Arimo: as wide as Arial
 * and Helvetica, maintained, and TrueType, which sharp's text engine needs.
 */
import { createRequire } from 'node:module';
import sharp, { type OverlayOptions } from 'sharp';

/** The font of all text in images, and its colors. */
export const FONT = 'Arimo';
export const INK = '#22272e';
export const MUTED = '#5b6570';

let loaded: Promise<void> | null = null;

/**
 * Makes the font available to this process. After sharp has drawn text with a font file, fontconfig and therefore the
 * SVG renderer know it, too.
 */
export function loadFont(): Promise<void> {
  return (loaded ??= (async () => {
    const { resolve } = createRequire(import.meta.url);
    for (const file of ['400Regular/Arimo_400Regular.ttf', '700Bold/Arimo_700Bold.ttf']) {
      const fontfile = resolve(`@expo-google-fonts/arimo/${file}`);
      await sharp({ text: { text: FONT, font: FONT, fontfile } }).toBuffer();
    }
  })());
}

/** Draws an SVG document on white, at `scale` pixels per unit. */
export async function svgToPng(svg: string, scale: number): Promise<Uint8Array> {
  await loadFont();
  return sharp(Buffer.from(svg), { density: 72 * scale })
    .flatten({ background: '#ffffff' })
    .png()
    .toBuffer();
}

/** Escapes text for SVG elements and Pango markup, which allow no control characters. */
export function escapeMarkup(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
  return text.replace(/\p{Cc}+/gu, ' ').replace(/[&<>]/g, (character) => entities[character]);
}

const MARGIN = 28;

/** A PNG as wide as `svg`. A caption adds height. An empty one adds nothing. Loads the font. */
export async function drawSheet(
  svg: string,
  overlays: readonly (OverlayOptions | Promise<OverlayOptions>)[],
  caption: string,
): Promise<Uint8Array> {
  const [ground, ...laid] = await Promise.all([svgToPng(svg, 1), ...overlays]);
  const sheet = await sharp(ground).composite(laid).png().toBuffer();
  if (caption === '') return sheet;
  const { width } = await sharp(sheet).metadata();
  const text = `<span foreground="${INK}">${escapeMarkup(caption)}</span>`;
  const { data, info } = await sharp({
    text: { text, font: `${FONT} 14`, rgba: true, width: width - 2 * MARGIN, wrap: 'word-char', spacing: 4 },
  })
    .png()
    .toBuffer({ resolveWithObject: true });
  return sharp(sheet)
    .extend({ top: info.height + MARGIN / 2, background: '#ffffff' })
    .composite([{ input: data, left: MARGIN, top: MARGIN }])
    .png()
    .toBuffer();
}
