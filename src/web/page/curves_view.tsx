/** A run's curves: what every run is watched by, and any metric that somebody names. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { WireCurves } from '../wire.js';
import { Chart, type Range } from './chart.js';
import { useData } from './data.js';
import { Status } from './parts.js';
import { changed, go, type Place } from './router.js';

interface Panel {
  readonly title: string;
  readonly metrics: readonly string[];
}

/** By title, which metrics belong together; those that a run does not have are left out. */
const PANELS: readonly { readonly title: string; readonly holds: (metric: string) => boolean }[] = [
  { title: 'reward in training', holds: (metric) => metric === 'reward/mean' },
  { title: 'held-out', holds: (metric) => /^validation\/(sampled|greedy)\/mean$/.test(metric) },
  { title: 'reward parts', holds: (metric) => /^reward\/[^/]+\/normalised$/.test(metric) },
  { title: 'loss', holds: (metric) => metric === 'policy/loss' || metric === 'validation/loss' },
  { title: 'KL to the reference', holds: (metric) => metric === 'policy/kl' },
  { title: 'entropy', holds: (metric) => metric === 'policy/entropy' },
  { title: 'gradient norm', holds: (metric) => metric === 'policy/grad_norm' },
  { title: 'length of answers', holds: (metric) => metric === 'episode/length' },
  {
    title: 'groups and answers that teach nothing',
    holds: (metric) =>
      ['group/zero_spread', 'group/dropped', 'episode/non_stop_rate', 'episode/cut_by_context'].includes(metric),
  },
  { title: 'unscored', holds: (metric) => metric.startsWith('reward/unscored/') },
  {
    title: 'seconds of an iteration',
    holds: (metric) => /^time\/(total|rollout|judge|reference|update|other)$/.test(metric),
  },
  { title: 'tokens or noisy steps a second', holds: (metric) => metric === 'tokens/s' || metric === 'steps/s' },
];
/** Charts of what somebody searches for. */
const MOST_FOUND = 24;
const POINTS = 600;
const AGAIN_AFTER_MS = 900;

export function CurvesView({ place, id }: { readonly place: Place; readonly id: string }): JSX.Element {
  const search = place.query.get('metric') ?? '';
  const range = rangeOf(place.query);
  const names = useData<WireCurves>('/api/curves', { run: id }, [id]);
  const known = names.data?.metrics ?? [];
  const panels = search === '' ? usual(known) : found(known, search);
  const metric = panels.flatMap(({ metrics }) => metrics);
  const { data, error, loading, reload } = useData<WireCurves>(
    metric.length === 0 ? null : '/api/curves',
    { run: id, metric, points: POINTS, ...(range === null ? {} : { from: range[0], to: range[1] }) },
    [id],
  );
  useEffect(() => {
    if (data?.sampled !== true && names.data?.sampled !== true) return undefined;
    const timer = setTimeout(() => {
      names.reload();
      reload();
    }, AGAIN_AFTER_MS);
    return () => clearTimeout(timer);
  }, [data, names.data]);
  /** The same lists while the same data are shown, so that charts are drawn anew for other data alone. */
  const charts = useMemo(
    () =>
      panels.flatMap(({ title, metrics }) => {
        const curves = metrics.flatMap((name) => data?.curves.filter((curve) => curve.metric === name) ?? []);
        return curves.length === 0 ? [] : [{ title, curves }];
      }),
    [data, names.data, search],
  );
  const setRange = (next: Range): void =>
    go(changed(place, { from: next?.[0] ?? null, to: next?.[1] ?? null }), 'replace');

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
            placeholder="the usual ones; or a part of a name, such as time/ or viescore"
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
        <RangeFields range={range} onRange={setRange} />
      </div>
      <Status
        error={error ?? names.error}
        loading={(loading && data === null) || names.loading}
        what="Reading metrics"
      />
      {data !== null && <Remarks data={data} />}
      {names.data !== null && known.length === 0 && <p>There are no metrics yet.</p>}
      {search !== '' && known.length > 0 && panels.length === 0 && <p>No metric has this in its name.</p>}
      <div class="charts">
        {charts.map(({ title, curves }) => (
          <Chart key={title} title={title} curves={curves} range={range} onRange={setRange} />
        ))}
      </div>
    </>
  );
}

function usual(known: readonly string[]): Panel[] {
  return PANELS.map(({ title, holds }) => ({ title, metrics: known.filter(holds) })).filter(
    ({ metrics }) => metrics.length > 0,
  );
}

function found(known: readonly string[], search: string): Panel[] {
  const wanted = search.toLowerCase();
  return known
    .filter((name) => name.toLowerCase().includes(wanted))
    .slice(0, MOST_FOUND)
    .map((name) => ({ title: name, metrics: [name] }));
}

function Remarks({ data }: { readonly data: WireCurves }): JSX.Element | null {
  if (!data.sampled && data.wrong_lines === 0) return null;
  return (
    <>
      {data.sampled && (
        <p class="quiet">The file is long and still being read: some of its lines stand for all of them.</p>
      )}
      {data.wrong_lines > 0 && (
        <p class="error" role="alert">
          {data.wrong_lines} {data.wrong_lines === 1 ? 'line' : 'lines'} of metrics.jsonl cannot be read and{' '}
          {data.wrong_lines === 1 ? 'is' : 'are'} left out.
        </p>
      )}
    </>
  );
}

function rangeOf(query: URLSearchParams): Range {
  const [from, to] = [query.get('from'), query.get('to')];
  return from === null || to === null || !/^\d+$/.test(from) || !/^\d+$/.test(to) ? null : [Number(from), Number(to)];
}

/** What dragging over a chart does, for those who do not drag. */
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

/** A number that counts once it is whole. What is typed so far is kept here: the page is drawn anew whenever something is measured. */
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
