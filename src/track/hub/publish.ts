/** Publishes a checkpoint to the Hub: exports it, describes it, and uploads it as one commit. */
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { must } from '../../core/errors.js';
import { stagingFolder, sweepStaging } from '../../core/staging.js';
import { hubBaseOf } from '../../models/hub/cache.js';
import type { HubEnvironment } from '../../models/hub/environment.js';
import { HubWriter, type Published } from '../../models/hub/writer.js';
import { holdsAdapter } from '../../policies/adapter_files.js';
import {
  exportAdapter,
  exportFiles,
  exportMerged,
  formatOf,
  type ExportedDtype,
} from '../../policies/tokens/export.js';
import { readMetrics } from '../../run/metrics.js';
import { iterationName, type RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { readRun } from '../../run/report/read.js';
import { modelCard, RUN_FILE, runFile, type PublishedFormat } from './card.js';

const STAGING = '.publishing-';
export const MAIN = 'main';

export interface PublishRequest {
  readonly paths: RunPaths;
  /** A whole checkpoint's folder, and its iteration. */
  readonly checkpoint: string;
  readonly iteration: number;
  /** Null chooses: an adapter if its base is a model of the Hub, a whole model if it is a language model, else the checkpoint's files. */
  readonly format: PublishedFormat | null;
  readonly dtype: ExportedDtype;
  readonly repository: string;
  readonly branch: string;
  readonly private: boolean;
}

/** The name of a checkpoint's branch. */
export function checkpointBranch(iteration: number): string {
  return `ckpt_${iterationName(iteration)}`;
}

/**
 * Raises CheckpointError for a checkpoint that cannot be exported in this format, RunError when the disk refuses, and what `HubWriter.publish`
 * raises.
 */
export async function publishCheckpoint(
  request: PublishRequest,
  environment: HubEnvironment,
  signal?: AbortSignal,
): Promise<Published & { readonly format: PublishedFormat }> {
  const { paths, checkpoint, iteration, branch, dtype } = request;
  const record = must(readRecord(paths), `the record of ${paths.runName}`);
  const format = request.format ?? chosenFormat(checkpoint);
  sweepStaging(paths.trackDir, STAGING);
  const folder = stagingFolder(paths.trackDir, STAGING);
  const writer = new HubWriter(environment, undefined, signal);
  try {
    const repository = await writer.fullName(request.repository);
    mkdirSync(folder, { recursive: true });
    writers[format](checkpoint, folder, dtype);
    const base = baseOf(checkpoint, record.settings);
    const revision = branch === MAIN ? null : branch;
    const content = {
      record,
      report: readRun(
        paths,
        readMetrics(paths).filter((line) => line.iteration <= iteration),
      ),
      iteration,
      format,
      base,
      repository,
      revision,
    };
    writeFileSync(join(folder, 'README.md'), modelCard(content));
    writeFileSync(join(folder, RUN_FILE), runFile(content));
    const published = await writer.publish({
      repository,
      branch,
      private: request.private,
      title: `${paths.runName}, iteration ${iteration}`,
      files: readdirSync(folder).map((name) => ({ path: name, from: join(folder, name) })),
      removes: isOfModel,
    });
    return { ...published, format };
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await writer.close();
  }
}

const writers: Readonly<Record<PublishedFormat, (checkpoint: string, folder: string, dtype: ExportedDtype) => void>> = {
  adapter: exportAdapter,
  merged: (checkpoint, folder, dtype) => exportMerged(checkpoint, folder, { dtype }),
  checkpoint: exportFiles,
};

/** An adapter is useful to others only if they can get its base. */
function chosenFormat(checkpoint: string): PublishedFormat {
  const format = formatOf(checkpoint);
  if (format === null) return 'checkpoint';
  return format === 'adapter' && hubBaseOf(checkpoint) === null ? 'merged' : format;
}

function baseOf(checkpoint: string, settings: Readonly<Record<string, unknown>>): string | null {
  if (holdsAdapter(checkpoint)) return hubBaseOf(checkpoint)?.hub ?? null;
  const { model } = (settings['policy'] ?? {}) as { readonly model?: unknown };
  const { hub } = (typeof model === 'object' && model !== null ? model : {}) as { readonly hub?: unknown };
  return typeof hub === 'string' ? hub : null;
}

/** Weights published earlier in another format must not remain beside the new ones. */
function isOfModel(path: string): boolean {
  return /^(model|policy|adapter)[\w-]*\.safetensors(\.index\.json)?$|^adapter_config\.json$/.test(path);
}
