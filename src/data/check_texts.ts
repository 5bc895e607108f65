/** Rows of a dataset by the columns that they have: edits of pictures, captioned pictures, or prompts in words. */
import { DataError } from '../core/errors.js';
import { openCaptioned } from './captioned.js';
import { decodeImage } from '../core/image.js';
import { inBrief } from '../core/text.js';
import { pictureBytes } from './pictures.js';
import type { PicturedColumns } from './pictured_edits.js';
import { isSayable, shownBeside } from './row_pictures.js';
import { missingColumn, readRows, valueAt } from './rows.js';

/** The columns of prompts in words. */
export interface TextColumns {
  readonly prompt: string;
  readonly expected: string;
}

export const TEXT_COLUMNS: TextColumns = { prompt: 'prompt', expected: 'expected' };

export type RowsKind = 'pictured' | 'captioned' | 'texts';

/** What rows are, by the columns of the first one. Raises DataError where they are nothing that a recipe reads, and as `missingColumn`. */
export function kindOfRows(path: string, columns: PicturedColumns & TextColumns): RowsKind {
  const needed: Readonly<Record<RowsKind, readonly string[]>> = {
    pictured: [columns.source, columns.instruction],
    captioned: ['file_name', 'text'],
    texts: [columns.prompt],
  };
  const kinds = Object.keys(needed) as RowsKind[];
  const kind = kinds.find((each) => missingColumn(path, needed[each]) === null);
  if (kind !== undefined) return kind;
  const found = missingColumn(path, needed.texts)?.found ?? '';
  throw new DataError(
    `the rows are neither edits (columns ${needed.pictured.join(', ')}), nor captioned pictures (${needed.captioned.join(', ')}), nor prompts (${needed.texts.join(', ')})${found}`,
    {
      where: path,
      next: 'Say what the columns are called: --columns prompt=NAME, or --columns source=NAME --columns instruction=NAME.',
    },
  );
}

export interface RowsLook {
  readonly samples: number;
  readonly labelled: number;
  readonly problems: readonly DataError[];
}

/** Prompts in words: each row has one, and what is expected is words where it is there. Raises DataError as `readRows`. */
export async function checkTexts(path: string, columns: TextColumns, named: boolean): Promise<RowsLook> {
  const rows = await readRows(path);
  const problems: DataError[] = [...rows.problems];
  const pictured: string[] = [];
  let labelled = 0;
  for (let index = 0; index < rows.length; index++) {
    const row = rows.read(index);
    const [prompt, expected] = [valueAt(row, columns.prompt), valueAt(row, columns.expected) ?? null];
    const wrong = [
      ...(isPrompt(prompt) ? [] : [wrongColumn(prompt, columns.prompt, 'words, or a list of messages')]),
      ...((expected === null ? named : !isWords(expected) && !isNumber(expected))
        ? [wrongColumn(expected, columns.expected, 'words or a finite number')]
        : []),
    ];
    const beside = shownBeside(row, wordsIn(prompt));
    if (beside !== null) pictured.push(`${rows.place(index)}: ${beside}`);
    if (wrong.length > 0) {
      const next = 'Correct this row, or leave it out.';
      problems.push(new DataError(wrong.join('; '), { where: rows.place(index), next }));
    } else if (expected !== null) labelled += 1;
  }
  if (pictured.length > 0) {
    problems.push(
      new DataError(`${pictured.length} of ${rows.length} prompts show more than words, the first at ${pictured[0]}`, {
        where: path,
        next: 'Recipes that read prompts show the policy no pictures: use a dataset of words.',
      }),
    );
  }
  return { samples: rows.length + rows.problems.length, labelled, problems };
}

/** Captioned pictures; each is decoded. Raises DataError as `openCaptioned`. */
export async function checkCaptioned(path: string, sizes: Set<string>): Promise<RowsLook> {
  const list = await openCaptioned(path);
  const problems: DataError[] = [];
  for (let index = 0; index < list.length; index++) {
    try {
      const { path: file, where } = list.read(index);
      const { height, width } = await decodeImage(pictureBytes(file, where), file);
      sizes.add(`${height}x${width}`);
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      problems.push(cause);
    }
  }
  return { samples: list.length, labelled: list.length - problems.length, problems };
}

function isWords(value: unknown): boolean {
  return typeof value === 'string' && value.trim() !== '';
}

function isNumber(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value);
}

function isPrompt(value: unknown): boolean {
  return isWords(value) || (Array.isArray(value) && value.length > 0 && isSayable(value));
}

/** The words of a prompt, or of the messages of a conversation. */
function wordsIn(prompt: unknown): string {
  if (typeof prompt === 'string') return prompt;
  if (!Array.isArray(prompt)) return '';
  return prompt.map((turn: unknown) => String((turn as { readonly content?: unknown } | null)?.content)).join('\n');
}

function wrongColumn(value: unknown, column: string, allowed: string): string {
  return `column '${column}': found ${inBrief(value)}; allowed: ${allowed}`;
}
