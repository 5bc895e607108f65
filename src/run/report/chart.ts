/**
 * Line charts as SVG: panels under each other over one axis of iterations. Apache ECharts draws them: it needs no browser, lays out axes,
 * ticks and legends, and is kept up.
 */
import { createRequire } from 'node:module';
import type * as Echarts from 'echarts';
import { FONT, INK, MUTED } from './svg.js';

export interface Point {
  readonly x: number;
  readonly y: number;
  /** Half the length of the error bar; 0 for none. */
  readonly error: number;
}

export interface Series {
  /** Unique in its chart. */
  readonly label: string;
  readonly color: string;
  readonly points: readonly Point[];
  readonly look: keyof typeof LOOKS;
}

export interface Panel {
  /** What its vertical axis measures, with the unit. */
  readonly label: string;
  readonly height: number;
  readonly series: readonly Series[];
}

const WIDTH = 960;
const MARGIN = { left: 78, right: 30, top: 84, bottom: 62 };
const PANEL_GAP = 46;

/** `faint` is a thin pale line; `circles` and `squares` are marks on a line, with error bars. */
const LOOKS = {
  line: { symbol: 'none', lineStyle: { width: 2.4 } },
  faint: { symbol: 'none', lineStyle: { width: 1.2, opacity: 0.4 } },
  circles: { symbol: 'emptyCircle', symbolSize: 8, lineStyle: { width: 1.6, opacity: 0.75 } },
  squares: { symbol: 'emptyRect', symbolSize: 7.5, lineStyle: { width: 1.6, opacity: 0.75 } },
} as const satisfies Record<string, Echarts.LineSeriesOption>;

/** Draws a chart. Points that are not finite are left out and break their line. */
export function renderChart(title: string, subtitle: string, panels: readonly Panel[]): string {
  // The package's build in one file: its some six hundred modules take a second to load.
  const { init, number } = createRequire(import.meta.url)('echarts') as typeof Echarts;
  const top = (index: number): number =>
    panels.slice(0, index).reduce((sum, panel) => sum + panel.height + PANEL_GAP, MARGIN.top);
  const height = top(panels.length) - PANEL_GAP + MARGIN.bottom;
  const xs = panels.flatMap(({ series }) => series.flatMap(({ points }) => points.map(({ x }) => x)));
  const first = xs.reduce((a, b) => Math.min(a, b), xs[0] ?? 0);
  const last = xs.reduce((a, b) => Math.max(a, b), first + 1);
  // Round numbers alone: by itself ECharts also labels both ends.
  const step = Math.max(1, number.nice((last - first) / 8, true));
  const ticks = Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step);
  // The longest names of runs, 96 characters, still fit.
  const heading = { color: INK, fontSize: Math.min(20, 1400 / title.length) };
  const small = { color: MUTED, fontSize: 12.5 };
  const name = { color: INK, fontSize: 13 };
  const axis = { type: 'value', nameLocation: 'middle', nameTextStyle: name } as const;
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height });
  chart.setOption({
    animation: false,
    backgroundColor: '#ffffff',
    textStyle: { fontFamily: `${FONT}, Arial, Helvetica, sans-serif` },
    title: [
      { text: title, left: MARGIN.left, top: 16, padding: 0, textStyle: heading },
      { text: subtitle, left: MARGIN.left, top: 48, padding: 0, textStyle: { ...small, fontWeight: 'normal' } },
    ],
    grid: panels.map((panel, i) => ({ left: MARGIN.left, right: MARGIN.right, top: top(i), height: panel.height })),
    legend: panels.map(({ series }, i) => ({
      show: series.length > 1,
      // A line without marks has none in the legend either.
      data: series.map((one) => ({ name: one.label, itemStyle: { opacity: isMarked(one) ? 1 : 0 } })),
      right: MARGIN.right,
      top: top(i) - 28,
      padding: 0,
      itemGap: 18,
      itemHeight: 10,
      textStyle: name,
    })),
    xAxis: panels.map((_, i) => ({
      ...axis,
      gridIndex: i,
      min: first,
      max: last,
      name: i === panels.length - 1 ? 'iteration' : '',
      nameGap: 30,
      axisLabel: { ...small, show: i === panels.length - 1, customValues: ticks },
      axisLine: { onZero: false, lineStyle: { color: MUTED } },
      axisTick: { customValues: ticks },
      splitLine: { show: false },
    })),
    // Without a line of their own, so that marks of the first iteration stand clear.
    yAxis: panels.map((panel, i) => ({
      ...axis,
      gridIndex: i,
      scale: true,
      splitNumber: Math.round(panel.height / 50),
      name: panel.label,
      nameGap: 50,
      axisLabel: { ...small, margin: 12, formatter: showNumber },
      axisLine: { show: false },
      axisTick: { show: false },
    })),
    series: panels.flatMap(({ series }, i) => {
      const marked = series.filter(isMarked);
      // Marks of one iteration stand side by side, so that their error bars do not hide each other.
      const shift = (one: Series): number => 6 * (marked.indexOf(one) - (marked.length - 1) / 2);
      return series
        .flatMap((one) => [line(one, shift(one)), errorBars(one, shift(one))])
        .map((drawn) => ({ ...drawn, xAxisIndex: i, yAxisIndex: i }));
    }),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}

function showNumber(value: number): string {
  const plain = value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6);
  return plain ? String(value) : value.toExponential();
}

function isMarked({ look }: Series): boolean {
  return LOOKS[look].symbol !== 'none';
}

/** Where there are more points than pixels, neighbours are averaged. */
function line({ label, color, points, look }: Series, shift: number): Echarts.LineSeriesOption {
  const data = points.map(({ x, y }) => [x, Number.isFinite(y) ? y : null]);
  return { type: 'line', name: label, color, data, sampling: 'average', symbolOffset: [shift, 0], ...LOOKS[look] };
}

function errorBars({ color, points }: Series, shift: number): Echarts.CustomSeriesOption {
  return {
    type: 'custom',
    // Both ends count for the range of the vertical axis.
    encode: { x: 0, y: [1, 2] },
    data: points
      .filter(({ y, error }) => error > 0 && Number.isFinite(y + error))
      .map(({ x, y, error }) => [x, y - error, y + error]),
    renderItem: (_, api) => {
      const [middle, low] = api.coord([api.value(0), api.value(1)]);
      const [, high] = api.coord([api.value(0), api.value(2)]);
      const x = middle + shift;
      const pathData = `M${x} ${low}V${high}M${x - 4} ${low}h8M${x - 4} ${high}h8`;
      return { type: 'path', shape: { pathData }, style: { stroke: color, lineWidth: 1.3, fill: 'none' } };
    },
  };
}
