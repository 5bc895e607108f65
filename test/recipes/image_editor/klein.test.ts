/** FLUX.2-klein as the policy of image_editor: a small pipeline of diffusers, with its own text encoder, learns by LoRA. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { validate } from '../../../src/config/validate.js';
import { must } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import { isAdapters } from '../../../src/compute/nets/lora.js';
import { imageEditor } from '../../../src/recipes/image_editor/open.js';
import type { ImageEditorSettings } from '../../../src/recipes/image_editor/settings.js';
import type { EditorTask } from '../../../src/recipes/image_editor/task.js';
import { sampledIn } from '../../../src/recipes/shared/flow/rewards.js';
import { loadFlow } from '../../../src/train/policies/flow/load.js';
import { FlowPolicy } from '../../../src/train/policies/flow/policy.js';
import { plain } from '../../data/image_files.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('klein-editor');
const klein = join(import.meta.dirname, '../../train/policies/flow/fixtures/klein');
const opened: { dispose(): Promise<void> }[] = [];
afterAll(() => Promise.all(opened.map((one) => one.dispose())));

function settingsOf(
  changes: { readonly folder?: string; readonly guidance?: number | null } = {},
): ImageEditorSettings {
  const { folder = klein, guidance = 4 } = changes;
  const data = newFolder();
  writeFileSync(join(data, 'a.png'), plain(12, 16, [200, 30, 90]));
  const rows = join(data, 'rows.jsonl');
  writeFileSync(rows, JSON.stringify({ source: 'a.png', instruction: 'Make the door red' }));
  const validated = validate({
    run_name: 'klein',
    task: 'image_editor',
    num_iterations: 1,
    algorithm: { type: 'grpo' },
    optimizer: { learning_rate: 0.01, per_device_batch_size: 2 },
    rollout: { episodes_per_iteration: 4, generations_per_sample: 4, num_steps: 3, guidance_scale: guidance },
    policy: {
      model: join(folder, 'transformer'),
      model_type: 'flux2',
      lora: { rank: 2, alpha: 4 },
      parts: { vae: join(folder, 'vae'), text_encoder: folder },
    },
    data: { train: [{ path: rows }], validation: [{ path: rows }] },
    reward: { mode: 'jpeg_size' },
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings as unknown as ImageEditorSettings;
}

describe('FLUX.2-klein as the policy of image_editor', () => {
  it('learns one iteration by LoRA, from its own text and source', async () => {
    const settings = settingsOf();
    const task = (await imageEditor.openTask(settings, () => '')) as unknown as EditorTask;
    opened.push(task);
    const prompt = await task.prompt(0);
    const { flow, size } = prompt;
    expect(size).toEqual({ channels: 12, width: 3, height: 4 });
    expect(flow).toMatchObject({ rows: 4, columns: 3, pooled: null });
    // All of its 512 tokens, padding included, and as many for the blank instruction that guidance starts from.
    expect([flow.text.length, flow.without?.text.length]).toEqual([512 * 24, 512 * 24]);
    expect(flow.textTokens ?? 512).toBe(512);
    expect(flow.kept?.shown).toHaveLength(12 * 12);

    const { lora, model } = settings.policy;
    const training = { trains: 'lora', lora, imagePrompt: null, seed: 1 } as const;
    const { guidance_scale: guidance } = settings.rollout;
    const policy = new FlowPolicy({
      model: loadFlow(model as string, training),
      optimizer: settings.optimizer,
      guidance,
      session: { threads: 1 },
      keepReference: false,
    });
    opened.push(policy);
    const before = new Map([...policy.model.weights].map(([name, { data }]) => [name, data.slice()]));
    const layers = [...before.keys()].filter((name) => name.endsWith('lora_A.weight'));
    expect(layers).toContain('single_transformer_blocks.0.attn.to_qkv_mlp_proj.lora_A.weight');
    const [answers] = await policy.sample({
      ...{ prompts: [prompt], among: [prompt], answersPerPrompt: 4, how: sampledIn(settings), weights: 'current' },
      random: (_: number, g: number) => new RandomStream('klein', g),
    });
    const [measured] = await policy.statistics([{ prompt, answers }], 'current');
    measured.forEach(({ logProbs }, g) => {
      expect(logProbs.length).toBeGreaterThan(0);
      logProbs.forEach((one, i) => expect(Math.abs(one - answers[g].logProbs[i])).toBeLessThan(1e-5));
    });
    const targets = answers.map(({ logProbs }, g) => ({
      weights: logProbs.map(() => 0.1),
      advantages: g % 2 === 0 ? 1 : -1,
      reference: null,
      old: null,
    }));
    await policy.learn([{ prompt, answers, targets }], { policy: 'reinforce', kl: null });
    await policy.step(1e-2);
    for (const [name, { data }] of policy.model.weights) {
      const old = must(before.get(name), name);
      // Matrices A have no gradient before B has moved.
      const moved = data.some((x, i) => x !== old[i]);
      if (!isAdapters(name) || name.endsWith('lora_B.weight')) expect(moved, name).toBe(isAdapters(name));
    }
    const [[drawn]] = await task.render([{ prompt, answers: [answers[0]], keys: ['k'] }]);
    expect(drawn.item.edited).toMatchObject({ width: 12, height: 16 });
  });

  it('has no guidance if its pipeline was distilled', () => {
    const folder = join(newFolder(), 'klein');
    cpSync(klein, folder, { recursive: true });
    const index = join(folder, 'model_index.json');
    writeFileSync(index, readFileSync(index, 'utf8').replace('"is_distilled": false', '"is_distilled": true'));
    const problems = (guidance: number | null): readonly string[] =>
      imageEditor
        .checks(settingsOf({ folder, guidance }), () => null)
        .flatMap((check) => {
          try {
            check.run();
            return [];
          } catch (error) {
            return [(error as Error).message];
          }
        });
    expect(problems(null)).toEqual([]);
    expect(problems(4)).toEqual(['rollout.guidance_scale is set, but the model was distilled and has no guidance']);
  });
});
