/** Opens `edit_response`: a vision-language model whose words, read once more, tell a frozen model how to edit a picture. */
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FlowEditor } from '../../policies/flow/editor.js';
import type { EditorSettings } from '../../schema/editor.js';
import type { Bench } from '../../train/bench.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openCodec } from '../open_flow_parts.js';
import { openPicturedTask } from '../open_pictured.js';
import { startingSeeingModel } from '../open_seeing.js';
import { openWordsTraining } from '../open_words.js';
import { makePictured } from '../pictured_data.js';
import type { EditResponseSettings } from './settings.js';
import { ResponseTask, type Drawing, type ReadStates } from './task.js';

async function open(settings: EditResponseSettings, bench: Bench): Promise<Training> {
  const { resolveRun } = bench;
  const pictured = await openPicturedTask(settings, resolveRun);
  const { words, seeing } = pictured;
  const { environment } = settings;
  const model = startingSeeingModel(settings, words.format, seeing, resolveRun);
  if (environment === null) return openWordsTraining(settings, bench, words, { model, isScored: false });
  return openWordsTraining(settings, bench, words, {
    model,
    around: async (policy) => {
      const read: ReadStates = (items, of) => policy.read(items, of);
      return new ResponseTask(pictured, environment, openDrawing(environment, read, resolveRun));
    },
  });
}

/** Raises CheckpointError where the model that draws or a part of it cannot be read, or they do not go together. */
function openDrawing(environment: EditorSettings, read: ReadStates | null, resolveRun: RunResolver): Drawing {
  const { model, model_type: type, parts, num_steps: steps, pictures_at_once: batch, engine } = environment;
  const codec = openCodec(parts.vae, engine, resolveRun);
  const options = { type, steps, batch, session: sessionOptions(engine) };
  return { codec, read, editor: FlowEditor.open(modelFolder(model, resolveRun), codec, options) };
}

export const editResponse: OpenRecipe<EditResponseSettings> = {
  makeData: makePictured,
  open,
  openTask: async (settings, resolveRun) => {
    const pictured = await openPicturedTask(settings, resolveRun);
    const { environment } = settings;
    if (environment === null) return pictured.words;
    return new ResponseTask(pictured, environment, openDrawing(environment, null, resolveRun));
  },
};
