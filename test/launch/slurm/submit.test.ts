import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import type { SlurmRun } from '../../../src/launch/slurm/jobs.js';
import { submitCells, type Submitted } from '../../../src/launch/slurm/submit.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { externalRun, type Requested } from './support.js';

let base: string;

/**
 * Programs of Slurm: sbatch numbers what it accepts and keeps it in the queue as pending, or refuses the partition `nonsense`.
 */
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'editrl-submit-'));
  const bin = join(base, 'bin');
  mkdirSync(bin);
  const programs = {
    sbatch: `
      grep -q partition=nonsense "$2" && { echo 'invalid partition' >&2; exit 1; }
      id=$(($(wc -l <queue) + 11))
      task=; grep -q -- --array= "$2" && task=_0
      echo "$id$task|$(sed -n 's/^#SBATCH --job-name=//p' "$2")|PENDING|None|" >>queue
      cp "$2" "$id.sh"
      echo "$id"`,
    squeue: 'cat queue',
  };
  writeFileSync(join(base, 'queue'), '');
  for (const [name, body] of Object.entries(programs)) {
    writeFileSync(join(bin, name), `#!/bin/bash\ncd '${base}'\n${body}\n`, { mode: 0o755 });
  }
  vi.stubEnv('PATH', `${bin}:/usr/bin:/bin`);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(base, { recursive: true, force: true });
});

const runs = (): string => join(base, 'runs');
const run = (name: string, asked: Requested = {}): SlurmRun => externalRun(name, { base: runs(), ...asked });
const submit = (cells: readonly SlurmRun[], parents: readonly SlurmRun[] = []): Promise<Submitted> =>
  submitCells(cells, parents, { program: ['node', 'main.js'], name: 'test' });
const queue = (): string[][] =>
  readFileSync(join(base, 'queue'), 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => line.split('|'));
/** The directory of a run that is finished, with the settings that its config gives. */
function finish({ config }: SlurmRun): void {
  const handle = claimRun(claimRequest(config, { command: [], versions: {}, devices: [], parents: [] }));
  if (handle.kind === 'finished') throw new Error('it is finished already');
  handle.setState({ state: 'finished', iteration: config.settings.num_iterations });
  handle.release();
}

describe('a run that is finished', () => {
  it('is not submitted', async () => {
    finish(run('a'));
    expect(await submit([run('a')])).toMatchObject({ dir: null, finished: ['a'] });
  });

  it('with other settings is rejected with the difference, as a cell and as a parent, and nothing is submitted', async () => {
    finish(run('start'));
    finish(run('a'));
    const changed = (name: string, asked: Requested = {}): SlurmRun => {
      const made = run(name, asked);
      const settings = { ...made.config.settings, seed: 7 };
      return { ...made, config: { ...made.config, settings, resultHash: 'other' } };
    };
    const refused = submit([changed('a'), run('b', { parents: ['start'] })], [changed('start')]);
    await expect(refused).rejects.toThrow(ConfigError);
    await expect(refused).rejects.toThrow(/start: it was started with other settings[^]*seed: 42 -> 7[^]*\na: it was/);
    await expect(refused).rejects.toThrow('away to start it again');
    expect(queue()).toEqual([]);
    // What no chosen cell needs is in nobody's way, nor what is changed on request.
    const allowed = changed('a');
    const asked = { ...allowed, config: { ...allowed.config, allowChanges: ['seed'] } };
    expect(await submit([asked], [changed('start')])).toMatchObject({
      finished: expect.arrayContaining(['a']) as unknown,
    });
  });
});

it('rejects a job of another cluster, about which no one would ask', async () => {
  for (const flag of ['--clusters=alpha', '-M beta']) {
    const refused = submit([run('a', { slurm: { extra: [flag] } })]);
    await expect(refused).rejects.toThrow(ConfigError);
    await expect(refused).rejects.toThrow(`found '${flag}'`);
  }
  expect(queue()).toEqual([]);
});
