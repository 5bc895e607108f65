/**
 * The judge's questions. Their criteria are those of VIEScore (Ku et al., 2024) and of EARL's ground score. VIEScore has two
 * scores for semantic consistency and two for perceptual quality. The ground score is the agreement with the labeled edit.
 * The wording is editrl's own, so scores are not comparable with published ones. Texts begin with their constant part and
 * end with the instruction, and the most shared images come first. A server with a prefix cache then computes a group's
 * common part once.
 */
import { ConfigError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import type { JudgeImage } from './images.js';
import type { JudgeQuery, ReplyFormat } from './judge.js';
import { maxScore, parseScores } from './parse.js';

/** Files with other texts, by question. Null means the built-in text. */
export interface PromptFiles {
  readonly viescore_sc: string | null;
  readonly viescore_pq: string | null;
  readonly ground_score: string | null;
}

/** Longest replies, in tokens: for each of VIEScore's two questions, and for the ground score. */
export interface ReplyTokens {
  readonly viescore: number;
  readonly ground_score: number;
}

/**
 * Enough for short reasoning. More would take room from the images in the judge's context. The tag of a ground score follows its
 * explanation, so it gets more.
 */
export const defaultReplyTokens: ReplyTokens = { viescore: 400, ground_score: 700 };

/** The texts of the three questions, with `{instruction}` in place of the instruction, and the limits of their replies. */
export interface PromptSet {
  /** Semantic consistency. The source and the edited image follow. */
  readonly sc: string;
  /** Perceptual quality. The edited image follows. */
  readonly pq: string;
  /** Ground score. The labeled result and the edited image follow the user's text. */
  readonly ground: { readonly system: string; readonly user: string };
  readonly replyTokens: ReplyTokens;
}

const instructionMark = '{instruction}';

const replyForm = `Reply with one JSON object and nothing else, the scores first:
{"score": [a, b], "reasoning": "at most two short sentences"}
a and b are integers from 0 to ${maxScore}, in the order of the criteria.`;

const sc = `You grade the work of an image editor. Two images follow this text: first the original, then the edited version that was made from it. The instruction that the editor was given stands in the last line.

Grade two criteria, each from 0 to ${maxScore}.
1. Success of the edit. ${maxScore}: everything that the instruction asks for is there, and done right. Around 5: it is done in part. 0: it is not done at all, or something else was done.
2. Restraint. ${maxScore}: nothing changed beyond what the instruction needs. Around 5: the scene is still the same, but things that nobody asked about were altered, moved or lost. 0: hardly anything of the original scene is left.

Compare the images closely before you grade. When the editor failed, they may be identical: the first criterion is then 0. A high grade for one criterion does not make up for the other.

${replyForm}

Instruction: ${instructionMark}`;

const pq = `You inspect the technical quality of a picture that was produced by an image editor. It follows this text. What it shows, and whether that is pleasant, does not matter; you do not know what the editor was asked for.

Grade two criteria, each from 0 to ${maxScore}.
1. Naturalness. ${maxScore}: sizes, distances, light and shadows fit together as if the picture had been taken or drawn in one go. Around 5: parts look pasted in. 0: the picture makes no sense as a scene.
2. Freedom from artifacts. ${maxScore}: no blemish at all. Around 5: visible seams, smears, noise or broken outlines in places. 0: distortion, stray marks or disfigured subjects dominate the picture.

${replyForm}`;

const ground = {
  system: `You check edited pictures against a reference. The user names an editing instruction and sends two images: first the reference, which carries out the instruction correctly, then a candidate.

Give one score from 0 to ${maxScore} for how well the candidate brings about the same change in meaning as the reference. Small differences in texture, shade or position that do not bear on the instruction cost little or nothing.
${maxScore}: the candidate shows the same change, complete.
7 to 9: the same change with minor deviations.
4 to 6: the change is there in part, or comes with other changes.
1 to 3: barely related to the change that was asked for.
0: the change is missing, or the candidate is empty, noise or otherwise broken.

Explain the score in one or two short sentences. Then write the score as a plain number, alone on the last line, between tags: <score>n</score>`,
  user: `The reference follows first, then the candidate.
Instruction: ${instructionMark}`,
};

const alignment = `Alignment with the request. ${maxScore}: every object, property, number, place and word that it asks for is there. Around 5: the main thing is there, details are missing or wrong. 0: the image shows something else.`;
const overallQuality = `Quality of the image itself, whatever was asked for. ${maxScore}: clean, coherent and well made. Around 5: usable, with visible flaws. 0: broken, garbled or empty.`;

/** Alignment and quality of an image that was made from words alone. The image follows. */
const alignMade = `You review an image that was made for a request in words. The image follows this text; the request stands in the last line.

Grade two things, each from 0 to ${maxScore}.
1. ${alignment}
2. ${overallQuality}

The two are independent: a beautiful image of the wrong thing gets a low first and a high second grade.

${replyForm}

Request: ${instructionMark}`;

/** Alignment and quality of an edit. The source and the edited image follow. */
const alignEdited = `You review an edited image. Two images follow this text: the one that was given, then what became of it. The request, in the last line, says what was to change; all else was to stay.

Grade two things, each from 0 to ${maxScore}.
1. ${alignment} A change that was not asked for counts against it, and a request that was not acted upon is a 0.
2. ${overallQuality} It is about the second image alone.

The two are independent: a clean image without the change gets a low first and a high second grade.

${replyForm}

Request: ${instructionMark}`;

/** Alignment and quality of an edit of several images. These, in their order, and the edited image follow. */
const alignJoined = `You review an edited image. Several images follow this text: the last one is the edited image, and all before it were given, in the order in which the request counts them: picture 1, picture 2 and so on. The request, in the last line, says what was to be made of them; what it does not speak of was to stay as in picture 1.

Grade two things, each from 0 to ${maxScore}.
1. ${alignment} A change that was not asked for counts against it, and a request that was not acted upon is a 0.
2. ${overallQuality} It is about the last image alone.

The two are independent: a clean image without the change gets a low first and a high second grade.

${replyForm}

Request: ${instructionMark}`;

/** Token limit of a reply to the question about alignment and quality. */
export const alignReplyTokens = 400;

/** The texts of the question about alignment and quality, by the number of given images: none, one, or several. */
export const alignPrompts = { made: alignMade, edited: alignEdited, joined: alignJoined } as const;

const betterEdit = `An edit is better the more of the instruction it carries out, the less else it changes, and the cleaner the picture is, in this order. An edit that leaves the original as it was has done nothing.`;

/** Two edits of one image side by side. The source, the first and the second edit follow. `criteria` defines the better edit. */
export function pairPrompt(criteria: string | null): string {
  return `You compare the work of two image editors. Three images follow this text: first the original, then what the first editor made of it, then what the second one did. The instruction that both were given stands in the last line.

${criteria ?? betterEdit}

Give each edit a grade from 0 to ${maxScore}, the first one's first. The better edit gets the higher grade, however small the difference; equal grades say that neither is better. Which of them is shown first means nothing.

Reply with one JSON object and nothing else, the grades first:
{"score": [a, b], "reasoning": "at most two short sentences"}
a is the grade of the first edit and b that of the second, integers from 0 to ${maxScore}.

Instruction: ${instructionMark}`;
}

/** The highest digit of the one-digit question: two digits would be two tokens, and only the first one's probabilities are visible. */
export const highestDigit = 5;

/** The question with a one-digit answer. The source and the edited image follow. */
export const digitPrompt = `You grade an image edit with one digit. Two images follow this text: the original, then the edited version. The instruction that the editor was given stands in the last line.

${highestDigit}: the instruction is carried out in full, and nothing else changed.
4: carried out, with slight flaws or slight further changes.
3: mostly carried out, or with notable further changes.
2: carried out in part.
1: hardly anything of it is there, or much of the original is lost.
0: nothing was changed as asked, or the image is broken.

Answer with the digit alone: no word, no sign, no space before it.

Instruction: ${instructionMark}`;

export const builtInPrompts: PromptSet = { sc, pq, ground, replyTokens: defaultReplyTokens };

/** The reply to the two-score questions. The length limit stops a constrained decoder before the token limit. */
export const twoScores: ReplyFormat = {
  name: 'two_scores',
  schema: {
    type: 'object',
    properties: {
      score: { type: 'array', items: { type: 'integer', minimum: 0, maximum: maxScore }, minItems: 2, maxItems: 2 },
      reasoning: { type: 'string', maxLength: 400 },
    },
    required: ['score', 'reasoning'],
    additionalProperties: false,
  },
};

/** A question with two scores: a text, then images. */
export function twoScoreQuery(
  key: string,
  text: string,
  images: readonly JudgeImage[],
  maxCompletionTokens: number,
): JudgeQuery {
  return {
    key,
    messages: [{ role: 'user', parts: [text, ...images] }],
    format: twoScores,
    temperature: 0,
    maxCompletionTokens,
    parse: (reply, cutOff) => parseScores(reply, 2, cutOff),
  };
}

/** Inserts an instruction so that it cannot imitate another part of the question. */
export function withInstruction(text: string, instruction: string): string {
  return text.split(instructionMark).join(onOneLine(instruction));
}

/** A text on one line and without control tokens. */
export function onOneLine(text: string): string {
  return plainText(text.replace(/\s+/g, ' ').trim());
}

/** The line that divides a ground-score file into system message and user text. */
const divider = '===';

/**
 * The questions of a reward section: the built-in texts, or those of files. A file for `viescore_sc` or `ground_score` must contain
 * `{instruction}`. A line `===` divides a file for `ground_score`: the system message above it, the user's text with the instruction below.
 * Raises ConfigError for a file that cannot be read or lacks one of these.
 */
export function loadPrompts(reward: {
  readonly prompts: PromptFiles;
  readonly max_reply_tokens: ReplyTokens;
}): PromptSet {
  const files = reward.prompts;
  return {
    sc: files.viescore_sc === null ? builtInPrompts.sc : readWithInstruction('viescore_sc', files.viescore_sc),
    pq: files.viescore_pq === null ? builtInPrompts.pq : readText('viescore_pq', files.viescore_pq),
    ground: files.ground_score === null ? builtInPrompts.ground : readGround(files.ground_score),
    replyTokens: reward.max_reply_tokens,
  };
}

function readText(kind: keyof PromptFiles, file: string): string {
  return readWording(file, 'the prompt file', `reward.prompts.${kind}`);
}

/** A file with the user's own wording, which messages call `what`. Raises ConfigError for one that cannot be read, or is empty. */
export function readWording(file: string, what: string, where: string): string {
  let text: string;
  try {
    text = readTextFile(file, ConfigError).trim();
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    throw new ConfigError(`cannot read ${what} '${file}'`, {
      where,
      next: 'Correct the path, or leave it out to use the built-in wording.',
      cause,
    });
  }
  if (text !== '') return text;
  throw new ConfigError(`${what} '${file}' is empty`, {
    where,
    next: 'Write the instructions for the judge into it, or leave it out to use the built-in wording.',
  });
}

function readWithInstruction(kind: keyof PromptFiles, file: string): string {
  const text = readText(kind, file);
  requireInstruction(kind, file, text);
  return text;
}

function requireInstruction(kind: keyof PromptFiles, file: string, text: string): void {
  if (text.includes(instructionMark)) return;
  throw new ConfigError(`the prompt file '${file}' has no {instruction} placeholder`, {
    where: `reward.prompts.${kind}`,
    next: `Add a last line such as: Instruction: ${instructionMark}`,
  });
}

function readGround(file: string): PromptSet['ground'] {
  const parts = readText('ground_score', file).split(/^===[ \t]*$/m);
  if (parts.length !== 2 || parts.some((part) => part.trim() === '')) {
    throw new ConfigError(
      `the prompt file '${file}' should contain a system message and a user text, divided by one line '${divider}'`,
      {
        where: 'reward.prompts.ground_score',
        next: `Write the criteria above the line '${divider}' and 'Instruction: ${instructionMark}' below it.`,
      },
    );
  }
  const [system, user] = parts.map((part) => part.trim());
  requireInstruction('ground_score', file, user);
  return { system, user };
}

/**
 * One character of anything that a tokenizer may read as a control token: the bar of `<|im_end|>` and `<｜User｜>`, the bracket of `</s>`,
 * `<end_of_turn>` and `[INST]`. Names differ by model, so any tag without attributes counts.
 */
const controlCharacter =
  /(?<=<)[|\uff5c]|<(?=\/?[\p{L}_][\p{L}\p{N}_:.\u2581-]*>)|\[(?=\/?[A-Za-z_]*[A-Z]{2}[A-Z0-9_]*\])/gu;

/** The text with broken control tokens: one character of each is written as its JSON escape, which means the same within a JSON string. */
export function plainText(text: string): string {
  return text.replace(controlCharacter, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
