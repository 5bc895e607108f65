import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { floatsToHalves, HalfTensor, halvesToFloats } from '../../../../src/core/half.js';
import { toPlanes, type Planes } from '../../../../src/core/images/planes.js';
import { RandomStream } from '../../../../src/core/random.js';
import { safetensorsPieces } from '../../../../src/core/safetensors.js';
import { pixelCodec } from '../../../../src/train/environments/image_codec.js';
import {
  flowConfigJson,
  type FluxConfig,
  type FlowTransformerConfig,
  type QwenImageConfig,
} from '../../../../src/compute/nets/flow/config.js';
import { FlowEditor, type Edit } from '../../../../src/train/policies/flow/editor.js';
import { Reader, type HiddenStates } from '../../../../src/train/policies/tokens/hidden_states.js';
import { given, modelOf, prompts } from '../../../compute/nets/vision/fixture.js';
import { testFolders } from '../../../support/folder.js';
import { config, smallFlow } from './small_flow.js';

const newFolder = testFolders('flow-editor');

const WIDTH = 32;
const SIDE = 8;
const PATCH = 2;

/** The source stands beside the pixels that are drawn. */
const besides: FluxConfig = {
  ...config,
  in_channels: 2 * 3 * PATCH ** 2,
  out_channels: 3 * PATCH ** 2,
  joint_attention_dim: WIDTH,
  ip_adapter: null,
};
/** It is shown as further tokens, as Qwen-Image-Edit is. */
const further: QwenImageConfig = {
  architecture: 'qwen_image',
  in_channels: 3 * PATCH ** 2,
  out_channels: 3,
  patch_size: PATCH,
  zero_cond_t: false,
  num_layers: 2,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: WIDTH,
  axes_dims_rope: [4, 2, 2],
  ip_adapter: null,
  prediction: 'velocity',
  condition_dropout: null,
};

const options = { type: 'tiny', steps: 3, guidance: null, batch: 2, session: { threads: 1 } } as const;
const editors: FlowEditor[] = [];
const reader = new Reader(modelOf('qwen2_5_vl'), { session: { threads: 1 } });

afterAll(async () => {
  await Promise.all([...editors.map((editor) => editor.dispose()), reader.dispose()]);
});

function editor(of: FlowTransformerConfig): { readonly editor: FlowEditor; readonly weights: () => Float32Array[] } {
  const model = smallFlow('all', 1, of);
  const made = new FlowEditor(model, pixelCodec, options, 'here');
  editors.push(made);
  return { editor: made, weights: () => [...model.weights.values()].map(({ data }) => data.slice()) };
}

function source(seed: number): Planes {
  const stream = new RandomStream('source', seed);
  const data = Uint8Array.from({ length: SIDE * SIDE * 3 }, () => stream.integer(256));
  return toPlanes({ width: SIDE, height: SIDE, data });
}

/** What the small model that sees makes of its prompts with their answers. */
async function told(): Promise<HiddenStates[]> {
  const seen = prompts();
  const items = given.prompts.flatMap(({ answers }, p) =>
    answers.map((ids) => ({ prompt: seen[p], answer: Int32Array.from(ids), from: 2 })),
  );
  return reader.read(items, reader.model.weights);
}

const ask = (states: HiddenStates, seed = 1, noise = 1): Edit => ({
  source: source(seed),
  states: states,
  random: new RandomStream('noise', noise),
});

describe.each([
  ['beside its own latents', besides],
  ['as further tokens', further],
])('a frozen model that is shown the source %s', (_, of) => {
  it('edits to the bit as with float32 of the same numbers where it is stored in float16', async () => {
    const folder = newFolder();
    const weights = [...smallFlow('all', 1, of).weights].map(
      ([name, { shape, data }]) => [name, { shape, data: halvesToFloats(floatsToHalves(data)) }] as const,
    );
    writeFileSync(join(folder, 'config.json'), flowConfigJson(of));
    writeFileSync(join(folder, 'policy.safetensors'), Buffer.concat(safetensorsPieces(new Map(weights))));
    const widened = vi.spyOn(HalfTensor.prototype, 'data', 'get');
    const [half, wide] = (['float16', 'float32'] as const).map((held) =>
      FlowEditor.open(folder, pixelCodec, { ...options, held }),
    );
    editors.push(half, wide);
    const [states] = await told();
    const wanted = await wide.draw([ask(states)]);
    expect(await half.draw([ask(states)])).toEqual(wanted);
    expect(widened).not.toHaveBeenCalled();
    widened.mockRestore();
    // What float16 does not hold is refused where it is to be held so.
    weights.find(([, { shape }]) => shape.length > 1)![1].data[0] = 70_000;
    writeFileSync(join(folder, 'policy.safetensors'), Buffer.concat(safetensorsPieces(new Map(weights))));
    expect(() => FlowEditor.open(folder, pixelCodec, { ...options, held: 'float16' })).toThrow('beyond 65504');
  });

  it('edits by its instruction, its source, and its noise', async () => {
    const states = await told();
    const { editor: by } = editor(of);
    const base = (await by.draw([ask(states[0])]))[0];
    expect([base.width, base.height]).toEqual([SIDE, SIDE]);
    const others = [ask(states[1]), ask(states[2]), ask(states[0], 2), ask(states[0], 1, 2)];
    for (const other of await by.draw(others)) expect(other.data).not.toEqual(base.data);
    // Same bytes, whatever else is drawn.
    expect((await by.draw([ask(states[3]), ask(states[0])]))[1].data).toEqual(base.data);
  });
});

describe('a frozen model', () => {
  it.each([
    [
      'that only paints into masks',
      { ...besides, in_channels: 17 },
      /the model takes tokens of 17 numbers and returns 12/,
    ],
    ['of other latents', { ...besides, in_channels: 10, out_channels: 5 }, /latents have 3 channels/],
    ['that wants a summary', { ...besides, pooled_projection_dim: 4 }, /needs a pooled text vector/],
  ])('%s is rejected', (_, of, message) => {
    expect(() => editor(of)).toThrow(message);
  });
});
