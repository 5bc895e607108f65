/** Edits under guidance against diffusers' QwenImageEditPipeline; scripts/fixtures/edit_pipeline.py made what is expected. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { RandomStream } from '../../../src/core/random.js';
import { readSafetensors, readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { FlowEditor, type Edit } from '../../../src/policies/flow/editor.js';
import { pack } from '../../../src/policies/flow/packing.js';
import type { HiddenStates } from '../../../src/policies/tokens/hidden_states.js';

const folder = join(import.meta.dirname, 'fixtures', 'guided_edit');
const file = join(folder, 'expected.safetensors');
const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
const numbers = (name: string): Float32Array => expected.get(name)!.data;
const [channels, height, width] = expected.get('source')!.shape;

const editors: FlowEditor[] = [];
afterAll(() => Promise.all(editors.map((editor) => editor.dispose())));

function editor(guidance: number | null): FlowEditor {
  const options = { type: 'qwen', steps: 4, guidance, batch: 2, session: { threads: 1 } } as const;
  const made = FlowEditor.open(folder, { channels }, options);
  editors.push(made);
  return made;
}

const states = (name: string): HiddenStates => {
  const [tokens, wide] = expected.get(name)!.shape;
  return { width: wide, states: numbers(name), ids: new Int32Array(tokens) };
};

/** The edit that the pipeline drew, from the noise that it began with. */
function edit(blank: boolean): Edit {
  let at = 0;
  const random = { uniform: () => 0, normal: () => numbers('noise')[at++] } as unknown as RandomStream;
  const source = { channels, height, width, data: numbers('source') };
  return { source, states: states('told'), random, ...(blank ? { blank: states('blank') } : {}) };
}

function worst(found: Float32Array, name: string): number {
  const wanted = numbers(name);
  expect(found.length).toBe(wanted.length);
  return Math.max(...wanted.map((x, i) => Math.abs(x - found[i]))) / Math.max(...wanted.map(Math.abs));
}

describe('an edit of a Qwen-Image transformer', () => {
  it("ends as the pipeline's under guidance, measured from a blank instruction of another length", async () => {
    const by = editor(4);
    expect(by.asksBlank).toBe(true);
    // Two at a time, of which one is drawn for company.
    const [drawn, other] = await by.draw([edit(true), edit(true)]);
    expect(worst(pack(drawn, by.patch), 'guided')).toBeLessThan(1e-5);
    expect(other.data).toEqual(drawn.data);
  });

  it("ends as the pipeline's without guidance", async () => {
    const by = editor(null);
    expect(by.asksBlank).toBe(false);
    const [drawn] = await by.draw([edit(false)]);
    expect(worst(pack(drawn, by.patch), 'unguided')).toBeLessThan(1e-5);
    // The two are far apart.
    expect(worst(pack(drawn, by.patch), 'guided')).toBeGreaterThan(0.1);
  });
});
