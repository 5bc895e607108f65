import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeRuntime } from '../../src/compute/onnx/provider.js';
import { Place } from './editrl.js';

const hasCuda = (await describeRuntime()).available.includes('cuda');
let place: Place;
beforeAll(() => {
  place = Place.make();
});
afterAll(() => place.remove());

const CONFIG = 'experiments/foreign/quadratic.jsonnet';
const CPU = { CUDA_VISIBLE_DEVICES: '' };

interface Report {
  readonly processes: number;
  readonly ranks: readonly {
    rank: number;
    pid: number;
    free_bytes: number;
    bytes_per_second: number | null;
    engine: { provider: string; gflops: number } | null;
  }[];
}

/** The report of the one config that was checked. */
function launchOf(out: string): Report {
  const { configs } = JSON.parse(out) as { configs: readonly { launch: Report }[] };
  return configs[0].launch;
}

describe('editrl check --launch', () => {
  it('lets two processes meet and says what each has', async () => {
    const { code, out } = await place.call(['check', '--launch', CONFIG, '--json'], CPU);
    expect(code).toBe(0);
    const { processes, ranks } = launchOf(out);
    expect([processes, ranks.map(({ rank }) => rank)]).toEqual([2, [0, 1]]);
    expect(new Set(ranks.map(({ pid }) => pid)).size).toBe(2);
    for (const rank of ranks) {
      expect(rank.bytes_per_second).toBeGreaterThan(0);
      expect(rank.free_bytes).toBeGreaterThan(0);
      expect(rank.engine).toBe(null);
    }
  });

  it('runs a session of the policy in every process', async () => {
    const tiny = ['--with', 'configs/lib/tiny.libsonnet', '--set', 'launch.processes=2'];
    const { code, out } = await place.call(
      ['check', '--launch', 'configs/sft_s__rl_s.jsonnet', ...tiny, '--json'],
      CPU,
    );
    expect(code).toBe(0);
    const { ranks } = launchOf(out);
    expect(ranks.map(({ engine }) => engine?.provider)).toEqual(['cpu', 'cpu']);
    for (const { engine } of ranks) expect(engine?.gflops).toBeGreaterThan(0);
  });

  // Its reason: where CUDA is installed, nothing is missing.
  it.skipIf(hasCuda)('reports what a missing provider needs', async () => {
    const cuda = ['--with', 'configs/lib/tiny.libsonnet', '--set', 'policy.engine.provider=cuda'];
    const { code, err } = await place.call(['check', '--launch', 'configs/sft_s__rl_s.jsonnet', ...cuda], CPU);
    expect([code, err]).toEqual([1, expect.stringMatching(/engine.provider is 'cuda', but onnxruntime-node lacks/)]);
  });
});
