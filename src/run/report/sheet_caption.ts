/** Lays a sheet of pictures out: its ground, what lies on it, and above both the line that says what it shows. */
import sharp, { type OverlayOptions } from 'sharp';
import { escapeMarkup, FONT, INK, svgToPng } from './svg.js';

const MARGIN = 28;

/** A PNG as wide as `svg`, and higher by its caption; one without words adds nothing. The font is loaded. */
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
