/** What training servers give of an adapter, read into files that the other commands use. */
import { describe, expect, it } from 'vitest';
import { adapterFilesIn } from '../../../../src/train/policies/tinker/served.js';
import { openModel } from '../../../../src/models/adapters/decoder.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { adapterCheckpoint } from '../exported.js';
import { archiveOf, skyrlAdapter } from './archived.js';

const newFolder = testFolders('archive');

describe("a training server's archive of an adapter", () => {
  it.each(['all_linear', 'rslora'])(
    'holds the model that was trained, though it does not say its layers: %s',
    async (name) => {
      const { checkpoint, base } = adapterCheckpoint(newFolder(), name);
      const archive = await archiveOf(skyrlAdapter(checkpoint));
      const folder = newFolder();
      writeCheckpoint(folder, await adapterFilesIn(archive, base, 'http://server'));
      expect(openModel(folder).weights).toEqual(openModel(checkpoint).weights);
      expect(openModel(folder).weights).not.toEqual(openModel(base).weights);
    },
  );

  it('is read unzipped, and from a folder within it', async () => {
    const { checkpoint, base } = adapterCheckpoint(newFolder());
    const files = skyrlAdapter(checkpoint);
    const found = await adapterFilesIn(
      await archiveOf(files, { isZipped: false, folder: './' }),
      base,
      'http://server',
    );
    expect(found).toEqual(await adapterFilesIn(await archiveOf(files), base, 'http://server'));
  });

  it.each<[string, Readonly<Record<string, Uint8Array | string>>, RegExp]>([
    ['the whole model', { 'config.json': '{}', 'model-00001-of-00002.safetensors': 'x' }, /returned the whole model/],
    ['a mark alone', { MARKER: 'weights live in GPU memory' }, /returned MARKER instead of adapter_model/],
    ['a tensor that is none of an adapter', { 'base_model.model.lm_head.weight': '' }, /is not a tensor of a LoRA/],
    ['an adapter of a kind that is not supported', { use_dora: 'true' }, /use_dora: true: DoRA has magnitudes/],
    ['no JSON', { config: '{' }, /not valid JSON/],
  ])('is rejected where it holds %s', async (_, changes, message) => {
    const { checkpoint, base } = adapterCheckpoint(newFolder());
    const whole = skyrlAdapter(checkpoint);
    await expect(adapterFilesIn(await archiveOf(changed(whole, changes)), base, 'http://server')).rejects.toThrow(
      message,
    );
  });

  it('is rejected where it is no archive, or is cut off', async () => {
    const { checkpoint, base } = adapterCheckpoint(newFolder());
    const archive = await archiveOf(skyrlAdapter(checkpoint));
    for (const bytes of [archive.subarray(0, archive.length / 2), Buffer.from('<html>'.repeat(200))]) {
      await expect(adapterFilesIn(bytes, base, 'http://server')).rejects.toMatchObject({ code: 'checkpoint' });
    }
  });
});

/** Other files in place of the adapter's, another key of its description, or another tensor beside its own. */
function changed(
  whole: Readonly<Record<string, Uint8Array | string>>,
  changes: Readonly<Record<string, Uint8Array | string>>,
): Readonly<Record<string, Uint8Array | string>> {
  const [[name, content]] = Object.entries(changes);
  if (name === 'config') return { ...whole, 'adapter_config.json': content };
  if (name === 'use_dora') {
    const config = JSON.parse(String(whole['adapter_config.json'])) as object;
    return { ...whole, 'adapter_config.json': JSON.stringify({ ...config, use_dora: true }) };
  }
  if (!name.startsWith('base_model.')) return changes;
  const header = JSON.stringify({ [name]: { dtype: 'F32', shape: [0], data_offsets: [0, 0] } });
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  return { ...whole, 'adapter_model.safetensors': Buffer.concat([size, Buffer.from(header)]) };
}
