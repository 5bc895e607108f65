/** Writes an exported folder's card, and the file for programs beside it. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EditrlError, must } from '../../core/errors.js';
import { CONFIG_FILE, readJson } from '../../models/files.js';
import { ADAPTER_CONFIG_FILE, descriptionOf } from '../../policies/adapter_files.js';
import type { ExportedFormat } from '../../policies/tokens/export.js';
import { readMetrics } from '../../run/metrics.js';
import type { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { readRun } from '../../run/report/read.js';
import { redactorOfRun } from '../secrets.js';
import { modelCard, RUN_FILE, runFile } from './card.js';
import type { CardContent, CardPlace } from './content.js';
import { settingsAt } from '../../run/changed_settings.js';
import { CARD_FILE, originOf } from './origin.js';

export interface Exported {
  readonly paths: RunPaths;
  /** The folder of the checkpoint that was exported, and its iteration. */
  readonly checkpoint: string;
  readonly iteration: number;
  readonly format: ExportedFormat;
  readonly place: CardPlace;
}

/** Writes README.md and editrl_run.json into the folder of an exported model. Raises RunError when the run's records cannot be read. */
export function writeCard(folder: string, exported: Exported, env: NodeJS.ProcessEnv = process.env): void {
  const { paths, checkpoint, iteration, format, place } = exported;
  const last = must(readRecord(paths), `the record of ${paths.runName}`);
  const record = { ...last, settings: settingsAt(last, iteration).settings };
  const lines = readMetrics(paths).filter((line) => line.iteration <= iteration);
  const content: CardContent = {
    record,
    report: readRun(paths, lines),
    iteration,
    format,
    origin: originOf(paths, record, checkpoint),
    place,
    config: objectIn(join(folder, CONFIG_FILE)) ?? configBelow(checkpoint),
    adapter: objectIn(join(folder, ADAPTER_CONFIG_FILE)),
  };
  const redact = redactorOfRun(record.settings, env);
  writeFileSync(join(folder, CARD_FILE), modelCard(content, redact));
  writeFileSync(join(folder, RUN_FILE), runFile(content, redact));
}

function objectIn(file: string): CardContent['config'] {
  const value = existsSync(file) ? readJson(file) : null;
  return typeof value === 'object' ? (value as CardContent['config']) : null;
}

/** Config of the model that an adapter stands on; null if it cannot be read, since an adapter can be exported without it. */
function configBelow(checkpoint: string): CardContent['config'] {
  if (!existsSync(join(checkpoint, ADAPTER_CONFIG_FILE))) return null;
  try {
    return JSON.parse(descriptionOf(checkpoint)) as CardContent['config'];
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}
