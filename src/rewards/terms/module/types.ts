/** The exports and inputs of a reward module. docs/guide/rewards.md shows the same to its author. */
import { basename, extname } from 'node:path';
import type { RgbImage } from '../../../core/images/image.js';
import type { JudgeItem, UnscoredReason } from '../../score/types.js';

/** The name of a module's term in metrics and weights: its file name without the extension. */
export function moduleName(file: string): string {
  return basename(file, extname(file));
}

type Value<T> = T | Promise<T>;

/** A number from 0 to 1, or an outcome. */
export type ModuleScore = number | ModuleOutcome;

export type ModuleOutcome =
  | {
      readonly kind: 'scored';
      /** From 0 to 1. */
      readonly normalised: number;
      /** On the reward's own scale, at least 0. Default: `normalised`. */
      readonly value?: number;
      readonly parts?: Readonly<Record<string, number>>;
    }
  | {
      readonly kind: 'zero_by_rule';
      readonly reason: 'undecodable' | 'unfinished';
      readonly parts?: Readonly<Record<string, number>>;
    }
  | {
      readonly kind: 'unscored';
      readonly reason: Exclude<UnscoredReason, 'own_code'>;
      readonly detail: string;
      readonly parts?: Readonly<Record<string, number>>;
    };

export interface ScoreContext {
  readonly settings: Readonly<Record<string, unknown>>;
  /** Aborts when the outcome is no longer needed. */
  readonly signal: AbortSignal;
}

export interface ModuleServices {
  /** An image as a PNG file. */
  readonly png: (image: RgbImage) => Promise<Uint8Array>;
  /** Number of the run's processes that use the module concurrently. */
  readonly processes: number;
}

export type ScoreFunction = (item: JudgeItem, context: ScoreContext) => Value<ModuleScore>;

export interface Scorer {
  readonly score: ScoreFunction;
  readonly close?: () => Value<void>;
}

export interface ModuleObject extends Partial<Scorer> {
  /** The needs of the module: an item must have them. Default of `edited`: true. */
  readonly needs?: Readonly<Partial<Record<'edited' | 'source' | 'truth' | 'words', boolean>>>;
  /** The fault of the settings, or null. */
  readonly check?: (settings: Readonly<Record<string, unknown>>) => Value<string | null | undefined>;
  readonly create?: (
    settings: Readonly<Record<string, unknown>>,
    services: ModuleServices,
  ) => Value<ScoreFunction | Scorer>;
}

export type RewardModule = ScoreFunction | ModuleObject;
