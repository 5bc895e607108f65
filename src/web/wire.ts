/** The data that the dashboard server or a report sends to the page. Types only, because the server and the page both compile this file. */
import type { Curve } from '../core/curves.js';

/** A row of `editrl ls`. */
export type WireState =
  'queued' | 'running' | 'waiting' | 'finished' | 'failed' | 'interrupted' | 'dead' | 'unreadable';

/** A number in JSON. Null if it is missing or not finite. */
export type WireNumber = number | null;

/** The held-out numbers of a run's last and first evaluation. */
export interface WireHeldOut {
  readonly metric: string;
  /** The name of the reward or loss, such as `viescore`. Null if unknown. */
  readonly label: string | null;
  /** The name with its range, or with a note that lower is better. */
  readonly scale: string | null;
  readonly before: WireNumber;
  readonly after: WireNumber;
  /** The standard error of the last number over prompts. Null if unknown, for example for losses. */
  readonly stderr: WireNumber;
  /** The iteration of the last evaluation. */
  readonly iteration: number;
}

export interface WireRun {
  /** `FOLDER/NAME`. FOLDER is an index into the folders of `WireRuns`, from 0. */
  readonly id: string;
  readonly name: string;
  readonly state: WireState;
  readonly iteration: number;
  readonly num_iterations: number;
  readonly reward: WireNumber;
  readonly held_out: WireHeldOut | null;
  /** Names of the hack alarms that are active in the last iteration. */
  readonly alarms: readonly string[];
  /** The last heartbeat, in milliseconds since 1970. */
  readonly heartbeat: number | null;
  readonly where: string | null;
  readonly reason: string | null;
  /** The requested settings, in order. Null for missing ones. */
  readonly values: readonly unknown[];
}

/** A hack alarm that was raised. */
export interface WireAlarm {
  readonly name: string;
  /** The statistic that it watches, and its value when the alarm was raised. Null if unknown. */
  readonly metric: string;
  readonly value: WireNumber;
  /** The first and last iteration in which it was active. */
  readonly span: readonly [from: number, to: number];
  /** Whether it is active in the last iteration. */
  readonly active: boolean;
  /** The limits in the settings, such as `max_fall 0.4, max_rise 1`. Null if unknown. */
  readonly limits: string | null;
}

export interface WireRuns {
  readonly folders: readonly string[];
  /** Number of runs, and of matching runs. */
  readonly total: number;
  readonly matching: number;
  /** Index of the first of `runs` among the matching ones. */
  readonly offset: number;
  readonly runs: readonly WireRun[];
  /** Matching runs by state. */
  readonly states: Readonly<Partial<Record<WireState, number>>>;
  /** Number of discovered runs that were not read yet. */
  readonly unread: number;
  /** Problems with folders. */
  readonly problems: readonly string[];
}

/** A setting with its number of distinct values. */
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

/** The actions for a run. A sweep has only those that stop it. */
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
  /** The runs that it was initialized from. The id is null for a missing run. */
  readonly parents: readonly { readonly name: string; readonly id: string | null }[];
  readonly attempts: readonly WireAttempt[];
  readonly checkpoints: readonly number[];
  /** The best checkpoint, such as `40, reward 4.213`. `checkpoint.keep_best` selects the metric. */
  readonly best_checkpoint: string | null;
  /** Number of processes of an attempt, each with its own log. */
  readonly processes: number;
  readonly has_contact_sheet: boolean;
  /** In the order of their first iteration. */
  readonly alarms: readonly WireAlarm[];
  /** Estimated remaining time of a running run. Null for other states, and before three iterations were timed. */
  readonly seconds_left: WireNumber;
  readonly actions: readonly WireAction[];
}

/**
 * One metric over iterations, without non-finite values. Its band is the standard error of a held-out number, the standard deviation over a group's
 * seeds, or the minimum and maximum of the iterations that share a point.
 */
export interface WireCurve extends Curve {
  readonly metric: string;
  /** The run or cell, if `WireCurves.groups` contains several. */
  readonly group?: string;
  /** The last value before smoothing, averaged over the runs of a cell. Absent for a single run, whose curve is not smoothed yet. */
  readonly last?: number;
}

export interface WireCurves {
  readonly metrics: readonly string[];
  readonly curves: readonly WireCurve[];
  /** The compared runs or cells, each with a color and one curve per chart. Absent if all curves are from one run. */
  readonly groups?: readonly string[];
  /** Number of further groups without curves. */
  readonly more_groups?: number;
  /** Whether the band of a group is the standard deviation over its seeds. */
  readonly over_seeds?: boolean;
  /** The hack alarms of the run, if all curves are from one run. */
  readonly alarms?: readonly { readonly metric: string; readonly span: readonly [from: number, to: number] }[];
  /** Number of lines read. */
  readonly lines: number;
  /** Number of invalid lines, which are skipped. */
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
  /** Reason for a missing score or a zero. */
  readonly reason: string | null;
  readonly parts: Readonly<Record<string, WireNumber>>;
  readonly finished: boolean;
  readonly thought: string | null;
  /** The text of the answer, if it has any. */
  readonly text: string | null;
  readonly expected: string | null;
  /** Names of images. Null if there is none or it was not kept. */
  readonly source: string | null;
  readonly edited: string | null;
  readonly truth: string | null;
}

export interface WireEpisodes {
  /** Whether a judge scored any episode of the run. */
  readonly judged: boolean;
  readonly files: readonly WireEpisodeFile[];
  /** The file that the page shows. Null if there is none. */
  readonly shown: WireEpisodeFile | null;
  readonly total: number;
  readonly matching: number;
  readonly offset: number;
  readonly episodes: readonly WireEpisode[];
  /** Number of invalid lines, which are skipped. */
  readonly wrong_lines: number;
}

/** One exchange with a judge. */
export interface WireJudgement {
  readonly question: string;
  readonly model: string;
  readonly text: string;
  readonly problem: string | null;
  /** Null for an entry that the judge calls not applicable. */
  readonly scores: readonly (number | null)[];
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
  /** Whether a scheduler is running it. */
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
    /** The latest held-out number, by the measure for comparing cells. */
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
  /** Whether the cells use the same measure. Otherwise they cannot be ranked. */
  readonly comparable: boolean;
  readonly caption: string;
  /** The actions that the user can take on its sweep. */
  readonly actions: readonly WireAction[];
  readonly cells: readonly WireCell[];
}

/** An image of an example: its name in the run's media, or its index in a report. Null if there is none. */
export interface WireShown {
  readonly label: string;
  readonly score: number | null;
  readonly at: string | null;
}

/** Changes of a run's held-out answers from the first to the last evaluation. */
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

/** A text: plain, an identifier, a warning, or a side remark. */
export type WireText = string | { readonly text: string; readonly as: 'code' | 'bad' | 'quiet' };

/** Content of a table cell or a line: one or several texts. */
export type WireContent = WireText | readonly WireText[];

export interface WireFact {
  readonly name: string;
  readonly value: WireText;
  readonly more: string | null;
}

export interface WireTable {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly WireContent[])[];
  /** Index of the first column with numbers. Absent if there is none. */
  readonly numbers_from?: number;
  /** Whether rows contain long texts and need one line per cell on narrow screens. */
  readonly long?: true;
}

/** A part of a report. */
export type WireBlock =
  | { readonly kind: 'heading'; readonly text: string }
  /** A paragraph. */
  | { readonly kind: 'text'; readonly text: WireContent }
  | ({ readonly kind: 'table'; readonly label: string; readonly folded: boolean } & WireTable)
  /** All curves except the leading metric's. */
  | { readonly kind: 'curves' }
  /** The time of each part of an iteration. */
  | {
      readonly kind: 'times';
      readonly shares: readonly string[];
      readonly rows: readonly { readonly label: string; readonly total: number; readonly seconds: readonly number[] }[];
    }
  /** Images, by their indices in `WireReport.images`. Null for an unreadable image, which `label` reports. */
  | {
      readonly kind: 'images';
      readonly title: string;
      readonly images: readonly { readonly label: string; readonly at: number | null }[];
    };

/** The report of a run, an experiment, or a comparison. */
export interface WireReport {
  readonly heading: string;
  readonly about: WireContent;
  /** The state of the run, if the report is about one. */
  readonly run: { readonly state: WireState; readonly iteration: number; readonly num_iterations: number } | null;
  readonly facts: readonly WireFact[];
  /** Problems or warnings, shown at the top. Null if there are none. */
  readonly notice: { readonly title: string; readonly texts: readonly string[] } | null;
  /** The held-out metric of the first chart. Null if there is none. */
  readonly leading: string | null;
  /** The scale of that metric, such as `viescore, 0 to 10`. Null if unknown, or if it differs between runs. */
  readonly scale: string | null;
  /** How the held-out answers of the run changed. Null for several runs, and before a second evaluation. */
  readonly changes: WireChanges | null;
  readonly curves: WireCurves;
  readonly sections: readonly { readonly title: string; readonly blocks: readonly WireBlock[] }[];
  /** Data URLs. */
  readonly images: readonly string[];
}

/** A comparison of runs with the first of them. */
export interface WireComparison extends Pick<WireReport, 'about' | 'facts' | 'notice' | 'sections'> {
  /** Sections above the curves. The page requests curves separately because they take longer. */
  readonly above_curves: WireReport['sections'];
  /** In the requested order. The curves have a color and a letter for each run. */
  readonly runs: readonly WireRun[];
  /** Ids of the runs with a contact sheet. */
  readonly with_contact_sheet: readonly string[];
}

/** An event of the stream. */
export type WireEvent =
  | { readonly kind: 'changed'; readonly ids: readonly string[]; readonly more: boolean }
  | { readonly kind: 'notice'; readonly level: 'info' | 'error'; readonly text: string };

/** A message of a followed log. */
export type WireLog =
  { readonly kind: 'text'; readonly text: string } | { readonly kind: 'end'; readonly reason: string | null };

/** The error format of all servers in this program. */
export interface WireError {
  readonly error: { readonly message: string; readonly type: string; readonly code: number };
}
