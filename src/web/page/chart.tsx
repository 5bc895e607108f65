/** One chart of a few metrics over iterations. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { WireCurve } from '../wire.js';
import { showNumber, visible } from './format.js';

/** Told apart by those who see no colours, too, on white and on black. */
const COLOURS: readonly (readonly [light: string, dark: string])[] = [
  ['#1f57c3', '#8db4ff'],
  ['#b4460c', '#ffae70'],
  ['#14703c', '#7fdca4'],
  ['#8b2fa0', '#e3a5f2'],
  ['#6b5a00', '#e6d36a'],
  ['#0f6b78', '#7bd6e4'],
];
const HEIGHT = 190;
const dark = matchMedia('(prefers-color-scheme: dark)');

/** Iterations that are shown; null for all. */
export type Range = readonly [from: number, to: number] | null;

export function Chart({
  title,
  curves,
  range,
  onRange,
}: {
  readonly title: string;
  readonly curves: readonly WireCurve[];
  readonly range: Range;
  readonly onRange: (range: Range) => void;
}): JSX.Element {
  const holder = useRef<HTMLDivElement>(null);
  const values = useRef<HTMLParagraphElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [theme, setTheme] = useState(dark.matches);
  const names = curves.map(({ metric }) => metric).join(' ');
  const banded = curves.map(({ low }) => low !== undefined).join();
  const data = alignedData(curves);
  const latest = useRef({ onRange, data, curves });
  latest.current = { onRange, data, curves };

  useEffect(() => {
    const change = (): void => setTheme(dark.matches);
    dark.addEventListener('change', change);
    return () => dark.removeEventListener('change', change);
  }, []);

  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const options = optionsFor(curves, element.clientWidth, {
      select: (chosen) => latest.current.onRange(chosen),
      show: (at) => showValues(values.current, latest.current.curves, latest.current.data, at),
    });
    const made = new uPlot(options, latest.current.data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, banded, theme]);

  useEffect(() => {
    plot.current?.setData(data);
    showValues(values.current, curves, data, plot.current?.cursor.idx ?? null);
  }, [curves]);

  return (
    <section class="card chart">
      <h2>{visible(title)}</h2>
      <p class="legend" ref={values}>
        {curves.map(({ metric }, at) => (
          <span key={metric}>
            <i style={{ background: colourOf(at) }} aria-hidden="true" /> {visible(metric)} <b />
          </span>
        ))}
      </p>
      <div ref={holder} class="plot" role="img" aria-label={`${title}: ${curves.map(inWords).join('; ')}`} />
      {range !== null && (
        <button type="button" class="reset" onClick={() => onRange(null)}>
          all iterations
        </button>
      )}
    </section>
  );
}

/** What a curve comes to, for those who do not see it. */
function inWords({ metric, iterations, mean }: WireCurve): string {
  if (mean.length === 0) return `${metric} has no values`;
  const ends = `${showNumber(mean[0])} at iteration ${iterations[0]}, ${showNumber(mean.at(-1))} at ${iterations.at(-1)}`;
  return `${metric} ${ends}`;
}

function colourOf(at: number): string {
  const [light, night] = COLOURS[at % COLOURS.length] ?? ['', ''];
  return dark.matches ? night : light;
}

/** What uPlot draws: iterations that any curve has, then mean, and extremes where there are some, of each curve. */
function alignedData(curves: readonly WireCurve[]): uPlot.AlignedData {
  const all = [...new Set(curves.flatMap(({ iterations }) => iterations))].sort((a, b) => a - b);
  const places = new Map(all.map((iteration, at) => [iteration, at]));
  const columns = curves.flatMap(({ iterations, mean, low, high }) =>
    [mean, low, high].flatMap((numbers) => {
      if (numbers === undefined) return [];
      const column = new Array<number | null | undefined>(all.length).fill(undefined);
      iterations.forEach((iteration, at) => (column[places.get(iteration) ?? 0] = numbers[at]));
      return [column];
    }),
  );
  return [all, ...columns];
}

interface Told {
  readonly select: (range: Range) => void;
  /** With the place of the cursor among the iterations; null where it is elsewhere. */
  readonly show: (at: number | null) => void;
}

function optionsFor(curves: readonly WireCurve[], width: number, told: Told): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const quiet = style.getPropertyValue('--quiet').trim();
  const line = style.getPropertyValue('--line').trim();
  const axis: uPlot.Axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  curves.forEach(({ low }, at) => {
    const stroke = colourOf(at);
    series.push({ stroke, width: 1.6, spanGaps: true });
    if (low === undefined) return;
    const first = series.length;
    series.push({ stroke: 'transparent', points: { show: false }, spanGaps: true });
    series.push({ stroke: 'transparent', points: { show: false }, spanGaps: true });
    bands.push({ series: [first + 1, first], fill: `${stroke}33` });
  });
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 32 },
      { ...axis, size: 62, values: (_plot, splits) => splits.map((value) => showNumber(value)) },
    ],
    series,
    bands,
    cursor: { sync: { key: 'curves' }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    hooks: {
      setCursor: [(plot) => told.show(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((left) =>
            plot.posToVal(left, 'x'),
          );
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          told.select([Math.max(0, Math.floor(from ?? 0)), Math.ceil(to ?? 0)]);
        },
      ],
    },
  };
}

/** Writes each curve's value under the cursor, or its last one; many times a second, so past the page's own updates. */
function showValues(
  element: HTMLElement | null,
  curves: readonly WireCurve[],
  data: uPlot.AlignedData,
  at: number | null,
): void {
  if (element === null) return;
  let column = 1;
  curves.forEach(({ low, mean }, curve) => {
    const value = at === null ? mean.at(-1) : data[column]?.[at];
    const text = at === null ? showNumber(value) : `${showNumber(value)} @ ${data[0][at] ?? ''}`;
    const target = element.querySelectorAll('b')[curve];
    if (target !== undefined) target.textContent = text;
    column += low === undefined ? 1 : 3;
  });
}
