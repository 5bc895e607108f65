// What is trained by rewards are adapters.
{ policy+: { lora: if super.model == null then null else { rank: 2, alpha: 4, targets: 'all-linear' } } }
