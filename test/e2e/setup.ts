/** Builds, then makes from nothing the chain that the tests begin with; what that printed is itself under test. */
import type { TestProject } from 'vitest/node';
import { build } from '../support/build.js';
import { Place, RL, type Ended } from './editrl.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The folder of a place with finished runs of the whole chain. */
    template: string;
    /** What the command that made it printed. */
    firstRun: Ended;
  }
}

export default async function setUp(project: TestProject): Promise<() => void> {
  build();
  const place = Place.make();
  project.provide('template', place.dir);
  project.provide('firstRun', await place.train(RL));
  return () => place.remove();
}
