/** Opens `edit_response`: a vision-language model writes text, whose hidden states condition a frozen image editor. */
import type { LongestStates } from '../../train/environments/render_server.js';
import type { RunResolver } from '../../models/reference.js';
import { imagesServer, type EditorSettings } from '../../config/schema/editor.js';
import type { TrainingContext } from '../../train/context.js';
import type { OpenRecipe } from '../recipe.js';
import { requireCapabilities } from '../../train/capabilities.js';
import {
  openImagesServer,
  openStoredImages,
  openRenderServer,
  openStoredRenders,
} from '../../train/remote/remote_images.js';
import type { Training } from '../../train/loop.js';
import {
  imagesIn,
  openEditData,
  openVisionEditTask,
  sampleVisionEdits,
  writeImageEdit,
  firstImageToken,
  judgedAlone,
  sourceChecks,
  unnamedImages,
  requireSources,
  type VisionEditTask,
  type VisionEditSource,
  type SingleImage,
} from '../shared/images/edits.js';
import { startingVisionModel } from '../shared/images/vision.js';
import { openWordsTraining } from '../shared/words/training.js';
import { imageEditData } from '../../data/tiny/image_edits.js';
import { keepsStart, StatesReader, OwnDrawing, RenderDrawing, TextPromptDrawing, type Drawing } from './drawing.js';
import { datasetChecks, frozenFlowChecks, languageModelChecks, rowsCheck } from '../shared/checks.js';
import { editColumns } from '../shared/words/settings.js';
import type { EditResponseSettings } from './settings.js';
import { ResponseTask } from './task.js';
import { imageSize } from '../../core/images/image.js';
import { sourcesOf } from '../../data/image_edits.js';

/** Access to the hidden states of the policy's text. */
interface Reading {
  readonly reader: StatesReader;
  /** Width of a hidden state. */
  readonly width: number;
  /** Token counts of the longest possible edit and of its blank instruction. */
  readonly longest: () => Promise<LongestStates>;
}

/** How an environment generates images, in a run and from records. */
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
      new TextPromptDrawing(environment, openStoredImages(settings, imagesServer(environment))),
  },
};

function kindOf<E extends EditorSettings>({ type }: E): Kind<E> {
  return kinds[type] as unknown as Kind<E>;
}

async function open(settings: EditResponseSettings, context: TrainingContext): Promise<Training> {
  const { resolveRun } = context;
  const visionTask = await openEditTask(settings, resolveRun);
  const { words, seeing } = visionTask;
  const { environment } = settings;
  const model = startingVisionModel(settings, words.format, seeing, resolveRun);
  if (environment === null) return openWordsTraining(settings, context, words, { model: () => model, isScored: false });
  return openWordsTraining(settings, context, words, {
    model: () => model,
    keepsStart: keepsStart(environment),
    around: async (policy) => {
      requireCapabilities(policy.capabilities, { hiddenStates: 'read_by' in environment });
      const width = model.config.hidden_size;
      const reader = new StatesReader(environment, policy);
      const reading: Reading = { width, reader, longest: () => longestEdit(visionTask, settings) };
      return asTask(visionTask, environment, await kindOf(environment).open(settings, environment, reading, context));
    },
  });
}

/** Raises the DataErrors of `checkSources`. */
async function asTask(
  visionTask: VisionEditTask<EditResponseSettings>,
  environment: EditorSettings,
  drawing: Drawing,
): Promise<ResponseTask> {
  try {
    checkSources(visionTask, visionTask.words.settings, drawing);
  } catch (cause) {
    await drawing.dispose();
    throw cause;
  }
  return new ResponseTask(visionTask, environment, drawing);
}

/** The task that sends text to an image server. Like the text for rewards, it leaves out the policy's thoughts. */
async function openEditTask(
  settings: EditResponseSettings,
  resolveRun: RunResolver,
): Promise<VisionEditTask<EditResponseSettings>> {
  const { environment, policy } = settings;
  const data = await openEditData(settings);
  if (environment === null || !('thinking' in environment)) return openVisionEditTask(settings, data, resolveRun);
  const { thinking } = environment;
  const cutting = { ...settings, policy: { ...policy, thinking } };
  return openVisionEditTask(cutting, data, resolveRun);
}

export const editResponse: OpenRecipe<EditResponseSettings> = {
  makeData: imageEditData.make,
  checks: (settings, shapeOf) => [
    ...datasetChecks(settings, (path) => rowsCheck(path, editColumns(settings.data))),
    ...sourceChecks(settings, (one) => (one === null ? null : { ...one, most: 1 }), singleImage(settings)),
    ...languageModelChecks(settings.policy, settings.prompt),
    ...frozenFlowChecks(settings.environment, shapeOf),
  ],
  open,
  writeEdit: (settings, _resolveRun, edit) => writeImageEdit(settings, edit),
  promptRoom: async (settings, resolveRun) => (await openEditTask(settings, resolveRun)).words.room(),
  openTask: async (settings, resolveRun) => {
    const visionTask = await openEditTask(settings, resolveRun);
    const { environment } = settings;
    if (environment === null) return visionTask.words;
    return asTask(visionTask, environment, kindOf(environment).again(settings, environment, resolveRun));
  },
  sampleRows: async (settings, count) => (settings.environment === null ? [] : sampleVisionEdits(settings, count)),
};

/**
 * Token count of the row with the longest images and instruction, plus the longest possible answer if the image model
 * gets the response.
 * Estimated from the headers of image files and the bytes of texts. Raises DataError when that row makes an invalid
 * prompt.
 */
export async function longestEdit(
  {
    words,
    seeing,
    blank,
    imageName,
  }: Pick<VisionEditTask<EditResponseSettings>, 'words' | 'seeing' | 'blank' | 'imageName'>,
  { rollout, policy, environment }: Pick<EditResponseSettings, 'rollout' | 'policy' | 'environment'>,
): Promise<LongestStates> {
  const images = new Map<string, number>();
  let most: { readonly source: VisionEditSource; readonly index: number; readonly length: number } | null = null;
  for (const [source, rows] of words.rowsUsed) {
    for (let index = 0; index < rows; index++) {
      const edit = source.edits.read(index);
      let length = Buffer.byteLength(edit.instruction);
      for (const file of sourcesOf(edit)) {
        const tokens = images.get(file) ?? (await tokensIn(file, seeing));
        images.set(file, tokens);
        length += tokens;
      }
      if (most === null || length > most.length) most = { source, index, length };
    }
  }
  if (most === null) return { edit: 1, blank: 1 };
  const prompt = await words.promptOf(most.source, most.index);
  const { ids } = prompt.tokens;
  const room = Math.min(rollout.max_response_tokens, policy.model_context_size - ids.length);
  const responseTokens = environment?.told === 'instruction' ? 0 : room;
  const without = (await blank(prompt)).ids;
  return {
    edit: ids.length - firstImageToken(ids, seeing, imageName) + responseTokens,
    blank: without.length - firstImageToken(without, seeing, imageName),
  };
}

/** Number of an image's tokens. 0 for an image that cannot be opened, which is reported when it is needed. */
async function tokensIn(file: string, { processor }: VisionEditTask<EditResponseSettings>['seeing']): Promise<number> {
  const size = await imageSize(file);
  return size === null ? 0 : processor.tokensOf(size);
}

/** Raises DataError for the first row with several images if the editor, the prompt or a reward takes one. */
export function checkSources(
  { words }: Pick<VisionEditTask<EditResponseSettings>, 'words'>,
  settings: EditResponseSettings,
  { onlyOne }: Pick<Drawing, 'onlyOne'>,
): void {
  const one = onlyOne ?? singleImage(settings);
  if (one !== null) requireSources(imagesIn(words.rowsUsed), { ...one, most: 1 });
}

/** Why a row may have one source image, apart from the editor. Null if it may have several. */
function singleImage(settings: EditResponseSettings): SingleImage | null {
  return unnamed(settings) ?? judgedAlone(settings);
}

/**
 * Qwen-Image-Edit-2509 and -2511 expect a name before each image. The first Qwen-Image-Edit supports neither names nor
 * several images.
 */
function unnamed({ prompt, environment }: EditResponseSettings): SingleImage | null {
  if (environment === null || !('picture_names' in environment)) return null;
  const found = unnamedImages(environment.picture_names ? prompt : { ...prompt, variables: {} });
  if (found === null) return null;
  return {
    ...found,
    next: 'Remove such rows, or use Qwen-Image-Edit-2509 or -2511 with prompt.variables.add_vision_id and environment.picture_names set to true.',
  };
}
