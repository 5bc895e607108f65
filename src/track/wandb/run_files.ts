/** The files that a W&B run shows besides its media, under the names that W&B's own SDK gives them. */
import { Document, type ScalarTag, type Tags } from 'yaml';
import type { Redact } from '../../http/redact.js';
import type { RunPaths } from '../../run/paths.js';
import type { RunRecord } from '../../run/record.js';
import type { CodeRevision } from '../code.js';
import { OutputFollower, type OutputPlace } from '../output_lines.js';
import type { WandbCursor } from './cursor.js';
import type { MediaFile } from './upload_types.js';

/** The end of a longer output is uploaded; its stream has all of it. */
const MOST_OUTPUT_LETTERS = 16 * 1024 * 1024;

/** The run's config as its page has it: each top-level entry is `{value}`. */
export function configFile(config: Readonly<Record<string, unknown>>): MediaFile {
  return fileOf('config.yaml', () => yaml(config));
}

/** Where, when and with what the run was made. */
export function metadataFile(record: RunRecord, code: CodeRevision | null, redact: Redact): MediaFile {
  const { created_at, attempts } = record;
  const last = attempts.at(-1);
  const gpus = last?.devices.filter((device) => device.startsWith('gpu')).length ?? 0;
  const metadata = {
    program: 'editrl',
    args: last?.command.map(redact) ?? [],
    startedAt: created_at,
    host: last?.host ?? '',
    ...(code === null ? {} : { git: { ...(code.repository && { remote: code.repository }), commit: code.commit } }),
    ...(gpus === 0 ? {} : { gpu_count: gpus }),
    ...((last?.slurm_job_id ?? null) === null ? {} : { slurm: { job_id: last?.slurm_job_id } }),
    versions: last?.versions ?? {},
  };
  return fileOf('wandb-metadata.json', () => `${JSON.stringify(metadata, null, 2)}\n`);
}

/** The summary as it was sent last. */
export function summaryFile({ summary }: Pick<WandbCursor, 'summary'>): MediaFile {
  return fileOf('wandb-summary.json', () => summary);
}

/** All that the run printed. */
export function outputFile(paths: RunPaths, redact: Redact): MediaFile {
  return fileOf('output.log', () => outputOf(paths, redact));
}

/** A line of output as W&B shows it, without its time. */
export function shownLine(level: string, text: string): string {
  return `${level === 'warn' ? 'warning: ' : ''}${text}`;
}

function outputOf(paths: RunPaths, redact: Redact): string {
  const follower = new OutputFollower(paths);
  let kept = '';
  try {
    for (let place: OutputPlace = { attempt: 1, bytes: 0 }; ;) {
      const next = follower.next(place);
      if (next.place.attempt === place.attempt && next.place.bytes === place.bytes) return kept;
      place = next.place;
      kept += next.lines.map(({ level, text }) => `${redact(shownLine(level, text))}\n`).join('');
      if (kept.length > 2 * MOST_OUTPUT_LETTERS) kept = lastLines(kept);
    }
  } finally {
    follower.close();
  }
}

function lastLines(text: string): string {
  return text.slice(text.indexOf('\n', text.length - MOST_OUTPUT_LETTERS) + 1);
}

function fileOf(name: string, text: () => string): MediaFile {
  return { name, read: () => Buffer.from(text(), 'utf8') };
}

const FLOAT = 'tag:yaml.org,2002:float';

/** YAML 1.1, which Python's readers take: they know 1.0e-7 for a number, and not 1e-7. */
function yaml(value: unknown): string {
  const withPoint = (tag: Tags[number]): Tags[number] =>
    typeof tag === 'object' && tag.tag === FLOAT && 'stringify' in tag
      ? ({
          ...tag,
          stringify: (...given) => String(tag.stringify?.(...given)).replace(/^(-?\d)e/, '$1.0e'),
        } as ScalarTag)
      : tag;
  const options = { version: '1.1', aliasDuplicateObjects: false } as const;
  return new Document(value, { ...options, customTags: (tags) => tags.map(withPoint) }).toString();
}
