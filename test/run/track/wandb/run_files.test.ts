import { expect, it } from 'vitest';
import { writeRecord } from '../../../../src/run/record.js';
import { redactorOfRun } from '../../../../src/run/track/shared.js';
import { metadataFile } from '../../../../src/run/track/wandb/forward.js';
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
