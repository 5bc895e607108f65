/** Opens `edit_response`: a vision-language model writes words, whose hidden states tell a frozen model how to edit a picture. */
import type { LongestStates } from '../../environments/render_server/client.js';
import type { RunResolver } from '../../models/reference.js';
import { imagesServer, type EditorSettings } from '../../schema/editor.js';
import type { TrainingContext } from '../../train/context.js';
import { requireCapabilities } from '../../train/capabilities.js';
import { openImagesServer, openStoredPictures } from '../../train/remote_pictures.js';
import { openRenderServer, openStoredRenders } from '../../train/remote_pictures.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openPicturedTask, samplePictured, type PicturedTask } from '../open_pictured.js';
import { startingSeeingModel } from '../open_vision_inputs.js';
import { openWordsTraining } from '../open_words.js';
import { picturedData } from '../../tiny/world/pictured.js';
import { keepsStart, StatesReader, type Drawing } from './drawing.js';
import { longestEdit } from './longest.js';
import { OwnDrawing } from './own_drawing.js';
import { RenderDrawing } from './render_drawing.js';
import type { EditResponseSettings } from './settings.js';
import { checkSources } from './sources.js';
import { ResponseTask } from './task.js';
import { TextPromptDrawing } from './text_prompt_drawing.js';

/** Reads what the policy wrote. */
interface Reading {
  readonly reader: StatesReader;
  /** Width of a hidden state. */
  readonly width: number;
  /** Tokens of the longest edit that the run may ask for, and of its blank instruction. */
  readonly longest: () => Promise<LongestStates>;
}

/** How each kind of environment draws, in a run and from its records. */
interface Kind<E extends EditorSettings> {
  open(
    settings: EditResponseSettings,
    environment: E,
    reading: Reading,
    context: TrainingContext,
  ): Promise<Drawing> | Drawing;
  again(settings: EditResponseSettings, environment: E, resolveRun: RunResolver): Drawing;
}

type Kinds = { readonly [T in EditorSettings['type']]: Kind<Extract<EditorSettings, { readonly type: T }>> };

const kinds: Kinds = {
  model: {
    open: (_, environment, { reader }, { resolveRun }) => OwnDrawing.open(environment, reader, resolveRun),
    again: (_, environment, resolveRun) => OwnDrawing.open(environment, null, resolveRun),
  },
  render_server: {
    open: async (settings, environment, { reader, ...sent }, context) =>
      new RenderDrawing(environment, { reader, images: await openRenderServer(settings, environment, sent, context) }),
    again: (settings, environment) =>
      new RenderDrawing(environment, { reader: null, images: openStoredRenders(settings, environment) }),
  },
  images_api_text_prompt: {
    open: async (settings, environment, _, context) =>
      new TextPromptDrawing(environment, await openImagesServer(settings, imagesServer(environment), context, 'edits')),
    again: (settings, environment) =>
      new TextPromptDrawing(environment, openStoredPictures(settings, imagesServer(environment))),
  },
};

function kindOf<E extends EditorSettings>({ type }: E): Kind<E> {
  return kinds[type] as unknown as Kind<E>;
}

async function open(settings: EditResponseSettings, context: TrainingContext): Promise<Training> {
  const { resolveRun } = context;
  const pictured = await openTold(settings, resolveRun);
  const { words, seeing } = pictured;
  const { environment } = settings;
  const model = startingSeeingModel(settings, words.format, seeing, resolveRun);
  if (environment === null) return openWordsTraining(settings, context, words, { model: () => model, isScored: false });
  return openWordsTraining(settings, context, words, {
    model: () => model,
    keepsStart: keepsStart(environment),
    around: async (policy) => {
      requireCapabilities(policy.capabilities, { hiddenStates: 'read_by' in environment });
      const width = model.config.hidden_size;
      const reader = new StatesReader(environment, policy);
      const reading: Reading = { width, reader, longest: () => longestEdit(pictured, settings) };
      return asTask(pictured, environment, await kindOf(environment).open(settings, environment, reading, context));
    },
  });
}

/** Raises DataError as `checkSources`. */
async function asTask(
  pictured: PicturedTask<EditResponseSettings>,
  environment: EditorSettings,
  drawing: Drawing,
): Promise<ResponseTask> {
  try {
    checkSources(pictured, pictured.words.settings, drawing);
  } catch (cause) {
    await drawing.dispose();
    throw cause;
  }
  return new ResponseTask(pictured, environment, drawing);
}

/** The words sent to a server leave out the policy's thoughts, as those that rewards read do. */
function openTold(
  settings: EditResponseSettings,
  resolveRun: RunResolver,
): Promise<PicturedTask<EditResponseSettings>> {
  const { environment, policy } = settings;
  if (environment === null || !('thinking' in environment)) return openPicturedTask(settings, resolveRun);
  const { thinking } = environment;
  const cutting = { ...settings, policy: { ...policy, thinking } };
  return openPicturedTask(cutting, resolveRun);
}

export const editResponse: OpenRecipe<EditResponseSettings> = {
  makeData: picturedData.make,
  open,
  promptRoom: async (settings, resolveRun) => (await openTold(settings, resolveRun)).words.room(),
  openTask: async (settings, resolveRun) => {
    const pictured = await openTold(settings, resolveRun);
    const { environment } = settings;
    if (environment === null) return pictured.words;
    return asTask(pictured, environment, kindOf(environment).again(settings, environment, resolveRun));
  },
  sampleRows: async (settings, count) => (settings.environment === null ? [] : samplePictured(settings, count)),
};
