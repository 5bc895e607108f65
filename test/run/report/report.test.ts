import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { measureScale, readMeasure } from '../../../src/rewards/score/identity.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { MetricsJournal, readMetrics, type MetricsLine } from '../../../src/run/metrics.js';
import { RunPaths } from '../../../src/run/paths.js';
import { renderChart, type Panel, type Point, type Series } from '../../../src/run/report/chart.js';
import { writeContactSheet } from '../../../src/run/report/contact_sheet.js';
import { curvePanels, writeCurve } from '../../../src/run/report/curve.js';
import { heldOutNumber, readRun, summarizeHeldOut, type HeldOut } from '../../../src/run/report/read.js';
import { formatReport } from '../../../src/run/report/text.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-report-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

function makeRun(
  name: string,
  metrics: (iteration: number) => Record<string, number>,
  iterations: number,
  more: object = {},
): RunPaths {
  const handle = claimRun({
    settings: { run_name: name, base_exp_dir: base, num_iterations: iterations, ...more },
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
    'validation/sampled/unscored': 0,
    'validation/sampled/form/order': 0.5 + i / 40,
    'validation/sampled/form/words': 1,
    // As it is weighed.
    'validation/sampled/form/normalised': 0.4 + i / 100,
    'validation/greedy/mean': 5 + i / 20,
    'validation/greedy/stderr': 0.2,
    'validation/greedy/form/order': 0.25,
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
    'time/render': 0.03125,
    'time/exchange': 0,
    'time/judge': 0.125,
    'time/reference': 0.0625,
    'time/update': 0.5,
    'time/other': 0.0625,
    'tokens/s': 1000 + i,
  };
  return { ...(i % 10 === 0 ? validation : {}), ...(i > 0 ? training : {}) };
}

describe('a report', () => {
  it('shows held-out reward before and after, time and speed', () => {
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
        numbers: [
          { manner: 'sampled', set: null },
          { manner: 'greedy', set: null, before: { mean: 5, stderr: 0.2 }, after: { mean: 6, stderr: 0.2 } },
          { manner: 'sampled', set: 's' },
        ],
        parts: { 'form/order': { before: 0.5, after: 1 }, 'form/words': { before: 1, after: 1 } },
      },
      seconds_per_iteration: {
        total: 1,
        rollout: 0.25,
        render: 0.03125,
        judge: 0.125,
        exchange: 0,
        update: 0.5,
        other: 0.0625,
      },
      speed: { unit: 'tokens/s', value: 1010.5 },
      unscored: { timeout: 2 },
      non_finite: 1,
    });
    const text = formatReport(report);
    expect(text).toMatch(/reward, sampled +4\.000 ± 0\.250 +6\.000 ± 0\.250 +\+2\.000\n/);
    expect(text).toMatch(/form\/order +0\.500 +1\.000 +\+0\.500\n/);
    expect(text).toMatch(/training reward +5\.550 ± 0\.096.*\n.*1\.00 s per iteration \(rollout 0\.25/);
    expect(text).toMatch(/1,011 tokens\/s\n.*timeout 2\n.*1 metrics\n/);
  });

  it('has no error for one scored answer, and says where none was scored', () => {
    const evaluated = (mean: number): Record<string, number> => ({
      'validation/sampled/mean': mean,
      'validation/sampled/stderr': NaN,
    });
    const one = makeRun('one', (i) => evaluated(0.25 + i / 4), 1);
    expect(heldOutNumber(readRun(one).heldout, 'sampled')?.after).toEqual({ mean: 0.5, stderr: null });
    expect(formatReport(readRun(one))).toMatch(/reward, sampled +0\.250 +0\.500 +\+0\.250\n/);
    const none = formatReport(readRun(makeRun('none', () => evaluated(NaN), 1)));
    expect(none).toMatch(/reward, sampled +– \(unscored\) +– \(unscored\) +–\n/);
    expect(none).toMatch(/held-out reward: – \(unscored\) → – \(unscored\)$/);
  });

  it('divides the tokens of all iterations by their seconds', () => {
    const speeds = [
      { 'tokens/s': 3000, 'time/total': 1 },
      { 'tokens/s': 1000, 'time/total': 3 },
      { 'tokens/s': 0, 'time/total': 50 },
      { 'time/total': 50 },
    ];
    const paths = makeRun('uneven', (i) => (i === 0 ? {} : speeds[i - 1]), 4);
    expect(readRun(paths).speed).toEqual({ unit: 'tokens/s', value: 1500 });
  });

  it('pairs the same prompts before and after, over all sets and of each', () => {
    const paths = makeRun('paired', grpo, 20);
    const lines = (iteration: number, all: readonly (readonly [string, number | null])[]): void => {
      mkdirSync(paths.episodesDir, { recursive: true });
      const texts = all.map(([key, value]) =>
        JSON.stringify({
          key: `validation/${iteration}/${key}`,
          sample: key,
          outcome: value === null ? { kind: 'unscored' } : { kind: 'scored', value },
        }),
      );
      writeFileSync(paths.heldOutEpisodes(iteration), `${texts.join('\n')}\n`);
    };
    lines(0, [...scores('s', [3, 5, 4]), ...scores('t', [1, 1]), ['s/greedy/0', 4], ['s/greedy/1', null]]);
    // The evaluation in between is not one of the two.
    lines(10, scores('s', [9, 9, 9]));
    lines(20, [...scores('s', [5, 6, 7]), ...scores('t', [3, 5]), ['s/greedy/0', 6], ['s/greedy/1', 8]]);
    const report = readRun(paths, readMetrics(paths));
    // By hand: 2, 1, 3 and with them 2, 4, whose squares about 2.4 sum up to 5.2; greedy answers of one prompt have no error.
    expect(heldOutNumber(report.heldout, 'sampled')?.change).toEqual({
      mean: 2.4,
      stderr: expect.closeTo(Math.sqrt(5.2 / 20), 12) as number,
      n: 5,
    });
    expect(report.heldout.numbers.find(({ set }) => set === 's')?.change).toEqual({
      mean: 2,
      stderr: expect.closeTo(1 / Math.sqrt(3), 12) as number,
      n: 3,
    });
    expect(heldOutNumber(report.heldout, 'greedy')?.change).toBeUndefined();
    expect(formatReport(report)).toMatch(/reward, sampled .* \+2\.400 ± 0\.510\n/);
    expect(formatReport(report)).toMatch(/reward, greedy .* \+1\.000\n/);
    expect(formatReport(report).split('\n').at(-1)).toBe(
      'held-out reward: 4.000 → 6.000 (+2.400 ± 0.510 over 5 prompts)',
    );
    // Read up to an evaluation, it is paired up to there.
    const half = readRun(
      paths,
      readMetrics(paths).filter(({ iteration }) => iteration <= 10),
    );
    expect(heldOutNumber(half.heldout, 'sampled')?.change).toMatchObject({ mean: 5, n: 3 });
    rmSync(paths.heldOutEpisodes(0));
    expect(heldOutNumber(readRun(paths).heldout, 'sampled')?.change).toBeUndefined();
  });

  it('lists hack alarms with their iterations', () => {
    const alarms = (i: number): Record<string, number> => ({
      ...(i >= 7 && i <= 8 ? { 'alarm/dark_fraction': 1 } : {}),
      ...(i >= 9 ? { 'alarm/edge_density': 1 } : {}),
    });
    const paths = makeRun('hacked', (i) => ({ 'hack/edge_density': 1 / (i + 1), ...alarms(i) }), 12);
    expect(readRun(paths).alarms).toEqual([
      { name: 'dark_fraction', from: 7, to: 8, active: false, metric: 'hack/dark_fraction', value: null },
      { name: 'edge_density', from: 9, to: 12, active: true, metric: 'hack/edge_density', value: 0.1 },
    ]);
    expect(formatReport(readRun(paths))).toContain(
      [
        'hack alarms: possible reward hacking, check the answers',
        '  dark_fraction  iteration 7 to 8',
        '  edge_density   iteration 9 (still active), hack/edge_density 0.100',
      ].join('\n'),
    );
  });

  it('is of losses if there is no reward, and of nothing if nothing was measured', () => {
    const paths = makeRun('sft', (i) => (i % 5 === 0 ? { 'validation/loss': 3 - i / 10 } : { 'policy/loss': 2 }), 10);
    expect(readRun(paths).heldout).toMatchObject({ before: 3, after: 2, metric: 'validation/loss' });
    expect(formatReport(readRun(paths))).toMatch(/loss, lower is better +3\.0000 +2\.0000 +-1\.0000/);
    const empty = makeRun('empty', () => ({}), 0);
    expect(readRun(empty)).toMatchObject({ heldout: { before: null, after: null }, speed: null });
    expect(formatReport(readRun(empty))).toContain('finished, iteration 0 of 0');
    expect(() => readRun(new RunPaths(base, 'nobody'))).toThrow('no run in this folder');
  });
});

function scores(set: string, values: readonly number[]): [string, number][] {
  return values.map((value, prompt) => [`${set}/sampled/${prompt}`, value]);
}

describe('a run that was given a measure on its way', () => {
  it('has one entry, with the first evaluation from its records and the last as it was evaluated', () => {
    const settings: Record<string, unknown> = { 'validation.measure': [{ name: 'jpeg_size' }] };
    const read = (path: string): unknown => settings[path];
    const [term] = readMeasure(settings['validation.measure']);
    const line = (iteration: number, ...names: string[]): MetricsLine => ({
      iteration,
      metrics: Object.fromEntries(names.map((name) => [`validation/sampled/${name}`, iteration + 0.5])),
    });
    const measured = 'measure/jpeg_size/mean';
    const rescored = { name: 'jpeg_size', identity: measureScale(term, read).identity, file: '' };
    const again = [{ ...rescored, lines: [line(0, measured), line(2, measured)] }];
    const late = summarizeHeldOut([line(0, 'mean'), line(2, 'mean'), line(4, 'mean', measured)], {
      read,
      rescored: again,
    });
    const measures = ({ numbers }: HeldOut) => numbers.filter(({ by }) => by !== null);
    expect(measures(late)).toMatchObject([
      { by: 'jpeg_size', identity: null, manner: 'sampled', before: { mean: 0.5 }, after: { mean: 4.5 } },
    ]);
    // Evaluated by it at first and no more, its last scores are those from the records.
    const early = summarizeHeldOut([line(0, 'mean', measured), line(2, 'mean')], { read, rescored: again });
    expect(measures(early)).toMatchObject([
      { identity: rescored.identity, before: { mean: 0.5 }, after: { mean: 2.5 } },
    ]);
    // Under other fields it is another measure.
    const other = summarizeHeldOut([line(0, 'mean', measured), line(2, 'mean', measured)], {
      read,
      rescored: [{ ...again[0], identity: 'another' }],
    });
    expect(measures(other).map(({ identity }) => identity)).toEqual([null, 'another']);
  });
});

describe('the learning curve', () => {
  it('is an SVG with text and a PNG of the same shape', async () => {
    const paths = makeRun('curve', grpo, 20);
    await writeCurve(paths, readMetrics(paths));
    const svg = readFileSync(paths.curveSvg, 'utf8');
    for (const text of ['curve', 'held-out, sampled', 'held-out, greedy', 'entropy (nats/token)', 'iteration']) {
      expect(svg).toContain(`>${text}<`);
    }
    const { width, height } = await sharp(paths.curvePng).metadata();
    expect(width).toBe(1920);
    expect(svg).toContain(`height="${height / 2}"`);
  });

  it('shows losses if there is no reward, and their unit where tokens are counted', () => {
    const labels = (metrics: Record<string, number>): [string, string[]][] =>
      curvePanels([{ iteration: 0, metrics }]).map(({ label, series }) => [label, series.map((one) => one.label)]);
    expect(labels({ 'policy/loss': 2, 'tokens/s': 9, 'validation/loss': 3 })).toEqual([
      ['loss (nats/token)', ['training', 'held-out']],
    ]);
    expect(labels({ 'policy/loss': 2, 'validation/greedy/mean': 3 })).toEqual([
      ['loss', ['training']],
      ['reward', ['held-out, greedy']],
    ]);
    expect(labels({ 'reward/mean': 2, 'policy/entropy': 1, 'tokens/s': 9 })).toEqual([
      ['reward', ['training']],
      ['entropy (nats/token)', ['entropy']],
    ]);
    expect(labels({})).toEqual([['loss', []]]);
  });

  it('names the scale of the reward', async () => {
    const metrics = { 'reward/mean': 2 };
    expect(curvePanels([{ iteration: 1, metrics }], 'viescore, 0 to 10')[0].label).toBe('reward: viescore, 0 to 10');
    const paths = makeRun('scaled', () => metrics, 2, { reward: { mode: 'viescore' } });
    await writeCurve(paths, readMetrics(paths));
    expect(readFileSync(paths.curveSvg, 'utf8')).toContain('>reward: viescore, 0 to 10<');
  });

  it('has a logarithmic axis for a loss of more than two decades', () => {
    const panel = (...values: number[]): Panel =>
      curvePanels(values.map((value, iteration) => ({ iteration, metrics: { 'policy/loss': value } })))[0];
    expect(panel(0.15, 0.1, 4e-5)).toMatchObject({ label: 'loss, logarithmic', logarithmic: true });
    for (const values of [[1, 0.01], [1, 0.001, 0], [1, -0.001], [NaN], []]) {
      expect(panel(...values), String(values)).toMatchObject({ label: 'loss', logarithmic: false });
    }
    // The axis goes from 1e-5 at 404 to 0.1 at 84 pixels: 80 for a decade.
    const svg = renderChart('', '', [panel(0.1, 0.01, 1e-5)]);
    expect(svg).toMatch(/M78 84L\S+ 164L\S+ 404/);
    for (const tick of ['1e-5', '0.0001', '0.01', '0.1']) expect(svg).toContain(`>${tick}<`);
  });

  it('can be drawn of a run with one point or only broken numbers', async () => {
    for (const [index, value] of [4, NaN, Infinity, -Infinity].entries()) {
      const metrics = { 'reward/mean': value, 'policy/kl': value, 'validation/greedy/mean': value };
      const paths = makeRun(`broken${index}`, () => ({ ...metrics, 'validation/greedy/stderr': value }), 1);
      await writeCurve(paths, readMetrics(paths));
      expect(readFileSync(paths.curveSvg, 'utf8')).not.toMatch(/NaN|Infinity/);
    }
  });
});

describe('a chart', () => {
  const chart = (points: readonly Partial<Point>[], more: Partial<Series> = {}): string => {
    const whole = points.map((point, x) => ({ x, y: 1, error: 0, ...point }));
    const series = { label: 'a', color: '#abcdef', points: whole, style: 'circles', ...more } as const;
    return renderChart('title', '', [{ label: 'y', height: 300, series: [series] }]);
  };
  /** The elements of the series, recognised by its color. */
  const drawn = (svg: string): string[] => svg.match(/<path[^>]*stroke="#abcdef"[^>]*>/g) ?? [];

  it('has a mark for every point, and an error bar of its length around those with an error', () => {
    const svg = chart([{ y: 1, error: 0.5 }, { y: 2 }, { y: 3, error: 1 }, { y: 2, error: NaN }]);
    expect(svg.match(/<circle[^>]*stroke="#abcdef"/g)).toHaveLength(4);
    const lengths = drawn(svg).flatMap((path) => {
      const bar = /d="M[\d.]+ ([\d.]+)V([\d.]+)M/.exec(path);
      return bar === null ? [] : [Number(bar[1]) - Number(bar[2])];
    });
    expect(lengths).toHaveLength(2);
    expect(lengths[0]).toBeGreaterThan(10);
    expect(lengths[1] / lengths[0]).toBeCloseTo(2, 1);
  });

  /** The numbers at the ends of the ticks: of the vertical axis, or of the horizontal one. */
  const labels = (svg: string, anchor: 'end' | 'middle'): string[] =>
    [...svg.matchAll(/<text[^>]*text-anchor="(\w+)"[^>]*>([^<]*)<\/text>/g)]
      .filter(([, found, text]) => found === anchor && /\d/.test(text))
      .map(([, , text]) => text);

  it('breaks its line if a value is not finite, and keeps its range', () => {
    for (const broken of [NaN, Infinity, -Infinity]) {
      const svg = chart([{ y: 1 }, { y: 2 }, { y: broken, error: 1 }, { y: 4, error: Infinity }, { y: 5 }], {
        style: 'line',
      });
      expect(drawn(svg)[0].match(/M/g)).toHaveLength(2);
      expect([labels(svg, 'end').at(0), labels(svg, 'end').at(-1)]).toEqual(['1', '5']);
    }
  });

  it('labels round iterations alone', () => {
    const at = (first: number, last: number): string[] => labels(chart([{ x: first }, { x: last }]), 'middle');
    expect(at(0, 80)).toEqual(['0', '10', '20', '30', '40', '50', '60', '70', '80']);
    expect(at(0, 425).slice(-2)).toEqual(['350', '400']);
    expect(at(1, 1500).at(0)).toBe('200');
    expect(at(0, 1)).toEqual(['0', '1']);
    expect(at(7, 7)).toEqual(['7', '8']);
  });

  it('writes numbers that are very small or large with exponents', () => {
    expect(labels(chart([{ y: 0.25 }, { y: 0.5 }]), 'end')).toContain('0.25');
    expect(labels(chart([{ y: 2e-6 }, { y: 4e-6 }]), 'end')).toContain('2.2e-6');
    expect(labels(chart([{ y: 2e6 }, { y: 4e6 }]), 'end')).toContain('2.2e+6');
  });

  it('draws a long course with no more points than it has pixels', () => {
    const [path] = drawn(
      chart(
        Array.from({ length: 20_000 }, (_, x) => ({ y: Math.sin(x / 900) })),
        { style: 'line' },
      ),
    );
    const corners = path.match(/L/g)?.length;
    expect(corners).toBeGreaterThan(400);
    expect(corners).toBeLessThan(960);
  });
});

describe('the contact sheet', () => {
  it('enlarges by whole factors without smoothing and takes missing images', async () => {
    const path = join(base, 'sheet.png');
    const data = new Uint8Array(32 * 32 * 3);
    for (let i = 0; i < 32 * 32; i++) data.set(i % 2 === 0 ? [255, 0, 0] : [0, 0, 255], i * 3);
    const source = { width: 32, height: 32, data };
    const row = { instruction: 'paint it <red> & blue', source, edit: null, truth: null, score: '0', words: null };
    await writeContactSheet(path, [row]);
    const { data: pixels, info } = await sharp(path).raw().toBuffer({ resolveWithObject: true });
    const left = 28 + 190;
    const top = 28 + 34;
    const at = (x: number, y: number): number[] => [
      ...pixels.subarray((y * info.width + x) * info.channels).subarray(0, 3),
    ];
    for (const offset of [0, 1, 2, 3]) expect(at(left + offset, top)).toEqual([255, 0, 0]);
    for (const offset of [4, 5, 6, 7]) expect(at(left + offset, top)).toEqual([0, 0, 255]);
    expect(info.height).toBe(2 * 28 + 34 + 148);
    const nine = Array.from({ length: 9 }, () => row);
    await writeContactSheet(path, nine);
    expect((await sharp(path).metadata()).width).toBeGreaterThan(info.width * 1.8);
  });

  it.each([
    ['one column', 8, 8],
    ['two columns', 9, 5],
    ['two full columns', 12, 6],
  ])('lays each image into its own tile: %s', async (_, count, perColumn) => {
    const path = join(base, 'tiles.png');
    const flat = (...color: number[]): RgbImage => {
      const data = Uint8Array.from({ length: 4 * 4 * 3 }, (_, i) => color[i % 3]);
      return { width: 4, height: 4, data };
    };
    // Red, green and blue tell source, edit and truth; how bright they are, the row.
    const shade = (index: number): number => 255 - 15 * index;
    const rows = Array.from({ length: count }, (_, index) => ({
      instruction: 'paint it',
      source: flat(shade(index), 0, 0),
      edit: flat(0, shade(index), 0),
      truth: flat(0, 0, shade(index)),
      score: '1',
      words: null,
    }));
    await writeContactSheet(path, rows);
    const { data, info } = await sharp(path).raw().toBuffer({ resolveWithObject: true });
    const middleOf = (index: number, tile: number): number[] => {
      const x = 28 + Math.floor(index / perColumn) * (190 + 3 * 140 + 36) + 190 + tile * 140 + 64;
      const y = 28 + 34 + (index % perColumn) * 148 + 64;
      const at = (y * info.width + x) * info.channels;
      return [...data.subarray(at, at + 3)];
    };
    for (const index of rows.keys()) {
      expect(middleOf(index, 0), `source ${index}`).toEqual([shade(index), 0, 0]);
      expect(middleOf(index, 1), `edit ${index}`).toEqual([0, shade(index), 0]);
      expect(middleOf(index, 2), `truth ${index}`).toEqual([0, 0, shade(index)]);
    }
  });

  it('keeps every text inside its row', async () => {
    const path = join(base, 'texts.png');
    const row = { source: null, edit: null, truth: null, score: '7.4', words: null };
    const texts = ['', 'remove it', 'word '.repeat(900), 'x'.repeat(300), '\u0000\u200b \ud800', 'a\nb </span>'];
    const rows = texts.map((instruction) => ({ ...row, instruction }));
    await writeContactSheet(path, rows);
    const { data, info } = await sharp(path).greyscale().raw().toBuffer({ resolveWithObject: true });
    /** Dark pixels in the text's column, from a row of pixels on. */
    const ink = (top: number, height: number): number => {
      let count = 0;
      for (let y = top; y < top + height; y++) {
        for (let x = 28; x < 28 + 190; x++) if (data[(y * info.width + x) * info.channels] < 128) count++;
      }
      return count;
    };
    const rowTop = (index: number): number => 28 + 34 + index * 148;
    expect(texts.map((_, index) => ink(rowTop(index), 128) > 60)).toEqual(texts.map(() => true));
    // The score alone has less ink than the score with words.
    expect(ink(rowTop(1), 128)).toBeGreaterThan(ink(rowTop(0), 128) + 60);
    expect(texts.map((_, index) => ink(rowTop(index) + 128, 9))).toEqual(texts.map(() => 0));
  });
});
