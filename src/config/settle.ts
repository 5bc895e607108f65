/** Converts evaluated configs to frozen settings with hashes. Cells of a matrix share most sections, so each section is parsed once. */
import type { z } from 'zod';
import { hashOfSections, resultText, sectionLeaves } from './hash.js';
import type { Problem } from './schema/rules.js';
import { recipeNamed, recipeOf } from './recipes.js';
import type { RunSettings } from './schema/run.js';
import type { Leaf } from '../core/schema/walk.js';
import { brokenRules, validate, warningsOf } from './validate.js';

/** A valid section of settings, shared by all cells with the same content. */
interface Section {
  readonly value: unknown;
  hashed: string | null;
  /** Its marked fields. */
  leaves: readonly Leaf[] | null;
}

export interface SettledRun {
  readonly settings: RunSettings;
  readonly resultHash: string;
  readonly warnings: readonly string[];
}

/** Validates and hashes settings, and caches their sections. */
export class Settler {
  readonly #sections = new Map<string, Section>();
  readonly #ofSettings = new WeakMap<RunSettings, ReadonlyMap<string, Section>>();

  /** Validates settings in canonical form, or returns all of their problems. */
  settle(raw: Readonly<Record<string, unknown>>): SettledRun | { readonly problems: readonly Problem[] } {
    const sections = this.#read(raw);
    if (sections === null) {
      const validated = validate(raw);
      if ('problems' in validated) return validated;
      const again = this.#read(validated.settings);
      if (again === null) {
        return { problems: [{ key: 'the settings', message: 'are invalid with their defaults' }] };
      }
      return this.#settled(asSettings(again), again);
    }
    const settings = asSettings(sections);
    const problems = brokenRules(recipeOf(settings), settings);
    return problems.length > 0 ? { problems } : this.#settled(settings, sections);
  }

  /** The fields that differ from other settings, with their values in `settings`. Ignores values that contain the run's name. */
  differences(settings: RunSettings, from: RunSettings): Record<string, unknown> {
    const here = this.#ofSettings.get(settings) ?? new Map<string, Section>();
    const there = this.#ofSettings.get(from) ?? new Map<string, Section>();
    const differing: Record<string, unknown> = {};
    for (const [key, section] of here) {
      const other = there.get(key);
      if (key === 'run_name' || section === other) continue;
      const before = other === undefined ? [] : leavesOf(from, key, other);
      for (const [place, { path, value }] of leavesOf(settings, key, section).entries()) {
        // Usually both have the same fields in the same order.
        const was = (before[place]?.path === path ? before[place] : before.find((leaf) => leaf.path === path))?.value;
        if (value === was || JSON.stringify(value) === JSON.stringify(was)) continue;
        if (typeof value === 'string' && value.includes(settings.run_name)) continue;
        differing[path] = value;
      }
    }
    return differing;
  }

  /** The fields that differ among some settings, with the values of each. */
  varying(all: readonly RunSettings[]): Record<string, unknown>[] {
    const [first, ...others] = all;
    const paths = new Set(others.flatMap((settings) => Object.keys(this.differences(settings, first))));
    const sections = new Set([...paths].map((path) => path.split('.')[0]));
    return all.map((settings) => {
      const found: Record<string, unknown> = {};
      for (const [key, section] of this.#ofSettings.get(settings) ?? []) {
        if (!sections.has(key)) continue;
        for (const { path, value } of leavesOf(settings, key, section)) {
          if (paths.has(path)) found[path] = value;
        }
      }
      return found;
    });
  }

  #settled(settings: RunSettings, sections: ReadonlyMap<string, Section>): SettledRun {
    Object.freeze(settings);
    this.#ofSettings.set(settings, sections);
    const resultHash = hashOfSections(settings, (key) => {
      const section = sections.get(key);
      if (section === undefined) return '';
      return (section.hashed ??= resultText(settings, key, leavesOf(settings, key, section)));
    });
    return { settings, resultHash, warnings: warningsOf(settings) };
  }

  /** The sections of valid settings. Null if one is invalid or unknown. */
  #read(raw: Readonly<Record<string, unknown>>): Map<string, Section> | null {
    const recipe = recipeNamed(raw['task']);
    if (recipe === undefined) return null;
    const fields = recipe.schema.shape as Readonly<Record<string, z.ZodType>>;
    if (Object.keys(raw).some((key) => !Object.hasOwn(fields, key))) return null;
    const sections = new Map<string, Section>();
    for (const [key, field] of Object.entries(fields)) {
      const section = this.#section(`${recipe.name} ${key}`, field, raw[key]);
      if (section === null) return null;
      sections.set(key, section);
    }
    return sections;
  }

  /** A section, shared by cells with the same content. Null if it is invalid. */
  #section(key: string, field: z.ZodType, raw: unknown): Section | null {
    const name = `${key} ${JSON.stringify(raw)}`;
    const known = this.#sections.get(name);
    if (known !== undefined) return known;
    const parsed = field.safeParse(raw);
    if (!parsed.success) return null;
    const section: Section = { value: deepFreeze(parsed.data), hashed: null, leaves: null };
    this.#sections.set(name, section);
    return section;
  }
}

function asSettings(sections: ReadonlyMap<string, Section>): RunSettings {
  const settings: Record<string, unknown> = {};
  for (const [key, { value }] of sections) settings[key] = value;
  return settings as unknown as RunSettings;
}

function leavesOf(settings: RunSettings, key: string, section: Section): readonly Leaf[] {
  return (section.leaves ??= sectionLeaves(settings, key));
}

/** Freezes a value and everything in it. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const child of Object.values(value)) deepFreeze(child);
    Object.freeze(value);
  }
  return value;
}
