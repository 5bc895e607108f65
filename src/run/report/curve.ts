/** The learning curve of a run, as `curve.svg` and `curve.png` in its folder. */
import { smooth } from '../../core/curves.js';
import { writeFileAtomic } from '../../core/files.js';
import { rewardScale } from '../../rewards/score/identity.js';
import { getPath } from '../../core/schema/walk.js';
import type { MetricsLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { readRecord } from '../record.js';
import type { Panel, Point, Series } from './chart.js';
import { showScale } from './numbers.js';

const BLUE = '#1f5fa8';
const ORANGE = '#c8590a';
const GREEN = '#2b7d52';
const PURPLE = '#7447a0';
const BROWN = '#8a5a2b';

/** Writes both images. Loads the renderer lazily, because most commands that can draw a curve do not. */
export async function writeCurve(paths: RunPaths, lines: readonly MetricsLine[]): Promise<void> {
  const [{ renderChart }, { svgToPng }] = await Promise.all([import('./chart.js'), import('./svg.js')]);
  const recorded = readRecord(paths)?.settings ?? {};
  const scale = rewardScale((path) => getPath(recorded, path));
  const panels = curvePanels(lines, scale === null ? null : showScale(scale));
  const hasErrors = panels.some(({ series }) => series.some(({ points }) => points.some(({ error }) => error > 0)));
  const svg = renderChart(paths.runName, hasErrors ? 'held-out: mean ± one standard error' : '', panels);
  writeFileAtomic(paths.curveSvg, svg);
  writeFileAtomic(paths.curvePng, await svgToPng(svg, 2));
}

/**
 * The panels of the learning curve: reward (with its scale if known), KL and entropy of a reinforcement run, or losses
 * of a supervised run.
 */
export function curvePanels(lines: readonly MetricsLine[], scale: string | null = null): Panel[] {
  const series = (label: string, color: string, style: Series['style'], metric: string, error?: string): Series => {
    return { label, color, style, points: pick(lines, metric, error) };
  };
  const heldOut = [
    series('held-out, sampled', ORANGE, 'circles', 'validation/sampled/mean', 'validation/sampled/stderr'),
    series('held-out, greedy', GREEN, 'squares', 'validation/greedy/mean', 'validation/greedy/stderr'),
  ];
  const reward = pick(lines, 'reward/mean');
  const loss = [...trend(pick(lines, 'policy/loss')), series('held-out', ORANGE, 'circles', 'validation/loss')];
  // If tokens are counted, losses and divergences are per token.
  const unit = lines.some((line) => line.metrics['tokens/s'] !== undefined) ? ' (nats/token)' : '';
  const rewards = scale === null ? 'reward' : `reward: ${scale}`;
  const powers = spansDecades(loss);
  const panels: Panel[] =
    reward.length > 0
      ? [
          { label: rewards, height: 320, series: [...trend(reward), ...heldOut] },
          { label: `KL${unit}`, height: 110, series: [series('KL', PURPLE, 'line', 'policy/kl')] },
          { label: `entropy${unit}`, height: 110, series: [series('entropy', BROWN, 'line', 'policy/entropy')] },
        ]
      : [
          { label: `loss${unit}${powers ? ', logarithmic' : ''}`, height: 320, series: loss, logarithmic: powers },
          { label: rewards, height: 150, series: heldOut },
        ];
  return panels
    .map((panel) => ({ ...panel, series: panel.series.filter(({ points }) => points.length > 0) }))
    .filter((panel, index) => index === 0 || panel.series.length > 0);
}

/** If a loss falls by a larger factor, a linear axis would show a flat line for most of the run. */
const MAX_LINEAR_RATIO = 100;

function spansDecades(series: readonly Series[]): boolean {
  const values = series.flatMap(({ points }) => points.map(({ y }) => y)).filter(Number.isFinite);
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  return least > 0 && values.some((value) => value > MAX_LINEAR_RATIO * least);
}

/** The raw values as a pale line, and a smoothed curve unless there are few values. */
function trend(points: readonly Point[]): Series[] {
  if (points.length < 10) return [{ label: 'training', color: BLUE, points, style: 'line' }];
  return [
    { label: 'training', color: BLUE, points, style: 'faint' },
    { label: 'training, smoothed', color: BLUE, points: smoothed(points), style: 'line' },
  ];
}

function smoothed(points: readonly Point[]): Point[] {
  const course = smooth(points.map(({ y }) => y));
  return points.map((point, at) => ({ ...point, y: course[at] }));
}

function pick(lines: readonly MetricsLine[], metric: string, error = ''): Point[] {
  return lines.flatMap(({ iteration, metrics }) => {
    const y = metrics[metric];
    return y === undefined ? [] : [{ x: iteration, y, error: metrics[error] ?? 0 }];
  });
}
