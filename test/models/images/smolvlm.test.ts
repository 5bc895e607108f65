/** SmolVLM's images against transformers (test/fixture_scripts/smolvlm.py). */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CheckpointError, must } from '../../../src/core/errors.js';
import { describeDecoder } from '../../../src/models/networks/decoder.js';
import { openSmolvlmProcessor, smolvlmMarks } from '../../../src/models/images/smolvlm.js';
import { tokensOf, withImages, withInputWords } from '../../../src/models/images/vision_input.js';
import { testFolders } from '../../support/folder.js';

interface Fixture {
  readonly settings: object;
  readonly sizes: readonly (readonly [height: number, width: number, tokens: number])[];
  readonly images: readonly {
    readonly height: number;
    readonly width: number;
    readonly raw: string;
    readonly text: string;
    readonly parts: readonly string[];
  }[];
}

const { settings, sizes, images } = JSON.parse(
  readFileSync(new URL('./fixtures/smolvlm.json', import.meta.url), 'utf8'),
) as Fixture;
const model = join(import.meta.dirname, '../../compute/nets/vision/fixtures/smolvlm');
const vision = must(describeDecoder(model, 'words and images').config.vision, 'a vision encoder');
const folders = testFolders('smolvlm');
const processor = openSmolvlmProcessor(model, vision);
const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));

it('makes as many tokens of 200 images as the processor of transformers', () => {
  expect(sizes).toHaveLength(200);
  for (const [height, width, tokens] of sizes) {
    expect(processor.tokensOf({ width, height })).toBe(tokens);
    expect(processor.mostImageTokens).toBeGreaterThan(tokens);
  }
});

it('cuts images into the same parts, between the same words', () => {
  expect(images).toHaveLength(3);
  for (const { width, height, raw, text, parts } of images) {
    const inputs = processor.inputs({ width, height, data: bytes(raw) });
    const made = withInputWords('<image>', inputs, smolvlmMarks, 'here');
    const perPart = tokensOf(inputs[0].grid, processor.settings.sizes);
    expect(made.replaceAll('<image>', '<image>'.repeat(perPart))).toBe(text);
    const worst = inputs.map(({ frames: [frame] }, i) => {
      const wanted = bytes(parts[i]);
      expect(frame.data).toHaveLength(wanted.length);
      return frame.data.reduce((most, level, at) => Math.max(most, Math.abs(level - wanted[at])), 0);
    });
    expect(Math.max(...worst)).toBe(0);
    expect(inputs).toHaveLength(parts.length);
  }
});

it('shows several images and frames of a clip in one prompt', async () => {
  const frame = { width: 8, height: 8, data: new Uint8Array(8 * 8 * 3) };
  const stills = await processor.stills([frame, frame]);
  const whole = '<fake_token_around_image><global-img><image><fake_token_around_image>';
  expect(withInputWords('see <video>.', stills, smolvlmMarks, 'here')).toBe(`see ${whole}${whole}.`);
  expect(() => withInputWords('see <image>', stills, smolvlmMarks, 'here')).toThrow('placeholders for image');
  const ids = { image_token_id: 7, video_token_id: 7 };
  expect(withImages([1, 7, 2, 7], stills, ids, processor.settings.sizes, 'here')).toEqual([
    ...[1, 7, 7, 7, 7],
    ...[2, 7, 7, 7, 7],
  ]);
});

it.each([
  [{ max_image_size: { longest_edge: 32 } }, 'max_image_size.longest_edge: found 32; allowed: image_size'],
  [{ resample: 3 }, 'resample: only 1 (Lanczos)'],
  [{ image_processor_type: 'CLIPImageProcessor' }, 'image_processor_type'],
])('rejects %j', (other, message) => {
  const folder = folders();
  const json = { image_processor_type: 'SmolVLMImageProcessor', ...settings, ...other };
  writeFileSync(join(folder, 'preprocessor_config.json'), JSON.stringify(json));
  expect(() => openSmolvlmProcessor(folder, vision)).toThrow(CheckpointError);
  expect(() => openSmolvlmProcessor(folder, vision)).toThrow(message);
});

it('cuts smaller images if the pixels of a run are limited', () => {
  const limited = openSmolvlmProcessor(model, vision, 32 * 32);
  expect(limited.tokensOf({ width: 64, height: 64 })).toBe(5 * 4);
  expect(processor.tokensOf({ width: 64, height: 64 })).toBe(17 * 4);
});
