/** The data that the dashboard's server, or a report's writer, sends to the page. Only types: it is compiled for both. */
import type { Curve } from '../core/curves.js';

/** As shown by `editrl ls`. */
export type WireState =
  'queued' | 'running' | 'waiting' | 'finished' | 'failed' | 'interrupted' | 'dead' | 'unreadable';

/** A number in JSON; null if it is missing or not finite. */
export type WireNumber = number | null;

/** The held-out number of a run's last evaluation, and that of its first if there were two. */
export interface WireHeldOut {
  readonly metric: string;
  /** The name of the reward or loss, such as `viescore`; null if unknown. */
  readonly label: string | null;
  /** The same with its range, or with a note that lower is better. */
  readonly scale: string | null;
  readonly before: WireNumber;
  readonly after: WireNumber;
  /** The standard error of the last number, over prompts; null if unknown, as for losses. */
  readonly stderr: WireNumber;
  /** The iteration of the last evaluation. */
  readonly iteration: number;
}

export interface WireRun {
  /** `FOLDER/NAME`, where FOLDER counts the folders of `WireRuns` from 0. */
  readonly id: string;
  readonly name: string;
  readonly state: WireState;
  readonly iteration: number;
  readonly num_iterations: number;
  readonly reward: WireNumber;
  readonly held_out: WireHeldOut | null;
  /** Names of the hack alarms that are active in its last iteration. */
  readonly alarms: readonly string[];
  /** The last heartbeat, in milliseconds since 1970. */
  readonly heartbeat: number | null;
  readonly where: string | null;
  readonly reason: string | null;
  /** The requested settings, in order; undefined is written as null. */
  readonly values: readonly unknown[];
}

/** A hack alarm that was raised. */
export interface WireAlarm {
  readonly name: string;
  /** The statistic that it watches, and its value when the alarm was raised; null if unknown. */
  readonly metric: string;
  readonly value: WireNumber;
  /** The iterations in which it was raised and last active. */
  readonly span: readonly [from: number, to: number];
  /** Whether it is active in the last iteration. */
  readonly standing: boolean;
  /** The limits in the settings, such as `max_fall 0.4, max_rise 1`; null if unknown. */
  readonly limits: string | null;
}

export interface WireRuns {
  readonly folders: readonly string[];
  /** All runs, and how many of them match. */
  readonly total: number;
  readonly matching: number;
  /** Index of the first of `runs` among the matching ones. */
  readonly offset: number;
  readonly runs: readonly WireRun[];
  /** Matching runs by state. */
  readonly states: Readonly<Partial<Record<WireState, number>>>;
  /** Number of runs found but not read yet. */
  readonly unread: number;
  /** Folders that cannot be read, and why. */
  readonly problems: readonly string[];
}

/** A setting, and how many distinct values the runs have for it. */
export interface WireKey {
  readonly key: string;
  readonly values: number;
}

export interface WireAttempt {
  readonly attempt: number;
  readonly started_at: string;
  readonly from_iteration: number;
  readonly host: string;
  readonly devices: readonly string[];
  readonly command: string;
  /** Version of this program. */
  readonly version: string | null;
}

/** The actions for a run; for a sweep, only those that stop it. */
export type ActionName = 'stop' | 'stop_now' | 'resume' | 'start_again';

export interface WireAction {
  readonly action: ActionName;
  /** The equivalent command. */
  readonly command: string;
}

export interface WireRunPage {
  readonly run: WireRun;
  readonly dir: string;
  readonly task: string | null;
  /** By dotted path. */
  readonly settings: readonly (readonly [key: string, value: unknown])[];
  /** The runs that it starts from; a null id for one that does not exist. */
  readonly parents: readonly { readonly name: string; readonly id: string | null }[];
  readonly attempts: readonly WireAttempt[];
  readonly checkpoints: readonly number[];
  /** `40, reward 4.213`: the best of them, where `checkpoint.keep_best` says by what. */
  readonly best_checkpoint: string | null;
  /** Number of processes of an attempt, each with its own log. */
  readonly processes: number;
  readonly has_contact_sheet: boolean;
  /** In the order in which they were raised. */
  readonly alarms: readonly WireAlarm[];
  /** An estimate of how long a running run will still take; null for any other, and before three iterations are timed. */
  readonly seconds_left: WireNumber;
  readonly actions: readonly WireAction[];
}

/**
 * One metric over iterations, without values that are not finite. Its band is the standard error of a held-out number, the standard deviation over a
 * group's seeds, or the extremes of the lines that each point represents.
 */
export interface WireCurve extends Curve {
  readonly metric: string;
  /** Its run or cell, if `WireCurves.groups` names several. */
  readonly group?: string;
  /** Its last value before it was smoothed, a mean over the runs of a cell; absent for the curve of one run, which arrives as it is. */
  readonly last?: number;
}

export interface WireCurves {
  readonly metrics: readonly string[];
  readonly curves: readonly WireCurve[];
  /** Runs or cells that are compared: each has a color and a curve in every chart. Absent if all curves are from one run. */
  readonly groups?: readonly string[];
  /** How many more there are, without curves. */
  readonly more_groups?: number;
  /** Whether the band of a group is the standard deviation over its seeds. */
  readonly over_seeds?: boolean;
  /** The hack alarms of the run, if all curves are from one run. */
  readonly alarms?: readonly { readonly metric: string; readonly span: readonly [from: number, to: number] }[];
  /** Number of lines read. */
  readonly lines: number;
  /** Number of lines that are not metrics, which are left out. */
  readonly wrong_lines: number;
}

export interface WireEpisodeFile {
  readonly iteration: number;
  readonly held_out: boolean;
}

export type WireOutcomeKind = 'scored' | 'zero_by_rule' | 'unscored';

export interface WireEpisode {
  readonly key: string;
  readonly sample: string;
  readonly instruction: string;
  readonly outcome: WireOutcomeKind;
  readonly score: WireNumber;
  readonly advantage: WireNumber;
  /** Why it was not scored, or scored zero. */
  readonly reason: string | null;
  readonly parts: Readonly<Record<string, WireNumber>>;
  readonly finished: boolean;
  readonly thought: string | null;
  /** The answer's words, if it has any. */
  readonly text: string | null;
  readonly expected: string | null;
  /** Names of images; null if there is none or it was not kept. */
  readonly source: string | null;
  readonly edited: string | null;
  readonly truth: string | null;
}

export interface WireEpisodes {
  /** Whether a judge was asked about any episode of the run. */
  readonly judged: boolean;
  readonly files: readonly WireEpisodeFile[];
  /** The file that is shown; null if there is none. */
  readonly shown: WireEpisodeFile | null;
  readonly total: number;
  readonly matching: number;
  readonly offset: number;
  readonly episodes: readonly WireEpisode[];
  /** Number of lines that are not episodes, which are left out. */
  readonly wrong_lines: number;
}

/** One exchange with a judge. */
export interface WireJudgement {
  readonly question: string;
  readonly model: string;
  readonly text: string;
  readonly problem: string | null;
  readonly scores: readonly number[];
  readonly attempts: number;
  readonly latency_ms: number;
}

export interface WireExperiment {
  /** `FOLDER/NAME`. */
  readonly id: string;
  readonly name: string;
  readonly runs: number;
  readonly states: Readonly<Partial<Record<WireState, number>>>;
  readonly axes: readonly string[];
  /** Whether a scheduler is working on it. */
  readonly swept: boolean;
}

export interface WireCell {
  readonly axes: Readonly<Record<string, string>>;
  readonly is_baseline: boolean;
  /** Over the finished runs. */
  readonly mean: WireNumber;
  readonly std: WireNumber;
  readonly n: number;
  readonly difference: { readonly mean: number; readonly stderr: WireNumber; readonly n: number } | null;
  readonly runs: readonly {
    readonly id: string | null;
    readonly name: string;
    readonly seed: string | null;
    readonly state: WireState;
    readonly iteration: number;
    readonly num_iterations: number;
    /** The last held-out number so far, by the measure that cells are compared by. */
    readonly held_out: WireNumber;
  }[];
}

export interface WireMatrix {
  readonly id: string;
  readonly name: string;
  readonly swept: boolean;
  /** Axes without the seed, each with its values. */
  readonly axes: readonly { readonly name: string; readonly values: readonly string[] }[];
  readonly metric: string | null;
  readonly less_is_better: boolean;
  /** Whether its cells' numbers measure the same thing; otherwise they cannot be ranked. */
  readonly comparable: boolean;
  readonly caption: string;
  /** The actions for its sweep. */
  readonly actions: readonly WireAction[];
  readonly cells: readonly WireCell[];
}

/** An image of an example, where it is found: by its name in the run's media, or by its index in a report; null if there is none. */
export interface WireShown {
  readonly label: string;
  readonly score: number | null;
  readonly at: string | null;
}

/** How a run's answers to held-out prompts changed from its first evaluation to its last. */
export interface WireChanges {
  readonly before: number;
  readonly after: number;
  readonly change: { readonly mean: number; readonly stderr: WireNumber; readonly n: number };
  readonly better: number;
  readonly same: number;
  readonly worse: number;
  readonly examples: readonly {
    readonly prompt: string;
    readonly gain: number;
    readonly images: readonly WireShown[];
  }[];
}

/** A text: plain, or marked as an identifier, as a sign that something is wrong, or as a side remark. */
export type WireText = string | { readonly text: string; readonly as: 'code' | 'bad' | 'quiet' };

/** Content of a table cell or a line: one text, or several. */
export type WireContent = WireText | readonly WireText[];

export interface WireFact {
  readonly name: string;
  readonly value: WireText;
  readonly more: string | null;
}

export interface WireTable {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly WireContent[])[];
  /** The first column with numbers; absent if there is none. */
  readonly numbers_from?: number;
  /** Whether rows contain long texts, so that each cell gets its own line on a narrow screen. */
  readonly long?: true;
}

/** A part of a report. */
export type WireBlock =
  | { readonly kind: 'heading'; readonly text: string }
  /** A paragraph. */
  | { readonly kind: 'text'; readonly text: WireContent }
  | ({ readonly kind: 'table'; readonly label: string; readonly folded: boolean } & WireTable)
  /** All curves except that of the leading metric. */
  | { readonly kind: 'curves' }
  /** Where the seconds of an iteration go. */
  | {
      readonly kind: 'times';
      readonly shares: readonly string[];
      readonly rows: readonly { readonly label: string; readonly total: number; readonly seconds: readonly number[] }[];
    }
  /** Pictures in the report, by their indices in `WireReport.pictures`; null for one that cannot be read, which `label` says. */
  | {
      readonly kind: 'pictures';
      readonly title: string;
      readonly pictures: readonly { readonly label: string; readonly at: number | null }[];
    };

/** A report: of a run, of an experiment, or of runs side by side. */
export interface WireReport {
  readonly heading: string;
  readonly about: WireContent;
  /** What the run is doing, if the report is about one. */
  readonly run: { readonly state: WireState; readonly iteration: number; readonly num_iterations: number } | null;
  readonly facts: readonly WireFact[];
  /** Problems or warnings, shown above everything else; null if there are none. */
  readonly notice: { readonly title: string; readonly texts: readonly string[] } | null;
  /** The held-out metric that it begins with; null if there is none. */
  readonly leading: string | null;
  /** What that metric measures, such as `viescore, 0 to 10`; null if unknown, or not the same for all that is shown. */
  readonly scale: string | null;
  /** How the held-out answers of the run changed; null for several runs, and before a second evaluation. */
  readonly changes: WireChanges | null;
  readonly curves: WireCurves;
  readonly sections: readonly { readonly title: string; readonly blocks: readonly WireBlock[] }[];
  /** As data addresses. */
  readonly pictures: readonly string[];
}

/** Runs side by side on the dashboard, compared with the first of them. */
export interface WireComparison extends Pick<WireReport, 'about' | 'facts' | 'notice' | 'sections'> {
  /** Sections above the curves, which are asked for apart: they are there earlier. */
  readonly above_curves: WireReport['sections'];
  /** In the order in which they were asked for; the curves have a color and a letter for each. */
  readonly runs: readonly WireRun[];
  /** Ids of those that have one. */
  readonly with_contact_sheet: readonly string[];
}

/** An event of the stream. */
export type WireEvent =
  | { readonly kind: 'changed'; readonly ids: readonly string[]; readonly more: boolean }
  | { readonly kind: 'notice'; readonly level: 'info' | 'error'; readonly text: string };

/** A message of a followed log. */
export type WireLog =
  { readonly kind: 'text'; readonly text: string } | { readonly kind: 'end'; readonly reason: string | null };

/** The form of errors of all of this program's servers. */
export interface WireError {
  readonly error: { readonly message: string; readonly type: string; readonly code: number };
}
