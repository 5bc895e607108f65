/** Emu3's vision tokenizer, computed from its own folders; test/fixture_scripts/emu3_vision.py makes them and what they are compared with. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { readConfig } from '../../../../src/models/files.js';
import { openEmu3Vision } from '../../../../src/models/networks/emu3_vision.js';
import { codesOf, decodeCodes, encodeImages } from '../../../../src/compute/nets/emu3_vision/tokenizer.js';

const fixtures = join(import.meta.dirname, 'fixtures');

/** The length of the difference, by the length of what is wanted. */
function apart(found: Float32Array, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  return Math.hypot(...found.map((value, i) => value - wanted[i])) / Math.hypot(...wanted);
}

describe.each(['published', 'transformers'])("the weights under %s' names", (name) => {
  const folder = join(fixtures, name);
  const { config, weights } = openEmu3Vision(folder, readConfig(folder));
  const read = readSafetensors(join(folder, 'expected.safetensors'));
  const tensor = (key: string) => must(read.get(key), key);
  const whole = (key: string): BigInt64Array => BigInt64Array.from(tensor(key).data, BigInt);

  async function run(
    input: string,
    dtype: 'float32' | 'int64',
    build: (x: Value) => Record<string, Value>,
  ): Promise<Record<string, unknown>> {
    const graph = new Graph('half');
    const outputs = build(graph.input('x', tensor(input).shape, dtype));
    const session = await Session.compile(graph, outputs, { threads: 1 });
    try {
      return await session.run({ x: dtype === 'int64' ? whole(input) : tensor(input).data }, weights);
    } finally {
      await session.dispose();
    }
  }

  it("give transformers' vectors, to 1e-5, and its codes", async () => {
    const { vectors, codes } = await run('pixels', 'float32', (x) => {
      const made = encodeImages(config, x);
      return { vectors: made, codes: codesOf(config, made) };
    });
    expect(apart(vectors as Float32Array, tensor('vectors').data)).toBeLessThan(1e-5);
    expect(codes).toEqual(whole('nearest'));
    // They differ, so that the comparison says something.
    expect(new Set(whole('nearest')).size).toBeGreaterThan(4);
  });

  it("give transformers' images, to 1e-5", async () => {
    const { pixels } = await run('codes', 'int64', (x) => ({ pixels: decodeCodes(config, x) }));
    const wanted = tensor('pictures').data;
    expect(apart(pixels as Float32Array, wanted)).toBeLessThan(1e-5);
    const half = wanted.length / 2;
    expect(apart(wanted.slice(half), wanted.slice(0, half))).toBeGreaterThan(0.1);
  });
});
