/** The curves of one or several runs: the default charts, or the metrics that match a search. */
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { WireCurve, WireCurves } from '../wire.js';
import { isHeldOut } from '../../run/metric_names.js';
import { isReward, isSmoothed, panelsOf, type Panel } from '../panels.js';
import { Chart, colorOf, type Line, type Range, type Span } from './chart.js';
import { useData } from './hooks.js';
import { showNumber, visible } from './format.js';
import { Breakable, Status } from './parts.js';
import { changed, go, type Place } from './router.js';

/** Maximum number of charts for a search. */
const MAX_MATCHES = 24;
const POINTS = 600;
/** Points per curve if a chart shows several curves. */
const GROUP_POINTS = 300;

/** The runs to show: by their ids, or all runs of an experiment. A report shows every run that it contains. */
export interface CurvesOf {
  readonly run?: string | readonly string[];
  readonly experiment?: string;
}

/** `without` is a metric that the page already shows elsewhere. `scale` describes the rewards, such as `viescore, 0 to 10`. */
export function CurvesView({
  place,
  of = {},
  without = null,
  scale = null,
}: {
  readonly place: Place;
  readonly of?: CurvesOf;
  readonly without?: string | null;
  readonly scale?: string | null;
}): JSX.Element {
  // Only the server knows the cells of an experiment, so every changed run triggers an update.
  const about = of.experiment !== undefined ? null : typeof of.run === 'string' ? [of.run] : (of.run ?? []);
  const search = place.query.get('metric') ?? '';
  const range = rangeOf(place.query);
  const logarithmic = place.query.get('log') === 'true';
  const names = useData<WireCurves>('/api/curves', { ...of }, about);
  const known = names.data?.metrics ?? [];
  const panels = search === '' ? panelsOf(known.filter((metric) => metric !== without)) : found(known, search);
  const metric = panels.flatMap(({ metrics }) => metrics);
  const { data, error, loading } = useData<WireCurves>(
    metric.length === 0 ? null : '/api/curves',
    {
      ...of,
      metric,
      points: typeof of.run === 'string' ? POINTS : GROUP_POINTS,
      ...(range === null ? {} : { from: range[0], to: range[1] }),
    },
    about,
  );
  /** Keeps the same list objects while the data is unchanged. Charts are then redrawn only for new data. */
  const { charts, constants } = useMemo(() => chartsOf(panels, data, search === ''), [data, names.data, search]);
  const setRange = withRange(place);

  return (
    <>
      <div class="filter">
        <label class="grow">
          <span class="label">metrics</span>
          <input
            id="filter"
            type="search"
            list="metrics"
            value={search}
            placeholder="the default charts, or part of a name such as time/ or viescore"
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => go(changed(place, { metric: event.currentTarget.value || null }), 'replace')}
          />
          <datalist id="metrics">
            {known.map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={logarithmic}
            onChange={(event) => go(changed(place, { log: event.currentTarget.checked ? 'true' : null }), 'replace')}
          />{' '}
          logarithmic
        </label>
        <RangeFields range={range} onRange={setRange} />
      </div>
      <Status
        error={error ?? names.error}
        loading={(loading && data === null) || names.loading}
        what="Reading metrics"
      />
      {data !== null && data.wrong_lines > 0 && (
        <p class="error" role="alert">
          Skipped {data.wrong_lines} unreadable {data.wrong_lines === 1 ? 'line' : 'lines'} of metrics.jsonl.
        </p>
      )}
      {names.data !== null && known.length === 0 && <p>No metrics yet.</p>}
      {search !== '' && known.length > 0 && panels.length === 0 && <p>No metric name contains this text.</p>}
      {data !== null && <Legend curves={data} />}
      <div class="charts">
        {charts.map(({ key, ...chart }) => (
          <Chart
            key={key}
            {...chart}
            unit={withScale(chart.unit, chart.lines, scale)}
            alarms={alarmsOf(chart.lines, data?.alarms)}
            logarithmic={logarithmic}
            named={data?.groups === undefined}
            range={range}
            onRange={setRange}
          />
        ))}
      </div>
      {data !== null && charts.length + constants.length > 0 && (
        <ChartNotes curves={data} charts={charts} constants={constants} />
      )}
    </>
  );
}

/** Unit of a chart's axis. For rewards it includes their scale. */
export function withScale(unit: string, lines: readonly Line[], scale: string | null): string {
  const hasReward = lines.some(({ curve: { metric } }) => isReward(metric));
  return scale === null || !hasReward ? unit : unit === '' ? scale : `${unit}: ${scale}`;
}

/** Iterations in which an alarm about one of a chart's metrics was active. */
function alarmsOf(lines: readonly Line[], alarms: WireCurves['alarms'] = []): Span[] {
  return alarms.flatMap(({ metric, span }) => (lines.some(({ curve }) => curve.metric === metric) ? [span] : []));
}

interface ChartOf {
  readonly key: string;
  readonly title: string;
  readonly unit: string;
  readonly lines: readonly Line[];
}

/** One chart per panel, or one per metric if groups are compared. With `usual`, metrics that never change are listed separately. */
function chartsOf(
  panels: readonly Panel[],
  data: WireCurves | null,
  usual: boolean,
): { readonly charts: readonly ChartOf[]; readonly constants: readonly WireCurve[] } {
  const constants: WireCurve[] = [];
  const byMetric = (metric: string): readonly WireCurve[] => {
    const own = data?.curves.filter((curve) => curve.metric === metric && curve.mean.length > 0) ?? [];
    const [first] = own;
    const constant = own.every(({ mean }) => mean.length > 1 && mean.every((value) => value === first?.mean[0]));
    if (!usual || !constant || first === undefined) return own;
    constants.push(first);
    return [];
  };
  const charts = panels.flatMap(({ title, unit, metrics }) => {
    const parts = data?.groups === undefined ? [metrics] : metrics.map((metric) => [metric]);
    return parts.flatMap((part) => {
      const lines = linesOf(part.flatMap(byMetric), data?.groups);
      if (lines.length === 0) return [];
      return [{ key: part.join(' '), title, unit: data?.groups === undefined ? unit : part.join(' '), lines }];
    });
  });
  return { charts, constants };
}

/** Assigns colors to curves by group, or by order if there are no groups. */
export function linesOf(curves: readonly WireCurve[], groups: readonly string[] | undefined): Line[] {
  return curves.map((curve, at) => ({
    label: curve.group ?? curve.metric,
    color: groups === undefined || curve.group === undefined ? at : groups.indexOf(curve.group),
    curve,
  }));
}

/** One legend of the compared groups for all charts. */
export function Legend({
  curves: { groups, more_groups: more = 0 },
}: {
  readonly curves: WireCurves;
}): JSX.Element | null {
  if (groups === undefined) return null;
  return (
    <p class="legend">
      {groups.map((group, at) => (
        <span key={group}>
          <i style={{ background: colorOf(at) }} aria-hidden="true" /> <Breakable text={group} />
        </span>
      ))}
      {more > 0 && <span>and {more} more, which are in the table</span>}
    </p>
  );
}

/** Explains lines and bands, and lists metrics that have no chart because they never change. */
function ChartNotes({
  curves: { groups, over_seeds: overSeeds = false },
  charts,
  constants,
}: {
  readonly curves: WireCurves;
  readonly charts: readonly ChartOf[];
  readonly constants: readonly WireCurve[];
}): JSX.Element {
  const all = charts.flatMap(({ lines }) => lines.map(({ curve }) => curve));
  const heldOut = (curve: WireCurve): boolean => isHeldOut(curve.metric) && curve.low !== undefined;
  const long = all.some(({ metric, mean }) => isSmoothed(metric, mean.length));
  const notes = [
    ...(long
      ? [
          'Training curves of at least 20 iterations are smoothed with a centered mean over about a tenth of the iterations. The ends use a linear fit.',
        ]
      : []),
    ...(overSeeds ? ['Bands: mean ± standard deviation over seeds.'] : []),
    ...(!overSeeds && all.some(heldOut) ? ['Bands of held-out curves: ± one standard error.'] : []),
    ...(groups === undefined && all.some((curve) => curve.low !== undefined && !heldOut(curve))
      ? ['Other bands: minimum and maximum over the iterations that share a point.']
      : []),
    ...(constants.length === 0
      ? []
      : [`Constant: ${constants.map(({ metric, mean }) => `${metric} ${showNumber(mean[0])}`).join(', ')}.`]),
  ];
  return <p class="quiet small">{visible(notes.join(' '))}</p>;
}

function found(known: readonly string[], search: string): Panel[] {
  const wanted = search.toLowerCase();
  return known
    .filter((name) => name.toLowerCase().includes(wanted))
    .slice(0, MAX_MATCHES)
    .map((name) => ({ title: name, unit: '', metrics: [name] }));
}

/** Returns a function that changes the range of iterations in the address. */
export function withRange(place: Place): (range: Range) => void {
  return (range) => go(changed(place, { from: range?.[0] ?? null, to: range?.[1] ?? null }), 'replace');
}

/** The range of iterations in an address. */
export function rangeOf(query: URLSearchParams): Range {
  const [from, to] = [query.get('from'), query.get('to')];
  return from === null || to === null || !/^\d+$/.test(from) || !/^\d+$/.test(to) ? null : [Number(from), Number(to)];
}

/** Keyboard alternative to dragging over a chart. */
function RangeFields({
  range,
  onRange,
}: {
  readonly range: Range;
  readonly onRange: (range: Range) => void;
}): JSX.Element {
  const set = (from: string, to: string): void => {
    if (from === '' && to === '') onRange(null);
    else onRange([Number(from), to === '' ? 1e12 : Number(to)]);
  };
  const from = range === null ? '' : String(range[0]);
  const to = range === null || range[1] >= 1e12 ? '' : String(range[1]);
  return (
    <>
      <IterationField label="from iteration" value={from} onValue={(value) => set(value, to)} />
      <IterationField label="to iteration" value={to} onValue={(value) => set(from, value)} />
    </>
  );
}

/**
 * A number field that takes effect once the number is complete. The field keeps unfinished text because new metrics redraw the page at any time.
 */
function IterationField({
  label,
  value,
  onValue,
}: {
  readonly label: string;
  readonly value: string;
  readonly onValue: (value: string) => void;
}): JSX.Element {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label class="short">
      <span class="label">{label}</span>
      <input
        type="number"
        min={0}
        value={typed ?? value}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => {
          setTyped(null);
          onValue(event.currentTarget.value);
        }}
        onBlur={() => setTyped(null)}
      />
    </label>
  );
}
