import { expect, it } from 'vitest';
import { mediaOf } from '../../../../src/run/track/wandb/uploads.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('media');

/** The prompts that are shown of an iteration with ten episodes. */
function shown(most: number): string[] {
  const run = new FakeRun(folder());
  const episodes = Array.from({ length: 10 }, (_, i) => ({
    ...{ key: `1/0/${i}`, sample: 's', instruction: `prompt-${i}`, text: '', finished: true, source: null },
    outcome: { kind: 'scored', value: 1, normalised: 1, parts: {} },
  }));
  run.episodes(1, episodes);
  const { files } = mediaOf(run.paths, 1, most);
  return files.flatMap(
    ({ read }) =>
      Buffer.from(read() ?? [])
        .toString('utf8')
        .match(/prompt-\d/g) ?? [],
  );
}

it('shows episodes from all over an iteration', () => {
  expect(shown(5)).toEqual(['prompt-0', 'prompt-2', 'prompt-4', 'prompt-6', 'prompt-8']);
  expect(shown(3)).toEqual(['prompt-0', 'prompt-3', 'prompt-6']);
  expect(shown(20)).toHaveLength(10);
});
