/**
 * Line charts as SVG: panels under each other over one axis of iterations. Apache ECharts draws them: it needs no browser, lays out axes,
 * ticks and legends, and is kept up.
 */
import { createRequire } from 'node:module';
import type * as Echarts from 'echarts';
import { FONT, INK, MUTED } from './svg.js';

/** The colours of what is no series. */
export interface Theme {
  readonly ink: string;
  readonly muted: string;
  /** Null leaves the ground as it is. */
  readonly background: string | null;
  readonly font: string;
}

const PAPER: Theme = {
  ink: INK,
  muted: MUTED,
  background: '#ffffff',
  font: `${FONT}, Arial, Helvetica, sans-serif`,
};

export interface ChartLook {
  readonly width?: number;
  readonly theme?: Theme;
  /** Whether series are named in the picture. */
  readonly legend?: boolean;
}

export interface Point {
  readonly x: number;
  readonly y: number;
  /** Half the length of the error bar, or half the height of the band; 0 for none. */
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
/** Above the first panel where there is no title. */
const UNTITLED_TOP = { legend: 40, plain: 14 };
const UNTITLED_BOTTOM = 44;
const PANEL_GAP = 46;

/** `faint` is a thin pale line, `band` a line in a pale band; `circles` and `squares` are marks on a line, with error bars. */
const LOOKS = {
  line: { symbol: 'none', lineStyle: { width: 2.4 } },
  band: { symbol: 'none', lineStyle: { width: 2.2 } },
  faint: { symbol: 'none', lineStyle: { width: 1.2, opacity: 0.4 } },
  circles: { symbol: 'emptyCircle', symbolSize: 8, lineStyle: { width: 1.6, opacity: 0.75 } },
  squares: { symbol: 'emptyRect', symbolSize: 7.5, lineStyle: { width: 1.6, opacity: 0.75 } },
} as const satisfies Record<string, Echarts.LineSeriesOption>;

/** Draws a chart. Points that are not finite are left out and break their line. */
export function renderChart(
  title: string,
  subtitle: string,
  panels: readonly Panel[],
  { width = WIDTH, theme = PAPER, legend = true }: ChartLook = {},
): string {
  // The package's build in one file: its some six hundred modules take a second to load.
  const { init, number } = createRequire(import.meta.url)('echarts') as typeof Echarts;
  const above = title !== '' ? MARGIN.top : UNTITLED_TOP[legend ? 'legend' : 'plain'];
  const top = (index: number): number =>
    panels.slice(0, index).reduce((sum, panel) => sum + panel.height + PANEL_GAP, above);
  const height = top(panels.length) - PANEL_GAP + (title !== '' ? MARGIN.bottom : UNTITLED_BOTTOM);
  const xs = panels.flatMap(({ series }) => series.flatMap(({ points }) => points.map(({ x }) => x)));
  const first = xs.reduce((a, b) => Math.min(a, b), xs[0] ?? 0);
  const last = xs.reduce((a, b) => Math.max(a, b), first + 1);
  // Round numbers alone: by itself ECharts also labels both ends.
  const step = Math.max(1, number.nice((last - first) / 8, true));
  const ticks = Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step);
  // The longest names of runs, 96 characters, still fit.
  const heading = { color: theme.ink, fontSize: Math.min(20, 1400 / Math.max(1, title.length)) };
  const small = { color: theme.muted, fontSize: 12.5 };
  const name = { color: theme.ink, fontSize: 13 };
  const axis = { type: 'value', nameLocation: 'middle', nameTextStyle: name } as const;
  const chart = init(null, null, { renderer: 'svg', ssr: true, width, height });
  chart.setOption({
    animation: false,
    backgroundColor: theme.background ?? 'transparent',
    textStyle: { fontFamily: theme.font },
    title: [
      { text: title, left: MARGIN.left, top: 16, padding: 0, textStyle: heading },
      { text: subtitle, left: MARGIN.left, top: 48, padding: 0, textStyle: { ...small, fontWeight: 'normal' } },
    ],
    grid: panels.map((panel, i) => ({ left: MARGIN.left, right: MARGIN.right, top: top(i), height: panel.height })),
    legend: panels.map(({ series }, i) => ({
      show: legend && series.length > 1,
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
      axisLine: { onZero: false, lineStyle: { color: theme.muted } },
      axisTick: { customValues: ticks, lineStyle: { color: theme.muted } },
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
      splitLine: { lineStyle: { color: theme.muted, opacity: 0.25 } },
    })),
    series: panels.flatMap(({ series }, i) => {
      const marked = series.filter(isMarked);
      // Marks of one iteration stand side by side, so that their error bars do not hide each other.
      const shift = (one: Series): number => 6 * (marked.indexOf(one) - (marked.length - 1) / 2);
      return series
        .flatMap((one) => [line(one, shift(one), theme), one.look === 'band' ? band(one) : errorBars(one, shift(one))])
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

function isMarked({ look }: Pick<Series, 'look'>): boolean {
  return LOOKS[look].symbol !== 'none';
}

/** Where there are more points than pixels, neighbours are averaged. */
function line({ label, color, points, look }: Series, shift: number, theme: Theme): Echarts.LineSeriesOption {
  const data = points.map(({ x, y }) => [x, Number.isFinite(y) ? y : null]);
  // An empty mark is filled with white, which is no ground of a page that may be dark.
  const mark = theme.background === null && isMarked({ look }) ? { symbol: 'circle', symbolSize: 6 } : {};
  return {
    type: 'line',
    name: label,
    color,
    data,
    sampling: 'average',
    symbolOffset: [shift, 0],
    ...LOOKS[look],
    ...mark,
  };
}

/** One surface over all its points. */
function band({ color, points }: Series): Echarts.CustomSeriesOption {
  const wide = points.filter(({ y, error }) => Number.isFinite(y + error));
  const data = wide.some(({ error }) => error > 0) ? wide.map(({ x, y, error }) => [x, y - error, y + error]) : [];
  return {
    type: 'custom',
    encode: { x: 0, y: [1, 2] },
    data,
    silent: true,
    z: 1,
    renderItem: ({ dataIndex }, api) => {
      if (dataIndex > 0) return null;
      const upper = data.map(([x, , high]) => api.coord([x, high]));
      const lower = data.map(([x, low]) => api.coord([x, low])).reverse();
      const style = { fill: color, opacity: 0.16 };
      return { type: 'polygon', shape: { points: [...upper, ...lower] }, style };
    },
  };
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
