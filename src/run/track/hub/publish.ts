/** Publishes a checkpoint to the Hub: exports it, describes it, and uploads it as one commit. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { stagingFolder, sweepStaging } from '../../../core/files.js';
import { type HubEnvironment, hubBaseOf } from '../../../models/hub/cache.js';
import { HubWriter, type Published } from '../../../models/hub/writer.js';
import { holdsAdapter } from '../../../models/adapters/files.js';
import { exportWriters, formatOf, type ExportedDtype, type ExportedFormat } from '../../../models/adapters/export.js';
import { iterationName, type RunPaths } from '../../paths.js';
import { writeCard } from '../card/card.js';

const STAGING = '.publishing-';
export const MAIN = 'main';

export interface PublishRequest {
  readonly paths: RunPaths;
  /** Folder of a complete checkpoint. */
  readonly checkpoint: string;
  readonly iteration: number;
  /**
   * The format. Null chooses a language model's adapter if its base is on the Hub, and else the whole model. For other
   * models, it chooses the adapter if there is one, and else the checkpoint's files.
   */
  readonly format: ExportedFormat | null;
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
 * Raises CheckpointError for a checkpoint that cannot be exported in this format, RunError on a disk error, and
 * the errors of `HubWriter.publish`.
 */
export async function publishCheckpoint(
  request: PublishRequest,
  environment: HubEnvironment,
  signal?: AbortSignal,
): Promise<Published & { readonly format: ExportedFormat }> {
  const { paths, checkpoint, iteration, branch, dtype } = request;
  const format = request.format ?? defaultFormat(checkpoint);
  sweepStaging(paths.trackDir, STAGING);
  const folder = stagingFolder(paths.trackDir, STAGING);
  const writer = new HubWriter(environment, undefined, signal);
  try {
    const repository = await writer.fullName(request.repository);
    mkdirSync(folder, { recursive: true });
    exportWriters[format](checkpoint, folder, dtype);
    const place = { repository, revision: branch === MAIN ? null : branch };
    writeCard(folder, { paths, checkpoint, iteration, format, place });
    const published = await writer.publish({
      repository,
      branch,
      private: request.private,
      title: `${paths.runName}, iteration ${iteration}`,
      files: readdirSync(folder).map((name) => ({ path: name, from: join(folder, name) })),
      removes: isModelFile,
    });
    return { ...published, format };
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await writer.close();
  }
}

/** Chooses the format. An adapter is only useful if others can get its base. */
function defaultFormat(checkpoint: string): ExportedFormat {
  const format = formatOf(checkpoint);
  if (format === null) return holdsAdapter(checkpoint) ? 'adapter' : 'checkpoint';
  return format === 'adapter' && hubBaseOf(checkpoint) === null ? 'merged' : format;
}

/** Whether a file contains weights. Weights that were published earlier in another format must not remain. */
function isModelFile(path: string): boolean {
  return /^(model|policy|adapter|diffusion_pytorch_model|pytorch_lora_weights)[\w-]*\.safetensors(\.index\.json)?$|^adapter_config\.json$/.test(
    path,
  );
}
