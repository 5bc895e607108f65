/**
 * A term: one reward among those that a config weighs, in one file of `terms/` and one line of its table. The file holds the term's
 * schema and what makes it; it imports nothing heavy at its top, because the config reads the schema.
 */
import type { ModelFileOptions } from '../../engines/onnx/model_file.js';
import type { z } from 'zod';
import type { Judge } from '../judge/judge.js';
import type { CanaryResult } from '../judge/client.js';
import type { JudgeImages } from '../judge/images.js';
import type { PromptSet } from '../judge/prompts.js';
import type { WaitOptions } from '../judge/readiness.js';
import type { OpenSender } from '../judge/sender.js';
import type { JudgeItem, Judgement, JudgementStore, Reward } from '../score/types.js';

/** How a server of a term's own is asked by this process; each server is asked as if it were the only one. */
export interface ServerLimits {
  /** Requests under way at once: this process's share. */
  readonly concurrency: number;
  /** How many processes ask: what a term's own fields allow at once is for all of them together. */
  readonly processes: number;
  /** Deadline of one request. */
  readonly attemptTimeoutMs: number;
  /** Requests for one question. */
  readonly maxAttempts: number;
}

/** What a run has recorded, for scoring its episodes again. */
export interface TermRecords {
  /** Nobody is asked: what is not recorded is unscored, no server is waited for, and none needs a key. */
  readonly offline: boolean;
  /** A judge that answers from the records, and asks this one (null where nobody is asked) for what is not there. */
  judge(model: string, asked: Judge | null): Judge;
  /** A reward server's reply, where one that can be used is recorded. */
  reply(key: string, requestHash: string, isUsable: (judgement: Judgement) => boolean): Judgement | undefined;
}

/** What a term may use of the run that it belongs to. */
export interface TermServices {
  /** The judge at `reward.endpoint`; a term that names another model asks for it by name. Raises ConfigError where the run has no judge. */
  readonly judge: (model?: string) => Judge;
  readonly images: JudgeImages;
  readonly prompts: PromptSet;
  /** The folder that a `{run}` or `{hub}` reference stands for; a local path is itself. Raises ConfigError where there is none. */
  readonly modelFolder: (reference: unknown) => string;
  /** Where what was got from elsewhere is kept for a resumed run; asked for only while scoring. Absent where nothing is kept. */
  readonly store?: () => JudgementStore;
  /** For servers of the terms' own; the defaults of their clients where absent. */
  readonly limits?: ServerLimits;
  /** From where the judges of the terms' own are asked; from this thread where absent. */
  readonly openSender?: OpenSender;
  /** What models of the terms' own compute on; the CPU where absent. */
  readonly session?: ModelFileOptions;
  /** Told what a person should know of what is scored; nobody is where absent. */
  readonly onNote?: (note: string) => void;
  /** Absent where every question is asked that `store` has no answer to. */
  readonly records?: TermRecords;
}

/** A reward that holds something open: workers, sessions. Its outcomes' parts are named `<term>/<part>`. */
export interface Term extends Reward {
  /**
   * Waits until the server of the term's own can be asked; absent where it has none, or has waited while it was made. Called before anything is
   * scored, by those who mean to ask. Raises EndpointError as `waitUntilReady` does.
   */
  readonly untilReady?: (options: WaitOptions) => Promise<void>;
  /** Whether the server of the term's own answers now: looked at while too many episodes are unscored. Absent where it has none. */
  readonly canary?: (signal?: AbortSignal) => Promise<CanaryResult>;
  close(): Promise<void>;
}

export interface TermKind<Name extends string = string, Fields extends z.ZodRawShape = z.ZodRawShape> {
  readonly name: Name;
  /** One sentence for the schema's documentation. */
  readonly description: string;
  /** The term's own fields, each marked `result` or `operation`; `name` and `weight` are added by the table. */
  readonly fields: Fields;
  /** The highest value of its native scale, whose lowest is 0; 1 where absent. */
  readonly most?: number;
  /** Which part of an answer it looks at. */
  readonly reads: 'image' | 'words' | 'either';
  /** Whether it may only be looked at (also_compute), and never decides. */
  readonly recordedOnly?: boolean;
  readonly needs: {
    /** Whether it asks the judge. */
    readonly judge: boolean;
    /** Whether it asks a server of its own that is no judge. */
    readonly server?: boolean;
    /** Whether it compares with the labelled image. */
    readonly truth: boolean;
    /** Whether it compares with the source image. */
    readonly source: boolean;
    /** Whether it compares with the labelled answer in words. */
    readonly words?: boolean;
  };
  /** What such a term is called among the others, where that follows from its fields; `name` where absent. */
  nameOf?(settings: z.output<z.ZodObject<Fields>>): string;
  /** Whether these fields name a server of the term's own, so that the run's judge is not asked. */
  ownJudge?(settings: z.output<z.ZodObject<Fields>>): boolean;
  /** Whether such a term compares with the text that an instruction quotes; absent: it does not, or nobody knows. */
  readsQuoted?(settings: z.output<z.ZodObject<Fields>>): boolean;
  /** What is wrong with fields that are right one by one; null where nothing is. Looked at when the config is loaded. */
  conflict?(settings: z.output<z.ZodObject<Fields>>): { readonly field: string; readonly message: string } | null;
  /** What is wrong with a labelled answer in words that it compares with, as a message goes on; null where nothing is. */
  wrongLabel?(label: string, settings: z.output<z.ZodObject<Fields>>): string | null;
  /** Makes the term in a process of its own, for trying code that is not this program's; `create` is used where absent. Raises as `create`. */
  createApart?(settings: z.output<z.ZodObject<Fields>>): Promise<Term>;
  /** Raises ConfigError for settings that cannot work on this machine: a missing file, key or language. */
  create(settings: z.output<z.ZodObject<Fields>>, services: TermServices): Promise<Term>;
}

/** What an item lacks of what is needed to score it, in words; null where it lacks nothing. */
export function missingInput(
  needs: { readonly source?: boolean; readonly truth?: boolean; readonly words?: boolean },
  { source, truth, expected }: JudgeItem,
): string | null {
  if (needs.source === true && source === null) return 'the source image';
  if (needs.truth === true && truth === null) return 'the labelled result';
  return needs.words === true && expected === undefined ? 'a labelled answer in words' : null;
}

/** Keeps the types of a kind's own fields. */
export function termKind<Name extends string, Fields extends z.ZodRawShape>(
  kind: TermKind<Name, Fields>,
): TermKind<Name, Fields> {
  return kind;
}
