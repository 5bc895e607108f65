/** Models of transformers, computed from their own folders; test/fixture_scripts/embedders.py makes them and what they are compared with. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { Session, SessionPool } from '../../../../src/compute/onnx/session.js';
import {
  describeEmbedder,
  type OpenedHalf,
  openImageHalf,
  openImageEncoder,
  openTextHalf,
  IMAGE_INPUT,
  TEXT_INPUT,
} from '../../../../src/models/networks/clip.js';

const fixtures = join(import.meta.dirname, 'fixtures');

/** What a half makes of each row of an input. */
async function computed(
  half: OpenedHalf,
  input: string,
  rows: readonly (Float32Array | BigInt64Array)[],
): Promise<Float32Array[]> {
  const session = await Session.compile(
    half.graph,
    { out: half.outputs.embedding },
    { threads: 1 },
    new SessionPool(half.weights),
  );
  const out: Float32Array[] = [];
  for (const row of rows) out.push((await session.run({ [input]: row }, half.weights))['out'] as Float32Array);
  await session.dispose();
  return out;
}

interface Expected {
  rowsOf(name: string): Float32Array[];
}

function expectedOf(folder: string): Expected {
  const read = readSafetensors(join(folder, 'expected.safetensors'));
  return {
    rowsOf(name) {
      const { shape, data } = must(read.get(name), name);
      const width = data.length / shape[0];
      return Array.from({ length: shape[0] }, (_, i) => data.subarray(i * width, (i + 1) * width));
    },
  };
}

/** The largest difference of a row from what is expected, by the length of the latter. */
function apart(found: readonly Float32Array[], wanted: readonly Float32Array[]): number {
  expect(found.map(({ length }) => length)).toEqual(wanted.map(({ length }) => length));
  return Math.max(
    ...found.map((row, i) => {
      const length = Math.hypot(...wanted[i]);
      return Math.hypot(...row.map((value, j) => value - wanted[i][j])) / length;
    }),
  );
}

describe.each(['clip_legacy', 'clip_ends', 'siglip'])('%s of transformers', (name) => {
  const folder = join(fixtures, name);
  const expected = expectedOf(folder);

  it('embeds texts alike, to 1e-5', async () => {
    const ids = expected.rowsOf('ids').map((row) => BigInt64Array.from(row, BigInt));
    const half = openTextHalf(folder, describeEmbedder(folder).text.max_position_embeddings);
    const found = await computed(half, TEXT_INPUT, ids);
    expect(apart(found, expected.rowsOf('texts'))).toBeLessThan(1e-5);
    // They differ, so that the comparison says something.
    expect(apart(found.slice(1), found.slice(0, -1))).toBeGreaterThan(0.1);
  });

  it('embeds images alike, to 1e-5', async () => {
    const found = await computed(openImageHalf(folder), IMAGE_INPUT, expected.rowsOf('pixels'));
    expect(apart(found, expected.rowsOf('pictures'))).toBeLessThan(1e-5);
    expect(apart(found.slice(1), found.slice(0, -1))).toBeGreaterThan(0.1);
  });
});

describe.each(['clip_vision', 'siglip_vision', 'clip_ends', 'siglip'])('the vision half of %s', (name) => {
  it('embeds images as transformers does, to 1e-5', async () => {
    const folder = join(fixtures, name);
    const expected = expectedOf(folder);
    const found = await computed(openImageEncoder(folder), IMAGE_INPUT, expected.rowsOf('pixels'));
    expect(apart(found, expected.rowsOf('pictures'))).toBeLessThan(1e-5);
  });
});
