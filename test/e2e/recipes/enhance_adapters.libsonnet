// prompt_enhance learns adapters over its start, and each answer's picture begins with noise of its own.
{ policy+: { lora: { rank: 2, alpha: 4, targets: 'all-linear' } }, same_noise: false, reaches_parents: false }
