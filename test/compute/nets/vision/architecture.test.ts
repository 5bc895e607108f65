import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readArchitecture, visionDecoderJson } from '../../../../src/compute/nets/decoder/architectures.js';
import { hasVision } from '../../../../src/compute/nets/decoder/config.js';
import { readVision } from '../../../../src/compute/nets/vision/config.js';
import { families, folderOf } from './fixture.js';

const both = 'words and images';

it.each([
  [[2, 1], /deepstack_visual_indexes: found \[2, 1\]; allowed: ascending numbers of blocks below depth, 4/],
  [[1, 4], /deepstack_visual_indexes: found \[1, 4\]/],
])('rejects DeepStack of blocks %j', (deepstack_visual_indexes, message) => {
  const vision_config = { depth: 4, out_hidden_size: 8, deepstack_visual_indexes };
  expect(() => readVision({ model_type: 'qwen3_vl', vision_config }, 8, 'config.json')).toThrow(message);
});

it.each([
  ['mrope_interleaved', { rope_parameters: { mrope_interleaved: false } }, {}, /mrope_interleaved false is not/],
  ['the activation', {}, { hidden_act: 'silu' }, /vision_config\.hidden_act/],
  ['the rotation', {}, { rope_parameters: { rope_theta: 500 } }, /vision_config\.rope_parameters\.rope_theta/],
])('rejects another value of %s', (_, text, vision, message) => {
  const sizes = { vocab_size: 9, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 4, num_attention_heads: 2 };
  const json = {
    model_type: 'qwen3_vl',
    text_config: { ...sizes, ...text },
    vision_config: { out_hidden_size: 8, ...vision },
  };
  expect(() => readArchitecture(json, 'config.json', 'words and images')).toThrow(message);
});

it('is written as it is read', () => {
  for (const family of families) {
    const { config } = readArchitecture(
      JSON.parse(readFileSync(join(folderOf(family), 'config.json'), 'utf8')),
      'a',
      both,
    );
    if (!hasVision(config)) throw new Error('it sees');
    const again = JSON.parse(JSON.stringify(visionDecoderJson(config))) as unknown;
    expect(readArchitecture(again, 'b', both).config).toEqual(config);
  }
});

it('rejects a model whose windows hold no token', () => {
  const read = (window_size: number) =>
    readVision({ model_type: 'qwen2_5_vl', vision_config: { out_hidden_size: 8, window_size } }, 8, 'config.json');
  expect(read(28).windows?.window_size).toBe(28);
  expect(() => read(27)).toThrow(/vision_config\.window_size: found 27; allowed: at least .* \(28\)/);
});
