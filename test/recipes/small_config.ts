/** A config of a recipe at the least size that a whole task needs, and what becomes of it when parts change. */
import { validate } from '../../src/config/validate.js';

export type Sections = Readonly<Record<string, unknown>>;

export interface SmallConfig<S> {
  /** What is wrong with the config, changed; empty for a valid one. Fields of a section stand in for its own, which undefined leaves out, anything else for the whole value. */
  readonly problemsOf: (changes: Sections) => string[];
  /** Its settings, changed likewise. */
  readonly smallSettings: (changes?: Sections) => S;
}

export function smallConfig<S>(config: Sections): SmallConfig<S> {
  const changed = (changes: Sections): ReturnType<typeof validate> => {
    const parts = Object.entries(changes).map(([name, fields]) => {
      const isSection = typeof fields === 'object' && fields !== null;
      if (!isSection) return [name, fields] as const;
      const merged = Object.entries({ ...(config[name] as Sections | undefined), ...fields });
      return [name, Object.fromEntries(merged.filter(([, value]) => value !== undefined))] as const;
    });
    return validate({ ...config, ...Object.fromEntries(parts) });
  };
  return {
    problemsOf(changes) {
      const validated = changed(changes);
      return 'problems' in validated ? validated.problems.map(({ key, message }) => `${key}: ${message}`) : [];
    },
    smallSettings(changes = {}) {
      const validated = changed(changes);
      if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
      return validated.settings as unknown as S;
    },
  };
}
