/** The metrics that every training is watched by, and which of them share a chart. The server and the page share this table. */

/** Number of colours for series in the page's style: more runs or cells than this are not drawn together. */
export const SERIES_COLOURS = 10;

/** Metrics on one scale. */
export interface Panel {
  readonly title: string;
  /** What its vertical axis measures; empty if the title says it. */
  readonly unit: string;
  readonly metrics: readonly string[];
}

interface PanelKind {
  readonly title: string;
  readonly unit: string;
  readonly holds: RegExp;
  /** Whether its metrics have different scales, so that each needs its own chart. */
  readonly apart?: true;
  /** Whether a single metric of this kind adds nothing to other charts. */
  readonly several?: true;
}

/** Means of the reward, in training or held-out, of all sets or of one. */
export const REWARD = /^(reward|validation\/([^/]+\/)?(sampled|greedy))\/mean$/;

/** In the order on the page. */
const PANEL_KINDS: readonly PanelKind[] = [
  { title: 'held-out reward', unit: '', holds: /^validation\/(sampled|greedy)\/mean$/ },
  { title: 'reward in training', unit: '', holds: /^(reward|original)\/mean$/ },
  { title: 'held-out reward by set', unit: '', holds: /^validation\/[^/]+\/sampled\/mean$/, several: true },
  { title: 'held-out measures', unit: '', holds: /^validation\/(sampled|greedy)\/measure\/[^/]+\/mean$/, apart: true },
  { title: 'what answers add to the reward of the prompt itself', unit: '', holds: /^original\/gain$/ },
  { title: 'loss', unit: '', holds: /^((policy|validation)\/)?loss$/ },
  { title: 'reward parts', unit: 'score', holds: /^reward\/(?!unscored\/)[^/]+\/(?!normalised$)[^/]+$/ },
  { title: 'reward parts, normalised', unit: 'from 0 to 1', holds: /^reward\/[^/]+\/normalised$/ },
  { title: 'KL to the reference', unit: 'nats per token', holds: /^policy\/kl$/ },
  { title: 'entropy', unit: 'nats per token', holds: /^policy\/entropy$/ },
  { title: 'importance weights', unit: '', holds: /^policy\/importance_(mean|cut|ess)$/ },
  { title: 'gradient norm', unit: '', holds: /^policy\/grad_norm$/ },
  { title: 'length of answers', unit: 'tokens', holds: /^episode\/length$/ },
  {
    title: 'groups and answers that teach nothing',
    unit: 'share',
    holds: /^(group\/(zero_spread|dropped)|episode\/(non_stop_rate|cut_by_context))$/,
  },
  { title: 'unscored', unit: 'episodes', holds: /^reward\/unscored\// },
  {
    title: 'seconds of an iteration',
    unit: '',
    holds: /^time\/(total|rollout|render|judge|exchange|reference|update|other)$/,
  },
  { title: 'tokens or noisy steps a second', unit: '', holds: /^(tokens|steps)\/s$/ },
  { title: 'what hack alarms watch', unit: '', holds: /^hack\//, apart: true },
];

/** The charts for these metrics, which are sorted by name; kinds without metrics are left out. */
export function panelsOf(metrics: readonly string[]): Panel[] {
  return PANEL_KINDS.flatMap(({ title, unit, holds, apart, several }) => {
    const own = metrics.filter((metric) => holds.test(metric));
    if (own.length === 0 || (several === true && own.length === 1)) return [];
    return (apart === true ? own.map((metric) => [metric]) : [own]).map((some) => ({ title, unit, metrics: some }));
  });
}

/** Metrics of held-out answers. */
const HELD_OUT = /^(validation|control)\//;

/** With at least this many points, the values of a training metric are drawn smoothed; held-out numbers are few, and are drawn as they are. */
const SMOOTHED_FROM = 20;

/** Whether a metric with this many points is smoothed. */
export function isSmoothed(metric: string, points: number): boolean {
  return !HELD_OUT.test(metric) && points >= SMOOTHED_FROM;
}

/** The metric with the standard errors of a held-out mean; null for any other metric. */
export function errorMetricOf(metric: string): string | null {
  if (!HELD_OUT.test(metric)) return null;
  if (metric.endsWith('/drop')) return `${metric}_stderr`;
  return metric.endsWith('/mean') ? metric.replace(/mean$/, 'stderr') : null;
}
