/** Parts that several reports share: tables, alarms, times, answers, settings, contact sheets. */
import { existsSync } from 'node:fs';
import sharp, { type WebpOptions } from 'sharp';
import type { RunPaths } from '../../run/paths.js';
import type { AlarmSpan } from '../../run/report/alarms.js';
import type { HeldOutAnswer } from '../../run/report/answers.js';
import { readHeldOutChanges } from '../../run/report/held_out_changes.js';
import { TIME_SHARES, type RunReport } from '../../run/report/read.js';
import { contactSheets, startMiddleEnd } from '../../run/report/contact_sheet.js';
import { leavesOf } from '../../core/schema/walk.js';
import { wireChanges } from '../changes.js';
import type { WireBlock, WireChanges, WireContent, WireReport, WireTable, WireText } from '../wire.js';

/** Placeholder for a missing value. */
export const NONE = '–';

export function code(text: string): WireText {
  return { text, as: 'code' };
}

export function quiet(text: string): WireText {
  return { text, as: 'quiet' };
}

export function heading(text: string): WireBlock {
  return { kind: 'heading', text };
}

export function paragraph(...text: readonly WireText[]): WireBlock {
  return { kind: 'text', text };
}

export function notice(title: string, texts: readonly string[]): WireReport['notice'] {
  return texts.length === 0 ? null : { title, texts };
}

/** A table that is always visible. `label` is for screen readers. */
export function table(label: string, content: WireTable): WireBlock {
  return { kind: 'table', label, folded: false, ...content };
}

/** A table that is collapsed under its label. */
export function folded(label: string, content: WireTable): WireBlock {
  return { kind: 'table', label, folded: true, ...content };
}

type Seconds = RunReport['seconds_per_iteration'];

/** The time of each part of an iteration, for each timed run or cell. */
export function times(all: readonly { readonly label: string; readonly seconds: Seconds }[]): WireBlock {
  const rows = all.flatMap(({ label, seconds: { total, ...shares } }) =>
    total === null ? [] : [{ label, total, seconds: TIME_SHARES.map((share) => shares[share] ?? 0) }],
  );
  return rows.length === 0
    ? paragraph(quiet('No iteration has been timed yet.'))
    : { kind: 'times', shares: TIME_SHARES, rows };
}

export function alarms(all: readonly { readonly run: string; readonly alarms: readonly AlarmSpan[] }[]): WireBlock[] {
  const rows = all.flatMap(({ run, alarms: raised }) =>
    raised.map(({ name, from, to, active, metric, value }): WireContent[] => [
      run,
      { text: name, as: 'bad' },
      String(from),
      active ? 'still active' : String(to),
      code(metric),
      value === null ? NONE : value.toFixed(3),
    ]),
  );
  if (rows.length === 0) return [paragraph('None.')];
  const titles = ['run', 'alarm', 'raised at', 'until', 'metric', 'value'];
  return [paragraph('Possible reward hacking. Check the answers.'), table('Hack alarms', { titles, rows, long: true })];
}

/** Held-out answers as text. Null if the answers are not text. */
export function answers(all: readonly HeldOutAnswer[]): WireBlock | null {
  if (all.length === 0) return null;
  const said = (one: HeldOutAnswer['before']): WireContent =>
    one === null
      ? NONE
      : [
          ...(one.thought === null ? [] : [quiet(one.thought)]),
          one.answer,
          quiet(one.score === null ? 'no score' : one.score.toFixed(3)),
        ];
  return table('Held-out answers', {
    titles: ['', 'prompt', 'expected', 'before', 'after'],
    rows: all.map((one) => [one.which, one.prompt, one.expected ?? NONE, said(one.before), said(one.after)]),
    long: true,
  });
}

/** All settings by dotted key, collapsed. */
export function allSettings(title: string, settings: Readonly<Record<string, unknown>>): WireBlock {
  return folded(title, {
    titles: ['key', 'value'],
    rows: leavesOf(settings).map(([key, value]) => [code(key), code(showSetting(value))]),
  });
}

/** Different settings, one row per key. */
export function differences(
  titles: readonly string[],
  rows: readonly (readonly [key: string, ...values: unknown[]])[],
): WireTable {
  return {
    titles: ['key', ...titles],
    rows: rows.map(([key, ...values]) => [code(key), ...values.map((value) => code(showSetting(value)))]),
  };
}

function showSetting(value: unknown): string {
  return value === undefined ? NONE : typeof value === 'string' ? value : JSON.stringify(value);
}

/** Collects the images of a report as data URLs. */
export class ReportImages {
  readonly addresses: string[] = [];

  /** The contact sheets from the start, the middle and the end of a run. */
  async sheets(title: string, paths: RunPaths): Promise<WireBlock[]> {
    const kept = startMiddleEnd(contactSheets(paths));
    const sheets =
      kept.length > 0
        ? kept.map(({ iteration, path }) => ({ label: `iteration ${iteration}`, path }))
        : existsSync(paths.contactSheet)
          ? [{ label: 'latest evaluation (this run kept no earlier contact sheets)', path: paths.contactSheet }]
          : [];
    if (sheets.length === 0) {
      const why = 'No contact sheet: there was no evaluation yet, or the images were removed.';
      return [heading(title), paragraph(quiet(why))];
    }
    const images: { readonly label: string; readonly at: number | null }[] = [];
    for (const { label, path } of sheets) {
      const at = await this.#take(path);
      images.push({ label: at === null ? `Cannot read the image ${path}` : label, at });
    }
    return [heading(title), { kind: 'images', title, images }];
  }

  /** Changed held-out answers with example images. Null before the second evaluation. */
  async changes(paths: RunPaths): Promise<WireChanges | null> {
    const changes = readHeldOutChanges(paths);
    if (changes === null) return null;
    const place = async (name: string): Promise<string | null> => {
      const at = await this.#take(paths.media(name), { lossless: true });
      return at === null ? null : String(at);
    };
    return wireChanges(changes, place);
  }

  /** Index of an image. Null if the file is missing or not an image. */
  async #take(path: string, options: WebpOptions = { quality: 86 }): Promise<number | null> {
    try {
      const bytes = await sharp(path).webp(options).toBuffer();
      return this.addresses.push(`data:image/webp;base64,${bytes.toString('base64')}`) - 1;
    } catch {
      return null; // The page shows a note instead.
    }
  }
}
