import { expect, it } from 'vitest';
import { ManualClock } from '../../../core/manual_clock.js';
import type { WandbClient } from '../../../../src/run/track/wandb/client.js';
import { NO_MEDIA, Uploads } from '../../../../src/run/track/wandb/uploads.js';

it('takes an iteration that a run does again for one that is not uploaded yet', () => {
  const target = { entity: 'team', project: 'edits', run: 'run' };
  const uploads = new Uploads({} as WandbClient, target, new ManualClock(), () => undefined);
  const picture = { name: 'a.png', read: () => null };
  for (const iteration of [1, 2, 3]) uploads.add(iteration, NO_MEDIA);
  expect(uploads.taken().through).toBe(3);
  uploads.add(2, { files: [picture] });
  expect(uploads.taken().through).toBe(1);
  // What comes after it waits for it.
  uploads.add(3, NO_MEDIA);
  expect(uploads.taken().through).toBe(1);
});
