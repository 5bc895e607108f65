/** Questions about images alone, from a row of a file to the reward of a judge that sees them. */
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import { must } from '../../../src/core/errors.js';
import { decodeImage } from '../../../src/core/images/image.js';
import { openVideoTask } from '../../../src/recipes/video_actions/task.js';
import { answerJudge } from '../../../src/rewards/terms/answer_judge.js';
import { jsonLines, plain, writeFiles } from '../../data/image_files.js';
import { testFolder } from '../../support/folder.js';
import { replyingJudge, testServices } from '../../rewards/terms/term_services.js';
import { smallSettings } from './small.js';

const dir = testFolder('image-questions');
const files = { 'red.png': plain(32, 32, [200, 10, 10]), 'blue.png': plain(32, 32, [10, 10, 200]) };
const row = (image: readonly string[], label: string) => ({
  conversations: [
    { from: 'human', value: `${'<image> '.repeat(image.length)}Which parts are attached` },
    { from: 'gpt', value: label },
  ],
  image,
});

beforeAll(() => {
  writeFiles(dir, {
    ...files,
    'questions.jsonl': jsonLines([row(['red.png'], 'red'), row(['blue.png', 'red.png'], 'blue red')]),
  });
});

const open = () => {
  const source = [{ path: join(dir, 'questions.jsonl') }];
  const policy = { ...smallSettings({}).policy, model_context_size: 300 };
  return openVideoTask(
    smallSettings({
      policy,
      data: { dir, train: source, validation: source },
      reward: {
        mode: null,
        terms: [{ name: 'answer_judge', weight: 1 }],
        endpoint: 'http://judge:8000',
        model: 'a-vlm',
      },
    }),
    () => '',
  );
};

describe('a row of images and a question', () => {
  it.each([
    [0, ['red.png']],
    [1, ['blue.png', 'red.png']],
  ] as const)('%d is shown to the policy and to its judge', async (index, names) => {
    const { task, seeing } = await open();
    await task.checkPrompts();
    const prompt = await task.validation[0].prompt(index);
    const { ids, images = [] } = prompt.tokens;
    expect(images.map(({ kind }) => kind)).toEqual(names.map(() => 'image'));
    const seen = ids.filter((id) => id === seeing.tokens.image_token_id);
    // Images of 32 x 32 in patches of 4, merged in squares of 2 x 2.
    expect(seen).toHaveLength(names.length * 16);
    expect(ids).not.toContain(seeing.tokens.video_token_id);

    const answer = { ids: Int32Array.from([...(await task.words.tokenizer.encode('red')), task.words.end]) };
    const chunk = [
      { prompt, answers: [{ ...answer, logProbs: new Float32Array(2), finished: true }], keys: ['1/0/0'] },
    ];
    const [[{ item }]] = await task.render(chunk);
    const judge = replyingJudge(() => '{"score": [7], "reasoning": "x"}');
    const term = await answerJudge.create({ criteria: null, max_reply_tokens: 400 }, testServices(judge));
    expect(await term.score(item)).toMatchObject({ kind: 'scored', value: 7, normalised: 0.7 });
    const shown = await Promise.all(
      names.map(async (name) => judgeImage(await decodeImage(files[name], name), name).id),
    );
    const parts = must(judge.asked[0], 'the question').messages[0].parts;
    expect(parts.flatMap((part) => (typeof part === 'string' ? [] : [part.id]))).toEqual(shown);
    expect(parts.at(-1)).toBe(`Question: "Which parts are attached"\nReference: "${item.expected}"\nAnswer: "red"`);
  });
});
