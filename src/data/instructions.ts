/** A user's own edits: a file of JSON lines, each with an image and an instruction. */
import { existsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { inBrief, parseJson, readTextFile } from '../core/text.js';

/** One line with existing images. */
export interface EditLine {
  /** The file and the line, counted from 1, for errors. */
  readonly where: string;
  /** Absolute paths of images. */
  readonly source: string;
  readonly edited: string | null;
  readonly instruction: string;
  readonly rationale: string | null;
  readonly split: string;
}

/** The form of each field, for messages. */
const ALLOWED = {
  source: 'the path of an image, relative to the folder of this file',
  instruction: 'a text',
  edited: 'the path of an image, relative to the folder of this file',
  rationale: 'a text',
  split: 'a name of letters, digits, "_" and "-", such as train or validation',
} as const;

const text = z.string().trim().min(1);
const lineSchema = z.strictObject({
  source: text,
  instruction: text,
  edited: text.nullable().default(null),
  rationale: text.nullable().default(null),
  split: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9_-]*$/)
    .default('train'),
});

/** The number of problems in one message. */
const MAX_SHOWN = 20;

/** Texts that a model reads as a token of their own, at any position. */
const SPECIAL_TOKEN = /<\|[^|]*\|>/;

/** Reads all lines except empty ones. Raises one DataError with the problems of each line. */
export function readInstructions(file: string): readonly EditLine[] {
  const problems: { readonly where: string; readonly message: string }[] = [];
  const lines: EditLine[] = [];
  textIn(file)
    .split('\n')
    .forEach((line, index) => {
      const where = `${file}:${index + 1}`;
      if (line.trim() === '') return;
      const read = readLine(line, where, dirname(file));
      if ('found' in read) problems.push(...read.found.map((message) => ({ where, message })));
      else lines.push(read);
    });
  if (problems.length > 0) throw errorOf(problems);
  if (lines.length === 0) {
    throw new DataError('the file has no edits', { where: file, next: FORM });
  }
  return lines;
}

const FORM =
  'Write one edit a line: {"source": "a.png", "instruction": "make it red"}, with "edited" if the answer is known, and with "split" if it is not "train".';

function textIn(file: string): string {
  try {
    return readTextFile(file);
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const found = code === 'ENOENT' ? 'there is no such file' : `cannot be read (${code})`;
    throw new DataError(found, { where: file, next: `Name a file of JSON lines. ${FORM}`, cause });
  }
}

function readLine(line: string, where: string, folder: string): EditLine | { readonly found: readonly string[] } {
  let value: unknown;
  try {
    value = parseJson(line, where);
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    return { found: [cause.message] };
  }
  const parsed = lineSchema.safeParse(value);
  if (!parsed.success) return { found: parsed.error.issues.flatMap((issue) => messagesOf(issue, value)) };
  const { instruction, rationale, split } = parsed.data;
  const source = resolve(folder, parsed.data.source);
  const edited = parsed.data.edited === null ? null : resolve(folder, parsed.data.edited);
  const found = [
    ...imageProblem('source', source),
    ...(edited === null ? [] : imageProblem('edited', edited)),
    ...tokenProblem('instruction', instruction),
    ...tokenProblem('rationale', rationale ?? ''),
  ];
  return found.length > 0 ? { found } : { where, source, edited, instruction, rationale, split };
}

function messagesOf(issue: z.core.$ZodIssue, value: unknown): string[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => `unknown field '${key}'; allowed: ${Object.keys(ALLOWED).join(', ')}`);
  }
  const field = issue.path[0] as keyof typeof ALLOWED | undefined;
  if (field === undefined) return [`found ${inBrief(value)}; allowed: an object`];
  const found = (value as Readonly<Record<string, unknown>>)[field];
  const what = found === undefined ? 'is missing' : `is ${inBrief(found)}`;
  return [`'${field}' ${what}; allowed: ${ALLOWED[field]}`];
}

function imageProblem(field: string, path: string): string[] {
  if (!existsSync(path)) return [`'${field}': there is no image ${path}`];
  return statSync(path).isFile() ? [] : [`'${field}': ${path} is not a file`];
}

function tokenProblem(field: string, value: string): string[] {
  const special = SPECIAL_TOKEN.exec(value)?.[0];
  return special === undefined ? [] : [`'${field}' contains ${special}, which a model reads as a special token`];
}

function errorOf(problems: readonly { readonly where: string; readonly message: string }[]): DataError {
  const [first] = problems;
  if (problems.length === 1) return new DataError(first.message, { where: first.where, next: FORM });
  const shown = problems.slice(0, MAX_SHOWN).map(({ where, message }) => `${where}: ${message}`);
  const more = problems.length > MAX_SHOWN ? [`and ${problems.length - MAX_SHOWN} more`] : [];
  return new DataError([`${problems.length} problems found`, ...shown, ...more].join('\n  '), { next: FORM });
}
