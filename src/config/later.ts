/** Values that are in the design but not supported by this version, by dotted key: they are refused with a specific message. */
export const laterValues: Readonly<Record<string, readonly string[]>> = {
  'algorithm.type': ['ppo'],
  'policy.trainer.type': ['tinker'],
  'policy.engine.type': ['vllm'],
  'policy.engine.dtype': ['bfloat16'],
  'environment.engine.type': ['vllm'],
  'environment.engine.dtype': ['float16', 'bfloat16'],
};
