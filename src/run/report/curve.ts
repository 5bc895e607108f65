/** The learning curve of a run, as `curve.svg` and `curve.png` in its folder. */
import { writeFileAtomic } from '../../core/files.js';
import type { MetricsLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { renderPlot, type Panel, type Plot, type Point, type Series } from './plot.js';
import { availableTextStyle, svgToPng, type TextStyle } from './svg.js';

const BLUE = '#1f5fa8';
const ORANGE = '#c8590a';
const GREEN = '#2b7d52';
const PURPLE = '#7447a0';
const MAX_POINTS = 1500;

/** Writes both pictures. `style` says how the PNG's text is drawn; default: with fonts where this machine has them. */
export async function writeCurve(
  paths: RunPaths,
  lines: readonly MetricsLine[],
  style: TextStyle | undefined = undefined,
): Promise<void> {
  const plot = curvePlot(paths.runName, lines);
  const png = await svgToPng(renderPlot(plot, style ?? (await availableTextStyle())), 2);
  writeFileAtomic(paths.curveSvg, renderPlot(plot, 'fonts'));
  writeFileAtomic(paths.curvePng, png);
}

/** What the learning curve shows: reward, KL and entropy of a reinforcement run; losses of a supervised one. */
export function curvePlot(title: string, lines: readonly MetricsLine[]): Plot {
  const hasReward = lines.some((line) => line.metrics['reward/mean'] !== undefined);
  const panels = hasReward ? reinforcementPanels(lines) : supervisedPanels(lines);
  return { width: 960, title, xLabel: 'iteration', panels };
}

function reinforcementPanels(lines: readonly MetricsLine[]): Panel[] {
  const kl = pick(lines, 'policy/kl');
  const entropy = pick(lines, 'policy/entropy');
  const panels: Panel[] = [
    {
      title: 'Reward',
      height: 320,
      left: { label: 'reward', series: [...trend('training', BLUE, pick(lines, 'reward/mean')), ...heldOut(lines)] },
      right: null,
    },
  ];
  if (kl.length > 0 || entropy.length > 0) {
    panels.push({
      title: 'Distance to the start, and entropy',
      height: 150,
      left: { label: 'KL (nats/token)', series: [{ label: 'KL', color: PURPLE, points: thin(kl), look: 'line' }] },
      right: {
        label: 'entropy (nats/token)',
        series: [{ label: 'entropy', color: ORANGE, points: thin(entropy), look: 'line' }],
      },
    });
  }
  return panels;
}

function supervisedPanels(lines: readonly MetricsLine[]): Panel[] {
  const heldOutLoss: Series = {
    label: 'held-out',
    color: ORANGE,
    points: pick(lines, 'validation/loss'),
    look: 'markers',
  };
  const losses = [...trend('training', BLUE, pick(lines, 'policy/loss')), heldOutLoss];
  const panels: Panel[] = [
    { title: 'Loss', height: 320, left: { label: 'loss (nats/token)', series: nonEmpty(losses) }, right: null },
  ];
  const scores = heldOut(lines);
  if (scores.length > 0) {
    panels.push({ title: 'Held-out reward', height: 150, left: { label: 'reward', series: scores }, right: null });
  }
  return panels;
}

/** Held-out means with an error bar of one standard error each. */
function heldOut(lines: readonly MetricsLine[]): Series[] {
  return nonEmpty([
    {
      label: 'held-out, sampled',
      color: ORANGE,
      points: pick(lines, 'validation/sampled/mean', 'validation/sampled/stderr'),
      look: 'markers',
    },
    {
      label: 'held-out, greedy',
      color: GREEN,
      points: pick(lines, 'validation/greedy/mean', 'validation/greedy/stderr'),
      look: 'markers',
      marker: 'square',
    },
  ]);
}

function nonEmpty(series: readonly Series[]): Series[] {
  return series.filter((one) => one.points.length > 0);
}

/** The values themselves, pale, and their smoothed course; only the values where there are few. */
function trend(label: string, color: string, points: readonly Point[]): Series[] {
  if (points.length === 0) return [];
  if (points.length < 10) return [{ label, color, points, look: 'line' }];
  return [
    { label, color, points: thin(points), look: 'faint' },
    { label: `${label}, smoothed`, color, points: thin(smooth(points)), look: 'line' },
  ];
}

function pick(lines: readonly MetricsLine[], metric: string, error?: string): Point[] {
  return lines.flatMap((line) => {
    const y = line.metrics[metric];
    if (y === undefined) return [];
    const half = error === undefined ? undefined : line.metrics[error];
    return [{ x: line.iteration, y, ...(half !== undefined && Number.isFinite(half) ? { error: half } : {}) }];
  });
}

/**
 * Centred moving average over about a tenth of the course. Towards both ends the window shrinks and stays centred, so that
 * a slope does not bend there. Values that are not finite are passed over.
 */
export function smooth(points: readonly Point[]): Point[] {
  const widest = Math.max(2, Math.round(points.length / 20));
  return points.map((point, index) => {
    const reach = Math.min(widest, index, points.length - 1 - index);
    const near = points.slice(index - reach, index + reach + 1).filter((other) => Number.isFinite(other.y));
    return { x: point.x, y: near.reduce((sum, other) => sum + other.y, 0) / near.length };
  });
}

/** Averages neighbours where there are more points than a picture can show. */
function thin(points: readonly Point[]): readonly Point[] {
  if (points.length <= MAX_POINTS) return points;
  const bucket = Math.ceil(points.length / MAX_POINTS);
  const out: Point[] = [];
  for (let i = 0; i < points.length; i += bucket) {
    const some = points.slice(i, i + bucket);
    out.push({ x: some[0].x, y: some.reduce((sum, point) => sum + point.y, 0) / some.length });
  }
  return out;
}
