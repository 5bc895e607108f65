/**
 * A term: one of the rewards that a config weighs, in one file of `terms/` and one line of its table. The file contains the term's schema
 * and creates it. It imports nothing heavy at its top, because the config reads the schema.
 */
import type { ModelFileOptions } from '../../compute/onnx/model_file.js';
import type { z } from 'zod';
import type { Judge } from '../judge/judge.js';
import type { CanaryResult } from '../judge/client.js';
import type { ModelAlias } from '../judge/completion.js';
import type { LeavableField } from '../judge/dialect.js';
import type { PromptSet } from '../judge/prompts.js';
import type { WaitOptions } from '../judge/readiness.js';
import type { JudgeItem, Judgement, JudgementStore, Reward } from '../score/types.js';

/** Limits for a term's own server, as if it were the only one. */
export interface ServerLimits {
  /** Requests in flight: this process's share. */
  readonly concurrency: number;
  /** Number of processes that send requests. A term's own limits apply to all of them together. */
  readonly processes: number;
  /** Time limit of one request. */
  readonly attemptTimeoutMs: number;
  /** Requests for one question. */
  readonly maxAttempts: number;
}

/** The records of a run, for scoring its episodes again. */
export interface TermRecords {
  /** Sends no requests: answers that are not recorded are unscored, and no server or key is needed. */
  readonly offline: boolean;
  /** A reward server's reply, if a usable one is recorded. */
  reply(key: string, requestHash: string, isUsable: (judgement: Judgement) => boolean): Judgement | undefined;
}

/** A judge of a term's own. */
export interface OwnJudgeOptions {
  /** The term's name, for messages. */
  readonly term: string;
  readonly endpoint: string;
  readonly model: string;
  readonly alias: ModelAlias;
  /** The environment variable with its key. */
  readonly keyVariable: string;
  /** Tokens of its longest reply. */
  readonly replyTokens: number;
}

export interface OwnJudge extends Judge, Pick<Term, 'untilReady' | 'canary'> {
  close(): Promise<void>;
}

/** The parts of its run that a term may use. */
export interface TermServices {
  /** The judge at `reward.endpoint`. A term that names another model asks for it by name. Raises ConfigError if the run has no judge. */
  readonly judge: (model?: string) => Judge;
  readonly prompts: PromptSet;
  /** The folder of a `{run}` or `{hub}` reference. A local path is itself. Raises ConfigError if there is none. */
  readonly modelFolder: (reference: unknown) => string;
  /** A judge at an address of the term's own. Raises ConfigError for a missing key. */
  readonly ownJudge: (options: OwnJudgeOptions) => OwnJudge;
  /** The store for remote servers' answers, for a resumed run. Called only while scoring. */
  readonly store: () => JudgementStore;
  /** Fields that requests to the terms' own judges leave out. Default: none. */
  readonly leaveOut?: readonly LeavableField[];
  /** Limits for the terms' own servers. Default: those of their clients. */
  readonly limits?: ServerLimits;
  /** The device of the terms' own models. Default: the CPU. */
  readonly session?: ModelFileOptions;
  /** Receives notes about scoring. */
  readonly onNote?: (note: string) => void;
  /** Absent if every question without an answer in `store` is asked. */
  readonly records?: TermRecords;
}

/** A reward with open resources: workers, sessions. Its outcomes' parts are named `<term>/<part>`. */
export interface Term extends Reward {
  /**
   * Waits until the term's own server answers. Absent if it has none, or has already waited. Callers that send requests call it before
   * anything is scored. Raises the EndpointErrors of `waitUntilReady`.
   */
  readonly untilReady?: (options: WaitOptions) => Promise<void>;
  /** Whether the term's own server answers now. Checked while too many episodes are unscored. Absent if it has none. */
  readonly canary?: (signal?: AbortSignal) => Promise<CanaryResult>;
  close(): Promise<void>;
}

export interface TermKind<Name extends string = string, Fields extends z.ZodRawShape = z.ZodRawShape> {
  readonly name: Name;
  /** One sentence for the schema's documentation. */
  readonly description: string;
  /** The term's own fields, each marked `result` or `operation`. The table adds `name` and `weight`. */
  readonly fields: Fields;
  /** The highest value of its native scale, whose lowest is 0. Default: 1. */
  readonly most?: number;
  /** The part of an answer that it scores. */
  readonly reads: 'image' | 'words' | 'either';
  /** Whether it may only be recorded (also_compute), and never decides. */
  readonly recordedOnly?: boolean;
  readonly needs: {
    /** Whether it asks the judge. */
    readonly judge: boolean;
    /** Whether it sends requests to a server of its own that is not a judge. */
    readonly server?: boolean;
    /** Whether it compares with the labeled image. */
    readonly truth: boolean;
    /** Whether it compares with the source image. */
    readonly source: boolean;
    /** Whether it compares with the labeled text answer. */
    readonly words?: boolean;
  };
  /** The name of such a term among the others, if it depends on its fields. Default: `name`. */
  nameOf?(settings: z.output<z.ZodObject<Fields>>): string;
  /**
   * Whether it can score edits of several images, because its questions show all of them or none. Default: no, if it asks a judge or a
   * server about an image.
   */
  readonly judgesSeveral?: boolean;
  /** Tokens of its longest reply from a judge, if neither `reward.max_reply_tokens` nor a field of its own sets them. */
  readonly replyTokens?: number;
  /** Whether it asks in the words of a prompt file, which only a model can answer, and not the rule judge of the tiny world. */
  readonly asksModel?: boolean;
  /** Names of its questions to a judge about an answer. Terms with the same name share its answer. Default: one, if it asks a judge. */
  asks?(settings: z.output<z.ZodObject<Fields>>): readonly string[];
  /**
   * Judge requests for a group of n answers (1: a held-out answer), for a term that compares the answers of a group. Absent: each answer is
   * scored alone.
   */
  questions?(settings: z.output<z.ZodObject<Fields>>, answers: number): number;
  /** Whether these fields name the term's own server, so that it does not ask the run's judge. */
  ownJudge?(settings: z.output<z.ZodObject<Fields>>): boolean;
  /** Whether such a term compares with the text that an instruction quotes. Absent means no, or unknown. */
  readsQuoted?(settings: z.output<z.ZodObject<Fields>>): boolean;
  /** The fault of a combination of valid fields, or null. Checked when the config is loaded. */
  conflict?(settings: z.output<z.ZodObject<Fields>>): { readonly field: string; readonly message: string } | null;
  /** The fault of a labeled text answer that it compares with, as the end of a sentence, or null. */
  wrongLabel?(label: string, settings: z.output<z.ZodObject<Fields>>): string | null;
  /** Raises ConfigError for settings that cannot work on this machine: a missing file, key or language. */
  create(settings: z.output<z.ZodObject<Fields>>, services: TermServices): Promise<Term>;
}

/** The missing inputs of an item, in words, or null. */
export function missingInput(
  needs: { readonly source?: boolean; readonly truth?: boolean; readonly words?: boolean },
  { source, truth, expected }: JudgeItem,
): string | null {
  if (needs.source === true && source === null) return 'the source image';
  if (needs.truth === true && truth === null) return 'the labeled result';
  return needs.words === true && expected === undefined ? 'a labeled answer in words' : null;
}

/** Keeps the types of a kind's own fields. */
export function termKind<Name extends string, Fields extends z.ZodRawShape>(
  kind: TermKind<Name, Fields>,
): TermKind<Name, Fields> {
  return kind;
}
