import { writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { writeRecord } from '../../../../src/run/record.js';
import { redactorOfRun } from '../../../../src/run/track/shared.js';
import { metadataFile, outputFile } from '../../../../src/run/track/wandb/forward.js';
import type { MediaFile } from '../../../../src/run/track/wandb/uploads.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun, STARTED } from '../run_directory.js';

const folder = testFolders('run_files');

function contentOf({ read }: MediaFile): string {
  return Buffer.from(read() ?? []).toString('utf8');
}

it('says where a run was made, without its secrets', () => {
  const run = new FakeRun(folder());
  const { record } = run;
  const [first] = record.attempts;
  const made = {
    ...first,
    command: ['run', 'x.jsonnet', '--set', 'key=top-secret-word'],
    devices: ['gpu:0', 'gpu:1'],
    slurm_job_id: '12',
  };
  writeRecord(run.paths, { ...record, attempts: [made] });
  const redact = redactorOfRun({}, { SOME_API_KEY: 'top-secret-word' });
  expect(JSON.parse(contentOf(metadataFile(run.record, { commit: 'abc', repository: null }, redact)))).toEqual({
    program: 'editrl',
    args: ['run', 'x.jsonnet', '--set', 'key=[key]'],
    startedAt: STARTED,
    host: 'machine',
    git: { commit: 'abc' },
    gpu_count: 2,
    slurm: { job_id: '12' },
    versions: { editrl: '0.1.0' },
  });
});

it('has all that a run printed, over its attempts, without its secrets', () => {
  const run = new FakeRun(folder());
  run.says('first, with hidden-token');
  run.says('a detail', 'debug');
  run.goOnFrom(0);
  run.says('careful', 'warn');
  const redact = redactorOfRun({ launch: { env: { HF_TOKEN: 'hidden-token' } } }, {});
  const file = outputFile(run.paths, redact);
  expect([file.name, contentOf(file)]).toEqual(['output.log', 'first, with [key]\nwarning: careful\n']);
});

it('keeps the end of an output that is too long', () => {
  const run = new FakeRun(folder());
  const line = (number: number): string =>
    `${JSON.stringify({ level: 'info', message: `${number} ${'x'.repeat(1_000_000)}`, timestamp: STARTED })}\n`;
  run.says('first');
  writeFileSync(run.paths.rankLog(1, 0), Array.from({ length: 40 }, (_, i) => line(i)).join(''));
  const file = outputFile(run.paths, (text) => text);
  const lines = contentOf(file).trimEnd().split('\n');
  expect(lines.length).toBeLessThan(40);
  expect(lines.map((each) => parseInt(each))).toEqual(lines.map((_, i) => 40 - lines.length + i));
});
