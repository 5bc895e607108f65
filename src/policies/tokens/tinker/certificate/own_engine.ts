/** What this program computes of a server's base model, where its folder can be read here. */
import { existsSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { EditrlError } from '../../../../core/errors.js';
import type { SessionOptions } from '../../../../engines/onnx/session.js';
import { sizeOf } from '../../../../graph/ir.js';
import { soloPeers } from '../../../../group/peers.js';
import { CONFIG_FILE } from '../../../../models/files.js';
import { decoderParameters } from '../../../../nets/decoder/config.js';
import type { TrainedParts } from '../../../../nets/vision/config.js';
import { describeModel } from '../../adapter.js';
import type { TokenFormat } from '../../format.js';
import { Learner } from '../../learner.js';
import { loadPolicy } from '../../load.js';
import type { OwnEngine } from './certify.js';

const GIGABYTE = 1e9;
/** Weights are float32 here; what is computed needs memory, too. */
const BYTES = 4;
const ROOM = 1.5;
const AT_ONCE = 4;

/**
 * `parts` is given for a model that sees, and decides nothing here. By the name that the server has for its model, which may be a folder. Reads nothing but the
 * model's description before it is asked.
 */
export function ownEngine(
  baseModel: string,
  format: TokenFormat,
  session: SessionOptions,
  parts: TrainedParts | null = null,
): OwnEngine {
  if (!isAbsolute(baseModel) || !existsSync(join(baseModel, CONFIG_FILE))) {
    return { why: 'policy.trainer.base_model is no folder on this machine' };
  }
  try {
    const parameters = decoderParameters(describeModel(baseModel, parts === null ? 'words' : 'words and pictures'));
    const bytes = BYTES * [...parameters.values()].reduce((sum, { shape }) => sum + sizeOf(shape), 0);
    const free = process.availableMemory();
    if (ROOM * bytes > free) {
      const [needed, had] = [ROOM * bytes, free].map((one) => (one / GIGABYTE).toFixed(1));
      return { why: `its model needs ${needed} GB of memory on this machine, and ${had} are free` };
    }
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return { why: `this program does not compute its model: ${error.message}` };
  }
  return {
    logProbs: async (sequences) => {
      const model = loadPolicy(baseModel, format, null, parts);
      const options = {
        temperature: 1,
        separateVocabularies: false,
        microBatch: AT_ONCE,
        gradientCheckpointing: false,
      };
      const learner = new Learner(model, { ...options, session, peers: soloPeers });
      try {
        const groups = sequences.map(({ prompt, pictures = [], answer }) => ({
          prompt: { tokens: { ids: prompt, pictures } },
          answers: [{ ids: answer }],
        }));
        const found = await learner.statistics(groups, model.weights);
        return found.map(([{ logProbs }]) => logProbs);
      } finally {
        await learner.dispose();
      }
    },
  };
}
