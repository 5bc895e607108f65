// prompt_enhance with a small Stable Diffusion 3 of random weights, from its folder as diffusers saves it.
{
  environment: {
    type: 'model',
    model: 'test/policies/flow/fixtures/sd3',
    model_type: 'sd3',
    width: 12,
    height: 16,
    num_steps: 2,
    guidance_scale: 4.5,
    pictures_at_once: 8,
    engine: { provider: 'cpu' },
  },
  reaches_parents: false,
}
