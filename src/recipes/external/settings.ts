/** The recipe `external`: whatever the program in `launch.command` trains. */
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
    "The trainer's own settings, whatever they are; it finds them in the resolved config.",
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
      "found null; task 'external' needs the program that trains, such as ['python', 'train.py']",
    ),
  ],
};
