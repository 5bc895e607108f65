/** Printing: tables, JSON, and color on terminals. */

import { painter, type Style } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import * as table from '../../core/terminal.js';

export type { Style } from '../../core/terminal.js';
export type { Cell, Column } from '../../core/terminal.js';

/** Text in a style on a terminal, unchanged otherwise. */
export function styled(text: string, style: Style, stream: NodeJS.WriteStream = process.stdout): string {
  return painter(stream)(text, style);
}

const USUAL_WIDTH = 80;

/** The width of the output: the terminal's, or that of `COLUMNS` if there is no terminal. */
export function outputWidth(stream: NodeJS.WriteStream = process.stdout, env: NodeJS.ProcessEnv = process.env): number {
  if (stream.isTTY) return stream.columns || USUAL_WIDTH;
  const envColumns = Number(env['COLUMNS']);
  return Number.isInteger(envColumns) && envColumns > 0 ? envColumns : USUAL_WIDTH;
}

/** A table that fits standard output as far as its columns can shrink. */
export function formatTable(
  columns: readonly table.Column[],
  rows: readonly (readonly table.Cell[])[],
  options: Pick<table.TableOptions, 'below'> = {},
): string {
  return table.formatTable(columns, rows, { width: outputWidth(), ...options });
}

/** Prints one line to standard output. */
export function printLine(text = ''): void {
  process.stdout.write(`${text}\n`);
}

/** Prints a text to standard output, wrapped between words. */
export function printWrapped(text: string): void {
  printLine(table.wrap(text, outputWidth()).join('\n'));
}

/** Prints a sentence to standard output, wrapped between words on a terminal, else on one line. */
export function printSentence(text: string): void {
  printLine(process.stdout.isTTY ? table.wrap(text, outputWidth()).join('\n') : text);
}

/** Prints one line to standard error. */
export function printError(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** Prints to standard error, so that standard output stays one document. */
export function printWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) printError(`${styled('warning', 'yellow', process.stderr)}: ${warning}`);
}

/** Prints a note to standard error. */
export function printNote(text: string): void {
  printError(`${styled('note', 'dim', process.stderr)}: ${text}`);
}

/** Prints one JSON document to standard output, with control characters as JSON escapes. */
export function printJson(value: unknown): void {
  process.stdout.write(`${printable(JSON.stringify(value, null, 2))}\n`);
}
