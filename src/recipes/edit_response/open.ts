/** Opens `edit_response`: a vision-language model whose words, read once more, tell a frozen model how to edit a picture. */
import type { RunResolver } from '../../models/reference.js';
import { imagesServer, type EditorSettings } from '../../schema/editor.js';
import type { Bench } from '../../train/bench.js';
import { openImagesServer, openStoredPictures } from '../../train/images_elsewhere.js';
import { openRenderServer, openStoredRenders } from '../../train/renders_elsewhere.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { openPicturedTask, samplePictured, type PicturedTask } from '../open_pictured.js';
import { startingSeeingModel } from '../open_seeing.js';
import { openWordsTraining } from '../open_words.js';
import { picturedData } from '../pictured_data.js';
import { isReadByStart, readStates, type Drawing, type ReadStates } from './drawing.js';
import { OwnDrawing } from './own_drawing.js';
import { RenderDrawing } from './render_drawing.js';
import type { EditResponseSettings } from './settings.js';
import { ResponseTask } from './task.js';
import { TextPromptDrawing } from './text_prompt_drawing.js';

/** What reads what the policy wrote. */
interface Reading {
  readonly read: ReadStates;
  /** Of a hidden state. */
  readonly width: number;
}

/** How each kind of environment draws, in a run and from its records. */
interface Kind<E extends EditorSettings> {
  open(settings: EditResponseSettings, environment: E, reading: Reading, bench: Bench): Promise<Drawing> | Drawing;
  again(settings: EditResponseSettings, environment: E, resolveRun: RunResolver): Drawing;
}

type Kinds = { readonly [T in EditorSettings['type']]: Kind<Extract<EditorSettings, { readonly type: T }>> };

const kinds: Kinds = {
  model: {
    open: (_, environment, { read }, { resolveRun }) => OwnDrawing.open(environment, read, resolveRun),
    again: (_, environment, resolveRun) => OwnDrawing.open(environment, null, resolveRun),
  },
  render_server: {
    open: async (settings, environment, { read, width }, bench) =>
      new RenderDrawing(environment, { read, images: await openRenderServer(settings, environment, width, bench) }),
    again: (settings, environment) =>
      new RenderDrawing(environment, { read: null, images: openStoredRenders(settings, environment) }),
  },
  images_api_text_prompt: {
    open: async (settings, environment, _, bench) =>
      new TextPromptDrawing(environment, await openImagesServer(settings, imagesServer(environment), bench, 'edits')),
    again: (settings, environment) =>
      new TextPromptDrawing(environment, openStoredPictures(settings, imagesServer(environment))),
  },
};

function kindOf<E extends EditorSettings>({ type }: E): Kind<E> {
  return kinds[type] as unknown as Kind<E>;
}

async function open(settings: EditResponseSettings, bench: Bench): Promise<Training> {
  const { resolveRun } = bench;
  const pictured = await openTold(settings, resolveRun);
  const { words, seeing } = pictured;
  const { environment } = settings;
  const model = startingSeeingModel(settings, words.format, seeing, resolveRun);
  if (environment === null) return openWordsTraining(settings, bench, words, { model, isScored: false });
  return openWordsTraining(settings, bench, words, {
    model,
    keepsStart: isReadByStart(environment),
    around: async (policy) => {
      const width = model.config.hidden_size;
      const reading: Reading = { width, read: readStates(environment, policy) };
      const drawing = await kindOf(environment).open(settings, environment, reading, bench);
      return new ResponseTask(pictured, environment, drawing);
    },
  });
}

/** What a server is told in words leaves out what the policy thought, and so does what rewards read. */
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
    return new ResponseTask(pictured, environment, kindOf(environment).again(settings, environment, resolveRun));
  },
  sampleRows: async (settings, count) => (settings.environment === null ? [] : samplePictured(settings, count)),
};
