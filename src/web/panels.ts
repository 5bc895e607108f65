/** The default charts and their metrics. The server and the page share this table. */
import { isHeldOut, parseMetric, type HeldOutMetric } from '../run/metric_names.js';

/** Number of series colors in the page's style. This limits how many runs or cells share a chart. */
export const SERIES_COLORS = 10;

/** Metrics on one scale. */
export interface Panel {
  readonly title: string;
  /** Unit of the vertical axis. Empty if the title contains it. */
  readonly unit: string;
  readonly metrics: readonly string[];
}

interface PanelKind {
  readonly title: string;
  readonly unit?: string;
  readonly holds: (metric: string) => boolean;
  /** Whether its metrics have different scales, so each needs a separate chart. */
  readonly apart?: true;
  /** Whether a single metric of this kind adds nothing to other charts. */
  readonly several?: true;
}

/** Whether a metric is a mean reward, in training or held-out, over all sets or one. */
export function isReward(metric: string): boolean {
  return metric === 'reward/mean' || heldOutMean(({ by }) => by === null)(metric);
}

function heldOutMean(which: (found: HeldOutMetric) => boolean): (metric: string) => boolean {
  return (metric) => {
    const found = parseMetric(metric);
    return found?.statistic === 'mean' && which(found);
  };
}

const named =
  (pattern: RegExp): ((metric: string) => boolean) =>
  (metric) =>
    pattern.test(metric);

/** In the order on the page. */
const PANEL_KINDS: readonly PanelKind[] = [
  { title: 'held-out reward', holds: heldOutMean(({ set, by }) => set === null && by === null) },
  { title: 'training reward', holds: named(/^(reward|original)\/mean$/) },
  {
    title: 'held-out reward by set',
    holds: heldOutMean(({ set, by, manner }) => set !== null && by === null && manner === 'sampled'),
    several: true,
  },
  { title: 'held-out measure', holds: heldOutMean(({ set, by }) => set === null && by !== null), apart: true },
  { title: 'gain over the original prompt', holds: named(/^original\/gain$/) },
  { title: 'loss', holds: named(/^((policy|validation)\/)?loss$/) },
  { title: 'reward parts', unit: 'score', holds: named(/^reward\/(?!unscored\/)[^/]+\/(?!normalised$)[^/]+$/) },
  { title: 'reward parts, normalized', unit: 'from 0 to 1', holds: named(/^reward\/[^/]+\/normalised$/) },
  { title: 'KL to the reference', unit: 'nats per token or latent element', holds: named(/^policy\/kl$/) },
  { title: 'entropy', unit: 'nats per token', holds: named(/^policy\/entropy$/) },
  { title: 'importance weights', holds: named(/^policy\/importance_(mean|cut|ess)$/) },
  { title: 'gradient norm', holds: named(/^policy\/grad_norm$/) },
  { title: 'answer length', unit: 'tokens', holds: named(/^episode\/length$/) },
  {
    title: 'groups and answers without a training signal',
    unit: 'share',
    holds: named(/^(group\/(zero_spread|dropped)|episode\/(non_stop_rate|cut_by_context))$/),
  },
  { title: 'unscored', unit: 'episodes', holds: named(/^reward\/unscored\//) },
  {
    title: 'seconds per iteration',
    holds: named(/^time\/(total|rollout|render|judge|exchange|reference|update|other)$/),
  },
  { title: 'tokens or noisy steps per second', holds: named(/^(tokens|steps)\/s$/) },
  { title: 'reward hacking', holds: named(/^hack\//), apart: true },
];

/** What a chart of one metric shows: the name of a held-out measure, or the metric's own name in words. */
const subjectOf = (metric: string): string =>
  parseMetric(metric)?.by ?? metric.slice(metric.lastIndexOf('/') + 1).replaceAll('_', ' ');

/** The charts for these metrics, which are sorted by name. Charts without metrics are left out. */
export function panelsOf(metrics: readonly string[]): Panel[] {
  return PANEL_KINDS.flatMap(({ title, unit = '', holds, apart, several }) => {
    const own = metrics.filter(holds);
    if (own.length === 0 || (several === true && own.length === 1)) return [];
    if (apart !== true) return [{ title, unit, metrics: own }];
    return own.map((metric) => ({ title: `${title}: ${subjectOf(metric)}`, unit, metrics: [metric] }));
  });
}

/** Training metrics with at least this many points are smoothed. Held-out metrics never are, because they have few points. */
const SMOOTHED_FROM = 20;

/** Whether a metric with this many points is smoothed. */
export function isSmoothed(metric: string, points: number): boolean {
  return !isHeldOut(metric) && points >= SMOOTHED_FROM;
}

/** The metric with the standard errors of a held-out mean. Null for any other metric. */
export function errorMetricOf(metric: string): string | null {
  if (!isHeldOut(metric)) return null;
  if (metric.endsWith('/drop')) return `${metric}_stderr`;
  return metric.endsWith('/mean') ? metric.replace(/mean$/, 'stderr') : null;
}
