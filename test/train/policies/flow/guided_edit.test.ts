/** Edits under guidance against diffusers' pipelines; test/fixture_scripts/edit_pipeline.py made what is expected. */
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Planes } from '../../../../src/core/images/planes.js';
import { GivenNoise } from '../../../support/given_noise.js';
import { readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { FlowEditor, type Edit } from '../../../../src/train/policies/flow/editor.js';
import { pack } from '../../../../src/train/policies/flow/batch.js';
import type { HiddenStates } from '../../../../src/train/policies/tokens/hidden_states.js';

const editors: FlowEditor[] = [];
afterAll(() => Promise.all(editors.map((editor) => editor.dispose())));

describe.each([
  ['QwenImageEditPipeline', 'guided_edit', 0],
  ['QwenImageEditPlusPipeline, of three images', 'several_edit', 2],
])('an edit of a Qwen-Image transformer, by %s', (_, name, beside) => {
  const folder = join(import.meta.dirname, 'fixtures', name);
  const file = join(folder, 'expected.safetensors');
  const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
  const numbers = (tensor: string): Float32Array => expected.get(tensor)!.data;
  const [channels] = expected.get('source')!.shape;

  const editor = (guidance: number | null): FlowEditor => {
    const options = { type: 'qwen', steps: 4, guidance, batch: 2, session: { threads: 1 } } as const;
    const made = FlowEditor.open(folder, { channels }, options);
    editors.push(made);
    return made;
  };

  const states = (tensor: string): HiddenStates => {
    const [tokens, wide] = expected.get(tensor)!.shape;
    return { width: wide, states: numbers(tensor), ids: new Int32Array(tokens) };
  };

  const planes = (tensor: string): Planes => {
    const [, height, width] = expected.get(tensor)!.shape;
    return { channels, height, width, data: numbers(tensor) };
  };

  /** The edit that the pipeline drew, from the noise that it began with. */
  const edit = (blank: boolean, shown = beside): Edit => {
    const random = new GivenNoise(numbers('noise'));
    const further = Array.from({ length: shown }, (_one, i) => planes(`source.${i + 1}`));
    return {
      source: planes('source'),
      ...(shown === 0 ? {} : { further }),
      states: states('told'),
      random,
      ...(blank ? { blank: states('blank') } : {}),
    };
  };

  const worst = (found: Float32Array, tensor: string): number => {
    const wanted = numbers(tensor);
    expect(found.length).toBe(wanted.length);
    return Math.max(...wanted.map((x, i) => Math.abs(x - found[i]))) / Math.max(...wanted.map(Math.abs));
  };

  it("ends as the pipeline's under guidance, measured from a blank instruction of another length", async () => {
    const by = editor(4);
    expect(by.asksBlank).toBe(true);
    expect(by.takesSeveral).toBe(true);
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
