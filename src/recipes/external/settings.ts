/** The recipe `external`: a training by the program in `launch.command`. */
import { z } from 'zod';
import { externalLaunch } from '../../config/schema/launch.js';
import { result } from '../../core/schema/mark.js';
import { runFields, taskField } from '../../config/schema/run.js';
import type { ForeignRecipe } from '../../config/recipes.js';
import { problemUnless } from '../../config/schema/rules.js';

const schema = z.strictObject({
  ...runFields,
  launch: externalLaunch,
  ...taskField('external'),
  parameters: result(
    'Settings of the trainer, which reads them from the resolved config.',
    z.record(z.string(), z.json()).default({}),
  ),
});
export type ExternalSettings = z.output<typeof schema>;

export const external: ForeignRecipe<ExternalSettings> = {
  name: 'external',
  trainer: 'another program',
  schema,
  broken: ({ launch }) => [
    ...problemUnless(
      launch?.command !== null,
      'launch.command',
      "found null; allowed with task 'external': the training program, such as ['python', 'train.py']",
    ),
  ],
};
