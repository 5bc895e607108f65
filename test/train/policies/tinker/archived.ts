/** Archives of an adapter as training servers give them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { packTar } from 'modern-tar';

export type ArchivedFiles = Readonly<Record<string, Uint8Array | string>>;

/** SkyRL's jax backend zips its archives, megatron's does not, and has `./` before names. */
export async function archiveOf(files: ArchivedFiles, { isZipped = true, folder = '' } = {}): Promise<Uint8Array> {
  const tar = await packTar(
    Object.entries(files).map(([name, content]) => {
      const body = typeof content === 'string' ? new TextEncoder().encode(content) : content;
      return { header: { name: `${folder}${name}`, size: body.length }, body };
    }),
  );
  return isZipped ? gzipSync(tar) : tar;
}

/** The adapter of a folder as SkyRL's jax backend writes it, which leaves out which layers it has. */
export function skyrlAdapter(folder: string): ArchivedFiles {
  const config = JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8')) as object;
  return {
    'adapter_config.json': JSON.stringify({
      ...config,
      target_modules: null,
      base_model_name_or_path: 'at the server',
    }),
    'adapter_model.safetensors': readFileSync(join(folder, 'adapter_model.safetensors')),
  };
}
