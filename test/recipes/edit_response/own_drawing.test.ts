/** What a frozen model of this process draws with in edit_response. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { safetensorsPieces } from '../../../src/core/safetensors.js';
import { flowConfigJson, type FluxConfig } from '../../../src/compute/nets/flow/config.js';
import { OwnDrawing } from '../../../src/recipes/edit_response/drawing.js';
import type { OwnEditor } from '../../../src/config/schema/editor.js';
import { config, smallFlow } from '../../train/policies/flow/small_flow.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('own-drawing');

it('holds its matrices as environment.engine.dtype says, and rejects by name what float16 does not hold', async () => {
  const of: FluxConfig = { ...config, in_channels: 24, out_channels: 12, ip_adapter: null };
  const { weights } = smallFlow('all', 1, of);
  const name = 'transformer_blocks.0.attn.to_k.weight';
  must(weights.get(name), name).data[0] = 1e5;
  const folder = newFolder();
  writeFileSync(join(folder, 'config.json'), flowConfigJson(of));
  writeFileSync(join(folder, 'policy.safetensors'), Buffer.concat(safetensorsPieces(weights)));
  const open = (dtype: string): OwnDrawing => {
    const engine = { type: 'onnx', provider: 'cpu', threads: 1, dtype };
    const around = { parts: { vae: null }, num_steps: 2, guidance_scale: null, pictures_at_once: 1, max_pixels: null };
    const environment = { model: folder, model_type: 'tiny', ...around, engine } as unknown as OwnEditor;
    return OwnDrawing.open(environment, null, () => folder);
  };
  expect(() => open('float16')).toThrow(`tensor ${name} contains 100000, beyond 65504`);
  await open('float32').dispose();
});
