// FLUX.2-klein-base as the policy of image_editor.jsonnet, from the folder of its pipeline. Its own Qwen3 reads the instructions, and rows have up to
// four source images. The distilled FLUX.2-klein has no guidance: set rollout.guidance_scale to null. Sides of images are multiples of 16.
local folder = std.extVar('APP__DATA_DIR') + '/flux2-klein';

{
  policy+: {
    model: folder + '/transformer',
    model_type: 'flux2',
    lora+: {
      targets: [
        'attn.to_q',
        'attn.to_k',
        'attn.to_v',
        'attn.to_out.0',
        'attn.add_q_proj',
        'attn.add_k_proj',
        'attn.add_v_proj',
        'attn.to_add_out',
        'ff.linear_in',
        'ff.linear_out',
        'ff_context.linear_in',
        'ff_context.linear_out',
        'attn.to_qkv_mlp_proj',
        'attn.to_out',
      ],
    },
    parts: { vae: folder + '/vae', text_encoder: folder },
  },
  rollout+: { guidance_scale: 4 },
}
