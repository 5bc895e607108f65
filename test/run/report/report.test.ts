import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { reportVerb } from '../../../src/cli/report.js';
import { claimRun } from '../../../src/run/claim.js';
import { MetricsJournal, readMetrics } from '../../../src/run/metrics.js';
import { RunPaths } from '../../../src/run/paths.js';
import { writeContactSheet } from '../../../src/run/report/contact_sheet.js';
import { smooth, writeCurve } from '../../../src/run/report/curve.js';
import { formatTick, niceTicks } from '../../../src/run/report/plot.js';
import { readRun } from '../../../src/run/report/read.js';
import { strokeGlyph } from '../../../src/run/report/strokes.js';
import { svgDocument, svgText, svgToPng, wrapText } from '../../../src/run/report/svg.js';
import { formatReport } from '../../../src/run/report/text.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-report-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

function makeRun(name: string, metrics: (iteration: number) => Record<string, number>, iterations: number): RunPaths {
  const handle = claimRun({
    settings: { run_name: name, base_exp_dir: base, num_iterations: iterations },
    compare: () => [],
    resultHash: 'h',
    importHash: 'i',
    command: [],
    versions: {},
  });
  const journal = new MetricsJournal(handle.paths);
  for (let i = 0; i <= iterations; i++) journal.append(i, metrics(i));
  journal.close();
  handle.setState({ state: 'finished', iteration: iterations });
  handle.release();
  return handle.paths;
}

function grpo(i: number): Record<string, number> {
  const validation = {
    'validation/sampled/mean': 4 + i / 10,
    'validation/sampled/stderr': 0.25,
    'validation/greedy/mean': 5 + i / 20,
    'validation/greedy/stderr': 0.2,
    'validation/s/sampled/mean': 4 + i / 10,
    'validation/s/sampled/stderr': 0.25,
  };
  const training = {
    'reward/mean': 4 + i / 10,
    'reward/unscored/timeout': i === 3 ? 2 : 0,
    'policy/kl': i / 1000,
    'policy/entropy': i === 4 ? NaN : 1 - i / 100,
    'time/total': 1,
    'time/rollout': 0.25,
    'time/judge': 0.125,
    'time/reference': 0.0625,
    'time/update': 0.5,
    'time/other': 0.0625,
    'tokens/s': 1000 + i,
  };
  return { ...(i % 10 === 0 ? validation : {}), ...(i > 0 ? training : {}) };
}

describe('a report', () => {
  it('tells held-out reward before and after, time and speed', () => {
    const paths = makeRun('rl', grpo, 20);
    const report = readRun(paths);
    expect(report).toMatchObject({
      run_name: 'rl',
      state: 'finished',
      iteration: 20,
      heldout: {
        before: 4,
        after: 6,
        metric: 'validation/sampled/mean',
        iterations: { before: 0, after: 20 },
        greedy: { before: { mean: 5, stderr: 0.2 }, after: { mean: 6, stderr: 0.2 } },
      },
      seconds_per_iteration: { total: 1, rollout: 0.25, judge: 0.125, update: 0.5, other: 0.0625 },
      tokens_per_second: 1010.5,
      unscored: { timeout: 2 },
      non_finite: 1,
    });
    expect(formatReport(report).replaceAll(base, '<runs>')).toMatchInlineSnapshot(`
      "rl: finished, iteration 20 of 20

      held-out         before (iteration 0)  after (iteration 20)  change
      reward, sampled  4.000 ± 0.250         6.000 ± 0.250         +2.000
      reward, greedy   5.000 ± 0.200         6.000 ± 0.200         +1.000
        s, sampled     4.000 ± 0.250         6.000 ± 0.250         +2.000

      training reward  5.550 ± 0.096, last 10 iterations
      time             1.00 s per iteration (rollout 0.25, judge 0.13, reference 0.06, update 0.50, other 0.06)
      speed            1,011 tokens/s
      unscored         timeout 2
      not finite       1 metrics

      run  <runs>/rl"
    `);
  });

  it('lists hack alarms with their iterations', () => {
    const alarms = (i: number): Record<string, number> => ({
      ...(i >= 7 && i <= 8 ? { 'alarm/dark_fraction': 1 } : {}),
      ...(i >= 9 ? { 'alarm/edge_density': 1 } : {}),
    });
    const paths = makeRun('hacked', (i) => ({ 'hack/edge_density': 1 / (i + 1), ...alarms(i) }), 12);
    expect(readRun(paths).alarms).toEqual([
      { name: 'dark_fraction', from: 7, to: 8, standing: false, metric: 'hack/dark_fraction', value: null },
      { name: 'edge_density', from: 9, to: 12, standing: true, metric: 'hack/edge_density', value: 0.1 },
    ]);
    expect(formatReport(readRun(paths))).toContain(
      [
        'hack alarms: the reward may be exploited, look at the pictures',
        '  dark_fraction  iteration 7 to 8',
        '  edge_density   iteration 9 and still standing  hack/edge_density 0.100',
      ].join('\n'),
    );
  });

  it('is of losses where there is no reward, and of nothing where nothing was measured', () => {
    const paths = makeRun('sft', (i) => (i % 5 === 0 ? { 'validation/loss': 3 - i / 10 } : { 'policy/loss': 2 }), 10);
    expect(readRun(paths).heldout).toMatchObject({ before: 3, after: 2, metric: 'validation/loss' });
    expect(formatReport(readRun(paths))).toMatch(/loss +3\.000 +2\.000 +-1\.000/);
    const empty = makeRun('empty', () => ({}), 0);
    expect(readRun(empty)).toMatchObject({ heldout: { before: null, after: null }, tokens_per_second: null });
    expect(formatReport(readRun(empty))).toContain('finished, iteration 0 of 0');
    expect(() => readRun(new RunPaths(base, 'nobody'))).toThrow('there is no run here');
  });
});

describe('the verb', () => {
  it('prints one JSON object, or the table, and draws the curve', async () => {
    makeRun('verb', grpo, 10);
    const printed = async (json: boolean): Promise<string> => {
      let out = '';
      const write = vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
        out += String(text);
        return true;
      });
      expect(await reportVerb.run({ run: 'verb', 'exp-dir': base, json })).toBe(0);
      write.mockRestore();
      return out;
    };
    expect(JSON.parse(await printed(true))).toMatchObject({ run_name: 'verb', heldout: { before: 4, after: 5 } });
    expect(await printed(false)).toContain(`curve  ${join(base, 'verb', 'curve.png')}`);
  });
});

describe('the learning curve', () => {
  it('is an SVG with text and a PNG of the same shape, with fonts and without', async () => {
    const paths = makeRun('curve', grpo, 20);
    for (const style of ['fonts', 'strokes'] as const) {
      await writeCurve(paths, readMetrics(paths), style);
      const svg = readFileSync(paths.curveSvg, 'utf8');
      for (const text of ['>curve<', 'held-out, sampled', 'held-out, greedy', 'entropy (nats/token)', '>iteration<']) {
        expect(svg).toContain(text);
      }
      expect(svg).not.toContain('NaN');
      const { width, height } = await sharp(paths.curvePng).metadata();
      expect(width).toBe(1920);
      expect(svg).toContain(`height="${height / 2}"`);
    }
  });

  it('can be drawn of a run with one point or only broken numbers', async () => {
    for (const value of [4, NaN]) {
      const paths = makeRun(`broken${value}`, () => ({ 'reward/mean': value, 'policy/kl': value }), 1);
      await writeCurve(paths, readMetrics(paths), 'strokes');
      expect(readFileSync(paths.curveSvg, 'utf8')).not.toContain('NaN"');
    }
  });

  it('has round ticks', () => {
    expect(niceTicks(0.13, 0.87, 5)).toEqual([0.2, 0.4, 0.6000000000000001, 0.8]);
    expect(niceTicks(-3, 12, 5)).toEqual([0, 5, 10]);
    expect([
      formatTick(0.6000000000000001, 0.2),
      formatTick(5, 5),
      formatTick(0.025, 0.005),
      formatTick(0.00005, 0.00001),
    ]).toEqual(['0.6', '5', '0.025', '5e-5']);
  });

  it('smooths with a centred window and passes over broken numbers', () => {
    const points = Array.from({ length: 20 }, (_, x) => ({ x, y: x === 7 ? NaN : 2 * x }));
    const out = smooth(points);
    expect(out[0].y).toBe(0);
    expect(out[19].y).toBe(38);
    expect(out[12].y).toBe(24);
    expect(Number.isFinite(out[7].y)).toBe(true);
  });
});

describe('text without fonts', () => {
  it('has strokes for every printable character', () => {
    const box = strokeGlyph('\u{1F600}').path;
    const printable = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i));
    expect(printable.filter((character) => strokeGlyph(character).path === box)).toEqual([]);
    expect(new Set(printable.map((character) => strokeGlyph(character).path)).size).toBe(95);
  });

  it('leaves ink', async () => {
    const png = await svgToPng(
      svgDocument(80, 30, svgText('strokes', 5, 20, 'Reward', { size: 16, color: '#000000' })),
      1,
    );
    const { data } = await sharp(png).greyscale().raw().toBuffer({ resolveWithObject: true });
    expect(data.filter((value) => value < 128).length).toBeGreaterThan(60);
  });
});

describe('the contact sheet', () => {
  it('enlarges by whole factors without smoothing and takes missing images', async () => {
    const path = join(base, 'sheet.png');
    const data = new Uint8Array(32 * 32 * 3);
    for (let i = 0; i < 32 * 32; i++) data.set(i % 2 === 0 ? [255, 0, 0] : [0, 0, 255], i * 3);
    const source = { width: 32, height: 32, data };
    const row = { instruction: 'paint it <red> & blue', source, edit: null, truth: null, score: '0' };
    await writeContactSheet(path, [row], 'strokes');
    const { data: pixels, info } = await sharp(path).raw().toBuffer({ resolveWithObject: true });
    const left = 28 + 190;
    const top = 28 + 34;
    const at = (x: number, y: number): number[] => [
      ...pixels.subarray((y * info.width + x) * info.channels).subarray(0, 3),
    ];
    for (const offset of [0, 1, 2, 3]) expect(at(left + offset, top)).toEqual([255, 0, 0]);
    for (const offset of [4, 5, 6, 7]) expect(at(left + offset, top)).toEqual([0, 0, 255]);
    expect(info.height).toBe(2 * 28 + 34 + 148);
    await writeContactSheet(
      path,
      Array.from({ length: 9 }, () => row),
      'strokes',
    );
    expect((await sharp(path).metadata()).width).toBeGreaterThan(info.width * 1.8);
  });

  it('wraps and cuts long instructions', () => {
    expect(wrapText('move the red circle', 14, 90, 5)).toEqual(['move the', 'red circle']);
    expect(wrapText('a b c d e f g h i j k l m n o p', 14, 40, 2).at(-1)).toMatch(/…$/);
    expect(wrapText('x'.repeat(60), 14, 90, 9).join('')).toBe('x'.repeat(60));
  });
});
