// Reaches a run and the runs that it starts from: export APP__SEED, then add --with experiments/seed.libsonnet.
{ seed: std.parseInt(std.extVar('APP__SEED')) }
