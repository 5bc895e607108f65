/**
 * Adapters of vision-language models, as peft loads them and as vLLM gets them. The comparison with peft is skipped if
 * no Python has it. EDITRL_TEST_PYTHON names another one.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { adapt } from '../../../src/models/adapters/decoder.js';
import { descriptionOf } from '../../../src/models/adapters/files.js';
import { openDecoder } from '../../../src/models/networks/decoder.js';
import { FreeText, type TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { adapterFolder, wholeFolder } from '../../../src/train/policies/tokens/policy.js';
import { Sampler } from '../../../src/train/policies/tokens/rollout.js';
import { bytesOf, everything, folderOf, prompts as promptsOf } from '../../compute/nets/vision/fixture.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolder } from '../../support/folder.js';

const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import peft, torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;
const root = testFolder('vision-peft');

/** Continues each prompt greedily by six tokens with the adapter, and prints the tokens. */
const program = `
import base64, json, sys
import numpy as np, torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText
base, adapter, given = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32), adapter).eval()
array = lambda text, kind: np.frombuffer(base64.b64decode(text), kind)
answers = []
for prompt in json.load(open(given)):
    ids, more = list(prompt["ids"]), {}
    for name, key in [("image", "pixel_values"), ("video", "pixel_values_videos")]:
        some = [p for p in prompt["pictures"] if isinstance(p, dict) and p["kind"] == name]
        if some:
            more[key] = torch.tensor(np.concatenate([array(p["pixels"], np.float32).reshape(-1, 96) for p in some]))
            more[name + "_grid_thw"] = torch.tensor([p["grid"] for p in some])
    frames = [p for p in prompt["pictures"] if isinstance(p, str)]
    if frames:
        raw = np.stack([array(p, np.uint8).reshape(16, 16, 3) for p in frames]).astype(np.float64)
        more["pixel_values"] = torch.tensor(((raw / 255 - 0.5) / 0.5).transpose(0, 3, 1, 2)[None].astype(np.float32))
    for _ in range(6):
        kinds = torch.tensor([[{56: 1, 57: 2}.get(i, 0) for i in ids]])
        types = dict(mm_token_type_ids=kinds) if "qwen" in base else {}
        if hasattr(model.base_model.model.model, "rope_deltas"):
            model.base_model.model.model.rope_deltas = None
        with torch.no_grad():
            rows = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), **types, **more).logits
        # Tokens of images and the end are no words.
        ids.append(int(rows[0, -1, 3:55].argmax()) + 3)
    answers.append(ids[-6:])
print(json.dumps(answers))
`;

const VOCABULARY = 61;
const ANSWERS = 256;
/** Words: no tokens of images, and no end. */
const mask = Uint8Array.from({ length: VOCABULARY }, (_, id) => (id >= 3 && id < 55 ? 1 : 0));

class Words extends FreeText {
  override start() {
    return { next: () => ({ mask }), accept: () => {} };
  }
}

interface Picture {
  readonly kind: string;
}

/** The prompts of a fixture's model, and the form in which Python reads their images. */
function fixtureOf(family: 'qwen3_vl' | 'smolvlm') {
  const folder = join(folderOf('qwen3_vl'), '..', family);
  const json = JSON.parse(readFileSync(join(folder, 'prompts.json'), 'utf8')) as unknown;
  if (family === 'qwen3_vl') {
    const { prompts } = json as { readonly prompts: readonly { readonly pictures: readonly Picture[] }[] };
    return { folder, shown: promptsOf(family), pictures: prompts.map(({ pictures }) => pictures) };
  }
  const half = [0.5, 0.5, 0.5] as const;
  const given = json as readonly { readonly ids: readonly number[]; readonly pictures: readonly string[] }[];
  const shown: TokenPrompt[] = given.map(({ ids, pictures }) => ({
    ids,
    images: pictures.map((raw) => ({
      kind: 'image',
      frames: [{ width: 16, height: 16, data: bytesOf(raw) }],
      grid: { steps: 1, rows: 4, columns: 4 },
      secondsPerStep: 0,
      colours: { mean: half, std: half },
    })),
  }));
  return { folder, shown, pictures: given.map(({ pictures }) => pictures) };
}

/** A fixture's model with a random adapter of every linear layer. */
function adaptedModel(folder: string) {
  const { config, weights } = openDecoder(folder, 'words and images');
  const lora = { rank: 3, alpha: 6, rslora: false, targets: 'all-linear' };
  const adapted = adapt(config, weights, lora, { seed: 5 });
  for (const [name, { data }] of adapted.weights) {
    if (!name.endsWith('.lora_B.weight')) continue;
    const random = new RandomStream(7, name);
    data.forEach((_, i) => (data[i] = 0.2 * random.normal()));
  }
  return {
    ...adapted,
    format: new Words({ size: VOCABULARY, files: {} }, new Set()),
    description: descriptionOf(folder),
    trains: everything,
    adapter: { lora, base: folder, baseDigest: 'base' },
  };
}

describe.each(['qwen3_vl', 'smolvlm'] as const)('an adapter of %s', (family) => {
  const { folder, shown, pictures } = fixtureOf(family);
  const model = adaptedModel(folder);
  const trained = new Map([...model.weights].filter(([name]) => name.includes('.lora_')));

  it('reaches vLLM under the names of transformers, as all weights do', () => {
    const out = join(root, `${family}_names`);
    writeCheckpoint(out, adapterFolder(model, trained));
    const layer = family === 'qwen3_vl' ? 'language_model.layers.0' : 'text_model.layers.0';
    const names = [...readSafetensorsIndex(join(out, 'adapter_model.safetensors')).entries.keys()];
    expect(names).toContain(`base_model.model.model.${layer}.self_attn.q_proj.lora_A.weight`);
    expect(names.every((name) => name.startsWith('base_model.model.model.'))).toBe(true);
    writeCheckpoint(
      out,
      wholeFolder({ ...model, weights: openDecoder(folder, 'words and images').weights }, new Map()),
    );
    const whole = [...readSafetensorsIndex(join(out, 'model.safetensors')).entries.keys()];
    const stored = [...readSafetensorsIndex(join(folder, 'model.safetensors')).entries.keys()];
    expect(whole.sort()).toEqual(stored.sort());
  });

  it.skipIf(missing !== null)(
    `writes ${ANSWERS} answers that peft writes greedily, over words, images and clips${why}`,
    async () => {
      const random = new RandomStream(11, family);
      const prompts = Array.from({ length: ANSWERS }, (_, i) => {
        const { ids, images = [] } = shown[i % shown.length];
        const own = ids.map((id) => (id < 55 ? 3 + random.integer(52) : id));
        return { ids: own, images };
      });
      const sampler = new Sampler(model, {
        contextSize: 200,
        constrained: true,
        separateVocabularies: false,
        session: { threads: 1 },
      });
      const found: number[][] = [];
      for (let at = 0; at < ANSWERS; at += 16) {
        const asked = prompts.slice(at, at + 16).map((tokens) => ({ tokens }));
        const answers = await sampler.sample(
          {
            prompts: asked,
            among: prompts.map((tokens) => ({ tokens })),
            answersPerPrompt: 1,
            how: { maxTokens: 6, temperature: 0, topP: 1, topK: -1, logProbTemperature: 1 },
            weights: 'current',
            random: (p, g) => new RandomStream(3, 'answers', p, g),
          },
          model.weights,
          'loaded',
        );
        found.push(...answers.map(([{ ids }]) => [...ids]));
      }
      await sampler.dispose();
      const out = writeCheckpoint(join(root, family), adapterFolder(model, trained));
      const given = prompts.map(({ ids }, i) => ({ ids, pictures: pictures[i % pictures.length] }));
      writeFileSync(join(root, `${family}.json`), JSON.stringify(given));
      const ran = spawnSync(python, ['-c', program, folder, out, join(root, `${family}.json`)], {
        encoding: 'utf8',
        maxBuffer: 2 ** 26,
        env: { ...process.env, HF_HUB_OFFLINE: '1', OMP_NUM_THREADS: '1' },
      });
      expect(ran.status, ran.stderr).toBe(0);
      const wanted = JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '[]') as number[][];
      expect(found).toHaveLength(ANSWERS);
      expect(found).toEqual(wanted);
      expect(new Set(found.map((ids) => ids.join())).size).toBeGreaterThan(ANSWERS / 4);
    },
  );
});
