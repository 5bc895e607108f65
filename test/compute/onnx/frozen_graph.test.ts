import { afterEach, expect, it, vi } from 'vitest';
import { Session } from '../../../src/compute/onnx/session.js';
import { testFolders } from '../../support/folder.js';
import { frozenModels } from './frozen_models.js';

const newFolder = testFolders('frozen');
afterEach(() => vi.restoreAllMocks());

it.each(Object.keys(frozenModels))('reports that all which it reads is frozen: %s', async (name) => {
  const compile = vi.spyOn(Session, 'compile');
  const made = await frozenModels[name]('cpu', newFolder());
  expect(made.every(Number.isFinite)).toBe(true);
  expect(compile).toHaveBeenCalled();
  for (const [{ parameters }, , options] of compile.mock.calls) {
    expect(parameters.size).toBeGreaterThan(0);
    expect([...parameters.keys()].filter((one) => options?.frozen?.has(one) !== true)).toEqual([]);
  }
});
