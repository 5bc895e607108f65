import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { encodeSafetensors } from '../../src/core/safetensors.js';
import { openEditDataset } from '../../src/data/edits.js';
import { initImageTokenizer, type ImageTokenizerConfig } from '../../src/compute/nets/image_tokenizer.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { writeBench } from '../data/bench.js';
import { jsonLines, plain, writeFiles } from '../data/image_files.js';
import { hasFfmpeg, writeOddVideo } from '../data/video/odd_files.js';
import { testFolders } from '../support/folder.js';
import { capture, RunFolder } from './run_directory.js';

const folders = testFolders('data-verb');
const config: ImageTokenizerConfig = { codebook_size: 16, patch: 8, hidden: 8, code_dim: 4, commitment_weight: 0.25 };
const files = {
  'config.json': JSON.stringify(config),
  'policy.safetensors': encodeSafetensors(initImageTokenizer(config, 3)),
};

afterEach(() => {
  vi.restoreAllMocks();
});

/** A folder of a picture and an edit of it, and the arguments that pack it. */
function own(): { folder: string; args: string[] } {
  const folder = folders();
  const line = { source: 'a.png', instruction: 'make it red', edited: 'a.png' };
  writeFiles(folder, { 'a.png': plain(24, 16, [9, 9, 9]), 'edits.jsonl': jsonLines([line]) });
  return { folder, args: ['data', 'pack', join(folder, 'edits.jsonl'), '--out', join(folder, 'out')] };
}

describe('editrl data pack', () => {
  it('packs images, says where they are, and reports it again', async () => {
    const { folder, args } = own();
    const written = capture();
    expect(await main([...args, '--size', '16'])).toBe(0);
    expect(written).toEqual({
      out: `${folder}/out:\n  ${folder}/out/train/list/tokenized_datalist.json: 1 image\n`,
      error: '',
    });
    expect(await main([...args, '--size', '16x16'])).toBe(0);
    expect(written.out).toContain(`${folder}/out: the same dataset already exists.\n`);
    expect(await main(['data', 'check', join(folder, 'out')])).toBe(0);
    expect(written.out).toContain('1 image, size 16x16');
  });

  it('packs edits in the codes of a finished run, or of a model folder', async () => {
    const { folder, args } = own();
    const runs = new RunFolder();
    const paths = runs.make('own_vq', 'finished');
    saveCheckpoint(paths, 10, files);
    const written = capture();
    expect(await main([...args, '--tokenizer', 'own_vq', '--exp-dir', runs.dir, '--json'])).toBe(0);
    expect(JSON.parse(written.out)).toEqual({
      out: `${folder}/out`,
      kind: 'edits',
      words: 3,
      was_there: false,
      splits: [{ split: 'train', samples: 1, labelled: 1, list: `${folder}/out/train/list/tokenized_datalist.json` }],
    });
    expect(openEditDataset(`${folder}/out/train`).read(0).source).toMatchObject({ height: 2, width: 3 });
    written.out = '';
    expect(await main([...args, '--tokenizer', paths.checkpoint(10), '--json'])).toBe(0);
    expect(JSON.parse(written.out)).toMatchObject({ was_there: true });
    runs.remove();
  });

  it('rejects a tokenizer that is still learning, or is none', async () => {
    const { folder, args } = own();
    const runs = new RunFolder();
    runs.make('own_vq', 'interrupted');
    const written = capture();
    expect(await main([...args, '--tokenizer', 'own_vq', '--exp-dir', runs.dir])).toBe(1);
    expect(written.error).toContain(
      'the image tokenizer is interrupted, so its codes may still change\n  Finish it first',
    );
    mkdirSync(join(folder, 'policy'));
    writeFileSync(join(folder, 'policy/config.json'), '{"hidden_size": 8}');
    expect(await main([...args, '--tokenizer', join(folder, 'policy')])).toBe(1);
    expect(written.error).toContain(`${folder}/policy: the model is not an image tokenizer\n`);
    runs.remove();
  });

  it.each(['0', '48x', 'x48', '4.5', '48*48', '100000'])('refuses --size %s', async (size) => {
    const written = capture();
    expect(await main([...own().args, '--size', size])).toBe(2);
    expect(written.error).toBe(
      `editrl: --size: found ${size}; allowed: pixels, such as 48, or WIDTHxHEIGHT, such as 64x48\n`,
    );
  });
});

describe('editrl data check of several datasets', () => {
  it('continues after one that cannot be read', async () => {
    const folder = folders();
    writeFiles(folder, { 'a.jsonl': '{"prompt":"a"}\n', 'b.parquet': 'PAR1', 'd.txt': Buffer.from([0xff, 0x0a]) });
    const paths = ['b.parquet', 'a.jsonl', 'gone.jsonl', 'd.txt', 'a.jsonl'].map((name) => join(folder, name));
    const written = capture();
    expect(await main(['data', 'check', ...paths])).toBe(1);
    expect(written.out.match(/1 prompt, 0 labeled/g)).toHaveLength(2);
    for (const name of ['b.parquet', 'gone.jsonl', 'd.txt']) expect(written.error).toContain(join(folder, name));
    const machine = capture();
    expect(await main(['data', 'check', '--json', ...paths])).toBe(1);
    const reports = JSON.parse(machine.out) as readonly {
      readonly path: string;
      readonly problems: readonly string[];
    }[];
    expect(reports).toHaveLength(5);
    expect(reports.filter(({ problems }) => problems.length > 0)).toHaveLength(3);
  });
});

describe('editrl data check of inpainting samples', () => {
  it('lists all that is broken at once, prompts without a quotation only if requested', async () => {
    const folder = writeBench(folders(), {
      'self_bench.txt': '1 a sign\n2 a sign that says "B"\n12 also "B"\n13 gone\n',
      '2_mask.png': plain(6, 4, [0, 0, 0]),
    });
    const written = capture();
    expect(await main(['data', 'check', folder])).toBe(1);
    expect(written.out).toContain(`${folder}/self_bench.txt: 4 inpainting samples, size 6x4\n`);
    for (const found of ['13_source.png', '13_mask.png', '13_ref.png', '2_mask.png: the mask is empty']) {
      expect(written.error).toContain(found);
    }
    expect(written.error).not.toContain('quotes no text');
    expect(await main(['data', 'check', folder, '--quoted'])).toBe(1);
    expect(written.error).toContain('self_bench.txt:1: the prompt quotes no text: "a sign"');
    expect(await main(['data', 'check', writeBench(folders()), '--quoted'])).toBe(0);
  });
});

describe('editrl data check of edits in rows', () => {
  it('reads edits in rows by the given columns', async () => {
    const folder = folders();
    const list = join(folder, 'edits.jsonl');
    writeFileSync(list, JSON.stringify({ before: 'gone.png', ask: 'make it red' }));
    const written = capture();
    const named = ['--columns', 'source=before', '--columns', 'instruction=ask'];
    expect(await main(['data', 'check', list, ...named])).toBe(1);
    expect(written.error).toContain("column 'before': there is no file");
    await main(['data', 'check', list, '--columns', 'source=after', '--columns', 'instruction=ask']);
    expect(written.error).toContain("the dataset has no column 'after'; found: before, ask");
    expect(await main(['data', 'check', list, '--columns', 'picture=before'])).toBe(2);
    expect(written.error).toContain(
      "--columns: found 'picture=before'; allowed: NAME=COLUMN, where NAME is one of source, instruction, response, target",
    );
  });
});

describe.skipIf(!hasFfmpeg)('editrl data check of questions about videos (skipped without ffmpeg)', () => {
  it('looks for the videos where the config does, and asks for as many frames', async () => {
    const [folder, media] = [folders(), folders()];
    writeOddVideo(join(media, 'a.mp4'), { frames: 3 });
    const conversations = [
      { from: 'human', value: '<video> Which?' },
      { from: 'gpt', value: '(1) red' },
    ];
    writeFileSync(join(folder, 'conversations.json'), JSON.stringify([{ conversations, video: 'a.mp4' }]));
    const written = capture();
    expect(await main(['data', 'check', folder])).toBe(1);
    expect(written.error).toContain(`there is no file ${folder}/a.mp4`);
    expect(await main(['data', 'check', folder, '--media', media])).toBe(0);
    expect(await main(['data', 'check', folder, '--media', media, '--min-frames', '4'])).toBe(1);
    expect(written.error).toContain('it has 3 frames, but at least 4 are needed');
  });

  it('warns of labels that hold a number that is hardly an action', async () => {
    const folder = folders();
    writeOddVideo(join(folder, 'a.mp4'), { frames: 3 });
    const sample = (label: string) => ({
      conversations: [
        { from: 'human', value: '<video> Which?' },
        { from: 'gpt', value: label },
      ],
      video: 'a.mp4',
    });
    const check = async (...labels: string[]): Promise<string> => {
      writeFileSync(join(folder, 'conversations.json'), JSON.stringify(labels.map(sample)));
      const written = capture();
      expect(await main(['data', 'check', folder])).toBe(0);
      return written.error;
    };
    expect(await check('<think>(500)</think> <answer>(1) red (99) blue (0007) lid</answer>')).toBe('');
    expect(await check('(1) red', '<answer>(1) the model of (2023), M(100)</answer>', '(365) days')).toContain(
      `warning: 2 of 3 labels contain a number over 99 in parentheses, the first of them ${folder}/conversations.json:sample 2: (2023), (100); reward 'format_accuracy' counts every number in parentheses as an action`,
    );
  });

  it('shows on a terminal how far it is, and leaves nothing of it', async () => {
    const folder = folders();
    writeOddVideo(join(folder, 'a.mp4'), { frames: 3 });
    const conversations = [
      { from: 'human', value: '<video> Which?' },
      { from: 'gpt', value: '(1) red' },
    ];
    const samples = [1, 2].map((id) => ({ id, conversations, video: 'a.mp4' }));
    writeFileSync(join(folder, 'conversations.json'), JSON.stringify(samples));
    const written = capture();
    const { isTTY } = process.stderr;
    process.stderr.isTTY = true;
    try {
      expect(await main(['data', 'check', folder])).toBe(0);
    } finally {
      process.stderr.isTTY = isTTY;
    }
    expect(written.error).toBe('\r1 of 2 questions about videos\u001b[K\r\u001b[K');
  });
});

describe('editrl data check of prompts and captions', () => {
  it("reads this repository's own prompts, and texts with answers", async () => {
    const folder = folders();
    const file = join(folder, 'train.jsonl');
    writeFiles(folder, {
      'train.jsonl': jsonLines([{ prompt: 'a crimson orb', expected: 'a red circle' }, { prompt: 'b' }]),
    });
    const written = capture();
    expect(await main(['data', 'check', 'data/prompts/challenging.txt'])).toBe(0);
    expect(written.out).toMatch(/challenging\.txt: \d+ prompts, 0 labeled\n/);
    expect(await main(['data', 'check', folder])).toBe(0);
    expect(written.out).toContain(`${file}: 2 prompts, 1 labeled\n`);
    expect(await main(['data', 'check', file, '--columns', 'expected=expected'])).toBe(1);
    expect(written.error).toContain(`train.jsonl:2: column 'expected': found null; allowed: words or a finite number`);
  });

  it('reports which columns rows need where they have none of them', async () => {
    const folder = folders();
    writeFiles(folder, { 'rows.jsonl': jsonLines([{ question: 'a', answer: 'b' }]) });
    const written = capture();
    expect(await main(['data', 'check', join(folder, 'rows.jsonl')])).not.toBe(0);
    expect(written.error).toContain('nor prompts (prompt); found: question, answer');
    expect(written.error).toContain('--columns prompt=NAME');
  });
});

describe('editrl data check --training', () => {
  const edit = (source: string, instruction: string) => ({ source, instruction });

  it('counts the samples of each dataset that are trained on: the same words, and the same image by its pixels', async () => {
    const folder = folders();
    writeFiles(folder, {
      'a.png': plain(24, 16, [9, 9, 9]),
      'copy.png': plain(24, 16, [9, 9, 9]),
      'b.png': plain(24, 16, [8, 9, 9]),
      'held/edits.jsonl': jsonLines([
        edit('../a.png', 'make it red'),
        edit('../b.png', 'make it red'),
        edit('../b.png', 'make it blue'),
      ]),
      'train/edits.jsonl': jsonLines([edit('../copy.png', 'make it red'), edit('../a.png', 'make it blue')]),
      'held.jsonl': jsonLines([{ prompt: 'a cat' }, { prompt: 'a dog' }, { prompt: 'a hen' }]),
      'train.jsonl': jsonLines([{ prompt: 'a hen' }, { prompt: 'a cow' }, { prompt: 'a cat' }]),
    });
    const check = async (held: string, train: string, ...more: readonly string[]): Promise<string> => {
      const written = capture();
      const [of, training] = [held, train].map((name) => join(folder, name));
      expect(await main(['data', 'check', of, '--training', training, ...more])).toBe(0);
      vi.restoreAllMocks();
      expect(written.error).toBe('');
      return written.out;
    };
    const said = await check('held', 'train');
    expect(said).toContain('1 of 3 held-out samples are also in the training data');
    expect(said).toContain(
      `edits.jsonl:1 of ${join(folder, 'held/edits.jsonl')} is edits.jsonl:1 of ${join(folder, 'train/edits.jsonl')}`,
    );
    const [words] = JSON.parse(await check('held.jsonl', 'train.jsonl', '--json')) as [{ in_training: number }];
    expect(words.in_training).toBe(2);
    expect(await check('held/edits.jsonl', 'held.jsonl')).toContain('none of the 3 samples are in the training data');
  });
});
