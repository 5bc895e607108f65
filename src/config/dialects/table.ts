/** The dialects of flat config files; each belongs to a program whose configs load unchanged. */
import type { Dialect } from './dialect.js';
import { earl } from './earl.js';
import { edit } from './edit.js';
import { enhance } from './enhance.js';
import { flow } from './flow.js';
import { video } from './video.js';

/** The first dialect that recognises a file translates it. EARL's comes last, because any one of its keys is enough for it. */
export const dialects: readonly Dialect[] = [flow, enhance, video, edit, earl];
