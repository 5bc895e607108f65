/** The figures of a page: curves of one run by its metrics, or of several runs and cells side by side. */
import { renderChart, type Panel, type Series, type Theme } from '../chart.js';
import { smooth } from '../curve.js';
import { curveOf, downsample, metricNames, spreadCurve, type CurvePoint } from '../curves.js';
import type { MetricsLine } from '../../metrics.js';
import { colour, COLOURS, html, Markup } from './markup.js';
import { capitalised } from './words.js';

/** What is drawn in one colour: a run, or the seeds of a cell. */
export interface Group {
  readonly label: string;
  /** The metrics of each of its runs. */
  readonly runs: readonly (readonly MetricsLine[])[];
}

/** A kind of figure: the metrics that it is of, and what its axis measures. */
interface Kind {
  readonly title: string;
  readonly unit: string;
  readonly metrics: RegExp;
  /** False where a single metric of the kind says nothing that others do not. */
  readonly alone?: false;
  /** Whether its metrics are of different scales, so that each needs a figure of its own. */
  readonly apart?: true;
}

/** In the order of the page. */
const KINDS: readonly Kind[] = [
  { title: 'Held-out reward', unit: 'reward', metrics: /^validation\/(sampled|greedy)\/mean$/ },
  { title: 'Held-out loss', unit: 'loss', metrics: /^validation\/loss$/ },
  { title: 'Held-out reward by set', unit: 'reward', metrics: /^validation\/[^/]+\/sampled\/mean$/, alone: false },
  { title: 'Training reward', unit: 'reward', metrics: /^reward\/mean$/ },
  { title: 'Loss', unit: 'loss', metrics: /^(policy\/)?loss$/ },
  { title: 'Reward parts', unit: 'score', metrics: /^reward\/(?!unscored\/)[^/]+\/[^/]+$/ },
  { title: 'KL to the reference', unit: 'nats per token', metrics: /^policy\/kl$/ },
  { title: 'Entropy', unit: 'nats per token', metrics: /^policy\/entropy$/ },
  { title: 'Length of answers', unit: 'tokens', metrics: /^episode\/length$/ },
  { title: 'Gradient norm', unit: 'norm', metrics: /^policy\/grad_norm$/ },
  { title: 'Groups without spread', unit: 'share', metrics: /^group\/(zero_spread|dropped)$/ },
  { title: 'Unscored episodes', unit: 'episodes', metrics: /^reward\/unscored\// },
  { title: 'What hack alarms watch', unit: 'value', metrics: /^hack\//, apart: true },
];

/** So many points of a curve are drawn: more than a figure has pixels would only make the file large. */
const MOST_POINTS = 300;
/** From so many iterations on a training curve is smoothed. */
const LONG = 20;
const SMALL = { width: 560, height: 190 };
const WIDE = { width: 1072, height: 300 };
const NARROW = { width: 480, height: 240 };

const THEME: Theme = { ink: 'var(--ink)', muted: 'var(--muted)', background: null, font: 'inherit' };

/**
 * Every figure that there is something to draw for, but `shown`, which the page has already. Of one group each has all metrics of its kind,
 * of several each metric has its own. Metrics that never change are named below.
 */
export function curveFigures(groups: readonly Group[], shown: string | null): Markup {
  const all = [...new Set(groups.flatMap(({ runs }) => runs.flatMap(metricNames)))].sort();
  const constants: string[] = [];
  const figures = KINDS.flatMap((kind) => {
    const known = all.filter((name) => kind.metrics.test(name) && (groups.length === 1 || name !== shown));
    // What is said of the only set is said of all of them.
    const metrics =
      kind.alone === false && known.length < 2 ? [] : known.filter((name) => changes(groups, name, constants));
    if (metrics.length === 0) return [];
    if (groups.length > 1) return metrics.map((name) => ofGroups(kind, name, groups));
    return (kind.apart === true ? metrics.map((name) => [name]) : [metrics]).map((some) =>
      ofOneGroup(kind, some, groups[0]),
    );
  });
  if (figures.length === 0) return html`<p class="muted">Nothing was measured yet.</p>`;
  return html`${groups.length > 1 ? legendOf(groups) : null}
    <div class="grid">${figures}</div>
    <p class="muted">
      Training curves of ${LONG} iterations and more are smoothed: a centred mean over about a tenth of the
      course.${constants.length === 0 ? null : ` The same throughout: ${constants.join(', ')}.`}
    </p>`;
}

/** The figure that a page begins with: held-out numbers of each group, as wide as the page; null where there are none. */
export function leadingFigure(groups: readonly Group[], metric: string | null): Markup | null {
  if (metric === null) return null;
  const series = groups.slice(0, COLOURS).map((group, at) => groupSeries(group, metric, at));
  if (series.every(({ points }) => points.length === 0)) return null;
  const label = metric === 'validation/loss' ? 'held-out loss' : 'held-out reward';
  const pictures = [
    html`<div class="wide">${drawn({ label, height: WIDE.height, series }, WIDE.width)}</div>`,
    html`<div class="narrow">${drawn({ label, height: NARROW.height, series }, NARROW.width)}</div>`,
  ];
  return html`<figure>
    <figcaption>
      ${capitalised(label)} <small><code>${metric}</code></small>
    </figcaption>
    ${groups.length > 1 ? legendOf(groups) : null}${pictures}
  </figure>`;
}

export function legendOf(groups: readonly Group[]): Markup {
  const seeds = groups.some(({ runs }) => runs.length > 1);
  const entries = groups.slice(0, COLOURS).map(({ label }, at) => entry(label, at));
  const hidden = groups.length - COLOURS;
  return html`<div class="legend">
    ${entries}${hidden > 0 ? html`<em class="muted">and ${hidden} more, which are in the table</em>` : null}${
      seeds ? html`<em class="muted">band: mean ± standard deviation over seeds</em>` : null
    }
  </div>`;
}

function entry(label: string, at: number): Markup {
  return html`<span style="--s:${colour(at)}">${label}</span>`;
}

function ofGroups(kind: Kind, metric: string, groups: readonly Group[]): Markup {
  const series = groups.slice(0, COLOURS).map((group, at) => groupSeries(group, metric, at));
  const panel = { label: kind.unit, height: SMALL.height, series };
  return html`<figure>
    <figcaption>
      ${kind.title} <small><code>${metric}</code></small>
    </figcaption>
    ${drawn(panel, SMALL.width)}
  </figure>`;
}

function ofOneGroup(kind: Kind, metrics: readonly string[], group: Group): Markup {
  const shown = metrics.slice(0, COLOURS);
  const series = shown.flatMap((metric, at): Series[] => {
    const one = groupSeries(group, metric, at);
    // The values themselves, pale, where what is drawn is their course.
    const noisy = group.runs.length === 1 && isNoisy(metric, group.runs[0]);
    if (!noisy) return [one];
    const points = few(curveOf(group.runs[0], metric)).map((point) => ({ ...point, error: 0 }));
    return [{ ...one, label: `${one.label}, values`, points, look: 'faint' }, one];
  });
  const names =
    metrics.length === 1
      ? html`<small><code>${metrics[0]}</code></small>`
      : html`<div class="legend">
          ${shown.map((metric, at) => html`<span style="--s:${colour(at)}"><code>${metric}</code></span>`)}
        </div>`;
  return html`<figure>
    <figcaption>${kind.title} ${names}</figcaption>
    ${drawn({ label: kind.unit, height: SMALL.height, series }, SMALL.width)}
  </figure>`;
}

/** Held-out numbers are few, and are marked, with their standard errors where there is one run; the rest is a line, smoothed where it is long. */
function groupSeries({ label, runs }: Group, metric: string, at: number): Series {
  const name = `${at} ${label} ${metric}`;
  const curves = runs.map((lines) => {
    const points = curveOf(lines, metric);
    return isNoisy(metric, lines) ? smooth(points.map((point) => ({ ...point, error: 0 }))) : points;
  });
  if (runs.length === 1 && metric.startsWith('validation/')) {
    const errors = new Map(curveOf(runs[0], metric.replace(/mean$/, 'stderr')).map(({ x, y }) => [x, y]));
    const points = few(curves[0]).map((point) => ({ ...point, error: errors.get(point.x) ?? 0 }));
    return { label: name, color: colour(at), points, look: points.length > 60 ? 'line' : 'circles' };
  }
  const spread = new Map(spreadCurve(curves).map((point) => [point.x, point]));
  const points = few([...spread.values()].map(({ x, mean }) => ({ x, y: mean }))).map(({ x, y }) => ({
    x,
    y,
    error: spread.get(x)?.std ?? 0,
  }));
  return { label: name, color: colour(at), points, look: 'band' };
}

function isNoisy(metric: string, lines: readonly MetricsLine[]): boolean {
  return !metric.startsWith('validation/') && lines.length >= LONG;
}

function few(points: readonly CurvePoint[]): CurvePoint[] {
  return downsample(points, MOST_POINTS);
}

/** Whether a metric ever changes; one that does not, and is not 0, is noted among the `constants`. */
function changes(groups: readonly Group[], metric: string, constants: string[]): boolean {
  const values = new Set(
    groups.flatMap(({ runs }) => runs.flatMap((lines) => curveOf(lines, metric).map(({ y }) => y))),
  );
  if (values.size > 1) return true;
  const [value] = values;
  if (value !== 0) constants.push(`${metric} ${Number(value.toPrecision(4))}`);
  return false;
}

/** SVG of the plotting library; its texts are escaped by it. */
function drawn(panel: Panel, width: number): Markup {
  return new Markup(renderChart('', '', [panel], { width, theme: THEME, legend: false }));
}
