/** What Emu3's vision tokenizer takes in its published sizes, with random weights: seconds and memory to encode and to decode a picture. */
import { RandomStream } from '../../src/core/random.js';
import { UsageError } from '../../src/core/errors.js';
import { Emu3VisionTokenizer } from '../../src/environments/emu3_vision_tokens.js';
import { sizeOf } from '../../src/graph/ir.js';
import type { Weights } from '../../src/models/files.js';
import { readEmu3Vision } from '../../src/nets/emu3_vision/config.js';
import { emu3VisionParameters } from '../../src/nets/emu3_vision/tokenizer.js';

const USUAL_SIDE = 512;
const ROUNDS = 2;

/** The highest that this process has held, in GB. */
const peakGb = (): string => (process.resourceUsage().maxRSS / 1e6).toFixed(2);

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const made = await work();
  console.log(`${what}: ${((performance.now() - start) / 1000).toFixed(1)} s, at most ${peakGb()} GB so far`);
  return made;
}

/** `npm run bench -- emu3-vision [SIDE]`: one picture of SIDE x SIDE pixels, twice: graphs are compiled the first time. */
export async function benchEmu3Vision(): Promise<void> {
  const side = Number(process.argv[3] ?? USUAL_SIDE);
  const config = readEmu3Vision({ model_type: 'Emu3VisionVQ' }, 'the published sizes');
  if (!Number.isInteger(side / 8) || side <= 0) {
    throw new UsageError(`npm run bench -- emu3-vision takes a multiple of 8 pixels, found ${process.argv[3]}`);
  }
  const stream = new RandomStream(1, 'emu3 vision');
  const weights: Weights = new Map();
  for (const [name, shape] of emu3VisionParameters(config)) {
    const data = new Float32Array(sizeOf(shape));
    const deviation = 1 / Math.sqrt(sizeOf(shape.slice(1)));
    // A variance is positive; of the many weights, the first thousand numbers are repeated.
    if (shape.length === 1) data.fill(/(?:weight|running_var)$/.test(name) ? 1 : 0);
    else for (let i = 0; i < data.length; i++) data[i] = i < 1000 ? deviation * stream.normal() : data[i - 997];
    weights.set(name, { shape, data });
  }
  const count = [...weights.values()].reduce((sum, { data }) => sum + data.length, 0);
  const half = [0.5, 0.5, 0.5] as const;
  const tokenizer = new Emu3VisionTokenizer(
    'random weights',
    config,
    weights,
    { levels: { scale: 1 / 255, mean: half, std: half }, size: null },
    { provider: 'cpu' },
  );
  console.log(`${(count / 1e6).toFixed(0)} million weights, ${side}x${side} pixels; at most ${peakGb()} GB so far`);
  const image = {
    width: side,
    height: side,
    data: Uint8Array.from({ length: 3 * side * side }, () => stream.integer(256)),
  };
  for (let round = 1; round <= ROUNDS; round++) {
    const grids = await timed(`encoded (${round})`, () => tokenizer.encode([image]));
    const { codes } = grids[0];
    await timed(`decoded (${round})`, () => tokenizer.decode(grids));
    if (round === 1) console.log(`${codes.length} codes, ${new Set(codes).size} of them different`);
  }
  await tokenizer.dispose();
}
