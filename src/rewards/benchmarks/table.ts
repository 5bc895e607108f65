/** Every benchmark by its name. A new one is one file beside this one, one line here, and one line in the table of terms. */
import { gedit } from './gedit.js';
import { geditV2 } from './gedit_v2.js';
import { imgedit } from './imgedit.js';
import { kris } from './kris.js';
import { rise } from './rise.js';

export const benchmarks = { gedit, imgedit, rise, kris, gedit_v2: geditV2 } as const;

export type BenchmarkName = keyof typeof benchmarks;
export const benchmarkNames = Object.keys(benchmarks) as BenchmarkName[];
