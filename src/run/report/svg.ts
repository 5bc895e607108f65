/**
 * SVG to PNG, with text on machines without fonts too: the font comes with us (Arimo: as wide as Arial and Helvetica, kept up, and
 * TrueType, which sharp's text engine reads).
 */
import { createRequire } from 'node:module';
import sharp from 'sharp';

/** The font of all text in pictures, and its colours. */
export const FONT = 'Arimo';
export const INK = '#22272e';
export const MUTED = '#5b6570';

let loaded: Promise<void> | null = null;

/** Makes the font known to this process. Files that sharp draws a text with stay with fontconfig, which its SVG reader asks as well. */
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

/** Text as the content of an element of SVG or of Pango markup. Control characters are allowed in neither. */
export function escapeMarkup(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
  return text.replace(/\p{Cc}+/gu, ' ').replace(/[&<>]/g, (character) => entities[character]);
}
