/** Printing: tables, JSON, and colour where a person is watching. */

import { painter, type Style } from '../core/colour.js';
import { printable } from '../core/errors.js';
import * as table from '../core/table.js';

export { hasColour, type Style } from '../core/colour.js';
export type { Cell, Column } from '../core/table.js';

/** Text in a style on a terminal, as it is elsewhere. */
export function styled(text: string, style: Style, stream: NodeJS.WriteStream = process.stdout): string {
  return painter(stream)(text, style);
}

const USUAL_WIDTH = 80;

/** How wide what is printed may be: as the terminal is, or as `COLUMNS` says where there is none. */
export function outputWidth(stream: NodeJS.WriteStream = process.stdout, env: NodeJS.ProcessEnv = process.env): number {
  if (stream.isTTY) return stream.columns || USUAL_WIDTH;
  const said = Number(env['COLUMNS']);
  return Number.isInteger(said) && said > 0 ? said : USUAL_WIDTH;
}

/** A table that fits standard output as far as its columns give way. */
export function formatTable(
  columns: readonly table.Column[],
  rows: readonly (readonly table.Cell[])[],
  options: Pick<table.TableOptions, 'below'> = {},
): string {
  return table.formatTable(columns, rows, { width: outputWidth(), ...options });
}

/** One line on standard output. */
export function printLine(text = ''): void {
  process.stdout.write(`${text}\n`);
}

/** A text on standard output in lines that break between words. */
export function printWrapped(text: string): void {
  printLine(table.wrap(text, outputWidth()).join('\n'));
}

/** A sentence on standard output: on a terminal in lines that break between words, elsewhere in one. */
export function printSentence(text: string): void {
  printLine(process.stdout.isTTY ? table.wrap(text, outputWidth()).join('\n') : text);
}

/** One line on standard error. */
export function printError(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** On standard error, so that standard output stays one document. */
export function printWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) printError(`${styled('warning', 'yellow', process.stderr)}: ${warning}`);
}

/** One JSON document on standard output, for machines; spelled out as JSON has them, letters that a terminal would obey are the same to these. */
export function printJson(value: unknown): void {
  process.stdout.write(`${printable(JSON.stringify(value, null, 2))}\n`);
}
