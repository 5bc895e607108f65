/** One chart of a few curves over iterations. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { smooth } from '../../core/curves.js';
import { isSmoothed, SERIES_COLORS } from '../panels.js';
import type { WireCurve } from '../wire.js';
import { showNumber, showTick, visible } from './format.js';

/** A curve as drawn. */
export interface Line {
  readonly label: string;
  /** Index of its color among the page's colors for series. */
  readonly color: number;
  readonly curve: WireCurve;
}

const media = ['(prefers-color-scheme: dark)', 'print'].map((query) => matchMedia(query));

/** A range of iterations, both ends included. */
export type Span = readonly [from: number, to: number];

/** The iterations to show. Null for all. */
export type Range = readonly [from: number, to: number] | null;

export function Chart({
  title,
  unit = '',
  lines,
  range,
  onRange,
  named = true,
  height = 190,
  alarms = [],
  logarithmic = false,
}: {
  readonly title: string;
  /** Unit of the vertical axis. */
  readonly unit?: string;
  readonly lines: readonly Line[];
  readonly range: Range;
  readonly onRange: (range: Range) => void;
  /** Whether the chart has its own legend. Otherwise the page has one legend for all charts. */
  readonly named?: boolean;
  readonly height?: number;
  /** Iterations in which a hack alarm about one of its metrics was active. */
  readonly alarms?: readonly Span[];
  /** Whether the vertical axis is logarithmic. Ignored if any value is 0 or less. */
  readonly logarithmic?: boolean;
}): JSX.Element {
  const holder = useRef<HTMLDivElement>(null);
  const values = useRef<HTMLParagraphElement>(null);
  const plot = useRef<uPlot | null>(null);
  const all = lines.flatMap(columnsOf);
  /** Later columns are drawn on top. */
  const columns = (['edge', 'pale', 'strong'] as const).flatMap((kind) => all.filter((one) => one.kind === kind));
  const data = alignedData(columns);
  const powers = logarithmic && all.every(({ numbers }) => numbers.every((value) => value > 0));
  /** The chart is rebuilt when this changes. Otherwise it only gets new values. */
  const shape = [powers, ...columns.map(({ line, kind }) => `${line.label} ${line.color} ${kind}`)].join('\n');
  const latest = useRef({ onRange, data, lines, alarms });
  latest.current = { onRange, data, lines, alarms };

  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const options = optionsFor(columns, {
      width: element.clientWidth,
      height,
      powers,
      select: (chosen) => latest.current.onRange(chosen),
      alarms: () => latest.current.alarms,
      show: (at) => showValues(values.current, latest.current.lines, at === null ? null : latest.current.data[0][at]),
    });
    const made = new uPlot(options, latest.current.data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    // A chart reads the colors from the page's style when it draws.
    const redraw = (): void => made.redraw(false, true);
    for (const one of media) one.addEventListener('change', redraw);
    return () => {
      for (const one of media) one.removeEventListener('change', redraw);
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
    const at = plot.current?.cursor.idx ?? null;
    showValues(values.current, lines, at === null ? null : data[0][at]);
  }, [lines]);

  return (
    <section class="card chart">
      <h3>
        {visible(title)} {unit !== '' && <span class="quiet unit">{unit}</span>}{' '}
        {logarithmic && !powers && <span class="quiet unit">linear axis: some values are 0 or less</span>}
      </h3>
      <p class="legend" ref={values}>
        {lines.map(({ label, color }) => (
          <span key={label} title={named ? undefined : visible(label)}>
            <i style={{ background: colorOf(color) }} aria-hidden="true" />{' '}
            <span class={named ? undefined : 'hidden'}>{visible(label)}</span> <b />
          </span>
        ))}
      </p>
      <div
        ref={holder}
        class="plot"
        role="img"
        style={{ minHeight: `${height}px` }}
        aria-label={visible([`${title}: ${lines.map(inWords).join('; ')}`, ...alarms.map(alarmInWords)].join('; '))}
      />
      {range !== null && (
        <button type="button" class="reset" onClick={() => onRange(null)}>
          all iterations
        </button>
      )}
    </section>
  );
}

/** A summary of a curve for screen readers. */
function inWords({ label, curve: { iterations, mean, last } }: Line): string {
  if (mean.length === 0) return `${label} has no values`;
  const ends = `${showNumber(mean[0])} at iteration ${iterations[0]}, ${showNumber(last ?? mean.at(-1))} at ${iterations.at(-1)}`;
  return `${label} ${ends}`;
}

function alarmInWords([from, to]: Span): string {
  return from === to ? `alarm in iteration ${from}` : `alarm from iteration ${from} to ${to}`;
}

/** The color of a series in the page's style, in light and in dark mode. */
export function colorOf(at: number): string {
  return `var(${colorVariable(at)})`;
}

function colorVariable(at: number): string {
  return `--c${at % SERIES_COLORS}`;
}

/** One series of uPlot. */
interface Column {
  readonly line: Line;
  /** `pale` are the raw values of a smoothed column. `edge` is one edge of a band. */
  readonly kind: 'strong' | 'pale' | 'edge';
  readonly numbers: readonly number[];
}

function columnsOf(line: Line): Column[] {
  const { metric, group, mean, low, high } = line.curve;
  // Curves of groups arrive smoothed.
  const noisy = group === undefined && isSmoothed(metric, mean.length);
  return [
    { line, kind: noisy ? 'pale' : 'strong', numbers: mean },
    ...(noisy ? [{ line, kind: 'strong', numbers: smooth(mean) } as const] : []),
    ...[low, high].flatMap((numbers) => (numbers === undefined ? [] : [{ line, kind: 'edge', numbers } as const])),
  ];
}

/** The iterations of all columns together, then the columns. */
function alignedData(columns: readonly Column[]): uPlot.AlignedData {
  const all = [...new Set(columns.flatMap(({ line }) => line.curve.iterations))].sort((a, b) => a - b);
  const places = new Map(all.map((iteration, at) => [iteration, at]));
  const aligned = columns.map(({ line, numbers }) => {
    const values = new Array<number | undefined>(all.length).fill(undefined);
    line.curve.iterations.forEach((iteration, at) => (values[places.get(iteration) ?? 0] = numbers[at]));
    return values;
  });
  return [all, ...aligned];
}

interface Place {
  readonly width: number;
  readonly height: number;
  /** Whether the vertical axis is logarithmic. */
  readonly powers: boolean;
  readonly select: (range: Range) => void;
  readonly alarms: () => readonly Span[];
  /** Called with the index of the iteration under the cursor. Null if there is none. */
  readonly show: (at: number | null) => void;
}

function optionsFor(columns: readonly Column[], { width, height, powers, select, alarms, show }: Place): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const read =
    (name: string, alpha = ''): (() => string) =>
    () =>
      style.getPropertyValue(name).trim() + alpha;
  const thin = { stroke: read('--line'), width: 1 };
  const axis: uPlot.Axis = { stroke: read('--quiet'), grid: thin, ticks: thin };
  const bands: uPlot.Band[] = [];
  // Overlapping bands are drawn paler.
  const bandAlpha = columns.filter(({ kind }) => kind === 'edge').length > 4 ? '1c' : '33';
  const series = columns.map(({ line, kind }, at): uPlot.Series => {
    const name = colorVariable(line.color);
    if (kind === 'edge') {
      // The lower edge comes first.
      if (columns[at - 1]?.kind === 'edge' && columns[at - 1]?.line === line) {
        bands.push({ series: [at + 1, at], fill: read(name, bandAlpha) });
      }
      return { stroke: 'transparent', points: { show: false }, spanGaps: true };
    }
    return kind === 'pale'
      ? { stroke: read(name, '66'), width: 1, spanGaps: true, points: { show: false } }
      : { stroke: read(name), width: 1.8, spanGaps: true };
  });
  return {
    width,
    height,
    legend: { show: false },
    scales: {
      x: { time: false },
      y: powers ? { distr: 3 } : {},
    },
    axes: [
      { ...axis, size: 32 },
      {
        ...axis,
        size: 62,
        // On a logarithmic axis, most ticks between powers of ten have no label: their values are null.
        values: (_plot, splits: readonly (number | null)[], _axis, _space, step) =>
          splits.map((value) => (value === null ? '' : powers ? showNumber(value) : showTick(value, step))),
      },
    ],
    series: [{}, ...series],
    bands,
    cursor: { sync: { key: 'curves' }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    hooks: {
      // Draws alarms behind the grid and the curves: a shaded range with a line at its start.
      drawClear: [(plot) => shadeSpans(plot, alarms(), read('--bad'), read('--bad-back'))],
      setCursor: [(plot) => show(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((left) =>
            plot.posToVal(left, 'x'),
          );
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          select([Math.max(0, Math.floor(from ?? 0)), Math.ceil(to ?? 0)]);
        },
      ],
    },
  };
}

/** Shades ranges of iterations, with a line at the beginning of each. */
function shadeSpans(plot: uPlot, spans: readonly Span[], line: () => string, back: () => string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const [from, to] of spans) {
    const [left, right] = [from, to].map((iteration) => plot.valToPos(iteration, 'x', true)) as [number, number];
    ctx.fillStyle = back();
    ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
    ctx.fillStyle = line();
    ctx.fillRect(left - 1, bbox.top, 2, bbox.height);
  }
  ctx.restore();
}

/** Writes each line's value at an iteration, or its last value, directly into the element because it runs many times a second. */
function showValues(element: HTMLElement | null, lines: readonly Line[], iteration: number | null | undefined): void {
  lines.forEach(({ curve: { iterations, mean, last } }, at) => {
    const target = element?.querySelectorAll('b')[at];
    if (target === undefined) return;
    const here = iteration ?? null;
    target.textContent =
      here === null ? showNumber(last ?? mean.at(-1)) : `${showNumber(mean[iterations.indexOf(here)])} @ ${here}`;
  });
}
