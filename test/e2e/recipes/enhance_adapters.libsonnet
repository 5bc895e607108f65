// prompt_enhance learns adapters over its start, and each answer's picture begins with noise of its own.
{ policy+: { lora: { rank: 2, alpha: 4, targets: 'all-linear' } }, rollout+: { same_latent: false }, reaches_parents: false }
