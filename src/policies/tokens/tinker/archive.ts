/** The adapter in the archive that a training server gives of it, as files of a checkpoint in PEFT's layout. */
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { unpackTar } from 'modern-tar';
import { basename } from 'node:path/posix';
import { CheckpointError } from '../../../core/errors.js';
import { tensorNamesIn } from '../../../core/safetensors.js';
import type { CheckpointFiles } from '../../../models/files.js';
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE, layersIn, loraConfigJson } from '../../adapter_files.js';
import { readPeftConfig } from '../../peft_config.js';

/** What every gzip file begins with. */
const GZIP = Buffer.of(0x1f, 0x8b);
const WHOLE_MODEL = /^model.*\.safetensors$/;

/**
 * Some servers leave out which layers are adapted: the tensors show it. Raises CheckpointError for an archive without an adapter, or with one that
 * cannot be read here.
 *
 * @param base the model that it was trained over, by the name that others find it by.
 * @param where whence it is, for messages.
 */
export async function adapterFilesIn(archive: Uint8Array, base: string, where: string): Promise<CheckpointFiles> {
  const files = await unpacked(archive, where);
  const [config, weights] = [ADAPTER_CONFIG_FILE, ADAPTER_FILE].map((name) => files.get(name));
  if (config === undefined || weights === undefined) throw noAdapter([...files.keys()], where);
  const layers = layersIn(tensorNamesIn(weights, `${where}: ${ADAPTER_FILE}`), `${where}: ${ADAPTER_FILE}`);
  const found = Object(jsonIn(config, where)) as Readonly<Record<string, unknown>>;
  const described = { ...found, base_model_name_or_path: base, target_modules: found['target_modules'] ?? layers };
  const { lora } = readPeftConfig(described, `${where}: ${ADAPTER_CONFIG_FILE}`);
  return { [ADAPTER_CONFIG_FILE]: loraConfigJson(lora, { base }, 'CAUSAL_LM'), [ADAPTER_FILE]: weights };
}

/** Its plain files by their names, whatever folder of the archive they lie in. */
async function unpacked(archive: Uint8Array, where: string): Promise<Map<string, Uint8Array>> {
  try {
    const isZipped = GZIP.equals(archive.subarray(0, GZIP.length));
    const entries = await unpackTar(isZipped ? await promisify(gunzip)(archive) : archive);
    return new Map(entries.flatMap(({ header, data }) => (data === undefined ? [] : [[basename(header.name), data]])));
  } catch (cause) {
    throw new CheckpointError('what the server gives of the adapter is no archive that can be read', { where, cause });
  }
}

function noAdapter(names: readonly string[], where: string): CheckpointError {
  const isModel = names.some((name) => WHOLE_MODEL.test(name));
  const given = isModel ? 'the whole model, with the adapter merged into it,' : names.join(', ');
  return new CheckpointError(`the server gives ${given} in place of ${ADAPTER_FILE}`, { where });
}

function jsonIn(bytes: Uint8Array, where: string): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8')) as unknown;
  } catch (cause) {
    throw new CheckpointError('holds no JSON', { where: `${where}: ${ADAPTER_CONFIG_FILE}`, cause });
  }
}
