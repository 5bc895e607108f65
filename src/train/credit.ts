/**
 * Credit by region: a term that is about what an edit was to change is paid to the cells that changed, one about what was to stay to the others.
 * Pure functions.
 */
import type { AdvantageSettings } from '../schema/algorithm.js';
import type { Credit } from '../rewards/score/settings.js';
import type { Advantages, CellAdvantages } from '../policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { average } from '../core/statistics.js';
import { clipped, outcomeTermAdvantages, type GroupAdvantages } from './advantages.js';

/** The cells of the picture that an answer draws, row by row. */
export interface DrawnCells {
  readonly height: number;
  readonly width: number;
  /** Per action of the answer, the cell that it draws; -1 for one that draws none, such as a word. Null if each action draws all of them. */
  readonly ofAction: Int32Array | null;
  /** Per cell, 1 where the answer differs from the source. */
  readonly changed: Uint8Array;
}

/** How the cells of pictures and the region of a prompt are told. */
export interface Regions<P, A> extends RegionOptions {
  /** The cells that an answer draws; null if it draws no picture of its source's size. */
  readonly cellsOf: (prompt: P, answer: A) => DrawnCells | null;
  /** Per cell, 1 where the label differs from the source; null if the prompt has no label of the source's size. Absent: the answers decide. */
  readonly labelled?: (prompt: P) => Uint8Array | null;
}

export interface RegionOptions {
  /** The share of a group's pictures that have to change a cell; one is enough at least. */
  readonly share: number;
  /** By how many cells a region is widened in all eight directions. */
  readonly border: number;
}

/** Where the answers to one prompt change the source. */
export interface Region {
  readonly height: number;
  readonly width: number;
  /** Per cell, 1 inside. */
  readonly cells: Uint8Array;
}

/** What an episode's regions are paid. */
export interface EpisodeCredit {
  readonly region: Region;
  /** The advantage of its cells inside the region, and of the others. */
  readonly changed: number;
  readonly kept: number;
}

export interface CreditSettings {
  /** How the terms of the reward are weighed and what they are about, in their order. */
  readonly terms: readonly { readonly weight: number; readonly credit: Credit }[];
  readonly advantage: Pick<AdvantageSettings, 'eps' | 'clip'>;
  readonly factor: number;
}

export interface CreditedAdvantages {
  /** Per action where an answer's regions are paid apart by its actions, else one number an answer. */
  readonly advantages: readonly GroupAdvantages<Advantages>[];
  /** Per group and episode; null where one number is paid to the whole answer. */
  readonly credits: readonly (readonly (EpisodeCredit | null)[])[];
  readonly metrics: Readonly<Record<string, number>>;
}

/**
 * The cells that enough of the answers change, so that an answer which copies the source is paid for the region that it left alone; or those of
 * `labelled`. Null where these are none.
 */
export function regionOf(
  drawn: readonly (DrawnCells | null)[],
  { share, border }: RegionOptions,
  labelled: Uint8Array | null = null,
): Region | null {
  const pictures = drawn.filter((one) => one !== null);
  if (pictures.length === 0) return null;
  const [{ height, width }] = pictures;
  // A share of 0.28 of 25 pictures is 7, which their product is not quite.
  const needed = Math.max(1, share * pictures.length - 1e-9);
  const votes = (cell: number): number => pictures.reduce((sum, { changed }) => sum + changed[cell], 0);
  const core = labelled ?? Uint8Array.from({ length: height * width }, (_, cell) => (votes(cell) >= needed ? 1 : 0));
  return core.includes(1) ? { height, width, cells: widened(core, { height, width }, border) } : null;
}

function widened(core: Uint8Array, { height, width }: Pick<Region, 'height' | 'width'>, border: number): Uint8Array {
  const cells = new Uint8Array(core.length);
  core.forEach((one, cell) => {
    if (one === 0) return;
    const [row, column] = [Math.floor(cell / width), cell % width];
    for (let y = Math.max(0, row - border); y <= Math.min(height - 1, row + border); y++) {
      cells.fill(1, y * width + Math.max(0, column - border), y * width + Math.min(width - 1, column + border) + 1);
    }
  });
  return cells;
}

/**
 * Advantages per action. With A_k the advantage of term k within its group, w_k its weight, R_k the cells that it is about, and S as GDPO adds the
 * terms up (`termAdvantages`),
 *
 *   A_a = factor * sum_k [a in R_k] w_k A_k / (std(S) + eps)
 *
 * An action that draws no cell is in every R_k. For actions that draw all cells this is what each cell is paid, which `credits` tell. A term whose
 * region is empty is about all cells of its group, which is counted. `compared` are the advantages of whole answers, which decide which groups and
 * episodes carry a loss.
 */
export function creditByRegion(
  outcomes: readonly (readonly Outcome[])[],
  drawn: readonly (readonly (DrawnCells | null)[])[],
  regions: readonly (Region | null)[],
  compared: readonly GroupAdvantages[],
  { terms, advantage, factor }: CreditSettings,
): CreditedAdvantages {
  const { weighted, divisor } = outcomeTermAdvantages(
    outcomes,
    advantage,
    terms.map(({ weight }) => weight),
    factor,
  );
  const credits = compared.map(({ advantages }, g) => {
    const region = regions[g];
    return advantages.map((whole, i): EpisodeCredit | null => {
      if (region === null || whole === null || drawn[g][i] === null) return null;
      const isFull = !region.cells.includes(0);
      const paid = (inside: boolean): number => {
        const sum = terms.reduce((total, { credit }, k) => {
          const isPaid = credit === 'all' || (credit === 'changed') === inside || (credit === 'kept' && isFull);
          return total + (isPaid ? weighted[k][g][i] : 0);
        }, 0);
        return clipped((factor * sum) / divisor, advantage.clip);
      };
      return { region, changed: paid(true), kept: paid(false) };
    });
  });
  return {
    advantages: compared.map((group, g) => ({
      ...group,
      advantages: group.advantages.map((whole, i) => {
        const [credit, cells] = [credits[g][i], drawn[g][i]];
        const ofAction = cells?.ofAction ?? null;
        return whole === null || credit === null || ofAction === null ? whole : perAction(whole, credit, ofAction);
      }),
    })),
    credits,
    metrics: metricsOf(terms, regions, credits.flat()),
  };
}

/** What the cells of an answer's picture are paid; null where all are paid the same. */
export function cellAdvantages(credit: EpisodeCredit | null): CellAdvantages | null {
  return credit === null ? null : { cells: credit.region.cells, inside: credit.changed, outside: credit.kept };
}

/** How an episode's line records it: the region's cells row by row, four to a hexadecimal digit with the first in the highest bit. */
export function creditRecord(credit: EpisodeCredit | null): object {
  if (credit === null) return {};
  const { region, changed, kept } = credit;
  const { height, width, cells } = region;
  const bits = Array.from({ length: Math.ceil(cells.length / 4) }, (_, digit) =>
    parseInt([0, 1, 2, 3].map((bit) => cells[digit * 4 + bit] ?? 0).join(''), 2).toString(16),
  ).join('');
  return { credit: { height, width, region: bits, changed, kept } };
}

function perAction(whole: number, { region, changed, kept }: EpisodeCredit, ofAction: Int32Array): Float32Array {
  return Float32Array.from(ofAction, (cell) => (cell < 0 ? whole : region.cells[cell] === 1 ? changed : kept));
}

function metricsOf(
  terms: CreditSettings['terms'],
  regions: readonly (Region | null)[],
  credits: readonly (EpisodeCredit | null)[],
): Record<string, number> {
  const shares = regions.flatMap((region) => (region === null ? [] : [average([...region.cells])]));
  const paid = credits.filter((credit) => credit !== null);
  const lacksRegion = (region: Region | null): boolean =>
    region === null || (terms.some(({ credit }) => credit === 'kept') && !region.cells.includes(0));
  return {
    ...(shares.length === 0 ? {} : { 'credit/changed_cells': average(shares) }),
    'credit/whole_groups': average(regions.map((region) => (lacksRegion(region) ? 1 : 0))),
    ...(paid.length === 0
      ? {}
      : {
          'credit/changed': average(paid.map(({ changed }) => Math.abs(changed))),
          'credit/kept': average(paid.map(({ kept }) => Math.abs(kept))),
        }),
  };
}
