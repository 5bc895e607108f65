import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { runMark, whyNotHolder, type HolderWorld, type ProcessTraits } from '../../../src/launch/ownership/holder.js';
import type { HeldBy } from '../../../src/run/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('holder');
const held = { pid: 42, process_start: '7', host: 'here' } as HeldBy;
const LAUNCHER = ['/usr/bin/node', '/opt/editrl/dist/src/cli/main.js', 'run', 'x.jsonnet'];

function of(
  paths: RunPaths,
  traits: Partial<ProcessTraits> | 'unknown',
  { uid = 1, owner = 1 }: { readonly uid?: number; readonly owner?: number } = {},
): string | null {
  const whole = { uid: 1, start: '7', environment: [], command: ['sleep', '9'] };
  const world: HolderWorld = {
    uid,
    ownerOf: () => owner,
    traitsOf: () => (traits === 'unknown' ? traits : { ...whole, ...traits }),
  };
  return whyNotHolder(paths, held, world);
}

it('knows the workers of a run by their mark, through links to its folder, made or not', () => {
  const folder = newFolder();
  mkdirSync(join(folder, 'disk/runs'), { recursive: true });
  symlinkSync(join(folder, 'disk/runs'), join(folder, 'runs'));
  const linked = new RunPaths(join(folder, 'runs'), 'mine');
  const environment = Object.entries(runMark(linked)).map((entry) => entry.join('='));
  expect(environment[0]).toMatch(/^EDITRL_RUN=.*\/disk\/runs\/mine$/);
  mkdirSync(linked.dir);
  for (const paths of [linked, new RunPaths(join(folder, 'disk/runs'), 'mine')]) {
    expect(of(paths, { environment: ['A=1', ...environment] })).toBeNull();
  }
  expect(of(new RunPaths(join(folder, 'runs'), 'min'), { environment })).toContain('works on another run');
});

it('knows launchers by their command, and workers of versions without the mark by their launcher', () => {
  const paths = new RunPaths(newFolder(), 'mine');
  expect(of(paths, { command: LAUNCHER })).toBeNull();
  expect(of(paths, { command: ['node', '/usr/lib/node_modules/.bin/editrl', '--debug', 'sweep', 'e'] })).toBeNull();
  expect(of(paths, { command: ['node', '/opt/editrl/dist/src/cli/main.js', 'dashboard'] })).toContain('no EDITRL_RUN');
  expect(of(paths, { command: ['vim', 'run'] })).toContain('no EDITRL_RUN');
  expect(of(paths, { environment: ['EDITRL_LAUNCH=1:2:3.0'] })).toBeNull();
  expect(of(paths, {})).toBe('the process has no EDITRL_RUN in its environment, as workers have');
  expect(of(paths, { environment: null })).toBe('the environment of the process cannot be read');
});

it('wants a lock that belongs to the user of the process, or to the one who asks', () => {
  const paths = new RunPaths(newFolder(), 'mine');
  const mine = { command: LAUNCHER };
  expect(of(paths, mine, { uid: 0, owner: 1 })).toBeNull();
  expect(of(paths, { ...mine, uid: 3 }, { uid: 0, owner: 0 })).toBeNull();
  expect(of(paths, mine, { uid: 1, owner: 2 })).toBe('its lock belongs to user 2, and the process to user 1');
});

it('wants the process to have started when the lock says', () => {
  const paths = new RunPaths(newFolder(), 'mine');
  for (const start of ['8', null]) {
    expect(of(paths, { command: LAUNCHER, start })).toBe(
      'its lock says that the process started at 7, which it did not',
    );
  }
});

it('looks at the owner of the lock alone where there is no /proc', () => {
  const paths = new RunPaths(newFolder(), 'mine');
  expect(of(paths, 'unknown')).toBeNull();
  expect(of(paths, 'unknown', { owner: 2 })).toContain('its lock belongs to user 2');
});
