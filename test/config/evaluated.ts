/** Loading one config over and over: an evaluation takes far longer than what follows it, and depends on its files and variables alone. */
import { expect } from 'vitest';
import { existsSync } from 'node:fs';
import { externalVariables, importClosure, type Evaluation } from '../../src/config/jsonnet.js';
import { evaluate, loadConfig, settle, type LoadRequest, type LoadedConfig } from '../../src/config/load.js';

const evaluations = new Map<string, Promise<Evaluation>>();

/** As `loadConfig`, but files whose texts are those of an earlier call are not evaluated again. */
export async function loadEvaluated(request: LoadRequest): Promise<LoadedConfig> {
  const { file, overlays = [], env = process.env } = request;
  const roots = [file, ...overlays];
  if (!roots.every(existsSync)) return loadConfig(request);
  const key = JSON.stringify([roots, externalVariables(file, env), [...importClosure(roots)]]);
  const evaluation = evaluations.get(key) ?? evaluate(request);
  evaluations.set(key, evaluation);
  return settle(request, structuredClone(await evaluation));
}

/** A message of a config has exactly these problems, in this order: of each its key and a few words. */
export async function expectLines(message: Promise<string>, ...problems: readonly string[]): Promise<void> {
  const lines = (await message).split('\n').filter((line) => !/^\d+ problems$/.test(line));
  expect(lines).toEqual(problems.map((words) => expect.stringContaining(words) as string));
}
