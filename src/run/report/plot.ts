/** Line charts as SVG: panels under each other over one horizontal axis. */
import { strokeWidth } from './strokes.js';
import { n, svgDocument, svgText, type TextStyle } from './svg.js';

export interface Point {
  readonly x: number;
  readonly y: number;
  /** Half the length of the error bar; none when absent. */
  readonly error?: number;
}

export interface Series {
  readonly label: string;
  readonly color: string;
  readonly points: readonly Point[];
  /** `faint` is a thin pale line; `markers` are dots on a line, with error bars. */
  readonly look: 'line' | 'faint' | 'markers';
  readonly marker?: 'circle' | 'square';
}

export interface Axis {
  readonly label: string;
  readonly series: readonly Series[];
}

export interface Panel {
  readonly title: string;
  readonly height: number;
  readonly left: Axis;
  readonly right: Axis | null;
}

export interface Plot {
  readonly width: number;
  readonly title: string;
  readonly xLabel: string;
  readonly panels: readonly Panel[];
}

interface Range {
  readonly low: number;
  readonly high: number;
  readonly ticks: readonly number[];
}

interface Frame {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly x: Range;
}

const INK = '#22272e';
const MUTED = '#5b6570';
const GRID = '#e6e9ed';
const MARGIN = { left: 92, right: 88, top: 58, bottom: 52 };
const PANEL_HEAD = 44;
const PANEL_GAP = 30;

/** Draws a plot. Points that are not finite are left out and break their line. */
export function renderPlot(plot: Plot, style: TextStyle): string {
  const xs = plot.panels.flatMap((panel) =>
    allSeries(panel).flatMap((series) => series.points.map((point) => point.x)),
  );
  const x = xRange(xs);
  const body = [svgText(style, MARGIN.left, 34, plot.title, { size: 20, color: INK, bold: true })];
  let top = MARGIN.top;
  plot.panels.forEach((panel, index) => {
    const frame: Frame = {
      left: MARGIN.left,
      right: plot.width - MARGIN.right,
      top: top + PANEL_HEAD,
      bottom: top + PANEL_HEAD + panel.height,
      x,
    };
    const isLast = index === plot.panels.length - 1;
    body.push(renderPanel(panel, frame, style, isLast ? plot.xLabel : null));
    top = frame.bottom + PANEL_GAP;
  });
  return svgDocument(plot.width, top - PANEL_GAP + MARGIN.bottom, body.join('\n'));
}

/** Round numbers that divide a range into about `count` steps (steps of 1, 2 or 5 times a power of ten). */
export function niceTicks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) ?? 10) * power;
  const ticks: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step + 0);
  return ticks;
}

/** A tick's number with as many digits as its step needs. */
export function formatTick(value: number, step: number): string {
  const size = Math.max(Math.abs(value), step);
  if (value !== 0 && (size >= 1e6 || step < 1e-4)) return value.toExponential(step / size < 0.1 ? 1 : 0);
  return value.toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9))));
}

function allSeries(panel: Panel): readonly Series[] {
  return [...panel.left.series, ...(panel.right?.series ?? [])];
}

function xRange(xs: readonly number[]): Range {
  const low = xs.length === 0 ? 0 : xs.reduce((a, b) => Math.min(a, b));
  const high = Math.max(low + 1, xs.length === 0 ? 1 : xs.reduce((a, b) => Math.max(a, b)));
  const whole = niceTicks(low, high, 8).filter((tick) => Number.isInteger(tick));
  // A little room, so that marks at the first and the last iteration stand clear of the edges.
  const room = 0.015 * (high - low);
  return { low: low - room, high: high + room, ticks: whole };
}

function yRange(series: readonly Series[]): Range {
  const values = series.flatMap((one) =>
    one.points.flatMap((point) => [point.y - (point.error ?? 0), point.y + (point.error ?? 0)]),
  );
  const finite = values.filter((value) => Number.isFinite(value));
  if (finite.length === 0) return { low: 0, high: 1, ticks: [0, 0.5, 1] };
  const low = finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  const span = high - low > 0 ? high - low : Math.max(Math.abs(high), 1e-3);
  // Quantities that are never negative keep a floor at zero.
  const paddedLow = low >= 0 && low < 0.5 * span ? 0 : low - 0.06 * span;
  const paddedHigh = high + 0.08 * span;
  return { low: paddedLow, high: paddedHigh, ticks: niceTicks(paddedLow, paddedHigh, 5) };
}

function renderPanel(panel: Panel, frame: Frame, style: TextStyle, xLabel: string | null): string {
  const out: string[] = [];
  const left = yRange(panel.left.series);
  const right = panel.right === null ? null : yRange(panel.right.series);
  const x = (value: number): number => place(value, frame.x, frame.left, frame.right);
  for (const tick of left.ticks) {
    const y = n(place(tick, left, frame.bottom, frame.top));
    out.push(`<path d="M${n(frame.left)} ${y}H${n(frame.right)}" stroke="${GRID}" stroke-width="1"/>`);
  }
  for (const tick of frame.x.ticks) {
    out.push(`<path d="M${n(x(tick))} ${n(frame.bottom)}v5" stroke="${MUTED}" stroke-width="1"/>`);
    const label = svgText(style, x(tick), frame.bottom + 19, formatTick(tick, 1), {
      size: 12.5,
      color: MUTED,
      anchor: 'middle',
    });
    out.push(label);
  }
  out.push(renderTicks(left, frame, style, 'left'), renderAxisLabel(panel.left, frame, style, 'left'));
  for (const series of panel.left.series) out.push(renderSeries(series, x, left, frame));
  if (panel.right !== null && right !== null) {
    out.push(renderTicks(right, frame, style, 'right'), renderAxisLabel(panel.right, frame, style, 'right'));
    for (const series of panel.right.series) out.push(renderSeries(series, x, right, frame));
  }
  const rightEdge = panel.right === null ? '' : `M${n(frame.right)} ${n(frame.top)}V${n(frame.bottom)}`;
  const edges = `M${n(frame.left)} ${n(frame.top)}V${n(frame.bottom)}H${n(frame.right)}${rightEdge}`;
  out.push(`<path d="${edges}" fill="none" stroke="${MUTED}" stroke-width="1"/>`);
  out.push(svgText(style, frame.left, frame.top - 14, panel.title, { size: 14, color: INK, bold: true }));
  out.push(renderLegend(allSeries(panel), frame, style));
  if (xLabel !== null) {
    const middle = (frame.left + frame.right) / 2;
    out.push(svgText(style, middle, frame.bottom + 41, xLabel, { size: 13, color: INK, anchor: 'middle' }));
  }
  return out.join('\n');
}

function renderTicks(range: Range, frame: Frame, style: TextStyle, side: 'left' | 'right'): string {
  const step = range.ticks.length > 1 ? range.ticks[1] - range.ticks[0] : 1;
  const edge = side === 'left' ? frame.left : frame.right;
  const outward = side === 'left' ? -1 : 1;
  return range.ticks
    .map((tick) => {
      const y = place(tick, range, frame.bottom, frame.top);
      const anchor = side === 'left' ? 'end' : 'start';
      const mark = `<path d="M${n(edge)} ${n(y)}h${5 * outward}" stroke="${MUTED}" stroke-width="1"/>`;
      const label = formatTick(tick, step);
      return mark + svgText(style, edge + 9 * outward, y + 4.5, label, { size: 12.5, color: MUTED, anchor });
    })
    .join('\n');
}

function renderAxisLabel(axis: Axis, frame: Frame, style: TextStyle, side: 'left' | 'right'): string {
  const middle = (frame.top + frame.bottom) / 2;
  const x = side === 'left' ? frame.left - 70 : frame.right + 72;
  const color = axis.series.length === 1 && side === 'right' ? axis.series[0].color : INK;
  return svgText(style, x, middle, axis.label, { size: 13, color, anchor: 'middle', rotate: -90 });
}

function renderLegend(series: readonly Series[], frame: Frame, style: TextStyle): string {
  const size = 12.5;
  // Fonts are wider than the estimate by up to a tenth; the legend is laid out from the right edge.
  let x = frame.right;
  const out: string[] = [];
  for (const one of [...series].reverse()) {
    const width = strokeWidth(one.label, size) * 1.1;
    x -= width;
    out.push(svgText(style, x, frame.top - 14, one.label, { size, color: INK }));
    x -= 30;
    const y = frame.top - 18.5;
    const wide = one.look === 'faint' ? 1.5 : 2.5;
    const opacity = one.look === 'faint' ? ' stroke-opacity="0.45"' : '';
    out.push(`<path d="M${n(x)} ${n(y)}h23" stroke="${one.color}" stroke-width="${wide}"${opacity}/>`);
    if (one.look === 'markers') out.push(marker(one, x + 11.5, y));
    x -= 18;
  }
  return out.join('\n');
}

function renderSeries(series: Series, x: (value: number) => number, range: Range, frame: Frame): string {
  const out: string[] = [];
  const y = (value: number): number => place(value, range, frame.bottom, frame.top);
  let path = '';
  let pen = false;
  for (const point of series.points) {
    if (!Number.isFinite(point.y)) {
      pen = false;
      continue;
    }
    path += `${pen ? 'L' : 'M'}${n(x(point.x))} ${n(y(point.y))}`;
    pen = true;
  }
  const wide = { line: 2.4, faint: 1.2, markers: 1.6 }[series.look];
  const opacity = { line: '', faint: ' stroke-opacity="0.4"', markers: ' stroke-opacity="0.75"' }[series.look];
  if (path !== '') {
    out.push(
      `<path d="${path}" fill="none" stroke="${series.color}" stroke-width="${wide}"${opacity} stroke-linejoin="round" stroke-linecap="round"/>`,
    );
  }
  if (series.look !== 'markers') return out.join('\n');
  for (const point of series.points.filter((one) => Number.isFinite(one.y))) {
    const at = x(point.x);
    if (point.error !== undefined && point.error > 0) {
      const [low, high] = [y(point.y - point.error), y(point.y + point.error)];
      const bar = `M${n(at)} ${n(low)}V${n(high)}M${n(at - 4)} ${n(low)}h8M${n(at - 4)} ${n(high)}h8`;
      out.push(`<path d="${bar}" fill="none" stroke="${series.color}" stroke-width="1.3"/>`);
    }
    out.push(marker(series, at, y(point.y)));
  }
  return out.join('\n');
}

function marker(series: Series, x: number, y: number): string {
  const look = `fill="#ffffff" stroke="${series.color}" stroke-width="2"`;
  return series.marker === 'square'
    ? `<rect x="${n(x - 3.6)}" y="${n(y - 3.6)}" width="7.2" height="7.2" ${look}/>`
    : `<circle cx="${n(x)}" cy="${n(y)}" r="4" ${look}/>`;
}

function place(value: number, range: Range, from: number, to: number): number {
  return from + ((value - range.low) / (range.high - range.low)) * (to - from);
}
