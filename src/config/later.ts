/** Values that are in the design but not supported by this version, by dotted key: they are refused with a specific message. */
export const laterValues: Readonly<Record<string, readonly string[]>> = {
  'algorithm.type': ['ppo'],
  'policy.trainer.type': ['tinker'],
  'policy.engine.type': ['vllm'],
  'policy.engine.dtype': ['bfloat16'],
  'environment.engine.type': ['vllm'],
  'environment.engine.dtype': ['float16', 'bfloat16'],
};

/** What to take in their place, where something does the same, by dotted key and value. */
export const insteadOf: Readonly<Record<string, string | undefined>> = {
  'policy.engine.dtype bfloat16':
    'float16 holds a bfloat16 checkpoint exactly between 2^-14 and 65504, and smaller numbers within 2^-25',
};
