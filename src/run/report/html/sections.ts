/** Sections that pages share: facts, alarms, time, contact sheets, answers in words, settings. */
import { existsSync } from 'node:fs';
import sharp from 'sharp';
import { leavesOf } from '../../../schema/paths.js';
import type { RunPaths } from '../../paths.js';
import type { AlarmSpan } from '../alarms.js';
import { TIME_SHARES, type RunReport } from '../read.js';
import { contactSheets, startMiddleEnd } from '../sheets.js';
import type { ShownAnswer } from '../answers.js';
import { colour, html, type Content, type Markup } from './markup.js';

/** A fact on a page's first screen. */
export interface Fact {
  readonly name: string;
  readonly value: Content;
  readonly more?: Content;
}

export function factCards(facts: readonly Fact[]): Markup {
  return html`<div class="facts">
    ${facts.map(
      ({ name, value, more = null }) =>
        html`<div>
          <div class="name">${name}</div>
          <div class="value">${value}</div>
          ${more === null ? null : html`<div class="more">${more}</div>`}
        </div>`,
    )}
  </div>`;
}

/** What is wrong with records, above everything else; null where nothing is. */
export function notice(title: string, problems: readonly string[]): Markup | null {
  if (problems.length === 0) return null;
  return html`<div class="notice">
    <strong>${title}</strong>
    <ul>
      ${problems.map((problem) => html`<li>${problem}</li>`)}
    </ul>
  </div>`;
}

/** A table; the cells of the columns from `numbersFrom` on stand to the right. */
export function table(
  titles: readonly Content[],
  rows: readonly (readonly Content[])[],
  numbersFrom = Infinity,
): Markup {
  const kind = (at: number): Markup | null => (at >= numbersFrom ? html` class="number"` : null);
  return html`<div class="scroll">
    <table>
      <thead>
        <tr>
          ${titles.map((title, at) => html`<th${kind(at)}>${title}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) =>
            html`<tr>
              ${row.map((cell, at) => html`<td${kind(at)}>${cell}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Where the seconds of an iteration go, a bar for each run or cell. */
export function timeSplit(
  rows: readonly { readonly label: string; readonly seconds: RunReport['seconds_per_iteration'] }[],
): Markup {
  const known = rows.filter(({ seconds }) => seconds.total !== null);
  if (known.length === 0) return html`<p class="muted">No iteration was timed yet.</p>`;
  const longest = Math.max(...known.map(({ seconds }) => seconds.total ?? 0));
  const bars = known.map(({ label, seconds }) => [
    label,
    `${(seconds.total ?? 0).toFixed(2)} s`,
    html`<div class="bar">
      ${TIME_SHARES.map(
        (part, at) =>
          html`<i
            style="--s:${colour(at)};width:${(((seconds[part] ?? 0) / longest) * 100).toFixed(2)}%"
            title="${part} ${(seconds[part] ?? 0).toFixed(2)} s"
          ></i>`,
      )}
    </div>`,
    TIME_SHARES.flatMap((part) => (seconds[part] === null ? [] : [`${part} ${seconds[part].toFixed(2)}`])).join(', '),
  ]);
  return html`<div class="legend">
      ${TIME_SHARES.map((part, at) => html`<span style="--s:${colour(at)}">${part}</span>`)}
    </div>
    ${table(['', 'an iteration', '', 'seconds'], bars)}`;
}

export function alarmTable(rows: readonly { readonly run: string; readonly alarms: readonly AlarmSpan[] }[]): Markup {
  const all = rows.flatMap(({ run, alarms }) => alarms.map((alarm) => ({ run, alarm })));
  if (all.length === 0) return html`<p>None was raised.</p>`;
  return html`<p>The reward may be exploited: look at the answers.</p>
    ${table(
      ['run', 'alarm', 'raised at', 'until', 'metric', 'value'],
      all.map(({ run, alarm }) => [
        run,
        html`<span class="bad">${alarm.name}</span>`,
        alarm.from,
        alarm.standing ? 'still standing' : alarm.to,
        html`<code>${alarm.metric}</code>`,
        alarm.value === null ? '–' : alarm.value.toFixed(3),
      ]),
    )}`;
}

/** The contact sheets at the start, in the middle and at the end of a run, as pictures inside the page. */
export async function sheetSection(title: string, paths: RunPaths): Promise<Markup> {
  const kept = startMiddleEnd(contactSheets(paths));
  const sheets =
    kept.length > 0
      ? kept.map(({ iteration, path }) => ({ label: `iteration ${iteration}`, path }))
      : existsSync(paths.contactSheet)
        ? [{ label: 'the last evaluation; this run kept no earlier ones', path: paths.contactSheet }]
        : [];
  if (sheets.length === 0) {
    return html`<h3>${title}</h3>
      <p class="muted">There is no contact sheet: nothing was evaluated yet, or the pictures are gone.</p>`;
  }
  const pictures = await Promise.all(
    sheets.map(async ({ label, path }) => {
      const picture = await embedded(path);
      const shown =
        picture === null
          ? html`<p class="warn">This picture cannot be read: ${path}</p>`
          : html`<img alt="${title}, ${label}" src="${picture}" />`;
      return html`<figure>
        ${shown}
        <figcaption>${label}</figcaption>
      </figure>`;
    }),
  );
  return html`<h3>${title}</h3>
    <div class="sheets">${pictures}</div>`;
}

/** A picture as a data address; null where the file is gone, or is none. */
async function embedded(path: string): Promise<string | null> {
  try {
    const bytes = await sharp(path).webp({ quality: 86 }).toBuffer();
    return `data:image/webp;base64,${bytes.toString('base64')}`;
  } catch {
    return null; // The page says so in its place.
  }
}

/** Held-out answers in words; null where answers are none. */
export function answerTable(answers: readonly ShownAnswer[]): Markup | null {
  if (answers.length === 0) return null;
  const said = (one: ShownAnswer['before']): Content =>
    one === null
      ? '–'
      : html`${one.thought === null ? null : html`<div class="said muted">${one.thought}</div>`}
          <div class="said">${one.answer}</div>
          <span class="muted">${one.score === null ? 'no score' : one.score.toFixed(3)}</span>`;
  return table(
    ['', 'prompt', 'expected', 'before', 'after'],
    answers.map((one) => [
      one.which,
      html`<div class="said">${one.prompt}</div>`,
      one.expected ?? '–',
      said(one.before),
      said(one.after),
    ]),
  );
}

/** Settings as dotted keys, by section, folded away. */
export function settingsDetails(title: string, settings: Readonly<Record<string, unknown>>): Markup {
  const rows = leavesOf(settings).map(([key, value]) => [html`<code>${key}</code>`, html`<code>${show(value)}</code>`]);
  return html`<details>
    <summary>${title}</summary>
    ${table(['key', 'value'], rows)}
  </details>`;
}

export function differencesTable(
  titles: readonly string[],
  rows: readonly (readonly [key: string, ...values: unknown[]])[],
): Markup {
  return table(
    ['key', ...titles],
    rows.map(([key, ...values]) => [
      html`<code>${key}</code>`,
      ...values.map((value) => html`<code>${show(value)}</code>`),
    ]),
  );
}

function show(value: unknown): string {
  return value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value);
}
