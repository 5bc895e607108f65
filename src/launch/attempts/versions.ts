/** What a run is made with. */
import { createRequire } from 'node:module';
import { ffmpegVersion } from '../../data/video/ffmpeg.js';
import { isTrainable, recipeOf } from '../../recipes/settings.js';
import type { RunSettings } from '../../schema/run.js';

export function versions(settings: RunSettings): Record<string, string> {
  const require = createRequire(import.meta.url);
  const versionIn = (file: string): string => (require(file) as { version: string }).version;
  return {
    editrl: versionIn('../../../../package.json'),
    node: process.version,
    'onnxruntime-node': versionIn('onnxruntime-node/package.json'),
    ...programVersions(settings),
  };
}

/** Those of the machine's programs that have a part in a run's results: of ffmpeg where the run reads videos. */
export function programVersions(settings: RunSettings): Record<string, string> {
  if (!isTrainable(settings)) return {};
  const needs = recipeOf(settings).needs(settings, () => null);
  const ffmpeg = needs.some(({ kind }) => kind === 'ffmpeg') ? ffmpegVersion() : null;
  return ffmpeg === null ? {} : { ffmpeg };
}
