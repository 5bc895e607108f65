/** One iteration of image_editor by hand, over the real models of its settings. */
import { expect } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import { isAdapters } from '../../../src/compute/nets/lora.js';
import type { ImageEditorSettings } from '../../../src/recipes/image_editor/settings.js';
import type { EditorPrompt } from '../../../src/recipes/image_editor/task.js';
import type { sampledIn } from '../../../src/recipes/shared/flow/rewards.js';
import { loadFlow } from '../../../src/train/policies/flow/load.js';
import type { FlowAnswer } from '../../../src/train/policies/flow/batch.js';
import { FlowPolicy } from '../../../src/train/policies/flow/policy.js';

/**
 * Samples four answers to a prompt, recomputes their log-probabilities, learns from made-up advantages, and expects that LoRA alone has moved. Returns
 * the answers and the names of the layers with adapters.
 */
export async function learnOnce(
  { policy: { lora, model }, optimizer, rollout }: ImageEditorSettings,
  prompt: EditorPrompt,
  how: ReturnType<typeof sampledIn>,
): Promise<{ readonly answers: readonly FlowAnswer[]; readonly layers: readonly string[] }> {
  const policy = new FlowPolicy({
    model: loadFlow(model as string, { trains: 'lora', lora, imagePrompt: null, seed: 1 }),
    optimizer,
    guidance: rollout.guidance_scale,
    session: { threads: 1 },
    keepReference: false,
  });
  const before = new Map([...policy.model.weights].map(([name, { data }]) => [name, data.slice()]));
  const [answers] = await policy.sample({
    ...{ prompts: [prompt], among: [prompt], answersPerPrompt: 4, how, weights: 'current' },
    random: (_: number, g: number) => new RandomStream('one iteration', g),
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
  await policy.dispose();
  return { answers, layers: [...before.keys()].filter((name) => name.endsWith('.lora_A.weight')) };
}
